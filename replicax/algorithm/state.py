"""`State`, `Info` and `Settings` of the algorithm, and the state before step 0."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.jumps import Jumping, start_jumps
from replicax.algorithm.kernel import Kernel, PyTree
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Schedule, windowed_deo
from replicax.algorithm.spread import IN_ONE_PLACE, Spread
from replicax.algorithm.swap import Rule, deterministic
from replicax.algorithm.target import StepEnergy, as_target
from replicax.algorithm.tuning import EnergyUnit, Tuning, start_step_sizes, start_verdicts


class State(NamedTuple):
    """Everything that step k+1 needs from step k."""

    step: Array  # k                                       shape ()
    replicas: PyTree  # parameters, momentum, ...             leading axis: replica
    model_state: PyTree  # batch statistics, ... or None      leading axis: replica
    rung_of: Array  # the index process                    shape (replica,), a permutation
    replica_at: Array  # its inverse                       shape (rung,)
    gate: Array  # G^(p), True while the pair may swap     shape (pair,)
    ladder: Ladder
    buffer: Array  # C_k, the swap correction              shape ()
    energy_unit: EnergyUnit
    energy_noise_var: Array  # sigma^2 where estimated     shape (rung, rung), else (0, 0)
    verdicts: Any = ()  # of this round of tuning, where temperatures adapt
    step_sizes: Any = ()  # of this round of tuning, where step sizes adapt
    mixture: Any = ()  # that proposes jumps, the same for all chains; empty while there is none
    order: Any = ()  # direction by which exchangeable labels are sorted, the same for all chains
    jumps: Any = ()  # what they were like, and points of this round of tuning: a JumpState

    @property
    def points(self) -> Any:
        """The arguments of the energy, leading axis: replica."""
        params = self.replicas.params
        return params if self.model_state is None else (params, self.model_state)


class Info(NamedTuple):
    """Observations of one step: recorded, never fed back."""

    energy: Array  # U~ of each rung before the swap       shape (rung,)
    wanted: Array  # A^(p), the swap rule's verdict        shape (pair,)
    swapped: Array  #                                      shape (pair,)
    active: Array  # the schedule let the pair swap        shape (pair,)
    restarted: Array  # copied from a colder neighbour     shape (rung,)
    attempted: Any = True  # whether swaps were attempted  shape ()
    observed: Any = None  # by kernels that do so          leading axis: rung
    path: Any = None  # of jumps: points, energies, log weights   leading axis: position
    redrawn: Any = None  # accepted draws from the prior   shape (rung,)


@dataclass(frozen=True)
class Settings:
    """The parts that make up the algorithm; static, and the same for every chain."""

    schedule: Schedule = windowed_deo(1)
    rule: Rule = deterministic()
    tuning: Tuning = Tuning()
    energy_at: str = "moved"  # or "before", or "all_rows": over all rows, where swaps are attempted
    on_swap: str = "keep"  # or "reset": a swap resets the kernel's memory
    restarts: bool = False  # broken replicas restart from a colder neighbour
    langevin: bool = True  # False: no rung has a temperature, draw no noise
    swap_every: int = 1  # steps from one attempt to swap to the next
    jumps: Jumping | None = None  # of the coldest rung, after every step
    redraws: int = 0  # draws from the prior that every replica is offered after its move
    map_replicas: Callable = jax.vmap
    spread: Spread = IN_ONE_PLACE  # where the replicas are

    def attempts_swap(self, step: Array) -> Array | bool:
        """Return whether swaps are attempted at this step."""
        return True if self.swap_every == 1 else step % self.swap_every == 0

    def attempt(self, step: Array) -> Array:
        """Return the number of the latest attempt, which is the clock of the schedule."""
        return step if self.swap_every == 1 else step // self.swap_every


_DATA = ["schedule", "rule", "tuning"]
_STATIC = [field.name for field in fields(Settings) if field.name not in _DATA]
jax.tree_util.register_dataclass(Settings, _DATA, _STATIC)


def init(
    kernel: Kernel,
    params: PyTree,
    ladder: Ladder,
    settings: Settings,
    buffer: float = 0.0,
    model_state: PyTree = None,
    target: Any = None,
    batch: PyTree = None,
) -> State:
    """Return the state before step 0: replica i is on rung i.

    `params` (and `model_state`) has one copy per replica on its leading axis. Adjusted kernels
    evaluate the `target` there, on `batch`.
    """
    num_replicas = ladder.learning_rate.shape[0]
    dtype = ladder.learning_rate.dtype
    particles = jax.vmap(kernel.init)(params)
    prepare = kernel.traits.prepare
    if prepare is not None:
        if target is None:
            raise ValueError("An adjusted kernel evaluates its start: give init(..., target=...).")
        target = as_target(target)
        noise = target.draw(randomness.make_key(0))  # an exact energy ignores it
        evaluate = StepEnergy(target, batch, noise)
        particles = jax.vmap(lambda replica: prepare(replica, evaluate))(particles)
    tuning, sizes = settings.tuning, ()
    if tuning.step_sizes is not None:
        ladder, sizes = start_step_sizes(ladder, params, tuning.step_sizes.dense)
    exchangeable = getattr(target, "exchangeable", None)
    mixture, order, jumps = start_jumps(settings.jumps, params, dtype, exchangeable)
    estimated = num_replicas if settings.rule.estimates_noise else 0
    return State(
        step=jnp.array(0, jnp.int32),
        replicas=particles,
        model_state=model_state,
        rung_of=jnp.arange(num_replicas, dtype=jnp.int32),
        replica_at=jnp.arange(num_replicas, dtype=jnp.int32),
        gate=jnp.ones(num_replicas - 1, bool),
        ladder=ladder,
        buffer=jnp.array(buffer, dtype),
        energy_unit=EnergyUnit(jnp.array(0.0, dtype), jnp.array(0, jnp.int32)),
        energy_noise_var=jnp.zeros((estimated, estimated), dtype),
        verdicts=start_verdicts(num_replicas - 1, dtype) if tuning.adapts == "temperature" else (),
        step_sizes=sizes,
        mixture=mixture,
        order=order,
        jumps=jumps,
    )
