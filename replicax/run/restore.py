"""Restore a run from its folder: one way for all runs."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernel import Replica
from replicax.algorithm.state import State
from replicax.run import machine, plain
from replicax.run.initial import carry_like
from replicax.run.program import Program
from replicax.run.records import Records
from replicax.run.rows import Carry
from replicax.run.storage import checkpoint
from replicax.run.storage.folder import FolderRecords, open_records
from replicax.run.storage.metadata import FORMAT_VERSION

# What checkpoints of version 0.2 also hold: averages of start networks.
_GONE = ("['evaluation'].starts.", "['evaluation'].averages.starts.")


class Restored(NamedTuple):
    """The checkpoint that a run continues from."""

    step: int
    carry: Carry
    evaluation: Any  # state of the evaluation of networks, or None
    source: bytes | None = None  # state of the batches, where they have one


def point_like(records: FolderRecords, params: Any = None) -> Any:
    """Return the shapes of one point; `params` gives containers that a folder cannot hold."""
    spec = records.metadata.params
    if spec.structure is None and params is None:
        raise ValueError(
            f"The params of the run in {records.folder} are in custom containers: give a tree of "
            "the same kind, rx.resume(run_dir, target, params=...). Networks need params and "
            "model_state of dicts, lists and tuples to be resumed."
        )
    return plain.shapes_of(spec, params)


def restore(
    records: FolderRecords, program: Program, like: Any, evaluation_like: Any = None
) -> Restored:
    """Return the checkpoint that the records stand at, as arrays on the device.

    `like` and `evaluation_like` are the shapes of one point and of the evaluation's state.
    """
    step = records.commit.step
    shapes = {"carry": carry_like(program, like), "evaluation": evaluation_like}
    metadata = records.metadata
    try:
        arrays = checkpoint.restore(records.folder, step, shapes, gone=_GONE)
    except checkpoint.Misfit as error:
        if metadata.format_version == FORMAT_VERSION:
            raise
        raise checkpoint.Misfit(
            f"{error} It has format version {metadata.format_version}, in which the checkpoints of "
            f'the kernel "langevin" hold more than in {FORMAT_VERSION}: continue such a run with '
            "the version that started it."
        ) from None
    arrays = jax.tree.map(jnp.asarray, arrays)
    source = records.final.get("source")
    source = None if source is None else source.tobytes()
    return Restored(step, arrays["carry"], arrays["evaluation"], source)


def restore_points(records: FolderRecords, like: Any) -> tuple[Any, np.ndarray]:
    """Return the points of the checkpoint, leading axes (chain, replica), and `replica_at`.

    Of targets with a model state; whatever kernel moved them. `like` is one point.
    """
    lead = records.final["learning_rates"].shape  # (chain, rung)
    params, model_state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), like
    )
    nothing = State(*(None for _ in State._fields))  # type: ignore[arg-type]
    state = nothing._replace(
        replicas=Replica(params, None),
        model_state=model_state,
        replica_at=jax.ShapeDtypeStruct(lead, jnp.int32),
    )
    wanted = {"carry": Carry(state, None)}  # type: ignore[arg-type]
    arrays = checkpoint.restore(records.folder, records.commit.step, wanted, part=True)
    state = arrays["carry"].state
    return jax.tree.map(jnp.asarray, state.points), np.asarray(state.replica_at)


def rewind(records: Records, program: Program, step: int, source: bytes | None = None) -> None:
    """Bring records and batches to the step of a checkpoint: later rows are dropped."""
    program.batches.skip_to(step, source)
    if isinstance(records, FolderRecords):
        records.rewind()


def records_to_continue(records: FolderRecords) -> Any:
    """Return the records in the first process, and new ones in memory in the others, once all have
    read what they need."""
    machine.wait()
    if machine.is_first():
        return records
    copy = Records(records.folder)
    copy.write_metadata(records.metadata)
    return copy


def whole_records(records: Records, folder: str | Path) -> Records:
    """Return the records of all of a run that was resumed: the others read what the first wrote."""
    machine.wait()
    return records if machine.is_first() else open_records(folder)
