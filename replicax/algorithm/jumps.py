"""Independence jumps of the coldest rung: many proposals of a mixture, evaluated at once.

The proposals do not depend on the state, so that all their energies are one batched evaluation;
only the decisions are taken one after another. Each decision is that of a Metropolis move with the
mixture as proposal (Tierney, 1994), so the law of the rung, exp(-E), is preserved whatever the
mixture is: from weight w = -E - log q, a proposal of weight w' is accepted with probability
min(1, exp(w' - w)).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm.kernel import Kernel, PyTree, Replica, select
from replicax.algorithm.labels import (
    Ordering,
    first_direction,
    label_places,
    orbit_density,
    shuffled,
)
from replicax.algorithm.mixture import (
    Mixture,
    Proposed,
    draw_proposed,
    log_density,
    no_mixture,
    propose,
)
from replicax.algorithm.randomness import make_key
from replicax.algorithm.target import StepEnergy, Target
from replicax.algorithm.tiles import build_energies
from replicax.algorithm.tuning import MOST_DENSE, stride

if TYPE_CHECKING:
    from replicax.algorithm.state import Settings, State

_TRACED = 8  # positions of a path that are kept for the next fit
_FEWEST_TRACED, _MOST_TRACED = 4096, 24_000  # of a round and all chains: between them 3 d^2


@dataclass(frozen=True)
class Jumping:
    """How the coldest replica jumps after every step, and for how long the mixture is learned."""

    num_proposals: int
    num_draws: int  # positions of each path that are draws
    num_chains: int
    round_ends: tuple[int, ...]  # of learning
    until: int  # the step from which the mixture is frozen

    def num_traced(self, d: int) -> int:
        """Return the places for positions of one round of a chain in d dimensions."""
        most = int(np.clip(3 * d**2, _FEWEST_TRACED, _MOST_TRACED))
        return -(-most // (_TRACED * self.num_chains)) * _TRACED


class JumpNoise(NamedTuple):
    """The randomness of n jumps."""

    proposed: Proposed
    threshold: Array  # minus log u of each accept step      shape (n,)


class Jumped(NamedTuple):
    """The path of n jumps, and what was seen."""

    point: Array  # where it ended                                  shape (d,)
    energy: Any  # there, (U, V)                                    shape ()
    moved: Array  # whether it ended elsewhere than it began        shape ()
    path: Array  # points at the kept positions, with repeats       shape (kept, d)
    path_energy: Any  # there, (U, V)                               shape (kept,)
    path_weight: Array  # log weights there, and of the proposals   shape (kept, 2)
    accepted: Array  # of the n proposals                           shape ()
    log_weight: Array  # of each proposal, -inf where not finite    shape (n,)


class JumpStats(NamedTuple):
    """What the jumps of a chain were like."""

    proposals: Array  # counted                                                     shape ()
    accepted: Array  #                                                              shape ()
    held: Array  # proposals refused in a row, up to now                            shape ()
    longest: Array  # the most of them                                              shape ()
    log_sum: Array  # log of the sum of the weights of the proposals                shape ()
    log_sum_square: Array  # log of the sum of their squares                        shape ()


class JumpState(NamedTuple):
    """Statistics of the jumps of a chain, and the trace of this round of learning."""

    stats: JumpStats
    count: Array  # steps of the round so far                             shape ()
    points: Array  # positions of the paths; the last ones are not kept   shape (position, d)
    energies: Array  # E there                                            shape (position,)


def start_jumps(
    jumping: Jumping | None, params: Any, dtype: Any, exchangeable: Any = None
) -> tuple[Any, Any, Any]:
    """Return no mixture, no order of labels and the state before the first jump; all empty where
    nothing will jump: in too many dimensions. `params` has a replica axis."""
    d = sum(leaf[0].size for leaf in jax.tree.leaves(params))
    if jumping is None or d > MOST_DENSE:
        return (), (), ()
    length = jumping.num_traced(d) + _TRACED
    none = jnp.array(0, jnp.int32)
    points, energies = jnp.zeros((length, d), dtype), jnp.zeros(length, dtype)
    state = JumpState(start_stats(dtype), none, points, energies)
    mixture = jax.tree.map(lambda leaf: jnp.asarray(leaf), no_mixture(d, dtype))
    places = label_places(exchangeable, jax.tree.map(lambda leaf: leaf[0], params))
    return mixture, () if places is None else jnp.asarray(first_direction(places), dtype), state


def traced(jumping: Jumping, count: int, step: int, d: int) -> int:
    """Return how many positions are kept after `count` steps of the round that ended at `step`."""
    places = jumping.num_traced(d)
    every = int(stride(jumping.round_ends, step - 1, places // _TRACED))
    return min(-(-count // every) * _TRACED, places)


def build_jumps(target: Target, kernel: Kernel, settings: "Settings") -> Callable:
    """Build `jump(key, state, batch) -> state, (points, energies, log weights, before)`: jumps of
    the replica on the coldest rung, the positions of its path that are draws, and where it was."""
    spread, jumping, prepare = settings.spread, settings.jumps, kernel.traits.prepare
    assert jumping is not None and prepare is not None
    num_kept = max(_TRACED, jumping.num_draws)

    def jump_cold(key: Array, state: "State", batch: PyTree) -> tuple["State", tuple]:
        cold, slope = state.replica_at[0], 1 / state.ladder.temperature[0]
        replica = spread.join(spread.rows(state.replicas, cold))
        flat, unravel = ravel_pytree(replica.params)
        places = label_places(target.exchangeable, replica.params)

        def seen() -> Jumped:
            noise = draw_jumps(key, jumping.num_proposals, flat.size, flat.dtype)
            energies = partial(build_energies(target, unravel), batch=batch)
            ordering = None if places is None else Ordering(places, state.order)
            return jump(noise, state.mixture, flat, energies, slope, num_kept, ordering)

        def settled(seen: Jumped) -> tuple[Replica, Jumped]:
            if places is not None:
                seen = _relabelled(seen, places, jax.random.fold_in(key, 2))
            evaluate = StepEnergy(target, batch, target.draw(make_key(0)))
            there = prepare(Replica(unravel(seen.point), replica.memory), evaluate)
            return select(True, there, replica), seen

        def jumped() -> tuple[Replica, Jumped, JumpStats]:
            there, taken = settled(seen())
            return there, taken, count_jumps(state.jumps.stats, taken)

        def stayed() -> tuple[Replica, Jumped, JumpStats]:
            none = _none_taken(flat, replica.memory, jax.eval_shape(seen))
            there, none = (replica, none) if places is None else settled(none)
            return there, none, state.jumps.stats

        there, taken, stats = jax.lax.cond(state.mixture.count > 0, jumped, stayed)
        at = spread.here(jnp.arange(state.replica_at.shape[0]) == cold) & taken.moved
        replicas = jax.vmap(select, (0, None, 0))(at, there, state.replicas)
        jumps = state.jumps._replace(stats=stats)
        jumps = _traced(jumping, state.step, jumps, _thinned(taken, _TRACED)[:2], slope)
        points, energies, weights = _thinned(taken, jumping.num_draws)
        path = jax.vmap(unravel)(points), energies[0], weights, flat
        return state._replace(replicas=replicas, jumps=jumps), path

    return jump_cold


def _none_taken(point: Array, memory: Any, like: Jumped) -> Jumped:
    """Return jumps of which none was taken, with the shapes of those that are."""
    both = memory.energy, memory.prior
    none = Jumped(point, both, False, point, both, -jnp.inf, 0, -jnp.inf)  # type: ignore[arg-type]
    full = lambda value, to: jnp.broadcast_to(jnp.asarray(value, to.dtype), to.shape)  # noqa: E731
    return jax.tree.map(full, none, like)


def _thinned(taken: Jumped, count: int) -> tuple[Array, Any, Array]:
    """Return points, energies and weights at evenly spaced positions of a path."""
    every = taken.path.shape[0] // count
    kept = taken.path, taken.path_energy, taken.path_weight
    return jax.tree.map(lambda leaf: leaf[every - 1 :: every], kept)


def relabelled_draws(target: Target, settings: "Settings", key: Array, state: "State") -> tuple:
    """Return the draws of a step without jumps as `build_jumps` does: the coldest replica, its
    exchangeable labels in random orders."""
    spread, count = settings.spread, 1 if settings.jumps is None else settings.jumps.num_draws
    cold = spread.join(spread.rows(state.replicas.params, state.replica_at[0]))
    flat, unravel = ravel_pytree(cold)
    points = jnp.broadcast_to(flat, (count, flat.size))
    places = label_places(target.exchangeable, cold)
    return jax.vmap(unravel)(shuffled(places, points, key)), None, None, None


def _relabelled(seen: Jumped, places: Any, key: Array) -> Jumped:
    """Return jumps with the labels of each kept position permuted at random: an exact move of its
    own, whose last one is that of the state."""
    path = shuffled(places, seen.path, key)
    return seen._replace(point=path[-1], moved=jnp.array(True), path=path)


def _traced(
    jumping: Jumping, step: Array, jumps: JumpState, path: tuple[Array, Any], slope: Array
) -> JumpState:
    """Add positions of the path of a step, at some steps of the round. `step` is the next one."""
    points, (energy, prior) = path
    last = jumps.points.shape[0] - _TRACED
    every = stride(jumping.round_ends, step - 1, last // _TRACED)
    keeps = (jumps.count % every == 0) & (step <= jumping.until)
    place = jnp.where(keeps, jnp.minimum(jumps.count // every * _TRACED, last), last)

    def put(rows: Array, values: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(rows, values.astype(rows.dtype), place, 0)

    return jumps._replace(
        count=jumps.count + 1,
        points=put(jumps.points, points),
        energies=put(jumps.energies, slope * energy + prior),
    )


def draw_jumps(key: Array, n: int, d: int, dtype: Any = jnp.float32) -> JumpNoise:
    """Draw the randomness of n jumps in d dimensions."""
    propose_key, accept_key = jax.random.split(key)
    return JumpNoise(
        draw_proposed(propose_key, n, d, dtype), jax.random.exponential(accept_key, (n,), dtype)
    )


def jump(
    noise: JumpNoise,
    mixture: Mixture,
    point: Array,
    energies: Callable[[Array], tuple[Array, Array]],
    slope: Array | float = 1.0,
    num_kept: int = 1,
    ordering: Ordering | None = None,
) -> Jumped:
    """Take one jump after another from `point`; E = slope U + V is minus the log density.

    `energies(points)` returns U and V of points (m, d). Kept are `num_kept` evenly spaced positions
    of the path, the last one among them: how long a point is held is part of the law. With an
    `ordering` proposals stand for all permutations of their labels, and only those in order count.
    """
    proposals = propose(mixture, noise.proposed)
    # Barriers keep XLA from computing these again, with other roundings, wherever they are used.
    at = jax.lax.optimization_barrier(jnp.concatenate([point[None], proposals]))
    both = energies(at)
    if ordering is None:
        log_proposal = log_density(mixture, at)
    else:
        log_proposal = orbit_density(ordering, mixture, at)
    log_weight = log_weights(slope * both[0] + both[1], log_proposal)
    both, log_weight = jax.lax.optimization_barrier((both, log_weight))
    path = jax.lax.optimization_barrier(_decide(log_weight, noise.threshold))
    place = path[-1]
    every = path.shape[0] // num_kept
    position = slice(path.shape[0] - every * (num_kept - 1) - 1, None, every)
    kept = path[position]
    accepted = jnp.sum(jnp.diff(path, prepend=0) != 0)
    return Jumped(
        at[place],
        jax.tree.map(lambda leaf: leaf[place], both),
        place > 0,
        at[kept],
        jax.tree.map(lambda leaf: leaf[kept], both),
        jnp.stack([log_weight[kept], log_weight[1:][position]], axis=1),
        accepted,
        log_weight[1:],
    )


def log_weights(energy: Array, log_proposal: Array) -> Array:
    """Return -E - log q; -inf, which is never jumped to, where either is not finite."""
    weight = -energy - log_proposal
    return jnp.where(jnp.isfinite(weight), weight, -jnp.inf)


def _decide(log_weight: Array, threshold: Array) -> Array:
    """Return the n places of a path; place 0 is where it begins, place i proposal i."""

    def one(at: tuple[Array, Array], proposal: tuple[Array, Array, Array]):
        place, weight = at
        number, proposed, threshold = proposal
        # A state whose own weight is not finite is left for any that has one.
        accepts = (proposed + threshold > weight) & (proposed > -jnp.inf)
        after = jnp.where(accepts, number, place), jnp.where(accepts, proposed, weight)
        return after, after[0]

    numbers = jnp.arange(1, len(log_weight), dtype=jnp.int32)
    start = jnp.zeros((), jnp.int32), log_weight[0]
    steps = numbers, log_weight[1:], threshold
    return jax.lax.scan(one, start, steps, unroll=min(4, len(numbers)))[1]


def start_stats(dtype: Any = jnp.float32) -> JumpStats:
    """Return the statistics before the first jump."""
    none, empty = jnp.array(0, jnp.int32), jnp.array(-jnp.inf, dtype)
    return JumpStats(jnp.zeros((), dtype), jnp.zeros((), dtype), none, none, empty, empty)


def count_jumps(stats: JumpStats, jumped: Jumped) -> JumpStats:
    """Add the jumps of one step. Refusals in a row are counted by steps in which all n were
    refused: the ladder may move the state in between, within what the mixture does not cover."""
    n = jumped.log_weight.shape[0]
    held = jnp.where(jumped.accepted > 0, 0, stats.held + n).astype(jnp.int32)
    weight = jumped.log_weight.astype(stats.log_sum.dtype)
    total, square = (jax.nn.logsumexp(power * weight) for power in (1, 2))
    return JumpStats(
        stats.proposals + n,
        stats.accepted + jumped.accepted.astype(stats.accepted.dtype),
        held,
        jnp.maximum(stats.longest, held),
        jnp.logaddexp(stats.log_sum, total),
        jnp.logaddexp(stats.log_sum_square, square),
    )


def log_evidence(stats: JumpStats) -> tuple[Array, Array]:
    """Return the log of the integral of exp(-E) from the weights of the proposals, and how many
    equal weights would be as precise.

    A mode that the mixture does not cover is missing from both, in silence.
    """
    effective = jnp.exp(2 * stats.log_sum - stats.log_sum_square)
    return stats.log_sum - jnp.log(stats.proposals), effective
