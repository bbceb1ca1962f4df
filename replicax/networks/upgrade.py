"""Trainings of earlier versions: their folders are read, and resumed unless an option is gone."""

from typing import Any

from replicax.errors import show
from replicax.run.storage.folder import FolderRecords

_GONE = {"average_rungs": 1, "settle_epochs": 0.0}  # and the values without an effect


def check_resumable(records: FolderRecords) -> None:
    """Raise if a training was started with an option that is gone."""
    for name, value in _gone(records.metadata.training or {}).items():
        raise ValueError(
            f"The run in {records.folder} was started with {name}={show(value)}, which is gone "
            "since version 0.3, so it cannot be continued: start a new run without it. "
            "rx.load(folder) reads this one."
        )


def _gone(training: dict[str, Any]) -> dict[str, Any]:
    """Return what is gone of the stored options of a training, by name."""
    method = training.get("method")
    own = method if isinstance(method, dict) else {}
    schedule = training.get("rate_schedule") or own.get("rate_schedule")
    gone = {
        name: training[name] for name, usual in _GONE.items() if training.get(name, usual) != usual
    }
    return gone | ({"rate_schedule": schedule} if schedule == "arrival" else {})
