"""NumPyro's NUTS, which needs nothing from its user; and the best of its layouts."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from judge import effective_size
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


_WARMUPS = (150, 300, 600)
_ENOUGH = 1_000  # effective draws
_LONGEST = 60.0  # seconds of one layout


def best_nuts(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run NUTS in all layouts, chains in turns and side by side with some lengths of the warm-up,
    each until it has 1,000 effective draws; return that which had them first.

    Its user would have to know which layout that is.
    """
    try:
        from numpyro.infer import NUTS
    except ImportError as error:
        raise missing(error, "numpyro") from error
    layouts = [(side, num_warmup) for side in (False, True) for num_warmup in _WARMUPS]
    best, most = None, max(seconds, _LONGEST)
    for side_by_side, num_warmup in layouts:
        kernel = NUTS(potential_fn=target.potential, dense_mass=True)
        found = _until_enough(kernel, target, seed, num_warmup, side_by_side, most)
        if best is None or (not found.warnings, -found.seconds) > (
            not best.warnings,
            -best.seconds,
        ):
            best, most = found, min(most, found.seconds) if not found.warnings else most
    return best


def _until_enough(
    kernel: Any, target: Target, seed: int, num_warmup: int, side_by_side: bool, most: float
) -> PeerRun:
    """Run four chains until they have enough effective draws, or for so many seconds."""
    from numpyro.diagnostics import split_gelman_rubin

    began = time.process_time()
    places, keys = starts(target, seed, CHAINS), jax.random.split(jax.random.key(seed), CHAINS)
    pick = lambda chain: jax.tree.map(lambda leaf: leaf[chain], places)  # noqa: E731
    states = [kernel.init(keys[i], num_warmup, pick(i), (), {}) for i in range(CHAINS)]

    def transition(state, _):
        state = kernel.sample(state, (), {})
        return state, (state.z, state.diverging)

    chunk = lambda state: jax.lax.scan(transition, state, length=_CHUNK)  # noqa: E731
    if side_by_side:
        states = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)]
        chunk = jax.vmap(chunk)
    program, _ = compiled(chunk, states[0])
    compiling = time.process_time() - began

    def advance() -> Any:
        """Return the places of all chains, and which diverged  (chain, transition, ...)."""
        seen = []
        for number, state in enumerate(states):
            states[number], now = jax.block_until_ready(program(state))
            seen.append(now if side_by_side else jax.tree.map(lambda leaf: leaf[None], now))
        return jax.tree.map(lambda *parts: np.concatenate(parts), *seen)

    began, rounds, looked = time.process_time(), [], 0.0
    for _ in range(num_warmup // _CHUNK):
        if time.process_time() - began < most:
            advance()
    tuning = time.process_time() - began
    size = rhat = 0.0
    while not rounds or (size < _ENOUGH and time.process_time() - began - looked < most):
        rounds.append(advance())
        look = time.process_time()  # what looking at the draws takes is not counted
        draws, diverging = jax.tree.map(lambda *parts: np.concatenate(parts, 1), *rounds)
        values, _ = target.evaluate(draws)
        size = min(effective_size(np.asarray(value, float)) for value in values.values())
        rhat = max(float(np.max(split_gelman_rubin(leaf))) for leaf in jax.tree.leaves(draws))
        looked += time.process_time() - look
    spent = time.process_time() - began - looked
    layout = "side by side" if side_by_side else "one after another"
    short = () if size >= _ENOUGH else (f"{size:.0f} effective draws",)
    iterations = CHAINS * (num_warmup + len(rounds) * _CHUNK)
    return PeerRun(
        draws, (*said(rhat, int(diverging.sum())), *short), spent, compiling, iterations,
        f"{layout}, {num_warmup} warm-up transitions", tuning,
    )  # fmt: skip
