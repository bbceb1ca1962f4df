"""The parts of a study: cells, records, findings, tables and figures; numbers of several seeds."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import replicax as rx

if TYPE_CHECKING:
    from matplotlib.figure import Figure


from collections.abc import Sequence

Record = Mapping[str, np.ndarray]  # the result of a cell: arrays and numbers by name


class Stopped(Exception):
    """Raised inside a cell when the user interrupts the study; the cell is not recorded."""


class Scale(NamedTuple):
    """The size of a study: full or quick, and the number of seeds."""

    quick: bool = False
    seeds: int | None = None  # None: the default of the study

    def choose(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    def num_seeds(self, full: int, quick: int) -> int:
        return self.seeds or self.choose(full, quick)


class Cell(NamedTuple):
    """One setting of a study: the unit of work that is saved when it is finished."""

    name: str  # unique in the study, valid as a file name
    settings: dict[str, Any]  # plain data: the argument of `Study.run`


class Finding(NamedTuple):
    """A result beside its reference value, with a bound if it is judged."""

    what: str
    paper: str  # the value in the paper, of a closed form or of an exact solution
    ours: Any  # a Measured, a number or a string
    asked: str = ""  # the bound, in words
    met: bool | None = None  # whether the bound holds; None: not judged


class Table(NamedTuple):
    """A table of the page."""

    title: str
    header: list[str]
    rows: list[list[Any]]


class Results:
    """The records of a study's cells, in the order of the cells."""

    def __init__(self, pairs: list[tuple[Cell, Record]]) -> None:
        self._pairs = pairs

    def __iter__(self) -> Iterator[tuple[dict[str, Any], Record]]:
        return ((cell.settings, record) for cell, record in self._pairs)

    def __getitem__(self, name: str) -> Record:
        return next(record for cell, record in self._pairs if cell.name == name)

    def where(self, **settings: Any) -> "Results":
        """Return the cells that have these settings."""

        def agrees(cell: Cell) -> bool:
            return all(cell.settings.get(key) == value for key, value in settings.items())

        return Results([pair for pair in self._pairs if agrees(pair[0])])

    def only(self, **settings: Any) -> Record:
        """Return the record of the only cell that has these settings."""
        ((_, record),) = self.where(**settings)
        return record

    def column(self, name: str) -> np.ndarray:
        """Return one entry of every record, stacked over cells."""
        return np.stack([record[name] for _, record in self])


class Work:
    """Sampling for a running cell, with progress and interruption."""

    def __init__(self, tick: Callable[[float], None], stopping: Callable[[], bool]) -> None:
        self._tick, self._stopping = tick, stopping

    def tick(self, fraction: float) -> None:
        """Report the finished fraction of the cell; raise `Stopped` if the user interrupted."""
        if self._stopping():
            raise Stopped
        self._tick(fraction)

    def sample(self, target: Any, start: Any, *, method: rx.Method, **options: Any) -> rx.Posterior:
        """Call `rx.sample` with the progress of the study."""
        with warnings.catch_warnings():  # studies judge their runs themselves
            warnings.simplefilter("ignore", UserWarning)
            return rx.sample(
                target,
                start,
                method=method,
                progress=False,
                callback=lambda progress: self.tick(progress.step / progress.num_steps),
                **options,
            )


@dataclass(frozen=True)
class Study:
    """A study of the paper, or beyond it."""

    name: str
    title: str
    about: str  # the question, in the paper and here: markdown
    cells: Callable[[Scale], list[Cell]]
    run: Callable[[dict[str, Any], Work], Record]  # settings of a cell -> its record
    findings: Callable[[Results], list[Finding]]
    figures: Callable[
        [Results], dict[str, "Figure"]
    ]  # by name; the label of a figure is its caption
    tables: Callable[[Results], list[Table]] = field(default=lambda results: [])
    notes: Callable[[Results], list[str]] = field(default=lambda results: [])  # sentences


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options of a cell into those of a method and those of the run.

    >>> split_options({"window": 8, "num_steps": 100})
    ({'window': 8}, {'num_steps': 100})
    """
    known = {entry.name for entry in fields(rx.Method)}
    of_method = {name: value for name, value in options.items() if name in known}
    return of_method, {name: value for name, value in options.items() if name not in known}


class Measured(NamedTuple):
    """A mean over seeds with their standard deviation."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Any) -> "Measured":
        values = np.asarray(values, float).ravel()
        std = values.std(ddof=1) if values.size > 1 else 0.0
        return cls(float(values.mean()), float(std), values.size)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / np.sqrt(self.n)

    def __str__(self) -> str:
        if self.n == 1:
            return number(self.mean)
        return f"{number(self.mean)} ± {number(self.std)} (n = {self.n})"


def stack(records: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Stack records of the same names along a new leading axis."""
    return {name: np.stack([record[name] for record in records]) for name in records[0]}


def number(value: float, digits: int = 3) -> str:
    """Format a number for people.

    >>> number(0.0123456), number(41.28), number(20000.0), number(7.6e-5)
    ('0.0123', '41.3', '20,000', '7.6e-05')
    """
    if not np.isfinite(value):
        return "–"
    if value == int(value) and abs(value) >= 1:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"
