"""The laws that kernels leave behind, against exact answers.

On a Gaussian every kernel is a linear recursion, whose stationary moments are solved.

Seeds are fixed; beside every bound stands the Monte Carlo standard error it must cover.
"""

import functools
import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import FIXED, slow, start_chains
from scipy.linalg import solve_discrete_lyapunov

import replicax as rx
from replicax.algorithm import kernels
from replicax.algorithm import schedule as schedules
from replicax.algorithm import step as algorithm
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.target import Target

CURVATURE, CENTRE, GRADIENT_NOISE = 2.0, 1.5, 1.2
NOISY_BOWL = Target(
    energy=lambda x, batch, noise: CURVATURE * (x - CENTRE) ** 2 / 2,
    gradient=lambda x, batch, noise: CURVATURE * (x - CENTRE) + GRADIENT_NOISE * noise,
    noise=lambda key: jax.random.normal(key),
)
RUNGS = [(0.1, 1.0), (0.2, 0.0)]  # learning rate and temperature: Langevin, and plain SGD
NUM_CHAINS = 20_000
PULL = 0.8  # of a weight decay
FIXED_MEAN_SQUARE = 4.0  # of the gradient, where a preconditioner is held still


class Recursion(NamedTuple):
    """z <- matrix z + shift + noise; the first entry of z is the parameter."""

    matrix: np.ndarray
    shift: np.ndarray
    covariance: np.ndarray  # of the noise

    def stationary(self) -> tuple[float, float]:
        mean = np.linalg.solve(np.eye(len(self.shift)) - self.matrix, self.shift)
        return mean[0], solve_discrete_lyapunov(self.matrix, self.covariance)[0, 0]


def first_order(rate: float, temperature: float, stiffness: float = CURVATURE,
                scale: float = 1.0) -> Recursion:  # fmt: skip
    """x <- x - rate scale (stiffness x - pull + noise) + sqrt(2 rate temperature scale) xi.

    The pull is CURVATURE CENTRE.
    """
    variance = (rate * scale * GRADIENT_NOISE) ** 2 + 2 * rate * temperature * scale
    return Recursion(
        np.array([[1 - rate * scale * stiffness]]),
        np.array([rate * scale * CURVATURE * CENTRE]),
        np.array([[variance]]),
    )


def second_order(rate: float, in_velocity: float, in_position: float, decay: float) -> Recursion:
    """v <- decay v + CURVATURE (x - CENTRE) + noise; x <- x - rate v + noise; variances given."""
    pull = CURVATURE * CENTRE
    enters = np.array([-rate, 1.0])
    return Recursion(
        np.array([[1 - rate * CURVATURE, -rate * decay], [CURVATURE, decay]]),
        np.array([rate * pull, -pull]),
        in_velocity * np.outer(enters, enters) + np.diag([in_position, 0.0]),
    )


def with_friction(rate: float, temperature: float, decay: float) -> Recursion:
    injected = 2 * (1 - decay) * temperature / rate
    return second_order(rate, GRADIENT_NOISE**2 + injected, 0.0, decay)


def noise_outside_momentum(rate: float, temperature: float, decay: float) -> Recursion:
    return second_order(rate, GRADIENT_NOISE**2, 2 * rate * temperature, decay)


KERNELS = {
    "sgld": (kernels.sgld(), first_order),
    "sgld with weight decay": (
        kernels.sgld(weight_decay=PULL),
        functools.partial(first_order, stiffness=CURVATURE + PULL),
    ),
    "momentum": (kernels.momentum(0.8), functools.partial(with_friction, decay=0.8)),
    "sghmc": (kernels.sghmc(0.3), functools.partial(with_friction, decay=0.7)),
    "preconditioned": (
        kernels.preconditioned(decay=1 - 1e-7, eps=1e-8),
        functools.partial(first_order, scale=FIXED_MEAN_SQUARE**-0.5),
    ),
    "optax sgd": (kernels.from_optax(optax.sgd(1.0)), first_order),
    "optax momentum": (
        kernels.from_optax(optax.sgd(1.0, momentum=0.8)),
        functools.partial(noise_outside_momentum, decay=0.8),
    ),
}


def run_kernel(kernel: Kernel, *num_steps: int) -> list[np.ndarray]:
    """Where many replicas are after those many steps, from 0  -> (chain, rung) each."""
    settings = rx.algorithm.Settings(schedules.none(), tuning=FIXED)
    step = algorithm.build_step(NOISY_BOWL, kernel, settings)
    ladder = Ladder(*(jnp.array(values) for values in zip(*RUNGS, strict=True)))
    state = rx.algorithm.init(kernel, jnp.zeros(2), ladder, settings)
    memory = state.replicas.memory
    if hasattr(memory, "nu"):
        state = state._replace(
            replicas=state.replicas._replace(
                memory=memory._replace(nu=jnp.full(2, FIXED_MEAN_SQUARE))
            )
        )
    steps, keys, states = start_chains(step, state, jnp.zeros((NUM_CHAINS, 2)))
    run = jax.jit(lambda s, n: jax.lax.fori_loop(0, n, lambda _, s: steps(keys, s)[0], s))
    return [np.asarray(run(states, n).replicas.params, float) for n in num_steps]


def assert_moments(values: np.ndarray, mean: float, variance: float) -> None:
    """Within four standard errors: of the mean 0.7 % of the spread, of the variance 1 %."""
    assert values.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / NUM_CHAINS))
    assert values.var() == pytest.approx(variance, rel=4 * np.sqrt(2 / NUM_CHAINS))


OF_THE_SAME_CODE = ("sgld with weight decay", "sghmc", "optax momentum")  # as one of the others


@pytest.mark.parametrize("name", [slow(x) if x in OF_THE_SAME_CODE else x for x in KERNELS])
def test_a_kernel_has_the_stationary_moments_of_its_recursion(name: str) -> None:
    kernel, recursion = KERNELS[name]
    (found,) = run_kernel(kernel, 100)
    for rung, (rate, temperature) in enumerate(RUNGS):
        assert_moments(found[:, rung], *recursion(rate, temperature).stationary())


def cycle(step: int, length: int, exploitation: float) -> tuple[float, bool]:
    """What is left of the learning rate, and whether draws are taken."""
    position = step % length / length
    return 0.5 * (1 + np.cos(np.pi * position)), position >= 1 - exploitation


def test_a_cyclical_kernel_has_the_moments_of_its_recursion_at_every_stage() -> None:
    kernel = kernels.cyclical(kernels.sgld(), cycle_length=20, exploitation=0.3)
    lengths = (45, 60)  # early in a cycle, and at the end of one
    for num_steps, found in zip(lengths, run_kernel(kernel, *lengths), strict=True):
        for rung, (rate, temperature) in enumerate(RUNGS):
            mean, variance = 0.0, 0.0
            for step in range(num_steps):
                left, exploits = cycle(step, 20, 0.3)
                one = first_order(rate * left, temperature * exploits)
                mean = float(one.matrix[0, 0] * mean + one.shift[0])
                variance = float(one.matrix[0, 0] ** 2 * variance + one.covariance[0, 0])
            assert_moments(found[:, rung], mean, variance)


def test_a_cyclical_kernel_follows_the_cosine_and_is_noisy_only_where_it_exploits() -> None:
    kernel = kernels.cyclical(kernels.sgld(), cycle_length=8, exploitation=0.25)
    rung = Ladder(jnp.array(0.5), jnp.array(2.0))
    replica = kernel.init(jnp.array(0.0))
    for step in range(20):
        left, exploits = cycle(step, 8, 0.25)
        slides, *_ = kernel.step(jnp.array(0.0), replica, lambda x: (x, jnp.ones(())), rung)
        assert float(replica.params - slides.params) == pytest.approx(0.5 * left, abs=1e-5)
        shaken, *_ = kernel.step(jnp.array(1.0), replica, lambda x: (x, jnp.zeros(())), rung)
        std = np.sqrt(2 * (0.5 * left) * 2.0) if exploits else 0.0
        assert abs(float(shaken.params - replica.params)) == pytest.approx(std, abs=1e-5)
        replica = slides


def test_a_cyclical_kernel_leaves_draws_only_of_the_exploitation_part() -> None:
    slope = Target(lambda x, batch, key: x)
    posterior = rx.sample(
        slope,
        jnp.zeros(()),
        num_steps=30,
        num_replicas=1,
        method=rx.Method(
            "none",
            learning_rate=0.5,
            temperature=0.0,
            schedule="none",
            kernel=kernels.cyclical(kernels.sgld(), cycle_length=8, exploitation=0.25),
        ),
        burn_in=8,
    )
    left, exploits = np.array([cycle(step, 8, 0.25) for step in range(30)]).T
    path = -0.5 * np.cumsum(left)
    drawn = (exploits > 0) & (np.arange(30) >= 8)
    assert drawn.sum() == 4
    np.testing.assert_allclose(posterior.draws[0], path[drawn], rtol=1e-5)


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("length", [8, 13_000, 1_000_000])
def test_a_long_cycle_ends_with_a_rate_above_0(length: int, hold: bool) -> None:
    """In float32 1 + cos(pi t) is 0 in the last steps of 12,900, and noise divides by the rate."""
    kernel = kernels.cyclical(kernels.sgld(), length, exploitation=0.25, hold=hold)
    rung = Ladder(jnp.array(0.5), jnp.array(2.0))
    for step in (0, length // 2, length - 3, length - 2, length - 1, length):
        place = min(step % length, length - length // 4) if hold else step % length
        rate = 0.5 * np.sin(np.pi / 2 * (1 - place / length)) ** 2  # sines are exact near 0
        start = kernel.init(jnp.array(0.0))
        start = start._replace(memory=start.memory._replace(count=jnp.array(step)))
        slides, *_ = kernel.step(None, start, lambda x: (x, jnp.ones(())), rung)
        assert -float(slides.params) == pytest.approx(rate, rel=1e-5)
        shaken, *_ = kernel.step(jnp.array(1.0), start, lambda x: (x, jnp.zeros(())), rung)
        std = np.sqrt(2 * rate * 2.0) if step % length >= length - length // 4 else 0.0
        assert abs(float(shaken.params)) == pytest.approx(std, rel=1e-5)


def path_of(kernel: Kernel, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Parameters and second moments of a preconditioned kernel after every step."""
    gradients = np.random.default_rng(5).normal(size=(num_steps, 2))
    rung, noise = Ladder(jnp.array(0.1), jnp.array(2.0)), jnp.array([0.5, -1.0])
    replica, path = kernel.init(jnp.ones(2)), []
    for gradient in jnp.asarray(gradients, jnp.float32):
        replica, *_ = kernel.step(noise, replica, lambda x, g=gradient: (0.0, g), rung)
        memory = getattr(replica.memory, "inner", replica.memory)
        path.append((replica.params, memory.nu))
    params, square = zip(*path, strict=True)
    return np.array(params), np.array(square)


def test_a_frozen_preconditioner_stays_as_it_was_at_that_step() -> None:
    adapting, frozen = kernels.preconditioned(0.9), kernels.preconditioned(0.9, freeze_after=5)
    params, square = path_of(frozen, 10)
    before = path_of(adapting, 10)
    np.testing.assert_array_equal(params[:5], before[0][:5])
    np.testing.assert_array_equal(square[:5], before[1][:5])
    np.testing.assert_array_equal(square[5:], np.broadcast_to(square[4], (5, 2)))
    gradients = np.random.default_rng(5).normal(size=(10, 2))[5:]
    scale = square[4] ** -0.5
    moves = -0.1 * scale * gradients + np.sqrt(2 * 0.1 * 2.0 * scale) * np.array([0.5, -1.0])
    np.testing.assert_allclose(params[5:], params[4] + np.cumsum(moves, axis=0), rtol=1e-5)
    again = kernels.from_spec(json.loads(json.dumps(frozen.traits.spec)))
    for ours, theirs in zip(path_of(again, 10), (params, square), strict=True):
        np.testing.assert_array_equal(ours, theirs)
