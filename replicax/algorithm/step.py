"""Non-reversible parallel tempering, Algorithm 1: one step, made of the rooms beside this one.

A *replica* is a particle, a *rung* a place on the ladder (0 is the coldest, the target), pair i
joins rungs i and i+1. A swap exchanges the rungs of two replicas; parameters never move.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import meet, swap
from replicax.algorithm import replicas as move
from replicax.algorithm import schedule as schedules
from replicax.algorithm import window_correction as corrections
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import Chance, build_draw
from replicax.algorithm.schedule import Schedule, windowed_deo
from replicax.algorithm.swap import Index, Rule, deterministic
from replicax.algorithm.target import Target, as_target
from replicax.algorithm.tuning import EnergyUnit, Tuning, tune


class State(NamedTuple):
    """All that step k+1 needs to know of step k."""

    step: Array  # k                                       shape ()
    replicas: Any  # parameters, momentum, ...             leading axis: replica
    model_state: Any  # batch statistics, ... or None      leading axis: replica
    rung_of: Array  # the index process                    shape (replica,), a permutation
    replica_at: Array  # its inverse                       shape (rung,)
    gate: Array  # G^(p), True while the pair may swap     shape (pair,)
    ladder: Ladder
    buffer: Array  # C_k, the swap correction              shape ()
    energy_unit: EnergyUnit
    energy_noise_var: Array  # sigma^2 where estimated     shape (rung, rung), else (0, 0)
    correction: Any  # lambda_W where tuned, else empty

    @property
    def points(self) -> Any:
        """What energies are a function of, leading axis: replica."""
        return move.point(self.replicas, self.model_state)


class Info(NamedTuple):
    """What a step saw: recorded, never fed back."""

    energy: Array  # U~ of each rung before the swap       shape (rung,)
    wanted: Array  # A^(p), the swap rule's verdict        shape (pair,)
    swapped: Array  #                                      shape (pair,)
    active: Array  # whose turn it was                     shape (pair,)
    restarted: Array  # began again beside a neighbour     shape (rung,)


@dataclass(frozen=True)
class Settings:
    """Which parts make up the algorithm; static, and the same for every chain."""

    schedule: Schedule = windowed_deo(1)
    rule: Rule = deterministic()
    tuning: Tuning = Tuning()
    energy_at: str = "moved"
    on_swap: str = "keep"  # or "reset": a swap costs a replica its kernel's memory
    restarts: bool = False  # broken replicas begin again beside a colder neighbour
    langevin: bool = True  # False: no rung has a temperature, draw no noise
    map_replicas: Callable = jax.vmap


def init(
    kernel: Kernel,
    params: Any,
    ladder: Ladder,
    settings: Settings,
    buffer: float = 0.0,
    model_state: Any = None,
) -> State:
    """`params` carries one copy per replica on its leading axis; replica i starts on rung i."""
    num_replicas = ladder.learning_rate.shape[0]
    dtype = ladder.learning_rate.dtype
    estimated = num_replicas if settings.rule.estimates_noise else 0
    return State(
        step=jnp.array(0, jnp.int32),
        replicas=jax.vmap(kernel.init)(params),
        model_state=model_state,
        rung_of=jnp.arange(num_replicas, dtype=jnp.int32),
        replica_at=jnp.arange(num_replicas, dtype=jnp.int32),
        gate=jnp.ones(num_replicas - 1, bool),
        ladder=ladder,
        buffer=jnp.array(buffer, dtype),
        energy_unit=EnergyUnit(jnp.array(0.0, dtype), jnp.array(0, jnp.int32)),
        energy_noise_var=jnp.zeros((estimated, estimated), dtype),
        correction=corrections.start(settings.rule, dtype),
    )


def build_step(target: Target, kernel: Kernel, settings: Settings) -> Callable:
    """Build `step(key, state, batch=None) -> state, info`: one iteration of Algorithm 1.

    >>> import replicax as rx
    >>> kernel, settings = rx.kernels.sgld(), rx.Settings(rx.schedule.windowed_deo(window=4))
    >>> ladder = rx.Ladder(jnp.array([0.003, 0.02, 0.1, 0.6]), jnp.array([1.0, 0.0, 0.0, 0.0]))
    >>> state = rx.init(kernel, jnp.zeros((4, 2)), ladder, settings, buffer=1.0)
    >>> step = jax.jit(rx.build_step(rx.targets.modes25(), kernel, settings))
    >>> for _ in range(100):
    ...     state, info = step(jax.random.key(0), state)
    >>> int(state.step), sorted(state.rung_of.tolist())
    (100, [0, 1, 2, 3])
    """
    draw, advance = build_parts(target, kernel, settings)

    def step(key: Array, state: State, batch: Any = None) -> tuple[State, Info]:
        return advance(draw(key, state.step, state.replicas), state, batch)

    return step


def build_parts(
    target: Target, kernel: Kernel, settings: Settings, draw_rows: Callable | None = None
) -> tuple[Callable, Callable]:
    """The two halves of a step: `draw(key, step, replicas) -> Chance` and `advance(chance, state,
    batch, fresh_batch=None) -> state, info`; `fresh_batch(key)` gives further mini-batches."""
    target = as_target(target)
    moved = settings.energy_at == "moved"
    draw = build_draw(
        target,
        kernel,
        settings.schedule,
        settings.rule,
        moved=moved,
        langevin=settings.langevin,
        draw_rows=draw_rows,
    )

    move_all = move.build_move(target, kernel, moved=moved, map_replicas=settings.map_replicas)

    def advance(chance: Chance, state: State, batch: Any = None, fresh_batch=None):
        num_pairs = state.gate.shape[0]
        rule, schedule = corrections.in_force(
            settings.rule, settings.schedule, state.step, state.correction
        )

        # Sampling phase: each replica moves with the hyper-parameters of the rung it is on.
        rung = jax.tree.map(lambda by_rung: by_rung[state.rung_of], state.ladder)
        replicas, model_state, energy_of = move_all(
            chance, state.replicas, state.model_state, rung, batch
        )
        energy_of = energy_of.astype(state.buffer.dtype)
        broken = jnp.zeros(num_pairs + 1, bool)
        if settings.restarts:
            broken = move.find_broken(replicas, energy_of, model_state)
            energy_of = jnp.where(broken, jnp.nan, energy_of)
            replicas, model_state = move.restart((replicas, model_state), broken, state.replica_at)
        energy = energy_of[state.replica_at]

        # Communication phase: active pairs with an open gate swap when the rule says so.
        seen = meet.Seen(move.point(replicas, model_state), batch, fresh_batch)
        noise_var = meet.estimate_noise(
            target,
            rule,
            chance.estimate,
            state.step,
            state.energy_noise_var,
            state.replica_at,
            seen,
        )
        around = meet.Surroundings(state.ladder.temperature, noise_var, state.buffer)
        cold, may_meet = jnp.arange(num_pairs), ~settings.tuning.measuring(state.step)
        wanted = may_meet & meet.wanted(
            rule, around, cold, cold + 1, energy[:-1], energy[1:], chance.log_uniform
        )
        active = schedules.active_pairs(schedule, state.step, chance.odd, num_pairs)
        gate = state.gate | schedules.window_opens(schedule, state.step)
        index = Index(state.rung_of, state.replica_at)
        if schedule.sequential:
            verdict = meet.build_verdict(target, rule, around, seen, energy_of)
            attempt_all = swap.ascend if schedule.name == "adj" else swap.sweep
            index, swapped = attempt_all(index, chance.attempts, lambda *a: may_meet & verdict(*a))
        else:
            finite = may_meet & swap.both_finite(energy[:-1], energy[1:])
            swapped = schedules.swapping_pairs(schedule, state.step, active, gate, wanted, finite)
            index = swap.swap_adjacent(index, swapped)

        if settings.on_swap == "reset":
            replicas = move.forget(kernel, replicas, index.rung_of != state.rung_of)

        # Adaptation: equal swap rates along the ladder, and their mean equal to the target.
        ladder, buffer, unit = tune(
            settings.tuning,
            state.step,
            state.ladder,
            state.buffer,
            state.energy_unit,
            energy,
            wanted,
        )
        correction = corrections.renew(
            settings.rule,
            settings.schedule.window,
            state.step,
            state.correction,
            energy[0],
            state.ladder.temperature,
        )
        after = State(
            step=state.step + 1,
            replicas=replicas,
            model_state=model_state,
            rung_of=index.rung_of,
            replica_at=index.replica_at,
            gate=gate & ~swapped,
            ladder=ladder,
            buffer=buffer,
            energy_unit=unit,
            energy_noise_var=noise_var,
            correction=correction,
        )
        return after, Info(energy, wanted, swapped, active, broken[state.replica_at])

    return draw, advance
