"""One sweep over all rows, and what comes before the first: exact draws of a posterior whose rows
are too many for a ladder to see at every step.

*Find*: a search and a population that is cooled sample some of the rows (`finder.py`), where the
posterior is wider and has the modes of the whole; its modes are followed on all rows, by Newton
steps, a sweep each, to the first mixture. In a few sweeps more the mixture is renewed by the
weights of its own proposals, and then frozen. *Confirm*: each sweep evaluates n proposals of every
chain at once, and the chains take them, or not, as in `jumps.py`: that preserves the posterior,
whatever was found.

Every sweep also evaluates draws of the finder, moved to where the minima of all rows are. One that
weighs more than all proposals of its sweep stands where the mixture misses something: before the
mixture is frozen it gets a component there, afterwards it is told.

What a sweep does depends on the state before it and on (seed, number of the sweep) alone, and the
state is saved after each: a run that was interrupted does the sweep again.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.special import logsumexp

from replicax.algorithm import fitting
from replicax.algorithm.labels import (
    Ordering,
    components_in_order,
    label_places,
    mixture_in_order,
    ordered,
    taken,
)
from replicax.algorithm.mixture import Mixture, in_use, make_mixture
from replicax.run import trees
from replicax.run.bayesian import Bayesian
from replicax.run.blas import one_thread
from replicax.run.estimate import (
    CHECKED,
    FIRST_ROWS,
    MOST_NOISE,
    Centres,
    Estimate,
    more_rows,
    weighted_noise,
)
from replicax.run.methods import Method
from replicax.run.newton import covariance_of, followed, moved
from replicax.run.options import Sampling
from replicax.run.program import Program
from replicax.run.records import Arrays
from replicax.run.rows import Job, Plan, Rows, plan_of
from replicax.run.search import (
    Found,
    are_apart,
)
from replicax.run.sweep_state import (
    CONFIRMING,
    LEARNING,
    WITNESSES,
    Chains,
    Finder,
    State,
    no_proposals,
    pooled,
)

_NEWTON_SWEEPS = 8  # at most
_GOOD = 0.4  # harmonic acceptance at which the mixture is frozen
_PILOTS = 8  # sweeps that learn it, at most
_FOUND_SHARE, _FOUND_FREEDOM = 0.2, 4.0  # of a component where the finder's draws weigh too much


@dataclass
class Sampler:
    """What is fixed of a run, and what one sweep makes of its state."""

    task: Bayesian
    finder: Program  # of some rows, by which the target is known again
    like: Any  # shapes of one point
    run: Sampling
    method: Method
    devices: Any = None
    withheld: int | None = None  # a minimum that is left out of the first mixture, for tests

    def __post_init__(self) -> None:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), self.like)
        flat, self.unravel = ravel_pytree(zeros)
        self.d, self.dtype = flat.size, np.dtype(flat.dtype)
        self.places = label_places(self.finder.target.exchangeable, self.like)
        self.rows = self.task.rows
        self.some = self.finder.batches.data
        log_likelihood, unravel = self.task.log_likelihood, self.unravel
        self._of_rows = lambda point, rows: log_likelihood(unravel(point), rows)
        log_prior: Any = self.finder.target.prior
        prior = lambda point: log_prior(unravel(point))  # noqa: E731
        self._prior = jax.jit(jax.vmap(prior))
        self._plans: dict[tuple[Job, int, int], Plan] = {}
        self._estimate: Estimate | None = None
        self.slopes = jax.jit(
            jax.vmap(lambda x: (prior(x), jax.grad(prior)(x), jax.jacrev(jax.grad(prior))(x)))
        )

    @property
    def num_chains(self) -> int:
        return self.run.num_chains

    @property
    def num_proposals(self) -> int:
        return int(self.method.jumps or 1)

    def rng(self, *numbers: int) -> np.random.Generator:
        return np.random.default_rng([self.run.seed % 2**32, *numbers])

    def flat(self, points: Any) -> np.ndarray:
        """Return points (m, d) of a tree with two leading axes."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(points)]
        rows = [leaf.reshape(leaf.shape[0] * leaf.shape[1], -1) for leaf in leaves]
        return np.concatenate(rows, axis=1).astype(self.dtype)

    # Sums over all rows.

    def sums(
        self,
        derivatives: bool,
        state_centre: np.ndarray,
        points: np.ndarray,
        seen: Any,
        rows: Rows | None = None,
    ) -> Any:
        """Return sums over all rows, or over others."""
        job, rows = self._derivatives if derivatives else self._differences, rows or self.rows
        kind = job, len(points), rows.num_rows
        if kind not in self._plans:
            self._plans[kind] = plan_of(
                job, rows.num_rows, self.some, self.d, len(points), self.task.block_rows
            )
        centre, points = state_centre.astype(self.dtype), points.astype(self.dtype)
        return rows.sums(job, self._plans[kind], centre, points, seen, self.devices)

    @property
    def _differences(self) -> Job:
        return Job(self._of_rows)

    @property
    def _derivatives(self) -> Job:
        if not hasattr(self, "_way"):
            few = jax.tree.map(lambda leaf: np.asarray(leaf)[:2], self.some)
            total = lambda x: jnp.sum(self._of_rows(x, few))  # noqa: E731
            try:
                jax.eval_shape(jax.jacfwd(jax.grad(total)), jnp.zeros(self.d, self.dtype))
                self._way = "forward"
            except (TypeError, ValueError, NotImplementedError, RuntimeError):
                self._way = "reverse"  # solvers of differential equations have no forward one
        return Job(self._of_rows, self._way)

    def energies(
        self, state: State, points: np.ndarray, seen: Any
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Return U and E at points (m, d), minus those of the centre (m, 2); U of the centre; and
        the errors of energies that are estimated."""
        if int(state.estimated_from):
            return self._estimated(state, points, seen)
        sums = self.sums(False, state.centre, points, seen)
        both = np.stack([-sums.apart, -sums.apart + self._prior_apart(state, points)], axis=1)
        return _finite_or_far(both), -float(sums.centre), np.zeros(len(points))

    def _estimated(
        self, state: State, points: np.ndarray, seen: Any
    ) -> tuple[np.ndarray, float, np.ndarray]:
        """Return what `energies` does, from some of the rows."""
        count = int(state.estimated_from)
        kept = self._estimate
        if kept is None or kept.count != count or kept.centres is not state.centres:
            kept = self._estimate = Estimate(self, state.centres, count)
        centre = state.centre[None].astype(self.dtype)
        at = np.concatenate([points, centre]).astype(float)
        total, error = kept(at, seen)
        prior = self.prior_at(at)
        both = np.stack([total - prior, total], axis=1)
        apart = both[:-1] - both[-1]
        return _finite_or_far(apart), float(both[-1, 0]), error[:-1]

    # One sweep.

    def advance(self, state: State, seen: Any) -> tuple[State, dict[str, Arrays]]:
        """Return the state after one sweep, and the rows that it adds to the records."""
        began = time.monotonic()
        phase = int(state.phase)
        sweep = (self._follow, self._learn, self._confirm)[phase]
        state, draws, count = sweep(state, seen)
        spent = state.spent
        one = np.eye(3)[phase]
        spent = spent._replace(
            sweeps=spent.sweeps + one,
            evaluations=spent.evaluations + count * one,
            seconds=spent.seconds + (time.monotonic() - began) * one,
        )
        step = state.step + 1
        burn_in = state.burn_in + (phase != CONFIRMING)
        rungs = np.zeros((1, self.num_chains, 1), np.int8)
        return state._replace(step=step, burn_in=burn_in, spent=spent), {
            "steps": {"rung_of": rungs},
            **({"draws": draws} if draws else {}),
        }

    def _follow(self, state: State, seen: Any) -> tuple[State, None, float]:
        """Newton steps from all minima of some rows towards those of all rows, damped."""
        newton, centre = state.newton, state.centre
        tried = newton.tried.astype(self.dtype)
        sums = self.sums(True, centre, tried, seen)
        prior, slope, curve = (np.asarray(x, float) for x in self.slopes(jnp.asarray(tried)))
        energy = -sums.apart + prior - state.at_centre[1]
        seen_there = energy, slope - sums.gradient, curve - sums.hessian
        newton, ahead, gain, open_ = followed(newton, tried, seen_there, state.finder)
        state = state._replace(
            newton=newton,
            unsettled=np.array(open_.sum()),
            at_centre=np.array([-float(sums.centre), state.at_centre[1]]),
        )
        count = len(tried) * (2 * self.d + 3)
        if open_.any() and int(state.step) + 1 < _NEWTON_SWEEPS:
            return state, None, count
        # The last step costs nothing, and where it is short it needs no look.
        ends = np.where((gain < self.d)[:, None], ahead, newton.at)
        energies = newton.energy - np.minimum(gain, self.d)
        return self._first_mixture(state, ends, energies), None, count

    def _first_mixture(self, state: State, minima: np.ndarray, energies: np.ndarray) -> State:
        """Return the state with a Gaussian at each distinct minimum, and nothing learned yet."""
        known = np.isfinite(energies)
        if not known.any():
            raise ValueError(
                f"The log likelihood of all {self.rows.num_rows:,} rows is finite at none of the "
                "minima of some of them: do the data hold NaN or inf?"
            )
        covariances = [covariance_of(hessian) for hessian in state.newton.hessian]
        kept: list[int] = []
        for k in np.argsort(energies, kind="stable"):
            distinct = all(
                are_apart(minima[k], minima[j], covariances[j], self.places) for j in kept
            )
            if known[k] and distinct:
                kept.append(int(k))
        found = Found(minima[kept], energies[kept], np.array([covariances[k] for k in kept]), 0, 0)
        roots = np.array([np.linalg.cholesky(c) for c in covariances])
        # The finder's draws go with their minima, each to the one that it was led to.
        finder = moved(state.finder, minima, roots)
        direction, newton = state.direction, state.newton
        # Where all rows were summed, the last step not among them.
        energy = newton.energy[kept] + state.at_centre.sum()
        centres = Centres(newton.at[kept], energy, newton.gradient[kept], newton.hessian[kept])
        if self.places is not None:
            found, direction = found.in_order(self.places)
            ordering = Ordering(self.places, direction)
            minima, roots = components_in_order(ordering, minima, roots)
            finder = Finder(ordered(ordering, finder.draws)[0], finder.minimum, minima, roots)
        best = int(np.argmin(found.energies))
        laplace = found.covariances[best]
        centre = found.minima[best]
        if self.withheld is not None:
            others = np.arange(len(found.minima)) != self.withheld
            found = found._replace(
                minima=found.minima[others],
                energies=found.energies[others],
                covariances=found.covariances[others],
            )
        mixture = found.mixture()
        assert mixture is not None
        return state._replace(
            phase=np.array(LEARNING),
            centre=centre,
            centres=centres,
            estimated_from=np.array(self._first_estimate()),
            direction=direction,
            finder=finder,
            laplace=laplace,
            mixture=in_use(mixture),
            at_centre=np.array([0.0, self.prior_at(centre[None])[0]]),
        )

    def _first_estimate(self) -> int:
        """Return from how many rows energies are estimated first, 0 for all."""
        exact = self.method.exact or self.rows.num_rows <= 2 * FIRST_ROWS
        return 0 if exact else FIRST_ROWS

    def _weights(self, state: State, points: np.ndarray, energy: np.ndarray) -> np.ndarray:
        """Return -E - log q of points (m, d); -inf where labels are out of order."""
        density = fitting.log_density(state.mixture, points)
        if self.places is not None:
            density = density - math.lgamma(len(self.places) + 1)
            energy = np.where(ordered(self._ordering(state), points)[1], energy, np.inf)
        weight = -energy - density
        return np.where(np.isfinite(weight), weight, -np.inf)

    def _ordering(self, state: State) -> Ordering:
        return Ordering(self.places, state.direction)

    def _proposed(
        self, state: State, seen: Any
    ) -> tuple[State, np.ndarray, np.ndarray, np.ndarray]:
        """Evaluate proposals of all chains, and draws of the finder beside them. Return all of
        them, U and E there, and their weights; and the state with U of the centre, with how far a
        draw of the finder is above all proposals together, and with the error of the energies."""
        rng = self.rng(1, int(state.step))
        count = self.num_chains * self.num_proposals
        proposals = fitting.draw(state.mixture, rng, count)
        draws = state.finder.draws
        witnesses = draws[rng.choice(len(draws), WITNESSES, replace=len(draws) < WITNESSES)]
        points = np.concatenate([proposals, witnesses]).astype(self.dtype)
        energy, at_centre, error = self.energies(state, points, seen)
        points = points.astype(float)
        weight = self._weights(state, points, energy[:, 1])
        excess = weight[count:].max() - logsumexp(weight[:count])
        state = state._replace(
            excess=np.append(state.excess, excess),
            noise=np.append(state.noise, weighted_noise(weight[:count], error[:count])),
            at_centre=np.array([at_centre, state.at_centre[1]]),
        )
        return state, points, energy, weight

    @one_thread()
    def _learn(self, state: State, seen: Any) -> tuple[State, None, float]:
        """Evaluate proposals, renew the mixture by their weights, and freeze it when it is good."""
        count = self.num_chains * self.num_proposals
        state, points, energy, weight = self._proposed(state, seen)
        spent = self._share(state, len(points))
        if state.noise[-1] > MOST_NOISE:
            return self._with_more_rows(state), None, spent
        own, excess = weight[:count], state.excess[-1]
        acceptance = fitting.harmonic_from_proposals(own)
        total = energy[:count, 1]
        if self.places is not None:  # elsewhere proposals stand for nothing
            total = np.where(ordered(self._ordering(state), points[:count])[1], total, np.inf)
        pool = pooled(state.pool, points[:count], total, state.mixture)
        step = int(state.step)
        state = state._replace(pool=pool, acceptance=np.append(state.acceptance, acceptance))
        rng = self.rng(2, step)
        chosen = fitting.refit(
            state.mixture, pool.points, pool.energies, pool.mixture, rng, state.laplace
        )
        mixture = chosen.mixture or state.mixture
        missed = excess > 0
        if missed:
            mixture = self._with_missed(state, mixture, points[count:], weight[count:], own)
        last = int(pool.sweeps) >= _PILOTS
        good = acceptance >= _GOOD
        if (good and not missed) or last:
            if int(state.estimated_from):
                state = self._checked(state, points[:count], energy[:count, 1], own, seen)
                spent += CHECKED
                if state.error > MOST_NOISE:
                    return self._with_more_rows(state), None, spent
            state = state._replace(mixture=in_use(mixture), phase=np.array(CONFIRMING))
            state = self._begun(state)
        else:
            state = state._replace(mixture=in_use(mixture))
        return state, None, spent

    def _checked(
        self, state: State, points: np.ndarray, energy: np.ndarray, weight: np.ndarray, seen: Any
    ) -> State:
        """Return the state with the error of estimated energies at points (m, d), drawn by their
        weights: all rows are summed there."""
        share = np.exp(weight - weight.max())
        rng = self.rng(6, int(state.step))
        chosen = rng.choice(len(points), CHECKED, p=share / share.sum())
        at = points[chosen]
        known = -self.sums(False, state.centre, at, seen).apart + self._prior_apart(state, at)
        return state._replace(error=np.array(np.std(energy[chosen] - known)))

    def _with_more_rows(self, state: State) -> State:
        """Return the state with energies of more rows, and without proposals of the others."""
        following = more_rows(int(state.estimated_from), self.rows.num_rows)
        return state._replace(
            estimated_from=np.array(following), pool=no_proposals(self.d), error=np.array(0.0)
        )

    def _with_missed(
        self,
        state: State,
        mixture: Mixture,
        witnesses: np.ndarray,
        weight: np.ndarray,
        own: np.ndarray,
    ) -> Mixture:
        """Return the mixture with components where draws of the finder weigh too much, as wide as
        the nearest minimum of all rows."""
        heavy = np.flatnonzero(weight > logsumexp(own))
        minima, roots = state.finder.minima, state.finder.roots
        near = {int(k): [] for k in range(len(minima))}
        for j in heavy:
            step = np.linalg.solve(roots, (witnesses[j] - minima)[..., None])[..., 0]
            near[int(np.argmin(np.sum(step**2, axis=1)))].append(j)
        near = {k: found for k, found in near.items() if found}
        centres = np.array([witnesses[found].mean(axis=0) for found in near.values()])
        scale = np.sqrt(1 + 4 / self.d)
        new = make_mixture(np.zeros(len(near)), centres, scale * roots[list(near)], _FOUND_FREEDOM)
        if self.places is not None:
            new = mixture_in_order(self._ordering(state), new)
        return fitting.merged(mixture, new, _FOUND_SHARE)

    def _begun(self, state: State) -> State:
        """Return the state with chains that start at proposals so far, drawn by their weights."""
        chains, pool = self.num_chains, state.pool
        rng = self.rng(3, int(state.step))
        weight = -pool.energies - fitting.log_density(pool.mixture, pool.points)
        weight = np.where(np.isfinite(weight), weight, -np.inf)
        share = np.exp(weight - weight.max()) if np.isfinite(weight.max()) else np.ones(len(weight))
        chosen = rng.choice(len(share), size=chains, p=share / share.sum())
        at = pool.points[chosen]
        energy = pool.energies[chosen]
        both = np.stack([energy - self._prior_apart(state, at), energy], axis=1)
        zeros = np.zeros(chains)
        return state._replace(
            chains=Chains(
                at,
                both,
                self._weights(state, at, both[:, 1]),
                zeros,
                zeros,
                zeros.astype(int),
                zeros.astype(int),
                np.full(chains, -np.inf),
                np.full(chains, -np.inf),
            )
        )

    def _prior_apart(self, state: State, points: np.ndarray) -> np.ndarray:
        prior = self.prior_at(np.concatenate([points, state.centre[None]]))
        return prior[:-1] - prior[-1]

    def prior_at(self, points: np.ndarray) -> np.ndarray:
        """Return V at points (m, d)."""
        return np.asarray(self._prior(jnp.asarray(points.astype(self.dtype))), float)

    def _confirm(self, state: State, seen: Any) -> tuple[State, Arrays, float]:
        """Evaluate proposals, and let every chain take its own one after another."""
        chains, n = self.num_chains, self.num_proposals
        state, points, energy, weight = self._proposed(state, seen)
        at_centre, count = float(state.at_centre[0]), chains * n
        proposed = points[:count].reshape(chains, n, -1)
        energies, weights = energy[:count].reshape(chains, n, 2), weight[:count].reshape(chains, n)
        threshold = self.rng(4, int(state.step)).exponential(size=(chains, n))
        before = state.chains
        path, moved = decide(before.weight, weights, threshold)
        take = lambda own, others: np.take_along_axis(  # noqa: E731
            np.concatenate([own[:, None], others], axis=1),
            path.reshape(*path.shape, *[1] * (own.ndim - 1)),
            axis=1,
        )
        at, both = take(before.points, proposed), take(before.energy, energies)
        held_weight = take(before.weight, weights)
        held = np.where(moved.any(axis=1), 0, before.held + n)
        totals: list[Any] = [logsumexp(power * weights, axis=1) for power in (1, 2)]
        summed = np.logaddexp(before.log_sum, totals[0])
        squared = np.logaddexp(before.log_sum_square, totals[1])
        after = Chains(
            at[:, -1],
            both[:, -1],
            held_weight[:, -1],
            before.proposals + n,
            before.accepted + moved.sum(axis=1),
            held,
            np.maximum(before.longest, held),
            summed,
            squared,
        )
        state = state._replace(chains=after)
        if self.places is not None:
            at = self._shuffled(state, at)
        draws = self._draws(at, both[..., 0] + at_centre)
        # As the ladder has them: minus E, all of it, minus log q.
        constant = -(at_centre + state.at_centre[1])
        both_weights = np.stack([held_weight, weights], axis=2) + constant
        draws["jump_weight"] = both_weights.swapaxes(0, 1)
        return state, draws, self._share(state, len(points))

    def _shuffled(self, state: State, at: np.ndarray) -> np.ndarray:
        """Return points (chain, draw, d), each with a random permutation of its labels."""
        assert self.places is not None
        flat = at.reshape(-1, at.shape[-1])
        rng = self.rng(5, int(state.step))
        rank = rng.permuted(np.tile(np.arange(len(self.places)), (len(flat), 1)), axis=1)
        return taken(self.places, flat, rank).reshape(at.shape)

    def _draws(self, at: np.ndarray, energies: np.ndarray) -> Arrays:
        """Return points (chain, draw, d) as rows of the records (draw, chain, rung, ...)."""
        tree = jax.vmap(jax.vmap(self.unravel))(jnp.asarray(at.swapaxes(0, 1), self.dtype))
        draws = {"energy": energies.T[:, :, None]}
        if self.run.keep_draws:
            for name, leaf in zip(trees.leaf_names(tree), jax.tree.leaves(tree), strict=True):
                draws[f"params.{name}"] = np.asarray(leaf)[:, :, None]
        return draws

    def _share(self, state: State, count: int) -> float:
        """Return how many evaluations of all rows a sweep took, at so many points."""
        seen = int(state.estimated_from) or self.rows.num_rows
        return count * seen / self.rows.num_rows


def _finite_or_far(energy: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(energy), energy, np.inf)


def decide(
    weight: np.ndarray, weights: np.ndarray, threshold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the places (chain, n) of the paths through proposals of these weights (chain, n), 0
    being the state before, and at which of them a chain moved."""
    chains, n = weights.shape
    place, path, moved = (
        np.zeros(chains, int),
        np.zeros((chains, n), int),
        np.zeros((chains, n), bool),
    )
    weight = weight.copy()
    for i in range(n):
        accepts = (weights[:, i] + threshold[:, i] > weight) & (weights[:, i] > -np.inf)
        place, weight = np.where(accepts, i + 1, place), np.where(accepts, weights[:, i], weight)
        path[:, i], moved[:, i] = place, accepts
    return path, moved
