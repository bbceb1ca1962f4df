"""The metadata of a run, `run.json` of a run folder: typed, with the version of the format.

Only this file knows the keys of run.json, and `upgrade.py` those of older folders; readers ask the
fields and properties of `Metadata`.
"""

import itertools
import os
import typing
from collections.abc import Callable
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass, replace
from numbers import Real
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm import kernels, schedule, swap
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import printable, show
from replicax.run.methods import Method
from replicax.run.options import AUTO, COUNTED, Run, Sampling, Training
from replicax.run.storage import files
from replicax.run.storage.files import Damaged
from replicax.run.storage.upgrade import upgraded, with_options_of_today, with_own_digest
from replicax.run.trees import TreeSpec
from replicax.version import __version__

# Of run folders. 1 had no number, and checkpoints by position; 2 attempted swaps at every step;
# 3 had no commits; checkpoints of 4 held more; 5 had other options; 6 had no sizes in commits, and
# a digest of some rows.
FORMAT_VERSION = 7
_READABLE = (5, 6, 7)
FILE = files.RUN
_MOST = 2**53  # of what is counted
_MOST_INPUTS = 2**30  # numbers of a row
_KINDS: dict[str, type[Run]] = {"sample": Sampling, "train": Training}
# Kinds of which the rows are not known; the second is of version 0.2.
_UNCOUNTED = "a function of the step", "an iterable"


class NoRun(ValueError):
    """A folder without a run.json of replicax."""


Kind = TypeVar("Kind")
SWEEPS = "sweeps"  # the method, and the kernel of its runs
CUSTOM = "custom"  # stands in a run folder for an object that only the user can give again
_CLASSES = {
    made.__name__: made
    for made in (
        schedule.WindowedDEO,
        schedule.StochasticEvenOdd,
        schedule.Adjacent,
        schedule.AllPairs,
        schedule.NoExchange,
        swap.Deterministic,
        swap.Metropolis,
        swap.BiasCorrected,
        swap.WindowCorrected,
        Gain,
        ConstantGain,
    )
}


@dataclass(frozen=True)
class BatchSpec:
    """Where the mini-batches of a run come from, for readers and to tell two sources apart."""

    kind: str  # such as "none", "arrays", "bayesian, arrays", "epochs", "a source"
    num_rows: int | None = None  # None: not known, or no data
    batch_size: int | None = None

    def __str__(self) -> str:
        if self.num_rows is None:
            return self.kind
        return f"{self.kind} of {self.num_rows} rows, {self.batch_size} a batch"

    @property
    def is_counted(self) -> bool:
        """Whether it is known which part of the data a batch holds."""
        return self.kind not in _UNCOUNTED

    @property
    def may_be_partial(self) -> bool:
        """Whether batches hold less than all the data, as far as is known."""
        if self.num_rows is None or self.batch_size is None:
            return not self.is_counted
        return self.batch_size < self.num_rows


@dataclass(frozen=True)
class Predicts:
    """What a network needs to predict again: units, shapes and the likelihood of its targets."""

    likelihood: dict[str, Any]  # `Classes.to_json`, ...
    inputs: TreeSpec | None  # a row of them; None: not known
    pixels: dict[str, Any] | None = None  # mean and std by channel, which normalise images
    noise: Any = None  # of a regression, as given to `rx.regression`
    probe: tuple[float, ...] | None = None  # outputs by which the network is known again
    seen: list[dict[str, Any]] | None = None  # range and moments of the training inputs

    def __post_init__(self) -> None:
        pixels = self.pixels or {}
        noise = [] if isinstance(self.noise, str | None) else [self.noise]
        numbers = [isinstance(x, Real) for part in (*pixels.values(), *noise) for x in part]
        size = 0 if self.inputs is None else self.inputs.num_elements
        if not (set(pixels) in (set(), {"mean", "std"}) and all(numbers) and size < _MOST_INPUTS):
            raise TypeError("no predictions of replicax")


@dataclass(frozen=True)
class Resolved:
    """What the options of a run came to, in steps, `Program.describe`."""

    num_steps: int  # that the run was made for
    num_chains: int
    burn_in: int  # the first step from which draws are kept
    thin: int  # steps from one draw to the next
    keep_draws: bool  # whether the parameters of draws are kept, and not their energies alone
    num_replicas: int
    schedule: str
    window: int
    swaps: str  # in a window: "at_most_one", "exactly_one", "no_gate"
    alternate: bool  # whether even and odd pairs take turns
    rule: str
    target_swap_rate: float
    history_every: int  # steps
    draw_rungs: tuple[int, ...]
    adapts: str | None  # "learning_rate", "temperature"
    track_best: bool
    counted_from: int  # the first step that rates and round trips count
    row_energies: bool  # whether energies of single rows are known, for the noise of energies
    swap_every: int  # steps
    energy_at: str  # "moved", "before", "all_rows"
    tempers_likelihood: bool
    adjusted: bool  # whether the kernel accepts or rejects its moves
    kernel: str  # its name, or "custom"
    draws_per_step: int = 1  # positions of the path of jumps that a drawn step leaves
    decided: str | None = None  # which rows a step sees, and why; None: not recorded
    one_start: bool | None = None  # whether all replicas start at one point; None: not recorded
    likelihood: dict[str, Any] | None = None  # of the test of networks
    predicts: Predicts | None = None  # None: no networks, or of a loss without predictions
    range_test: dict[str, Any] | None = None  # None: the learning rate was given


@dataclass(frozen=True)
class Fingerprint:
    """By what target and data are known again, see `fingerprint.py`."""

    energies: tuple[float, ...] | None  # at and beside the start
    start: str  # digest of the file that holds the start
    data: str  # digest
    machine: str
    all_rows: bool = True  # whether `data` is of all rows; version 0.2 took some
    held: str | None = None  # digest of the arrays that the energy holds; None: not recorded
    test: str | None = None  # digest of the data of the test; None: none, or not recorded
    precision: dict[str, Any] | None = None  # settings of JAX; None: not recorded


@dataclass(frozen=True)
class Ending:
    """How a run ended."""

    code: str
    sentence: str
    step: int = -1


@dataclass(frozen=True)
class Metadata:
    """All that a run folder says about its run."""

    kind: str  # "sample" or "train"
    run: Run  # the options, none left open
    method: Method
    resolved: Resolved
    params: TreeSpec
    batches: BatchSpec
    steps_per_epoch: int | None = None  # this and the next: of the problem of `rx.train`
    num_rows: int | None = None
    note: dict[str, Any] = field(default_factory=dict)  # the user's
    fingerprint: Fingerprint | None = None
    result: Ending | None = None  # None: it has not ended
    gone: dict[str, Any] = field(default_factory=dict)  # options that this version lacks
    machine: str = ""
    version: str = __version__
    format_version: int = FORMAT_VERSION

    def write(self, folder: Path) -> None:
        run, method = to_plain(self.run), to_plain(self.method)
        rest = asdict(replace(self, run=None, method=None))  # type: ignore[arg-type]
        plain = {**rest, "run": run, "method": method, "format_version": FORMAT_VERSION}
        files.write_json(folder / FILE, plain)

    @property
    def is_finished(self) -> bool:
        """Whether the run did all its steps."""
        return self.result is not None and self.result.code == "finished"

    @property
    def tunes_learning_rate(self) -> bool:
        """Whether learning rates were left to the run."""
        return isinstance(self.method.learning_rate, str)

    @property
    def settled_from(self) -> int:
        """The first step after burn-in, also that of a training, which it counts in epochs."""
        epochs = self.run.burn_in or 0
        return max(self.resolved.burn_in, epochs * (self.steps_per_epoch or 0))


def read_metadata(folder: Path) -> Metadata:
    """Read run.json of a run folder, or say why that cannot be done."""
    path = folder / FILE
    if not os.path.lexists(path):
        raise NoRun(f"{folder} is not a run folder: there is no {FILE} in it.")
    content = files.read_json(path)
    if not {"resolved", "params"} <= set(content):
        raise NoRun(f"{path} was not written by replicax; give another folder.")
    version = content.get("format_version", 1)
    if version not in _READABLE:
        written_by = printable(str(content.get("version", "?")))[:20]
        raise ValueError(
            f"{folder} has format version {show(version)}, written by replicax {written_by}; this "
            f"is replicax {__version__}, which reads format versions {_READABLE[0]} to "
            f"{_READABLE[-1]}. Open it with the version that wrote it."
        )
    content = files.check_digest(path, content)
    if version == 5:
        content = upgraded(path, content)
    if version < 7:
        content = with_own_digest(content)
    content = with_options_of_today(content)
    known = {entry.name for entry in fields(Metadata)}
    try:
        if not set(content) <= known or content["kind"] not in _KINDS:
            raise TypeError("entries of another program")
        metadata = read_as(Metadata, content)
        _check_values(metadata)
        return metadata
    except (TypeError, LookupError, RecursionError, OverflowError):
        raise Damaged(f"{path} is damaged: its entries are not those of a run.") from None


def holds_run(folder: Path) -> bool:
    """Return whether a folder is that of a run, whole or damaged."""
    try:
        read_metadata(folder)
    except NoRun:
        return os.path.lexists(folder / files.MARK)
    except ValueError:
        return True
    return True


def _check_values(metadata: Metadata) -> None:
    """Raise TypeError where numbers are none of a run, or a name is that of no array."""
    resolved, params = metadata.resolved, metadata.params
    counts = ("num_chains", "num_replicas", "thin", "window", "history_every", "swap_every")
    sizes = [getattr(resolved, name) for name in counts]
    sizes += [size for size in (metadata.steps_per_epoch, metadata.num_rows) if size is not None]
    sizes.append(resolved.draws_per_step)
    places = [resolved.burn_in, resolved.counted_from, *itertools.chain(*params.shapes)]
    rungs = range(resolved.num_replicas)
    if (
        not all(1 <= size < _MOST for size in sizes)
        or not all(0 <= place < _MOST for place in places)
        or not all(rung in rungs for rung in resolved.draw_rungs)
        or not len(params.names) == len(params.shapes) == len(params.dtypes)
        or not all(files.is_name(f"params.{name}") for name in params.names)
        or not all(np.dtype(jnp.dtype(dtype)).itemsize for dtype in params.dtypes)
    ):
        raise TypeError("values of another program")


def read_as(kind: Any, content: Any) -> Any:
    """Return a dataclass of its JSON; raise TypeError where an entry is missing or of another type.
    Entries that it does not have are those of other versions."""
    if not isinstance(content, dict):
        raise TypeError(f"{content!r} is not an object")
    types = typing.get_type_hints(kind)
    values = {}
    for entry in fields(kind):  # type: ignore[arg-type]
        if kind is Metadata and entry.name in ("run", "method"):
            options = Method if entry.name == "method" else _KINDS[content["kind"]]
            values[entry.name] = from_plain(options, content[entry.name])
        elif entry.name in content:
            values[entry.name] = _value(types[entry.name], content[entry.name])
        elif entry.default is MISSING and entry.default_factory is MISSING:
            raise TypeError(f"{entry.name} is missing")
    return kind(**values)


def _value(kind: Any, content: Any) -> Any:
    """Return one entry as its declared type."""
    if kind is Any:
        return content
    if isinstance(kind, UnionType):  # with None, which comes last
        return None if content is None else _value(get_args(kind)[0], content)
    if is_dataclass(kind):
        return read_as(kind, content)
    if hasattr(kind, "_fields") and isinstance(content, list):
        parts = zip(typing.get_type_hints(kind).values(), content, strict=False)
        return kind(*(_value(part, value) for part, value in parts))
    if get_origin(kind) is tuple and isinstance(content, list | tuple):
        return tuple(_value(get_args(kind)[0], part) for part in content)
    if get_origin(kind) is dict and isinstance(content, dict):
        return {name: _value(get_args(kind)[1], value) for name, value in content.items()}
    if kind is float and type(content) is int:
        return float(content)
    if type(content) is not (get_origin(kind) or kind):
        raise TypeError(f"{content!r} is not of the type {kind}")
    return printable(content) if kind is str else content


def to_plain(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of options as plain data."""
    return {entry.name: _plain(getattr(options, entry.name)) for entry in fields(options)}


def from_plain(kind: type[Kind], data: Any) -> Kind:
    """Return the dataclass of options that `to_plain` wrote, as it was: it was checked then.

    Objects that only the user can give again stay marked.
    """
    if not isinstance(data, dict):
        raise Damaged("The options of the run are missing: its run.json is damaged.")
    options = object.__new__(kind)
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name not in data:
            raise Damaged(f"The options of the run lack {entry.name}: its run.json is damaged.")
        object.__setattr__(options, entry.name, _stored(entry.name, data[entry.name]))
    return options


def given_again(stored: Kind, again: dict[str, Any], call: Callable[[str], str]) -> Kind:
    """Return the stored options, with those that may change and with the objects that no folder
    holds, as they are given `again`; None keeps what is stored.

    `call` says how to give one; what else the folder holds cannot be changed by giving another.
    """
    values = {}
    for entry in fields(stored):  # type: ignore[arg-type]
        name, value = entry.name, getattr(stored, entry.name)
        offered, about = again.get(name), entry.metadata.get("option")
        if about is not None and about.on_resume in ("may change", "may grow"):
            value = value if offered is None else offered
        elif isinstance(value, str) and value == CUSTOM:
            if offered is None:
                raise ValueError(
                    f"This run was started with a {name} of your own, which a folder cannot "
                    f"hold; give it again: {call(name)}."
                )
            value = offered
        elif _plain(offered) not in (None, AUTO, _plain(entry.default), _plain(value)):
            started = "continues with the one it was started with, which its folder stores"
            started = "was started without one" if value is None else started
            raise ValueError(f"{name} is given, but the run {started}: leave out {name}.")
        values[name] = value
    return type(stored)(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": value.traits.spec} if value.traits.spec is not None else CUSTOM
    if is_dataclass(value):
        name = type(value).__name__
        if _CLASSES.get(name) is not type(value):
            return CUSTOM
        return {name: {key: _plain(part) for key, part in asdict(value).items()}}  # type: ignore
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return np.asarray(value).tolist()
    if hasattr(value, "_fields"):  # a named tuple, such as a transform of optax
        return CUSTOM
    if isinstance(value, tuple | list | range):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else CUSTOM


def _stored(name: str, value: Any) -> Any:
    """Return the value of a stored option, with tuples for lists; raise if it is damaged."""
    try:
        if isinstance(value, list):
            return tuple(_stored(name, part) for part in value)
        if name != "seed":
            _check_counted(value)
        if not isinstance(value, dict):
            return printable(value) if isinstance(value, str) else value
        ((kind, content),) = value.items()
        return kernels.from_spec(content) if kind == "kernel" else _CLASSES[kind](**content)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError):
        raise Damaged(
            f"The option {name} of the run is none of replicax: its run.json is damaged."
        ) from None


def _check_counted(value: Any) -> None:
    """Raise if a stored value holds a whole number that JAX does not have."""
    if isinstance(value, int) and abs(value) > COUNTED:
        raise OverflowError
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            _check_counted(part)
