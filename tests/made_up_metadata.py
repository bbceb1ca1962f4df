"""Metadata of runs that never ran, posteriors with these, and runs that differ in a few entries."""

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from replicax.run.methods import Method
from replicax.run.options import Run, Sampling
from replicax.run.storage.metadata import BatchSpec, Metadata, Resolved, TreeSpec

_RESOLVED = Resolved(
    num_steps=100,
    num_chains=2,
    burn_in=0,
    thin=1,
    keep_draws=True,
    num_replicas=3,
    schedule="windowed_deo",
    window=1,
    swaps="at_most_one",
    alternate=True,
    rule="metropolis",
    target_swap_rate=0.4,
    history_every=50,
    draw_rungs=(0,),
    adapts="temperature",
    track_best=False,
    counted_from=0,
    row_energies=False,
    swap_every=1,
    energy_at="moved",
    tempers_likelihood=False,
    adjusted=False,
    kernel="sgld",
)


def changed(metadata: Metadata, **changes: Any) -> Metadata:
    """Metadata with other entries, of what it came to, of its method or of its options, each by its
    name."""
    parts = {"resolved": metadata.resolved, "method": metadata.method, "run": metadata.run}
    entries: dict[str, Any] = {}
    for name, value in changes.items():
        if name in {entry.name for entry in fields(Metadata)}:
            entries[name] = value
            continue
        of = next(key for key, part in parts.items() if name in {e.name for e in fields(part)})
        parts[of] = replace(parts[of], **{name: value})
    return replace(metadata, **{**parts, **entries})


def metadata_of(**changes: Any) -> Metadata:
    """Metadata of a small run, with the changes of `changed`."""
    run: Run = Sampling(num_steps=100, num_chains=2, num_replicas=3)
    method = Method("deo", learning_rate=0.1, kernel="sgld", schedule="deo", energy_at="moved")
    params = TreeSpec(("x",), ((2,),), ("float32",), {"leaf": 0})
    made = Metadata("sample", run, method, _RESOLVED, params, BatchSpec("none"))
    return changed(made, **changes)


def made_up(**changes: Any) -> Any:
    """A posterior of two chains and three replicas of which only a few things are known."""
    known = {
        "num_chains": 2,
        "jumps": None,
        "num_replicas": 3,
        "num_draws": 1000,
        "metadata": metadata_of(**changes.pop("about", {})),
        "num_windows": np.full((2, 2), 50),
        "replicas_advised": None,
        "num_steps": 100,
        "counted_steps": 100,
        "run_dir": None,
        "_target": None,
        "energy_scale": 1.0,
        "temperature_scale": 1.0,
        "round_trips": np.array([5, 5]),
        "verdict_rate": np.full((2, 2), 0.5),
        "learning_rates": np.full((2, 3), 0.1),
        "temperatures": np.array([[1.0, 2.0, 4.0]] * 2),
    }
    return SimpleNamespace(**known | changes)
