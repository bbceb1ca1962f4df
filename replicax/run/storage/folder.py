"""Run folders: records on the disk that are valid at every moment, and the way back into them."""

import contextlib
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from replicax.run import machine
from replicax.run.records import GROUPS, Arrays, Records, storable
from replicax.run.storage import checkpoint, commits, files, zarr_arrays
from replicax.run.storage.commits import Column, Commit, Group
from replicax.run.storage.files import Damaged
from replicax.run.storage.lock import locked
from replicax.run.storage.metadata import FILE, Metadata, read_metadata

_STORE = "records.zarr"
_SPARE_BYTES = 2**19  # for small files, which also the smallest state has


class FolderRecords(Records):
    """Records in a run folder, read as of the last commit."""

    folder: Path

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.commit = Commit(step=-1)  # before any

    @property
    def _store(self) -> Path:
        return self.folder / _STORE

    def write_metadata(self, metadata: Metadata) -> None:
        super().write_metadata(metadata)
        metadata.write(self.folder)

    def names(self, group: str) -> list[str]:
        return list(self.commit.groups[group].columns) if group in self.commit.groups else []

    def length(self, group: str) -> int:
        return self.commit.groups[group].length if group in self.commit.groups else 0

    def read(self, group: str, name: str) -> np.ndarray:
        kept = self.commit.groups[group]
        return zarr_arrays.read(self._store, group, name, kept.length, kept.columns[name])

    def write(
        self, step: int, rows: dict[str, Arrays], final: Arrays, state: Arrays | None, keep: int
    ) -> None:
        """Write rows, final values and the arrays of a checkpoint, then commit them; commits
        before the last `keep` go."""
        written = [final, state or {}, *rows.values()]
        num_bytes = sum(x.nbytes for arrays in written for x in arrays.values())
        files.check_room(self.folder, num_bytes + _SPARE_BYTES)
        groups = dict(self.commit.groups)
        for group, arrays in rows.items():
            zarr_arrays.append(self._store, group, GROUPS[group], arrays)
            before = self.commit.groups[group].columns if group in self.commit.groups else {}
            columns = {
                name: before.get(name, Column(str(x.dtype), x.shape[1:], 0)).after(x)
                for name, x in arrays.items()
            }
            length = self.length(group) + len(next(iter(arrays.values())))
            groups[group] = Group(length, columns)
        final = {name: storable(value) for name, value in final.items()}
        values = commits.write_values(self.folder, step, final)
        saved = None if state is None else checkpoint.save(self.folder, step, state)
        commit = Commit(step, groups, values, saved)
        commits.write(self.folder, commit)
        self.commit, self.final = commit, final
        self._keep(commits.steps(self.folder)[:keep])

    def rewind(self) -> None:
        """Drop all that is newer than the commit of these records, or not committed at all."""
        self._keep([step for step in commits.steps(self.folder) if step <= self.commit.step])
        zarr_arrays.cut(self._store, self.commit.groups)

    def _keep(self, steps: list[int]) -> None:
        for step in set(commits.steps(self.folder)) - set(steps):
            commits.delete(self.folder, step)
        checkpoint.delete_others(self.folder, steps)

    def verify(self) -> None:
        """Read everything, so that what is damaged or missing is said."""
        for group in self.commit.groups:
            for name in self.names(group):
                self.read(group, name)


@contextlib.contextmanager
def records_of_run(run_dir: str | Path | None) -> Iterator[Records]:
    """Yield the records of a new run, in memory or in a folder. Only the first of several processes
    writes into the folder."""
    if run_dir is None:
        yield Records()
    elif machine.is_first():
        with new_folder(Path(run_dir)) as records:
            yield records
    else:
        yield Records(Path(run_dir))


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[FolderRecords]:
    """Yield new, empty records in a folder that is locked meanwhile.

    The folder must hold no run, or one that was ended before its first step.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder} is or lies below a file; run_dir must be a folder.") from None
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be made ({error.strerror}): choose another run_dir."
        ) from None
    with locked(folder):
        if (folder / FILE).exists() and has_begun(folder):
            raise ValueError(
                f"{folder} already holds a run; write rx.resume({str(folder)!r}, target) to "
                "continue it, or choose another run_dir."
            )
        for name in (_STORE, commits.FOLDER, checkpoint.FOLDER):
            shutil.rmtree(folder / name, ignore_errors=True)
        yield FolderRecords(folder)


def has_begun(folder: Path) -> bool:
    """Return whether a run folder holds a commit beyond step 0, or files of another version."""
    if (folder / commits.FOLDER).exists():
        return any(step > 0 for step in commits.steps(folder))
    try:
        read_metadata(folder)
    except ValueError:  # not ours, or of another version
        return True
    return any((folder / name).exists() for name in (_STORE, checkpoint.FOLDER))


def open_records(folder: str | Path, with_checkpoint: bool = False) -> FolderRecords:
    """Return the records of a run folder as of its newest commit that is whole, of those that have
    a checkpoint if one is needed."""
    records = FolderRecords(Path(folder))
    records.metadata = read_metadata(records.folder)
    ending = records.metadata.result
    ended = -1 if ending is None else ending.step
    newest = _newest(records.folder, with_checkpoint, ended)
    if newest is not None:
        records.commit, records.final = newest
        if records.commit.step < ended:
            records.metadata = replace(records.metadata, result=None)
    elif with_checkpoint:
        raise ValueError(
            f"{folder} holds no checkpoint: the run ended before it saved one. Start it again with "
            "the call that made it."
        )
    return records


@contextlib.contextmanager
def resumed_records(folder: str | Path) -> Iterator[FolderRecords]:
    """Yield the records of a run folder that is to be continued, locked meanwhile.

    Of several processes the first locks the folder, and the others read.
    """
    read_metadata(Path(folder))  # no run, no lock
    with locked(Path(folder)) if machine.is_first() else contextlib.nullcontext():
        records = open_records(folder, with_checkpoint=True)
        records.verify()
        yield records


def _newest(folder: Path, with_checkpoint: bool, ended: int) -> tuple[Commit, Arrays] | None:
    """Return the newest commit that is whole, and its values; say so if it is not the last, which
    is not before the step at which the run ended."""
    steps = commits.steps(folder)
    problems = [f"The commit of step {ended} is missing."] if max(steps, default=-1) < ended else []
    for step in steps:
        try:
            commit = commits.read(folder, step)
            values = commits.read_values(folder, commit)
            if with_checkpoint:
                checkpoint.check(folder, step, commit.checkpoint)
        except Damaged as problem:
            problems.append(str(problem))
            continue
        if problems:
            warnings.warn(
                f"{problems[0]} The run goes back to step {step}, which is whole.", stacklevel=5
            )
        return commit, values
    if problems:
        raise Damaged(f"{problems[0]} Nothing in {folder} is left to go back to.")
    return None


def save_copy(records: Records, folder: Path) -> None:
    """Write all records into a new folder that `open_records` reads."""
    with new_folder(folder) as copy:
        rows = {
            group: {name: records.read(group, name) for name in records.names(group)}
            for group in GROUPS
            if records.names(group)
        }
        copy.write_metadata(records.metadata)
        copy.write(int(records.final.get("step", 0)), rows, records.final, None, keep=1)
