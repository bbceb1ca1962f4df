"""Labels that can be exchanged, such as those of the components of a mixture: the density is the
same under each of their permutations.

A permutation of the labels of a state is then an exact move, and nothing has to be learned about
more than one labelling. Proposals are made for points whose labels are *in order*: sorted by a
direction u, each label by the product of its entries with u. Of the K! permutations of a point
exactly one is in order, whatever u is. A proposal q(y) in order stands for all permutations of y,
so that its density there is q(y) / K!; one out of order stands for nothing.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.tree_util import tree_leaves_with_path

from replicax.algorithm.mixture import Mixture, in_use, log_density, make_mixture
from replicax.errors import is_whole, show, suggest

_MOST_SORTED = 2_000  # draws by which a direction is judged
_MOST_PAIRS = 24  # of labels, whose differences are directions to try
_BETTER = 0.5  # by which the log volume of the draws must be smaller for another direction


class Ordering(NamedTuple):
    """Which entries of a flattened point belong to each label, and the order of the labels."""

    places: Any  # constants   shape (label, entry)
    direction: Any  #          shape (entry,)


def label_places(exchangeable: Any, params: Any) -> np.ndarray | None:
    """Return the places (label, entry) in flattened `params` of what each label owns, None where
    nothing is exchangeable; of `params` only the shapes matter.

    >>> shapes = {"mean": np.zeros(2), "sd": np.zeros(()), "slope": np.zeros((3, 2))}
    >>> label_places({"mean": 0, "slope": 1}, shapes).tolist()
    [[0, 3, 5, 7], [1, 4, 6, 8]]
    """
    if exchangeable is None:
        return None
    if np.ndim(exchangeable) == 2:
        return _checked_places(np.asarray(exchangeable), params)
    axes, owned, used, begin = _axes_in(exchangeable), [], set(), 0
    leaves = [(_names(path), np.shape(x)) for path, x in tree_leaves_with_path(params)]
    for names, shape in leaves:
        at, size = _place_in(axes, names), math.prod(shape)
        if at is not None:
            axis = axes[at]
            used.add(at)
            if not -len(shape) <= axis < len(shape):
                raise ValueError(
                    f"exchangeable has axis {axis} for {'.'.join(names) or 'the array'} of shape "
                    f"{shape}; give the axis along which its labels are."
                )
            places = np.moveaxis(begin + np.arange(size).reshape(shape), axis, 0)
            owned.append(places.reshape(shape[axis], -1))
        begin += size
    if unused := [".".join(names) for names in axes if names not in used]:
        known = [".".join(names) for names, _ in leaves]
        raise ValueError(
            f"exchangeable has {unused[0]}, and there is no such array in the params: "
            f"{known[:10]}.{suggest(unused[0], known)}"
        )
    counts = {len(places) for places in owned}
    if len(counts) != 1 or counts <= {0, 1}:
        raise ValueError(
            f"exchangeable is {show(exchangeable)}: its axes have {sorted(counts)} labels; they "
            "must have one number of labels, at least 2, and all permute together."
        )
    return np.concatenate(owned, axis=1)


def _checked_places(places: np.ndarray, params: Any) -> np.ndarray:
    d = sum(int(np.prod(np.shape(leaf))) for leaf in jax.tree.leaves(params))
    whole = places.dtype.kind in "iu" and len(np.unique(places)) == places.size
    if not whole or len(places) < 2 or places.min() < 0 or places.max() >= d:
        raise ValueError(
            f"exchangeable is an array of shape {places.shape}; it must hold a row for each label, "
            f"with its places in the flattened params, whole numbers from 0 to {d - 1}, each at "
            "most once: such as numpy.arange(6).reshape(2, 3).T for two arrays of three labels."
        )
    return places


def _axes_in(exchangeable: Any) -> dict[tuple[str, ...], int]:
    """Return the axes that a tree holds, by the names on the way to each."""
    axes = {_names(path): axis for path, axis in tree_leaves_with_path(exchangeable)}
    for names, axis in axes.items():
        if not is_whole(axis):
            raise ValueError(
                f"exchangeable holds {show(axis)}{' at ' * bool(names)}{'.'.join(names)}; give the "
                "axis of the labels: a number for all params, or one for each array that has "
                'labels, as in exchangeable={"mean": 0, "weight": 0}.'
            )
    return axes


def label_axis(exchangeable: Any, path: tuple) -> int | None:
    """Return the axis of the labels of the array at a path, None where it has none."""
    axes = _axes_in(exchangeable)
    at = _place_in(axes, _names(path))
    return None if at is None else axes[at]


def _place_in(axes: dict[tuple[str, ...], int], names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return where the axis of an array stands: at it, or at a container around it."""
    return next((names[:n] for n in range(len(names) + 1) if names[:n] in axes), None)


def _names(path: tuple) -> tuple[str, ...]:
    """Return the names on the way to an array, whatever the containers are."""
    kinds = "key", "idx", "name"
    return tuple(str(next(getattr(x, k) for k in kinds if hasattr(x, k))) for x in path)


def taken(places: Any, points: Any, rank: Any) -> Any:
    """Return points (n, d) where label k is what label `rank[:, k]` was; arrays of NumPy or
    JAX."""
    xp: Any = np if isinstance(points, np.ndarray) else jnp
    places = np.asarray(places)
    label, entry = np.full(points.shape[1], -1), np.zeros(points.shape[1], int)
    label[places] = np.arange(len(places))[:, None]
    entry[places] = np.arange(places.shape[1])
    moved = xp.asarray(places)[rank[:, label], entry]
    index = xp.where(label >= 0, moved, np.arange(points.shape[1]))
    return xp.take_along_axis(points, index, axis=1)


def ordered(ordering: Ordering, points: Any) -> tuple[Any, Any]:
    """Return points (n, d) with their labels in order, and which of them were."""
    rank = _rank(ordering, points)
    is_in_order = (rank == np.arange(len(ordering.places))).all(axis=1)
    return taken(ordering.places, points, rank), is_in_order


def _rank(ordering: Ordering, points: Any) -> Any:
    xp = np if isinstance(points, np.ndarray) else jnp
    keys = points[:, ordering.places] @ ordering.direction
    return xp.argsort(keys, axis=1, stable=True)


def shuffled(places: Any, points: Array, key: Array) -> Array:
    """Return points (n, d), each with a random permutation of its labels."""
    keys = jax.random.split(key, len(points))
    rank = jax.vmap(lambda key: jax.random.permutation(key, len(places)))(keys)
    return taken(places, points, rank)


def orbit_density(ordering: Ordering, mixture: Mixture, points: Array) -> Array:
    """Return the log density of what proposals stand for, at a state, the first of the points
    (n, d), and at proposals; infinite at those that stand for nothing."""
    in_order, were = ordered(ordering, points)
    density = log_density(mixture, in_order) - math.lgamma(len(ordering.places) + 1)
    is_state = jnp.arange(len(points)) == 0
    return jnp.where(were | is_state, density, jnp.inf)


def first_direction(places: np.ndarray) -> np.ndarray:
    """Return the direction before anything is known: the first entry of each label."""
    return np.eye(places.shape[1])[0]


def best_direction(ordering: Ordering, points: np.ndarray) -> np.ndarray:
    """Return the direction that separates labels best, the old one unless another is clearly
    better: the ordered points (n, d) fill the smallest volume, by their covariance.

    Tried are the entries of labels, and the differences between labels of some of the points.
    """
    points = np.asarray(points[:: -(-len(points) // _MOST_SORTED) or 1], float)
    if len(points) <= 2 * points.shape[1]:
        return ordering.direction
    labels = points[:, ordering.places]
    scale = labels.std(axis=(0, 1)) + 1e-12 * (1 + np.abs(labels).max())
    some = labels[np.linspace(0, len(labels) - 1, _MOST_PAIRS).astype(int)]
    turns = np.arange(_MOST_PAIRS) % labels.shape[1]
    pairs = some[np.arange(len(some)), turns] - some[np.arange(len(some)), turns - 1]
    tried = [ordering.direction, *np.diag(1 / scale), *(pairs / scale**2)]

    def volume(direction: np.ndarray) -> float:
        x = ordered(ordering._replace(direction=direction), points)[0] / points.std(axis=0).clip(
            1e-30
        )
        return float(np.linalg.slogdet(np.cov(x.T) + 1e-9 * np.eye(x.shape[1]))[1])

    volumes = np.array([volume(direction) for direction in tried])
    volumes[0] -= _BETTER
    best = tried[int(np.argmin(volumes))]
    return best / np.linalg.norm(best)


def mixture_in_order(ordering: Ordering, mixture: Mixture) -> Mixture:
    """Return a mixture whose components have their means in order."""
    _, log_weight, _, mean, root, _, freedom = in_use(mixture)
    mean, root = components_in_order(ordering, mean, root)
    return make_mixture(log_weight, mean, root, freedom)


def components_in_order(
    ordering: Ordering, mean: np.ndarray, root: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means (component, d) in order, and Cholesky factors of the covariances with the same
    permutations."""
    rank = _rank(ordering, mean)
    come_from = taken(ordering.places, np.tile(np.arange(mean.shape[1]), (len(mean), 1)), rank)
    cov = root @ root.swapaxes(1, 2)
    turned = np.stack([c[np.ix_(at, at)] for c, at in zip(cov, come_from)])
    return np.take_along_axis(mean, come_from, axis=1), np.linalg.cholesky(turned)


def aligned(places: np.ndarray, point: np.ndarray, to: np.ndarray, cov: np.ndarray) -> np.ndarray:
    """Return a point (d,) with its labels permuted so that it is near another, in units of a
    covariance there."""
    from scipy.optimize import linear_sum_assignment

    precision = np.linalg.inv(cov)[places[:, :, None], places[:, None, :]]  # (label, entry, entry)
    apart = point[places][None] - to[places][:, None]  # (label of `to`, label, entry)
    cost = np.einsum("kle,kef,klf->kl", apart, precision, apart)
    _, rank = linear_sum_assignment(cost)
    return taken(places, point[None], rank[None])[0]
