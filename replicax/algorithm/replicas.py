"""All replicas of one chain: move them, contain broken ones, change their memory after swaps."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.langevin import HalvesOfBatch
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.spread import WHOLE, Spread
from replicax.algorithm.target import Target

_SMALL = 4096  # arrays up to this size are checked together


def build_move(
    target: Target, kernel: Kernel, *, moved: bool, map_replicas: Callable = jax.vmap
) -> Callable[..., tuple[Any, Any, Array, Any]]:
    """Build `move(random, replicas, model_state, rung, batch, judging_batch, tunes) -> replicas,
    model_state, energy_of, observed`.

    Each replica moves with the hyper-parameters of its rung. With `moved` the energy is that of the
    state after the move, on the judging batch; otherwise the one that the gradient's pass computed
    anyway. `observed` is None for kernels that observe nothing; `tunes` tells whether step sizes
    still adapt to it.
    """

    def move_one(random, replica, model_state, rung, batch, judging_batch, tunes):
        move_noise, gradient_noise, energy_noise = random
        if target.has_state:
            energy, gradient, model_state = target.evaluate_state(
                replica.params, model_state, batch, gradient_noise, rung.temperature
            )
            evaluate = _evaluated(replica.params, energy, gradient)
        else:
            evaluate = build_evaluate(
                target, kernel, batch, gradient_noise, rung.temperature, tunes
            )
        replica, energy, *observed = kernel.step(move_noise, replica, evaluate, rung)
        if moved and not kernel.adjusted:
            energy = target.energy_at(point(replica, model_state), judging_batch, energy_noise)
        return replica, model_state, energy, observed[0] if observed else None

    mapped = map_replicas(move_one, in_axes=(0, 0, 0, 0, None, None, None))

    def move(
        random: Randomness,
        replicas: Any,
        model_state: Any,
        rung: Ladder,
        batch: Any,
        judging_batch: Any,
        tunes: Array | bool = False,
    ):
        drawn = random.move, random.gradient, random.energy
        return mapped(drawn, replicas, model_state, rung, batch, judging_batch, tunes)

    return move


def build_evaluate(
    target: Target,
    kernel: Kernel,
    batch: Any,
    noise: Any,
    temperature: Any,
    tunes: Array | bool = False,
) -> Callable[[Any], Any]:
    """Build the `evaluate(params)` that the kernel needs."""
    if kernel.needs == "split":
        return lambda params: target.evaluate_split(params, batch, noise)
    if kernel.needs == "halves":
        return HalvesOfBatch(target, batch, noise, tunes)
    return lambda params: target.evaluate(params, batch, noise, temperature)


def point(replica: Any, model_state: Any) -> Any:
    """Return the argument of the energy: params, or (params, model_state) where there is one."""
    return replica.params if model_state is None else (replica.params, model_state)


def _evaluated(params: Any, energy: Array, gradient: Any) -> Callable[[Any], tuple[Array, Any]]:
    """Return an `evaluate` that was computed before: a model state is renewed once a step."""

    def evaluate(asked: Any) -> tuple[Array, Any]:
        same = zip(jax.tree.leaves(asked), jax.tree.leaves(params), strict=True)
        if not all(one is other for one, other in same):
            raise ValueError(
                "A kernel for targets with a model state may evaluate at replica.params only: "
                "the model state is renewed there, once a step."
            )
        return energy, gradient

    return evaluate


def find_broken(replicas: Any, energy_of: Array, model_state: Any = None) -> Array:
    """Return which replicas have a non-finite energy, parameter or statistic  -> (replica,)."""
    leaves = jax.tree.leaves((replicas.params, model_state))
    rows = [leaf.reshape(len(leaf), -1) for leaf in leaves if _is_floating(leaf)]
    large = [row for row in rows if row.shape[1] > _SMALL]
    small = [row for row in rows if row.shape[1] <= _SMALL]
    if small:  # together: a hundred little sums would cost a GPU a hundred launches
        large.append(jnp.concatenate(small, axis=1))
    total = sum(jnp.sum(row.astype(jnp.float32), axis=1) for row in large)
    return ~(jnp.isfinite(energy_of) & jnp.isfinite(total))


def _is_floating(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def restart(
    tree: Any,
    broken: Array,
    replica_at: Array,
    spread: Spread = WHOLE,
    settle: Callable[[Any, Array, Array], Any] = lambda tree, old_rung_of, new_rung_of: tree,
) -> Any:
    """Overwrite every broken replica with a copy of its nearest sound neighbour on a colder rung.

    `settle(tree, old_rung_of, new_rung_of)` fits copies to the rungs that they come to. Where no
    colder rung is sound, nothing is copied: the run must stop.
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
    kernel: Kernel, replicas: Any, ladder: Ladder, old_rung_of: Array, new_rung_of: Array
) -> Any:
    """Give the memory of replicas that came to another rung its law (`Kernel.change_rung`)."""
    change_rung = kernel.change_rung
    assert change_rung is not None

    def changed() -> Any:
        old, new = (
            jax.tree.map(lambda by_rung, at=at: by_rung[at], ladder)
            for at in (old_rung_of, new_rung_of)
        )
        return jax.vmap(change_rung)(replicas, old, new)

    return jax.lax.cond(jnp.any(old_rung_of != new_rung_of), changed, lambda: replicas)


def reset_memory(kernel: Kernel, replicas: Any, swapped: Array) -> Any:
    """Reset the kernel's memory of replicas that swapped; their parameters stay."""

    def reset() -> Any:
        def one(replica: Any, swaps: Array) -> Any:
            fresh = kernel.init(replica.params)
            return jax.tree.map(lambda new, old: jnp.where(swaps, new, old), fresh, replica)

        return jax.vmap(one)(replicas, swapped)

    return jax.lax.cond(jnp.any(swapped), reset, lambda: replicas)
