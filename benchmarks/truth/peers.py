"""Other samplers on the same targets, with the same processor time and all rows.

Each gets what its user would have to choose: NUTS nothing; replica exchange the number of rungs
and the hottest temperature that replicax found, and step sizes tuned in the first half; tempered
SMC a Gaussian with the spread of the starts to begin with, and step sizes tuned by stage.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from target import Target

_CHAINS = 4
_MOST_DRAWS = 20_000  # kept of each chain
_TOLERANCE = 1.3  # times the processor time given; a run that took more is repeated, shorter
_HOTTEST = 1_000.0  # a geometric ladder cannot reach the prior itself
_TFP_CHUNK, _TFP_LEAPFROG, _TFP_ACCEPTANCE = 50, 8, 0.75
_SMC_PILOT, _SMC_MOVES, _SMC_LEAPFROG, _SMC_ESS = 200, 10, 5, 0.7
_INSTALL = {
    "numpyro": "pip install numpyro",
    "tensorflow_probability": "pip install tfp-nightly (release 0.25 does not import beside jax"
    " 0.10)",
    "blackjax": "pip install blackjax",
}


@dataclass(frozen=True)
class PeerRun:
    """Draws (chain, draw, ...), what the sampler's own diagnostics said, and processor seconds."""

    draws: Any
    warnings: tuple[str, ...]
    seconds: float  # without compiling
    compile_seconds: float


def _need(error: ImportError, package: str) -> ImportError:
    return ImportError(f"{error}: this needs {package}; {_INSTALL[package]}.")


def _flat(target: Target) -> tuple[Callable[[Any], Any], int]:
    """Return the function from a vector back to parameters, and the length of the vector."""
    vector, unravel = ravel_pytree(target.start(jax.random.key(0)))
    return unravel, vector.size


def _starts(target: Target, seed: int, count: int) -> Any:
    return jax.vmap(target.start)(jax.random.split(jax.random.key(seed), count))


def _flat_starts(target: Target, seed: int, count: int) -> jax.Array:
    return jax.vmap(lambda params: ravel_pytree(params)[0])(_starts(target, seed, count))


def _unflatten(unravel: Callable, draws: np.ndarray) -> Any:
    """From (chain, draw, size) to the tree of the parameters."""
    return jax.tree.map(np.asarray, jax.vmap(jax.vmap(unravel))(jnp.asarray(draws)))


def nuts(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run NumPyro's NUTS, half of the steps for warm-up, from dispersed starts."""
    try:
        from numpyro.diagnostics import split_gelman_rubin
        from numpyro.infer import MCMC, NUTS
    except ImportError as error:
        raise _need(error, "numpyro") from error

    def run(steps: int, seed: int) -> tuple[Any, float]:
        began = time.process_time()
        sampler = MCMC(
            NUTS(potential_fn=target.potential), num_warmup=steps, num_samples=steps,
            num_chains=_CHAINS, chain_method="sequential", progress_bar=False,
        )  # fmt: skip
        starts = _starts(target, seed, _CHAINS)
        sampler.run(jax.random.key(seed), init_params=starts, extra_fields=("diverging",))
        jax.block_until_ready(sampler.get_samples())
        return sampler, time.process_time() - began

    # Two lengths tell the time to compile, which is much the same for both, from that of a step.
    short, long = 50, 250
    of_short, of_long = run(short, seed + 100)[1], run(long, seed + 100)[1]
    per_step = max((of_long - of_short) / (long - short), 1e-5)
    compiling = max(of_short - short * per_step, 0.0)
    for _attempt in range(3):  # steps of a short run may be cheaper
        steps = int(np.clip(seconds / per_step, 50, _MOST_DRAWS))
        sampler, total = run(steps, seed)
        per_step = max(total - compiling, 1e-3) / steps
        if total - compiling < _TOLERANCE * seconds or steps == 50:
            break
    draws = jax.tree.map(np.asarray, sampler.get_samples(group_by_chain=True))
    diverging = int(np.sum(sampler.get_extra_fields()["diverging"]))
    rhat = max(float(np.max(split_gelman_rubin(leaf))) for leaf in jax.tree.leaves(draws))
    return PeerRun(draws, _said(rhat, diverging), total - compiling, compiling)


def _said(rhat: float, diverging: int = 0) -> tuple[str, ...]:
    said = () if rhat <= 1.01 else (f"R-hat is {rhat:.2f}",)
    return said + ((f"{diverging} transitions diverge",) if diverging else ())


def replica_exchange(
    target: Target, seconds: float, seed: int = 0, hottest: float = 100.0, **_: Any
) -> PeerRun:
    """Run TFP's ReplicaExchangeMC: HMC on every rung, a geometric ladder, half for warm-up."""
    try:
        from tensorflow_probability.substrates.jax import mcmc
    except ImportError as error:
        raise _need(error, "tensorflow_probability") from error
    unravel, size = _flat(target)
    rungs = target.num_replicas
    betas = jnp.geomspace(1.0, 1.0 / min(hottest, _HOTTEST), rungs)
    mapped = lambda function: jnp.vectorize(  # noqa: E731
        lambda vector: function(unravel(vector)), signature="(n)->()"
    )
    if target.log_prior is None:
        law = dict(target_log_prob_fn=mapped(target.log_fit))
    else:
        law = dict(target_log_prob_fn=None, tempered_log_prob_fn=mapped(target.log_fit),
                   untempered_log_prob_fn=mapped(target.log_prior))  # fmt: skip

    def chunk(key, state, step_size):
        kernel = mcmc.ReplicaExchangeMC(
            **law, inverse_temperatures=betas, state_includes_replicas=True,
            swap_proposal_fn=mcmc.even_odd_swap_proposal_fn(1.0),
            make_kernel_fn=lambda log_prob: mcmc.HamiltonianMonteCarlo(
                log_prob, step_size=step_size[:, None, None], num_leapfrog_steps=_TFP_LEAPFROG
            ),
        )  # fmt: skip
        states, ratios = mcmc.sample_chain(
            _TFP_CHUNK, current_state=state, kernel=kernel, seed=key,
            trace_fn=lambda _, results: results.pre_swap_replica_results.log_accept_ratio,
        )  # fmt: skip
        accepted = jnp.nan_to_num(jnp.exp(jnp.minimum(ratios, 0.0)))
        return states[:, 0], states[-1], accepted.mean((0, 2))

    state = _flat_starts(target, seed, rungs * _CHAINS).reshape(rungs, _CHAINS, size)
    step_size, key = 0.05 / jnp.sqrt(betas), jax.random.key(seed)
    began = time.process_time()
    compiled = jax.jit(chunk).lower(key, state, step_size).compile()
    compiling = time.process_time() - began
    began, draws = time.process_time(), []
    while (spent := time.process_time() - began) < seconds or len(draws) < 2:
        key, now = jax.random.split(key)
        cold, state, accepted = jax.block_until_ready(compiled(now, state, step_size))
        if spent < seconds / 2:
            step_size = step_size * jnp.exp(accepted - _TFP_ACCEPTANCE)
        else:
            draws.append(np.asarray(cold))
    spent = time.process_time() - began
    cold = np.concatenate(draws)
    rhat = float(np.max(mcmc.potential_scale_reduction(jnp.asarray(cold), split_chains=True)))
    thin = -(-len(cold) // _MOST_DRAWS)
    kept = _unflatten(unravel, np.moveaxis(cold[::thin], 0, 1))
    return PeerRun(kept, _said(rhat), spent, compiling)


def tempered_smc(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run BlackJAX's adaptive tempered SMC four times, with HMC moves."""
    try:
        import blackjax
        from blackjax.smc import adaptive_tempered, resampling
    except ImportError as error:
        raise _need(error, "blackjax") from error
    unravel, size = _flat(target)
    spread = _flat_starts(target, 7, 2_000)
    centre, sd = spread.mean(0), spread.std(0) + 1e-3
    base = lambda x: -jnp.sum(((x - centre) / sd) ** 2) / 2  # noqa: E731
    kernel = adaptive_tempered.build_kernel(
        base, lambda x: -target.potential(unravel(x)) - base(x), blackjax.hmc.build_kernel(),
        blackjax.hmc.init, resampling.systematic, _SMC_ESS,
    )  # fmt: skip

    def stage(key, state, step_size):
        variance = jnp.var(state.particles, axis=0) + 1e-10
        settings = dict(step_size=step_size[None], inverse_mass_matrix=variance[None],
                        num_integration_steps=jnp.array([_SMC_LEAPFROG]))  # fmt: skip
        state, info = kernel(key, state, _SMC_MOVES, settings)
        accepted = jnp.nan_to_num(info.update_info.acceptance_rate).mean()
        return state, step_size * jnp.exp(2 * (accepted - 0.7))

    def prepare(particles: int) -> tuple[Callable, float]:
        began = time.process_time()
        state = blackjax.smc.tempered.init(jnp.zeros((particles, size)))
        program = jax.jit(stage).lower(jax.random.key(0), state, jnp.array(0.2)).compile()
        return program, time.process_time() - began

    def once(program: Callable, particles: int, seed: int) -> tuple[np.ndarray, float]:
        began, key = time.process_time(), jax.random.key(seed)
        noise = jax.random.normal(key, (particles, size))
        state, step_size = blackjax.smc.tempered.init(centre + sd * noise), jnp.array(0.2)
        while state.tempering_param < 1 and time.process_time() - began < seconds:
            key, now = jax.random.split(key)
            state, step_size = program(now, state, step_size)
        chosen = resampling.systematic(key, state.weights, particles)
        unfinished = bool(state.tempering_param < 1)
        if unfinished:
            stuck.append(float(state.tempering_param))
        return np.asarray(state.particles[chosen]), time.process_time() - began

    stuck: list[float] = []
    program, _ = prepare(_SMC_PILOT)
    once(program, _SMC_PILOT, seed + 50)  # the first run is slower
    cost = once(program, _SMC_PILOT, seed + 51)[1] / _SMC_PILOT
    for _attempt in range(3):  # more particles may cost more each
        particles = int(np.clip(seconds / _CHAINS / cost, _SMC_PILOT, _MOST_DRAWS))
        program, compiling = prepare(particles)
        stuck.clear()
        runs = [once(program, particles, seed * _CHAINS + i) for i in range(_CHAINS)]
        spent = sum(run[1] for run in runs)
        cost = spent / _CHAINS / particles
        if spent < _TOLERANCE * seconds or particles == _SMC_PILOT:
            break
    draws = _unflatten(unravel, np.stack([run[0] for run in runs]))
    said = tuple(f"stopped at inverse temperature {value:.2g}" for value in stuck[:1])
    return PeerRun(draws, said, spent, compiling)


PEERS: dict[str, Callable[..., PeerRun]] = {
    "NumPyro NUTS": nuts,
    "TFP ReplicaExchangeMC": replica_exchange,
    "BlackJAX tempered SMC": tempered_smc,
}
