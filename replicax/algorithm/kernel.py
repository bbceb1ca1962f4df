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


class Evaluated(NamedTuple):
    """The energy U and V, minus the log prior, at one point, with their gradients."""

    energy: Array
    gradient: Any
    prior: Array
    prior_gradient: Any
    half_difference: Any = None  # half the difference of the gradients of two halves of the batch


class Observed(NamedTuple):
    """Observations of one move, from which step sizes are tuned and problems are found."""

    step_error: Array  # 0 where the learning rate is right, negative where it is too large
    steepness: Any  # an estimate of the curvature of U / tau + V by parameter, from gradients
    acceptance: Array  # probability that the proposal was accepted; 1 without a proposal
    heating: Array  # excess of the temperature by the gradient's noise; 0 for exact gradients


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

    What `evaluate` and `step` return depends on `needs`. With "split", `evaluate` returns an
    `Evaluated`; with "halves", one with the difference of two halves of the mini-batch. They
    preserve exp(-U / tau - V) also where the likelihood alone is tempered, and `step` returns the
    moved replica, an energy and an `Observed`. An `adjusted` kernel accepts or rejects, keeps the
    `Evaluated` of its point in its memory (`prepare(replica, evaluate)` puts the first one there)
    and returns the energy after the move.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Ladder], tuple]
    draw: Callable[[Array, Any], Any]
    exploits: Callable[[Any], Any] | None = None  # step -> may a draw be taken? None: always
    has_own_prior: bool = False  # weight decay or prior: moves feel it, energies do not
    keeps_time: bool = False  # whether its memory counts steps
    spec: dict | None = None  # name and options, to make the kernel again when a run resumes
    change_rung: Callable[[Any, Ladder, Ladder], Any] | None = None  # None: no rung in its memory
    caveat: str | None = None  # why it does not preserve exp(-U / tau), a sentence; None: it does
    needs: str = "gradient"  # or "split" or "halves"
    adjusted: bool = False
    first_rate: float = (
        0.01  # where learning_rate="auto" begins: small where steps are not rejected
    )
    prepare: Callable[[Any, Callable], Any] | None = None

    @property
    def observes(self) -> bool:
        """Whether `step` returns an `Observed`, from which step sizes can be tuned."""
        return self.needs != "gradient"


def has_memory(init: Callable[[Any], Any]) -> bool:
    """Return whether a kernel or an optax transform remembers something, by its `init`.

    True where `init` does not work for the parameters that it is tried with, one number.
    """
    try:
        start = jax.eval_shape(init, jnp.zeros(()))
    except (TypeError, ValueError, AttributeError, LookupError):  # needs parameters of its own kind
        return True
    params = getattr(start, "params", None)
    return len(jax.tree.leaves(start)) > len(jax.tree.leaves(params))
