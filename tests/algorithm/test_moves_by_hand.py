"""One move of `hmc` and `mala` beside the same move written with NumPy in float64.

The target has two arrays of parameters, an energy that is no Gaussian and a prior; all numbers that
a move draws are given.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

import replicax as rx
from replicax.algorithm.adjusted_kernels import Drawn
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.target import StepEnergy

TEMPERATURE = 1.6
STEEP = np.array([1.0, 2.0, 0.5])
X = np.array([0.6, -1.1, 0.8])  # where a move starts


def as_tree(vector: Any) -> dict[str, Any]:
    return {"a": jnp.asarray(vector[:2], jnp.float32), "b": jnp.asarray(vector[2], jnp.float32)}


def as_vector(tree: Any) -> np.ndarray:
    return np.append(np.asarray(tree["a"], float), float(tree["b"]))


def energy(params: Any, batch: Any, key: Any) -> Any:
    return jnp.sum(STEEP * jnp.append(params["a"], params["b"]) ** 4) / 4


def prior(params: Any) -> Any:
    return jnp.sum(params["a"] ** 2) + 0.5 * params["b"] ** 2


TARGET = rx.Target(energy, prior=prior, tempers_likelihood=True)


def energy_at(x: np.ndarray) -> float:
    return float(np.sum(STEEP * x**4) / 4)


def prior_at(x: np.ndarray) -> float:
    return float(x[0] ** 2 + x[1] ** 2 + 0.5 * x[2] ** 2)


def prior_slope(x: np.ndarray) -> np.ndarray:
    return x * [2.0, 2.0, 1.0]


def slope_at(x: np.ndarray) -> np.ndarray:
    """The gradient of U / tau + V."""
    return STEEP * x**3 / TEMPERATURE + prior_slope(x)


class Move(NamedTuple):
    end: np.ndarray
    log_ratio: float


def log_length(x: np.ndarray, scale: np.ndarray) -> float:
    square = np.mean((np.sqrt(scale) * slope_at(x)) ** 2)
    return float(np.clip(-np.log((square + 0.3) / 1.3) / 2, -6.0, 1.0))


def hmc_by_hand(x, velocity, length_noise, rate, scale, num_leapfrog) -> Move:
    start, before, root = x, velocity, np.sqrt(scale)
    log_factor = log_length(x, scale) + 0.9 * length_noise
    length = np.sqrt(2 * rate) * np.exp(log_factor)
    for _ in range(num_leapfrog):
        velocity = velocity - length / 2 * root * slope_at(x)
        x = x + length * root * velocity
        velocity = velocity - length / 2 * root * slope_at(x)
    back = (log_factor - log_length(x, scale)) / 0.9
    change = (energy_at(x) - energy_at(start)) / TEMPERATURE + prior_at(x) - prior_at(start)
    change += (velocity @ velocity - before @ before) / 2 + (back**2 - length_noise**2) / 2
    return Move(x, -change)


KERNELS = {  # and leapfrog steps, target acceptance, learning rate, scale
    "mala": (rx.kernels.mala(), 1, 0.574, 0.4, [0.3, 2.0, 0.5]),
    "hmc": (rx.kernels.hmc(3, 0.7), 3, 0.7, 0.1, [0.3, 2.0, 0.5]),
    "hmc without scales": (rx.kernels.hmc(3, 0.7), 3, 0.7, 0.1, None),
    "hmc of 8": (rx.kernels.hmc(), 8, 0.8, 0.05, [0.3, 2.0, 0.5]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_an_adjusted_move_is_that_of_leapfrog_steps(name: str) -> None:
    kernel, num_leapfrog, target_acceptance, rate, scale = KERNELS[name]
    x, velocity = X, np.array([0.7, 0.2, -1.2])
    scales = np.ones(3) if scale is None else np.array(scale)
    wanted = hmc_by_hand(x, velocity, -0.5, rate, scales, num_leapfrog)
    assert -3.0 < wanted.log_ratio < -0.1, "it shows in the probability of acceptance"

    evaluate = StepEnergy(TARGET)
    replica = kernel.traits.prepare(kernel.init(as_tree(x)), evaluate)
    rung = Ladder(jnp.array(rate), jnp.array(TEMPERATURE), () if scale is None else as_tree(scale))
    step = quick_jit(lambda drawn: kernel.step(drawn, replica, evaluate, rung))
    for accepted in (True, False):
        log_uniform = wanted.log_ratio + (-0.02 if accepted else 0.005)
        drawn = Drawn(as_tree(velocity), jnp.float32(log_uniform), jnp.float32(-0.5))
        after, energy_after, observed = step(drawn)
        at = wanted.end if accepted else x
        np.testing.assert_allclose(as_vector(after.params), at, rtol=2e-5)
        assert float(energy_after) == pytest.approx(energy_at(at), rel=1e-4)
        assert float(observed.acceptance) == pytest.approx(np.exp(wanted.log_ratio), rel=2e-3)
        error = np.exp(wanted.log_ratio) - target_acceptance
        assert float(observed.step_error) == pytest.approx(error, abs=2e-3)
        np.testing.assert_allclose(as_vector(observed.steepness), slope_at(at) ** 2, rtol=1e-4)


def test_the_length_of_a_step_has_bounds_and_a_place_without_one_has_the_shortest() -> None:
    length = rx.algorithm.adjusted_kernels._log_length
    for gradient, wanted in ((0.0, 0.5 * np.log(1.3 / 0.3)), (1e9, -6.0), (np.nan, -6.0)):
        assert float(length({"a": jnp.full(2, gradient)})) == pytest.approx(wanted, rel=1e-5)


def test_a_proposal_without_a_probability_is_rejected_and_counts_as_that() -> None:
    """The prior of the place where it ends is not a number, although the energy is."""
    nowhere = rx.Target(
        lambda x, batch, key: 0 * x,
        prior=lambda x: jnp.where(x > 1, jnp.nan, 0.0),
        tempers_likelihood=True,
    )
    kernel = rx.kernels.mala()
    evaluate = StepEnergy(nowhere)
    replica = kernel.traits.prepare(kernel.init(jnp.array(0.5)), evaluate)
    drawn = Drawn(jnp.float32(3.0), jnp.float32(-1e-6), jnp.float32(0.0))
    rung = Ladder(jnp.array(0.5), jnp.array(1.0))
    step = quick_jit(lambda: kernel.step(drawn, replica, evaluate, rung))
    after, _, observed = step()
    assert float(after.params) == 0.5 and float(observed.acceptance) == 0


def test_adjusted_kernels_begin_with_the_energies_of_their_starts() -> None:
    starts = [X, X + 1, X - 1]
    points = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(as_tree, starts))
    ladder = Ladder(jnp.ones(3), jnp.array([1.0, 2.0, 4.0]))
    begin = quick_jit(
        lambda: rx.algorithm.init(
            rx.kernels.hmc(), points, ladder, rx.algorithm.Settings(), target=TARGET
        )
    )
    state = begin()
    memory = state.replicas.memory
    np.testing.assert_allclose(memory.energy, [energy_at(x) for x in starts], rtol=1e-5)
    np.testing.assert_allclose(memory.prior, [prior_at(x) for x in starts], rtol=1e-5)
    slopes = np.stack([STEEP * x**3 for x in starts])
    np.testing.assert_allclose(memory.gradient["a"], slopes[:, :2], rtol=1e-5)
    np.testing.assert_allclose(memory.gradient["b"], slopes[:, 2], rtol=1e-5)
