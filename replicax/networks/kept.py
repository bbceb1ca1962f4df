"""The networks of an average, kept to predict new inputs.

They are rows of the records "networks", written when they are averaged. If there are many, every
second, fourth, ... pick is kept, so that the number of networks stays below a limit. Which ones are
kept depends only on the number of picks so far, not on the length or the interruptions of a run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.run import devices, plain
from replicax.run.records import Arrays, Records
from replicax.run.storage.metadata import TreeSpec

GROUP = "networks"
MAX_BYTES = 2**28  # limit for all kept networks


class Networks(NamedTuple):
    """Networks of an average, leading axis: network, in the order in which they were added."""

    params: Any
    model_state: Any
    weight: np.ndarray  # (network,) in the average
    epoch: np.ndarray  # (network,)
    rung: np.ndarray  # (network,) -1: drawn from a Gaussian


@dataclass(frozen=True)
class Thinning:
    """Which networks are kept: at most `limit` of them, evenly spaced; of a pick larger than that
    the first ones."""

    limit: int

    @classmethod
    def of(cls, like: Any, limit: int) -> "Thinning":
        """Return the thinning of networks with the shapes of `like`."""
        num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
        return cls(min(limit, max(1, MAX_BYTES // max(num_bytes, 1))))

    def stride(self, number: int, members: int) -> int:
        """Return the distance between kept picks of `members` networks each, after `number` picks.

        >>> [Thinning(limit=4).stride(number, members=1) for number in (1, 4, 5, 9, 10)]
        [1, 1, 2, 2, 4]
        """
        stride, most = 1, max(1, self.limit // members)
        while number // stride > most:
            stride *= 2
        return stride

    def rows(
        self, number: int, epoch: int, weights: np.ndarray, rungs: np.ndarray, points: Callable
    ) -> Arrays:
        """Return the networks of the `number`-th pick as rows of the records, none if it is not
        kept. `points()` returns them as (params, model_state) with a leading axis."""
        count = min(self.limit, len(weights))
        if not count:
            return {}
        stride = self.stride(number, count)
        if number % stride:
            return {}
        columns = {"pick": number, "stride": stride, "epoch": epoch}
        rows = {name: np.full(count, value, np.int32) for name, value in columns.items()}
        return {
            **rows,
            "rung": np.asarray(rungs[:count], np.int32),
            "weight": np.asarray(weights[:count], np.float32),
            "bytes": _pack(points())[:count],
        }


@jax.jit
def _take(points: Any, replicas: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0, replicas], points)


def take(points: Any, replicas: np.ndarray) -> Any:
    """Return some replicas of the first chain on the host; every process must call this."""
    return devices.to_host(_take(points, jnp.asarray(replicas)))


def _pack(points: Any) -> np.ndarray:
    """Return networks as bytes  (network, byte)."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(points)]
    flat = [leaf.reshape(len(leaf), -1).view(np.uint8) for leaf in leaves if leaf.size]
    return np.concatenate(flat, axis=1)


def read(records: Records, like: Any = None) -> Networks | None:
    """Return the networks in the records, None if there are none.

    `like` has the containers, which a folder cannot describe.
    """
    if not records.length(GROUP):
        return None
    pick, stride = records.read(GROUP, "pick"), records.read(GROUP, "stride")
    kept = pick % stride[-1] == 0
    params, model_state = _unpack(records.metadata.params, records.read(GROUP, "bytes")[kept], like)
    columns = [records.read(GROUP, name)[kept] for name in ("weight", "epoch", "rung")]
    return Networks(params, model_state, *columns)


def _unpack(spec: TreeSpec, packed: np.ndarray, like: Any) -> Any:
    leaves, start = [], 0
    for shape, name in zip(spec.shapes, spec.dtypes, strict=True):
        dtype = jnp.dtype(name)
        stop = start + int(np.prod(shape, dtype=int)) * dtype.itemsize
        part = np.ascontiguousarray(packed[:, start:stop])
        leaves.append(part.view(dtype).reshape(len(packed), *shape))
        start = stop
    return plain.rebuild(spec, leaves, like)
