"""Draws from the prior: what is declared, and the test that `log_prior` is their density."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from jax.scipy.stats import norm

import replicax as rx
from replicax.run.prior_draws import PriorDraws, check_draws

normal, uniform, cauchy = jax.random.normal, jax.random.uniform, jax.random.cauchy
ROWS = jnp.array([0.4, 1.3, 0.9])


def within(x, lowest, highest):
    return jnp.where((x >= lowest) & (x <= highest), 0.0, -jnp.inf)


def correlated(x):
    return -(x[0] ** 2 + (x[1] - 0.5 * x[0]) ** 2 / 0.75) / 2


def draw_correlated(key):
    return jnp.array([[1.0, 0.0], [0.5, 0.75**0.5]]) @ normal(key, (2,))


def hierarchical(p):
    values = norm.logpdf(p["values"], p["mean"], jnp.exp(p["log_scale"]))
    return norm.logpdf(p["mean"], 0, 5) + norm.logpdf(p["log_scale"]) + jnp.sum(values)


def draw_hierarchical(key):
    keys = jax.random.split(key, 3)
    mean, log_scale = 5 * normal(keys[0]), normal(keys[1])
    values = mean + jnp.exp(log_scale) * normal(keys[2], (8,))
    return {"mean": mean, "log_scale": log_scale, "values": values}


def draw_von_mises(key):
    grid = jnp.linspace(-jnp.pi, jnp.pi, 20_001)[1:]
    return jax.random.choice(key, grid, p=jnp.exp(2 * jnp.cos(grid)))


def piece(name):
    return lambda key: draw_hierarchical(key)[name]


RIGHT = {
    "a constant is left out": (normal, lambda x: 7 - x**2 / 2),
    "cauchy": (cauchy, lambda x: -jnp.log1p(x**2)),
    "log of a half-cauchy": (
        lambda key: jnp.log(jnp.abs(cauchy(key))),
        lambda x: x - jnp.log1p(jnp.exp(2 * x)),
    ),
    "with walls": (uniform, lambda x: within(x, 0, 1)),
    "periodic without walls": (lambda key: 6.2832 * uniform(key), lambda x: 0.0 * x),
    "periodic with a peak": (draw_von_mises, lambda x: 2 * jnp.cos(x)),
    "far from 0": (lambda key: 1e4 + normal(key), lambda x: -((x - 1e4) ** 2) / 2),
    "correlated": (draw_correlated, correlated),
    "hierarchical": (draw_hierarchical, hierarchical),
    "many": (lambda key: normal(key, (1000,)), lambda x: -jnp.sum(x**2) / 2),
    "blocks": (
        {"a": (normal, 3), "b": [uniform, normal]},
        lambda p: within(p["b"][0], 0, 1) - (jnp.sum(p["a"] ** 2) + p["b"][1] ** 2) / 2,
    ),
}
WRONG = {
    "wider": (lambda key: 1.3 * normal(key), lambda x: -(x**2) / 2, "params .*nearer"),
    "narrower": (lambda key: 0.8 * normal(key), lambda x: -(x**2) / 2, "farther from their"),
    "elsewhere": (lambda key: 0.2 + normal(key), lambda x: -(x**2) / 2, "smaller"),
    "without its Jacobian": (
        lambda key: jnp.log(jnp.abs(normal(key))),
        lambda x: -jnp.exp(2 * x) / 2,
        "smaller, by .*Jacobian",
    ),
    "half of what is allowed": (lambda key: 5 * uniform(key), lambda x: within(x, 0, 10), "larger"),
    "beyond the walls": (lambda key: 20 * uniform(key), lambda x: within(x, 0, 10), "-inf at 0.5"),
    "improper": (normal, lambda x: 0.0 * x, "farther"),
    "lighter tails": (normal, lambda x: -jnp.log1p(x**2), "farther"),
    "heavier tails": (lambda key: jax.random.t(key, 3), lambda x: -(x**2) / 2, "nearer"),
    "what is correlated drawn apart": ([normal, normal], lambda x: correlated(x), "together"),
    "a hierarchy in blocks": (
        {name: piece(name) for name in ("mean", "log_scale", "values")},
        hierarchical,
        "log_scale .*together",
    ),
    "one of a hundred": (
        lambda key: normal(key, (100,)).at[7].multiply(1.5),
        lambda x: -jnp.sum(x**2) / 2,
        r"params\[7\] .*nearer",
    ),
    "the same for every key": (lambda key: jnp.ones(2), lambda x: 0.0 * x[0], "every key"),
}
QUICK = ("cauchy", "periodic with a peak", "hierarchical", "blocks")
QUICK_WRONG = ("wider", "half of what is allowed", "a hierarchy in blocks")


@pytest.mark.parametrize("name", [name if name in QUICK else slow(name) for name in RIGHT])
def test_right_draws_pass(name) -> None:
    declared, log_prior = RIGHT[name]
    check_draws(PriorDraws(declared), log_prior)


@pytest.mark.parametrize("name", [name if name in QUICK_WRONG else slow(name) for name in WRONG])
def test_wrong_draws_are_refused(name) -> None:
    declared, log_prior, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        check_draws(PriorDraws(declared), log_prior)


@pytest.mark.slow
def test_right_draws_pass_with_other_numbers(monkeypatch) -> None:
    """No right draw is refused by bad luck: errors are far below the bound, over many seeds."""
    seen, rng_of = [], np.random.default_rng
    for seed in range(20):
        monkeypatch.setattr(np.random, "default_rng", lambda _, seed=seed: rng_of(seed))
        monkeypatch.setattr("replicax.run.prior_draws._MOST_ERRORS", 4.5)
        for name in ("cauchy", "hierarchical", "with walls"):
            check_draws(PriorDraws(RIGHT[name][0]), RIGHT[name][1])
            seen.append(name)
    assert len(seen) == 60


def test_a_block_changes_alone_or_all_change() -> None:
    draws = PriorDraws({"a": (normal, 3), "b": normal})
    params = {"a": jnp.zeros(3), "b": jnp.zeros(())}
    keys, choices = jax.random.split(jax.random.key(0), (2, 2000))
    redraw = jax.vmap(lambda key, choice: draws.redraw(key, params, choice))
    after, gain = redraw(keys, choices)
    changed = np.column_stack([after["a"], after["b"]]) != 0
    kinds, counts = np.unique(changed, axis=0, return_counts=True)
    assert kinds.sum(axis=1).tolist() == [1, 1, 1, 1, 4] and not np.any(gain)
    assert np.all(np.abs(counts - 400) < 100)
    again = redraw(keys, jnp.broadcast_to(choices[:1], choices.shape))[0]
    same = np.column_stack([again["a"], again["b"]]) != 0
    assert len(np.unique(same, axis=0)) == 1 < len(np.unique(again["b"] + again["a"].sum(axis=1)))
    whole = jax.vmap(lambda key: PriorDraws(normal).redraw(key, jnp.zeros(()), key)[0])(keys)
    assert np.all(whole != 0)


@pytest.mark.parametrize(
    ("draw_prior", "words"),
    [
        ({}, "empty"),
        ({"a": 3.0}, "draw_prior holds 3.0"),
        ((normal, 0), "two independent rows"),
        (lambda: 0.0, "must take 1 argument"),
        (lambda key: 1, "floating-point"),
        (lambda key: key.nothing, "draw_prior"),
    ],
)
def test_what_draws_nothing_is_refused(draw_prior, words) -> None:
    with pytest.raises(ValueError, match=words):
        rx.bayesian(
            lambda x, rows: -((rows - x) ** 2), lambda x: -(x**2), ROWS, draw_prior=draw_prior
        )


def test_draws_of_another_shape_than_the_start_are_refused() -> None:
    posterior = rx.bayesian(
        lambda x, rows: -((rows - jnp.sum(x)) ** 2),
        lambda x: -jnp.sum(x**2) / 2,
        ROWS,
        draw_prior=normal,
    )
    with pytest.raises(ValueError, match="the same containers and shapes"):
        rx.sample(posterior, jnp.zeros(2), num_steps=20, progress=False)
