"""Numbers computed from the runs of Table 2, always at the last epoch, never at the best one."""

import math
from typing import Any, NamedTuple

import numpy as np

import replicax as rx
from replicax import theory
from studies.shared.index_process import simulate_trips
from studies.table2 import starts

REPEATS = 1000
_WAYS = ("logits", "probabilities")


class Difference(NamedTuple):
    """The difference of two methods on the same images, with standard errors over images."""

    accuracy: float
    accuracy_error: float
    nll_sum: float
    nll_sum_error: float


class Trips(NamedTuple):
    """Round trips of a run, and the number expected from its verdict rates."""

    counted: int
    long_run: float  # Lemma 1's rate times the steps
    simulated: np.ndarray  # (repeat,)
    round_trip_time: float  # steps, Lemma 1

    @property
    def mean(self) -> float:
        return float(self.simulated.mean())

    @property
    def std(self) -> float:
        return float(self.simulated.std(ddof=1))


def data_name(run: rx.Trained) -> str:
    """Return the name of the data set, without its file."""
    task = run.metadata.note.get("task") or {}
    name = str(task.get("data", "unknown data")).rpartition(":")[2]
    return {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}.get(name, name)


def command_of(run: rx.Trained) -> str:
    """Return the command that makes the same run; files are named without their folder."""
    task, options = run.metadata.note.get("task") or {}, run.metadata.run
    known = ("cifar10", "cifar100", "digits")

    def short(name: str) -> str:
        _, colon, attribute = name.rpartition(":")
        return f"FILE.PY:{attribute}" if colon and attribute not in known else attribute

    is_start, asked = run.method == "pretrain", getattr(options, "epochs", 0)
    words = [f"replicax train --method {run.method}"]
    words += [f"--{key} {short(task[key])}" for key in ("model", "data") if key in task]
    words += [f"--replicas {options.num_replicas}", f"--epochs {asked}"]
    words += ["--bf16"] * bool(task.get("bf16"))
    words += ["--on-swap reset"] * (run.options["on_swap"] == "reset")
    words += [f"--seed {options.seed}"] * (options.seed != 0)
    words += ["--out runs/starts"] * is_start
    words += ["--init-from runs/starts"] * (not is_start)
    return " ".join(words)


def asked_epochs(run: rx.Trained) -> int:
    return run.clock.epochs


def whole_cycles(run: rx.Trained) -> int | None:
    """Return the number of finished cycles; None for a method without cycles."""
    has_cycles = run.metadata.method.is_single
    return run.num_epochs // run.clock.cycle_epochs if has_cycles else None


def has_average(run: rx.Trained | None) -> bool:
    return run is not None and float(run.average.weight) > 0


def averages(run: rx.Trained, at_start: rx.predict.Average | None) -> list[dict[str, Any]]:
    """Return the metrics of every way to average, without the start networks first and then with
    them, if their average is given."""
    ways = {0.0: run.average}
    if at_start is not None:
        ways[starts.WEIGHT] = starts.with_starts(run.average, at_start)
    return [
        {"by": by, "start_weight": weight, **starts.metrics(average, run.labels, by)}
        for weight, average in ways.items()
        for by in _WAYS
    ]


def curve_of(run: rx.Trained) -> dict[str, Any]:
    """Return metrics by epoch, of the coldest network and of the average (NaN before its first
    network), over the epochs of all networks together."""
    epochs, by = run.epochs, "logits"
    averaged = epochs["weight"] > 0
    means = {
        f"average_{name}": np.where(averaged, epochs[f"average_{name}_{by}"], np.nan)
        for name in ("accuracy", "nll")
    }
    single = {name: epochs[name][:, 0] for name in ("accuracy", "nll")}
    return {"by": by, "epochs": run.num_replicas * epochs["epoch"], **single, **means}


def starts_alone(at_start: rx.predict.Average, labels: np.ndarray) -> list[dict[str, Any]]:
    """Return the metrics of the start networks alone, given their average."""
    return [{"by": by, "start_weight": 1.0, **starts.metrics(at_start, labels, by)} for by in _WAYS]


def pick(ways: list[dict[str, Any]], by: str = "logits", start_weight: float = 0.0) -> Any:
    matching = (w for w in ways if w["by"] == by and w["start_weight"] == start_weight)
    return next(matching, None)


def accuracy_error(accuracy: float, num_images: int) -> float:
    """Return the binomial standard error of an accuracy."""
    return math.sqrt(accuracy * (1 - accuracy) / num_images)


def compare(one: rx.Trained, other: rx.Trained, by: str = "logits") -> Difference:
    """Return the paired difference: images on which both agree do not count (McNemar)."""
    rows = np.arange(len(one.labels))
    predictions = [np.asarray(run.log_probabilities(by), float) for run in (one, other)]
    right = [log_probs.argmax(-1) == one.labels for log_probs in predictions]
    loss = [-log_probs[rows, one.labels] for log_probs in predictions]
    gained, nats = right[0].astype(float) - right[1], loss[0] - loss[1]
    num = len(rows)
    return Difference(
        float(gained.mean()),
        float(gained.std(ddof=1) / math.sqrt(num)),
        float(nats.sum()),
        float(nats.std(ddof=1) * math.sqrt(num)),
    )


def epoch_rates(run: rx.Trained, span: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Return epochs, and the verdict rates (epoch, pair) over the `span` epochs before each."""
    counts, steps = run.history["verdicts"][0], run.history["step"]
    span = max(1, min(span, len(steps) // 2))
    num_steps = (steps[span:] - steps[:-span])[:, None]
    return steps[span:] / run.options["history_every"], (counts[span:] - counts[:-span]) / num_steps


def trips_of(run: rx.Trained) -> Trips:
    rates, window = run.verdict_rate[0], run.window
    time = float(theory.round_trip_time(1 - rates, window)) if np.all(rates > 0) else math.inf
    return Trips(
        int(run.round_trips.sum()),
        run.num_replicas * run.num_steps / time,
        simulate_trips(rates, window, run.num_steps, REPEATS),
        time,
    )


def format_seconds(seconds: float | None) -> str:
    if seconds is None:
        return "not timed"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
