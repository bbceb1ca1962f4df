"""Metadata of runs that never ran, and of runs that differ in a few entries."""

from dataclasses import fields, replace
from typing import Any

from replicax.run.storage.metadata import BatchSpec, Metadata, Resolved, TreeSpec

_OPTIONS = {
    "num_steps": 100,
    "num_chains": 2,
    "burn_in": 0,
    "thin": 1,
    "seed": 0,
    "keep_draws": True,
    "target_swap_rate": 0.4,
    "energy_at": "moved",
    "learning_rate": 0.1,
    "kernel": "sgld",
}
_RESOLVED = Resolved(
    num_replicas=3,
    schedule="windowed_deo",
    window=1,
    swaps="at_most_one",
    alternate=True,
    rule="metropolis",
    history_every=50,
    draw_rungs=(0,),
    adapts="temperature",
    track_best=False,
    counted_from=0,
    row_energies=False,
    swap_every=1,
    swap_energy="moved",
    tempers_likelihood=False,
    adjusted=False,
    kernel="sgld",
)


def changed(metadata: Metadata, **changes: Any) -> Metadata:
    """Metadata with other entries, choices of the run or options, each by its name."""
    known = {entry.name for entry in fields(Metadata)}
    resolved = {entry.name for entry in fields(Resolved)}
    entries = {name: value for name, value in changes.items() if name in known}
    choices = {name: value for name, value in changes.items() if name in resolved - known}
    options = {name: value for name, value in changes.items() if name not in resolved | known}
    return replace(
        metadata,
        **{
            "resolved": replace(metadata.resolved, **choices),
            "options": {**metadata.options, **options},
            **entries,
        },
    )


def metadata_of(**changes: Any) -> Metadata:
    """Metadata of a small run, with the changes of `changed`."""
    params = TreeSpec(("x",), ((2,),), ("float32",), {"leaf": 0})
    return changed(Metadata("sample", _OPTIONS, _RESOLVED, params, BatchSpec("none")), **changes)
