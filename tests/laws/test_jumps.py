"""Jumps preserve the law of the coldest rung, whatever the mixture is that proposes them.

Thousands of chains start from exact draws and take some jumps each: a rule that is wrong moves
them away, or makes chains alike that are independent.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

from replicax.algorithm import jumps
from replicax.algorithm.fitting import with_wide
from replicax.algorithm.labels import Ordering, orbit_density, ordered
from replicax.algorithm.mixture import log_density, make_mixture, padded

CHAINS, NUM_JUMPS, KEPT = 20_000, 8, 4
CENTRES, WIDTHS, SHARES = np.array([[-2.0, 0.0], [2.5, 1.0]]), np.array([0.6, 1.0]), [0.3, 0.7]


def two_modes(x):
    parts = -jnp.sum((x - CENTRES) ** 2, axis=1) / (2 * WIDTHS**2) - 2 * jnp.log(WIDTHS)
    return -jax.nn.logsumexp(parts + jnp.log(jnp.array(SHARES)))


def draw_two_modes(rng, n):
    mode = rng.choice(2, size=n, p=SHARES)
    return CENTRES[mode] + WIDTHS[mode, None] * rng.standard_normal((n, 2))


def funnel(x):
    return x[0] ** 2 / 2 + x[1] ** 2 * jnp.exp(-2 * x[0]) / 2 + x[0]


def draw_funnel(rng, n):
    v, z = rng.standard_normal((2, n))
    return np.stack([v, np.exp(v) * z], axis=1)


def student(x):
    return 2.5 * jnp.log1p(jnp.sum(x**2) / 3)


def draw_student(rng, n):
    return rng.standard_normal((n, 2)) / np.sqrt(rng.chisquare(3, (n, 1)) / 3)


def labelled(x):
    """One number near -1 and one near 2, and nothing says which is which."""
    orders = jnp.stack([x, x[::-1]])
    return -jax.nn.logsumexp(-jnp.sum((orders - jnp.array([-1.0, 2.0])) ** 2, axis=1))


def draw_labelled(rng, n):
    x = np.array([-1.0, 2.0]) + rng.standard_normal((n, 2)) / np.sqrt(2)
    return np.where(rng.random((n, 1)) < 0.5, x, x[:, ::-1])


def components(means, widths, weights=None, freedom=np.inf):
    means, widths = np.asarray(means, float), np.asarray(widths, float)
    weights = np.ones(len(means)) if weights is None else np.asarray(weights, float)
    return make_mixture(np.log(weights), means, widths[:, None, None] * np.eye(2), freedom)


GOOD = with_wide(components(CENTRES, WIDTHS, SHARES), np.array([1.0, 0.5]), 4 * np.eye(2))
ONE_LABEL = components([[-1.0, 2.0]], [0.8])
HALF_WIDE = components([CENTRES[0], [0.5, 0.5]], [0.6, 2.5], [0.5, 0.5], np.array([np.inf, 4.0]))
CASES = {
    "good": (two_modes, draw_two_modes, GOOD),
    "one mode": (two_modes, draw_two_modes, components(CENTRES[:1], WIDTHS[:1])),
    "wide alone": (two_modes, draw_two_modes, HALF_WIDE),
    "far off": (two_modes, draw_two_modes, components([[4.0, 4.0]], [1.0])),
    "narrow": (two_modes, draw_two_modes, components(CENTRES, 0.4 * WIDTHS)),
    "too wide": (two_modes, draw_two_modes, components([[0.0, 0.0]], [3.0])),
    "heavy tails": (student, draw_student, components([[0.0, 0.0]], [1.0], freedom=4)),
    "light tails": (student, draw_student, components([[0.0, 0.0]], [1.5])),
    "funnel": (funnel, draw_funnel, components([[0.0, 0.0]], [1.0], freedom=5)),
    "one label": (labelled, draw_labelled, ONE_LABEL),
    "labels in order": (labelled, draw_labelled, ONE_LABEL),
    "labels out of order": (labelled, draw_labelled, components([[-0.5, 1.0]], [1.5])),
}
ORDERED = Ordering(np.array([[0], [1]]), np.array([1.0]))


def run(energy, draw, mixture, noise_of=jax.random.split, is_ordered=False):
    """Return the path of every chain (chain, kept, d), and how often proposals were accepted; where
    labels can be exchanged, they are permuted at random in the end."""
    mixture = jax.tree.map(jnp.asarray, padded(mixture))
    both = lambda points: (jax.vmap(energy)(points) / 3, jax.vmap(energy)(points) * 2 / 3)  # noqa: E731
    ordering = ORDERED if is_ordered else None

    @jax.jit
    @jax.vmap
    def chain(key, x):
        noise = jumps.draw_jumps(key, NUM_JUMPS, 2)
        jumped = jumps.jump(noise, mixture, x, both, num_kept=KEPT, ordering=ordering)
        if ordering is not None:
            jumped = jumps._relabelled(jumped, ordering.places, jax.random.fold_in(key, 2))
        same = jnp.all(jumped.path[-1] == jumped.point)
        right = jnp.isclose(jumped.path_energy[0] * 3, jax.vmap(energy)(jumped.path), 1e-3, 1e-3)
        return jumped.path, jumped.accepted / NUM_JUMPS, same & jnp.all(right)

    start = jnp.asarray(draw(np.random.default_rng(5), CHAINS), jnp.float32)
    path, accepted, consistent = chain(noise_of(jax.random.key(3), CHAINS), start)
    assert consistent.all(), "the path ends where the state is, and has the energies of its points"
    return np.asarray(path, float), float(accepted.mean())


def functions(x):
    """Bounded functions of points (..., 2), so that heavy tails have finite errors."""
    r = np.sum(x**2, axis=-1)
    return np.stack(
        [x[..., 0] > 0, np.tanh(x[..., 0]), np.tanh(x[..., 1]), r < 1, r < 4, r > 9], axis=-1
    ).astype(float)


def errors(path, draw):
    """Errors of means at every kept position, in their own standard errors."""
    truth = functions(draw(np.random.default_rng(6), 40 * CHAINS)).mean(axis=0)
    values = functions(path)
    return np.abs(values.mean(axis=0) - truth) / (values.std(axis=0) / CHAINS**0.5 + 1e-9)


@pytest.mark.parametrize(
    "name",
    [name if name in ("good", "one mode", "labels in order") else slow(name) for name in CASES],
)
def test_the_law_is_preserved(name) -> None:
    energy, draw, mixture = CASES[name]
    path, accepted = run(energy, draw, mixture, is_ordered="order" in name)
    assert accepted > 0.005, "jumps are taken, or nothing is tested"
    assert errors(path, draw).max() < 4.5
    # What one chain does says nothing about the next one.
    values = functions(path[:, -1])
    values = values[:, values.std(axis=0) > 0] - values.mean(axis=0)[values.std(axis=0) > 0]
    neighbours = np.mean(values[1:] * values[:-1], axis=0) / np.mean(values**2, axis=0)
    assert np.abs(neighbours).max() * CHAINS**0.5 < 4.5


def weight_not_carried(log_weight, threshold):
    numbers = jnp.arange(1, len(log_weight))
    accepts = log_weight[1:] + threshold > log_weight[0]
    return jax.lax.associative_scan(jnp.maximum, jnp.where(accepts, numbers, 0))


def repeats_dropped(log_weight, threshold, decide=jumps._decide):
    """Where a proposal is refused, the next position that is not a repeat takes its place."""
    path = decide(log_weight, threshold)
    never = len(path) + 1
    moved = jnp.where(jnp.diff(path, prepend=0) != 0, path, never)
    ahead = jax.lax.associative_scan(jnp.minimum, moved[::-1])[::-1]
    return jnp.where(ahead < never, ahead, path).at[-1].set(path[-1])


def wrong_wide_density(mixture, points):
    of_wide = jnp.arange(len(mixture.log_factor)) == mixture.count - 1
    factor = jnp.where(of_wide, mixture.log_factor - 0.7, mixture.log_factor)
    return log_density(mixture._replace(log_factor=factor), points)


def refitted(noise, mixture, point, *rest, jump=jumps.jump, **more):
    """The mixture goes on following the draws."""
    mean = 0.3 * mixture.mean + 0.7 * point
    return jump(noise, mixture._replace(mean=mean), point, *rest, **more)


def unordered(ordering, mixture, points):
    """All proposals count, also those that stand for a point for which another one stands."""
    return log_density(mixture, ordered(ordering, points)[0])


def as_it_is(ordering, mixture, points):
    """The state is evaluated with its labels as they are."""
    density = orbit_density(ordering, mixture, points)
    return density.at[0].set(log_density(mixture, points[:1])[0])


def in_one_order(places, points, key):
    """Labels of the path are left in order."""
    return ordered(ORDERED, points)[0]


MUTANTS = {
    "weight of the state not carried": ("_decide", weight_not_carried, "too wide"),
    "repeats dropped": ("_decide", repeats_dropped, "narrow"),
    "a wrong density of the wide component": ("log_density", wrong_wide_density, "wide alone"),
    "a mixture refitted after the burn-in": ("jump", refitted, "narrow"),
    "proposals out of order": ("orbit_density", unordered, "labels out of order"),
    "a state out of order": ("orbit_density", as_it_is, "labels out of order"),
    "labels not permuted": ("shuffled", in_one_order, "labels in order"),
}


@pytest.mark.parametrize("name", [slow(name) for name in MUTANTS])
def test_a_broken_rule_is_detected(name, monkeypatch) -> None:
    place, mutant, case = MUTANTS[name]
    monkeypatch.setattr(jumps, place, mutant)
    energy, draw, mixture = CASES[case]
    path, _ = run(energy, draw, mixture, is_ordered="order" in case)
    assert errors(path, draw).max() > 6


@pytest.mark.slow
def test_proposals_shared_by_chains_are_detected() -> None:
    def shared(key, count):
        return jnp.repeat(jax.random.split(key, count // 2), 2, axis=0)

    path, _ = run(*CASES["good"], noise_of=shared)
    values = functions(path[:, -1])
    one, other = values[::2] - values.mean(axis=0), values[1::2] - values.mean(axis=0)
    assert np.max(np.mean(one * other, axis=0) / values.var(axis=0)) > 0.1


def weighted(name):
    energy, _, mixture = CASES[name]
    mixture = jax.tree.map(jnp.asarray, padded(mixture))
    both = lambda points: (jax.vmap(energy)(points), jnp.zeros(len(points)))  # noqa: E731

    def step(carry, key):
        point, stats = carry
        jumped = jumps.jump(jumps.draw_jumps(key, 64, 2), mixture, point, both)
        return (jumped.point, jumps.count_jumps(stats, jumped)), None

    start = jnp.zeros(2), jumps.start_stats()
    (_, stats), _ = jax.lax.scan(step, start, jax.random.split(jax.random.key(1), 500))
    return jax.tree.map(float, jumps.log_evidence(stats)), stats


def test_weights_of_proposals_estimate_the_evidence() -> None:
    (log_evidence, effective), stats = weighted("good")
    assert abs(log_evidence - np.log(2 * np.pi)) < 5 / effective**0.5
    assert effective > 0.5 * float(stats.proposals) and float(stats.proposals) == 500 * 64
    assert 0.5 < float(stats.accepted) / float(stats.proposals) <= 1


def test_the_longest_time_without_a_jump_is_that_of_all_steps() -> None:
    stats, held, longest = jumps.start_stats(), [], []
    for accepted in (0, 0, 0, 2, 0, 1, 0):  # of 8 proposals of a step
        jumped = jumps.Jumped(*[None] * 6, accepted=jnp.array(accepted), log_weight=jnp.zeros(8))
        stats = jumps.count_jumps(stats, jumped)
        held.append(int(stats.held)), longest.append(int(stats.longest))
    assert held == [8, 16, 24, 0, 8, 0, 8] and longest == [8, 16, 24, 24, 24, 24, 24]
    assert (float(stats.proposals), float(stats.accepted)) == (56.0, 3.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_energies_that_are_not_finite_are_never_jumped_to(bad) -> None:
    energy = lambda x: jnp.where(x[0] > 0, bad, jnp.sum(x**2) / 2)  # noqa: E731
    both = lambda points: (jax.vmap(energy)(points), jnp.zeros(len(points)))  # noqa: E731
    mixture = jax.tree.map(jnp.asarray, padded(components([[0.0, 0.0]], [1.0])))
    for start in (-1.0, 1.0):  # from outside of the support, any finite proposal is accepted
        noise = jumps.draw_jumps(jax.random.key(2), 32, 2)
        jumped = jumps.jump(noise, mixture, jnp.array([start, 0.0]), both, num_kept=16)
        assert jumped.accepted > 0 and jumped.point[0] < 0 and np.isfinite(jumped.energy[0])
        assert np.all(jumped.log_weight < np.inf)
