"""A saved exchange: the content of `state_dict`, checked before anything is set."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from replicax.errors import show
from replicax.torch.records import Rows

FORMAT = 1


class Saved(NamedTuple):
    """Everything that an exchange needs to resume."""

    arrays: dict[str, np.ndarray]  # of the decisions, by name
    paths: np.ndarray  # (step, replica)
    history: dict[str, np.ndarray]  # (point, ...), by name
    factor: float

    def to_dict(self, torch: Any, options: str) -> dict[str, Any]:
        """Return it as plain data and copies of tensors."""
        return {
            "format": FORMAT,
            "options": options,
            "factor": self.factor,
            "arrays": {name: torch.tensor(value) for name, value in self.arrays.items()},
            "paths": torch.tensor(self.paths),
            "history": {name: torch.tensor(value) for name, value in self.history.items()},
        }


def read(state: Any, options: str, paths: Rows, history: Mapping[str, Rows]) -> Saved:
    """Return the content of `state`; raise unless it belongs to an exchange with these options and
    rows."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise ValueError(f"state is {show(state)}; give what state_dict() returned.")
    _check_options(state.get("options"), options)
    try:
        saved = Saved(
            arrays={name: part.cpu().numpy() for name, part in state["arrays"].items()},
            paths=state["paths"].cpu().numpy(),
            history={name: state["history"][name].cpu().numpy() for name in history},
            factor=float(state["factor"]),
        )
    except (KeyError, AttributeError, TypeError) as problem:
        raise ValueError(
            f"The state is not as state_dict() returned it ({problem!r}): give it complete, with "
            "its tensors as tensors."
        ) from None
    paths.check(saved.paths)
    for name, rows in history.items():
        rows.check(saved.history[name])
    return saved


def _check_options(stored: Any, options: str) -> None:
    """Raise unless a state was saved with these options; version 0.2 stored others beside them."""
    try:
        before, now = dict(json.loads(stored)), json.loads(options)
    except (TypeError, ValueError):
        raise ValueError(
            f"The state has {show(stored)} as its options: give what state_dict() returned."
        ) from None
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        was, are = ({name: held.get(name) for name in other} for held in (before, now))
        raise ValueError(
            f"The state is that of an exchange with {was}, and this one has {are}: give the same "
            "arguments."
        )
