"""The sampling phase of a step: every replica moves with the hyper-parameters of its rung; broken
replicas restart, and those that changed their rung have their memory changed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernel import Kernel, PyTree, Replica
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.spread import IN_ONE_PLACE, Spread, on_all
from replicax.algorithm.state import Settings, State
from replicax.algorithm.target import StepEnergy, Target

_SMALL = 4096  # arrays up to this size are checked together


def find_broken(replicas: Replica, energy_of: Array, model_state: PyTree = None) -> Array:
    """Return which replicas have a non-finite energy, parameter or statistic  -> (replica,)."""
    leaves = jax.tree.leaves((replicas.params, model_state))
    floating = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
    rows = [leaf.reshape(len(leaf), -1) for leaf in floating]
    large = [row for row in rows if row.shape[1] > _SMALL]
    small = [row for row in rows if row.shape[1] <= _SMALL]
    if small:  # together: a hundred little sums would cost a GPU a hundred launches
        large.append(jnp.concatenate(small, axis=1))
    total = sum(jnp.sum(row.astype(jnp.float32), axis=1) for row in large)
    return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))


def restart_broken(
    tree: PyTree,
    broken: Array,
    replica_at: Array,
    spread: Spread = IN_ONE_PLACE,
    settle: Callable[[Any, Array, Array], Any] = lambda tree, old_rung_of, new_rung_of: tree,
) -> Any:
    """Overwrite every broken replica with a copy of its nearest sound neighbour on a colder rung.

    `settle(tree, old_rung_of, new_rung_of)` adjusts copies to their new rungs. If no colder rung is
    sound, nothing is copied: the run must stop.
    """

    def copied() -> Any:
        rungs = jnp.arange(replica_at.shape[0], dtype=replica_at.dtype)
        sound_below = jax.lax.cummax(jnp.where(broken[replica_at], -1, rungs))
        source = jnp.where(sound_below >= 0, sound_below, rungs)
        source_of, old_rung_of, new_rung_of = (
            jnp.zeros_like(replica_at).at[replica_at].set(by_rung)
            for by_rung in (replica_at[source], source, rungs)
        )
        copies = spread.take(tree, source_of)
        return settle(copies, spread.here(old_rung_of), spread.here(new_rung_of))

    return jax.lax.cond(spread.of_any_chain(jnp.any(broken)), copied, lambda: tree)


def change_rungs(
    kernel: Kernel, replicas: Replica, ladder: Ladder, old_rung_of: Array, new_rung_of: Array
) -> Any:
    """Convert the memory of replicas to the law of their new rungs (`Traits.change_rung`)."""
    change_rung = kernel.traits.change_rung
    if change_rung is None:
        return replicas

    def changed() -> Any:
        old, new = (
            jax.tree.map(lambda by_rung, at=at: by_rung[at], ladder)
            for at in (old_rung_of, new_rung_of)
        )
        return jax.vmap(change_rung)(replicas, old, new)

    return jax.lax.cond(jnp.any(old_rung_of != new_rung_of), changed, lambda: replicas)


def reset_memory(kernel: Kernel, replicas: Replica, swapped: Array) -> Any:
    """Reset the kernel's memory of replicas that swapped; their parameters stay."""

    def reset() -> Any:
        def one(replica: Replica, swaps: Array) -> Any:
            fresh = kernel.init(replica.params)
            return jax.tree.map(lambda new, old: jnp.where(swaps, new, old), fresh, replica)

        return jax.vmap(one)(replicas, swapped)

    return jax.lax.cond(jnp.any(swapped), reset, lambda: replicas)


def build_move(target: Target, kernel: Kernel, settings: Settings) -> Callable:
    """Build `move(random, state, batch, judging_batch) -> state, energy_of, broken, observed`, the
    sampling phase: each replica moves with the hyper-parameters of the rung it is on.

    The last three are by replica: its energy, whether it broke and was restarted, and what its
    kernel observed, None for kernels that observe nothing. Where every step judges the states that
    it moved, energies are theirs, on `judging_batch`; else those that the gradients' pass computed
    anyway, on `batch`.
    """
    spread, sizes = settings.spread, settings.tuning.step_sizes
    move_all = settings.map_replicas(
        _build_move_one(target, kernel, settings), in_axes=(0, 0, 0, 0, None, None, None)
    )

    def move(random: Randomness, state: State, batch: PyTree, judging_batch: Any):
        rung_of = spread.here(state.rung_of)
        rung = jax.tree.map(lambda by_rung: by_rung[rung_of], state.ladder)
        drawn = random.move, random.gradient, random.energy
        tunes = False if sizes is None else state.step < sizes.until
        moved = move_all(
            drawn, state.replicas, state.model_state, rung, batch, judging_batch, tunes
        )
        particles, model_state, energy_of, observed = on_all(moved)
        state = state._replace(replicas=particles, model_state=model_state)
        energy_of = energy_of.astype(state.buffer.dtype)
        if settings.restarts:
            return *_restarted(kernel, spread, state, energy_of), observed
        energy_of = spread.gathered(energy_of)
        return state, energy_of, jnp.zeros(energy_of.shape, bool), observed

    return move


def _build_move_one(target: Target, kernel: Kernel, settings: Settings) -> Callable:
    """Build the move of one replica."""
    always = settings.swap_every == 1
    judges = settings.energy_at == "moved" and always and not kernel.traits.adjusted

    def move_one(random, replica, model_state, rung, batch, judging_batch, tunes):
        move_noise, gradient_noise, energy_noise = random
        if target.has_state:
            energy, gradient, model_state = target.evaluate_state(
                replica.params, model_state, batch, gradient_noise, rung.temperature
            )
            evaluate = _evaluated(replica.params, energy, gradient)
        else:
            evaluate = StepEnergy(target, batch, gradient_noise, rung.temperature, tunes)
        moved = kernel.step(move_noise, replica, evaluate, rung)
        if len(moved) != 3:
            raise ValueError(
                f"The step of the kernel returns {len(moved)} values; it must return (replica, "
                "energy, observed), where observed is None for most kernels."
            )
        replica, energy, observed = moved
        if judges:
            point = replica.params if model_state is None else (replica.params, model_state)
            energy = target.energy_at(point, judging_batch, energy_noise)
        return replica, model_state, energy, observed

    return move_one


def _restarted(kernel: Kernel, spread: Spread, state: State, energy_of: Array) -> tuple:
    """Return the state with restarted replicas, the energies, NaN where they broke, and which."""
    broken = find_broken(state.replicas, energy_of, state.model_state)
    energy_of = spread.gathered(jnp.where(broken, jnp.nan, energy_of))
    broken = broken if spread.in_one_place else jnp.isnan(energy_of)

    def settle(copies: tuple, *rungs: Array) -> tuple:
        return change_rungs(kernel, copies[0], state.ladder, *rungs), copies[1]

    moved = state.replicas, state.model_state
    replicas, model_state = restart_broken(moved, broken, state.replica_at, spread, settle)
    return state._replace(replicas=replicas, model_state=model_state), energy_of, broken


def _evaluated(
    params: PyTree, energy: Array, gradient: PyTree
) -> Callable[[Any], tuple[Array, Any]]:
    """Return an `evaluate` with a value computed before: a model state is updated once a step."""

    def evaluate(asked: Any) -> tuple[Array, Any]:
        same = zip(jax.tree.leaves(asked), jax.tree.leaves(params), strict=True)
        if not all(one is other for one, other in same):
            raise ValueError(
                "A kernel for targets with a model state may evaluate at replica.params only: "
                "the model state is renewed there, once a step."
            )
        return energy, gradient

    return evaluate
