"""What a training reports: its summary, its figures and its page.

Without a test these only show the run and the exchange of replicas.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.networks import outcomes, predict
from replicax.networks.outcomes import Classes, Outcomes, coverage_by_level
from replicax.networks.trained import Trained
from replicax.results import figure_style
from replicax.results.diagnostics import exchanges
from replicax.results.plots import plot_exchange
from replicax.results.report import Picture, Section, exchange_section, warnings_of
from replicax.results.summary import Table, as_rich, as_warning, machine_use, render_machine_use

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LEVELS = 21  # of central intervals
_PICTURES = {  # their sections, and what there is to see
    "epochs": (
        "Epochs",
        "Scores on the test data after every epoch, of each network and of the average so far.",
    ),
    "predictions": (
        "Predictions of the average",
        "How far the probabilities of the average are right, how often each occurs, and how sure "
        "the average is.",
    ),
}


def summarise(trained: Trained) -> dict[str, Any]:
    """Return the numbers of a training as plain data."""
    likelihood, averaged = trained.likelihood, float(trained.average.weight)
    ways = likelihood.ways if likelihood is not None and averaged else ()
    numbers: dict[str, Any] = {
        "method": trained.method,
        "task": trained.metadata.note.get("task"),
        **machine_use(trained),
        "epochs": trained.num_epochs,
        "networks": trained.num_replicas,
        "averaged": averaged,
        "result": trained.result._asdict(),
        "restarts": trained.restarts.tolist(),
        "problems": trained.problems(),
        "seed": trained.metadata.run.seed,
        "likelihood": None if likelihood is None else likelihood.to_json(),
        "averages": [{"by": by, **trained.metrics(by)._asdict()} for by in ways],
    }
    if likelihood is not None and len(trained.epochs["epoch"]):
        last = {score.name: trained.epochs[score.name][-1].tolist() for score in likelihood.scores}
        numbers["by_rung"] = last
        numbers["coldest"] = {name: values[0] for name, values in last.items()}
    tested, method = trained.metadata.resolved.range_test, trained.metadata.method
    if tested is not None:
        rate: Any = method.pretrain_rate if method.pretrain else method.learning_rate
        found = {"kernel": str(method.kernel or "momentum"), "learning_rate": float(rate)}
        numbers["range_test"] = {**found, **tested}
    exchange = _exchange(trained) if trained.metadata.resolved.schedule != "none" else None
    more = {"heating": trained.heating, "decision": trained.decision, "exchange": exchange}
    return numbers | {name: value for name, value in more.items() if value is not None}


def _exchange(trained: Trained) -> dict[str, Any]:
    """Return how networks were exchanged, by the buffer per mean loss, or for rules without one by
    the temperatures of the posterior."""
    resolved, scale, trips = trained.metadata.resolved, trained.energy_scale, trained.round_trips
    if resolved.rule == "deterministic":
        of_rule: dict[str, Any] = {"buffer": float(trained.buffer[0]) / scale}
    else:
        of_rule = {"temperatures": (trained.temperatures[0] * trained.temperature_scale).tolist()}
    return {
        "window": trained.window,
        "round_trips": int(trips.sum()),
        "round_trips_per_100_epochs": 100 * int(trips.sum()) / max(trained.num_epochs, 1),
        "verdict_rate": trained.verdict_rate[0].tolist(),
        "window_swap_rate": trained.window_swap_rate[0].tolist(),
        "learning_rates": (scale * trained.learning_rates[0]).tolist(),
        "swap_every": resolved.swap_every,
        **of_rule,
    }


def render(numbers: dict[str, Any]) -> Any:
    """Return the numbers as rich tables."""
    from rich.console import Group

    tables = [as_rich(table) for table in tables_of(numbers)]
    return Group(*tables, *map(as_warning, numbers["problems"]))


def tables_of(numbers: dict[str, Any]) -> list[Table]:
    """Return tables of the run and, where there was a test, of its scores there."""
    without = "; the problem has no test" if numbers["likelihood"] is None else ""
    method = f"{numbers['method']}, {numbers['networks']}, {numbers['epochs']:,}"
    facts = [
        ("ended", numbers["result"]["sentence"]),
        ("time, machine, peak memory", render_machine_use(numbers)),
        ("method, networks, epochs", method),
        ("networks averaged", f"{numbers['averaged']:g}{without}"),
    ]
    if "decision" in numbers:
        facts.append(("trained or sampled", numbers["decision"]))
    if "range_test" in numbers:
        words = "{kernel}, {learning_rate:g}, found by a range test".format(**numbers["range_test"])
        facts.append(("kernel, peak learning rate", words))
    if "exchange" in numbers:
        facts += _exchange_facts(numbers["exchange"])
    if any(numbers["restarts"]):
        restarts = ", ".join(map(str, numbers["restarts"]))
        facts.append(("restarts of diverged networks, by rung", restarts))
    run = Table(("", ""), [*facts, ("seed", str(numbers["seed"]))], _title(numbers))
    return [run] if without else [run, score_table(numbers)]


def _title(numbers: dict[str, Any]) -> str:
    task = numbers["task"] or {}
    title = " ".join(str(task[name]) for name in ("model", "data") if name in task)
    return f"{numbers['method']} {title}".strip()


def _exchange_facts(exchange: dict[str, Any]) -> list[tuple[str, str]]:
    rates, heats = exchange["verdict_rate"], exchange.get("temperatures")
    turns = "steps" if exchange["swap_every"] == 1 else "attempts"
    trips, per_100 = exchange["round_trips"], exchange["round_trips_per_100_epochs"]
    name, value = ("highest temperature", heats[-1]) if heats else ("buffer", exchange["buffer"])
    return [
        ("window", str(exchange["window"])),
        ("round trips", f"{trips:,}, {per_100:.1f} per 100 epochs"),
        ("rule accepts", f"in {100 * min(rates):.2g} to {100 * max(rates):.2g} % of {turns}"),
        (name, f"{value:.3g}"),
    ]


def score_table(numbers: dict[str, Any]) -> Table:
    """Return the scores of networks and averages on the test data."""
    likelihood = outcomes.from_json(numbers["likelihood"])
    scored: list[tuple[str, dict[str, Any]]] = []
    if "coldest" in numbers:
        first = "coldest network" if "exchange" in numbers else "first network"
        scored.append((first, numbers["coldest"]))
        if numbers["networks"] > 1:
            means = {name: float(np.mean(x)) for name, x in numbers["by_rung"].items()}
            scored.append(("mean of all networks", means))
    for part in numbers["averages"]:
        way = f", {part['by']}" if len(likelihood.ways) > 1 else ""
        scored.append((f"average of {numbers['averaged']:g}{way}", part))
    rows = [(name, *(_cell(metrics, x) for x in likelihood.columns)) for name, metrics in scored]
    return Table(("", *(column.head for column in likelihood.columns)), rows, "On the test data")


def _cell(metrics: dict[str, Any], column: Any) -> str:
    known = column.name in metrics
    return f"{column.factor * metrics[column.name]:.{column.digits}f}" if known else ""


def told_apart(trained: Trained, inside: Any, outside: Any, problem: Any = None) -> dict[str, Any]:
    """Return how well the uncertainty of the average, and that part of it by which its networks
    differ, separate some inputs from others."""
    weights = trained.networks.weight
    parts = [
        predict.uncertainty(trained.predict(inputs, members=True, problem=problem), weights)
        for inputs in (inside, outside)
    ]
    return {
        "auroc": predict.auroc(*(part.total for part in parts)),
        "auroc_epistemic": predict.auroc(*(part.epistemic for part in parts)),
        "networks": len(weights),
    }


def plot_training(
    trained: Trained, out: str | Path | None = None, narrow: bool = False
) -> dict[str, "Figure"]:
    """Return figures by name; write them as PNG into the folder `out`.

    They are `epochs`, `predictions` (the calibration of the average), and those of the exchange, as
    of every run. Figures without data are left out.
    """
    figures: dict[str, Figure] = {}
    likelihood = trained.likelihood
    if likelihood is not None and len(trained.epochs["epoch"]):
        figures["epochs"] = _plot_epochs(trained, likelihood, narrow)
    if likelihood is not None and float(trained.average.weight) > 0:
        figures["predictions"] = _plot_predictions(trained, likelihood, narrow)
    if trained.history["step"].size:
        figures |= plot_exchange(trained, narrow)
    figure_style.save_all(figures, out)
    return figures


def _plot_epochs(trained: Trained, likelihood: Outcomes, narrow: bool) -> "Figure":
    """Plot each score on the test data in a panel: every network, and the average so far."""
    epochs = trained.epochs
    figure, *panels = figure_style.panels(len(likelihood.scores), narrow)
    for axes, score in zip(panels, likelihood.scores, strict=True):
        networks = score.factor * epochs[score.name]
        always_shown = [networks[:, :1]]
        for line, style in _networks(trained, networks):
            axes.plot(epochs["epoch"], line, **style)
        for by, dashes in zip(likelihood.ways, ("-", (0, (3, 1.2)))):
            if not np.any(epochs["weight"] > 0):
                break
            values = score.factor * average_so_far(epochs, score.name, by)
            always_shown.append(values[:, None])
            way = f", by {by}" if len(likelihood.ways) > 1 else ""
            axes.plot(epochs["epoch"], values, color=figure_style.INK, lw=2, ls=dashes,
                      marker="." if len(values) == 1 else "", zorder=4,
                      label=f"average so far{way}")  # fmt: skip
        title = f"{score.title} on the test data"
        figure_style.label(axes, "epoch", score.title.lower() + score.unit, title)
        axes.set_xlim(0, 1.02 * max(trained.num_epochs, 1))
        axes.set_ylim(figure_style.settled_range(networks, np.concatenate(always_shown, axis=1)))
    figure_style.legend_below(panels[-1])
    return figure


def _networks(trained: Trained, values: np.ndarray) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
    """Yield lines (epoch,) with styles: one style per rung on a ladder, otherwise one for all
    networks and one for their mean."""
    count, blue = values.shape[1], figure_style.CHAINS[0]
    marker = {"marker": "."} if len(values) == 1 else {}
    if count == 1:
        yield values[:, 0], {"color": blue, "lw": 1.6, "label": "the network", **marker}
    elif exchanges(trained):
        ends = {0: " (coldest)", count - 1: " (hottest)"}
        for rung, colour in figure_style.cold_to_hot(count):
            thick = {"lw": 2.2, "zorder": 3} if rung == 0 else {"lw": 0.8, "alpha": 0.85}
            name = {"label": f"rung {rung}{ends.get(rung, '')}"}
            yield values[:, rung], {"color": colour, **name, **thick, **marker}
    else:
        for index in figure_style.some(count):
            name = "networks" if index == 0 else None
            faint = {"color": blue, "lw": 0.7, "alpha": 0.5, "label": name}
            yield values[:, index], {**faint, **marker}
        mean = {"color": blue, "lw": 2.2, "zorder": 3, "label": "their mean"}
        yield np.mean(values, axis=1), {**mean, **marker}


def average_so_far(
    epochs: dict[str, np.ndarray], score: str, by: str = "probabilities"
) -> np.ndarray:
    """Return a score of the average after each test, NaN before a network is averaged  (epoch,)."""
    return np.where(epochs["weight"] > 0, epochs[f"average_{score}_{by}"], np.nan)


def _plot_predictions(trained: Trained, likelihood: Outcomes, narrow: bool) -> "Figure":
    """Plot how far the probabilities of the average are right, how often each occurs, and how sure
    it is."""
    figure, right, often, sure = figure_style.panels(3, narrow)
    right.plot([0, 1], [0, 1], **figure_style.DASHED, label="calibrated")
    if isinstance(likelihood, Classes):
        _plot_reliability(trained, right, often)
        _plot_entropies(trained, sure)
    else:
        _plot_coverage(trained, right, often)
        _plot_deviations(trained, sure)
    for axes in (right, often):
        axes.set_xlim(0, 1)
    often.margins(y=0.12)  # for the numbers on the bars
    figure_style.legend_below(right)
    return figure


def _plot_reliability(trained: Trained, right: "Axes", often: "Axes") -> None:
    """Plot accuracies by confidence, with 95 % intervals, and how many images have each."""
    log_probs, weights = trained.log_probabilities(), trained.row_weights
    bins = predict.reliability(log_probs, trained.labels, weights=weights)
    width, filled, blue = float(np.diff(bins.edges)[0]), bins.count > 0, figure_style.CHAINS[0]
    accuracy = bins.accuracy[filled]
    error = np.abs(predict.accuracy_interval(bins)[filled].T - accuracy)
    right.bar(bins.middle[filled], accuracy, width, yerr=error, color=blue, alpha=0.6,
              ecolor=figure_style.INK, label="accuracy, 95 % interval")  # fmt: skip
    right.plot(bins.confidence[filled], accuracy, "o", ms=5, color=figure_style.ACCENT,
               label="at the mean confidence")  # fmt: skip
    title = f"Reliability: calibration error {bins.error:.3f}"
    figure_style.label(right, "confidence", "accuracy", title)
    bars = often.bar(bins.middle, bins.count, width, color=blue, alpha=0.6)
    often.bar_label(bars, [f"{count:,.0f}" if count else "" for count in bins.count], fontsize=8)
    what = "labels" if trained.labels.ndim > 1 else "images"
    figure_style.label(often, "confidence", what, f"How many {what}")


def _plot_coverage(trained: Trained, right: "Axes", often: "Axes") -> None:
    """Plot the coverage of central intervals, with 95 % intervals, and where targets lie in their
    predictive distributions."""
    below = np.ravel(trained.average.below) / float(trained.average.weight)
    levels, inside, interval, counts = coverage_by_level(below, _LEVELS)
    blue = figure_style.CHAINS[0]
    right.fill_between(levels, *interval.T, color=blue, alpha=0.2, label="95 % interval")
    right.plot(levels, inside, color=blue, label="coverage")
    if not np.isfinite(below).all():  # the likelihood has no cdf
        levels, inside, interval, counts = levels[:0], inside[:0], interval[:0], counts * 0
    title = f"Coverage: calibration error {trained.metrics().calibration_error:.3f}"
    figure_style.label(right, "level of the central interval", "targets in it", title)
    bars = often.bar(np.arange(0.05, 1, 0.1), counts, 0.1, color=blue, alpha=0.6)
    often.bar_label(bars, fontsize=8)
    figure_style.label(
        often, "predicted probability below the target", "targets", "How many targets"
    )


def _plot_entropies(trained: Trained, sure: "Axes") -> None:
    """Plot how many images have each entropy, of those that are classified right and wrong; of
    several labels, all are right or one is wrong."""
    log_probs = trained.log_probabilities()
    entropies, matches = predict.entropy(log_probs), log_probs.argmax(axis=-1) == trained.labels
    is_right = matches.reshape(len(matches), -1).all(axis=1)
    parts = [entropies[is_right], entropies[~is_right]]
    colours = [figure_style.CHAINS[0], figure_style.ACCENT]
    sure.hist(parts, 20, stacked=True, color=colours, alpha=0.6, label=["right", "wrong"])
    figure_style.label(sure, "entropy, nats", "images", "How sure the average is")
    sure.set_ylim(top=1.3 * sure.get_ylim()[1])  # for the legend
    figure_style.legend(sure, loc="upper left")


def _plot_deviations(trained: Trained, sure: "Axes") -> None:
    """Plot how many targets have each predicted standard deviation, for each target."""
    sd = np.asarray(trained.predictions().sd).reshape(len(trained.labels), -1)
    sd = sd[np.isfinite(sd).all(axis=1)]
    names = [f"target {number}" for number in range(sd.shape[1])]
    sure.hist(sd, 20, stacked=True, alpha=0.6, label=names if len(names) > 1 else None)
    title = "How sure the average is"
    figure_style.label(sure, "predicted standard deviation", "targets", title)


def sections_of(trained: Trained) -> list[Section]:
    """Return the report of a training; see `Trained.report`."""
    numbers = summarise(trained)
    figures = plot_training(trained, narrow=True)
    glance = [warnings_of(trained, numbers["problems"]), *tables_of(numbers)]
    own = [
        Section(title, [Picture(figures[name], words)])
        for name, (title, words) in _PICTURES.items() if name in figures
    ]  # fmt: skip
    exchange = exchange_section(trained, figures)
    return [Section("At a glance", glance), *own, *([exchange] if exchange.parts else [])]
