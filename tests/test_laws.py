"""The laws that rules, kernels and whole chains leave behind, against exact answers.

Rules: one exchange of independent exact draws must not change the law on any rung.
Kernels: on a Gaussian every kernel is a linear recursion, whose stationary moments are solved.
Chains: two replicas on a two-mode target against the same chain solved on a grid.
Ladders: equal rejection rates from a bad start, and a barrier that does not depend on the ladder.

Seeds are fixed; beside every bound stands the Monte Carlo standard error it must cover.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats
from scipy.linalg import solve_discrete_lyapunov

import replicax as rx
from replicax import algorithm, kernels, prng
from replicax import schedule as schedules
from replicax.chunk import STATE_AXES
from replicax.experiments import exact
from replicax.experiments.exact import OF_THE_PAPER, TwoModes
from replicax.kernels import Kernel, Replica
from replicax.ladder import Ladder, Tuning, barrier, equal_rejection_temperatures
from replicax.swap import Rule, bias_corrected, metropolis, window_corrected
from replicax.targets import Target

STANDS_STILL = Kernel(
    init=lambda params: Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (replica, jnp.zeros(())),
    draw=lambda key, replica: (),
)
FIXED = Tuning(adapts=None, adapts_buffer=False)


def start_chains(step: Callable, state: algorithm.State, params: Any, seed: int = 1) -> tuple:
    """`step` for many chains at once, their keys, and their states from params (chain, replica)."""
    num_chains = jax.tree.leaves(params)[0].shape[0]
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), state)
    states = copies._replace(step=state.step, replicas=copies.replicas._replace(params=params))
    keys = jax.random.split(prng.make_key(seed), num_chains)
    return jax.vmap(step, (0, STATE_AXES), (STATE_AXES, 0)), keys, states


# The law of a rule


NUM_PAIRS_OF_DRAWS = 100_000
COLD, HOT = 1.0, 3.0
POINTS = np.linspace(-8.0, 8.0, 16_001)


def double_well(x: Any) -> Any:
    return (x**2 - 4) ** 2 / 8 + 0.3 * x


def exact_cdf(temperature: float) -> Callable[[np.ndarray], np.ndarray]:
    density = np.exp(-double_well(POINTS) / temperature)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return lambda x: np.interp(x, POINTS, mass / mass[-1])


def exact_draws(temperature: float, seed: int) -> np.ndarray:
    uniform = np.random.default_rng(seed).uniform(size=NUM_PAIRS_OF_DRAWS)
    return np.interp(uniform, exact_cdf(temperature)(POINTS), POINTS)


def exchange_once(rule: Rule, energy_noise_std: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Exact draws on both rungs, one step of the library: what is on the rungs after, and where
    swapped. Step 1 is the first at which DEO lets the only pair of two rungs meet."""
    target = Target(
        energy=lambda x, batch, noise: double_well(x) + energy_noise_std * noise,
        noise=lambda key: jax.random.normal(key),
    )
    settings = algorithm.Settings(schedules.deo(), rule, FIXED, langevin=False)
    step = algorithm.build_step(target, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)._replace(step=jnp.array(1))
    draws = jnp.asarray(np.stack([exact_draws(COLD, 0), exact_draws(HOT, 1)], 1), jnp.float32)
    steps, keys, states = start_chains(step, state, draws)
    states, info = jax.jit(steps)(keys, states)
    by_rung = jnp.take_along_axis(states.replicas.params, states.replica_at, axis=1)
    return np.asarray(by_rung, float), np.asarray(info.swapped[:, 0])


def p_values(by_rung: np.ndarray) -> tuple[float, float]:
    """Of the Kolmogorov-Smirnov test of each rung against its own law."""
    tests = (stats.kstest(by_rung[:, i], exact_cdf(tau)) for i, tau in enumerate((COLD, HOT)))
    return tuple(float(test.pvalue) for test in tests)


def test_metropolis_keeps_the_law_of_both_rungs() -> None:
    by_rung, swapped = exchange_once(metropolis())
    assert 0.2 < swapped.mean() < 0.9
    assert min(p_values(by_rung)) > 1e-3


def test_metropolis_with_its_branches_exchanged_keeps_neither_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = Rule.wanted
    monkeypatch.setattr(Rule, "wanted", lambda rule, pair: ~right(rule, pair))
    by_rung, swapped = exchange_once(metropolis())
    assert 0.1 < swapped.mean() < 0.9
    assert max(p_values(by_rung)) < 1e-6


def test_the_bias_corrected_rule_keeps_both_laws_under_noise() -> None:
    by_rung, swapped = exchange_once(bias_corrected(2.0), energy_noise_std=2.0)
    assert 0.1 < swapped.mean() < 0.9
    assert min(p_values(by_rung)) > 1e-3


def test_metropolis_keeps_neither_law_under_noise() -> None:
    by_rung, _ = exchange_once(metropolis(), energy_noise_std=2.0)
    assert max(p_values(by_rung)) < 1e-6


def test_a_correction_for_half_the_noise_keeps_neither_law() -> None:
    by_rung, _ = exchange_once(bias_corrected(1.0), energy_noise_std=2.0)
    assert max(p_values(by_rung)) < 1e-6


def test_a_window_correction_of_zero_is_the_bias_corrected_rule() -> None:
    plain = exchange_once(bias_corrected(2.0), energy_noise_std=2.0)
    same = exchange_once(window_corrected(0.0, 2.0), energy_noise_std=2.0)
    np.testing.assert_array_equal(plain[0], same[0])
    np.testing.assert_array_equal(plain[1], same[1])


def test_a_window_correction_divides_a_small_swap_probability_by_its_exponential() -> None:
    # Equal energies and no noise: the rule says yes with probability exp(-lambda_W) exactly.
    flat = Target(lambda x, batch, noise: jnp.zeros(()), noise=lambda key: ())
    settings = algorithm.Settings(
        schedules.deo(), window_corrected(1.5, 0.0), FIXED, langevin=False
    )
    step = algorithm.build_step(flat, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)
    steps, keys, states = start_chains(step, state, jnp.zeros((NUM_PAIRS_OF_DRAWS, 2)))
    _, info = jax.jit(steps)(keys, states)
    # Standard error 0.0013.
    assert float(info.wanted.mean()) == pytest.approx(np.exp(-1.5), abs=0.005)


def test_sigma_is_estimated_from_the_noise_of_keys() -> None:
    # Half the variance of a difference: (1^2 + 3^2) / 2 = 5. After 40 estimates of 8 draws, with
    # weights no smaller than 1/20, a chain's relative standard error is about 0.09; over 400
    # chains 0.0045.
    spread = jnp.array([1.0, 3.0])
    target = Target(
        energy=lambda which, batch, noise: spread[which.astype(int)] * noise,
        noise=lambda key: jax.random.normal(key),
    )
    rule = bias_corrected("estimate", estimate_every=1)
    settings = algorithm.Settings(schedules.none(), rule, FIXED, langevin=False)
    step = algorithm.build_step(target, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)
    which = jnp.broadcast_to(jnp.arange(2.0), (400, 2))
    steps, keys, states = start_chains(step, state, which)
    run = jax.jit(lambda s: jax.lax.scan(lambda s, _: (steps(keys, s)[0], None), s, length=40)[0])
    estimate = np.asarray(run(states).energy_noise_var).mean(axis=0)
    assert estimate[0, 1] == estimate[1, 0] == pytest.approx(5.0, rel=0.02)


@pytest.mark.filterwarnings("ignore::UserWarning")  # nothing swaps here, nor should it
def test_what_a_common_mini_batch_cancels_does_not_count_as_noise() -> None:
    # U = N/b sum_rows (x - d)^2 / 2: two replicas on the same mini-batch differ by
    # N/b sum_rows [(x^2 - y^2) / 2 - d (x - y)], of variance N^2 / b var(d) (x - y)^2. One energy
    # alone has 20 times that variance here. Relative standard error over 100 chains 0.01.
    num_rows, batch_size, first, second = 50, 5, 4.0, 5.0
    data = np.random.default_rng(3).exponential(size=num_rows)

    def energy(x, batch):
        return num_rows / batch_size * jnp.sum((x - batch) ** 2) / 2

    seen = []
    rx.sample(
        energy,
        rx.per_replica(jnp.array([first, second])),
        batches=data.astype(np.float32),
        batch_size=batch_size,
        num_steps=40,
        num_replicas=2,
        num_chains=100,
        learning_rate=0.1,
        temperature=(1.0, 2.0),
        rule=bias_corrected("estimate", estimate_every=1),
        kernel=STANDS_STILL,
        callback=lambda progress: seen.append(progress.carry.state.energy_noise_var),
    )
    of_one = num_rows**2 / batch_size * np.var((first - data) ** 2 / 2)
    expected = num_rows**2 / batch_size * data.var() * (first - second) ** 2 / 2
    assert of_one > 10 * expected
    assert np.asarray(seen[-1])[:, 0, 1].mean() == pytest.approx(expected, rel=0.04)


# The law of a kernel


CURVATURE, CENTRE, GRADIENT_NOISE = 2.0, 1.5, 1.2
NOISY_BOWL = Target(
    energy=lambda x, batch, noise: CURVATURE * (x - CENTRE) ** 2 / 2,
    gradient=lambda x, batch, noise: CURVATURE * (x - CENTRE) + GRADIENT_NOISE * noise,
    noise=lambda key: jax.random.normal(key),
)
RUNGS = [(0.1, 1.0), (0.2, 0.0)]  # learning rate and temperature: Langevin, and plain SGD
NUM_CHAINS = 20_000
PULL, PULL_CENTRE = 0.8, -1.0  # of a Gaussian prior
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
                pull: float = CURVATURE * CENTRE, scale: float = 1.0) -> Recursion:  # fmt: skip
    """x <- x - rate scale (stiffness x - pull + noise) + sqrt(2 rate temperature scale) xi."""
    variance = (rate * scale * GRADIENT_NOISE) ** 2 + 2 * rate * temperature * scale
    return Recursion(
        np.array([[1 - rate * scale * stiffness]]),
        np.array([rate * scale * pull]),
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


def gaussian_prior(x: Any) -> Any:
    return PULL * (x - PULL_CENTRE) ** 2 / 2


KERNELS = {
    "sgld": (kernels.sgld(), first_order),
    "sgld with weight decay": (
        kernels.sgld(weight_decay=PULL),
        functools.partial(first_order, stiffness=CURVATURE + PULL),
    ),
    "sgld with a prior": (
        kernels.sgld(prior=gaussian_prior),
        functools.partial(
            first_order, stiffness=CURVATURE + PULL, pull=CURVATURE * CENTRE + PULL * PULL_CENTRE
        ),
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


def run_kernel(kernel: Kernel, num_steps: int) -> np.ndarray:
    """Where many replicas are after that many steps, from 0  -> (chain, rung)."""
    settings = algorithm.Settings(schedules.none(), tuning=FIXED)
    step = algorithm.build_step(NOISY_BOWL, kernel, settings)
    ladder = Ladder(*(jnp.array(values) for values in zip(*RUNGS, strict=True)))
    state = algorithm.init(kernel, jnp.zeros(2), ladder, settings)
    memory = state.replicas.memory
    if hasattr(memory, "nu"):
        state = state._replace(
            replicas=state.replicas._replace(
                memory=memory._replace(nu=jnp.full(2, FIXED_MEAN_SQUARE))
            )
        )
    steps, keys, states = start_chains(step, state, jnp.zeros((NUM_CHAINS, 2)))
    run = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: (steps(keys, s)[0], None), s, length=num_steps)[0]
    )
    return np.asarray(run(states).replicas.params, float)


def assert_moments(values: np.ndarray, mean: float, variance: float) -> None:
    """Within four standard errors: of the mean 0.7 % of the spread, of the variance 1 %."""
    assert values.mean() == pytest.approx(mean, abs=4 * np.sqrt(variance / NUM_CHAINS))
    assert values.var() == pytest.approx(variance, rel=4 * np.sqrt(2 / NUM_CHAINS))


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_the_stationary_moments_of_its_recursion(name: str) -> None:
    kernel, recursion = KERNELS[name]
    found = run_kernel(kernel, num_steps=100)
    for rung, (rate, temperature) in enumerate(RUNGS):
        assert_moments(found[:, rung], *recursion(rate, temperature).stationary())


def cycle(step: int, length: int, exploitation: float) -> tuple[float, bool]:
    """What is left of the learning rate, and whether draws are taken."""
    position = step % length / length
    return 0.5 * (1 + np.cos(np.pi * position)), position >= 1 - exploitation


def test_a_cyclical_kernel_has_the_moments_of_its_recursion_at_every_stage() -> None:
    kernel = kernels.cyclical(kernels.sgld(), cycle_length=20, exploitation=0.3)
    for num_steps in (45, 60):  # early in a cycle, and at the end of one
        found = run_kernel(kernel, num_steps)
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
        slides, _ = kernel.step(jnp.array(0.0), replica, lambda x: (x, jnp.ones(())), rung)
        assert float(replica.params - slides.params) == pytest.approx(0.5 * left, abs=1e-5)
        shaken, _ = kernel.step(jnp.array(1.0), replica, lambda x: (x, jnp.zeros(())), rung)
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
        learning_rate=0.5,
        temperature=0.0,
        schedule="none",
        kernel=kernels.cyclical(kernels.sgld(), cycle_length=8, exploitation=0.25),
        burn_in=8,
    )
    left, exploits = np.array([cycle(step, 8, 0.25) for step in range(30)]).T
    path = -0.5 * np.cumsum(left)
    drawn = (exploits > 0) & (np.arange(30) >= 8)
    assert drawn.sum() == 4
    np.testing.assert_allclose(posterior.draws[0], path[drawn], rtol=1e-5)


# The whole chain


solve = functools.cache(exact.solve)


@pytest.mark.parametrize(
    ("energy_noise_std", "window", "window_correction", "left", "swaps"),
    [
        (3.0, 1, 0.0, 0.4034, 0.0305),
        (2.0, 10, 0.0, 0.452, 0.566),
        (3.0, 10, 0.0, 0.425, 0.249),
        (3.0, 10, 1.13, 0.4034, 0.147),
    ],
)
def test_the_grid_solution_is_that_of_the_window_correction_table(
    energy_noise_std: float, window: int, window_correction: float, left: float, swaps: float
) -> None:
    solution = solve(OF_THE_PAPER, energy_noise_std, window, window_correction)
    assert solution.left == pytest.approx(left, abs=0.001)
    assert solution.swaps_per_window == pytest.approx(swaps, abs=0.001)


def test_a_long_window_of_the_table_is_solved_too() -> None:
    solution = solve(OF_THE_PAPER, 3.0, 100)
    found = (solution.left, solution.distance, solution.swaps_per_window)
    assert found == pytest.approx((0.482, 0.083, 0.902), abs=0.001)


def test_many_steps_at_once_are_as_many_steps_one_by_one() -> None:
    for gated in (True, False):
        window = exact._Window(NEAR, 1.5, 30, 0.7, gated)
        before = np.exp(-NEAR.energy()[:, None] - NEAR.energy()[None, :] / 10)
        before = before / before.sum()
        masses = np.stack([before, np.zeros_like(before)], axis=1)
        seen, swapped = [], 0.0
        for _ in range(30):
            swapped += np.sum(window.move(masses)[:, 0] * window.swaps)
            masses = window.step(masses)
            seen.append(masses.sum(axis=1))
        assert masses.sum() == pytest.approx(1, abs=1e-12)
        np.testing.assert_allclose(window.end(before), seen[-1], atol=1e-9)
        mean, swaps = window.average(before)
        np.testing.assert_allclose(mean, np.mean(seen, axis=0), atol=1e-9)
        assert swaps == pytest.approx(swapped, abs=1e-6)


# Modes so near that hot replicas cross in about 30 steps: a chain forgets its start quickly.
NEAR = TwoModes((-2.0, 1.5), (0.6, 0.4), 0.04, grid=(-9.0, 6.9, 160))


def sample_near(rule: Rule, energy_noise_std: float, window: int, swaps: str) -> rx.Posterior:
    return rx.sample(
        rx.targets.gaussian_mixture(NEAR.means, NEAR.stds, NEAR.weights, energy_noise_std),
        jnp.zeros(()),
        num_steps=1_500,
        num_replicas=2,
        num_chains=1_000,
        learning_rate=NEAR.learning_rate,
        temperature=NEAR.temperatures,
        schedule=schedules.windowed_deo(window, swaps, alternate=False),
        rule=rule,
        burn_in=300,
        thin=12,
    )


@pytest.mark.filterwarnings("ignore:Pair", "ignore:The rule")
@pytest.mark.parametrize(
    ("rule", "energy_noise_std", "window", "swaps"),
    [
        (metropolis(), 0.0, 1, "at_most_one"),
        (metropolis(), 0.0, 5, "at_most_one"),
        (bias_corrected(1.5), 1.5, 10, "at_most_one"),
        (bias_corrected(1.5), 1.5, 10, "no_gate"),
        (window_corrected(1.0, 1.5), 1.5, 10, "at_most_one"),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_chain_on_two_modes_has_the_law_of_its_grid_solution(
    rule: Rule, energy_noise_std: float, window: int, swaps: str
) -> None:
    gated = swaps == "at_most_one"
    solution = solve(NEAR, energy_noise_std, window, rule.window_correction, gated)
    posterior = sample_near(rule, energy_noise_std, window, swaps)
    # Standard error 0.003.
    left = (posterior.draws < 0).mean(axis=1)
    assert left.mean() == pytest.approx(solution.left, abs=4 * left.std() / np.sqrt(left.size))
    # Total variation over cells of four grid points; 0.005 to 0.007 comes from chance alone.
    edges = np.append(NEAR.points()[::4], 7.0) - 0.05
    seen = np.histogram(posterior.draws, edges)[0] / posterior.draws.size
    assert np.abs(seen - solution.cold.reshape(-1, 4).sum(axis=1)).sum() / 2 < 0.015
    # Standard error 0.001 or less.
    rates = posterior.window_swap_rate if gated else window * posterior.verdict_rate
    assert rates.mean() == pytest.approx(solution.swaps_per_window, abs=0.005 if gated else 0.02)


def test_the_bias_of_a_gate_is_large_enough_to_be_seen_above() -> None:
    for energy_noise_std, window in ((0.0, 5), (1.5, 10)):
        gated = solve(NEAR, energy_noise_std, window).left
        assert gated - solve(NEAR, energy_noise_std, window, gated=False).left > 0.04


# The ladder


DIMENSION, HOTTEST = 4, 20.0
EXACT_DRAWS = Kernel(
    init=lambda params: Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (
        Replica(jnp.sqrt(rung.temperature) * noise, ()),
        jnp.zeros(()),
    ),
    draw=kernels.draw_normal,
)


def rejection_of_a_gaussian(num_replicas: int) -> float:
    """Of every pair of a geometric ladder: 1 - 2 P(U_cold > U_hot), both energies Gamma."""
    ratio = HOTTEST ** (1 / (num_replicas - 1))
    return 1 - 2 * stats.beta.cdf(1 / (1 + ratio), DIMENSION / 2, DIMENSION / 2)


@functools.cache
def measure_rejections(temperatures: tuple[float, ...], seed: int) -> np.ndarray:
    """From 18,000 independent verdicts per pair: standard error 0.0035."""
    posterior = rx.sample(
        rx.targets.gaussian(),
        jnp.zeros(DIMENSION),
        num_steps=1_000,
        num_chains=20,
        num_replicas=len(temperatures),
        learning_rate=1.0,
        temperature=temperatures,
        rule="metropolis",
        schedule="deo",
        kernel=EXACT_DRAWS,
        burn_in=100,
        thin=300,
        seed=seed,
    )
    return 1 - posterior.verdict_rate.mean(axis=0)


@functools.cache
def retuned() -> tuple[float, ...]:
    """Eight temperatures after three rounds from an evenly spaced start."""
    temperatures = np.linspace(1.0, HOTTEST, 8)
    for number in range(3):
        rejections = measure_rejections(tuple(temperatures), seed=number)
        temperatures = equal_rejection_temperatures(temperatures, rejections)
    return tuple(temperatures)


@pytest.mark.filterwarnings("ignore:R-hat|Pair")
def test_rounds_of_retuning_lead_to_equal_rejection_rates() -> None:
    bad = measure_rejections(tuple(np.linspace(1.0, HOTTEST, 8)), seed=0)
    assert np.ptp(bad) > 0.5
    rejections = measure_rejections(retuned(), seed=3)
    assert np.ptp(rejections) < 0.03
    assert rejections == pytest.approx(rejection_of_a_gaussian(8), abs=0.015)
    assert np.log(retuned()) == pytest.approx(np.linspace(0.0, np.log(HOTTEST), 8), abs=0.03)


@pytest.mark.filterwarnings("ignore:R-hat|Pair")
def test_the_barrier_hardly_depends_on_the_number_of_replicas() -> None:
    eight = measure_rejections(retuned(), seed=3)
    more = equal_rejection_temperatures(np.array(retuned()), eight, num_replicas=16)
    sixteen = measure_rejections(tuple(more), seed=4)
    assert np.ptp(sixteen) < 0.03
    # Exact: 2.18 and 2.23. Standard errors 0.009 and 0.012.
    assert barrier(eight) == pytest.approx(7 * rejection_of_a_gaussian(8), rel=0.02)
    assert barrier(sixteen) == pytest.approx(15 * rejection_of_a_gaussian(16), rel=0.02)
    assert barrier(eight) == pytest.approx(barrier(sixteen), rel=0.05)
