"""The exchange of a run: index paths, the ladder and pair rates over time, round trips."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.page import charts
from replicax.page.content import Chart, Paths, Section, Table
from replicax.results import plotted
from replicax.results.mixing import exchanges
from replicax.run.round_trips import trip_ends

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

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
    shown, colours = plotted.spread(count, charts.MOST_LINES), charts.cold_to_hot(count)
    traces = [
        charts.line(steps[kept], _finite(values[0, kept, rung]), colours[rung],
                    mode="lines" if len(kept) > 1 else "markers",
                    hovertemplate=f"rung {rung}: %{{y:.4g}} at step %{{x}}<extra></extra>")
        for rung in shown
    ]  # fmt: skip
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
    colours = charts.cold_to_hot(posterior.num_replicas - 1)
    traces = [
        charts.line(steps, mean[:, pair], colours[pair],
                    mode="lines" if len(steps) > 1 else "markers",
                    hovertemplate=f"pair {pair}: %{{y:.3f}} at step %{{x}}<extra></extra>")
        for pair in shown
    ]  # fmt: skip
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


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
