"""Objects given on the command line as `model.py:energy`, with their parameters and data."""

import importlib
import importlib.util
import os
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from replicax.errors import suggest

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

    target: str  # "/home/me/model.py:energy" or "package.module:name"
    params: str | None = None  # None: `params` or `start`
    batches: str | None = None  # None: `batches`, if there are any
    batch_size: int | None = None  # None: `batch_size`, if there is one
    directory: str = ""  # modules are also imported from here

    @classmethod
    def from_command_line(cls, target: str, *names: Any) -> "TargetSpec":
        """Return the spec with an absolute path, so that it is valid from any directory."""
        place, name = _split(target)
        if _is_file(place):
            place = str(Path(place).expanduser().absolute())
        return cls(f"{place}:{name}", *names, directory=os.getcwd())

    def updated(self, params: str | None, batches: str | None, size: int | None) -> "TargetSpec":
        """Return the spec with those arguments replaced that are not None."""
        return replace(
            self,
            params=params or self.params,
            batches=batches or self.batches,
            batch_size=self.batch_size if size is None else size,
        )

    @property
    def name(self) -> str:
        return _split(self.target)[1]

    def to_note(self) -> dict[str, Any]:
        """Return the spec as the note of a run."""
        return {_NOTE: asdict(self)}

    @classmethod
    def from_note(cls, note: dict[str, Any]) -> "TargetSpec | None":
        """Return the spec that the note of a run contains, or None."""
        try:
            return cls(**note[_NOTE])
        except (KeyError, TypeError):  # of a run that was started in Python
            return None

    def load(self, needs_params: bool = True) -> LoadedTarget:
        """Import the module and return the objects that the spec names."""
        place, name = _split(self.target)
        module = _import(place, self.directory)
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


def find_object(name: str, directory: str) -> Any:
    """Return the object that `file.py:name` or `package.module:name` names."""
    place, attribute = _split(name)
    objects = vars(_import(place, directory))
    return _look_up(attribute, objects, _public(objects), place)


def _split(text: str) -> tuple[str, str]:
    place, _, name = text.rpartition(":")
    if place and name.isidentifier():
        return place, name
    place = text.rstrip(":")
    hint = ""
    if _is_file(place) and Path(place).is_file():
        hint = _listing(_energies(_import_file(Path(place))))
    raise ValueError(
        f"The target is {text!r}; write its file or module and its name, such as "
        f"model.py:energy or package.module:energy{hint}."
    )


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place


def _import(place: str, directory: str) -> ModuleType:
    return _import_file(Path(place)) if _is_file(place) else _import_module(place, directory)


def _import_file(path: Path) -> ModuleType:
    path = path.expanduser()
    if not path.is_file():
        others = [other.name for other in path.parent.glob("*.py")]
        raise ValueError(f"There is no file {path}.{suggest(path.name, others)}")
    _add_to_path(str(path.parent.absolute()))
    name = f"replicax_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {_describe(error, path)}") from error
    return module


def _import_module(place: str, directory: str) -> ModuleType:
    for folder in (directory, os.getcwd()):
        if folder:
            _add_to_path(folder)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ValueError(f"{place} cannot be imported: {_describe(error)}") from error
        raise ValueError(
            f"There is no module {place!r} that Python can import from here; write a file, such "
            f"as {place.rpartition('.')[2]}.py:energy, or install the package."
        ) from None
    except Exception as error:
        raise ValueError(f"{place} cannot be imported: {_describe(error)}") from error


def _add_to_path(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _describe(error: Exception, path: Path | None = None) -> str:
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
