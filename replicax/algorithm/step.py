"""Algorithm 1, one step: draw, move (`move.py`), exchange and adapt (`exchange.py`); where the
prior can be drawn from also redraws after the move (`redraws.py`), and with a learned mixture jumps
of the coldest replica (`jumps.py`).

A *replica* is a particle, a *rung* a place on the ladder (0 is the coldest, the target), pair i
joins rungs i and i+1. A swap exchanges the rungs of two replicas; parameters never move.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
from jax import Array

from replicax.algorithm import energy_noise
from replicax.algorithm.energy_noise import EnergySource, FreshBatches
from replicax.algorithm.exchange import decide
from replicax.algorithm.jumps import build_jumps, relabelled_draws
from replicax.algorithm.kernel import Kernel, PyTree
from replicax.algorithm.move import build_move, change_rungs, reset_memory
from replicax.algorithm.randomness import Attempts, Randomness, log_uniform
from replicax.algorithm.redraws import build_redraws
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.spread import gather_observed
from replicax.algorithm.state import Info, Settings, State
from replicax.algorithm.target import Target, as_target


def build_step(target: Target, kernel: Kernel, settings: Settings) -> Callable:
    """Build `step(key, state, batch=None) -> state, info`: one iteration of Algorithm 1.

    >>> import jax.numpy as jnp
    >>> import replicax as rx
    >>> kernel, settings = (
    ...     rx.kernels.sgld(),
    ...     rx.algorithm.Settings(rx.schedule.windowed_deo(window=4)),
    ... )
    >>> ladder = rx.algorithm.Ladder(
    ...     jnp.array([0.003, 0.02, 0.1, 0.6]), jnp.array([1.0, 0.0, 0.0, 0.0])
    ... )
    >>> state = rx.algorithm.init(kernel, jnp.zeros((4, 2)), ladder, settings, buffer=1.0)
    >>> step = jax.jit(rx.algorithm.build_step(rx.targets.modes25(), kernel, settings))
    >>> for _ in range(100):
    ...     state, info = step(jax.random.key(0), state)
    >>> int(state.step), sorted(state.rung_of.tolist())
    (100, [0, 1, 2, 3])
    """
    draw, advance = build_parts(target, kernel, settings)

    def step(key: Array, state: State, batch: PyTree = None) -> tuple[State, Info]:
        return advance(draw(key, state.step, state.replicas), state, batch)

    return step


def build_parts(
    target: Target, kernel: Kernel, settings: Settings, draw_batch: Callable | None = None
) -> tuple[Callable, Callable]:
    """Build the two halves of a step, `draw(key, step, replicas) -> Randomness` and
    `advance(random, state, batch, fresh_batch=None) -> state, info`.

    `fresh_batch(key)` returns further mini-batches; `draw_batch(key)` draws what `batch` needs.
    """
    target = as_target(target)
    if not settings.rule.uses_temperature:  # other rules assume no law of the memory
        kernel = kernel.having(change_rung=None)
    move = build_move(target, kernel, settings)
    jump = None if settings.jumps is None else build_jumps(target, kernel, settings)
    redraw = build_redraws(target, kernel, settings) if settings.redraws else None
    always = settings.swap_every == 1  # else energies are evaluated where swaps are attempted
    evaluates = settings.energy_at == "moved" and not always and not kernel.traits.adjusted
    spread = settings.spread

    def advance(random: Randomness, state: State, batch: PyTree = None, fresh_batch=None):
        judging = partial(_judging_batch, settings, random, batch, fresh_batch)
        judged_on = judging() if always else batch
        state, energy_of, broken, observed = move(random, state, batch, judged_on)
        redrawn = None
        if redraw is not None:
            state, energy_of, redrawn = redraw(random.redraw, state, energy_of, batch)
            redrawn = redrawn[state.replica_at]

        def deciding_energies() -> tuple[Array, EnergySource]:
            judged = judged_on if always else judging()
            source = EnergySource(target, state.points, judged, fresh_batch, spread)
            energies = energy_of
            if settings.energy_at == "all_rows":
                energies = source.whole_energies().astype(energy_of.dtype)
            elif evaluates:
                energies = source.batch_energies(random.energy).astype(energy_of.dtype)
            return energies, source

        if not spread.in_one_place:
            observed = gather_observed(settings.tuning.step_sizes, spread, state.step, observed)
        state, info = decide(
            settings,
            random,
            state,
            energy_of,
            deciding_energies=deciding_energies,
            settle=lambda after: _settled(kernel, settings, state, after),
            broken=broken,
            observed=observed,
        )
        path = None
        if jump is not None and jax.tree.leaves(state.mixture):
            state, path = jump(random.jump, state, batch)
        elif target.exchangeable is not None:
            path = relabelled_draws(target, settings, random.jump, state)
        return state, info._replace(redrawn=redrawn, path=path)

    return build_draw(target, kernel, settings, draw_batch), advance


def _judging_batch(
    settings: Settings, random: Randomness, batch: PyTree, fresh_batch: FreshBatches | None
) -> Any:
    """Return the mini-batch that judges swaps: another one, where the rule asks for that."""
    if settings.rule.judges_afresh and fresh_batch is not None:
        return fresh_batch(energy_noise.batch_key(random.fresh))
    return batch


def _settled(kernel: Kernel, settings: Settings, before: State, after: State) -> State:
    """Adjust the memory of replicas that swapped to their new rungs."""
    here = settings.spread.here
    if settings.on_swap == "reset":
        has_swapped = here(after.rung_of != before.rung_of)
        return after._replace(replicas=reset_memory(kernel, after.replicas, has_swapped))
    if kernel.traits.change_rung is None:
        return after
    rungs = here(before.rung_of), here(after.rung_of)
    particles = change_rungs(kernel, after.replicas, before.ladder, *rungs)
    return after._replace(replicas=particles)


def build_draw(
    target: Target, kernel: Kernel, settings: Settings, draw_batch: Callable | None = None
) -> Callable[[Array, Array, Any], Randomness]:
    """Build `draw(key, step, replicas) -> Randomness`; of `replicas` only the shapes matter.

    What it draws is a function of (key, step, replica) alone: drawn for many steps at once or
    inside the loop, it is the same.
    """
    schedule, rule = settings.schedule, settings.rule
    jumps, relabels = settings.jumps is not None, target.exchangeable is not None

    def draw(key: Array, step: Array, replicas: PyTree) -> Randomness:
        num_replicas = settings.spread.count(replicas)
        replica_key, exchange_key = jax.random.split(jax.random.fold_in(key, step))
        keys = settings.spread.here(jax.random.split(replica_key, (num_replicas, 3)))
        pair_key, schedule_key, attempt_key, fresh_key, batch_key = jax.random.split(
            exchange_key, 5
        )
        moved = settings.energy_at != "before"
        return Randomness(
            move=jax.vmap(kernel.draw)(keys[:, 0], replicas) if settings.langevin else None,
            gradient=jax.vmap(target.draw)(keys[:, 1]),
            energy=jax.vmap(target.draw)(keys[:, 2]) if moved else None,
            log_uniform=log_uniform(pair_key, num_replicas - 1) if rule.uses_temperature else None,
            schedule=schedule.draw(schedule_key, num_replicas),
            attempts=draw_attempts(schedule, attempt_key, num_replicas)
            if isinstance(schedule, Sequential)
            else None,
            fresh=fresh_key if rule.judges_afresh else None,
            batch=draw_batch(batch_key) if draw_batch else None,
            jump=jax.random.fold_in(exchange_key, 5) if jumps or relabels else None,
            redraw=jax.random.fold_in(exchange_key, 6) if settings.redraws else None,
        )

    def draw_attempts(schedule: Sequential, key: Array, num_replicas: int) -> Attempts:
        count = schedule.num_attempts(num_replicas)
        order_key, uniform_key, energy_key, batch_key = jax.random.split(key, 4)
        return Attempts(
            order=schedule.attempt_order(order_key, num_replicas),
            log_uniform=log_uniform(uniform_key, count),
            energy=jax.vmap(jax.vmap(target.draw))(jax.random.split(energy_key, (count, 2))),
            batch=jax.random.split(batch_key, count),
        )

    return draw
