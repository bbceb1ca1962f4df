"""Copies of finished runs that differ in their records, for tests of summaries and figures."""

import copy
from typing import Any

import numpy as np
from made_up_metadata import changed

import replicax as rx


def alter(
    posterior: rx.Posterior,
    lengths: dict[str, int] | None = None,
    final: dict[str, np.ndarray] | None = None,
    **changes: Any,
) -> Any:
    """A copy of a run in memory with shorter records, another end or other options."""
    other = copy.deepcopy(posterior)
    records = other._records
    for group, length in (lengths or {}).items():
        rows = {name: records.read(group, name)[:length] for name in records.names(group)}
        records._pending[group] = [rows] if length else []
    records.final.update(final or {})
    records.metadata = changed(other.metadata, **changes)
    return other


def with_properties(posterior: rx.Posterior, **values: Any) -> Any:
    """The same run with other numbers, as properties of these names say them."""
    parts = {name: property(lambda _, value=value: value) for name, value in values.items()}
    return type("Altered", (type(posterior),), parts)(posterior._records)
