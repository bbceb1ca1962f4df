"""What the runs of Table 2 say: always at their last epoch, never at the best one on the test."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from replicax import theory
from replicax.experiments.shared.index_process import simulate_trips
from replicax.networks import predict
from replicax.networks.methods import METHODS
from replicax.networks.trained import START_WEIGHT, Trained

PAPER: dict[str, dict[str, tuple[float, float, float, float]]] = {  # NLL, its sd, ACC, its sd
    "resnet20": {
        "cyc-sghmc": (8198, 59, 76.26, 0.18),
        "cyc-swag": (8164, 38, 76.13, 0.21),
        "ensemble": (7902, 64, 76.59, 0.11),
        "deo": (7964, 23, 76.84, 0.12),
        "deo-star": (7741, 67, 77.37, 0.16),
    },
    "resnet32": {
        "cyc-sghmc": (7401, 28, 78.54, 0.15),
        "cyc-swag": (7389, 32, 78.62, 0.13),
        "ensemble": (7204, 29, 79.02, 0.09),
        "deo": (7152, 41, 79.34, 0.15),
        "deo-star": (7019, 35, 79.54, 0.12),
    },
    "resnet56": {
        "cyc-sghmc": (6460, 21, 81.78, 0.08),
        "cyc-swag": (6486, 29, 81.60, 0.14),
        "ensemble": (6553, 15, 81.49, 0.09),
        "deo": (6534, 26, 81.72, 0.12),
        "deo-star": (6439, 32, 82.02, 0.15),
    },
}
LOGS = {  # the last epoch in the authors' published logs: accuracy and NLL
    ("resnet20", "ensemble"): "76.55 to 76.72 / 7842 to 7972",
    ("resnet20", "deo"): "76.31 / 8020",
    ("resnet20", "deo-star"): "77.35 / 7708",
    ("resnet56", "deo"): "81.64 / 6583",
    ("resnet56", "deo-star"): "81.96 / 6427",
}
NAMES = {
    "starts": "start networks",
    "ensemble": "mSGD×P10",
    "deo": "DEO-mSGD×P10",
    "deo-star": "DEO⋆-mSGD×P10",
    "cyc-sghmc": "cycSGHMC×T10",
    "cyc-swag": "cycSWAG×T10",
}
COMPARED = (
    ("deo-star", "deo"),
    ("deo", "ensemble"),
    ("deo-star", "ensemble"),
    ("deo-star", "cyc-sghmc"),
    ("deo-star", "cyc-swag"),
)
REPEATS = 1000


class Difference(NamedTuple):
    """One method minus another on the same images, with standard errors over images."""

    accuracy: float
    accuracy_error: float
    nll_sum: float
    nll_sum_error: float


class Trips(NamedTuple):
    """Round trips of a run beside what its own verdict rates let one expect."""

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


def data_name(run: Trained) -> str:
    """The data set's name, whatever file it came from."""
    task = run._records.meta["note"].get("task") or {}
    name = str(task.get("data", "unknown data")).rpartition(":")[2]
    return {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10"}.get(name, name)


def command_of(run: Trained) -> str:
    """What makes the same run by hand; files are named without their folder."""
    meta = run._records.meta
    task, training = meta["note"].get("task") or {}, meta["training"]
    known = ("cifar10", "cifar100", "digits")

    def short(name: str) -> str:
        _, colon, attribute = name.rpartition(":")
        return f"FILE.PY:{attribute}" if colon and attribute not in known else attribute

    is_start, epochs = run.method == "pretrain", training["epochs"] // training.get("times", 1)
    networks = run.num_replicas * training.get("times", 1)
    parts = ["replicax pretrain"] if is_start else [f"replicax train --method {run.method}"]
    parts += [f"--{key} {short(task[key])}" for key in ("model", "data") if key in task]
    parts += [f"--replicas {networks}", f"--epochs {epochs}"]
    parts += ["--bf16"] * bool(task.get("bf16"))
    parts += ["--on-swap reset"] * (run.options["on_swap"] == "reset")
    parts += [f"--seed {training['seed']}"] * (training["seed"] != 0)
    parts += ["--out runs/starts"] * is_start
    parts += ["--init-from runs/starts"] * (float(run.starts.weight) > 0)
    return " ".join(parts)


def asked_epochs(run: Trained) -> int:
    return run._records.meta["training"]["epochs"]


def whole_cycles(run: Trained) -> int | None:
    """How many a run has done; None where its method has no cycles."""
    training = run._records.meta["training"]
    has_cycles = METHODS[run.method].is_single
    return run.num_epochs // training["cycle_epochs"] if has_cycles else None


def has_average(run: Trained | None) -> bool:
    return run is not None and float(run.average.weight) > 0


def averages(run: Trained) -> list[dict[str, Any]]:
    """Every way to average, at the end of the run: without the start networks first."""
    weights = [0.0] if float(run.starts.weight) == 0 else [0.0, START_WEIGHT]
    return [
        {"by": by, "start_weight": weight, **run.metrics(by, weight)._asdict()}
        for weight in weights
        for by in ("logits", "probabilities")
    ]


def starts_alone(runs: dict[str, Trained | None]) -> list[dict[str, Any]]:
    """The average of the start networks and nothing else, from any run that looked at them."""
    for run in runs.values():
        if run is not None and float(run.starts.weight) > 0:
            found = []
            for by in ("logits", "probabilities"):
                log_probs = np.asarray(predict.log_probabilities(run.starts, by))  # type: ignore
                metrics = predict.evaluate(log_probs, run.labels)
                found.append({"by": by, "start_weight": 1.0, **metrics._asdict()})
            return found
    return []


def pick(ways: list[dict[str, Any]], by: str = "logits", start_weight: float = 0.0) -> Any:
    found = [way for way in ways if way["by"] == by and way["start_weight"] == start_weight]
    return found[0] if found else None


def accuracy_error(accuracy: float, num_images: int) -> float:
    """The binomial standard error of a share of images."""
    return math.sqrt(accuracy * (1 - accuracy) / num_images)


def compare(one: Trained, other: Trained, by: str = "logits") -> Difference:
    """Paired: images that both get right or both get wrong tell nothing apart (McNemar)."""
    rows = np.arange(len(one.labels))
    seen = [np.asarray(run.log_probabilities(by), float) for run in (one, other)]
    right = [log_probs.argmax(-1) == one.labels for log_probs in seen]
    loss = [-log_probs[rows, one.labels] for log_probs in seen]
    gained, nats = right[0].astype(float) - right[1], loss[0] - loss[1]
    num = len(rows)
    return Difference(
        float(gained.mean()),
        float(gained.std(ddof=1) / math.sqrt(num)),
        float(nats.sum()),
        float(nats.std(ddof=1) * math.sqrt(num)),
    )


def epoch_rates(run: Trained, span: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """How often each pair agreed, over the `span` epochs before  -> epochs, (epoch, pair)."""
    counts, steps = run.history["verdicts"][0], run.history["step"]
    span = max(1, min(span, len(steps) // 2))
    num_steps = (steps[span:] - steps[:-span])[:, None]
    return steps[span:] / run.options["history_every"], (counts[span:] - counts[:-span]) / num_steps


def trips_of(run: Trained) -> Trips:
    rates, window = run.verdict_rate[0], run.window
    time = float(theory.round_trip_time(1 - rates, window)) if np.all(rates > 0) else math.inf
    return Trips(
        int(run.round_trips.sum()),
        run.num_replicas * run.num_steps / time,
        simulate_trips(rates, window, run.num_steps, REPEATS),
        time,
    )


def wall_of(folder: Path, run: Trained) -> str:
    from replicax.experiments.table2.study import wall_seconds

    seconds = wall_seconds(folder, run.num_steps)
    if seconds is None:
        return "not timed"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
