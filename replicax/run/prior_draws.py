"""Draws from the prior as the user declares them, whole or in independent blocks, and a test that
they have the law of `log_prior`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.errors import check_function, explained, is_whole, show
from replicax.run import trees

_NUM_DRAWS, _FEWEST_DRAWS = 2**14, 2**9  # of the test
_MOST_COMPONENTS, _MOST_POINTS = 128, 2**17
_PROBES, _FAR = 16, 1e3  # of the tails of a component, so many quartile distances away
_ENDLESS = -7.0  # log density out there, on both sides, of a component that is not bounded
_STEPS = 8  # from each draw
_SHARES = 0.1, 2.0  # of the difference of two draws, as which a step is long
_MOST_ERRORS = 6.5  # exceeded by a right draw in one of 10^6 tests at most, whatever its law
_FEWEST_FINITE = 0.999


@dataclass(frozen=True)
class Block:
    """Parameters that are independent of all others in the prior; with a `count`, as many of them
    along the first axis of their arrays."""

    draw: Callable[[Array], Any]
    count: int | None = None

    def drawn(self, key: Array) -> Any:
        """Return new values, as arrays."""
        draw = self.draw
        if self.count is not None:
            draw = jax.vmap(self.draw)
            key = jax.random.split(key, self.count)
        return jax.tree.map(jnp.asarray, draw(key))

    def mixed(self, is_chosen: Array, new: Any, old: Any) -> Any:
        """Return new values where chosen, one truth value for each of the count."""

        def mix(new: Array, old: Array) -> Array:
            if self.count is None:
                return jnp.where(is_chosen[0], new, old)
            return jnp.where(is_chosen.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(mix, new, old)


class PriorDraws:
    """Draws from the prior: `draws(key)` of all parameters, `draws.redraw(key, params)` of all or
    of one block.

    >>> normal = jax.random.normal
    >>> draws = PriorDraws({"scale": normal, "slopes": (normal, 3)})
    >>> {name: value.shape for name, value in draws(jax.random.key(0)).items()}
    {'scale': (), 'slopes': (3,)}
    """

    def __init__(self, declared: Any) -> None:
        leaves, self._structure = jax.tree.flatten(declared, is_leaf=_is_pair)
        self.blocks = [_block(leaf) for leaf in leaves]
        if not self.blocks:
            raise ValueError("draw_prior is empty: give a function draw_prior(key) -> params.")

    def __call__(self, key: Array) -> Any:
        keys = jax.random.split(key, len(self.blocks))
        parts = [block.drawn(key) for block, key in zip(self.blocks, keys, strict=True)]
        return self._structure.unflatten(parts)

    def redraw(self, key: Array, params: Any) -> tuple[Any, float]:
        """Return the parameters with all of them, or one block, drawn anew; and 0, by which this
        changes the log prior density of the others."""
        draw_key, choice_key = jax.random.split(key)
        drawn = self(draw_key)
        _check_like(drawn, params)
        counts = [block.count or 1 for block in self.blocks]
        if sum(counts) == 1:
            return drawn, 0.0
        chosen = jax.random.randint(choice_key, (), 0, sum(counts) + 1)  # the last one: all
        is_chosen = (jnp.arange(sum(counts)) == chosen) | (chosen == sum(counts))
        by_block = jnp.split(is_chosen, np.cumsum(counts)[:-1])
        parts = zip(self.blocks, by_block, *map(self._structure.flatten_up_to, (drawn, params)))
        mixed = [block.mixed(which, new, old) for block, which, new, old in parts]
        return self._structure.unflatten(mixed), 0.0


def _is_pair(node: Any) -> bool:
    return isinstance(node, tuple) and len(node) == 2 and callable(node[0]) and is_whole(node[1])


def _block(leaf: Any) -> Block:
    draw, count = leaf if _is_pair(leaf) else (leaf, None)
    if not callable(draw) or (count is not None and count < 1):
        raise ValueError(
            f"draw_prior holds {show(leaf)}; give a function draw_prior(key) -> params, or the "
            "containers of params with a function in the place of each independent block, such as "
            '{"noise": draw_noise, "planets": (draw_planet, 2)}, two independent rows.'
        )
    check_function("draw_prior", draw, "key")
    return Block(draw, count)


def _check_like(drawn: Any, params: Any) -> None:
    """Raise unless draws have the containers and shapes of the parameters."""
    same = jax.tree.structure(drawn) == jax.tree.structure(params)
    pairs = zip(jax.tree.leaves(drawn), jax.tree.leaves(params))
    if not same or any(one.shape != other.shape for one, other in pairs):
        shapes = [jax.tree.map(lambda leaf: leaf.shape, tree) for tree in (drawn, params)]
        raise ValueError(
            f"draw_prior returns the shapes {shapes[0]}, and replicas start at params of the "
            f"shapes {shapes[1]}: let both have the same containers and shapes."
        )


def check_draws(draw: Callable[[Array], Any], log_prior: Callable[[Any], Array]) -> None:
    """Raise unless draws have the law of `log_prior`, as far as a few thousand of them tell.

    Metropolis steps of single components, which preserve that law, must not change them: as many
    accepted steps lead up as down, in value, in distance from the middle and in density. Signs of
    differences are then fair coins, so that sums in units of the root of their squares have the
    tails of a normal law, whatever the law of the draws (Efron, 1969). Constants that `log_prior`
    leaves out do not matter.
    """
    with explained("draw_prior", "It must return params for a key."):
        like = jax.eval_shape(draw, jax.random.key(0))
    names = [
        component
        for name, leaf in zip(trees.leaf_names(like), jax.tree.leaves(like), strict=True)
        for component in trees.component_names(name, leaf.shape)
    ]
    if not names or any(not jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(like)):
        raise ValueError("draw_prior must return real floating-point numbers.")
    rng, d = np.random.default_rng(0), len(names)
    components = np.sort(rng.choice(d, min(d, _MOST_COMPONENTS), replace=False))
    count = int(np.clip(_MOST_POINTS // len(components), _FEWEST_DRAWS, _NUM_DRAWS))
    points, evaluate = _drawn(draw, log_prior, like, count)
    at, _, _ = np.split(points, 3)
    log_at = evaluate(at)
    finite = np.isfinite(log_at)
    if finite.mean() < _FEWEST_FINITE:
        raise ValueError(
            f"log_prior is {log_at[~finite][0]} at {np.mean(~finite):.2g} of the draws of "
            "draw_prior: draw from the law that log_prior describes, within its limits."
        )
    lower, middle, upper = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    width = np.where(upper > lower, upper - lower, np.ptp(points, axis=0))
    fixed = np.flatnonzero(width == 0)
    if len(fixed):
        raise ValueError(
            f"draw_prior returns the same {names[fixed[0]]} for every key: draw it at random."
        )
    steps = _Steps(points, log_at, middle, width, evaluate, rng)
    for component, is_endless in zip(components, steps.are_endless(components), strict=True):
        steps.check(component, is_endless, names[component])


def _drawn(draw: Callable, log_prior: Callable, like: Any, count: int) -> tuple[np.ndarray, Any]:
    """Return three times `count` flattened draws, and `evaluate(points)`, their log prior."""
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    unravel = ravel_pytree(zeros)[1]
    flat = jax.jit(jax.vmap(lambda key: ravel_pytree(draw(key))[0]))
    points = np.asarray(flat(jax.random.split(jax.random.key(0), 3 * count)))
    block = jax.jit(jax.vmap(lambda point: jnp.asarray(log_prior(unravel(point)))))

    def evaluate(points: np.ndarray) -> np.ndarray:
        size = -(-len(points) // count) * count
        blocks = np.split(np.resize(points, (size, points.shape[1])), size // count)
        return np.concatenate([np.asarray(block(rows), float) for rows in blocks])[: len(points)]

    return points, evaluate


@dataclass(frozen=True)
class _Steps:
    """Metropolis steps from draws, a component at a time."""

    points: np.ndarray  # three times as many as steps, (draw, d)
    log_at: np.ndarray
    middle: np.ndarray
    width: np.ndarray
    evaluate: Callable[[np.ndarray], np.ndarray]
    rng: np.random.Generator

    def check(self, i: int, is_endless: bool, name: str) -> None:
        """Raise if steps of component i change it."""
        first, one, other = np.split(self.points, 3)
        least, most = self.points[:, i].min(), self.points[:, i].max()
        at, log_at = first.copy(), self.log_at
        for _ in range(_STEPS):
            share = np.exp(self.rng.uniform(*np.log(_SHARES), len(at)))
            sign = self.rng.choice([-1, 1], len(at))
            difference = self.rng.permutation(one[:, i] - other[:, i])
            to = at.copy()
            to[:, i] += sign * share * difference
            if is_endless:  # periodic, then
                to[:, i] = least + (to[:, i] - least) % (most - least)
            log_to = self.evaluate(to)
            accepted = np.log(self.rng.random(len(at))) < log_to - log_at
            at, log_at = np.where(accepted[:, None], to, at), np.where(accepted, log_to, log_at)
        x, y = ((x[:, i] - self.middle[i]) / self.width[i] for x in (first, at))
        distances = abs(x) / (1 + abs(x)), abs(y) / (1 + abs(y))
        changes = {
            ("larger", "smaller"): np.tanh(y) - np.tanh(x),
            ("farther from their middle", "nearer to it"): distances[1] - distances[0],
            ("likelier by it", "less likely by it"): np.tanh(log_at - self.log_at),
        }
        errors = {
            words: np.sum(change) / np.sqrt(np.sum(np.square(change, dtype=float)) + 1e-30)
            for words, change in changes.items()
        }
        words = max(errors, key=lambda words: abs(errors[words]))
        if abs(errors[words]) > _MOST_ERRORS:
            lower, upper = np.quantile(self.points[:, i], [0.25, 0.75])
            raise ValueError(
                f"draw_prior does not draw from log_prior: steps by log_prior make its draws of "
                f"{name} (quartiles {lower:.3g}, {self.middle[i]:.3g}, {upper:.3g}) "
                f"{words[int(errors[words] < 0)]}, by {abs(errors[words]):.0f} standard errors. Give "
                "both the same scale and limits, log_prior the Jacobian of parameters that are "
                "transformed, and draw together what depends on each other."
            )

    def are_endless(self, components: np.ndarray) -> np.ndarray:
        """Return of which components the density falls off on neither side."""
        some, d = self.points[:_PROBES], self.points.shape[1]
        away = _FAR * np.eye(d)[components] * self.width
        away = np.stack([-away, away], axis=1)  # (component, side, d)
        far = (some + away[:, :, None]).astype(some.dtype)
        gain = self.evaluate(far.reshape(-1, d)).reshape(far.shape[:3]) - self.log_at[:_PROBES]
        gain = np.where(np.isfinite(gain), gain, -1 / np.finfo(np.float32).eps)
        return np.all(np.median(gain, axis=2) > _ENDLESS, axis=1)
