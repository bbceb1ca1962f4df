"""SWAG: a Gaussian fitted to the path of SGD (Maddox et al., 2019).

The networks of a path are collected into moments; new networks are drawn from

    N(mean, scale / 2 (diag(variance) + D^T D / (K - 1))),

where the K rows of D are the latest deviations, each from the mean of the path up to its network.

>>> moments = start({"w": jnp.zeros(2)}, rank=5)
>>> for step in range(100):
...     moments = collect(moments, {"w": jnp.array([3.0, (-1.0) ** step])})
>>> moments.mean["w"], variance(moments)["w"]
(Array([3., 0.], dtype=float32), Array([0., 1.], dtype=float32))
>>> draw(moments, jax.random.key(0))["w"].shape
(2,)

All functions are for one path; use `jax.vmap` for several.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from replicax.algorithm.kernels import Kernel
from replicax.networks import evaluate
from replicax.networks.evaluate import Averages, Thinning
from replicax.networks.task import Supervised
from replicax.run.carry import Carry
from replicax.run.parts import Clock
from replicax.run.records import Evaluation

NUM_DRAWS = 10  # networks of a cycle, as the paper's authors have it
_REFRESH_BATCHES = 50  # batches for the batch statistics of a drawn network
_NO_MOMENTUM = 1e-6  # below it, a leaf of the state is constant and not an average


class Moments(NamedTuple):
    """Moments of the networks collected so far; trees like the parameters."""

    count: Array  # () networks collected
    mean: Any
    squares: Any  # sum of squared deviations from the mean
    deviations: Any  # leading axis: slot of a ring; that of network n is in slot n % rank


def start(params: Any, rank: int = 20) -> Moments:
    """Return empty moments, shaped like `params`, with room for `rank` deviations.

    Sums are float32 even if parameters have lower precision.
    """

    def zeros(*lead: int) -> Any:
        wide = lambda leaf: jnp.promote_types(jnp.result_type(leaf), jnp.float32)  # noqa: E731
        return jax.tree.map(lambda leaf: jnp.zeros((*lead, *jnp.shape(leaf)), wide(leaf)), params)

    return Moments(jnp.zeros((), jnp.int32), zeros(), zeros(), zeros(rank))


def collect(moments: Moments, params: Any) -> Moments:
    """Return the moments with one more network, the n-th (Welford, 1962).

        mean <- mean + (params - mean) / n,   squares <- squares + (params - mean)^2 (n - 1) / n,

    the latter with the old mean; `params - mean` with the new mean replaces the oldest deviation.
    """
    gain = 1 / (moments.count + 1)

    def move(old: Array, new: Array) -> Array:
        return old + gain.astype(old.dtype) * (new - old)

    def add_square(total: Array, new: Array, mean: Array) -> Array:
        return total + (1 - gain).astype(total.dtype) * jnp.square(new - mean)

    squares = jax.tree.map(add_square, moments.squares, params, moments.mean)
    mean = jax.tree.map(move, moments.mean, params)
    slot = moments.count % _rank(moments)
    deviations = jax.tree.map(
        lambda ring, new, middle: ring.at[slot].set(new - middle), moments.deviations, params, mean
    )
    return Moments(moments.count + 1, mean, squares, deviations)


def variance(moments: Moments) -> Any:
    """Return the variance of each parameter over the networks collected."""
    return jax.tree.map(lambda total: total / jnp.maximum(moments.count, 1), moments.squares)


def draw(moments: Moments, key: Array, scale: float | Array = 1.0) -> Any:
    """Return parameters of a new network,

        mean + sqrt(scale variance / 2) z_1 + sqrt(scale / (2 (K - 1))) D^T z_2,

    with K the number of deviations, and standard normal z_1 (one per parameter) and z_2 (one per
    deviation, the same for all arrays).
    """
    rank = _rank(moments)
    num_deviations = jnp.minimum(moments.count, rank)
    low_key, *keys = jax.random.split(key, 1 + len(jax.tree.leaves(moments.mean)))
    # Slots not yet filled are zeros, so that their normals do not matter.
    low_std = jnp.sqrt(scale / (2 * jnp.maximum(num_deviations - 1, 1)))
    low = jax.random.normal(low_key, (rank,)) * low_std

    def one(key: Array, mean: Array, variance: Array, ring: Array) -> Array:
        std = jnp.sqrt(variance * scale / 2)
        noise = jax.random.normal(key, mean.shape, mean.dtype)
        return mean + (std * noise + jnp.tensordot(low, ring, 1)).astype(mean.dtype)

    keys = jax.tree.unflatten(jax.tree.structure(moments.mean), keys)
    return jax.tree.map(one, keys, moments.mean, variance(moments), moments.deviations)


def refresh_statistics(
    apply: Callable[..., tuple[Array, Any]], params: Any, state: Any, batches: Array
) -> Any:
    """Return the state with the batch statistics of `params`, recomputed from `batches`, images
    (batch, image, ...).

    `apply` is that of a `replicax.nn.Network` whose floating-point state consists of exponential
    averages, running <- (1 - momentum) running + momentum batch. (Flax and Equinox
    call 1 - momentum the momentum.) Each batch is applied in training to averages of zero, which
    leaves momentum times the statistics of that batch alone; the result is their mean over
    batches, equally weighted, whatever the values in `state`. The momentum of each array is
    measured with the first batch. Counters and random keys, which are not floating point, are
    updated from batch to batch; floating-point state that training does not change stays the same.
    """

    def add(sums: Any, images: Array) -> tuple[Any, None]:
        after = apply(params, _only_averages(jnp.zeros_like, sums), images, True)[1]
        added = lambda new, old: old + new if _is_average(old) else new  # noqa: E731
        return jax.tree.map(added, after, sums), None

    sums = lax.scan(add, _only_averages(jnp.zeros_like, state), batches)[0]

    def mean(total: Array, momentum: Array, before: Array) -> Array:
        if not _is_average(total):
            return total
        is_constant = momentum < _NO_MOMENTUM
        scale = jnp.where(is_constant, 1.0, len(batches) * momentum).astype(total.dtype)
        return jnp.where(is_constant, before, total / scale)

    return jax.tree.map(mean, sums, _measure_momentum(apply, params, state, batches[0]), state)


@functools.partial(jax.jit, static_argnums=0)
def _measure_momentum(
    apply: Callable[..., tuple[Array, Any]], params: Any, state: Any, images: Array
) -> Any:
    """Return the momentum of each average, from the difference of results for averages of 0 and v:

        result at v - result at 0 = (1 - momentum) v,  v = 1 + |result at 0|,

    as large as the result, so that the difference keeps its digits.
    """
    at_0 = apply(params, _only_averages(jnp.zeros_like, state), images, True)[1]
    probe = jax.tree.map(lambda x, y: 1 + jnp.abs(y) if _is_average(x) else x, state, at_0)
    at_probe = apply(params, probe, images, True)[1]

    def momentum(before: Array, low: Array, high: Array) -> Array:
        if not _is_average(before):
            return jnp.zeros(())
        return jnp.mean(1 - ((high - low) / before).astype(jnp.float32))

    return jax.tree.map(momentum, probe, at_0, at_probe)


def _only_averages(change: Callable[[Array], Array], state: Any) -> Any:
    return jax.tree.map(lambda leaf: change(leaf) if _is_average(leaf) else leaf, state)


def _is_average(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def _rank(moments: Moments) -> int:
    return jax.tree.leaves(moments.deviations)[0].shape[0]


class CycleState(NamedTuple):
    """The state of the evaluation."""

    averages: Averages
    moments: Moments  # moments of the networks of this cycle


def build_cycles(
    evaluation: Evaluation,
    problem: Supervised,
    clock: Clock,
    kernel: Kernel,
    params: Any,
    seed: int,
    burn_in: int = 0,
    thinning: Thinning = Thinning(0),  # noqa: B008
) -> Evaluation:
    """Build an evaluation around `evaluation`; `params` gives the shapes of one network.

    Networks of the first `burn_in` epochs are not collected.
    """
    assert kernel.traits.exploits is not None
    test = evaluate.compiled_test(problem)
    draw_networks = jax.jit(_build_draws(problem))
    collected = jax.jit(collect)
    exploits = kernel.traits.exploits

    def no_moments() -> Moments:
        return start(jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), params))

    def evaluate_cycle(state: CycleState, carry: Carry) -> tuple[CycleState, dict[str, Any], Any]:
        averages, moments = state
        kept: Any = {}
        epoch = int(averages.count) + 1
        network, model_state = jax.tree.map(lambda leaf: leaf[0, 0], carry.state.points)
        if epoch > burn_in and exploits(epoch * clock.steps_per_epoch - 1):
            moments = collected(moments, network)
        if (epoch - clock.pretrain_epochs) % clock.cycle_epochs == 0 and int(moments.count):
            key = jax.random.fold_in(jax.random.key(seed), epoch)
            networks = draw_networks(key, moments, model_state, problem.batches.data)
            sampled = test.add(averages.sampled, networks)
            averages, moments = averages._replace(sampled=sampled), no_moments()
            number = round(float(sampled.weight)) // NUM_DRAWS
            drawn = np.ones(NUM_DRAWS), np.full(NUM_DRAWS, -1)
            kept = thinning.rows(number, epoch, *drawn, lambda: networks)
        averages, row, _ = evaluation.evaluate(averages, carry)
        return CycleState(averages, moments), row, kept

    return Evaluation(
        CycleState(evaluation.state, no_moments()),
        evaluate_cycle,
        lambda state: evaluation.final(state.averages),
        running=lambda state: state.averages.sampled,
    )


def _build_draws(problem: Supervised):
    """Build `draws(key, moments, state, data) -> (params, state)`, leading axis: network."""
    batches, target = problem.batches, problem.target

    def draws(key: jax.Array, moments: Moments, state: Any, data: Any) -> tuple[Any, Any]:
        def apply(params: Any, state: Any, key: jax.Array, train: bool):
            # A key stands for images, so that no more than one batch is in memory at a time.
            fresh = batches.fresh(data)
            assert fresh is not None  # sources are refused
            return target.energy(params, state, fresh(key), key)

        def one(key: jax.Array) -> tuple[Any, Any]:
            draw_key, key = jax.random.split(key)
            params = draw(moments, draw_key)
            keys = jax.random.split(key, _REFRESH_BATCHES)
            return params, refresh_statistics(apply, params, state, keys)

        return jax.vmap(one)(jax.random.split(key, NUM_DRAWS))

    return draws
