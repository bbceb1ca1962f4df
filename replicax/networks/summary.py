"""A training in numbers and tables: networks alone, their average, and the exchange."""

from typing import Any

import numpy as np

from replicax.networks import evaluate as examine
from replicax.networks import predict
from replicax.networks.trained import START_WEIGHT, Trained


def summarise(trained: Trained) -> dict[str, Any]:
    """Everything about a run as plain data."""
    seen, training = trained.epochs, trained._records.meta["training"]
    held: dict[str, Any] = {
        "method": trained.method,
        "task": trained._records.meta["note"].get("task"),
        "machine": trained._records.meta["machine"],
        "epochs": trained.num_epochs,
        "networks": trained.num_replicas,
        "averaged": float(trained.average.weight),
        "result": trained.result._asdict(),
        "restarts": trained.restarts.tolist(),
        "problems": trained.problems(),
        "seed": training["seed"],
    }
    if len(seen["epoch"]):
        last = {name: np.asarray(seen[name][-1]).tolist() for name in ("accuracy", "nll")}
        held["by_rung"] = last
        held["coldest"] = {name: values[0] for name, values in last.items()}
    held["averages"] = _averages(trained)
    if trained.options["schedule"] != "none":
        held["exchange"] = {
            "window": trained.window,
            "round_trips": int(trained.round_trips.sum()),
            "round_trips_per_100_epochs": 100
            * float(trained.round_trips.sum())
            / max(trained.num_epochs, 1),
            "verdict_rate": trained.verdict_rate[0].tolist(),
            "window_swap_rate": trained.window_swap_rate[0].tolist(),
            "learning_rates": trained.learning_rates[0].tolist(),
            "buffer": float(trained.buffer[0]),
        }
    return held


def _averages(trained: Trained) -> list[dict[str, Any]]:
    """Metrics of every way to average; start networks count only where they were asked for."""
    weights = [0.0] if float(trained.starts.weight) == 0 else [0.0, START_WEIGHT]
    if float(trained.average.weight) == 0:
        return []
    return [
        {"by": by, "start_weight": weight, **trained.metrics(by, weight)._asdict()}
        for weight in weights
        for by in ("probabilities", "logits")
    ]


def render(held: dict[str, Any]) -> Any:
    """Tables for people."""
    from rich.console import Group
    from rich.table import Table

    task = held["task"] or {}
    title = " ".join(str(task[name]) for name in ("model", "data") if name in task)
    heads = ("", "accuracy %", "NLL", "Brier", "calibration error")
    table = Table(*heads, title=f"{held['method']} {title}".strip(), title_justify="left")
    if "coldest" in held:
        one = held["coldest"]
        table.add_row(
            "coldest network" if "exchange" in held else "first network",
            f"{100 * one['accuracy']:.2f}",
            f"{one['nll']:.4f}",
        )
        if held["networks"] > 1:
            rungs = held["by_rung"]
            mean = {name: float(np.mean(values)) for name, values in rungs.items()}
            table.add_row(
                "mean of all networks", f"{100 * mean['accuracy']:.2f}", f"{mean['nll']:.4f}"
            )
    for part in held["averages"]:
        starts = part["start_weight"]
        what = f"and starts x {starts:g}" if starts else f"average of {held['averaged']:g}"
        table.add_row(
            f"{what}, {part['by']}",
            f"{100 * part['accuracy']:.2f}",
            f"{part['nll']:.4f}",
            f"{part['brier']:.4f}",
            f"{part['calibration_error']:.4f}",
        )
    lines = [f"{held['epochs']} epochs, {held['machine']}; {held['result']['sentence']}"]
    if any(held["restarts"]):
        lines.append(f"Networks that broke and began again, by rung: {held['restarts']}")
    lines += held["problems"]
    if "exchange" in held:
        lines.append(_exchange_line(held["exchange"]))
    if "outside" in held:
        lines.append(
            f"Told from {held['outside']['data']} by entropy: AUROC {held['outside']['auroc']:.4f} "
            f"({held['outside']['networks']} networks)"
        )
    return Group(table, *lines)


def _exchange_line(exchange: dict[str, Any]) -> str:
    rates = exchange["verdict_rate"]
    return (
        f"Window {exchange['window']}, round trips {exchange['round_trips']} "
        f"({exchange['round_trips_per_100_epochs']:.1f} per 100 epochs), pairs agree in "
        f"{100 * min(rates):.2g} to {100 * max(rates):.2g} % of steps, buffer "
        f"{exchange['buffer']:.3g}"
    )


def judge_outside(trained: Trained, problem: Any, outside: Any) -> dict[str, Any]:
    """How well predictive entropy tells images of another data set from those of the test.

    With the stored networks of the coldest rung, or where none were kept, the last ones.
    """
    import jax.numpy as jnp

    from replicax.networks.train import networks_of

    if trained.options["keep_draws"] and trained.num_draws:
        import jax

        networks = jax.tree.map(lambda leaf: leaf[0], trained.draws)
    else:
        assert trained.run_dir is not None, "a run folder has the last networks"
        networks = networks_of(trained.run_dir, problem)
    test = problem.test
    if outside.test_images.shape[1:] != test.inputs.shape[1:]:
        raise ValueError(
            f"The other images are {outside.test_images.shape[1:]}, those of the test "
            f"{test.inputs.shape[1:]}: choose a data set of the same size."
        )
    seen = []
    for images, labels in (
        (test.inputs, test.labels),
        (outside.test_images, outside.test_labels),
    ):
        shown = test._replace(inputs=jnp.asarray(images), labels=jnp.asarray(labels))
        logits = examine.build_logits(shown)(networks)
        seen.append(np.asarray(predict.log_probabilities(predict.average(logits))))
    return {
        "auroc": predict.out_of_distribution(*seen),
        "networks": int(logits.shape[0]),
    }
