"""What a run learns in its burn-in, renewed on the host where a round of it ends: the metric of the
local moves, and the mixture that proposes jumps.

Both are frozen before the first draw. All numbers of a renewal follow from the carry, the seed and
the step, so that a run that resumes learns the same.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from replicax.algorithm import fitting
from replicax.algorithm.jumps import traced
from replicax.algorithm.labels import (
    Ordering,
    best_direction,
    label_places,
    mixture_in_order,
    ordered,
)
from replicax.algorithm.ladder import Metric
from replicax.algorithm.metric import MOST_DENSE, metric_root
from replicax.algorithm.mixture import Mixture, in_use, no_mixture, padded
from replicax.algorithm.rounds import StepSizes, stride
from replicax.algorithm.tiles import build_energies
from replicax.run import devices
from replicax.run.carry import Carry
from replicax.run.initial import build_carry
from replicax.run.program import Program
from replicax.run.search import search

_STARTS = 8  # of the search
_FASTEST = 0.5  # the largest learning rate in the unit of a new metric
_LEAST_ACCEPTED = 2.0  # jumps of a step, at the end of learning, for which jumps are worth it


def learns(program: Program, like: Any, carry: Carry | None) -> "Learning | None":
    """Return what a run learns, None if nothing; `like` has the shapes of one point."""
    return Learning(program, like) if program.round_ends else None


class Learning:
    """The renewals of one run, an object between chunks; see `evaluation.Between`."""

    average = None

    def __init__(self, program: Program, like: Any) -> None:
        self.like = like
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        flat, self.unravel = ravel_pytree(zeros)
        d = flat.size
        dense = d <= MOST_DENSE and program.settings.jumps is not None
        self.state = {
            # Of the deepest minimum that the search found, NaN if there was none.
            "covariance": np.full((d, d) if dense else (0, 0), np.nan, np.float32),
            # Spent by the search, by renewals, and by jumps until the end of the last round.
            "evaluations": np.zeros(3, np.int32),
            "acceptance": np.full(
                len(program.round_ends), np.nan, np.float32
            ),  # of jumps, after each round
        }
        spec = program.kernel.traits.spec or {}
        moves = program.num_chains * program.num_replicas
        self._gradients = moves * spec.get("num_leapfrog", 1)  # of the ladder, in one step
        self.places = label_places(program.target.exchangeable, like)
        energies = build_energies(program.target, self.unravel)
        self._energies = jax.jit(energies)

    def final(self, state: Any) -> dict[str, np.ndarray]:
        """Return how the rounds went."""
        return {
            "learning.evaluations": np.asarray(state["evaluations"]),
            "learning.gradients_per_step": np.asarray(self._gradients),
            "learning.acceptance": np.asarray(state["acceptance"]),
        }

    def first(self, program: Program, carry: Carry) -> Carry:
        """Search from the starts; half of the replicas start at what was found, the colder half."""
        if not jax.tree.leaves(carry.state.mixture):
            return carry
        starts = self._flat(devices.to_host(carry.state.replicas.params))
        num_chains, num_replicas, d = starts.shape
        slope = 1 / float(carry.state.ladder.temperature[0, 0])
        target, data = program.target, program.batches.data

        def energy(point: Any, data: Any) -> Any:
            params = self.unravel(point)
            prior = 0.0 if target.prior is None else target.prior(params)
            return slope * target.energy(params, data, None) + prior

        found = search(energy, _spread(starts.reshape(-1, d)), data, self.places)
        order = carry.state.order
        if self.places is not None:
            found, direction = found.in_order(self.places)
            order = _placed(direction, order)
        mixture = found.mixture()
        self.state["evaluations"] = np.array([found.evaluations, 0, 0], np.int32)
        if mixture is None or found.covariance is None:
            return carry
        self.state["covariance"] = np.asarray(found.covariance, np.float32)
        rng = np.random.default_rng([program.seed % 2**32, 0])
        colder = num_replicas - num_replicas // 2
        drawn = fitting.draw(mixture, rng, num_chains * colder).astype(starts.dtype)
        finite = np.isfinite(self._evaluate(program, drawn, slope))
        own = starts[:, :colder].reshape(-1, d)
        chosen = np.where(finite[:, None], drawn, own).reshape(num_chains, colder, d)
        points = np.concatenate([chosen, starts[:, colder:]], axis=1)
        state = build_carry(program, self._tree(points)).state
        root = np.linalg.cholesky(found.covariance)
        ladder = _with_root(state.ladder, np.broadcast_to(root, (num_chains, num_replicas, d, d)))
        mixture = _placed(padded(mixture), state.mixture)
        state = state._replace(mixture=mixture, ladder=ladder, order=order)
        return carry._replace(state=state)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry, with what is learned renewed where a round ends."""
        step = int(carry.state.step)
        if not num_steps or step not in program.round_ends or program.is_broken(carry):
            return carry, {}
        state = carry.state
        if isinstance(state.ladder.scale, Metric):
            state = self._renew_metric(program, state, step)
        if jax.tree.leaves(state.mixture):
            state = self._renew_mixture(program, state, step)
        return carry._replace(state=state), {}

    def _renew_metric(self, program: Program, state: Any, step: int) -> Any:
        """Return the state with the metric of each rung made of the gradients of all chains."""
        ladder, sizes = devices.to_host((state.ladder, state.step_sizes))
        places = sizes.gradients.shape[1] - 1
        every = int(stride(program.round_ends, step - 1, places))
        kept = sizes.gradients[:, : min(-(-int(sizes.count[0]) // every), places)]
        roots, rates = [], np.array(ladder.learning_rate, float)
        for rung in range(kept.shape[2]):
            before = np.asarray(ladder.scale.root[0, rung], float)
            root = metric_root(kept[:, :, rung].reshape(-1, kept.shape[3]), before)
            roots.append(root)
            # Steps were as long as the steepest direction allowed.
            widest = np.linalg.norm(np.linalg.inv(np.linalg.solve(before, root)), 2)
            rates[:, rung] = np.minimum(
                rates[:, rung] * widest**2, np.maximum(rates[:, rung], _FASTEST)
            )
        root = np.broadcast_to(np.stack(roots), ladder.scale.root.shape)
        empty = StepSizes(np.zeros_like(sizes.count), (), np.zeros_like(sizes.gradients))
        return state._replace(
            ladder=_with_root(state.ladder, root, rates),
            step_sizes=_placed(empty, state.step_sizes),
        )

    def _renew_mixture(self, program: Program, state: Any, step: int) -> Any:
        """Return the state with the best of the old mixture and new ones, and an empty trace."""
        jumping = program.settings.jumps
        assert jumping is not None
        jumps, mixture = devices.to_host((state.jumps, state.mixture))
        slope = 1 / float(devices.to_host(state.ladder.temperature)[0, 0])
        d = jumps.points.shape[2]
        count = traced(jumping, int(jumps.count[0]), step, d)
        towards = np.asarray(self.state["covariance"], float)
        draws, old = jumps.points[:, :count], in_use(mixture) if mixture.count else None
        ordering = None
        if self.places is not None:
            ordering = Ordering(self.places, np.asarray(devices.to_host(state.order), float))
            draws, old, ordering = _in_order(ordering, draws, old)
            state = state._replace(order=_placed(ordering.direction, state.order))
        chosen = fitting.choose(
            old,
            draws,
            jumps.energies[:, :count],
            partial(self._evaluate, program, slope=slope, ordering=ordering),
            np.random.default_rng([program.seed % 2**32, step]),
            jumping.num_proposals,
            towards if np.all(np.isfinite(towards)) else None,
        )
        place = program.round_ends.index(step)
        acceptance = np.array(self.state["acceptance"])
        acceptance[place] = chosen.acceptance
        spent = np.array(self.state["evaluations"])
        spent[1:] += chosen.evaluations, int(np.sum(jumps.stats.proposals, dtype=np.float64))
        self.state |= {"acceptance": acceptance, "evaluations": spent}
        new = chosen.mixture
        is_last = step == jumping.until
        if is_last and jumping.num_proposals * chosen.acceptance < _LEAST_ACCEPTED:
            new = None
        new = no_mixture(d) if new is None else padded(new)
        empty = jax.tree.map(np.zeros_like, jumps)
        minus = np.full_like(jumps.stats.log_sum, -np.inf)
        stats = empty.stats._replace(log_sum=minus, log_sum_square=minus)
        return state._replace(
            mixture=_placed(new, state.mixture),
            jumps=_placed(empty._replace(stats=stats), state.jumps),
        )

    def _evaluate(
        self, program: Program, points: np.ndarray, slope: float, ordering: Ordering | None = None
    ) -> np.ndarray:
        """Return E at points (m, d), infinite where labels are out of order."""
        energy, prior = self._energies(jnp.asarray(points), program.batches.data)
        energy = slope * np.asarray(energy, float) + np.asarray(prior, float)
        return (
            energy if ordering is None else np.where(ordered(ordering, points)[1], energy, np.inf)
        )

    def _flat(self, params: Any) -> np.ndarray:
        """Return points (chain, replica, d) of a tree with these leading axes."""
        return np.asarray(jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(params))

    def _tree(self, points: np.ndarray) -> Any:
        return jax.vmap(jax.vmap(self.unravel))(jnp.asarray(points))


def _in_order(
    ordering: Ordering, draws: np.ndarray, mixture: Mixture | None
) -> tuple[np.ndarray, Mixture | None, Ordering]:
    """Return draws (chain, draw, d) and the mixture with their labels in order, and this order, the
    best one for the draws."""
    flat = draws.reshape(-1, draws.shape[-1])
    ordering = ordering._replace(direction=best_direction(ordering, flat))
    mixture = None if mixture is None else mixture_in_order(ordering, mixture)
    return ordered(ordering, flat)[0].reshape(draws.shape), mixture, ordering


def _spread(starts: np.ndarray) -> np.ndarray:
    """Return a few of the starts, each once."""
    distinct = starts[np.sort(np.unique(starts, axis=0, return_index=True)[1])]
    places = np.linspace(0, len(distinct) - 1, min(_STARTS, len(distinct))).round().astype(int)
    return distinct[places]


def _with_root(ladder: Any, root: np.ndarray, rates: np.ndarray | None = None) -> Any:
    scale = ladder.scale
    if isinstance(scale, Metric):
        scale = _placed(Metric(root), scale)
    if rates is None:
        return ladder._replace(scale=scale)
    return ladder._replace(scale=scale, learning_rate=_placed(rates, ladder.learning_rate))


def _placed(values: Any, like: Any) -> Any:
    """Return host arrays as arrays of the same types as others, where those are."""

    def put(value: Any, old: Any) -> Any:
        value = np.asarray(value, old.dtype)
        return jax.device_put(value, old.sharding) if old.committed else jnp.asarray(value)

    return jax.tree.map(put, values, like)
