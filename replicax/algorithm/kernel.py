"""The type of a transition kernel, and the replica that it moves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.ladder import Ladder


class Replica(NamedTuple):
    """A particle; all of it travels together when the replica swaps rungs."""

    params: Any
    memory: Any  # momentum, preconditioner, counters: the state of its kernel


class TimedMemory(NamedTuple):
    """The memory of a kernel that counts its steps, around another memory."""

    count: Array  # steps taken
    inner: Any


class Kernel(NamedTuple):
    """A transition kernel of one replica.

    `step(noise, replica, evaluate, rung)` returns the moved replica and the energy before the
    move; `evaluate(params)` returns (energy, gradient) on this step's mini-batch and `rung` is
    a `Ladder` of two scalars. `draw(key, replica)` makes the noise, from shapes alone; `step`
    gets None in its place where no rung has a temperature. Any replica type with `.params` will
    do.

    Swap rules that use temperatures assume that a replica has the law of its rung. A kernel whose
    memory has another law on another rung therefore has a function `change_rung(replica, old, new)`
    that returns the replica with its memory in the law of the new rung; `old` and `new` are
    Ladders of two scalars. It must change nothing where `old` equals `new`.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Callable, Ladder], tuple[Any, Array]]
    draw: Callable[[Array, Any], Any]
    exploits: Callable[[Any], Any] | None = None  # step -> may a draw be taken? None: always
    has_own_prior: bool = False  # weight decay or prior: moves feel it, energies do not
    keeps_time: bool = False  # whether its memory counts steps
    spec: dict | None = None  # name and options, to make the kernel again when a run resumes
    change_rung: Callable[[Any, Ladder, Ladder], Any] | None = None  # None: no rung in its memory
    caveat: str | None = None  # why it does not preserve exp(-U / tau), a sentence; None: it does


def has_memory(init: Callable[[Any], Any]) -> bool:
    """Return whether a kernel or an optax transform remembers something, by its `init`.

    True where `init` does not work for the parameters that it is tried with, one number.
    """
    try:
        start = jax.eval_shape(init, jnp.zeros(()))
    except Exception:  # an `init` of the user's own may need parameters of its own kind
        return True
    params = getattr(start, "params", None)
    return len(jax.tree.leaves(start)) > len(jax.tree.leaves(params))
