"""The summary of a training: numbers for JSON, tables for a terminal."""

from typing import Any

import numpy as np

from replicax.networks import evaluate, predict
from replicax.networks.trained import START_WEIGHT, Trained
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
        "seed": trained.train_options.seed,
    }
    if len(epochs["epoch"]):
        last = {name: np.asarray(epochs[name][-1]).tolist() for name in ("accuracy", "nll")}
        numbers["by_rung"] = last
        numbers["coldest"] = {name: values[0] for name, values in last.items()}
    numbers["averages"] = _averages(trained)
    if trained.options["schedule"] != "none":
        trips = int(trained.round_trips.sum())
        numbers["exchange"] = {
            "window": trained.window,
            "round_trips": trips,
            "round_trips_per_100_epochs": 100 * trips / max(trained.num_epochs, 1),
            "verdict_rate": trained.verdict_rate[0].tolist(),
            "window_swap_rate": trained.window_swap_rate[0].tolist(),
            "learning_rates": trained.learning_rates[0].tolist(),
            "buffer": float(trained.buffer[0]),
        }
    return numbers


def _averages(trained: Trained) -> list[dict[str, Any]]:
    """Return the metrics of every way to average, with start networks where they are averaged."""
    weights = [0.0] if float(trained.starts.weight) == 0 else [0.0, START_WEIGHT]
    if float(trained.average.weight) == 0:
        return []
    return [
        {"by": by, "start_weight": weight, **trained.metrics(by, weight)._asdict()}
        for weight in weights
        for by in ("probabilities", "logits")
    ]


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
            f"Out-of-distribution detection of {outside['data']} by entropy: AUROC "
            f"{outside['auroc']:.4f} ({outside['networks']} networks)"
        )
    return Group(_metrics_table(numbers), *lines)


def _metrics_table(numbers: dict[str, Any]) -> Any:
    from rich.table import Table

    task = numbers["task"] or {}
    title = " ".join(str(task[name]) for name in ("model", "data") if name in task)
    heads = ("", "accuracy %", "NLL", "Brier", "calibration error")
    table = Table(*heads, title=f"{numbers['method']} {title}".strip(), title_justify="left")

    def add_row(name: str, metrics: dict[str, Any]) -> None:
        others = [metrics[key] for key in ("nll", "brier", "calibration_error") if key in metrics]
        table.add_row(name, f"{100 * metrics['accuracy']:.2f}", *(f"{x:.4f}" for x in others))

    if "coldest" in numbers:
        add_row("coldest network" if "exchange" in numbers else "first network", numbers["coldest"])
        if numbers["networks"] > 1:
            means = {name: float(np.mean(x)) for name, x in numbers["by_rung"].items()}
            add_row("mean of all networks", means)
    for part in numbers["averages"]:
        starts = part["start_weight"]
        name = f"and starts x {starts:g}" if starts else f"average of {numbers['averaged']:g}"
        add_row(f"{name}, {part['by']}", part)
    return table


def _exchange_line(exchange: dict[str, Any]) -> str:
    rates = exchange["verdict_rate"]
    return (
        f"Window {exchange['window']}, round trips {exchange['round_trips']} "
        f"({exchange['round_trips_per_100_epochs']:.1f} per 100 epochs), pairs agree in "
        f"{100 * min(rates):.2g} to {100 * max(rates):.2g} % of steps, buffer "
        f"{exchange['buffer']:.3g}"
    )


def judge_outside(trained: Trained, problem: Any, outside: Any) -> dict[str, Any]:
    """Return how well predictive entropy separates the data set `outside` from the test images.

    Predicts with the stored networks of the coldest rung, or with the last ones if none were kept.
    """
    import jax
    import jax.numpy as jnp

    from replicax.networks.train import networks_of

    if trained.options["keep_draws"] and trained.num_draws:
        networks = jax.tree.map(lambda leaf: leaf[0], trained.draws)
    else:
        assert trained.run_dir is not None, "a run folder has the last networks"
        networks = networks_of(trained.run_dir, problem)
    test = problem.test
    if outside.test_images.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"The other images have shape {outside.test_images.shape[1:]}, the test images "
            f"{test.inputs.shape[1:]}: choose a data set of the same size."
        )
    other = test._replace(
        inputs=jnp.asarray(outside.test_images), labels=jnp.asarray(outside.test_labels)
    )

    def log_probs(data: Any) -> np.ndarray:
        logits = evaluate.build_logits(data)(networks)
        return np.asarray(predict.log_probabilities(predict.average(logits)))

    num_networks = jax.tree.leaves(networks)[0].shape[0]
    auroc = predict.out_of_distribution(log_probs(test), log_probs(other))
    return {"auroc": auroc, "networks": num_networks}
