"""lambda_W that a run finds itself: its recursion, its stages, resume, and what it refuses."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of, in_method, slow

import replicax as rx
from replicax.algorithm import schedule, swap
from replicax.algorithm import window_correction as correction
from replicax.algorithm.window_correction import Correction, Sum
from studies.two_modes import OF_THE_PAPER

MIXTURE = OF_THE_PAPER.target(energy_noise_std=1.0)
STAGES = {"reference_steps": 300, "tuning_steps": 400}
FROZEN = 700


def sample(rule: Any = None, chunk_steps: int | None = None, **options: Any) -> rx.Posterior:
    """A short run of two replicas that finds its lambda_W: right in form, not in value."""
    auto = swap.window_corrected("auto", 1.0, **STAGES)
    settings: dict[str, Any] = {
        "rule": rule or auto,
        "num_steps": 900,
        "num_replicas": 2,
        "num_chains": 2,
        "learning_rate": 0.02,
        "temperature": (1.0, 10.0),
        "window": 5,
        "history_every": 1,
        "burn_in": FROZEN,
        "progress": False,
        "seed": 3,
    }
    with chunks_of(chunk_steps):
        return rx.sample(MIXTURE, jnp.zeros(()), **in_method(settings | options))


# The recursion


def follow(mean_energy: Any, window: int = 1000, sign: float = 1.0, offset: float = 0.0) -> Any:
    """Feed the estimate energies of mean `mean_energy(lambda)`, and 1 (+ offset) as reference."""
    rule = swap.window_corrected("auto", 1.0, reference_steps=20_000, tuning_steps=40_000)
    temperature = jnp.array([1.0, 10.0])

    def one(found: Any, step: Any) -> Any:
        noise = jax.random.normal(jax.random.fold_in(jax.random.key(0), step))
        tuning = step >= 20_000
        excess = jnp.where(tuning, mean_energy(found.value), 1.0) - 1.0
        energy = offset + 1.0 + sign * excess + noise
        after = correction.update(rule, window, step, found, energy, temperature)
        return after, after.value

    start = correction.start(rule, jnp.float32)
    run = jax.jit(lambda: jax.lax.scan(one, start, jnp.arange(70_000, dtype=jnp.int32)))
    last, values = run()
    return last, np.asarray(values)


@pytest.mark.parametrize(("slope", "root"), [(0.03, 3.0), slow(0.03, -1.0), slow(0.1, 5.0)])
def test_the_recursion_finds_the_correction_at_which_energies_agree(
    slope: float, root: float
) -> None:
    # Standard error: sqrt(1 / 18,000 + 1 / 40,000) / slope = 0.3 at a slope of 0.03.
    last, values = follow(lambda value: 1.0 + slope * (root - value))
    assert float(last.value) == pytest.approx(root, abs=0.03 / slope)
    assert np.all(values[:20_000] == 0)
    assert np.all(values[60_000:] == float(last.value))
    assert float(last.value) == pytest.approx(np.mean(values[40_000:59_999]), abs=1e-3)


def test_a_recursion_of_the_wrong_sign_ends_at_its_bound() -> None:
    last, _ = follow(lambda value: 1.0 + 0.03 * (3.0 - value), sign=-1.0)
    assert abs(float(last.value)) == pytest.approx(np.log(1000), rel=0.02)


def test_large_energies_are_averaged_as_well_as_small_ones() -> None:
    small, _ = follow(lambda value: 1.0 + 0.03 * (3.0 - value))
    large, _ = follow(lambda value: 1.0 + 0.03 * (3.0 - value), offset=4096.0)
    assert float(large.value) == pytest.approx(float(small.value), abs=0.05)


def test_a_correction_is_at_most_the_logarithm_of_the_window() -> None:
    for window in (1, 10):
        last, values = follow(lambda value: 3.0, window=window)
        assert float(last.value) == pytest.approx(np.log(window), abs=1e-4)
        assert np.max(values) <= np.float32(np.log(window))


def test_millions_of_terms_are_summed_without_loss() -> None:
    zero = jnp.zeros(())
    add = jax.jit(
        lambda: jax.lax.fori_loop(
            0, 3_000_000, lambda _, s: s.add(jnp.float32(0.1)), Sum(zero, zero)
        )
    )
    assert float(add().total) == pytest.approx(3e5, rel=1e-6)
    plain = jax.jit(
        lambda: jax.lax.fori_loop(0, 3_000_000, lambda _, s: s + jnp.float32(0.1), zero)
    )
    assert float(plain()) != pytest.approx(3e5, rel=1e-3)


def test_energies_that_are_not_finite_say_nothing() -> None:
    rule = swap.window_corrected("auto", 1.0, reference_steps=10, tuning_steps=10)
    found = correction.start(rule, jnp.float32)
    for step, energy in ((0, 2.0), (5, np.nan), (15, np.inf)):
        found = correction.update(
            rule, 5, jnp.array(step), found, jnp.float32(energy), jnp.array([1.0, 10.0])
        )
    assert isinstance(found, Correction)
    assert float(found.value) == 0 and float(found.reference.total) == 0


def test_the_energy_of_the_coldest_rung_is_compared() -> None:
    rule = swap.window_corrected("auto", 1.0, reference_steps=20, tuning_steps=50)
    kernel, ladder = (
        rx.kernels.sgld(),
        rx.algorithm.Ladder(jnp.full(3, 0.05), jnp.array([1.0, 2.0, 4.0])),
    )
    chosen = rx.algorithm.Settings(
        schedule.windowed_deo(5), rule, rx.algorithm.Tuning(adapts=None, adapts_buffer=False)
    )
    step = jax.jit(rx.algorithm.build_step(MIXTURE, kernel, chosen))
    state, info = step(jax.random.key(1), rx.algorithm.init(kernel, jnp.zeros(3), ladder, chosen))
    assert len(np.unique(info.energy)) == 3
    assert float(state.correction.anchor) == float(info.energy[0])


# The stages of a run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The rule")
def test_the_reference_is_the_run_without_windows() -> None:
    auto = sample()
    plain = sample(swap.bias_corrected(1.0), window=1, burn_in=0)
    windowed = sample(swap.bias_corrected(1.0), burn_in=0)
    reference = STAGES["reference_steps"]
    np.testing.assert_array_equal(auto.rung_of[:, :reference], plain.rung_of[:, :reference])
    assert np.any(auto.rung_of[:, :reference] != windowed.rung_of[:, :reference])


def test_tuning_moves_the_correction_and_then_it_stays() -> None:
    posterior = sample()
    values = posterior.history["window_correction"]
    tuned = values[:, STAGES["reference_steps"] : FROZEN - 1]
    assert values.shape == (2, 900)
    assert np.all(values[:, : STAGES["reference_steps"]] == 0)
    assert np.all(np.ptp(tuned, axis=1) > 0.1)
    changes = np.flatnonzero(np.any(np.diff(values, axis=1) != 0, axis=0)) + 1  # steps
    assert np.all((changes + 1 - STAGES["reference_steps"]) % 8 == 0)  # ends of 50 blocks
    assert np.all(values[:, FROZEN - 1 :] == posterior.window_correction[:, None])
    half = STAGES["tuning_steps"] // 2
    assert posterior.window_correction == pytest.approx(tuned[:, half:].mean(axis=1), abs=0.02)
    assert posterior.window_correction[0] != posterior.window_correction[1]
    summary = posterior.summary()
    assert summary["window_correction"] == posterior.window_correction.tolist()
    assert "window correction" in str(summary)


@pytest.mark.slow
def test_once_frozen_it_acts_like_a_number_that_is_given() -> None:
    """From the same state on, with the same chance, both go the same way."""
    rule = swap.window_corrected("auto", 1.0, reference_steps=20, tuning_steps=50)
    kernel, ladder = (
        rx.kernels.sgld(),
        rx.algorithm.Ladder(jnp.full(2, 0.05), jnp.array([1.0, 10.0])),
    )
    auto = rx.algorithm.Settings(
        schedule.windowed_deo(5), rule, rx.algorithm.Tuning(adapts=None, adapts_buffer=False)
    )
    step = jax.jit(rx.algorithm.build_step(MIXTURE, kernel, auto))
    state = rx.algorithm.init(kernel, jnp.zeros(2), ladder, auto)
    for _ in range(70):
        state, _ = step(jax.random.key(1), state)
    found = float(state.correction.value)
    assert found != 0
    given = rx.algorithm.Settings(auto.schedule, swap.window_corrected(found, 1.0), auto.tuning)
    other_step = jax.jit(rx.algorithm.build_step(MIXTURE, kernel, given))
    other, swaps = state._replace(correction=()), 0
    for _ in range(200):
        state, info = step(jax.random.key(1), state)
        other, other_info = other_step(jax.random.key(1), other)
        assert bool(info.wanted[0]) == bool(other_info.wanted[0])
        swaps += int(info.swapped[0])
    assert swaps > 3
    np.testing.assert_array_equal(state.rung_of, other.rung_of)


@pytest.mark.slow
def test_without_windows_there_is_nothing_to_correct() -> None:
    for options in ({"window": 1}, {"schedule": "no_gate"}):
        posterior = sample(num_steps=60, burn_in=0, **options)
        assert np.all(posterior.window_correction == 0)
        assert "window_correction" not in posterior.history
    given = sample(swap.window_corrected(0.7, 1.0), num_steps=60, burn_in=0)
    assert given.window_correction.tolist() == [0.7, 0.7]


@pytest.mark.slow
def test_more_than_two_replicas_share_one_correction() -> None:
    posterior = sample(num_replicas=4, window=20)
    assert posterior.window_correction.shape == (2,)
    assert np.all(np.abs(posterior.window_correction) <= np.log(20))
    assert np.all(posterior.window_correction != 0)


# Chunks and checkpoints


@functools.cache
def uninterrupted() -> rx.Posterior:
    return sample()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [150, 450, 740])
def test_a_run_goes_on_in_every_stage_as_if_it_had_not_stopped(tmp_path: Any, stop: int) -> None:
    whole = uninterrupted()
    stopped = sample(
        run_dir=tmp_path,
        chunk_steps=37,
        callback=lambda progress: "stop" if progress.step >= stop else None,
    )
    assert stop <= stopped.num_steps < stop + 37
    resumed = rx.resume(tmp_path, MIXTURE)
    np.testing.assert_array_equal(whole.window_correction, resumed.window_correction)
    np.testing.assert_array_equal(whole.rung_of, resumed.rung_of)
    np.testing.assert_array_equal(whole.draws, resumed.draws)
    name = "window_correction"
    np.testing.assert_array_equal(whole.history[name], resumed.history[name])


@pytest.mark.slow
def test_a_longer_run_keeps_the_stages_it_began_with(tmp_path: Any) -> None:
    rule = swap.window_corrected("auto", 1.0)
    sample(rule, run_dir=tmp_path, num_steps=300, burn_in=200)
    longer = rx.resume(tmp_path, MIXTURE, num_steps=500)
    values = longer.history["window_correction"]
    assert np.all(values[:, 199:] == values[:, 199:200])
    assert np.all(values[:, :100] == 0) and np.all(values[:, 150] != 0)


# What is refused


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"window_correction": "automatic"}, "Did you mean 'auto'"),
        ({"window_correction": np.nan}, "finite number"),
        ({"window_correction": None}, "finite number"),
        ({"window_correction": True}, "finite number"),
        ({"window_correction": [1.0, 2.0]}, "finite number"),
        ({"window_correction": 1.0, "reference_steps": 100}, 'belongs to window_correction="auto"'),
        ({"window_correction": "auto", "tuning_steps": 0}, "at least 1"),
        ({"window_correction": "auto", "reference_steps": 10.5}, "whole number"),
    ],
)
def test_a_rule_says_what_it_cannot_take(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        swap.window_corrected(energy_noise_std=1.0, **arguments)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_steps": 701, "burn_in": 0}, "write burn_in=700"),
        ({"num_steps": 700}, "num_steps above it .they are 700 and 700"),
        ({"window": 100}, "windows of 100 steps need at least 10"),
        ({"schedule": "exactly_one"}, "exactly_one"),
    ],
)
def test_a_run_says_what_it_cannot_do(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sample(**options)


def test_a_step_made_by_hand_needs_the_lengths_of_the_stages() -> None:
    settings = rx.algorithm.Settings(schedule.windowed_deo(5), swap.window_corrected("auto", 1.0))
    ladder = rx.algorithm.Ladder(jnp.full(2, 0.05), jnp.array([1.0, 10.0]))
    with pytest.raises(ValueError, match="reference_steps=..., tuning_steps=..."):
        rx.algorithm.init(rx.kernels.sgld(), jnp.zeros(2), ladder, settings)
