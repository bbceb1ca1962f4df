"""Other samplers on the same targets: NumPyro's NUTS."""

from typing import Any

import jax
import numpy as np
from target import Target


def starts_of(target: Target, seed: int, count: int = 4) -> Any:
    """Return dispersed starts (chain, ...)."""
    return jax.vmap(target.start)(jax.random.split(jax.random.key(seed), count))


def nuts(target: Target, num_warmup: int, num_draws: int, starts: Any = None, seed: int = 0) -> Any:
    """Return draws (chain, draw, ...) of four chains, from dispersed starts or from near one point."""
    from numpyro.infer import MCMC, NUTS

    if starts is None:
        starts = starts_of(target, seed)
    else:
        near = lambda leaf: np.asarray(leaf) + np.zeros((4,) + (1,) * np.ndim(leaf))  # noqa: E731
        starts = jax.tree.map(near, starts)
    sampler = MCMC(
        NUTS(potential_fn=target.potential, target_accept_prob=0.9),
        num_warmup=num_warmup, num_samples=num_draws, num_chains=4, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(seed), init_params=starts)
    return sampler.get_samples(group_by_chain=True)
