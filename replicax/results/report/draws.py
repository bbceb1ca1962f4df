"""The draws of a run: marginals, maps of two parameters, traces and ranks."""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.page import charts
from replicax.page.content import Chart, Section, Table
from replicax.results.diagnostics import as_draws
from replicax.results.report.truth import Truth

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_MOST_COMPONENTS = 12  # components with charts
_MOST_ROWS = 200  # rows of the table
_TRACE_POINTS = 1000  # points per chain
_MOST_TRACED = 8  # chains
_BINS = 48
_RANK_BINS = 20
_MAPPED = 3  # parameters, each with each


def draw_sections(posterior: "Posterior", summary: dict[str, Any], truth: Truth) -> list[Section]:
    """Return the sections about the draws, none without draws."""
    if posterior.num_draws < 2:
        return []
    components = {**_chosen(posterior, summary), "energy": posterior.energies}
    names = tuple(components)
    marginals = {name: _marginal(name, x, truth.get(name)) for name, x in components.items()}
    traces = {name: _trace(posterior, name, values) for name, values in components.items()}
    ranks = {name: _ranks(values) for name, values in components.items()}
    marginal = Chart("marginals", "Marginal", "Histogram of the draws, by chain", marginals)
    trace = Chart("traces", "Trace", "Draws in their order, by chain", traces, wide=True)
    even = "Flat, up to chance, if all chains have the same distribution."
    if posterior.num_chains == 1:
        even = "Flat, up to chance, if both halves of the run have the same distribution."
    rank = Chart("ranks", "Ranks", "Histogram of the ranks of all draws", ranks, note=even)
    section = Section(
        "draws",
        "Draws",
        [_which(posterior, names), trace, marginal, rank, _table(summary)],
        "Parameter",
        names,
    )
    maps = _maps(components, truth)
    return [section, Section("pairs", "Pairs", list(maps))] if maps else [section]


def _chosen(posterior: "Posterior", summary: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the components with charts: if there are many, those with the smallest effective
    sizes."""
    components = posterior.components()
    sizes = {name: summary["parameters"][name]["effective_size"] for name in components}
    worst = sorted(sizes, key=lambda name: np.nan_to_num(sizes[name], nan=-1.0))
    kept = set(worst[:_MOST_COMPONENTS])
    return {name: values for name, values in components.items() if name in kept}


def _which(posterior: "Posterior", names: tuple[str, ...]) -> str:
    total = posterior.metadata.params.num_elements
    if not posterior.metadata.resolved.keep_draws:
        return "The parameters of draws were not kept, only their energies."
    if total < len(names):
        return f"Draws of the coldest rung: {posterior.num_draws:,} of each chain."
    return (
        f"Draws of the coldest rung: {posterior.num_draws:,} of each chain. Charts show "
        f"{len(names) - 1} of {total:,} parameters, those with the smallest effective size."
    )


def _table(summary: dict[str, Any]) -> Table:
    head = ("parameter", "mean", "std", "R-hat", "over replicas", "effective size", "in the tails")
    rows = []
    for name, row in list(summary["parameters"].items())[:_MOST_ROWS]:
        numbers = (f"{row[key]:.4g}" for key in ("mean", "std"))
        rhats = (_known(row[key], ".3f") for key in ("rhat", "replica_rhat"))
        sizes = (_known(row[key], ",.0f") for key in ("effective_size", "tail_size"))
        rows.append((name, *numbers, *rhats, *sizes))
    return Table(head, rows, "The posterior")


def _known(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def _marginal(name: str, values: np.ndarray, exact: np.ndarray | None) -> dict[str, Any]:
    edges = _edges(values)
    traces = []
    for chain, colour, style in charts.chain_styles(len(values)):
        traces.append(charts.stairs(edges, _density(values[chain], edges), colour, **style))
    if exact is not None and len(exact) > 1:
        heights = _density(exact, edges)
        traces.append(charts.stairs(edges, heights, charts.INK, "truth", line={"dash": "dot"}))
    elif exact is not None:
        top = max(trace["y"].max() for trace in traces)
        traces.append(charts.dashed([exact[0]] * 2, [0, top], "truth"))
    return charts.figure(traces, name, "density")


def _edges(values: np.ndarray) -> np.ndarray:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.linspace(0, 1, 11)
    num_bins = int(np.clip(2 * np.sqrt(values.shape[1]), 10, 60))
    return np.histogram_bin_edges(finite.astype(float), num_bins)


def _density(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    finite = values[np.isfinite(values)]
    return np.histogram(finite, edges)[0] / max(finite.size, 1) / np.diff(edges)


def _trace(posterior: "Posterior", name: str, values: np.ndarray) -> dict[str, Any]:
    num_chains, num_draws = values.shape
    kept = np.arange(0, num_draws, -(-num_draws // _TRACE_POINTS))
    steps = posterior.draw_steps
    x = steps[kept] if len(steps) == num_draws else kept
    size = float(np.clip(90 / np.sqrt(len(kept)), 2.5, 6))
    styles = itertools.islice(charts.chain_styles(num_chains), _MOST_TRACED)
    traces = [
        charts.points(x, values[chain, kept], colour, size=size, **style)
        for chain, colour, style in styles
    ]
    legend = {"itemsizing": "constant"}  # points are small
    return charts.figure(traces, "step" if x is not kept else "draw", name, legend=legend)


def _ranks(values: np.ndarray) -> dict[str, Any]:
    """Return histograms of the ranks among all draws, by chain, or by half of the run for a single
    chain."""
    values = as_draws(values)
    if len(values) == 1:
        half = values.shape[1] // 2
        values = np.stack([values[0, :half], values[0, -half:]])
        names = ["first half", "second half"]
    else:
        names = [f"chain {chain}" for chain in range(len(values))]
    order = values.ravel().argsort(kind="stable").argsort().reshape(values.shape)
    ranks = (order + 0.5) / values.size
    edges = np.linspace(0, 1, _RANK_BINS + 1)
    styles = list(charts.chain_styles(len(values)))
    traces = [
        charts.stairs(edges, np.histogram(ranks[i], edges)[0] / values.shape[1] * _RANK_BINS,
                      colour, **{**style, **({"name": names[i]} if "name" in style else {})})
        for i, colour, style in styles
    ]  # fmt: skip
    traces.append(charts.dashed([0, 1], [1, 1], "even"))
    y = {"rangemode": "tozero"}
    return charts.figure(traces, "rank among all draws", "relative frequency", yaxis=y)


def _maps(components: dict[str, np.ndarray], truth: Truth) -> list[Chart]:
    """Return maps of all pairs of the first parameters, with the truth if it is known."""
    names = [name for name in components if name != "energy"][:_MAPPED]
    maps = []
    for place, (one, other) in enumerate(itertools.combinations(names, 2)):
        x, y = components[one].ravel(), components[other].ravel()
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.any():
            continue
        x, y = x[finite], y[finite]
        span = [_span(x), _span(y)]
        sampled = _map(x, y, span)
        joint = one in truth and other in truth and len(truth[one]) == len(truth[other]) > 1
        exact = _map(truth[one], truth[other], span) if joint else None
        top = float((sampled if exact is None else exact)[2].max())
        title = f"{one} and {other}"
        words = f"Map of the joint density of {title}, of {len(x):,} draws"
        for kind, values in (("draws", sampled), ("truth", exact)):
            if values is not None:
                figure = charts.figure([charts.density_map(*values, top)], one, other)
                named = f"{title}: {kind}" if joint else title
                maps.append(Chart(f"map-{place}-{kind}", named, words, {"": figure}, height=380))
    return maps


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, (0.001, 0.999))
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 1e-3
    return float(low - room), float(high + room)


def _map(x: np.ndarray, y: np.ndarray, span: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts, *edges = np.histogram2d(x, y, _BINS, span)
    area = np.diff(edges[0])[0] * np.diff(edges[1])[0]
    middle = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    return middle[0], middle[1], counts / max(len(x), 1) / area
