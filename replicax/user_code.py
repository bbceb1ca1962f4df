"""Objects of files, given on the command line as `model.py:energy`, with their parameters and data;
and which files this user has started runs of.

A run folder names the code of its run, and may come from anybody. Code is run if it is named on the
command line, or if a start of this user recorded it, outside of run folders, as it is now.
"""

import contextlib
import importlib
import importlib.util
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from replicax.errors import check_path, suggest
from replicax.run.options import option

_DEMO = "replicax.demo"  # the one module that a target may come from
_NOTE = "target"  # in the note of a run, so that `replicax resume` can load the target again
_PARAMS_NAMES = ("params", "start")


class LoadedTarget(NamedTuple):
    """The objects that a `TargetSpec` names."""

    target: Any
    params: Any  # None if not found
    batches: Any
    batch_size: int | None


@dataclass(frozen=True)
class TargetSpec:
    """The names of a target, its initial parameters and its batches, for a run folder."""

    target: str  # "/home/me/model.py:energy", or of the demo
    params: str | None = option(
        None, "Name of the initial parameters.", show_default="params or start"
    )
    batches: str | None = option(
        None, "Name of the data: arrays, or batches(step).", show_default="batches"
    )
    batch_size: int | None = option(None, "Rows per mini-batch, if the data are arrays.")

    @classmethod
    def from_command_line(cls, target: str, **names: Any) -> "TargetSpec":
        """Return the spec with an absolute path, so that it is valid from any directory."""
        place, name = _split(target)
        if place != _DEMO:
            place = str(check_path("The target", place).absolute())
        return cls(f"{place}:{name}", **names)

    @property
    def name(self) -> str:
        return _split(self.target)[1]

    @property
    def is_demo(self) -> bool:
        """Whether it names the demo, which is code of replicax itself."""
        is_target = self.target in (f"{_DEMO}:energy", f"{_DEMO}:target")
        return is_target and self.params in (None, "params") and self.batches is None

    @property
    def command(self) -> str:
        """The spec as it is written on the command line."""
        options = {"params": self.params, "batches": self.batches, "batch-size": self.batch_size}
        words = [f"--{name} {value}" for name, value in options.items() if value is not None]
        return " ".join([self.target, *words])

    def to_note(self) -> dict[str, Any]:
        """Return the spec as the note of a run."""
        return {_NOTE: asdict(self)}

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> "TargetSpec | None":
        """Return the spec that the note of a run contains, or None."""
        try:
            known = {entry.name for entry in fields(cls)}  # earlier versions store more
            spec = cls(**{name: x for name, x in note[_NOTE].items() if name in known})
        except (KeyError, TypeError, AttributeError):  # of a run that was started in Python
            return None
        texts = (spec.target, spec.params or "", spec.batches or "")
        is_spec = all(isinstance(text, str) and text.isprintable() for text in texts)
        is_spec = is_spec and re.fullmatch(r".+:[^\W\d]\w*", spec.target) is not None
        return spec if is_spec and isinstance(spec.batch_size, int | None) else None

    def load(self, needs_params: bool = True) -> LoadedTarget:
        """Import the file and return the objects that the spec names."""
        place, name = _split(self.target)
        module = _import(place)
        objects = vars(module)
        target = _look_up(name, objects, _energies(module), place)
        params = objects.get(next((known for known in _PARAMS_NAMES if known in objects), ""))
        if self.params is not None:
            params = _look_up(self.params, objects, _public(objects), place)
        elif params is None and needs_params:
            raise ValueError(
                f"{place} does not define the initial parameters: add params = jnp.zeros(2), for "
                f"example, or a function params(key), or name an existing object: --params NAME"
                f"{_listing(_public(objects))}."
            )
        batches = objects.get("batches")
        if self.batches is not None:
            batches = _look_up(self.batches, objects, _public(objects), place)
        size = self.batch_size
        if size is None and batches is not None:
            size = objects.get("batch_size")
        return LoadedTarget(target, params, batches, size)


def find_object(name: str) -> Any:
    """Return the object that `file.py:name` names."""
    place, attribute = _split(name)
    objects = vars(_import(place))
    return _look_up(attribute, objects, _public(objects), place)


def _split(text: str) -> tuple[str, str]:
    place, _, name = text.rpartition(":")
    if place and name.isidentifier():
        return place, name
    place = text.rstrip(":")
    hint = ""
    if Path(place).is_file():
        hint = _listing(_energies(_import_file(Path(place))))
    raise ValueError(
        f"The target is {text!r}; write its file and its name, such as model.py:energy{hint}."
    )


def _import(place: str) -> ModuleType:
    return importlib.import_module(_DEMO) if place == _DEMO else _import_file(Path(place))


def _import_file(path: Path) -> ModuleType:
    path = check_path("The file", path)
    if not path.is_file():
        others = [other.name for other in path.parent.glob("*.py")]
        raise ValueError(f"There is no file {path}.{suggest(path.name, others)}")
    name = f"replicax_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        with _first_on_path(str(path.parent.absolute())):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{path} cannot be imported: {_describe(error, path)}") from error
    return module


@contextlib.contextmanager
def _first_on_path(folder: str) -> Iterator[None]:
    """Look for modules in this folder first; afterwards last, so that nothing there passes for a
    library that replicax imports when it needs it. Run folders are left out."""
    added = [folder] if folder and folder not in sys.path and not _is_in_run(folder) else []
    sys.path[:0] = added
    try:
        yield
    finally:
        sys.path[:] = [*(x for x in sys.path if x not in added), *added]


def keep_runs_out() -> None:
    """Take run folders out of the places where Python looks for modules: what somebody put into one
    must not pass for a library."""
    sys.path[:] = [folder for folder in sys.path if not _is_in_run(folder or os.getcwd())]


def _is_in_run(folder: str) -> bool:
    from replicax.run.storage import files

    place = Path(folder).resolve()
    found = [above for above in (place, *place.parents) if files.is_run(above)]
    if not found:
        return False
    from replicax.run.storage.metadata import holds_run

    return any(map(holds_run, found))


def remember(note: dict[str, Any], names: list[str]) -> None:
    """Record that this user starts a run with this note, of the code that is named so."""
    from replicax.run.storage import files

    path = _record_of(note)
    try:
        found = _digests(names)
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, {"files": found})
    except (OSError, ValueError):  # nothing can be written there: the code is named again
        return


def is_known(note: dict[str, Any], names: list[str]) -> bool:
    """Return whether a start of this user recorded the note, and the code is as it was then."""
    from replicax.run.storage import files

    path = _record_of(note)
    try:
        recorded = files.check_digest(path, files.read_json(path))["files"]
        return _digests(names).items() <= recorded.items()
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _record_of(note: dict[str, Any]) -> Path:
    """Return the file that records a start, in $REPLICAX_STATE or where states belong."""
    from replicax.run.storage import files

    usual = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = os.environ.get("REPLICAX_STATE") or f"{usual}/replicax"
    text = json.dumps(note, sort_keys=True)
    return Path(folder).expanduser() / "starts" / f"{files.digest(text.encode())}.json"


def _digests(names: list[str]) -> dict[str, str]:
    """Return the digests of the files that are named so, found without running any."""
    from replicax.run.storage import files

    digests = {}
    for name in names:
        path = check_path("The file", name.rpartition(":")[0]).absolute()
        if _is_in_run(str(path.parent)):
            raise ValueError(f"{path} is in a run folder.")
        digests[str(path)] = files.digest_file(path)
    return digests


def _describe(error: BaseException, path: Path | None = None) -> str:
    """Return the error in one line, with the last line of the user's file that led to it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}."
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if path is None or f.filename == str(path)] or frames
    at = f" (line {own[-1].lineno} of {own[-1].filename})"
    return f"{type(error).__name__}: {error}{at}."


def _look_up(name: str, objects: dict[str, Any], known: list[str], place: str) -> Any:
    if name in objects:
        return objects[name]
    raise ValueError(f"{place} does not define {name!r}{_listing(known)}.{suggest(name, known)}")


def _listing(names: list[str]) -> str:
    return f"; it defines {', '.join(names)}" if names else ""


def _energies(module: ModuleType) -> list[str]:
    """Return names that may be targets: functions of the module, `Target`s and posteriors."""
    return [
        name
        for name in _public(vars(module))
        for value in (vars(module)[name],)
        if type(value).__name__ in ("Target", "Bayesian")
        or (callable(value) and getattr(value, "__module__", None) == module.__name__)
    ]


def _public(objects: dict[str, Any]) -> list[str]:
    return [
        name
        for name, value in objects.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
