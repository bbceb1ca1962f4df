"""BlackJAX: tempered SMC on all rows, and SGLD on mini-batches."""

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from judge import judge
from peer import (
    CHAINS,
    MOST_DRAWS,
    PeerRun,
    compiled,
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
    spread = flat_starts(target, 7, 2_000)
    centre, sd = spread.mean(0), spread.std(0) + 1e-3
    base = lambda x: -jnp.sum(((x - centre) / sd) ** 2) / 2  # noqa: E731
    kernel = adaptive_tempered.build_kernel(
        base, lambda x: -target.potential(unravel(x)) - base(x), blackjax.hmc.build_kernel(),
        blackjax.hmc.init, resampling.systematic, _ESS,
    )  # fmt: skip

    def stage(key, state, step_size):
        variance = jnp.var(state.particles, axis=0) + 1e-10
        settings = dict(step_size=step_size[None], inverse_mass_matrix=variance[None],
                        num_integration_steps=jnp.array([_LEAPFROG]))  # fmt: skip
        state, info = kernel(key, state, _MOVES, settings)
        accepted = jnp.nan_to_num(info.update_info.acceptance_rate).mean()
        return state, step_size * jnp.exp(2 * (accepted - 0.7))

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
    ) -> tuple[np.ndarray, float, int]:
        began, key, stages = time.process_time(), jax.random.key(seed), 0
        noise = jax.random.normal(key, (particles, size))
        state, step_size = blackjax.smc.tempered.init(centre + sd * noise), jnp.array(0.2)
        while (
            state.tempering_param < 1
            and stages < most_stages
            and time.process_time() - began < seconds
        ):
            key, now = jax.random.split(key)
            state, step_size = program(now, state, step_size)
            stages += 1
        chosen = resampling.systematic(key, state.weights, particles)
        unfinished = bool(state.tempering_param < 1)
        if unfinished:
            stuck.append(float(state.tempering_param))
        return np.asarray(state.particles[chosen]), time.process_time() - began, stages

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
    return PeerRun(draws, warned, spent, compiling, stages, note)


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
