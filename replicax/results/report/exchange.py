"""The exchange of a run: index paths, the ladder and pair rates over time, round trips."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.page import charts
from replicax.page.content import Chart, Paths, Section, Table
from replicax.results.mixing import exchanges
from replicax.results.plots import verdict_rates
from replicax.results.summary import expected_trips
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
    history, rung_of = posterior.history, posterior.rung_of
    ends = [trip_ends(chain) for chain in rung_of]
    parts: list[Any] = [_paths(posterior, rung_of, ends), _ladder(posterior, history)]
    parts += [_rates(posterior, history), _trips(posterior, ends), _pair_rates(posterior)]
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


def _ladder(posterior: "Posterior", history: dict[str, np.ndarray]) -> Chart | None:
    """Return the chart of learning rates over time, or of temperatures if those form the ladder."""
    units = {"learning_rate": "energy_scale", "temperature": "temperature_scale"}
    scale = {name: getattr(posterior, unit, 1.0) for name, unit in units.items()}
    rates = scale["learning_rate"] * posterior.learning_rates
    temperatures = scale["temperature"] * posterior.temperatures
    tempered = bool(np.all(temperatures > 0)) and bool(np.any(temperatures != temperatures[0, 0]))
    name, end = ("temperature", temperatures) if tempered else ("learning_rate", rates)
    word = name.replace("_", " ")
    rows = [
        (str(rung), f"{rates[0, rung]:.4g}", f"{temperatures[0, rung]:.4g}")
        for rung in range(posterior.num_replicas)
    ]
    table = Table(("rung", "learning rate", "temperature"), rows, "At the end, first chain")
    steps = history["step"]
    if not steps.size:
        steps, values = np.array([posterior.num_steps]), end[:, None]
    else:
        values = scale[name] * history[name]
    kept = _thinned(len(steps))
    shown, colours = charts.some(posterior.num_replicas), charts.cold_to_hot(posterior.num_replicas)
    traces = [
        charts.line(steps[kept], _finite(values[0, kept, rung]), colours[rung],
                    mode="lines" if len(kept) > 1 else "markers",
                    hovertemplate=f"rung {rung}: %{{y:.4g}} at step %{{x}}<extra></extra>")
        for rung in shown
    ]  # fmt: skip
    words = (
        f"The {word} of every rung over time, from {end[0, 0]:.3g} to {end[0, -1]:.3g} at the end"
    )
    note = _KEY + _part(shown, posterior.num_replicas, "rungs")
    if posterior.num_chains > 1:
        note += f" The first chain of {posterior.num_chains}."
    if not np.all(np.isfinite(end)):
        note += " The infinite temperature of the prior is not drawn."
    figure = charts.figure(traces, "step", word, yaxis=charts.log_axis(values), showlegend=False)
    return Chart("ladder", f"{word.capitalize()} of every rung", words, {"": figure}, table, note)


def _rates(posterior: "Posterior", history: dict[str, np.ndarray]) -> Chart | None:
    """Return the chart of how often the rule accepts for every pair, over time."""
    resolved = posterior.metadata.resolved
    steps, rates = verdict_rates(history, resolved.counted_from, resolved.swap_every)
    if not steps.size:
        return None
    mean = rates.mean(axis=0)
    shown = charts.some(posterior.num_replicas - 1)
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
    figure = charts.figure(traces, "step", "rule accepts, per attempt", **layout)
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
    turn = f"swaps, per window of {posterior.window}" if posterior.window > 1 else "swaps, per turn"
    traces = [
        charts.points(pairs, says.mean(axis=0), charts.CHAINS[0], "rule accepts, per attempt", 8),
        charts.points(pairs, swaps.mean(axis=0), charts.CHAINS[1], turn, 8,
                      marker={"symbol": "diamond-open"}),
    ]  # fmt: skip
    if posterior.metadata.resolved.rule == "deterministic":
        target = posterior.metadata.resolved.target_swap_rate
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
    num_steps, counted = posterior.num_steps, posterior.counted_steps
    start = num_steps - counted
    steps = np.unique(np.linspace(start, num_steps, _TRIP_POINTS).astype(int))
    traces = []
    for chain, colour, style in charts.chain_styles(len(ends)):
        arrived = np.sort(np.concatenate(ends[chain]))
        so_far = np.searchsorted(arrived[arrived > start], steps, side="right")
        traces.append(charts.line(steps, so_far, colour, **style))
    trips, expected = posterior.round_trips, expected_trips(posterior)
    rows = [(str(chain), f"{count:,}") for chain, count in enumerate(trips)]
    head, words = ("chain", "round trips"), f"{trips.sum():,} round trips of all chains"
    if expected is not None:
        rates = [rate * counted / 1000 for rate in expected]
        mean = float(np.mean(rates))
        traces.append(charts.dashed([start, num_steps], [0, mean], "expected by Lemma 1"))
        rows = [(*row, f"{rate:,.1f}") for row, rate in zip(rows, rates)]
        head, words = (*head, "Lemma 1"), f"{words}; Lemma 1 expects {sum(rates):,.0f}"
    figure = charts.figure(traces, "step", "round trips so far", yaxis={"rangemode": "tozero"})
    note = f"{words}, at the measured swap rates." if expected is not None else f"{words}."
    return Chart("trips", "Round trips", words, {"": figure}, Table(head, rows), note)


def _part(shown: list[int], count: int, name: str) -> str:
    return f" {len(shown)} of {count} {name} are drawn." if len(shown) < count else ""


def _thinned(length: int) -> np.ndarray:
    return np.unique(np.linspace(0, length - 1, min(length, _HISTORY_POINTS)).astype(int))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
