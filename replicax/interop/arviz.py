"""Runs as ArviZ data: draws, sampler statistics, log likelihoods and observed data."""

from typing import Any

import jax
import numpy as np

from replicax.interop.extras import import_extra
from replicax.version import __version__

_ABOUT = "schedule", "rule", "window", "kernel"  # of the run, in the attributes of its groups
Variables = dict[str, tuple[list[str], np.ndarray]]  # dimensions and values, by name


def to_arviz(posterior: Any, log_likelihood: bool = True) -> Any:
    """Return a run as ArviZ data, for `az.summary`, `az.plot_trace`, `az.loo` and the like.

    Groups: `posterior` has the draws by their paths in the tree of parameters; `sample_stats`, for
    each draw, its energy, the rung of every replica and the ladder, and the swap and restart rates
    of the run. For `rx.bayesian` posteriors whose target is known, `log_likelihood` has a value for
    each row (unless disabled), and `observed_data` the rows.
    """
    arviz = import_extra("arviz", "arviz", "to_arviz")
    from xarray import Dataset

    target = posterior._target
    groups = {"posterior": _draws(posterior), "sample_stats": _stats(posterior)}
    rows = getattr(getattr(target, "batches", None), "data", None)
    if hasattr(target, "pointwise") and rows is not None:
        if log_likelihood and posterior.num_draws and posterior.metadata.resolved.keep_draws:
            name = next(iter(target.observed), "rows") if target.observed else "rows"
            values = posterior.log_likelihood()
            groups["log_likelihood"] = {name: (["chain", "draw", "row"], values)}
        groups["observed_data"] = _observed(target, rows)
    about = {
        "inference_library": "replicax",
        "inference_library_version": __version__,
        **{name: getattr(posterior.metadata.resolved, name) for name in _ABOUT},
    }
    made = {
        name: Dataset(variables, attrs=about).assign_coords(_coordinates(variables))
        for name, variables in groups.items()
    }
    if int(arviz.__version__.split(".")[0]) >= 1:
        from xarray import DataTree

        return DataTree.from_dict(made)
    return arviz.InferenceData(**made)


def _draws(posterior: Any) -> Variables:
    from replicax.run.trees import leaf_names

    if not posterior.metadata.resolved.keep_draws:
        return {}
    draws, known = posterior.draws, getattr(posterior._target, "dims", None) or {}
    return {
        name: (["chain", "draw", *_dims(name, values.shape[2:], known)], values)
        for name, values in zip(leaf_names(draws), map(np.asarray, jax.tree.leaves(draws)))
    }


def _dims(name: str, shape: tuple[int, ...], known: dict[str, list[str | None]]) -> list[str]:
    """Return the names of the axes of a variable: known names, or its path and a number."""
    own = [f"{name}_dim_{number}" for number in range(len(shape))]
    known_names = known.get(name, [None] * len(shape))
    return [dim or default for dim, default in zip(known_names, own, strict=True)]


def _stats(posterior: Any) -> Variables:
    draw, rung, pair = ["chain", "draw"], ["chain", "rung"], ["chain", "pair"]
    energies = posterior.energies
    stats: Variables = {
        "energy": (draw, energies),
        "diverging": (draw, ~np.isfinite(energies)),
        "verdict_rate": (pair, posterior.verdict_rate),
        "window_swap_rate": (pair, posterior.window_swap_rate),
        "restart_rate": (rung, posterior.restart_rate),
        "round_trips": (["chain"], posterior.round_trips),
    }
    if not posterior.metadata.resolved.tempers_likelihood:  # whose energy has no prior
        stats["lp"] = draw, -energies
    if posterior.acceptance is not None:
        stats["acceptance_rate"] = rung, posterior.acceptance
    steps = posterior.draw_steps
    if len(steps) == posterior.num_draws > 0:  # else draws are not a fixed number of steps apart
        stats["step"] = ["draw"], steps
        stats["rung_of"] = [*draw, "replica"], posterior.rung_of[:, steps]
        stats |= _ladder(posterior, steps)
    return stats


def _ladder(posterior: Any, steps: np.ndarray) -> Variables:
    """Return the ladder at each draw, as of the latest point of the history."""
    history = posterior.history
    if not len(history["step"]):
        return {}
    point = np.searchsorted(history["step"], steps + 1, side="right") - 1
    point = np.maximum(point, 0)  # before the first point there is none
    return {
        "learning_rate": (["chain", "draw", "rung"], history["learning_rate"][:, point]),
        "temperature": (["chain", "draw", "rung"], history["temperature"][:, point]),
        "buffer": (["chain", "draw"], history["buffer"][:, point]),
    }


def _observed(target: Any, rows: Any) -> Variables:
    """Return the observed values by name, rows on the first axis."""
    from replicax.run.trees import leaf_names

    if target.observed:
        named = {name: np.asarray(values) for name, values in target.observed.items()}
    else:
        leaves = map(np.asarray, jax.tree.leaves(rows))
        names = (f"rows.{name}" if name != "params" else "rows" for name in leaf_names(rows))
        named = dict(zip(names, leaves))
    count = target.num_rows

    def dims(name: str, shape: tuple[int, ...]) -> list[str]:
        own = _dims(name, shape, {})
        return ["row", *own[1:]] if shape and shape[0] == count else own

    return {name: (dims(name, values.shape), values) for name, values in named.items()}


def _coordinates(variables: Variables) -> dict[str, np.ndarray]:
    sizes = [zip(dims, values.shape) for dims, values in variables.values()]
    return {dim: np.arange(size) for part in sizes for dim, size in part}
