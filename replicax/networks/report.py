"""The report of a training: epochs, calibration, and the images with the least certain predictions.
Without a test it only shows the run and the exchange of replicas."""

from dataclasses import replace
from typing import Any

import numpy as np

from replicax.data import NAMES, Dataset
from replicax.errors import show
from replicax.networks import predict
from replicax.networks.likelihoods import Categorical
from replicax.networks.likelihoods.real import coverage_by_level
from replicax.networks.named import NamedProblem
from replicax.networks.plots import average_so_far, settled_span
from replicax.networks.summary import metric_rows, summarise
from replicax.networks.trained import Trained
from replicax.page import charts
from replicax.page.content import Chart, Page, Picture, Section, Table
from replicax.results.mixing import exchanges
from replicax.results.plotted import spread
from replicax.results.report.build import page_of
from replicax.results.report.exchange import exchange_section
from replicax.results.report.glance import warnings_of
from replicax.results.summary import render_machine_use

_MOST_IMAGES = 24
_MOST_ROWS = 60  # rows of the table of epochs
_LEVELS = 21  # of central intervals
_BAND = "rgba(58, 123, 213, 0.2)"


def build_page(trained: Trained, images: Any = None) -> Page:
    """Return the page of a training; see `Trained.report`."""
    numbers = summarise(trained)
    sections = [
        Section("glance", "At a glance", [warnings_of(trained, numbers), *_tables(numbers)]),
        _epochs(trained),
        _predictions(trained),
        _uncertain(trained, images),
        exchange_section(trained),
    ]
    return page_of(trained, [section for section in sections if section is not None])


def _tables(numbers: dict[str, Any]) -> list[Table]:
    """Return tables of the run and of its scores on the test data."""
    facts = [
        ("Result", numbers["result"]["sentence"]),
        ("Method, networks", f"{numbers['method']}, {numbers['networks']}"),
        ("Epochs; networks averaged", f"{numbers['epochs']:,}; {numbers['averaged']:g}"),
    ]
    if "exchange" in numbers:
        exchange = numbers["exchange"]
        facts.append(("Window, round trips", f"{exchange['window']}, {exchange['round_trips']:,}"))
    if any(numbers["restarts"]):
        facts.append(("Restarts by rung", ", ".join(map(str, numbers["restarts"]))))
    facts += [("Seed", str(numbers["seed"])), ("Time and machine", render_machine_use(numbers))]
    tables = [Table(("", ""), facts)]
    if numbers["likelihood"] is None:
        return tables
    heads, rows = metric_rows(numbers)
    return [*tables, Table(heads, rows, "On the test data")] if rows else tables


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
    figure = charts.figure(traces, "epoch", title.lower(), yaxis=_range(values, average))
    note = f"{len(shown)} of {count} networks are drawn." if len(shown) < count else ""
    return Chart(f"epochs-{name}", title, words, {"": figure}, table, note, height=340)


def _range(values: np.ndarray, average: np.ndarray) -> dict[str, Any]:
    """Return the range of an axis; early and rare values may be outside."""
    span = settled_span(values, np.column_stack([values[:, 0], average]))
    return {} if span is None else {"range": list(span.limits)}


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


def _uncertain(trained: Trained, images: Any) -> Section | None:
    """Return the test images with the largest predictive entropy of the average."""
    if not isinstance(trained.likelihood, Categorical):
        if images is not None:
            raise ValueError("images is given, but the run has no test of classes: leave it out.")
        return None
    if not float(trained.average.weight):
        return None
    pixels, names = _test_images(trained, images)
    if pixels is None:
        return None
    log_probs, labels = trained.log_probabilities(), trained.labels
    entropies = predict.entropy(log_probs)
    pictures = []
    for image in np.argsort(-entropies)[:_MOST_IMAGES]:
        top = int(log_probs[image].argmax())
        is_right = "right" if top == labels[image] else "wrong"
        caption = (
            f"Image {image}, {_class(names, labels[image])}: said {_class(names, top)} "
            f"({np.exp(log_probs[image, top]):.0%}, {is_right}), entropy {entropies[image]:.2f}"
        )
        pictures.append(Picture(pixels[image], caption))
    words = "Test images with the largest predictive entropy, in nats, the most uncertain first."
    return Section("uncertain", "Most uncertain images", [words, pictures])


def _class(names: tuple[str, ...] | None, label: Any) -> str:
    return names[label] if names else f"class {label}"


def _test_images(trained: Trained, images: Any) -> tuple[np.ndarray | None, Any]:
    """Return the test images as bytes and the names of classes: those given, or those of the data
    set named in the run folder if it is on this machine and has the same labels."""
    names = None
    if images is None:
        images = _noted_data(trained)
    if isinstance(images, Dataset):
        same = np.array_equal(images.test_labels, trained.labels)
        names, images = images.class_names, images.test_images if same else None
    if images is None:
        return None, names
    pixels = np.asarray(images)
    num_images = len(trained.labels)
    is_image = pixels.ndim == 4 and pixels.shape[-1] in (1, 3) and len(pixels) == num_images
    if not is_image or pixels.dtype != np.uint8:
        raise ValueError(
            f"images is {show(images)}; give the {num_images} test images as bytes (image, row, "
            "column, channel), or the rx.data.Dataset."
        )
    return pixels, names


def _noted_data(trained: Trained) -> Dataset | None:
    """Return the data set named in the run's note, without running user code or downloading."""
    named = NamedProblem.from_note(trained.metadata.note)
    if named is None or named.data not in NAMES:
        return None
    try:
        return replace(named, download=False).dataset()
    except (ValueError, OSError, TypeError):  # not on this machine
        return None
