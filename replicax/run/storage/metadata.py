"""The metadata of a run, `run.json` of a run folder: typed, with the version of the format."""

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from replicax.run.methods import Method
from replicax.run.options import Run, Sampling, Training
from replicax.run.plain import from_plain, to_plain
from replicax.run.storage import files
from replicax.run.storage.files import Damaged
from replicax.run.storage.upgrade import upgraded
from replicax.version import __version__

# Of run folders. 1 had no number, and checkpoints by position; 2 attempted swaps at every step;
# 3 had no commits; checkpoints of 4 held more of the kernel `langevin`; 5 had other options.
FORMAT_VERSION = 6
_READABLE = (5, 6)
FILE = "run.json"
_KINDS: dict[str, type[Run]] = {"sample": Sampling, "train": Training}


@dataclass(frozen=True)
class Metadata:
    """All that a run folder says about its run."""

    kind: str  # "sample" or "train"
    run: Run  # the options, none left open
    method: Method
    resolved: dict[str, Any]  # what they came to, `Program.describe`
    params: dict[str, Any]  # names, shapes and containers, `plain.describe`
    batches: str  # `Batches.describe`
    steps_per_epoch: int | None = None  # this and the next: of networks
    num_rows: int | None = None
    note: dict[str, Any] = field(default_factory=dict)  # the user's
    fingerprint: dict[str, Any] | None = None  # of target and data, `fingerprint.write`
    result: dict[str, Any] | None = None  # code, sentence and step, once the run has ended
    gone: dict[str, Any] = field(default_factory=dict)  # options that this version lacks
    machine: str = ""
    version: str = __version__
    format_version: int = FORMAT_VERSION

    def write(self, folder: Path) -> None:
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        values |= {"run": to_plain(self.run), "method": to_plain(self.method)}
        files.write_json(folder / FILE, values | {"format_version": FORMAT_VERSION})


def read_metadata(folder: Path) -> Metadata:
    """Read run.json of a run folder, or say why that cannot be done."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: there is no {FILE} in it.")
    content = files.read_json(path)
    version = content.get("format_version", 1)
    if not {"resolved", "params"} <= set(content):
        raise ValueError(f"{path} was not written by replicax; give another folder.")
    if version not in _READABLE:
        raise ValueError(
            f"{folder} has format version {version}, written by replicax "
            f"{content.get('version', '?')}; this is replicax {__version__}, which reads format "
            f"versions {_READABLE[0]} and {_READABLE[1]}. Open it with the version that wrote it."
        )
    content = files.check_digest(path, content)
    if version == 5:
        content = upgraded(path, content)
    known = {entry.name for entry in fields(Metadata)}
    missing = {"kind", "batches", "run", "method"} - set(content)
    if missing or not set(content) <= known or content["kind"] not in _KINDS:
        raise Damaged(f"{path} is damaged: its entries are not those of a run.")
    run = from_plain(_KINDS[content["kind"]], content["run"])
    method = from_plain(Method, content["method"])
    return Metadata(**{**content, "run": run, "method": method})
