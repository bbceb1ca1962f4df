"""lambda_W step by step against the recursion of its docstring, written with NumPy."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

from replicax.algorithm import schedule, swap
from replicax.algorithm import window_correction as correction

REFERENCE, TUNING, WINDOW = 90, 150, 1000
RULE = swap.window_corrected("auto", 1.0, reference_steps=REFERENCE, tuning_steps=TUNING)
TEMPERATURE = np.array([0.5, 2.0], np.float32)


def energies_of_a_run() -> np.ndarray:
    """Small differences, but for the first tenth of the reference, which has not settled."""
    energies = 3.0 + 0.02 * np.random.default_rng(0).normal(size=REFERENCE + TUNING + 20)
    energies[: REFERENCE // 10] += 5.0
    return energies.astype(np.float32)


def by_hand(energies: np.ndarray, window: int) -> np.ndarray:
    """lambda_W after every step."""
    settled = energies[REFERENCE // 10 : REFERENCE].mean(dtype=float)
    tuning = energies[REFERENCE : REFERENCE + TUNING].astype(float)
    slope, most = 1 / 0.5 - 1 / 2.0, np.log(window)
    length, value, values = TUNING // 50, 0.0, []
    for place in range(TUNING):
        if place % length == length - 1:
            block = tuning[place - length + 1 : place + 1].mean()
            gain = 100 / (place // length + 5)
            value = np.clip(value + gain * slope * (block - settled), -most, most)
        values.append(value)
    values[-1] = np.mean(values[TUNING // 2 :])
    return np.concatenate([np.zeros(REFERENCE), values, np.full(20, values[-1])])


@pytest.mark.parametrize("window", [WINDOW, 2])
def test_every_step_is_that_of_the_recursion(window: int) -> None:
    energies = energies_of_a_run()

    def one(found, seen):
        step, energy = seen
        found = correction.update(RULE, window, step, found, energy, jnp.asarray(TEMPERATURE))
        return found, found.value

    steps = jnp.arange(len(energies), dtype=jnp.int32)
    start = correction.start(RULE, jnp.float32)
    _, values = jax.jit(lambda: jax.lax.scan(one, start, (steps, jnp.asarray(energies))))()
    wanted = by_hand(energies, window)
    assert np.ptp(wanted) > 0.5
    assert (np.abs(wanted).max() == np.log(window)) == (window == 2), "the bound is met"
    np.testing.assert_allclose(values, wanted, atol=2e-4)


def test_windows_begin_where_the_reference_ends() -> None:
    state = correction.start(RULE, jnp.float32)._replace(value=jnp.float32(0.7))
    made = schedule.windowed_deo(WINDOW)
    windows = {}
    for step in (0, REFERENCE - 1, REFERENCE, REFERENCE + TUNING):
        rule, during = correction.in_force(RULE, made, jnp.array(step), state)
        assert float(rule.window_correction) == pytest.approx(0.7)
        windows[step] = int(during.window)
    assert list(windows.values()) == [1, 1, WINDOW, WINDOW]


def test_a_first_energy_that_is_not_finite_says_nothing() -> None:
    """Later energies are compared with one that is finite, whatever the first one was."""
    found = correction.start(RULE, jnp.float32)
    for step, energy in ((0, np.nan), (REFERENCE // 10, 2.0), (REFERENCE // 10 + 1, 3.0)):
        found = correction.update(
            RULE, WINDOW, jnp.array(step), found, jnp.float32(energy), jnp.asarray(TEMPERATURE)
        )
    assert float(found.anchor + found.reference.total) == pytest.approx(5.0)


def test_few_steps_of_tuning_are_blocks_of_one_step_and_end() -> None:
    """Of two steps; the energy of the next one does not matter, and the reference is 0."""
    rule = replace(RULE, tuning_steps=2)
    found, seen = correction.start(rule, jnp.float32), []
    update = quick_jit(lambda *now: correction.update(rule, WINDOW, *now, jnp.asarray(TEMPERATURE)))
    for place, energy in enumerate((0.001, 0.002, 5.0)):
        found = update(jnp.array(REFERENCE + place), found, jnp.float32(energy))
        seen.append(float(found.value))
    first = 1.5 * 100 / 5 * 0.001
    last = first + 1.5 * 100 / 6 * 0.002  # the average over the second half, one step
    assert seen == pytest.approx([first, last, last], rel=1e-4)
