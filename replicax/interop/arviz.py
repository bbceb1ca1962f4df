"""Posteriors as ArviZ data."""

from typing import Any

import jax
import numpy as np

from replicax.interop.extras import import_extra


def to_arviz(posterior: Any) -> Any:
    """Return ArviZ data with groups `posterior` and `sample_stats`; dims (chain, draw, ...)."""
    from replicax.run.pytrees import leaf_names

    arviz = import_extra("arviz", "arviz", "to_arviz")
    draws = posterior.draws
    named = dict(zip(leaf_names(draws), map(np.asarray, jax.tree.leaves(draws)), strict=True))
    stats = {"energy": posterior.energies, "lp": -posterior.energies}
    if int(arviz.__version__.split(".")[0]) >= 1:
        return arviz.from_dict({"posterior": named, "sample_stats": stats})
    return arviz.from_dict(posterior=named, sample_stats=stats)
