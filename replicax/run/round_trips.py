"""Round trips of replicas along the ladder: one state machine for all who count them.

A round trip is over when a replica that was on the coldest rung has been on the hottest and is
back on the coldest.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

NOT_YET, UP, DOWN = 0, 1, 2  # never on the coldest rung; on the way to the hottest; on the way back


def start_phase(rung_of: Any) -> Any:
    """Return the phase of replicas that start on the rungs `rung_of`."""
    return (rung_of == 0).astype("int8") * UP


def advance_phase(phase: Any, rung_of: Any, hottest: int) -> tuple[Any, Any]:
    """Return the phase of each replica on its new rung, and whether it completed a round trip.

    NumPy or JAX arrays of any shape, one entry per replica.
    """
    is_cold, is_hot = rung_of == 0, rung_of == hottest
    completed = is_cold & (phase == DOWN)
    climbed = phase + (is_hot & (phase == UP))
    return climbed * ~is_cold + UP * is_cold, completed


@functools.partial(jax.jit, static_argnums=2)
def _completed(phase: Any, rung_of: Any, hottest: int) -> Any:
    advance = lambda phase, rungs: advance_phase(phase, rungs, hottest)  # noqa: E731
    return jax.lax.scan(advance, phase, rung_of)[1]


def round_trips(rung_of: np.ndarray) -> np.ndarray:
    """Count the round trips of all replicas in index paths (chain, step, replica)  -> (chain,).

    >>> straight = np.array([[[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]])
    >>> round_trips(straight).tolist()
    [3]
    """
    by_step = jnp.moveaxis(jnp.asarray(rung_of), 1, 0)
    completed = _completed(start_phase(by_step[0]), by_step[1:], rung_of.shape[2] - 1)
    return np.asarray(completed).sum(axis=(0, 2))


def trip_ends(rung_of: np.ndarray) -> list[np.ndarray]:
    """Return, for each replica, the numbers of steps after which it completed a round trip.

    `rung_of` has shape (step, replica); before the first step replica i is on rung i.
    """
    num_replicas = rung_of.shape[1]
    phase = start_phase(jnp.arange(num_replicas))
    completed = np.asarray(_completed(phase, jnp.asarray(rung_of), num_replicas - 1))
    return [np.flatnonzero(steps) + 1 for steps in completed.T]
