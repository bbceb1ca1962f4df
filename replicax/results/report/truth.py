"""Comparison of draws with the truth, if it is known from the run's note or given by the user."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from replicax import targets
from replicax.errors import choose, show
from replicax.page import charts
from replicax.page.content import Chart, Section, Table
from replicax.results import diagnostics
from replicax.run import plain

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

Truth = dict[str, np.ndarray]  # exact draws, or one value, by component

# The target that the command line noted, and the truth about it.
_NOTED = {"replicax.demo:target": "modes25"}
_EXACT_DRAWS = 100_000
_FAR = 4.0  # standard errors


def as_truth(posterior: "Posterior", truth: Any) -> Truth:
    """Return exact draws or values by component: those given, or those of a target with known
    truth.

    `truth` is "modes25"; draws in the tree of the parameters, with a leading axis; or a dict from
    names of components to draws or numbers.
    """
    components, truth = posterior.components(), _name_of(posterior, truth)
    if truth is None or not components:
        return {}
    if isinstance(truth, str):
        choose("truth", truth, set(_NOTED.values()))
        truth = targets.modes25_draws(np.random.default_rng(0), _EXACT_DRAWS)
    if isinstance(truth, dict) and set(truth) <= set(components):
        known = {name: _numbers(name, values) for name, values in truth.items()}
    else:
        known = _from_tree(posterior, truth)
    return {name: known[name] for name in components if name in known}


def _name_of(posterior: "Posterior", truth: Any) -> Any:
    """Return the given truth, or the name of the one that the run's note implies."""
    note = posterior.metadata.note.get("target")
    if truth is not None or not isinstance(note, dict):
        return truth
    return _NOTED.get(str(note.get("target")))


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values, float).reshape(-1)
    except (TypeError, ValueError):
        raise ValueError(f"truth has {show(values)} for {name}; give draws or a number.") from None


def _from_tree(posterior: "Posterior", truth: Any) -> Truth:
    spec = posterior.metadata.params
    leaves = jax.tree.leaves(truth)
    known: Truth = {}
    if tuple(np.shape(leaf)[1:] for leaf in leaves) != spec.shapes:
        raise ValueError(
            "truth differs from the parameters in structure or shapes; give exact draws like "
            "posterior.draws, with a draw axis and no chain axis, or a dict with some of the names "
            f"{', '.join(list(posterior.components())[:5])}."
        )
    for name, leaf in zip(spec.names, leaves, strict=True):
        flat = np.asarray(leaf, float).reshape(len(leaf), -1)
        known |= zip(plain.component_names(name, np.shape(leaf)[1:]), flat.T)
    return known


def truth_section(posterior: "Posterior", given: Any, truth: Truth) -> Section | None:
    """Return the comparison of means and spreads, and of mode masses for the 25 modes; `truth` is
    the result of `as_truth` for the user's `given`."""
    if not truth:
        return None
    components = posterior.components()
    rows = [_row(name, components[name], exact) for name, exact in truth.items()]
    far = sum("far" in cell for row in rows for cell in row)
    words = f"{far} means and variances are more than {_FAR:g} standard errors from the truth."
    if not far:
        words = f"All means and variances are within {_FAR:g} standard errors of the truth."
    head = ("parameter", "mean", "true mean", "errors away", "std", "true std", "errors away")
    parts: list[Any] = [words, Table(head, rows, "Draws beside the truth")]
    name = _name_of(posterior, given)
    if isinstance(name, str) and name == "modes25":
        parts.append(_mode_masses(posterior))
    return Section("truth", "Against the truth", parts)


def _row(name: str, values: np.ndarray, exact: np.ndarray) -> tuple[str, ...]:
    values = np.asarray(values, float)
    mean = (f"{values.mean():.4g}", f"{exact.mean():.4g}", _away(values, exact.mean()))
    if len(exact) == 1:
        return (name, *mean, f"{values.std():.4g}", "", "")
    squares = (values - exact.mean()) ** 2
    spread = (f"{values.std():.4g}", f"{exact.std():.4g}", _away(squares, exact.var()))
    return (name, *mean, *spread)


def _away(values: np.ndarray, true_mean: float) -> str:
    """Return the error of the mean of (chain, draw) in standard errors."""
    error = values.std() / np.sqrt(max(diagnostics.effective_size(values), 1.0))
    away = (values.mean() - true_mean) / error if error > 0 else np.nan
    return f"{away:.1f}{', far' if abs(away) > _FAR else ''}"


def _mode_masses(posterior: "Posterior") -> Chart:
    draws, truth = posterior.draws, targets.modes25_truth()
    masses, distance = targets.mode_masses(draws), targets.mode_distance(draws, truth)
    order = np.lexsort((np.arange(25), -truth[:25].round(6)))
    names = ["{:.0f}, {:.0f}".format(*targets.MODES[mode]) for mode in order]
    traces = [
        charts.bars(names, masses[order], charts.CHAINS[0], "sampled"),
        charts.points(
            names,
            truth[order],
            charts.INK,
            "truth",
            10,
            marker={"symbol": "line-ew-open", "line": {"width": 2}},
        ),
    ]
    rows = [(name, f"{masses[mode]:.4f}", f"{truth[mode]:.4f}") for name, mode in zip(names, order)]
    words = f"Masses of the 25 modes; their total variation from the truth is {distance:.3f}."
    figure = charts.figure(traces, "mode x, y (heaviest first)", "mass", xaxis={"type": "category"})
    table = Table(("mode", "sampled", "truth"), rows)
    return Chart("masses", "Mass of every mode", words, {"": figure}, table, words, wide=True)
