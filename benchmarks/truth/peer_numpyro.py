"""NumPyro's NUTS, which needs nothing from its user."""

import time
from typing import Any

import jax
import numpy as np
from peer import CHAINS, PeerRun, compiled, missing, rounded, said, starts, thinned
from target import Target

_CHUNK = 50  # transitions between two looks at the clock
_PILOT = 200  # of a short warm-up, which tells the time of a transition
_FEWEST, _MOST = 100, 20_000  # transitions of a warm-up


def nuts(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run NUTS with its own adaptation for about half of the time, chain after chain."""
    try:
        from numpyro.diagnostics import split_gelman_rubin
        from numpyro.infer import NUTS
    except ImportError as error:
        raise missing(error, "numpyro") from error

    def prepare(num_warmup: int, seed: int) -> tuple[Any, list, float]:
        """The number of warm-up transitions is part of the program."""
        began = time.process_time()
        kernel = NUTS(potential_fn=target.potential, dense_mass=True)
        places, keys = starts(target, seed, CHAINS), jax.random.split(jax.random.key(seed), CHAINS)
        pick = lambda chain: jax.tree.map(lambda leaf: leaf[chain], places)  # noqa: E731
        states = [kernel.init(keys[i], num_warmup, pick(i), (), {}) for i in range(CHAINS)]

        def transition(state, _):
            state = kernel.sample(state, (), {})
            return state, (state.z, state.diverging, state.num_steps)

        chunk = lambda state: jax.lax.scan(transition, state, length=_CHUNK)  # noqa: E731
        program, _ = compiled(chunk, states[0])
        return program, states, time.process_time() - began

    def advance(chain: int) -> Any:
        states[chain], seen = jax.block_until_ready(program(states[chain]))
        return jax.tree.map(np.asarray, seen)

    program, states, _ = prepare(_PILOT, seed + 100)
    began = time.process_time()
    for chain in range(CHAINS):
        for _ in range(_PILOT // _CHUNK):
            advance(chain)
    each = (time.process_time() - began) / (CHAINS * _PILOT)
    num_warmup = rounded(seconds / 2 / CHAINS / each, _FEWEST, _MOST)
    program, states, compiling = prepare(num_warmup, seed)
    began, rounds = time.process_time(), []
    for chain in range(CHAINS):
        for _ in range(num_warmup // _CHUNK):
            advance(chain)
    tuning = time.process_time() - began
    while time.process_time() - began < seconds or len(rounds) < 2:
        rounds.append([advance(chain) for chain in range(CHAINS)])
    spent = time.process_time() - began
    of_chains = [jax.tree.map(lambda *parts: np.concatenate(parts), *own) for own in zip(*rounds)]
    draws, diverging, leaps = jax.tree.map(lambda *parts: np.stack(parts), *of_chains)
    rhat = max(float(np.max(split_gelman_rubin(leaf))) for leaf in jax.tree.leaves(draws))
    iterations = CHAINS * (num_warmup + len(rounds) * _CHUNK)
    note = f"{num_warmup} warm-up transitions, then {leaps.mean():.0f} leapfrog steps in each"
    draws = jax.tree.map(thinned, draws)
    warned = said(rhat, int(diverging.sum()))
    return PeerRun(draws, warned, spent, compiling, iterations, note, tuning)
