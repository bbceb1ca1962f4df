"""A ladder whose coldest replica jumps preserves the product of the laws of its rungs.

Thousands of ladders of three rungs start from exact draws of the product law and take a few whole
steps, of moves, swaps and jumps: rungs keep their laws and stay independent of each other.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow

import replicax as rx
from replicax.algorithm import Ladder, Settings, build_step, init, jumps
from replicax.algorithm.jumps import Jumping
from replicax.algorithm.labels import Ordering, ordered
from replicax.algorithm.ladder import Metric
from replicax.algorithm.mixture import make_mixture, padded
from replicax.algorithm.tuning import Tuning

LADDERS, STEPS, TEMPERATURES = 12_000, 3, (1.0, 2.0, 5.0)
GRID = np.linspace(-12, 12, 4001)


def energy(x):
    left = -((x + 2.0) ** 2) / (2 * 0.5**2) - np.log(0.5)
    return -jnp.logaddexp(left + np.log(0.4), -((x - 2.0) ** 2) / 2 + np.log(0.6))


def funnel(x):
    """Neither normal nor symmetric: exp(x) has a Gamma law."""
    return jnp.exp(x) - 1.5 * x


def one(mean, width, weights=None, freedom=np.inf):
    means, widths = np.reshape(mean, (-1, 1)).astype(float), np.reshape(width, (-1, 1, 1))
    weights = np.ones(len(means)) if weights is None else np.asarray(weights)
    return make_mixture(np.log(weights), means, widths.astype(float), freedom)


CASES = {
    "good": (energy, one([-2, 2, 0], [0.5, 1, 3], [0.4, 0.55, 0.05])),
    "one mode": (energy, one([2], [1.0])),
    "far off": (energy, one([6], [1.0])),
    "narrow": (energy, one([-2, 2], [0.1, 0.2])),
    "heavy-tailed": (energy, one([0], [2.0], freedom=4.0)),
    "skewed": (funnel, one([0], [1.0])),
}


def law(target, temperature):
    log = -np.asarray(jax.vmap(target)(jnp.asarray(GRID))) / temperature
    mass = np.exp(log - log.max())
    return mass / mass.sum()


def exact(target, rng, count):
    """Draws of the product law, (count, rung)."""
    draws = [rng.choice(GRID, size=count, p=law(target, t)) for t in TEMPERATURES]
    return np.stack(draws, axis=1) + 0.006 * (rng.random((count, len(TEMPERATURES))) - 0.5)


def run(name, checked=True):
    """Return where rungs are at the end (ladder, rung), and the last path (ladder, position)."""
    target, mixture = CASES[name]
    kernel = rx.kernels.hmc(2)
    jumping = Jumping(8, 4, 1, (100,), 100)
    settings = Settings(
        rx.schedule.deo(),
        rx.swap.metropolis(),
        Tuning(adapts=None, adapts_buffer=False),
        jumps=jumping,
    )
    ladder = Ladder(jnp.array([0.5, 1.0, 2.0]), jnp.array(TEMPERATURES))
    step = build_step(lambda params, batch, key: target(params["x"]), kernel, settings)
    mixture = jax.tree.map(jnp.asarray, padded(mixture))

    @jax.jit
    @jax.vmap
    def of_ladder(key, x):
        exact_target = lambda params: target(params["x"])  # noqa: E731
        state = init(kernel, {"x": x}, ladder, settings, target=exact_target)
        state = state._replace(mixture=mixture)
        state, info = jax.lax.scan(lambda s, _: step(key, s), state, length=STEPS)
        rungs = state.replicas.params["x"][state.replica_at]
        energies = state.replicas.memory.energy[state.replica_at]
        points, *_ = jax.tree.map(lambda leaf: leaf[-1], info.path)
        return rungs, points["x"], energies, state.jumps.stats.accepted

    x = jnp.asarray(exact(target, np.random.default_rng(2), LADDERS), jnp.float32)
    rungs, path, energies, accepted = of_ladder(jax.random.split(jax.random.key(7), LADDERS), x)
    if checked:
        assert np.allclose(energies, jax.vmap(jax.vmap(target))(rungs), atol=1e-3, rtol=1e-3)
        assert np.array_equal(path[:, -1], rungs[:, 0]) and accepted.mean() > 0.01
    return np.asarray(rungs, float), np.asarray(path, float)


def functions(x):
    return np.stack([x > 0, np.tanh(x), np.tanh(x) ** 2, np.abs(x) < 0.5, x > 2.5], axis=-1) * 1.0


def errors(name, checked=True):
    """Errors of the means by rung and position, and of the correlations between rungs and between
    ladders, in their standard errors."""
    target = CASES[name][0]
    rungs, path = run(name, checked)
    columns = [*zip(rungs.T, TEMPERATURES), *((at, TEMPERATURES[0]) for at in path.T)]
    found, scaled = [], []
    for x, temperature in columns:
        values, mass = functions(x), law(target, temperature)
        mean = mass @ functions(GRID)
        std = np.sqrt(mass @ functions(GRID) ** 2 - mean**2) + 1e-6
        # Products of two that are rare have no normal errors.
        is_common = (mean > 0.02) & (mean < 0.98)
        scaled.append(np.where(is_common, (values - mean) / std, 0.0))
        found.append(np.abs(((values - mean) / std).mean(axis=0)) * LADDERS**0.5)
    pairs = [(0, 1), (0, 2), (1, 2)]
    between = [np.mean(scaled[i][:, :, None] * scaled[j][:, None], axis=0) for i, j in pairs]
    neighbours = [np.mean(z[1:] * z[:-1], axis=0) for z in scaled[:3]]
    rest = np.concatenate([np.ravel(between), np.ravel(neighbours)])
    return np.max(found), np.max(np.abs(rest)) * LADDERS**0.5


@pytest.mark.parametrize("name", [name if name == "one mode" else slow(name) for name in CASES])
def test_rungs_keep_their_laws_and_stay_independent(name) -> None:
    of_means, of_correlations = errors(name)
    assert of_means < 5 and of_correlations < 5


class Elsewhere(jumps.StepEnergy):
    """Energy and gradient of where a jump led are those of another point."""

    def split(self, params):
        return super().split(jax.tree.map(lambda x: 0 * x + 6.0, params))


@pytest.mark.slow
def test_a_state_with_the_energy_of_another_point_after_a_jump_is_detected(monkeypatch) -> None:
    monkeypatch.setattr(jumps, "StepEnergy", Elsewhere)
    assert max(errors("good", checked=False)) > 7


AXIS = np.linspace(-8, 9, 341)
PLANE = np.stack(np.meshgrid(AXIS, AXIS, indexing="ij"), axis=-1).reshape(-1, 2)


def labelled(x):
    """One number near -1 and one near 2, and nothing says which is which."""
    orders = jnp.stack([x, x[::-1]])
    return -jax.nn.logsumexp(-jnp.sum((orders - jnp.array([-1.0, 2.0])) ** 2, axis=1))


def run_labelled():
    """Return rungs (ladder, rung, entry) and the last path (ladder, position, entry), in a metric
    and with a mixture that treat the two labels differently."""
    target = rx.Target(lambda x, batch, key: labelled(x), exchangeable=0)
    kernel, tuning = rx.kernels.hmc(2), Tuning(adapts=None, adapts_buffer=False)
    settings = Settings(
        rx.schedule.deo(), rx.swap.metropolis(), tuning, jumps=Jumping(8, 4, 1, (100,), 100)
    )
    root = jnp.broadcast_to(jnp.array([[0.4, 0.0], [0.3, 2.0]]), (len(TEMPERATURES), 2, 2))
    ladder = Ladder(jnp.array([0.5, 1.0, 2.0]), jnp.array(TEMPERATURES), Metric(root))
    step = build_step(target, kernel, settings)
    proposals = make_mixture(np.zeros(1), np.array([[-1.0, 1.5]]), np.array([[[1.0, 0], [0.5, 1]]]))
    proposals = jax.tree.map(jnp.asarray, padded(proposals))

    @jax.jit
    @jax.vmap
    def of_ladder(key, x):
        state = init(kernel, x, ladder, settings, target=target)
        state = state._replace(mixture=proposals)
        state, info = jax.lax.scan(lambda s, _: step(key, s), state, length=STEPS)
        path = jax.tree.map(lambda leaf: leaf[-1], info.path[0])
        return state.replicas.params[state.replica_at], path, state.jumps.stats.accepted

    rng, energies = np.random.default_rng(2), np.asarray(jax.vmap(labelled)(jnp.asarray(PLANE)))
    masses = [np.exp(-energies / t) / np.sum(np.exp(-energies / t)) for t in TEMPERATURES]
    starts = [PLANE[rng.choice(len(PLANE), size=LADDERS, p=mass)] for mass in masses]
    x = np.stack(starts, axis=1)
    x = x + (rng.random(x.shape) - 0.5) * (AXIS[1] - AXIS[0])
    found = of_ladder(
        jax.random.split(jax.random.key(7), LADDERS), jnp.asarray(x.astype(np.float32))
    )
    rungs, path, accepted = (np.asarray(leaf, float) for leaf in found)
    assert accepted.mean() > 0.3 and np.array_equal(path[:, -1], rungs[:, 0])
    return rungs, path, masses


def labelled_errors():
    """Errors of means by rung, of those of paths, and of correlations between positions of labels
    of one path that are permuted apart, in standard errors."""
    rungs, path, masses = run_labelled()
    of = lambda x: np.stack([x[..., 0] < x[..., 1], np.tanh(x[..., 0]), np.tanh(x[..., 1]),  # noqa: E731
                             np.tanh(x[..., 0] * x[..., 1])], axis=-1) * 1.0  # fmt: skip
    found = []
    for x, mass in [
        *zip(rungs.swapaxes(0, 1), masses),
        *((at, masses[0]) for at in path.swapaxes(0, 1)),
    ]:
        mean = mass @ of(PLANE)
        std = np.sqrt(mass @ of(PLANE) ** 2 - mean**2)
        found.append(np.abs((of(x) - mean).mean(axis=0) / std) * LADDERS**0.5)
    order = np.where(path[:, :, 0] < path[:, :, 1], 1.0, -1.0)
    return np.max(found), np.max(
        np.abs(np.mean(order[:, 1:] * order[:, :-1], axis=0))
    ) * LADDERS**0.5


def test_exchangeable_labels_keep_the_law_and_are_permuted_at_every_position() -> None:
    of_means, of_orders = labelled_errors()
    assert of_means < 5 and of_orders < 5


@pytest.mark.slow
def test_labels_that_jumps_leave_in_order_are_detected(monkeypatch) -> None:
    """The metric is not that of the other order, so that their law is not enough."""
    ordering = Ordering(np.array([[0], [1]]), np.array([1.0]))
    monkeypatch.setattr(jumps, "shuffled", lambda places, x, key: ordered(ordering, x)[0])
    assert max(labelled_errors()) > 7
