"""Algorithm 1, one step: move (here), exchange and adapt (`exchange.py`).

A *replica* is a particle, a *rung* a place on the ladder (0 is the coldest, the target), pair i
joins rungs i and i+1. A swap exchanges the rungs of two replicas; parameters never move.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import energy_noise, replicas, restarts, step_sizes
from replicax.algorithm.energy_noise import EnergySource
from replicax.algorithm.exchange import decide
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import Randomness, build_draw
from replicax.algorithm.spread import on_all
from replicax.algorithm.state import Info, Settings, State
from replicax.algorithm.target import Target, as_target


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
    target: Target, kernel: Kernel, settings: Settings, draw_batch: Callable | None = None
) -> tuple[Callable, Callable]:
    """Build the two halves of a step, `draw(key, step, replicas) -> Randomness` and
    `advance(random, state, batch, fresh_batch=None) -> state, info`.

    `fresh_batch(key)` returns further mini-batches; `draw_batch(key)` draws what `batch` needs.
    """
    target = as_target(target)
    moved = settings.energy_at != "before"
    draw = build_draw(
        target,
        kernel,
        settings.schedule,
        settings.rule,
        moved=moved,
        langevin=settings.langevin,
        draw_batch=draw_batch,
        spread=settings.spread,
    )
    spread = settings.spread
    always = settings.swap_every == 1  # else energies are evaluated where swaps are attempted
    on_batch = moved and always and settings.energy_at != "whole"
    move_all = replicas.build_move(
        target, kernel, moved=on_batch, map_replicas=settings.map_replicas
    )

    def change_rungs(particles: Any, ladder: Ladder, old_rung_of: Array, new_rung_of: Array) -> Any:
        """Give what replicas remember the law of the rungs that they come to, where it has one."""
        if not settings.rule.uses_temperature or kernel.change_rung is None:
            return particles
        return restarts.change_rungs(kernel, particles, ladder, old_rung_of, new_rung_of)

    def advance(random: Randomness, state: State, batch: Any = None, fresh_batch=None):
        def judging_batch() -> Any:
            if settings.rule.judges_afresh and fresh_batch is not None:
                return fresh_batch(energy_noise.batch_key(random.judge))
            return batch

        judged_on = judging_batch() if always else batch
        state, energy_of, broken, observed = move(
            settings, move_all, random, state, (batch, judged_on), change_rungs
        )

        def judge() -> tuple[Array, EnergySource]:
            batch = judged_on if always else judging_batch()
            source = EnergySource(target, state.points, batch, fresh_batch, spread)
            energies = energy_of
            if settings.energy_at == "whole":
                energies = source.whole_energies().astype(energy_of.dtype)
            elif moved and not always and not kernel.adjusted:
                energies = source.batch_energies(random.energy).astype(energy_of.dtype)
            return energies, source

        def settle(after: State) -> State:
            """Fit the memory of replicas that swapped to their new rungs."""
            if settings.on_swap == "reset":
                has_swapped = after.rung_of != state.rung_of
                particles = restarts.reset_memory(kernel, after.replicas, spread.here(has_swapped))
            else:
                rungs = spread.here(state.rung_of), spread.here(after.rung_of)
                particles = change_rungs(after.replicas, state.ladder, *rungs)
            return after._replace(replicas=particles)

        if not spread.is_whole:
            observed = step_sizes.gather(settings.tuning.step_sizes, spread, state.step, observed)
        return decide(
            settings,
            random,
            state,
            energy_of,
            judge=judge,
            settle=settle,
            broken=broken,
            observed=observed,
        )

    return draw, advance


def move(
    settings: Settings,
    move_all: Callable,
    random: Randomness,
    state: State,
    batches: tuple,
    change_rungs: Callable,
) -> tuple[State, Array, Array, Any]:
    """Sampling phase: each replica moves with the hyper-parameters of the rung it is on.

    `batches` are the mini-batch of the gradients and that of the energies; `change_rungs` fits the
    memory of replicas to other rungs. Returns the state and, for each replica, its energy, whether
    it broke and was restarted, and what its kernel observed.
    """
    spread = settings.spread
    rung_of = spread.here(state.rung_of)
    rung = jax.tree.map(lambda by_rung: by_rung[rung_of], state.ladder)
    sizes = settings.tuning.step_sizes
    tunes = False if sizes is None else state.step < sizes.until
    particles, model_state, energy_of, observed = move_all(
        random, state.replicas, state.model_state, rung, *batches, tunes
    )
    particles, model_state, energy_of, observed = on_all(
        (particles, model_state, energy_of, observed)
    )
    energy_of = energy_of.astype(state.buffer.dtype)
    if settings.restarts:
        broken = restarts.find_broken(particles, energy_of, model_state)
        energy_of = spread.whole(jnp.where(broken, jnp.nan, energy_of))
        broken = broken if spread.is_whole else jnp.isnan(energy_of)

        def settle(copies: tuple, *rungs: Array) -> tuple:
            return change_rungs(copies[0], state.ladder, *rungs), copies[1]

        particles, model_state = restarts.restart(
            (particles, model_state), broken, state.replica_at, spread, settle
        )
    else:
        energy_of = spread.whole(energy_of)
        broken = jnp.zeros(energy_of.shape, bool)
    moved = state._replace(replicas=particles, model_state=model_state)
    return moved, energy_of, broken, observed
