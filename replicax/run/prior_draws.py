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

_NUM_DRAWS, _FEWEST_DRAWS = 2**14, 2**9  # that the test moves
_MOST_COMPONENTS, _MOST_POINTS = 128, 2**17
_PROBES, _FAR = 16, 1e3  # of the tails of a component, so many quartile distances away
_ENDLESS = -7.0  # change of the log density out there of a component without end
_STEPS, _LONGEST = 8, 1.4  # its square is the longest step, in differences of two draws
_MOST_ERRORS = 6.5  # exceeded by right draws in one of 10^6 tests at most
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
    """Draws from the prior: `draws(key)` of all parameters, `draws.redraw(key, params,
    choice_key)` of all or
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

    def redraw(self, key: Array, params: Any, choice_key: Array) -> tuple[Any, float]:
        """Return the parameters with all of them, or one block, drawn anew; and 0, by which this
        changes the log prior density of the others."""
        drawn = self(key)
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
    """Raise unless draws have the law of `log_prior`, as far as some thousands of them tell.

    Metropolis steps of single components, which preserve that law, must not change them. Of right
    draws the place before some steps and that after them can be exchanged, so that the changes of
    any number have symmetric laws: their sum, in units of the root of the sum of their squares, has
    the tails of a normal law (Efron, 1969), however heavy those of the draws are. Constants that
    `log_prior` leaves out do not matter.
    """
    with explained("draw_prior", "It must return params for a key."):
        like = jax.eval_shape(draw, jax.random.key(0))
    leaves = jax.tree.leaves(like)
    if not leaves or any(not jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
        raise ValueError("draw_prior must return real floating-point numbers, in arrays.")
    names = [
        component
        for name, leaf in zip(trees.leaf_names(like), leaves, strict=True)
        for component in trees.component_names(name, leaf.shape)
    ]
    rng = np.random.default_rng(0)
    components = np.sort(rng.permutation(len(names))[:_MOST_COMPONENTS])
    count = int(np.clip(_MOST_POINTS // len(components), _FEWEST_DRAWS, _NUM_DRAWS))
    points, evaluate = _drawn(draw, log_prior, like, count)
    sample = _Sample(names, points, evaluate(points[:count]), evaluate)
    sample.check_limits()
    for component, is_endless in zip(components, sample.are_endless(components), strict=True):
        sample.check(component, is_endless, rng)


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
class _Sample:
    """Draws, of which the first third takes Metropolis steps as long as the others differ."""

    names: list[str]  # of components
    points: np.ndarray  # (draw, component)
    log_prior: np.ndarray  # of the first third
    evaluate: Callable[[np.ndarray], np.ndarray]

    def check_limits(self) -> None:
        """Raise if `log_prior` does not allow what is drawn, or if nothing is drawn at random."""
        finite = np.isfinite(self.log_prior)
        if np.mean(finite) < _FEWEST_FINITE:
            raise ValueError(
                f"log_prior is {self.log_prior[~finite][0]} at {np.mean(~finite):.2g} of the draws "
                "of draw_prior: draw from the law that log_prior describes, within its limits."
            )
        fixed = np.flatnonzero(np.ptp(self.points, axis=0) == 0)
        if len(fixed):
            raise ValueError(
                f"draw_prior returns the same {self.names[fixed[0]]} for every key: draw it at "
                "random, or leave it out of params."
            )

    def quartiles(self, i: Any) -> np.ndarray:
        return np.quantile(self.points[:, i], [0.25, 0.5, 0.75], axis=0)

    def are_endless(self, components: np.ndarray) -> np.ndarray:
        """Return of which components the density falls off on neither side: of periodic ones."""
        some, d = self.points[:_PROBES], self.points.shape[1]
        lower, _, upper = self.quartiles(slice(None))
        away = (_FAR * (upper - lower) * np.eye(d))[components]
        far = (some + np.stack([-away, away], axis=1)[:, :, None]).astype(some.dtype)
        gain = self.evaluate(far.reshape(-1, d)).reshape(far.shape[:3]) - self.log_prior[:_PROBES]
        falls = ~(gain > _ENDLESS)  # also where it is not finite
        return np.all(np.mean(falls, axis=2) < 0.5, axis=1)

    def moved(self, i: int, is_endless: bool, rng: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return points after steps of component i, and their log prior."""
        (at, one, other), log_at = np.split(self.points, 3), self.log_prior
        least, most = self.points[:, i].min(), self.points[:, i].max()
        for _ in range(_STEPS):
            sign, share = rng.choice([-1, 1], len(at)), rng.uniform(0, _LONGEST, len(at)) ** 2
            to = at.copy()
            to[:, i] += sign * share * rng.permutation(one[:, i] - other[:, i])
            if is_endless:
                to[:, i] = least + (to[:, i] - least) % (most - least)
            log_to = self.evaluate(to)
            accepted = np.log(rng.random(len(at))) < log_to - log_at
            at, log_at = np.where(accepted[:, None], to, at), np.where(accepted, log_to, log_at)
        return at, log_at

    def check(self, i: int, is_endless: bool, rng: Any) -> None:
        """Raise if steps of component i change draws."""
        lower, middle, upper = self.quartiles(i)
        unit = upper - lower or np.ptp(self.points[:, i])
        after, log_after = self.moved(i, is_endless, rng)
        x, y = ((points[:, i] - middle) / unit for points in (self.points[: len(after)], after))
        changes = {
            ("larger", "smaller"): np.tanh(y) - np.tanh(x),
            ("farther from their middle", "nearer to their middle"): _distance(y) - _distance(x),
            ("likelier", "less likely"): np.tanh(log_after - self.log_prior),
        }
        for (more, less), change in changes.items():
            change = np.asarray(change, float)[np.isfinite(self.log_prior)]
            errors = np.sum(change) / max(np.sqrt(np.sum(change**2)), 1e-30)
            if abs(errors) > _MOST_ERRORS:
                raise ValueError(
                    f"draw_prior does not draw from log_prior: moves by log_prior make its draws "
                    f"of {self.names[i]} (quartiles {lower:.3g}, {middle:.3g}, {upper:.3g}) "
                    f"{more if errors > 0 else less}, by {abs(errors):.0f} standard errors. Give "
                    "both the same scale and limits and log_prior the Jacobian of parameters that "
                    "are transformed, and draw together what depends on each other."
                )


def _distance(x: np.ndarray) -> np.ndarray:
    return abs(x) / (1 + abs(x))
