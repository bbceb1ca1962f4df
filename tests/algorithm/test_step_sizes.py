"""Step sizes that tune themselves, beside the same recursion in NumPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

from replicax.algorithm.kernel import Observed
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.tuning import StepSizeTuning, start_step_sizes, tune_step_sizes

NUM_RUNGS = 2
TUNING = StepSizeTuning(round_ends=(3, 7), until=9)
RATES = np.array([0.1, 0.4])


def observations() -> tuple[np.ndarray, np.ndarray]:
    """Errors (step, rung), and steepness (step, rung, parameter) of very different parameters."""
    rng = np.random.default_rng(0)
    errors = rng.uniform(-1, 0.5, size=(12, NUM_RUNGS))
    errors[4, 1] = np.nan
    steep = np.exp(rng.normal(size=(12, NUM_RUNGS, 4))) * [1.0, 1e3, 1e-2, 1e30]
    steep[1, 0, 2] = np.inf
    return errors, steep


def by_hand() -> list[tuple[np.ndarray, np.ndarray]]:
    """Learning rates (rung,) and scales (rung, parameter) after every step."""
    rate, scale = RATES.copy(), np.ones((NUM_RUNGS, 4))
    total, count, seen = np.zeros((NUM_RUNGS, 4)), 0, []
    errors, steep = observations()
    for step in range(12):
        if step < TUNING.until:
            gain = max(1.5 / (1 + count) ** 0.6, 0.02)
            rate = rate * np.exp(gain * np.where(np.isnan(errors[step]), -1.0, errors[step]))
            logs = np.log(steep[step] + 1e-30)
            total, count = total + np.where(np.isfinite(logs), logs, 0.0), count + 1
            if step + 1 in TUNING.round_ends:
                logs = np.log(0.281) - total / count  # of the scales
                middle = logs.mean(axis=1, keepdims=True)
                logs = np.clip(logs, middle - np.log(1e6), middle + np.log(1e6))
                rate = rate * np.exp(np.log(scale).mean(axis=1) - logs.mean(axis=1))
                scale, total, count = np.exp(logs), np.zeros_like(total), 0
        seen.append((rate, scale))
    return seen


def test_rates_follow_errors_and_scales_are_inverse_to_steepness() -> None:
    """In rounds that end after steps 2 and 6, until step 9; one of the parameters is so steep that
    its scale is cut."""
    params = {"a": jnp.zeros((NUM_RUNGS, 3)), "b": jnp.zeros(NUM_RUNGS)}
    ladder = Ladder(jnp.array(RATES, jnp.float32), jnp.ones(NUM_RUNGS))
    ladder, sizes = start_step_sizes(ladder, params)
    tune = quick_jit(lambda *arguments: tune_step_sizes(TUNING, *arguments))
    errors, steep = (np.asarray(values, np.float32) for values in observations())
    for step, (rate, scale) in enumerate(by_hand()):
        steepness = {"a": jnp.asarray(steep[step, :, :3]), "b": jnp.asarray(steep[step, :, 3])}
        observed = Observed(jnp.asarray(errors[step]), steepness, jnp.ones(2))
        ladder, sizes = tune(jnp.int32(step), ladder, sizes, observed)
        np.testing.assert_allclose(ladder.learning_rate, rate, rtol=2e-4, err_msg=f"{step}")
        found = np.concatenate([ladder.scale["a"], ladder.scale["b"][:, None]], axis=1)
        np.testing.assert_allclose(found, scale, rtol=2e-4, err_msg=f"{step}")


def test_a_round_that_is_long_keeps_a_least_gain() -> None:
    ladder = Ladder(jnp.ones(1), jnp.ones(1))
    ladder, sizes = start_step_sizes(ladder, jnp.zeros((1, 2)))
    sizes = sizes._replace(count=jnp.int32(10**6))
    observed = Observed(jnp.ones(1), jnp.ones((1, 2)), jnp.ones(1))
    after, _ = tune_step_sizes(TUNING, jnp.int32(0), ladder, sizes, observed)
    assert float(after.learning_rate[0]) == pytest.approx(np.exp(0.02), rel=1e-5)
