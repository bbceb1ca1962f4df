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
from replicax.algorithm.ladder import Metric, geometric
from replicax.algorithm.mixture import Mixture, in_use, no_mixture, padded
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.tiles import build_energies
from replicax.algorithm.tuning import (
    MOST_DENSE,
    StepSizes,
    Verdicts,
    equalised,
    metric_root,
    stride,
)
from replicax.run import devices
from replicax.run.blas import one_thread
from replicax.run.carry import Carry
from replicax.run.chunk import standing_still
from replicax.run.compiled_once import compiled_once, on_disk
from replicax.run.initial import build_carry, check_finite, initial_points, is_function
from replicax.run.program import Program
from replicax.run.records import Between
from replicax.run.search import energy_of, search

_SEARCH_SHARE = 0.02  # of the evaluations of a run, for starts of the search beyond the first few
_MORE_STARTS = 256  # that the search may follow, where a function draws them
_REACH = 3.0  # energy above a minimum, in temperatures and for each dimension, to begin with
_AT_ONCE = 64  # points whose energies are evaluated together
_HALVINGS = 60  # of the way from a start to a minimum
_FASTEST = 0.5  # the largest learning rate in the unit of a new metric
_LEAST_ACCEPTED = 2.0  # jumps of a step, at the end of learning, for which jumps are worth it
_GOOD, _ALMOST = 0.5, 0.3  # acceptance of a mixture from which little is left to learn, and before
_EVEN = 0.25  # how often all pairs of a ladder swap from which little is left to learn
_SETTLING = 12  # last steps of a burn-in that is cut short, in which step sizes settle
_GAUSSIAN = 1.35  # between logarithms of temperatures, times sqrt(d), for a Gaussian to swap half
_HOTTEST = 100.0  # a longer ladder than up to here begins as for any target


class Learning(Between):
    """The renewals of one run, an object between chunks."""

    def __init__(
        self, program: Program, like: Any, start: Any = None, centres: np.ndarray | None = None
    ) -> None:
        self.like, self.start, self.centres = like, start, centres
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        flat, self.unravel = ravel_pytree(zeros)
        d, self.dtype = flat.size, flat.dtype
        dense = d <= MOST_DENSE and program.settings.jumps is not None
        self.state = {
            # Of the deepest minimum that the search found, NaN if there was none.
            "covariance": np.full((d, d) if dense else (0, 0), np.nan, np.float32),
            # Spent by the search, by renewals, and by jumps until the end of the last round.
            "evaluations": np.zeros(3, np.int32),
            "acceptance": np.full(
                len(program.round_ends), np.nan, np.float32
            ),  # of jumps, after each round
            # Whether all starts of the search ended in one minimum.
            "is_single": np.array(False),
            "swap_rate": np.array(np.nan, np.float32),  # the smallest of a pair, in the last round
            # Steps of the burn-in that were not taken: nothing was left to learn.
            "spared": np.array(0, np.int32),
        }
        moves = program.num_chains * program.num_replicas
        self._gradients = moves * program.kernel.traits.gradients  # of the ladder, in one step
        self.places = label_places(program.target.exchangeable, like)
        self._energies = compiled_once(build_energies(program.target, self.unravel))
        self._equalised = compiled_once(partial(equalised, program.settings.tuning.barrier))

    def final(self, state: Any) -> dict[str, np.ndarray]:
        """Return how the rounds went."""
        return {
            "learning.evaluations": np.asarray(state["evaluations"]),
            "learning.gradients_per_step": np.asarray(self._gradients),
            "learning.acceptance": np.asarray(state["acceptance"]),
            "learning.spared": np.asarray(state["spared"]),
        }

    @one_thread()
    def first(self, program: Program, carry: Carry) -> Carry:
        """Search from the starts. The colder half of the replicas start at what was found; the
        others at their own starts, as near to a minimum as their rungs can begin."""
        if not jax.tree.leaves(carry.state.mixture):
            check_finite(program, carry.state.points)
            return carry
        starts = self._flat(devices.to_host(carry.state.replicas.params))
        num_chains, num_replicas, d = starts.shape
        temperature = np.asarray(devices.to_host(carry.state.ladder.temperature), float)
        slope = 1 / temperature[0, 0]
        energy = energy_of(program.target, self.unravel, slope)
        budget = int(_SEARCH_SHARE * program.num_steps * program.evaluations_per_step)
        points, more = _in_turn(starts), self._more_starts(program)
        if self.centres is not None:
            points = np.concatenate([self.centres.astype(points.dtype), points])
        evaluate = partial(self._evaluate, program, slope=slope)
        found = search(
            energy, points, program.batches.data, budget, self.places, None, more, evaluate
        )
        self.state["evaluations"] = np.array([found.evaluations, 0, 0], np.int32)
        order = carry.state.order
        if self.places is not None:
            found, direction = found.in_order(self.places)
            order = _placed(direction, order)
        mixture = found.mixture()
        self.state["is_single"] = np.array(len(found.minima) == 1 and not found.rejected)
        temperature = self._as_long(program, temperature)
        points = self._within_reach(program, starts, temperature, mixture)
        if mixture is None or found.covariance is None:
            return self._begun(program, carry, points)
        self.state["covariance"] = np.asarray(found.covariance, np.float32)
        rng = np.random.default_rng([program.seed % 2**32, 0])
        colder = num_replicas - num_replicas // 2
        drawn = fitting.draw(mixture, rng, num_chains * colder).astype(starts.dtype)
        finite = np.isfinite(self._evaluate(program, drawn, slope))
        own = points[:, :colder].reshape(-1, d)
        chosen = np.where(finite[:, None], drawn, own).reshape(num_chains, colder, d)
        carry = self._begun(program, carry, np.concatenate([chosen, points[:, colder:]], axis=1))
        root = np.linalg.cholesky(found.covariance)
        root = np.broadcast_to(root, (num_chains, num_replicas, d, d))
        ladder = _with_root(carry.state.ladder, root)
        ladder = ladder._replace(temperature=_placed(temperature, ladder.temperature))
        state = carry.state._replace(mixture=_placed(padded(mixture), carry.state.mixture))
        return carry._replace(state=state._replace(ladder=ladder, order=order))

    def _as_long(self, program: Program, temperature: np.ndarray) -> np.ndarray:
        """Return temperatures (chain, rung); where their end is free and there is one mode, up to
        where all pairs of a Gaussian swap about every other time, unless that is farther."""
        barrier, num_pairs = program.settings.tuning.barrier, temperature.shape[1] - 1
        hottest = np.exp(num_pairs * _GAUSSIAN / np.sqrt(len(self.state["covariance"]) or 1))
        is_free = barrier.on_host and barrier.free_until and not program.settings.redraws
        is_shorter = hottest < min(_HOTTEST, temperature[0, -1])
        if not (is_free and self.state["is_single"] and is_shorter):
            return temperature
        return np.broadcast_to(geometric(1.0, hottest, num_pairs + 1), temperature.shape)

    def _more_starts(self, program: Program) -> np.ndarray | None:
        """Return further starts (start, d) from where the user's come from, and from the prior
        where it can be drawn from; None where there is one start alone."""
        laws = [law for law in (self.start, program.task.start_from(None)) if is_function(law)]
        key = jax.random.fold_in(seed_keys(program.seed, 1)[1], _MORE_STARTS)
        rows = [
            self._flat(devices.to_host(initial_points(law, key, 1, _MORE_STARTS)))[0]
            for law in dict.fromkeys(laws)
        ]
        # Those of two laws in turn.
        return np.stack(rows, axis=1).reshape(-1, rows[0].shape[1]) if rows else None

    def _begun(self, program: Program, carry: Carry, points: np.ndarray) -> Carry:
        """Return the carry at other points."""
        tree = self._tree(points)
        check_finite(program, tree)
        return build_carry(program, tree)

    def _within_reach(
        self, program: Program, starts: np.ndarray, temperature: np.ndarray, mixture: Mixture | None
    ) -> np.ndarray:
        """Return points (chain, replica, d) of replicas at a temperature, moved on straight lines
        to the nearest component of a mixture, to 0 without one, until a local move can begin there.

        Where numbers overflow, or the energy is far above that of its rung, a replica would stay.
        """
        points, d = starts.reshape(-1, starts.shape[2]), starts.shape[2]
        inverse = 1 / temperature.reshape(-1)
        goals, lowest = np.zeros_like(points), np.full(len(points), -np.inf)
        if mixture is not None:
            centres = in_use(mixture).mean.astype(points.dtype)
            energy, prior = self._energies_at(program, centres)
            lowest = np.nanmin(inverse[:, None] * energy + prior, axis=1)
            goals = centres[fitting.nearest(mixture, points)]
        for _ in range(_HALVINGS):
            energy, prior = self._energies_at(program, points)
            here = inverse * energy + prior
            bound = np.where(np.isfinite(lowest), lowest + _REACH * (d + 10), np.inf)
            left = ~(np.isfinite(energy) & np.isfinite(here) & (here < bound))
            if not left.any():
                break
            points = np.where(left[:, None], (points + goals) / 2, points)
        return points.reshape(starts.shape)

    @one_thread()
    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry, with what is learned renewed where a round ends."""
        step = int(carry.state.step)
        if not num_steps or step not in program.round_ends or program.is_broken(carry):
            return carry, {}
        state = carry.state
        with on_disk(quick=0.0):
            state = self._renew_temperatures(program, state, step)
            if isinstance(state.ladder.scale, Metric):
                state = self._renew_metric(program, state, step)
            if jax.tree.leaves(state.mixture):
                state = self._renew_mixture(program, state, step)
                state = self._with_all_in_reach(program, state)
        carry = carry._replace(state=state)
        if self._has_learned(program, step):
            carry = self._set_forward(program, carry, records)
        return carry, {}

    def _renew_temperatures(self, program: Program, state: Any, step: int) -> Any:
        """Return the state with temperatures by the verdicts of all chains, where that is due."""
        barrier = program.settings.tuning.barrier
        if not barrier.on_host or step not in barrier.round_ends:
            return state
        temperature, verdicts = devices.to_host((state.ladder.temperature, state.verdicts))
        pooled = Verdicts(verdicts.count.sum(), verdicts.wanted.sum(axis=0))
        if not pooled.count:
            return state
        slowest = np.min(pooled.wanted / pooled.count, initial=1.0)
        self.state = {**self.state, "swap_rate": np.array(slowest, np.float32)}
        self.measured = temperature[0], pooled
        empty = jax.tree.map(np.zeros_like, verdicts)
        return self._retuned(state, step - 1)._replace(verdicts=_placed(empty, state.verdicts))

    def _retuned(self, state: Any, step: int) -> Any:
        """Return the state with temperatures by the verdicts of the last round, as at a step."""
        ladder = state.ladder
        tuned = np.asarray(self._equalised(np.int32(step), *self.measured))
        tuned = np.broadcast_to(tuned, ladder.temperature.shape)
        return state._replace(
            ladder=ladder._replace(temperature=_placed(tuned, ladder.temperature))
        )

    def _has_learned(self, program: Program, step: int) -> bool:
        """Return whether the rest of the burn-in would hardly change anything: a posterior of one
        mode by every sign, a mixture that was good in two rounds one after another, judged on draws
        of the ladder, and a ladder on which all pairs swap."""
        place, acceptance = program.round_ends.index(step), self.state["acceptance"]
        return bool(
            self.state["is_single"]
            and place > 0
            and acceptance[place - 1] >= _ALMOST
            and acceptance[place] >= _GOOD
            and self.state["swap_rate"] >= _EVEN
            and step < program.round_ends[-1] < program.burn_in - _SETTLING
        )

    def _set_forward(self, program: Program, carry: Carry, records: Any) -> Carry:
        """Return the carry with its clock set to near the end of the burn-in; in the records
        nothing moves in the steps between."""
        # The end of the ladder is free no more: what is left is to make its pairs equal.
        state = self._retuned(carry.state, program.settings.tuning.barrier.free_until)
        carry = carry._replace(state=self._with_all_in_reach(program, state))
        to = program.burn_in - _SETTLING
        for group, rows in standing_still(program, devices.to_host(carry), to).items():
            records.append(group, rows)
        spared = np.array(to - int(carry.state.step), np.int32)
        self.state = {**self.state, "spared": spared}
        step = _placed(np.asarray(to), carry.state.step)
        return carry._replace(state=carry.state._replace(step=step))

    def _with_all_in_reach(self, program: Program, state: Any) -> Any:
        """Return the state with replicas moved that their rungs, new in this round, cannot hold."""
        temperature, rung_of, mixture, params = devices.to_host(
            (state.ladder.temperature, state.rung_of, state.mixture, state.replicas.params)
        )
        points = self._flat(params)
        temperature = np.take_along_axis(np.asarray(temperature, float), rung_of, axis=1)
        reached = self._within_reach(
            program, points, temperature, in_use(mixture) if mixture.count else None
        )
        moved = np.any(reached != points, axis=2)
        if not moved.any():
            return state
        there = build_carry(program, self._tree(reached)).state.replicas

        def spliced(new: Any, old: Any) -> Any:
            old = np.asarray(devices.to_host(old))
            return np.where(moved.reshape(*moved.shape, *[1] * (old.ndim - 2)), new, old)

        replicas = jax.tree.map(spliced, devices.to_host(there), state.replicas)
        return state._replace(replicas=_placed(replicas, state.replicas))

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
        self.state = {**self.state, "acceptance": acceptance, "evaluations": spent}
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
        energy, prior = self._energies_at(program, points)
        energy = slope * energy + prior
        if ordering is None:
            return energy
        return np.where(ordered(ordering, points)[1], energy, np.inf)

    def _energies_at(self, program: Program, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return U and V at points (m, d), by one program however many they are."""
        blocks = np.split(points, range(_AT_ONCE, len(points), _AT_ONCE))
        found = [
            self._energies(np.resize(block, (_AT_ONCE, points.shape[1])), program.batches.data)
            for block in blocks
        ]
        energy, prior = (np.concatenate(parts).astype(float) for parts in zip(*found))
        return energy[: len(points)], prior[: len(points)]

    def _flat(self, params: Any) -> np.ndarray:
        """Return points (chain, replica, d) of a tree with these leading axes."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(params)]
        rows = [leaf.reshape(*leaf.shape[:2], -1) for leaf in leaves]
        return np.concatenate(rows, axis=2).astype(self.dtype)

    def _tree(self, points: np.ndarray) -> Any:
        leaves, structure = jax.tree.flatten(self.like)
        parts = np.split(points, np.cumsum([leaf.size for leaf in leaves])[:-1], axis=2)
        shaped = [
            jnp.asarray(part.reshape(*points.shape[:2], *leaf.shape), leaf.dtype)
            for part, leaf in zip(parts, leaves)
        ]
        return jax.tree.unflatten(structure, shaped)


def _in_order(
    ordering: Ordering, draws: np.ndarray, mixture: Mixture | None
) -> tuple[np.ndarray, Mixture | None, Ordering]:
    """Return draws (chain, draw, d) and the mixture with their labels in order, and this order, the
    best one for the draws."""
    flat = draws.reshape(-1, draws.shape[-1])
    ordering = ordering._replace(direction=best_direction(ordering, flat))
    mixture = None if mixture is None else mixture_in_order(ordering, mixture)
    return ordered(ordering, flat)[0].reshape(draws.shape), mixture, ordering


def _in_turn(starts: np.ndarray) -> np.ndarray:
    """Return the distinct starts (chain, replica, d), those of all chains in turn."""
    points = starts.swapaxes(0, 1).reshape(-1, starts.shape[2])
    return points[np.sort(np.unique(points, axis=0, return_index=True)[1])]


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
