"""Run folders: records on the disk that are valid at every moment, and the way back into them."""

import contextlib
import math
import os
import re
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from replicax.run import processes
from replicax.run.records import GROUPS, Arrays, Records, storable
from replicax.run.storage import arrays, checkpoint, files
from replicax.run.storage.arrays import Column, Group
from replicax.run.storage.files import Damaged, Lock
from replicax.run.storage.metadata import FILE, Metadata, NoRun, read_as, read_metadata

COMMITS = "commits"  # of files STEP.json and STEP.npz
START = "start.npz"  # the start of one replica
_STORE = "records.zarr"
_MARKED = b"This folder holds a run of replicax, which may replace its own files here.\n"
_NO_FOLDER = "{} is or lies below a file; run_dir must be a folder."
# What this and other parts of replicax write into a run folder, beside the mark; run.json, which is
# there before most others, is looked for after them.
_OWN = (files.LOCK, START, COMMITS, checkpoint.FOLDER, _STORE, "summary.json", "report.html",
        "figures", FILE)  # fmt: skip
# Values at the end of a run: of all of it, of every chain, and of every rung of every chain.
_OF_RUN = ("step", "seconds", "peak_bytes", "average.weight")
_OF_CHAINS = ("buffer", "energy_unit", "window_correction", "nonfinite", "best_energy",
              "round_trips")  # fmt: skip
_OF_RUNGS = ("learning_rates", "temperatures", "energy", "restarts")
_SMALL, _LARGE = 2**30, 2**32  # bytes of a state beside its replicas, of samples and of networks
_MOST_AT_ONCE = 2**10  # draws of a step
_COPIES = 64  # of the replicas in a state
_SPARE_BYTES = 2**19  # for small files, which also the smallest state has


@dataclass(frozen=True)
class Commit:
    """All that is valid once `step` steps are done."""

    step: int
    groups: dict[str, Group] = field(default_factory=dict)
    values: str = ""  # digest of the values
    checkpoint: str | None = None  # digest; None: a copy that cannot be resumed
    num_bytes: tuple[int, int] | None = None  # of these two; None: written by version 0.2


def write_commit(folder: Path, commit: Commit) -> None:
    """Make a commit valid."""
    files.write_json(_commit_path(folder, commit.step), asdict(commit))


def _most_bytes(commit: Commit, metadata: Metadata) -> tuple[float, float]:
    """Return how many bytes the values and the checkpoint of a commit may have, by what it says and
    by the sizes in the metadata."""
    resolved = metadata.resolved
    width = metadata.params.num_elements * 16 + 2**10
    spare = _LARGE if metadata.kind == "train" else _SMALL
    most = spare + _COPIES * resolved.num_chains * resolved.num_replicas * width
    values, saved = commit.num_bytes or (most, most)
    return min(values, most), min(saved, most)


def steps_of(folder: Path) -> list[int]:
    """Return the steps that have a commit, valid or damaged, newest first."""
    names = [path.stem for path in (folder / COMMITS).glob("*.json")]
    return sorted((int(name) for name in names if re.fullmatch(r"\d{1,18}", name)), reverse=True)


def read_commit(folder: Path, step: int) -> Commit:
    """Return the commit of a step; raise `Damaged` if it is not what was written."""
    path = _commit_path(folder, step)
    content = files.check_digest(path, files.read_json(path))
    try:
        commit: Commit = read_as(Commit, content)
        for name, group in commit.groups.items():
            _check_group(name, group)
    except (TypeError, ValueError):
        raise Damaged(f"{path} is damaged: its entries are not those of a commit.") from None
    if commit.step != step:
        raise Damaged(f"{path} is damaged: it belongs to step {commit.step}.")
    return commit


def _check_group(name: str, group: Group) -> None:
    """Raise ValueError unless the rows of a group are those of records."""
    if name not in GROUPS or group.length < 0 or not group.columns:
        raise ValueError(name)
    for variable, column in group.columns.items():
        is_numeric = np.dtype(column.dtype).kind in "biuf"
        if not files.is_name(variable) or not is_numeric or min(column.shape, default=0) < 0:
            raise ValueError(variable)


def _commit_path(folder: Path, step: int, suffix: str = ".json") -> Path:
    return folder / COMMITS / f"{step}{suffix}"


class FolderRecords(Records):
    """Records in a run folder, read as of the last commit."""

    folder: Path

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder
        self.commit = Commit(step=-1)  # before any
        self.lock: Lock | None = None  # where this process writes

    @property
    def _store(self) -> Path:
        return self.folder / _STORE

    def write_metadata(self, metadata: Metadata) -> None:
        for name in metadata.params.names:
            if not files.is_name(f"params.{name}"):
                raise ValueError(
                    f"A parameter has a name of {len(name)} letters, {name[:30]}..., too long for "
                    "the file that a run folder keeps its draws in: give it a shorter one."
                )
        super().write_metadata(metadata)
        metadata.write(self.folder)

    def names(self, group: str) -> list[str]:
        return list(self.commit.groups[group].columns) if group in self.commit.groups else []

    def length(self, group: str) -> int:
        return self.commit.groups[group].length if group in self.commit.groups else 0

    def read(self, group: str, name: str) -> np.ndarray:
        kept = self.commit.groups[group]
        return arrays.read(self._store, group, name, kept.length, kept.columns[name])

    def write(
        self, step: int, rows: dict[str, Arrays], final: Arrays, state: Arrays | None, keep: int
    ) -> None:
        """Write rows, final values and the arrays of a checkpoint, then commit them; commits
        before the last `keep` go."""
        if self.lock is not None:
            self.lock.check()
        written = [final, state or {}, *rows.values()]
        num_bytes = sum(x.nbytes for part in written for x in part.values())
        files.check_room(self.folder, num_bytes + _SPARE_BYTES)
        groups = dict(self.commit.groups)
        for group, part in rows.items():
            before = self.commit.groups[group].columns if group in self.commit.groups else {}
            arrays.append(self._store, group, GROUPS[group], part, before)
            columns = {
                name: before.get(name, Column(str(x.dtype), x.shape[1:], 0)).after(x)
                for name, x in part.items()
            }
            length = self.length(group) + len(next(iter(part.values())))
            groups[group] = Group(length, columns)
        final = {name: storable(value) for name, value in final.items()}
        path = _commit_path(self.folder, step, ".npz")
        path.parent.mkdir(exist_ok=True)
        values = files.write_arrays(path, final)
        saved = None if state is None else checkpoint.save(self.folder, step, state)
        sizes = path.stat().st_size, checkpoint.num_bytes(self.folder, step)
        commit = Commit(step, groups, values, saved, sizes)
        write_commit(self.folder, commit)
        self.commit, self.final = commit, final
        self._keep(steps_of(self.folder)[:keep])

    def rewind(self) -> None:
        """Drop all that is newer than the commit of these records, or not committed at all."""
        for path in (self.folder / COMMITS).glob(f".*{files.MARK}"):  # that a kill left
            path.unlink(missing_ok=True)
        self._keep([step for step in steps_of(self.folder) if step <= self.commit.step])
        arrays.cut(self._store, self.commit.groups, GROUPS)

    def _keep(self, steps: list[int]) -> None:
        for step in set(steps_of(self.folder)) - set(steps):
            for suffix in (".json", ".npz"):  # first of all its validity
                _commit_path(self.folder, step, suffix).unlink(missing_ok=True)
        checkpoint.delete_others(self.folder, steps)


@contextlib.contextmanager
def records_of_run(run_dir: str | Path | None) -> Iterator[Records]:
    """Yield the records of a new run, in memory or in a folder. Only the first of several processes
    writes into the folder."""
    if run_dir is None:
        yield Records()
    elif processes.is_first():
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
        raise ValueError(_NO_FOLDER.format(folder)) from None
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be made ({error.strerror}): choose another run_dir."
        ) from None
    _claim(folder)
    with Lock(folder) as lock:
        _refuse_begun(folder)
        records = FolderRecords(folder)
        records.rewind()  # of a run that was ended before its first step
        records.lock = lock
        yield records


def check_free(run_dir: str | Path | None) -> None:
    """Raise if a new run cannot take this folder, before work that takes time; nothing is put into
    a folder without the mark."""
    if run_dir is None or not processes.is_first():
        return
    folder = Path(run_dir)
    nearest = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not nearest.is_dir():
        raise ValueError(_NO_FOLDER.format(folder))
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{folder} cannot be written to: choose another run_dir.")
    if _is_marked(folder):
        with Lock(folder):
            _refuse_begun(folder)


def _claim(folder: Path) -> None:
    """Put the mark of replicax into a folder before anything else."""
    if _is_marked(folder):
        return
    try:
        with contextlib.suppress(FileExistsError), (folder / files.MARK).open("xb") as file:
            file.write(_MARKED)
    except OSError as error:
        raise ValueError(
            f"{folder} cannot be written to ({error.strerror}): choose another run_dir."
        ) from None


def _is_marked(folder: Path) -> bool:
    """Return whether a folder has the mark of replicax; raise if a name that a run needs is taken
    by what replicax did not write."""
    taken = [name for name in _OWN if os.path.lexists(folder / name)]
    mark = folder / files.MARK  # looked for after the names: another process may be at this place
    if os.path.lexists(mark):
        if not _MARKED.startswith(files.read_bytes(mark, len(_MARKED))):  # a kill may have cut it
            raise ValueError(f"{mark} is not the mark of replicax: choose another run_dir.")
        check_own(folder)
        if FILE in taken or all(_is_before_run_json(folder / name) for name in taken):
            return True
    if taken:
        _refuse_begun(folder)
        raise ValueError(
            f"{folder} already contains {', '.join(taken)}, which replicax did not write for a new "
            "run, and would replace: choose another run_dir."
        )
    return False


def _is_before_run_json(path: Path) -> bool:
    """Return whether a file is one that a run writes before its run.json: the lock, which checks
    its own content, or a start, whose arrays have numbers for names."""
    if path.name != START:
        return path.name == files.LOCK
    try:
        with files.open_regular(path, math.inf) as file, zipfile.ZipFile(file) as arrays:
            return all(re.fullmatch(r"\d+\.npy", name) for name in arrays.namelist())
    except (zipfile.BadZipFile, OSError, ValueError):
        return False


def check_own(folder: Path) -> None:
    """Raise if a part of a run folder is a link, or of another kind than replicax writes."""
    for name in (FILE, files.LOCK, START):
        files.check_own(folder / name, folders=False)
    for name in (COMMITS, checkpoint.FOLDER, _STORE):
        files.check_own(folder / name)


def _refuse_begun(folder: Path) -> None:
    if has_begun(folder):
        raise ValueError(
            f"{folder} already holds a run; write rx.resume({str(folder)!r}, target), or `replicax "
            f"resume {folder}`, to continue it, or choose another run_dir."
        )


def remove(folder: Path) -> None:
    """Remove a run with all that replicax wrote for it, and nothing that is beside it; what makes
    it one goes last."""
    check_own(folder)
    figures = folder / "figures"
    files.check_own(figures)
    FolderRecords(folder).rewind()
    shown = [*figures.glob("*.png"), folder / "summary.json", folder / "report.html"]
    gone = [path for path in shown if path.is_file() and files.is_shown(path)]
    for path in (*gone, *(folder / name for name in (_STORE + "/zarr.json", START, files.LOCK))):
        path.unlink(missing_ok=True)
    for name in (_STORE, COMMITS, checkpoint.FOLDER, figures.name):
        with contextlib.suppress(OSError):  # not empty, or not there
            (folder / name).rmdir()
    for name in (FILE, files.MARK):
        (folder / name).unlink(missing_ok=True)


def has_begun(folder: Path) -> bool:
    """Return whether a folder holds a run beyond step 0, or one of another version."""
    try:
        read_metadata(folder)
    except NoRun:
        if os.path.lexists(folder / FILE):  # of another program, perhaps
            return True
        if not os.path.lexists(folder / files.MARK):
            return False
    except ValueError:  # damaged, or of another version
        return True
    return any(step > 0 for step in steps_of(folder))


def open_records(folder: str | Path, with_checkpoint: bool = False) -> FolderRecords:
    """Return the records of a run folder as of its newest commit that is whole, of those that have
    a checkpoint if one is needed."""
    records = FolderRecords(Path(folder))
    records.metadata = read_metadata(records.folder)
    ending = records.metadata.result
    ended = -1 if ending is None else ending.step
    newest = _newest(records, with_checkpoint, ended)
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
    check_own(Path(folder))
    with Lock(Path(folder)) if processes.is_first() else contextlib.nullcontext() as lock:
        records = open_records(folder, with_checkpoint=True)
        records.lock = lock
        for group in records.commit.groups:  # so that what is damaged or missing is said
            for name in records.names(group):
                records.read(group, name)
        yield records


def _newest(
    records: FolderRecords, with_checkpoint: bool, ended: int
) -> tuple[Commit, Arrays] | None:
    """Return the newest commit that is whole, and its values; say so if it is not the last, which
    is not before the step at which the run ended."""
    folder, metadata = records.folder, records.metadata
    steps = steps_of(folder)
    problems = [f"The commit of step {ended} is missing."] if max(steps, default=-1) < ended else []
    for step in steps:
        try:
            commit = read_commit(folder, step)
            path, (most, most_saved) = (
                _commit_path(folder, step, ".npz"),
                _most_bytes(commit, metadata),
            )
            values = files.read_arrays(path, commit.values, most)
            _check_fits(folder, metadata, commit, values)
            if with_checkpoint:
                checkpoint.check(folder, step, commit.checkpoint, most_saved)
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


def _check_fits(folder: Path, metadata: Metadata, commit: Commit, values: Arrays) -> None:
    """Raise unless a commit is one of the run that the metadata describe: names, numbers of rows
    and shapes, on which all who read them rely."""
    resolved, params = metadata.resolved, metadata.params
    chains, rungs = resolved.num_chains, resolved.num_replicas
    expected: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(_OF_RUN, ()),
        **dict.fromkeys(_OF_CHAINS, (chains,)),
        **dict.fromkeys(_OF_RUNGS, (chains, rungs)),
        **dict.fromkeys(("verdicts", "windows", "window_swaps"), (chains, rungs - 1)),
        **{f"best.{i:06d}": (chains, *shape) for i, shape in enumerate(params.shapes)},
    }
    fits = all(value.shape == expected.get(name, value.shape) for name, value in values.items())
    steps, draws = (commit.groups.get(name, Group(0, {})) for name in ("steps", "draws"))
    fits = fits and steps.length >= commit.step == values.get("step", commit.step)
    if steps.length:
        fits = fits and _shapes(steps, "rung_of") == {"rung_of": (chains, rungs)}
    fits = fits and resolved.draws_per_step <= max(draws.length, _MOST_AT_ONCE)
    if draws.length and resolved.keep_draws:
        kept = (chains, len(resolved.draw_rungs))
        leaves = zip(params.names, params.shapes, strict=True)
        wanted = {f"params.{name}": (*kept, *shape) for name, shape in leaves}
        fits = fits and _shapes(draws, "params.") == wanted
    if not fits:
        raise Damaged(
            f"{_commit_path(folder, commit.step)} does not fit {FILE}: its names or shapes are "
            "those of another run."
        )


def _shapes(group: Group, start: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of rows by name, of names that begin so."""
    return {name: x.shape for name, x in group.columns.items() if name.startswith(start)}


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
