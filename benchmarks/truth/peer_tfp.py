"""TensorFlow Probability's ReplicaExchangeMC.

Its user chooses a ladder: here the number of rungs and the hottest temperature that replicax found.
"""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from peer import (
    CHAINS,
    PeerRun,
    compiled,
    flat,
    flat_starts,
    missing,
    said,
    thinned,
    unflatten,
)
from target import Target

_CHUNK, _LEAPFROG, _ACCEPTANCE = 50, 8, 0.75
_HOTTEST = 1_000.0  # a geometric ladder cannot reach the prior itself


def replica_exchange(
    target: Target, seconds: float, seed: int = 0, hottest: float = 100.0, **_: Any
) -> PeerRun:
    """Run HMC on every rung of a geometric ladder, step sizes tuned in the first half."""
    try:
        from tensorflow_probability.substrates.jax import mcmc
    except ImportError as error:
        raise missing(error, "tensorflow_probability") from error
    unravel, size = flat(target)
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
                log_prob, step_size=step_size[:, None, None], num_leapfrog_steps=_LEAPFROG
            ),
        )  # fmt: skip
        states, ratios = mcmc.sample_chain(
            _CHUNK, current_state=state, kernel=kernel, seed=key,
            trace_fn=lambda _, results: results.pre_swap_replica_results.log_accept_ratio,
        )  # fmt: skip
        accepted = jnp.nan_to_num(jnp.exp(jnp.minimum(ratios, 0.0)))
        return states[:, 0], states[-1], accepted.mean((0, 2))

    def advance(key, state, step_size):
        key, now = jax.random.split(key)
        cold, state, accepted = jax.block_until_ready(program(now, state, step_size))
        return key, state, np.asarray(cold), step_size * jnp.exp(accepted - _ACCEPTANCE)

    state = flat_starts(target, seed, rungs * CHAINS).reshape(rungs, CHAINS, size)
    step_size, key = 0.05 / jnp.sqrt(betas), jax.random.key(seed)
    began = time.process_time()
    program, _ = compiled(chunk, key, state, step_size)
    advance(key, state, step_size)  # compiles what lies outside of the program
    compiling = time.process_time() - began
    began, tuning, draws, chunks = time.process_time(), 0.0, [], 0
    while (spent := time.process_time() - began) < seconds or len(draws) < 2:
        key, state, cold, tuned = advance(key, state, step_size)
        chunks += 1
        if spent < seconds / 2:
            step_size, tuning = tuned, time.process_time() - began
        else:
            draws.append(cold)
    spent = time.process_time() - began
    cold = np.concatenate(draws)
    rhat = float(np.max(mcmc.potential_scale_reduction(jnp.asarray(cold), split_chains=True)))
    kept = unflatten(unravel, thinned(np.moveaxis(cold, 0, 1)))
    iterations = CHAINS * _CHUNK * chunks
    return PeerRun(kept, said(rhat), spent, compiling, iterations, "", tuning)
