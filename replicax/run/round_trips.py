"""Round trips in recorded index paths, by the turns that `counters.py` counts during a run."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.run.counters import completed_trips, count_turns, start_turns


@functools.partial(jax.jit, static_argnums=2)
def _trips_by_step(turns: Any, rung_of: Any, hottest: int) -> Any:
    def step(turns: Any, rung_of: Any) -> tuple[Any, Any]:
        turns = count_turns(turns, rung_of, hottest)
        return turns, completed_trips(turns)

    return jax.lax.scan(step, turns, rung_of)[1]


def round_trips(rung_of: np.ndarray) -> np.ndarray:
    """Count the round trips of all replicas in index paths (chain, step, replica)  -> (chain,).

    >>> straight = np.array([[[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]])
    >>> round_trips(straight).tolist()
    [3]
    """
    by_step = jnp.moveaxis(jnp.asarray(rung_of), 1, 0)
    trips = _trips_by_step(start_turns(by_step[0]), by_step, rung_of.shape[2] - 1)
    return np.asarray(trips[-1]).sum(axis=1)


def trip_ends(rung_of: np.ndarray) -> list[np.ndarray]:
    """Return, for each replica, the numbers of steps after which it completed a round trip.

    `rung_of` has shape (step, replica); before the first step replica i is on rung i.
    """
    num_replicas = rung_of.shape[1]
    turns = start_turns(jnp.arange(num_replicas))
    trips = np.asarray(_trips_by_step(turns, jnp.asarray(rung_of), num_replicas - 1))
    ended = np.diff(trips, axis=0, prepend=0) > 0
    return [np.flatnonzero(steps) + 1 for steps in ended.T]
