"""The sampling phase of a step: every replica moves with the hyper-parameters of its rung."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import restarts
from replicax.algorithm.kernel import Kernel
from replicax.algorithm.langevin import HalvesOfBatch
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.spread import on_all
from replicax.algorithm.state import Settings, State
from replicax.algorithm.target import Target


def build_move(target: Target, kernel: Kernel, settings: Settings) -> Callable:
    """Build `move(random, state, batch, judging_batch) -> state, energy_of, broken, observed`, the
    sampling phase: each replica moves with the hyper-parameters of the rung it is on.

    The last three are by replica: its energy, whether it broke and was restarted, and what its
    kernel observed, None for kernels that observe nothing. Where every step judges the states that
    it moved, energies are theirs, on `judging_batch`; else those that the gradients' pass computed
    anyway, on `batch`.
    """
    spread, sizes = settings.spread, settings.tuning.step_sizes
    judges = settings.energy_at == "moved" and settings.swap_every == 1 and not kernel.adjusted

    def move_one(random, replica, model_state, rung, batch, judging_batch, tunes):
        move_noise, gradient_noise, energy_noise = random
        if target.has_state:
            energy, gradient, model_state = target.evaluate_state(
                replica.params, model_state, batch, gradient_noise, rung.temperature
            )
            evaluate = _evaluated(replica.params, energy, gradient)
        elif kernel.needs == "split":
            evaluate = lambda params: target.evaluate_split(params, batch, gradient_noise)  # noqa: E731
        elif kernel.needs == "halves":
            evaluate = HalvesOfBatch(target, batch, gradient_noise, tunes)
        else:
            evaluate = lambda params: target.evaluate(  # noqa: E731
                params, batch, gradient_noise, rung.temperature
            )
        replica, energy, *observed = kernel.step(move_noise, replica, evaluate, rung)
        if judges:
            point = replica.params if model_state is None else (replica.params, model_state)
            energy = target.energy_at(point, judging_batch, energy_noise)
        return replica, model_state, energy, observed[0] if observed else None

    move_all = settings.map_replicas(move_one, in_axes=(0, 0, 0, 0, None, None, None))

    def move(random: Randomness, state: State, batch: Any, judging_batch: Any):
        rung_of = spread.here(state.rung_of)
        rung = jax.tree.map(lambda by_rung: by_rung[rung_of], state.ladder)
        drawn = random.move, random.gradient, random.energy
        tunes = False if sizes is None else state.step < sizes.until
        moved = move_all(
            drawn, state.replicas, state.model_state, rung, batch, judging_batch, tunes
        )
        particles, model_state, energy_of, observed = on_all(moved)
        energy_of = energy_of.astype(state.buffer.dtype)
        if settings.restarts:
            particles, model_state, energy_of, broken = restart(
                state, particles, model_state, energy_of
            )
        else:
            energy_of = spread.whole(energy_of)
            broken = jnp.zeros(energy_of.shape, bool)
        state = state._replace(replicas=particles, model_state=model_state)
        return state, energy_of, broken, observed

    def restart(state: State, particles: Any, model_state: Any, energy_of: Array) -> tuple:
        """Restart the replicas that broke, and set their energies to NaN."""
        broken = restarts.find_broken(particles, energy_of, model_state)
        energy_of = spread.whole(jnp.where(broken, jnp.nan, energy_of))
        broken = broken if spread.is_whole else jnp.isnan(energy_of)

        def settle(copies: tuple, *rungs: Array) -> tuple:
            return restarts.change_rungs(kernel, copies[0], state.ladder, *rungs), copies[1]

        copies = restarts.restart(
            (particles, model_state), broken, state.replica_at, spread, settle
        )
        return *copies, energy_of, broken

    return move


def _evaluated(params: Any, energy: Array, gradient: Any) -> Callable[[Any], tuple[Array, Any]]:
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
