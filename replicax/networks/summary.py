"""The summary of a training: numbers for JSON, tables for a terminal."""

from typing import Any

import numpy as np

from replicax.networks import likelihoods, predict
from replicax.networks.likelihoods import Likelihood
from replicax.networks.trained import Trained
from replicax.results.summary import machine_use, render_machine_use


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

    use, ending = render_machine_use(numbers), numbers["result"]["sentence"]
    lines = [f"{numbers['epochs']} epochs, {use}; {ending}"]
    if any(numbers["restarts"]):
        lines.append(f"Restarts of diverged networks, by rung: {numbers['restarts']}")
    lines += numbers["problems"]
    if "exchange" in numbers:
        lines.append(_exchange_line(numbers["exchange"]))
    if "outside" in numbers:
        outside = numbers["outside"]
        lines.append(
            f"Out-of-distribution detection of {outside['data']}: AUROC {outside['auroc']:.4f} by "
            f"entropy, {outside['auroc_mutual_information']:.4f} by mutual information "
            f"({outside['networks']} networks)"
        )
    if numbers["likelihood"] is None:
        lines.insert(0, f"{numbers['averaged']:g} networks averaged; the problem has no test.")
        return Group(_title(numbers), *lines)
    return Group(_metrics_table(numbers), *lines)


def _title(numbers: dict[str, Any]) -> str:
    task = numbers["task"] or {}
    title = " ".join(str(task[name]) for name in ("model", "data") if name in task)
    return f"{numbers['method']} {title}".strip()


def _metrics_table(numbers: dict[str, Any]) -> Any:
    from rich.table import Table

    heads, rows = metric_rows(numbers)
    table = Table(*heads, title=_title(numbers), title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def metric_rows(numbers: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headers and rows, as text, of the table of networks and averages on the test data."""
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
    return ("", *(column.head for column in columns)), rows


def _exchange_line(exchange: dict[str, Any]) -> str:
    rates, heats = exchange["verdict_rate"], exchange.get("temperatures")
    turns = "steps" if exchange["swap_every"] == 1 else "attempts"
    end = f"temperatures up to {heats[-1]:.3g}" if heats else f"buffer {exchange['buffer']:.3g}"
    return (
        f"Window {exchange['window']}, round trips {exchange['round_trips']} "
        f"({exchange['round_trips_per_100_epochs']:.1f} per 100 epochs), rule accepts in "
        f"{100 * min(rates):.2g} to {100 * max(rates):.2g} % of {turns}, {end}"
    )


def score_outside(trained: Trained, problem: Any, outside: np.ndarray) -> dict[str, Any]:
    """Return how well the uncertainty separates the images `outside` from the test images, by the
    entropy of the average and by the mutual information of its networks."""
    test, weights = problem.test, trained.networks.weight
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
