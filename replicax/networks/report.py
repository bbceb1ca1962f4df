"""What a training reports: its summary, its figures and its page.

Without a test these only show the run and the exchange of replicas.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.networks import likelihoods, predict
from replicax.networks.likelihoods import Categorical, Likelihood, coverage_by_level
from replicax.networks.task import Supervised
from replicax.networks.trained import Trained
from replicax.page import charts
from replicax.page.render import Chart, Page, Section, Table
from replicax.results import figure_style
from replicax.results.diagnostics import exchanges
from replicax.results.plots import plot_exchange
from replicax.results.plotted import spread
from replicax.results.report import exchange_section, page_of, warnings_of
from replicax.results.summary import as_rich, as_warning, machine_use, render_machine_use

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SETTLED = 0.2  # fraction of epochs before which values may lie off the scale
_RARE = 0.05  # fraction of values at either end that may lie off the scale
_SPIKE = 6  # times as far from the median as most values: may lie off the scale
_ROOM = 0.08  # of the height of an axis, below and above its values
_MOST_ROWS = 60  # rows of the table of epochs
_LEVELS = 21  # of central intervals
_BAND = "rgba(58, 123, 213, 0.2)"


def summarise(trained: Trained) -> dict[str, Any]:
    """Return the numbers of a training as plain data."""
    epochs = trained.epochs
    numbers: dict[str, Any] = {
        "method": trained.method,
        "task": trained.metadata.note.get("task"),
        **machine_use(trained),
        "epochs": trained.num_epochs,
        "networks": trained.num_replicas,
        "averaged": float(trained.average.weight),
        "result": trained.result._asdict(),
        "restarts": trained.restarts.tolist(),
        "problems": trained.problems(),
        "seed": trained.metadata.run.seed,
    }
    if trained.heating is not None:
        numbers["heating"] = trained.heating
    likelihood = trained.likelihood
    numbers["likelihood"] = None if likelihood is None else likelihood.to_json()
    if likelihood is not None and len(epochs["epoch"]):
        names = [score.name for score in likelihood.scores]
        last = {name: np.asarray(epochs[name][-1]).tolist() for name in names}
        numbers["by_rung"] = last
        numbers["coldest"] = {name: values[0] for name, values in last.items()}
    if trained.decision is not None:
        numbers["decision"] = trained.decision
    tested, method = trained.metadata.resolved.range_test, trained.metadata.method
    if tested is not None:
        rate = float(method.pretrain_rate if method.pretrain else method.learning_rate)
        found = {"kernel": str(method.kernel or "momentum"), "learning_rate": rate}
        numbers["range_test"] = {**found, **tested}
    numbers["averages"] = [] if likelihood is None else _averages(trained, likelihood)
    if trained.metadata.resolved.schedule != "none":
        trips = int(trained.round_trips.sum())
        numbers["exchange"] = {
            "window": trained.window,
            "round_trips": trips,
            "round_trips_per_100_epochs": 100 * trips / max(trained.num_epochs, 1),
            "verdict_rate": trained.verdict_rate[0].tolist(),
            "window_swap_rate": trained.window_swap_rate[0].tolist(),
            "learning_rates": (trained.energy_scale * trained.learning_rates[0]).tolist(),
            **_of_rule(trained),
        }
    return numbers


def _of_rule(trained: Trained) -> dict[str, Any]:
    """Return the buffer per mean loss, or for rules without one the temperatures of the posterior,
    and the number of steps between swap attempts."""
    scale, every = trained.energy_scale, trained.metadata.resolved.swap_every
    if trained.metadata.resolved.rule == "deterministic":
        return {"swap_every": every, "buffer": float(trained.buffer[0]) / scale}
    heats = trained.temperatures[0] * trained.temperature_scale
    return {"swap_every": every, "temperatures": heats.tolist()}


def _averages(trained: Trained, likelihood: Likelihood) -> list[dict[str, Any]]:
    """Return the metrics of every kind of average."""
    if float(trained.average.weight) == 0:
        return []
    return [{"by": by, **trained.metrics(by)._asdict()} for by in likelihood.ways]


def render(numbers: dict[str, Any]) -> Any:
    """Return the numbers as rich tables."""
    from rich.console import Group

    tables = [as_rich(table) for table in tables_of(numbers)]
    return Group(*tables, *map(as_warning, numbers["problems"]))


def tables_of(numbers: dict[str, Any]) -> list[Table]:
    """Return tables of the run and, where there was a test, of its scores there."""
    averaged = f"{numbers['averaged']:g}"
    if numbers["likelihood"] is None:
        averaged += "; the problem has no test"
    facts = [
        ("ended", numbers["result"]["sentence"]),
        ("time, machine, peak memory", render_machine_use(numbers)),
        (
            "method, networks, epochs",
            f"{numbers['method']}, {numbers['networks']}, {numbers['epochs']:,}",
        ),
        ("networks averaged", averaged),
    ]
    if numbers.get("decision"):
        facts.append(("trained or sampled", numbers["decision"]))
    if "range_test" in numbers:
        tested = numbers["range_test"]
        words = f"{tested['kernel']}, {tested['learning_rate']:g}, found by a range test"
        facts.append(("kernel, peak learning rate", words))
    if "exchange" in numbers:
        facts += _exchange_facts(numbers["exchange"])
    if any(numbers["restarts"]):
        restarts = ", ".join(map(str, numbers["restarts"]))
        facts.append(("restarts of diverged networks, by rung", restarts))
    if "outside" in numbers:
        facts += _outside_facts(numbers["outside"])
    run = Table(("", ""), [*facts, ("seed", str(numbers["seed"]))], _title(numbers))
    return [run] if numbers["likelihood"] is None else [run, score_table(numbers)]


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


def _outside_facts(outside: dict[str, Any]) -> list[tuple[str, str]]:
    by = f"{outside['auroc']:.4f} by entropy, {outside['auroc_mutual_information']:.4f} by mutual"
    words = f"AUROC {by} information ({outside['networks']} networks)"
    return [(f"out-of-distribution detection of {outside['data']}", words)]


def score_table(numbers: dict[str, Any]) -> Table:
    """Return the scores of networks and averages on the test data."""
    likelihood = likelihoods.from_json(numbers["likelihood"])
    columns, ways = likelihood.columns, likelihood.ways
    rows = []

    def add_row(name: str, metrics: dict[str, Any]) -> None:
        values = [
            f"{x.factor * metrics[x.name]:.{x.digits}f}" if x.name in metrics else ""
            for x in columns
        ]
        rows.append((name, *values))

    if "coldest" in numbers:
        add_row("coldest network" if "exchange" in numbers else "first network", numbers["coldest"])
        if numbers["networks"] > 1:
            means = {name: float(np.mean(x)) for name, x in numbers["by_rung"].items()}
            add_row("mean of all networks", means)
    for part in numbers["averages"]:
        name = f"average of {numbers['averaged']:g}"
        add_row(f"{name}, {part['by']}" if len(ways) > 1 else name, part)
    return Table(("", *(column.head for column in columns)), rows, "On the test data")


def score_outside(trained: Trained, problem: Supervised, outside: np.ndarray) -> dict[str, Any]:
    """Return how well the uncertainty separates the images `outside` from the test images, by the
    entropy of the average and by the mutual information of its networks."""
    test, weights = problem.test, trained.networks.weight
    assert test is not None
    if outside.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"The other images have shape {outside.shape[1:]}, the test images "
            f"{test.inputs.shape[1:]}: choose a data set of the same size."
        )
    inside, other = (
        trained.predict(images, members=True, problem=problem) for images in (test.inputs, outside)
    )
    return {
        "auroc": predict.out_of_distribution(inside, other, weights=weights),
        "auroc_mutual_information": predict.out_of_distribution(
            inside, other, by="mutual_information", weights=weights
        ),
        "networks": len(weights),
    }


def plot_training(trained: Trained, out: str | Path | None = None) -> dict[str, "Figure"]:
    """Return figures by name; write them as PNG into the folder `out`.

    They are `epochs`, and those of the exchange, as of every run. Figures without data are
    left out.
    """
    figures: dict[str, Figure] = {}
    likelihood = trained.likelihood
    if likelihood is not None and len(trained.epochs["epoch"]):
        figures["epochs"] = _plot_epochs(trained, likelihood)
    if trained.history["step"].size:
        figures |= plot_exchange(trained)
    figure_style.save_all(figures, out)
    return figures


def _plot_epochs(trained: Trained, likelihood: Likelihood) -> "Figure":
    """Plot each score on the test data in a panel: every network, and the average so far."""
    epochs = trained.epochs
    figure = figure_style.new_figure(10.5, 4.7)
    panels = figure.subplots(1, len(likelihood.scores))
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
        axes.set_ylim(settled_range(networks, np.concatenate(always_shown, axis=1)))
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


def settled_range(networks: np.ndarray, always_shown: np.ndarray) -> tuple[float, float] | None:
    """Return the range of an axis for lines (epoch, line): after the first epochs all of
    `always_shown` but spikes is inside, and all of `networks` but rare values; None if nothing is
    finite."""
    settled = _settled(networks)
    if not settled.size:
        return None
    others = np.concatenate([_without_spikes(_settled(line)) for line in always_shown.T])
    bulk = np.concatenate([np.quantile(settled, (_RARE, 1 - _RARE)), others])
    low, high = float(bulk.min()), float(bulk.max())
    room = _ROOM * max(high - low, 1e-3 * abs(high), 1e-6)
    return low - room, high + room


def _without_spikes(values: np.ndarray) -> np.ndarray:
    """Return the values that are not far from their median, and the last one."""
    if not values.size:
        return values
    away = np.abs(values - np.median(values))
    return np.append(values[away <= _SPIKE * np.median(away)], values[-1])


def _settled(values: np.ndarray) -> np.ndarray:
    values = values[int(_SETTLED * len(values)) :]
    return values[np.isfinite(values)]


def build_page(trained: Trained) -> Page:
    """Return the page of a training; see `Trained.report`."""
    numbers = summarise(trained)
    sections = [
        Section("glance", "At a glance", [warnings_of(trained, numbers), *tables_of(numbers)]),
        _epochs(trained),
        _predictions(trained),
        exchange_section(trained),
    ]
    return page_of(trained, [section for section in sections if section is not None])


def _epochs(trained: Trained) -> Section | None:
    epochs, likelihood = trained.epochs, trained.likelihood
    if likelihood is None or not len(epochs["epoch"]):
        return None
    parts = [_epoch_chart(trained, epochs, score.name, score.title) for score in likelihood.scores]
    return Section("epochs", "Epochs", list(parts))


def _epoch_chart(trained: Trained, epochs: dict[str, np.ndarray], name: str, title: str) -> Chart:
    """Return the chart of a score: every network, and the average so far."""
    x, values, ladder = epochs["epoch"], epochs[name], exchanges(trained)
    count = values.shape[1]
    colours = charts.cold_to_hot(count) if ladder else [charts.CHAINS[0]] * count
    mode = {"mode": "lines" if len(x) > 1 else "markers"}
    names = {0: "coldest network", count - 1: "hottest network"} if ladder else {0: "networks"}
    shown = spread(count, charts.MOST_LINES)
    traces = [
        charts.line(x, values[:, rung], colours[rung], names.get(rung, ""),
                    2.4 if ladder and rung == 0 else 1.0, **mode)
        for rung in reversed(shown)
    ]  # fmt: skip
    average = average_so_far(epochs, name)
    averaged = epochs["weight"] > 0
    if averaged.any():
        traces.append(charts.line(x, average, charts.INK, "average so far", 2.4, **mode))
    rows = [
        (str(x[i]), f"{values[i, 0]:.4f}", f"{average[i]:.4f}" if averaged[i] else "")
        for i in spread(len(x), _MOST_ROWS)
    ]
    table = Table(("epoch", "coldest" if ladder else "first", "average"), rows)
    words = (
        f"{title} on the test data after every epoch; the first network ends at {values[-1, 0]:.4f}"
    )
    limits = settled_range(values, np.column_stack([values[:, 0], average]))
    axis = {} if limits is None else {"range": list(limits)}
    figure = charts.figure(traces, "epoch", title.lower(), yaxis=axis)
    note = f"{len(shown)} of {count} networks are drawn." if len(shown) < count else ""
    return Chart(f"epochs-{name}", title, words, {"": figure}, table, note, height=340)


def _predictions(trained: Trained) -> Section | None:
    """Return the section on the confidence and the accuracy of the average."""
    if trained.likelihood is None or not float(trained.average.weight):
        return None
    is_of_classes = isinstance(trained.likelihood, Categorical)
    parts = _reliability(trained) if is_of_classes else _coverage(trained)
    return Section("predictions", "Predictions of the average", list(parts))


def _coverage(trained: Trained) -> list[Chart]:
    """Return charts of the coverage of a regression and of the targets' positions in the predictive
    distributions."""
    below = np.ravel(trained.average.below) / float(trained.average.weight)
    levels, inside, interval, counts = coverage_by_level(below, _LEVELS)
    blue, axis = charts.CHAINS[0], {"range": [0, 1]}
    low, high = interval.T
    lines = [
        charts.line(levels, low, blue, width=0),
        charts.line(levels, high, blue, "95 % interval", 0, fill="tonexty", fillcolor=_BAND),
        charts.line(levels, inside, blue, "coverage"),
        charts.dashed([0, 1], [0, 1], "calibrated"),
    ]
    diagram = charts.figure(lines, "level of the central interval", "targets in it", xaxis=axis,
                            yaxis={"range": [0, 1.02]})  # fmt: skip
    rows = [(f"{level:.2f}", _share(share)) for level, share in zip(levels, inside)]
    places = _counted(np.arange(0.05, 1, 0.1), counts, 0.1,
                      "predicted probability below the target", "targets")  # fmt: skip
    error = trained.metrics().calibration_error
    words = f"Targets in central intervals by their level; the calibration error is {error:.3f}"
    words_of_places = f"Positions of {below.size:,} targets in their predictive distributions"
    return [
        Chart("coverage", "Coverage", words, {"": diagram}, Table(("level", "targets"), rows),
              f"{words}."),
        Chart("places", "Targets by predicted probability", words_of_places, {"": places}),
    ]  # fmt: skip


def _reliability(trained: Trained) -> list[Chart]:
    bins = predict.reliability(trained.log_probabilities(), trained.labels)
    middle, width, filled = bins.middle, float(np.diff(bins.edges)[0]), bins.count > 0
    blue = charts.CHAINS[0]
    accuracies = charts.bars(middle[filled], bins.accuracy[filled], blue, "accuracy, 95 % interval",
                             predict.accuracy_interval(bins)[filled], width=width)  # fmt: skip
    means = charts.points(bins.confidence[filled], bins.accuracy[filled], charts.CHAINS[1],
                          "at their mean confidence", 7)  # fmt: skip
    right = charts.dashed([0, 1], [0, 1], "calibrated")
    rows = [
        (f"{low:.2f} to {high:.2f}", f"{count:,}", _share(confidence), _share(accuracy))
        for low, high, confidence, accuracy, count in zip(bins.edges, bins.edges[1:], *bins[1:])
        if count
    ]
    head = ("confidence", "images", "mean confidence", "accuracy")
    axis = {"range": [0, 1]}
    diagram = charts.figure([accuracies, right, means], "confidence", "accuracy", xaxis=axis,
                            yaxis={"range": [0, 1.02]})  # fmt: skip
    counts = _counted(middle, bins.count, width, "confidence", "images")
    words = f"Accuracy by confidence; the expected calibration error is {bins.error:.3f}"
    words_of_counts = f"How many of {bins.count.sum():,} images have each confidence"
    return [
        Chart("reliability", "Reliability", words, {"": diagram}, Table(head, rows), f"{words}."),
        Chart("counts", "Images by confidence", words_of_counts, {"": counts}),
    ]


def _counted(middle: np.ndarray, counts: np.ndarray, width: float, x: str, y: str) -> dict:
    """Return a figure of how many rows there are from 0 to 1, with their number on every bar."""
    numbers = [f"{count:,}" if count else "" for count in counts.tolist()]
    style = {"text": numbers, "textposition": "outside", "cliponaxis": False, "width": width}
    bars = charts.bars(middle, counts, charts.CHAINS[0], **style)
    top = {"range": [0, 1.12 * max(int(counts.max()), 1)]}
    return charts.figure([bars], x, y, xaxis={"range": [0, 1]}, yaxis=top, showlegend=False)


def _share(value: float) -> str:
    return f"{value:.3f}"
