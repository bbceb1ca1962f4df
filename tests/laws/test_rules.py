"""The laws that swap rules leave behind, against exact answers.

One exchange of independent exact draws must not change the law on any rung.

Seeds are fixed; beside every bound stands the Monte Carlo standard error it must cover.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import FIXED, start_chains
from scipy import stats

import replicax as rx
from replicax.algorithm import schedule as schedules
from replicax.algorithm import step as algorithm
from replicax.algorithm import swap as rules
from replicax.algorithm.kernels import Kernel, Replica
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.swap import Rule, bias_corrected, metropolis, window_corrected
from replicax.algorithm.target import Target

STANDS_STILL = Kernel(
    init=lambda params: Replica(params, ()),
    step=lambda noise, replica, evaluate, rung: (replica, jnp.zeros(()), None),
    draw=lambda key, replica: (),
)
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
    settings = rx.algorithm.Settings(schedules.deo(), rule, FIXED, langevin=False)
    step = algorithm.build_step(target, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = rx.algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)._replace(
        step=jnp.array(1)
    )
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
    right = rules.judge
    monkeypatch.setattr(rules, "judge", lambda rule, proposal: ~right(rule, proposal))
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


@pytest.mark.slow
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
    settings = rx.algorithm.Settings(
        schedules.deo(), window_corrected(1.5, 0.0), FIXED, langevin=False
    )
    step = algorithm.build_step(flat, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = rx.algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)
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
    settings = rx.algorithm.Settings(schedules.none(), rule, FIXED, langevin=False)
    step = algorithm.build_step(target, STANDS_STILL, settings)
    ladder = Ladder(jnp.ones(2), jnp.array([COLD, HOT]))
    state = rx.algorithm.init(STANDS_STILL, jnp.zeros(2), ladder, settings)
    which = jnp.broadcast_to(jnp.arange(2.0), (400, 2))
    steps, keys, states = start_chains(step, state, which)
    run = jax.jit(lambda s: jax.lax.scan(lambda s, _: (steps(keys, s)[0], None), s, length=40)[0])
    estimate = np.asarray(run(states).energy_noise_var).mean(axis=0)
    assert estimate[0, 1] == estimate[1, 0] == pytest.approx(5.0, rel=0.02)


@pytest.mark.slow
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
        method=rx.deo_star(
            learning_rate=0.1,
            temperature=(1.0, 2.0),
            rule=bias_corrected("estimate", estimate_every=1),
            kernel=STANDS_STILL,
        ),
        callback=lambda progress: seen.append(progress.carry.state.energy_noise_var),
    )
    of_one = num_rows**2 / batch_size * np.var((first - data) ** 2 / 2)
    expected = num_rows**2 / batch_size * data.var() * (first - second) ** 2 / 2
    assert of_one > 10 * expected
    assert np.asarray(seen[-1])[:, 0, 1].mean() == pytest.approx(expected, rel=0.04)
