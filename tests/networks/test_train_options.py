"""From the options of a training to those of the sampler: units, rungs, epochs."""

from typing import Any

import numpy as np
import pytest
from tiny_networks import NUM_ROWS, tiny_problem

import replicax as rx
from replicax.algorithm.tuning import ConstantGain
from replicax.networks.options import TrainOptions
from replicax.networks.train import build_training
from replicax.run.options import Options

STEPS = 4  # of an epoch
PROBLEMS = {unit: tiny_problem(unit=unit) for unit in ("mean", "total")}
SCALES = {"mean": 1.0, "total": float(NUM_ROWS)}


def sampler(unit: str = "mean", **options: Any) -> Options:
    return TrainOptions(**({"epochs": 30, "num_replicas": 3} | options)).sampler(PROBLEMS[unit])


@pytest.mark.parametrize("unit", SCALES)
def test_buffer_and_gains_are_scaled_to_the_unit(unit: str) -> None:
    scale = SCALES[unit]
    assert sampler(unit, buffer=0.3).buffer == pytest.approx(0.3 * scale)
    gain = sampler(unit, buffer_gain=rx.Gain(3.0, 40.0, cap=0.05)).buffer_gain
    steps = np.arange(0, 2000, 50)
    wanted = scale * np.minimum(0.05, 3.0 / (steps**0.8 + 40.0))
    np.testing.assert_allclose(gain(steps), wanted, rtol=1e-5)
    assert gain.cap == pytest.approx(0.05 * scale)
    constant = sampler(unit, buffer_gain=ConstantGain(0.2)).buffer_gain
    assert constant.value == pytest.approx(0.2 * scale)
    assert sampler(unit, buffer_gain=0.2).buffer_gain == pytest.approx(0.2 * scale)
    own = sampler(unit, buffer_gain=lambda step: 0.1 * step).buffer_gain
    assert own(7) == pytest.approx(0.7 * scale)
    ladder = sampler(unit, gain=rx.Gain(3.0, 40.0)).gain  # acts on logarithms of gaps
    assert (ladder.scale, ladder.cap) == (3.0, 0.5)


@pytest.mark.parametrize("unit", SCALES)
def test_rates_and_temperatures_are_in_the_unit(unit: str) -> None:
    scale = SCALES[unit]
    chosen = sampler(unit, learning_rate=(0.1, 0.4), temperature=0.5)
    np.testing.assert_allclose(chosen.learning_rate, np.array([0.1, 0.4]) / scale)
    assert chosen.temperature == pytest.approx(0.5 * scale / NUM_ROWS)
    np.testing.assert_allclose(sampler(unit).learning_rate, np.array([0.005, 0.02]) / scale)
    np.testing.assert_allclose(sampler(unit, method="ensemble").learning_rate, 0.005 / scale)


@pytest.mark.parametrize(
    ("method", "temperature", "hot"),
    [
        ("sgld", [1.0, 1.0, 1.0], 1.0),
        ("ensemble", [0.0, 0.0, 0.0], 1.0),
        ("deo-star", [0.0, 0.0, 0.0], 0.0),
        ("cyc-sghmc", [0.001], None),
    ],
)
def test_which_rungs_have_a_temperature(method: str, temperature: list, hot: Any) -> None:
    """Of a ladder the coldest alone; of networks that do not exchange, all."""

    def found(**options: Any) -> np.ndarray:
        chosen = TrainOptions(epochs=30, num_replicas=3, method=method, **options)
        return build_training(PROBLEMS["mean"], chosen).ladder.temperature * NUM_ROWS

    np.testing.assert_allclose(found(), temperature, rtol=1e-6)
    if hot is not None:
        np.testing.assert_allclose(found(temperature=0.7), [0.7, 0.7 * hot, 0.7 * hot], rtol=1e-6)


def test_a_broken_network_restarts_by_default_where_there_is_a_ladder() -> None:
    for method in ("deo-star", "deo"):
        assert sampler(method=method).on_nonfinite == "restart"
    for method in ("ensemble", "sgld", "cyc-sghmc", "pretrain"):
        assert sampler(method=method).on_nonfinite == "stop"
    assert sampler(on_nonfinite="stop").on_nonfinite == "stop"
    assert sampler(method="ensemble", on_nonfinite="restart").on_nonfinite == "restart"


def test_one_network_takes_the_epochs_of_all() -> None:
    assert sampler().num_steps == 30 * STEPS
    single = sampler(method="cyc-sghmc")
    assert (single.num_steps, single.num_replicas) == (90 * STEPS, 1)
    options = TrainOptions(epochs=30, num_replicas=3, method="cyc-swag", cycle_epochs=40)
    assert (options.run_epochs, options.run_cycle_epochs) == (90, 40)
    clock = options.clock(PROBLEMS["mean"])
    assert (clock.epochs, clock.steps_per_epoch, clock.cycle_epochs) == (90, STEPS, 40)
    assert TrainOptions(epochs=30, num_replicas=3, method="cyc-swag").run_cycle_epochs == 90


def test_tests_and_averages_are_ten_epochs_apart() -> None:
    options = TrainOptions(epochs=30, method="pretrain")
    assert (options.test_every, options.pick_every) == (10, 10)
    assert build_training(PROBLEMS["mean"], options).evaluate_every == 10 * STEPS
    assert TrainOptions(epochs=4, method="pretrain").test_every == 4
    assert TrainOptions(epochs=4, method="ensemble").pick_every == 4
    assert TrainOptions(epochs=30).test_every == 1


def test_draws_and_history_are_those_at_the_end_of_an_epoch() -> None:
    chosen = sampler()
    assert (chosen.burn_in, chosen.thin, chosen.history_every) == (STEPS - 1, STEPS, STEPS)
    assert chosen.energy_at == "before"
    program = build_training(PROBLEMS["mean"], TrainOptions(epochs=3, num_replicas=3))
    drawn = np.flatnonzero(program.is_drawn(np.arange(3 * STEPS)))
    assert drawn.tolist() == [STEPS - 1, 2 * STEPS - 1, 3 * STEPS - 1]
    assert not chosen.keep_draws and sampler(keep_networks=True).keep_draws
