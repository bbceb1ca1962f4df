"""A posterior for other tools: ArviZ."""

from typing import Any

import jax
import numpy as np


def to_arviz(posterior: Any) -> Any:
    """ArviZ data with groups `posterior` and `sample_stats`; dims (chain, draw, ...)."""
    try:
        import arviz
    except ImportError as error:
        raise ImportError(
            'to_arviz() needs ArviZ: install it with pip install "replicax[arviz]".'
        ) from error
    from replicax.run.pytrees import leaf_names

    draws = posterior.draws
    named = dict(zip(leaf_names(draws), map(np.asarray, jax.tree.leaves(draws)), strict=True))
    stats = {"energy": posterior.energies, "lp": -posterior.energies}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": named, "sample_stats": stats})
    return arviz.from_dict(posterior=named, sample_stats=stats)
