"""The report of a run: the sections of its page."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.errors import check_path, show
from replicax.page import charts
from replicax.page.render import Chart, Page, Paths, Section, Table, Warnings, render
from replicax.results import done, mixture, plotted
from replicax.results.diagnostics import as_draws, exchanges
from replicax.results.plotted import bin_edges, density, thinned
from replicax.results.summary import (
    Summary,
    done_table,
    mixture_table,
    parameter_table,
    run_table,
)
from replicax.run.carry import trip_ends
from replicax.run.storage.files import check_shown, write_shown

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


_NO_PROBLEM = (
    "No check found a reason not to trust this run. Checked: its distribution, ladder, swap rates "
    "and round trips, R-hat over chains and replicas, and effective sizes."
)
_NO_PROBLEM_OF_NETWORKS = (
    "No check found a reason not to trust this run. Checked: its losses, ladder, swap rates and "
    "round trips."
)
_RUNNING = "No check has found a problem so far; the run continues."


def warnings_of(posterior: "Posterior", summary: dict[str, Any]) -> Warnings:
    """Return the problems of a run, with the sentence to show if there are none."""
    sentences = [split_remedy(sentence) for sentence in summary["problems"]]
    if posterior.result.code == "running":
        return Warnings(sentences, _RUNNING)
    trains = posterior.metadata.kind == "train"
    return Warnings(sentences, _NO_PROBLEM_OF_NETWORKS if trains else _NO_PROBLEM)


def split_remedy(sentence: str) -> tuple[str, str]:
    """Split a problem into its description and its remedy: the sentences after the first, or what
    follows the colon.

    >>> split_remedy("R-hat is 1.2: chains differ. Run longer.")
    ('R-hat is 1.2: chains differ.', 'Run longer.')
    >>> split_remedy("Its law is not known: write temperature=1.")
    ('Its law is not known.', 'Write temperature=1.')
    """
    what, stop, remedy = sentence.partition(". ")
    if stop:
        return f"{what}.", remedy
    what, colon, remedy = sentence.partition(": ")
    return (f"{what}.", remedy[:1].upper() + remedy[1:]) if colon else (sentence, "")


def subtitle(posterior: "Posterior") -> str:
    """Return a one-line description of the run."""
    note = posterior.metadata.note
    named = note.get("target") or note.get("task") or {}
    names = [named[key] for key in ("target", "model", "data") if isinstance(named, dict)
             and isinstance(named.get(key), str)]  # fmt: skip
    what = f"{' on '.join(names)}; " if names else ""
    done = f"{posterior.num_steps:,} of {posterior.metadata.resolved.num_steps:,} steps"
    return f"{what}{done}, {posterior.num_replicas} replicas. {posterior.result.sentence}"


def _numbers(posterior: "Posterior", summary: Summary) -> Table:
    metadata, resolved = posterior.metadata, posterior.metadata.resolved
    rows = [
        *run_table(summary).rows,
        ("burn-in, thinning", f"{resolved.burn_in:,}, {resolved.thin:,}"),
        ("seed", str(metadata.run.seed)),
        ("version", metadata.version),
    ]
    return Table(("", ""), rows)


_MOST_COMPONENTS = 12  # components with charts
_MOST_ROWS = 200  # rows of the table
_TRACE_POINTS = 1000  # points per chain
_MOST_TRACED = 8  # chains
_BINS = 48
_RANK_BINS = 20
_MAPPED = 3  # parameters, each with each


def draw_sections(posterior: "Posterior", summary: dict[str, Any]) -> list[Section]:
    """Return the sections about the draws, none without draws."""
    if posterior.num_draws < 2:
        return []
    components = {**_chosen(posterior, summary), "energy": posterior.energies}
    names = tuple(components)
    marginals = {name: _marginal(name, x) for name, x in components.items()}
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
        [_which(posterior, names), trace, marginal, rank, parameter_table(summary, _MOST_ROWS)],
        "Parameter",
        names,
    )
    maps = _maps(components)
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


def _marginal(name: str, values: np.ndarray) -> dict[str, Any]:
    edges = bin_edges(values)
    traces = [
        charts.stairs(edges, density(values[chain], edges), colour, **style)
        for chain, colour, style in charts.chain_styles(len(values))
    ]
    return charts.figure(traces, name, "density")


def _trace(posterior: "Posterior", name: str, values: np.ndarray) -> dict[str, Any]:
    num_chains, num_draws = values.shape
    kept = thinned(num_draws, _TRACE_POINTS)
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


def _maps(components: dict[str, np.ndarray]) -> list[Chart]:
    """Return maps of all pairs of the first parameters."""
    names = [name for name in components if name != "energy"][:_MAPPED]
    maps = []
    for place, (one, other) in enumerate(itertools.combinations(names, 2)):
        x, y = components[one].ravel(), components[other].ravel()
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.any():
            continue
        densities = _map(x[finite], y[finite])
        title = f"{one} and {other}"
        words = f"Map of the joint density of {title}, of {finite.sum():,} draws"
        figure = charts.figure([charts.density_map(*densities)], one, other)
        maps.append(Chart(f"map-{place}", title, words, {"": figure}, height=380))
    return maps


def _span(values: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(values, (0.001, 0.999))
    room = 0.05 * (high - low) or max(abs(high), 1.0) * 1e-3
    return float(low - room), float(high + room)


def _map(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    counts, *edges = np.histogram2d(x, y, _BINS, (_span(x), _span(y)))
    area = np.diff(edges[0])[0] * np.diff(edges[1])[0]
    middle = [(edge[1:] + edge[:-1]) / 2 for edge in edges]
    return middle[0], middle[1], counts / max(len(x), 1) / area


def mixture_section(posterior: "Posterior", summary: dict[str, Any]) -> Section | None:
    """Return the section about the mixture that proposes jumps; None without one."""
    learned = mixture.of_run(posterior)
    if learned is None:
        return None
    pair = mixture.telling(learned)
    names = [learned.names[i] for i in pair] + [""]
    rest = learned.draws[:, pair[-1]] if len(pair) > 1 else np.zeros(len(learned.draws))
    traces = [
        charts.points(learned.draws[:, pair[0]], rest, charts.CHAINS[0], "draws", 3, opacity=0.5)
    ]
    for number, at in enumerate(mixture.outlines(learned, pair)):
        share = f"component {number}: weight {learned.weight[number]:.3f}<extra></extra>"
        traces.append(
            charts.line(at[:, 0], at[:, 1], charts.ACCENT, width=1.2, hovertemplate=share)
        )
    words = f"{len(learned.weight)} components, at two standard deviations, and draws"
    note = "Of the parameters the two in which the components lie furthest apart."
    figure = charts.figure(traces, names[0], names[1])
    table = mixture_table(summary, _MOST_ROWS)
    chart = Chart("components", "Components", words, {"": figure}, table, note, height=380)
    return Section("mixture", "Mixture", [chart])


def done_section(posterior: "Posterior", summary: dict[str, Any]) -> Section | None:
    """Return the section about the numbers by which a run is done, over time; None for methods that
    cannot decide it."""
    table = done_table(summary)
    if table is None or not posterior.num_draws:
        return None
    steps, course = done.course(posterior)
    figures = {}
    for place, number in enumerate(course[-1] if course else []):
        values = np.array([numbers[place].value for numbers in course])
        if np.isnan(values).all():
            continue
        wanted = charts.dashed([0, int(steps[-1])], [number.wanted] * 2, "wanted")
        line = charts.line(steps, values, charts.ACCENT, "now", mode="lines+markers")
        figures[number.name] = charts.figure([line, wanted], "step", number.name)
    parts: list[Any] = [table]
    if figures:
        words = "One of these numbers over time, and what it has to reach"
        parts.insert(0, Chart("over-time", "Over time", words, figures, wide=True))
    return Section("done", "Is it done?", parts, "Number", tuple(figures))


_PATH_BYTES = 1_300_000  # bytes of all index paths
_PATH_CHAINS = 4
_MOST_ENDS = 40_000  # ends of round trips, over all chains and replicas
_TRIP_POINTS = 500
_HISTORY_POINTS = 400
_PATH_WIDTH = (100, 400)  # points that are seen at first, at least and at most
_KEY = "Blue is the coldest, orange the hottest."


def exchange_section(posterior: "Posterior") -> Section | None:
    """Return the section about the ladder and the replicas on it; None without exchange."""
    if not exchanges(posterior):
        return None
    rung_of = posterior.rung_of
    ends = [trip_ends(chain) for chain in rung_of]
    parts: list[Any] = [_paths(posterior, rung_of, ends), _ladder(posterior)]
    parts += [_rates(posterior), _trips(posterior, ends), _pair_rates(posterior)]
    return Section("exchange", "Exchange", [part for part in parts if part is not None])


def _paths(posterior: "Posterior", rung_of: np.ndarray, ends: list[list[np.ndarray]]) -> Paths:
    num_steps, num_replicas = rung_of.shape[1:]
    shown = rung_of[:_PATH_CHAINS]
    size = 1 if num_replicas <= 256 else 2
    every = max(1, -(-shown.size * size // _PATH_BYTES))
    thinned = shown[:, every - 1 :: every]
    trips = sum(len(replica) for chain in ends for replica in chain)
    trip_points = num_steps * num_replicas * len(rung_of) / max(trips, 1) / every
    width = int(np.clip(6 * trip_points, *_PATH_WIDTH))
    kept = ends[:_PATH_CHAINS] if trips <= _MOST_ENDS else []
    note = "Paths show every step" if every == 1 else f"Paths show one step in {every}"
    if len(rung_of) > _PATH_CHAINS:
        note += f", of the first {_PATH_CHAINS} of {len(rung_of)} chains"
    return Paths(thinned, every, kept, width, f"{note}.")


def _ladder(posterior: "Posterior") -> Chart:
    """Return the chart of learning rates over time, or of temperatures if those form the ladder."""
    name, count = plotted.name_of_ladder(posterior), posterior.num_replicas
    steps, values, end = plotted.ladder_over_time(posterior, name)
    if not steps.size:
        steps, values = np.array([posterior.num_steps]), end[:, None]
    word, kept = name.replace("_", " "), plotted.spread(len(steps), _HISTORY_POINTS)
    shown = plotted.spread(count, charts.MOST_LINES)
    finite = np.where(np.isfinite(values[0, kept]), values[0, kept], np.nan)
    traces = _lines(steps[kept], finite, shown, "rung", ".4g")
    words = (
        f"The {word} of every rung over time, from {end[0, 0]:.3g} to {end[0, -1]:.3g} at the end"
    )
    note = _KEY + _part(shown, count, "rungs")
    if posterior.num_chains > 1:
        note += f" The first chain of {posterior.num_chains}."
    if not np.all(np.isfinite(end)):
        note += " The infinite temperature of the prior is not drawn."
    figure = charts.figure(traces, "step", word, yaxis=charts.log_axis(values), showlegend=False)
    title, table = f"{word.capitalize()} of every rung", _ladder_table(posterior)
    return Chart("ladder", title, words, {"": figure}, table, note)


def _lines(
    steps: np.ndarray, values: np.ndarray, shown: list[int], name: str, form: str
) -> list[dict[str, Any]]:
    """Return lines (point, index) of the rungs or pairs that are shown, from cold to hot."""
    colours = charts.cold_to_hot(values.shape[1])
    return [
        charts.line(steps, values[:, i], colours[i], mode="lines" if len(steps) > 1 else "markers",
                    hovertemplate=f"{name} {i}: %{{y:{form}}} at step %{{x}}<extra></extra>")
        for i in shown
    ]  # fmt: skip


def _ladder_table(posterior: "Posterior") -> Table:
    names = ("learning_rate", "temperature")
    ends = zip(*(plotted.ladder_over_time(posterior, name).end[0] for name in names))
    rows = [(str(rung), f"{rate:.4g}", f"{heat:.4g}") for rung, (rate, heat) in enumerate(ends)]
    return Table(("rung", "learning rate", "temperature"), rows, "At the end, first chain")


def _rates(posterior: "Posterior") -> Chart | None:
    """Return the chart of how often the rule accepts for every pair, over time."""
    steps, rates = plotted.rates_over_time(posterior)
    if not steps.size:
        return None
    mean = rates.mean(axis=0)
    shown = plotted.spread(posterior.num_replicas - 1, charts.MOST_LINES)
    traces = _lines(steps, mean, shown, "pair", ".3f")
    words = (
        f"How often the rule accepts for each pair, at the end {mean[-1].min():.2f} to "
        f"{mean[-1].max():.2f}"
    )
    layout = {"yaxis": {"range": [0, 1.03]}, "showlegend": False}
    said = f"rule accepts, {plotted.attempt_of(posterior)}"
    figure = charts.figure(traces, "step", said, **layout)
    rows = [
        (f"{step:,}", *(f"{rate[pair]:.3f}" for pair in shown)) for step, rate in zip(steps, mean)
    ]
    table = Table(("up to step", *(f"pair {pair}" for pair in shown)), rows)
    note = f"{_KEY}{_part(shown, posterior.num_replicas - 1, 'pairs')} Mean of chains."
    return Chart("rates", "Pair rates over time", words, {"": figure}, table, note)


def _pair_rates(posterior: "Posterior") -> Chart:
    """Return the chart of how often the rule accepts and every pair swaps, after burn-in."""
    says, swaps = posterior.verdict_rate, posterior.window_swap_rate
    pairs = np.arange(says.shape[1])
    said = f"rule accepts, {plotted.attempt_of(posterior)}"
    turn = f"swaps, {plotted.turn_of(posterior)}"
    traces = [
        charts.points(pairs, says.mean(axis=0), charts.CHAINS[0], said, 8),
        charts.points(pairs, swaps.mean(axis=0), charts.CHAINS[1], turn, 8,
                      marker={"symbol": "diamond-open"}),
    ]  # fmt: skip
    target = plotted.target_of_rates(posterior)
    if target is not None:
        traces.append(charts.dashed([0, max(len(pairs) - 1, 1)], [target] * 2, "target"))
    rows = [
        (str(pair), f"{says[:, pair].mean():.3f}", f"{swaps[:, pair].mean():.3f}") for pair in pairs
    ]
    table = Table(("pair", "rule accepts", "swaps"), rows)
    words = (
        f"Rates of every pair after burn-in; a pair swaps in {swaps.min():.1%} to {swaps.max():.1%}"
    )
    figure = charts.figure(traces, "pair (0 = coldest)", "rate", yaxis={"range": [-0.02, 1.03]})
    title = "Pair rates after burn-in"
    return Chart(
        "pair-rates", title, f"{words} of its windows", {"": figure}, table, "Mean of chains."
    )


def _trips(posterior: "Posterior", ends: list[list[np.ndarray]]) -> Chart:
    """Return the chart of round trips so far, with the prediction of Lemma 1 at the measured swap
    rates."""
    trips, counts = plotted.trips_so_far(posterior, ends, _TRIP_POINTS), posterior.round_trips
    traces = [
        charts.line(trips.steps, trips.so_far[chain], colour, **style)
        for chain, colour, style in charts.chain_styles(len(ends))
    ]
    rows = [(str(chain), f"{count:,}") for chain, count in enumerate(counts)]
    head, words = ("chain", "round trips"), f"{counts.sum():,} round trips of all chains"
    expected = trips.expected
    if expected is not None:
        reach = [trips.start, posterior.num_steps], [0, float(np.mean(expected))]
        traces.append(charts.dashed(*reach, "expected by Lemma 1"))
        rows = [(*row, f"{number:,.1f}") for row, number in zip(rows, expected)]
        head, words = (*head, "Lemma 1"), f"{words}; Lemma 1 expects {sum(expected):,.0f}"
    figure = charts.figure(traces, "step", "round trips so far", yaxis={"rangemode": "tozero"})
    note = f"{words}, at the measured swap rates." if expected is not None else f"{words}."
    return Chart("trips", "Round trips", words, {"": figure}, Table(head, rows), note)


def _part(shown: list[int], count: int, name: str) -> str:
    return f" {len(shown)} of {count} {name} are drawn." if len(shown) < count else ""


FILE = "report.html"  # in a run folder


def build_page(posterior: "Posterior") -> Page:
    """Return the page of a run that samples; see `Posterior.report`."""
    summary = posterior.summary()
    glance = [warnings_of(posterior, summary), _numbers(posterior, summary)]
    sections = [
        Section("glance", "At a glance", glance),
        done_section(posterior, summary),
        *draw_sections(posterior, summary),
        mixture_section(posterior, summary),
        exchange_section(posterior),
    ]
    return page_of(posterior, [section for section in sections if section is not None])


def page_of(posterior: "Posterior", sections: list[Section]) -> Page:
    """Return a page with the name of the run."""
    folder = posterior.run_dir
    name = "A run in memory" if folder is None else Path(folder).resolve().name
    return Page(name, subtitle(posterior), sections)


def write_page(posterior: "Posterior", out: str | Path | None, page: Page) -> Path:
    """Write a page to the file `out`, or into the folder `out` or that of the run."""
    path = check_out(posterior, out)
    write_shown(path, render(page).encode(), named=out is not None)
    return path


def check_out(posterior: "Posterior", out: object) -> Path:
    """Return the file of a report; raise if it cannot be one."""
    if out is None:
        if posterior.run_dir is None:
            raise ValueError("The run has no folder; say where the report goes: out='report.html'.")
        check_shown(posterior.run_dir / FILE)
        return posterior.run_dir / FILE
    path = check_path("out", out, "an HTML file")
    if path.is_dir():
        check_shown(path / FILE)
        return path / FILE
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out is {show(str(out))}; give a file that ends in .html, or a folder.")
    return path
