"""Ladders whose replicas move to draws from the prior preserve the product of the laws of their
rungs.

Thousands of ladders start from exact draws, by rejection from the prior, and take a few whole steps
of moves, redraws and swaps: rungs keep their laws and stay independent of each other.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from jax.scipy.stats import norm

numpyro = pytest.importorskip("numpyro")

import numpyro.distributions as dist  # noqa: E402

import replicax as rx  # noqa: E402
from replicax.algorithm import Ladder, Settings, build_step, init, redraws  # noqa: E402
from replicax.algorithm.tuning import Tuning  # noqa: E402

LADDERS, STEPS, TEMPERATURES = 12_000, 3, (1.0, 3.0, np.inf)
ROWS = jnp.array([[0.7, -0.4], [1.9, 0.1]])
NOISE = 0.8


def hierarchical(rows):
    """A scale, two values that have it, and an interval whose end is their parent, too."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.5))
    with numpyro.plate("values", 2):
        value = numpyro.sample("value", dist.Normal(0.5, scale))
    below = numpyro.sample("below", dist.Uniform(0.0, scale))
    with numpyro.plate("rows", len(rows)):
        numpyro.sample("y", dist.Normal(value + below, NOISE).to_event(1), obs=rows)


def draw_dependent(key):
    keys = jax.random.split(key)
    log_scale = 0.7 * jax.random.normal(keys[0])
    return {"value": jnp.exp(log_scale) * jax.random.normal(keys[1], (2,)), "log_scale": log_scale}


def dependent(params):
    values = norm.logpdf(params["value"], 0.0, jnp.exp(params["log_scale"]))
    return norm.logpdf(params["log_scale"], 0.0, 0.7) + jnp.sum(values)


def independent(params):
    values = jnp.sum(norm.logpdf(params["value"], 0.0, 1.5))
    return values + norm.logpdf(params["log_scale"], 0.0, 0.7) + 3.0  # a constant changes nothing


BLOCKS = {
    "value": (lambda key: 1.5 * jax.random.normal(key), 2),
    "log_scale": lambda key: 0.7 * jax.random.normal(key),
}


def of_rows(params, rows):
    mean, size = params["value"], NOISE * jnp.exp(0.3 * params["log_scale"])
    return jnp.sum(norm.logpdf(rows, mean, size), axis=1) + 2 * jnp.log(size)  # at most a constant


def make(name):
    if name == "whole":
        return rx.bayesian(of_rows, dependent, ROWS, draw_prior=draw_dependent)
    if name == "blocks":
        return rx.bayesian(of_rows, independent, ROWS, draw_prior=BLOCKS)
    return rx.interop.from_numpyro(hierarchical, ROWS)


@cache
def exact(name):
    """Exact draws of every rung (rung, count) of trees, by rejection from the prior."""
    posterior = make(name)

    def one(key):
        params = posterior.start(key)
        return params, posterior.target.energy(params, posterior.batches.data, None)

    params, energy = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(11), 1_200_000))
    rng, by_rung = np.random.default_rng(3), []
    log_uniform = np.log(rng.random((len(TEMPERATURES), len(energy))))
    for temperature, u in zip(TEMPERATURES, log_uniform):
        kept = np.flatnonzero(u < (LOWEST[name] - np.asarray(energy)) / temperature)
        assert LOWEST[name] <= energy.min() and len(kept) > 3 * LADDERS
        by_rung.append(jax.tree.map(lambda leaf, kept=kept: leaf[kept], params))
    return by_rung


# Below all energies of each posterior: those of values that fit best.
BEST = float(-jnp.sum(norm.logpdf(ROWS, ROWS.mean(axis=0), NOISE)))
LOWEST = {"sites": BEST}


def lowest_of_rows():
    squares = jnp.sum((ROWS - ROWS.mean(axis=0)) ** 2)
    sizes = NOISE * jnp.exp(0.3 * jnp.linspace(-8, 8, 4001))
    constant = 4 * np.log(2 * np.pi) / 2
    return float(jnp.min(squares / (2 * sizes**2))) + constant


LOWEST |= dict.fromkeys(("whole", "blocks"), lowest_of_rows())


def run(name, change=lambda target: target):
    """Return where rungs are at the end, a tree with leading axes (ladder, rung), and how often
    draws were accepted by rung."""
    posterior, kernel = make(name), rx.kernels.hmc(2)
    target, data = change(posterior.target), posterior.batches.data
    settings = Settings(
        rx.schedule.deo(),
        rx.swap.metropolis(),
        Tuning(adapts=None, adapts_buffer=False),
        redraws=3,
    )
    ladder = Ladder(jnp.array([0.05, 0.1, 0.2]), jnp.array(TEMPERATURES))
    step = build_step(target, kernel, settings)

    @jax.jit
    @jax.vmap
    def of_ladder(key, points):
        state = init(kernel, points, ladder, settings, target=target, batch=data)
        state, info = jax.lax.scan(lambda s, _: step(key, s, data), state, length=STEPS)
        there = jax.tree.map(lambda leaf: leaf[state.replica_at], state.replicas)
        right = jax.vmap(lambda params: target.energy(params, data, None))(there.params)
        return there.params, info.redrawn, jnp.allclose(right, there.memory.energy, 1e-3, 1e-3)

    points = jax.tree.map(lambda *rungs: jnp.stack([x[:LADDERS] for x in rungs], 1), *exact(name))
    rungs, accepted, consistent = of_ladder(jax.random.split(jax.random.key(7), LADDERS), points)
    assert consistent.all(), "a replica has the energy of where it is"
    return rungs, np.asarray(accepted.mean(axis=(0, 1))) / settings.redraws


def functions(params):
    """Bounded functions of points with one leading axis (point, function)."""
    leaves = [leaf.reshape(len(leaf), -1) for leaf in jax.tree.leaves(params)]
    x = np.concatenate(leaves, axis=1)
    both = np.tanh(x[:, :1]) * np.tanh(x)  # on what depends on each other
    return np.concatenate([np.tanh(x), np.tanh(x) ** 2, np.abs(x) < 0.4, both], axis=1)


def errors(name, change=lambda target: target):
    """Errors of means by rung and of correlations between rungs, in their standard errors."""
    rungs, accepted = run(name, change)
    found, scaled = [], []
    for rung, draws in enumerate(exact(name)):
        fresh = functions(jax.tree.map(lambda leaf: leaf[LADDERS:], draws))
        values = functions(jax.tree.map(lambda leaf, rung=rung: leaf[:, rung], rungs))
        std = fresh.std(axis=0)
        away = (values.mean(axis=0) - fresh.mean(axis=0)) / std
        found.append(np.abs(away) / np.sqrt(1 / LADDERS + 1 / len(fresh)))
        scaled.append((values - fresh.mean(axis=0)) / std)
    pairs = [(0, 1), (0, 2), (1, 2)]
    between = [np.mean(scaled[i][:, :, None] * scaled[j][:, None], axis=0) for i, j in pairs]
    return np.max(found), np.max(np.abs(between)) * LADDERS**0.5, accepted


@pytest.mark.parametrize("name", ["sites", slow("whole"), slow("blocks")])
def test_rungs_keep_their_laws_and_stay_independent(name) -> None:
    of_means, of_correlations, accepted = errors(name)
    assert of_means < 5 and of_correlations < 5
    assert np.all(np.diff(accepted) > 0) and accepted[0] > 0.01
    if name in ("whole", "blocks"):
        assert accepted[-1] == 1, "the prior takes all of its draws"


def cut(target):
    """A block of a draw of the whole prior, whose parents are not those of the state."""
    draw, names = make("sites").start, ("scale", "value", "below")

    def redraw(key, params, choice_key):
        new, old = draw(key)["unconstrained"], params["unconstrained"]
        chosen = jax.random.randint(choice_key, (), 0, len(names))
        mixed = {n: jnp.where(chosen == i, new[n], old[n]) for i, n in enumerate(names)}
        return {"unconstrained": mixed}, 0.0

    return target._replace(redraw=redraw)


def without_children(target):
    return target._replace(redraw=lambda *where: (target.redraw(*where)[0], 0.0))


WRONG = {"a block of a joint draw": cut, "the density of children left out": without_children}


@pytest.mark.parametrize("name", [slow(name) for name in WRONG])
def test_wrong_draws_are_detected(name) -> None:
    assert errors("sites", WRONG[name])[0] > 8


@pytest.mark.slow
def test_draws_accepted_without_their_likelihood_are_detected(monkeypatch) -> None:
    monkeypatch.setattr(redraws, "accepted_if", lambda *_: jnp.array(True))
    assert errors("whole")[0] > 8


def test_only_draws_of_finite_density_are_accepted() -> None:
    """From anywhere outside of the support; a move to where its reverse has no density is none."""
    threshold, slope, inf, nan = jnp.array(1.0), jnp.array(0.5), jnp.inf, jnp.nan
    for energy, drawn, log_ratio, accepted in [
        (0.0, 1.9, 0.0, True), (0.0, 2.1, 0.0, False), (0.0, 2.1, 0.1, True),  # below 2
        (nan, 9.0, 0.0, True), (inf, 9.0, -9.0, True), (nan, nan, 0.0, False),
        (0.0, -inf, 0.0, False), (0.0, 0.0, inf, False), (nan, 0.0, inf, False),
        (nan, 0.0, -inf, False),
    ]:  # fmt: skip
        found = redraws.accepted_if(threshold, slope, *map(jnp.array, (energy, drawn, log_ratio)))
        assert bool(found) == accepted, (energy, drawn, log_ratio)
