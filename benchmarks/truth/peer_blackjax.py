"""BlackJAX: tempered SMC and nested slice sampling on all rows, and SGLD on mini-batches."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from judge import judge
from peer import (
    CHAINS,
    MOST_DRAWS,
    Base,
    PeerRun,
    compiled,
    evidence_of,
    flat,
    flat_starts,
    missing,
    rounded,
    thinned,
    unflatten,
)
from target import Target

_TOLERANCE = 1.3  # times the processor time given; a run that took more is repeated, shorter
_PILOT, _MOVES, _LEAPFROG, _ESS = 200, 10, 5, 0.7
_RATES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)  # of SGLD
_CHUNK, _THIN = 1_000, 10
_LIVE, _DELETED, _LEFT = 100, 10, -3.0  # live points of a pilot; one in so many is replaced at once


def tempered_smc(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run adaptive tempered SMC four times, with HMC moves.

    It begins with a Gaussian of the spread of the starts; step sizes are tuned by stage.
    """
    try:
        import blackjax
        from blackjax.smc import adaptive_tempered, resampling
    except ImportError as error:
        raise missing(error, "blackjax") from error
    unravel, size = flat(target)
    base = Base(target)
    kernel = adaptive_tempered.build_kernel(
        base.log_density, _log_ratio(target, base), blackjax.hmc.build_kernel(),
        blackjax.hmc.init, resampling.systematic, _ESS,
    )  # fmt: skip

    def stage(key, state, step_size):
        variance = jnp.var(state.particles, axis=0) + 1e-10
        settings = dict(step_size=step_size[None], inverse_mass_matrix=variance[None],
                        num_integration_steps=jnp.array([_LEAPFROG]))  # fmt: skip
        state, info = kernel(key, state, _MOVES, settings)
        accepted = jnp.nan_to_num(info.update_info.acceptance_rate).mean()
        return state, step_size * jnp.exp(2 * (accepted - 0.7)), info.log_likelihood_increment

    def prepare(particles: int) -> tuple[Callable, float]:
        """A run of one stage compiles what lies outside of the program."""
        began = time.process_time()
        state = blackjax.smc.tempered.init(jnp.zeros((particles, size)))
        program, _ = compiled(stage, jax.random.key(0), state, jnp.array(0.2))
        once(program, particles, seed + 50, most_stages=1)
        stuck.clear()
        return program, time.process_time() - began

    def once(
        program: Callable, particles: int, seed: int, most_stages: int = 10_000
    ) -> tuple[np.ndarray, float, int, float]:
        began, key, stages, evidence = time.process_time(), jax.random.key(seed), 0, 0.0
        state = blackjax.smc.tempered.init(base.draw(key, particles))
        step_size = jnp.array(0.2)
        while (
            state.tempering_param < 1
            and stages < most_stages
            and time.process_time() - began < seconds
        ):
            key, now = jax.random.split(key)
            state, step_size, grown = program(now, state, step_size)
            stages, evidence = stages + 1, evidence + float(grown)
        chosen = resampling.systematic(key, state.weights, particles)
        unfinished = bool(state.tempering_param < 1)
        if unfinished:
            stuck.append(float(state.tempering_param))
        spent = time.process_time() - began
        return np.asarray(state.particles[chosen]), spent, stages, evidence

    stuck: list[float] = []
    program, compiling = prepare(_PILOT)
    cost = once(program, _PILOT, seed + 51)[1] / _PILOT
    for _attempt in range(3):  # more particles may cost more each
        particles = rounded(seconds / CHAINS / cost, _PILOT, MOST_DRAWS)
        program, again = prepare(particles)
        compiling = max(compiling, again)  # of the pilot's number it is there already
        stuck.clear()
        runs = [once(program, particles, seed * CHAINS + i) for i in range(CHAINS)]
        spent = sum(run[1] for run in runs)
        cost = spent / CHAINS / particles
        if spent < _TOLERANCE * seconds or particles == _PILOT:
            break
    draws = unflatten(unravel, np.stack([run[0] for run in runs]))
    warned = tuple(f"stopped at inverse temperature {value:.2g}" for value in stuck[:1])
    stages = sum(run[2] for run in runs)
    note = f"{particles} particles, {stages / CHAINS:.0f} stages"
    evidence = evidence_of([run[3] for run in runs])
    return PeerRun(draws, warned, spent, compiling, stages, note, log_evidence=evidence)


def _log_ratio(target: Target, base: Base) -> Callable[[jax.Array], jax.Array]:
    """Return the function of a vector that a base has to be multiplied with, as a logarithm."""
    unravel, _ = flat(target)
    return lambda x: -target.potential(unravel(x)) - base.log_density(x)


def nested_slices(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run nested slice sampling four times, as its documentation advises: twice as many slices as
    dimensions for each new point, until the live points have less than exp(-3) of the evidence.

    It begins with a Gaussian of the spread of the starts, as a prior.
    """
    try:
        import blackjax
    except ImportError as error:
        raise missing(error, "blackjax") from error
    unravel, size = flat(target)
    base = Base(target)
    log_ratio = _log_ratio(target, base)

    def prepare(live: int) -> tuple[Callable, Any, float]:
        began = time.process_time()
        sampler = blackjax.nss(base.log_density, log_ratio, max(5, 2 * size), live // _DELETED)
        start = jax.jit(lambda key: sampler.init(base.draw(key, live)))
        program, _ = compiled(sampler.step, jax.random.key(0), start(jax.random.key(0)))
        nest(program, start, seed + 50, most_steps=2)
        return program, start, time.process_time() - began

    program, start, compiling = prepare(_LIVE)
    cost = nest(program, start, seed + 51).seconds / _LIVE
    live = rounded(seconds / CHAINS / cost, _LIVE, MOST_DRAWS)
    program, start, again = prepare(live)
    compiling = max(compiling, again)
    runs = [nest(program, start, seed * CHAINS + i, seconds) for i in range(CHAINS)]
    count = min(MOST_DRAWS, *(run.effective for run in runs))
    rng = np.random.default_rng(seed)
    draws = unflatten(unravel, np.stack([run.draw(rng, count) for run in runs]))
    warned = () if all(run.is_done for run in runs) else ("stopped before its end",)
    steps = sum(run.steps for run in runs)
    return PeerRun(
        draws, warned, sum(run.seconds for run in runs), compiling, steps,
        f"{live} live points, {steps / CHAINS:.0f} steps",
        log_evidence=evidence_of([run.log_evidence for run in runs]),
    )  # fmt: skip


@dataclass(frozen=True)
class Nest:
    """All points of a run, live ones last, with their weights."""

    points: np.ndarray  # (point, d)
    weights: np.ndarray  # sum to 1
    log_evidence: float
    seconds: float
    steps: int
    is_done: bool

    @property
    def effective(self) -> int:
        """The number of points as Kish counts them."""
        return max(int(1 / np.sum(self.weights**2)), 2)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """Return points in proportion to their weights, in random order."""
        places = (np.arange(count) + rng.random()) / count
        chosen = np.searchsorted(np.cumsum(self.weights), places)
        return self.points[rng.permutation(np.minimum(chosen, len(self.points) - 1))]


def nest(
    program: Callable, start: Callable, seed: int, seconds: float = np.inf, most_steps: int = 10**6
) -> Nest:
    """Delete the worst points and replace them until little evidence is left in the live ones."""
    from blackjax.ns.utils import finalise, log_weights

    began, key, steps, dead = time.process_time(), jax.random.key(seed), 0, []
    state = start(key)
    left = np.inf
    while left > _LEFT and steps < most_steps and time.process_time() - began < seconds:
        key, now = jax.random.split(key)
        state, info = program(now, state)
        dead.append(info)
        steps += 1
        left = float(state.integrator.logZ_live - state.integrator.logZ)
    spent = time.process_time() - began  # what follows compiles for each number of steps
    every = finalise(state, dead, update_info=False)
    log_weight = np.asarray(log_weights(key, every), float)
    log_weight = np.where(np.isfinite(log_weight), log_weight, -np.inf)
    top = log_weight.max()
    weight = np.exp(log_weight - top).mean(axis=1)
    evidence = top + float(np.log(weight.sum()))
    points = np.asarray(every.particles.position, float)
    return Nest(points, weight / weight.sum(), evidence, spent, steps, left <= _LEFT)


def sgld(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run as many SGLD chains side by side as replicax has replicas, a third of it for burn-in.

    SGLD has no exchange. Its learning rate is the best of a list, found in short runs that are
    judged by the known answer: more than a user could do.
    """
    try:
        import blackjax
    except ImportError as error:
        raise missing(error, "blackjax") from error
    unravel, _ = flat(target)
    num_chains, noisy_gradient = CHAINS * target.num_replicas, target.gradient_estimator()
    step = blackjax.sgld(lambda x, key: -noisy_gradient(x, key)).step

    def chunk(key, states, rate):
        def move(states, key):
            both = jax.vmap(jax.random.split)(jax.random.split(key, num_chains))
            move_all = jax.vmap(step, (0, 0, 0, None))
            return move_all(both[:, 0], states, both[:, 1], rate), None

        def some_moves(states, key):
            states, _ = jax.lax.scan(move, states, jax.random.split(key, _THIN))
            return states, states

        return jax.lax.scan(some_moves, states, jax.random.split(key, _CHUNK // _THIN))

    first = flat_starts(target, seed, num_chains)
    program, compiling = compiled(chunk, jax.random.key(0), first, jnp.array(0.1))

    def run(rate: float, seconds: float, seed: int) -> tuple[Any, float, int]:
        key, states, draws, began = jax.random.key(seed), first, [], time.process_time()
        while time.process_time() - began < seconds or len(draws) < 3:
            key, now = jax.random.split(key)
            states, seen = jax.block_until_ready(program(now, states, jnp.array(rate)))
            draws.append(np.asarray(seen))
        spent, steps = time.process_time() - began, len(draws) * _CHUNK
        kept = np.moveaxis(np.concatenate(draws[len(draws) // 3 :]), 1, 0)
        kept = thinned(kept, MOST_DRAWS * CHAINS // num_chains)
        return unflatten(unravel, kept), spent, steps

    scores = {}
    for rate in _RATES:
        draws, _, _ = run(rate, seconds / 16, seed + 100)
        if all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(draws)):
            scores[rate] = judge(target, draws).badness
    best = min(scores, key=lambda rate: scores[rate])
    draws, spent, steps = run(best, seconds, seed)
    note = f"learning rate {best:g}, the best of {len(_RATES)}"
    return PeerRun(draws, (), spent, compiling, CHAINS * steps, note)
