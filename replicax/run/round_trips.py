"""Round trips of replicas along the ladder: one state machine for all who count them.

A round trip is over when a replica that was on the coldest rung has been on the hottest and is
back on the coldest. A replica heads for the coldest rung first, then for the hottest, and so on;
`turns` counts how often it arrived where it headed for.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def start_turns(rung_of: Any) -> Any:
    """Return the turns of replicas that start on the rungs `rung_of`."""
    return (rung_of == 0).astype("int32")


def count_turns(turns: Any, rung_of: Any, hottest: int) -> Any:
    """Return the turns of replicas on their new rungs; NumPy or JAX arrays of any shape."""
    if hottest == 0:  # a single rung has no way
        return turns
    return turns + (rung_of == (turns % 2) * hottest)


def forget_trips(turns: Any) -> Any:
    """Return turns without completed round trips; where each replica heads for stays."""
    return (turns > 0) * (2 - turns % 2)


def completed_trips(turns: Any) -> Any:
    """Return how many round trips were completed in so many turns: after 3, 5, 7, ... of them."""
    return (turns - (turns > 0)) // 2


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
