"""All replicas of one chain: each moves with the hyper-parameters of its rung."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.langevin import HalvesOfBatch
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.target import Target


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
