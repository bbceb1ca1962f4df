"""The type of a transition kernel, the replica that it moves, and what it observes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import draw_normal
from replicax.errors import check_function, explained

PyTree = Any  # a tree of arrays, such as parameters or rows: JAX has no type for it


class Replica(NamedTuple):
    """A particle; all of it travels together when the replica swaps rungs."""

    params: PyTree
    memory: Any  # momentum, preconditioner, counters: the state of its kernel


class TimedMemory(NamedTuple):
    """The memory of a kernel that counts its steps, around another memory."""

    count: Array  # steps taken
    inner: Any


class Evaluated(NamedTuple):
    """The energy U and V, minus the log prior, at one point, with their gradients."""

    energy: Array
    gradient: PyTree
    prior: Array
    prior_gradient: PyTree


class Observed(NamedTuple):
    """Observations of one move, from which step sizes are tuned and problems are found."""

    step_error: Array  # 0 where the learning rate is right, negative where it is too large
    steepness: PyTree  # an estimate of the curvature of U / tau + V by parameter, from gradients
    acceptance: Array  # probability that the proposal was accepted; 1 without a proposal


class Traits(NamedTuple):
    """What a run has to know of a kernel besides how it moves; a plain kernel leaves it all out.

    Swap rules that use temperatures assume that a replica has the law of its rung. A kernel whose
    memory has another law on another rung therefore has a function `change_rung(replica, old, new)`
    that returns the replica with its memory in the law of the new rung; `old` and `new` are
    Ladders of two scalars. It must change nothing where `old` equals `new`.

    An `adjusted` kernel accepts or rejects, and the energy of its step is that after the move. If
    it remembers the energy of its point, `prepare(replica, evaluate)` puts the first one there.
    """

    spec: dict | None = None  # name and options, to make the kernel again when a run resumes
    caveat: str | None = None  # why it does not preserve exp(-U / tau), a sentence; None: it does
    exploits: Callable[[Any], Any] | None = None  # step -> may a draw be taken? None: always
    has_own_prior: bool = False  # weight decay or prior: moves feel it, energies do not
    keeps_time: bool = False  # whether its memory counts steps
    adjusted: bool = False
    gradients: int = 1  # that a move evaluates
    first_rate: float | None = None  # where "auto" rates begin; None: it observes no step error
    change_rung: Callable[[Replica, Ladder, Ladder], Replica] | None = None
    prepare: Callable[[Replica, Any], Replica] | None = None

    @property
    def observes(self) -> bool:
        """Whether `step` returns an `Observed`, from which step sizes can be tuned."""
        return self.first_rate is not None


class Kernel(NamedTuple):
    """A transition kernel of one replica: `init(params)` makes the replica, `step` moves it.

    `step(noise, replica, evaluate, rung)` returns the moved replica, the energy before the move and
    an `Observed`, or None. `evaluate` is the `StepEnergy` of this step's mini-batch:
    `evaluate(params)` returns (energy, gradient). `rung` is a `Ladder` of two scalars, and `noise`
    what `draw(key, replica)` made, by default a standard normal for every parameter; None where no
    rung has a temperature. Any replica type with `.params` will do.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Ladder], tuple[Any, Array, Observed | None]]
    # Apart from `step`, and from shapes alone: so the draws of a thousand steps are made at once,
    # in long vector loops, before the loop that moves (`run/chunk.py`).
    draw: Callable[[Array, Any], Any] = draw_normal
    traits: Traits = Traits()

    def having(self, **traits: Any) -> "Kernel":
        """Return the kernel with other traits, as in `kernel.having(caveat="It is biased.")`."""
        return self._replace(traits=self.traits._replace(**traits))


def select(condition: Array | bool, new: Any, old: Any) -> Any:
    """Return one of two trees of arrays, in the types of the old one."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b).astype(b.dtype), new, old)


def check_of_step(name: str, function: Any) -> None:
    """Raise unless a function of the step, such as a schedule or a gain, returns one number."""
    check_function(name, function, "step")
    with explained(name, "It must return one number."):
        value = jax.eval_shape(function, jax.ShapeDtypeStruct((), jnp.int32))
    if getattr(value, "shape", None) != ():
        raise ValueError(f"{name} must return one number for a step.")


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
