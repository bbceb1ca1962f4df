"""The metadata of a run, `run.json` of a run folder: typed, with the version of the format."""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from replicax.run.storage import files
from replicax.run.storage.files import Damaged
from replicax.version import __version__

# Of run folders. 1 had no number, and checkpoints by position; 2 attempted swaps at every step;
# 3 had no commits; checkpoints of 4 hold more of the kernel `langevin`.
FORMAT_VERSION = 5
_READABLE = (4, 5)
FILE = "run.json"


@dataclass(frozen=True)
class Metadata:
    """All that a run folder says about its run in plain data."""

    kind: str  # "sample" or "train"
    options: dict[str, Any]  # of the sampler, `Options.to_json`
    resolved: dict[str, Any]  # choices that the options left open, `Program.describe`
    params: dict[str, Any]  # names, shapes and containers, `plain.describe`
    batches: str  # `Batches.describe`
    training: dict[str, Any] | None = None  # options of `rx.train`, `TrainOptions.to_json`
    steps_per_epoch: int | None = None  # this and the next two: of the problem of `rx.train`
    num_rows: int | None = None
    unit: str | None = None
    note: dict[str, Any] = field(default_factory=dict)  # the user's
    fingerprint: dict[str, Any] | None = None  # of target and data, `fingerprint.write`
    result: dict[str, Any] | None = None  # code, sentence and step, once the run has ended
    machine: str = ""
    version: str = __version__
    format_version: int = FORMAT_VERSION

    def write(self, folder: Path) -> None:
        files.write_json(folder / FILE, asdict(self))


def read_metadata(folder: Path) -> Metadata:
    """Read run.json of a run folder, or say why that cannot be done."""
    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"{folder} is not a run folder: there is no {FILE} in it.")
    content = files.read_json(path)
    if not {"options", "resolved", "params"} <= set(content):
        raise ValueError(f"{path} was not written by replicax; give another folder.")
    version = content.get("format_version", 1)
    if version not in _READABLE:
        raise ValueError(
            f"{folder} has format version {version}, written by replicax "
            f"{content.get('version', '?')}; this is replicax {__version__}, which reads format "
            f"versions {_READABLE[0]} and {_READABLE[1]}. Open it with the version that wrote it."
        )
    content = files.check_digest(path, content)
    known = {entry.name for entry in fields(Metadata)}
    missing = {"kind", "batches"} - set(content)
    if missing or not set(content) <= known:
        raise Damaged(f"{path} is damaged: its entries are not those of a run.")
    return Metadata(**content)
