"""What a command line names: `model.py:energy`, where it starts and the data it sees."""

import importlib
import importlib.util
import json
import os
import sys
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from replicax.errors import suggest

_FILE = "target.json"  # beside run.json, so that `replicax resume` finds the target again
_STARTS = ("params", "start")


class Found(NamedTuple):
    """The objects that a `Naming` stands for."""

    target: Any
    params: Any  # None if not found
    batches: Any
    batch_size: int | None


@dataclass(frozen=True)
class Naming:
    """A target, its start and its batches by name: what a run folder can hold of them."""

    target: str  # "/home/me/model.py:energy" or "package.module:name"
    params: str | None = None  # None: `params` or `start`
    batches: str | None = None  # None: `batches`, if there are any
    batch_size: int | None = None  # None: `batch_size`, if there is one
    directory: str = ""  # modules are looked for from here, too

    @classmethod
    def from_here(cls, target: str, *names: Any) -> "Naming":
        """As typed; made absolute, so that it means the same from another directory."""
        place, name = _split(target)
        if _is_file(place):
            place = str(Path(place).expanduser().absolute())
        return cls(f"{place}:{name}", *names, directory=os.getcwd())

    def changed(self, params: str | None, batches: str | None, size: int | None) -> "Naming":
        """The same target with what is not None taken anew."""
        return replace(
            self,
            params=params or self.params,
            batches=batches or self.batches,
            batch_size=self.batch_size if size is None else size,
        )

    @property
    def name(self) -> str:
        return _split(self.target)[1]

    def write(self, folder: Path) -> None:
        (folder / _FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Naming | None":
        """What `write` left in the folder, if it did."""
        path = folder / _FILE
        if not path.is_file():
            return None
        try:
            return cls(**json.loads(path.read_text()))
        except (TypeError, ValueError):  # not ours, or damaged
            return None

    def find(self, needs_params: bool = True) -> Found:
        """Import the module and look its names up."""
        place, name = _split(self.target)
        module = _run_file(Path(place)) if _is_file(place) else _import(place, self.directory)
        held = vars(module)
        target = _look_up(name, held, _energies(module), place)
        params = held.get(next((start for start in _STARTS if start in held), ""))
        if self.params is not None:
            params = _look_up(self.params, held, _data(held), place)
        elif params is None and needs_params:
            raise ValueError(
                f"{place} does not say where sampling starts: write params = jnp.zeros(2), say, "
                f"or a function params(key) into it, or name what is there: --params NAME"
                f"{_listing(_data(held))}."
            )
        batches = held.get("batches")
        if self.batches is not None:
            batches = _look_up(self.batches, held, _data(held), place)
        size = self.batch_size
        if size is None and batches is not None:
            size = held.get("batch_size")
        return Found(target, params, batches, size)


def find_object(name: str, directory: str) -> Any:
    """What `file.py:name` or `package.module:name` stands for."""
    place, attribute = _split(name)
    module = _run_file(Path(place)) if _is_file(place) else _import(place, directory)
    return _look_up(attribute, vars(module), _data(vars(module)), place)


def _split(text: str) -> tuple[str, str]:
    place, _, name = text.rpartition(":")
    if place and name.isidentifier():
        return place, name
    place = text.rstrip(":")
    hint = ""
    if _is_file(place) and Path(place).is_file():
        hint = _listing(_energies(_run_file(Path(place))))
    raise ValueError(
        f"The target is {text!r}; write where it is and its name, such as model.py:energy or "
        f"package.module:energy{hint}."
    )


def _is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place


def _run_file(path: Path) -> ModuleType:
    path = path.expanduser()
    if not path.is_file():
        others = [other.name for other in path.parent.glob("*.py")]
        raise ValueError(f"There is no file {path}.{suggest(path.name, others)}")
    _search_in(str(path.parent.absolute()))
    name = f"replicax_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file; a target is written in one.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(f"{path} cannot be imported: {_what_and_where(error, path)}") from error
    return module


def _import(place: str, directory: str) -> ModuleType:
    for folder in (directory, os.getcwd()):
        if folder:
            _search_in(folder)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise ValueError(f"{place} cannot be imported: {_what_and_where(error)}") from error
        raise ValueError(
            f"There is no module {place!r} that Python can import from here; give a file, such "
            f"as {place.rpartition('.')[2]}.py:energy, or install the module's package."
        ) from None
    except Exception as error:
        raise ValueError(f"{place} cannot be imported: {_what_and_where(error)}") from error


def _search_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _what_and_where(error: Exception, path: Path | None = None) -> str:
    """The error in one line, with the last line of the user's own file that led to it."""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error}."
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if path is None or f.filename == str(path)] or frames
    at = f" (line {own[-1].lineno} of {own[-1].filename})"
    return f"{type(error).__name__}: {error}{at}."


def _look_up(name: str, held: dict[str, Any], known: list[str], place: str) -> Any:
    if name in held:
        return held[name]
    raise ValueError(f"{place} holds no {name!r}{_listing(known)}.{suggest(name, known)}")


def _listing(names: list[str]) -> str:
    return f"; it holds {', '.join(names)}" if names else ""


def _energies(module: ModuleType) -> list[str]:
    """Names that may be targets: functions of this module's own, and `Target`s."""
    return [
        name
        for name in _data(vars(module))
        for value in (vars(module)[name],)
        if type(value).__name__ == "Target"
        or (callable(value) and getattr(value, "__module__", None) == module.__name__)
    ]


def _data(held: dict[str, Any]) -> list[str]:
    return [
        name
        for name, value in held.items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
