"""Saving a run into its folder: records and a checkpoint, written and committed when due."""

import errno
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from replicax.run.carry import Carry
from replicax.run.evaluation import Between
from replicax.run.options import checkpoint_interval
from replicax.run.processes import agree
from replicax.run.program import Program
from replicax.run.records import Arrays, Keeper, Records
from replicax.run.storage import checkpoint
from replicax.run.storage.files import NotWritten
from replicax.run.storage.folder import FolderRecords, steps_of
from replicax.run.storage.metadata import FILE, Metadata

_PENDING_BYTES = 2**28


class Saver(Keeper):
    """Writes records and a checkpoint when one is due, beside the loop, one at a time."""

    def __init__(
        self,
        records: Records,
        program: Program,
        evaluation: Between | None = None,
    ) -> None:
        super().__init__(records, program, evaluation)
        self.every, self.num_kept = program.run.checkpoint_every, program.run.keep_checkpoints
        self.worker, self.writing = ThreadPoolExecutor(1, "replicax"), None
        self.clock = time.monotonic()
        step = records.commit.step if isinstance(records, FolderRecords) else -1
        (self.step,) = agree(step)

    def __exit__(self, *error: Any) -> None:
        self.worker.shutdown()

    def is_due(self, step: int) -> bool:
        if self.records.folder is None:
            return False
        if self.records.pending_bytes > _PENDING_BYTES:
            return True
        steps, seconds = checkpoint_interval(self.every)
        if steps is not None:
            return step - self.step >= steps
        return time.monotonic() - self.clock >= seconds

    def keep(self, values: Arrays, carry: Carry) -> None:
        """Start to write the state. All processes write their parts of the checkpoint, and only the
        first one the rest."""
        self.clock = time.monotonic()
        state = None if self.evaluation is None else self.evaluation.state
        arrays = checkpoint.copy_arrays({"carry": carry, "evaluation": state})
        if isinstance(self.records, FolderRecords):
            rows, write = self.records.take_pending(), self.records.write
            self.writing = self.worker.submit(write, self.step, rows, values, arrays, self.num_kept)
        else:
            super().keep(values, carry)
            folder = self.records.shared
            assert folder is not None, "without a folder there is no Saver"
            self.writing = self.worker.submit(checkpoint.save, folder, self.step, arrays)

    def wait(self) -> None:
        """Wait until all processes have written; raise if one could not."""
        writing, self.writing = self.writing, None
        error = None if writing is None else writing.exception()
        (failed,) = agree(error is not None)
        if failed:
            error = error or NotWritten("another process could not write its part.")
            raise NotWritten(_failure(self.records, self.step, error)) from error

    def write_metadata(self, metadata: Metadata) -> None:
        try:
            super().write_metadata(metadata)
        except OSError as error:
            raise NotWritten(_failure(self.records, self.step, error)) from error


def _failure(records: Any, step: int, error: BaseException) -> str:
    """Return one sentence about a state that could not be written."""
    folder = records.shared
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error)
    lines = str(error).splitlines() or [""]
    own = isinstance(error, NotWritten)
    reason = lines[0][:200].rstrip(".") if own else f"{type(error).__name__}: {lines[0][:200]}"
    reason = "no space is left on the disk" if full else reason
    if not (folder / FILE).exists():  # a removal may meet the writing anywhere
        reason = f"{folder} was removed while the run went on"
    if not isinstance(records, FolderRecords):  # the first process knows what there is
        return f"The state of step {step} could not be saved in {folder}: {reason}."
    before = records.commit.step
    if before >= 0 and before not in steps_of(folder):
        return (
            f"The state of step {step} could not be saved in {folder}: {reason}. What was saved "
            "before was removed while the run went on: start it again."
        )
    kept = (
        f"The state of step {before} is intact: once that is mended, continue by "
        f"rx.resume({str(folder)!r}, target)."
        if before >= 0
        else "Nothing was saved before."
    )
    return f"The state of step {step} could not be saved in {folder}: {reason}. {kept}"
