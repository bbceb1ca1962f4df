"""From the options of a training to its program: units, rungs, epochs."""

from typing import Any

import numpy as np
import pytest
from tiny_networks import NUM_ROWS, tiny_problem

import replicax as rx
from replicax.algorithm.tuning import ConstantGain
from replicax.networks.tempered import tempered
from replicax.run.methods import METHODS
from replicax.run.options import Training
from replicax.run.parts import Clock, clock_of
from replicax.run.program import Program
from replicax.run.resolve import resolve

STEPS = 4  # of an epoch
# Energies are mean losses, or those of the posterior of all rows.
PROBLEMS = {"mean": tiny_problem(), "posterior": tempered(tiny_problem())}
SCALES = {"mean": 1.0, "posterior": float(NUM_ROWS)}


def program(method: Any = "deo-star", unit: str = "mean", **options: Any) -> Program:
    chosen = Training(**({"epochs": 30, "num_replicas": 3} | options))
    return resolve(PROBLEMS[unit], chosen, method)


@pytest.mark.parametrize("unit", SCALES)
def test_buffer_and_gains_are_scaled_to_the_unit(unit: str) -> None:
    def made(**choices: Any) -> Program:
        return program(rx.deo_star(**choices), unit)

    scale = SCALES[unit]
    assert made(buffer=0.3).buffer == pytest.approx(0.3 * scale)
    gain = made(buffer_gain=rx.Gain(3.0, 40.0, cap=0.05)).settings.tuning.buffer_gain
    steps = np.arange(0, 2000, 50)
    wanted = scale * np.minimum(0.05, 3.0 / (steps**0.8 + 40.0))
    np.testing.assert_allclose(gain(steps), wanted, rtol=1e-5)
    assert gain.cap == pytest.approx(0.05 * scale)
    for given in (ConstantGain(0.2), 0.2):
        constant = made(buffer_gain=given).settings.tuning.buffer_gain
        assert constant.value == pytest.approx(0.2 * scale)
    own = made(buffer_gain=lambda step: 0.1 * step).settings.tuning.buffer_gain
    assert own(7) == pytest.approx(0.7 * scale)
    ladder = made(gain=rx.Gain(3.0, 40.0)).settings.tuning.gain  # acts on logarithms of gaps
    assert (ladder.scale, ladder.cap) == (3.0, 0.5)


@pytest.mark.parametrize("unit", SCALES)
def test_rates_and_temperatures_are_in_the_unit(unit: str) -> None:
    scale = SCALES[unit]
    ladder = program(rx.deo_star((0.1, 0.4), temperature=0.5), unit).ladder
    np.testing.assert_allclose(ladder.learning_rate, np.array([0.1, 0.2, 0.4]) / scale, rtol=1e-6)
    np.testing.assert_allclose(ladder.temperature, [0.5 * scale / NUM_ROWS, 0, 0], rtol=1e-6)
    usual = np.array([0.005, 0.01, 0.02])
    np.testing.assert_allclose(program(unit=unit).ladder.learning_rate, usual / scale, rtol=1e-6)
    alone = program("ensemble", unit).ladder.learning_rate
    np.testing.assert_allclose(alone, np.full(3, 0.005) / scale, rtol=1e-6)


def test_options_stay_in_the_words_of_the_user_and_resolve_once() -> None:
    made = program(rx.deo_star((0.1, 0.4), buffer=0.3), "posterior")
    assert (made.method.learning_rate, made.method.buffer) == ((0.1, 0.4), 0.3)
    again = resolve(PROBLEMS["posterior"], made.run, made.method)
    assert (again.run, again.method) == (made.run, made.method)
    assert again.describe() == made.describe()
    assert again.buffer == made.buffer
    np.testing.assert_array_equal(again.ladder.learning_rate, made.ladder.learning_rate)


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

    def found(**choices: Any) -> np.ndarray:
        return program(METHODS[method](**choices)).ladder.temperature * NUM_ROWS

    np.testing.assert_allclose(found(), temperature, rtol=1e-6)
    if hot is not None:
        np.testing.assert_allclose(found(temperature=0.7), [0.7, 0.7 * hot, 0.7 * hot], rtol=1e-6)


def test_temperatures_suit_the_rule() -> None:
    made = program(rx.sghmc_pt(temperature="auto"), "posterior", burn_in=10)
    assert made.method.temperature == "auto" and made.settings.tuning.adapts == "temperature"
    assert (made.settings.tuning.until, made.settings.energy_at) == (10 * STEPS, "moved")
    method = made.method
    assert (method.rule, method.swap_every, method.schedule) == ("bias_corrected", 10, "deo")
    pair = program(rx.sghmc_pt(temperature=(0.5, 2.0)), "posterior", burn_in=10).ladder
    np.testing.assert_allclose(pair.temperature, [0.5, 1.0, 2.0], rtol=1e-6)
    mean = program(rx.deo_star(temperature=(0.5, 2.0))).ladder.temperature
    np.testing.assert_allclose(mean * NUM_ROWS, [0.5, 1.0, 2.0], rtol=1e-6)


def test_a_broken_network_restarts_by_default_where_there_is_a_ladder() -> None:
    for method in ("deo-star", "deo"):
        assert program(method).settings.restarts
    for method in ("ensemble", "sgld", "cyc-sghmc", "pretrain"):
        assert not program(method).settings.restarts
    assert not program(on_nonfinite="stop").settings.restarts
    assert program("ensemble", on_nonfinite="restart").settings.restarts


def test_one_network_takes_the_epochs_of_all() -> None:
    assert program().num_steps == 30 * STEPS
    single = program("cyc-sghmc")
    assert (single.num_steps, single.num_replicas) == (90 * STEPS, 1)
    assert clock("cyc-swag", 30, cycle_epochs=40)[:3] == (90, STEPS, 40)
    assert clock("cyc-swag", 30).cycle_epochs == 90


def clock(method: str, epochs: int, **choices: Any) -> Clock:
    return clock_of(Training(epochs=epochs, num_replicas=3), METHODS[method](**choices), STEPS)


def test_tests_and_averages_are_ten_epochs_apart() -> None:
    pretrained = clock("pretrain", 30)
    assert (pretrained.test_every, pretrained.pick_every) == (10, 10)
    assert program("pretrain").evaluate_every == 10 * STEPS
    assert clock("pretrain", 4).test_every == 4
    assert clock("ensemble", 4).pick_every == 4
    assert clock("deo-star", 30).test_every == 1


def test_draws_and_history_are_those_at_the_end_of_an_epoch() -> None:
    chosen = program(epochs=3)
    assert (chosen.burn_in, chosen.thin, chosen.history_every) == (STEPS - 1, STEPS, STEPS)
    assert chosen.settings.energy_at == "before"
    drawn = np.flatnonzero(chosen.is_drawn(np.arange(3 * STEPS)))
    assert drawn.tolist() == [STEPS - 1, 2 * STEPS - 1, 3 * STEPS - 1]
    assert not chosen.keep_draws and program(keep_networks=True).keep_draws
