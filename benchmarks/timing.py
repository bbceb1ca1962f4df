"""What the benchmarks share: one core, interleaved repeats, a table and a JSON file.

Cases that are compared run in turns in one process, so that a busy neighbour slows all of them,
and are compared repeat by repeat. Beside the wall clock stands the time that the processor spent
on this process: on one core the two agree but for the time given to other processes, so bounds
are checked on the second.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

_PACKAGES = ("replicax", "jax", "jaxlib", "numpy", "tfp-nightly", "tensorflow-probability")
MICRO = 1e6  # microseconds in a second


@dataclass
class Lap:
    """How long some iterations took."""

    iterations: int = 1
    wall: float = 0.0  # seconds
    cpu: float = 0.0


@contextmanager
def lap(iterations: int = 1) -> Iterator[Lap]:
    """Time the block that it opens."""
    timed = Lap(iterations)
    wall, cpu = time.perf_counter(), cpu_clock()
    yield timed
    timed.wall, timed.cpu = time.perf_counter() - wall, cpu_clock() - cpu


def cpu_clock() -> float:
    """Seconds that processors spent on this process and on those that it started and that ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


@dataclass(frozen=True)
class Timing:
    """Microseconds per iteration, one entry per repeat."""

    wall: np.ndarray
    cpu: np.ndarray

    @classmethod
    def of(cls, laps: Sequence[Lap]) -> "Timing":
        wall = np.array([one.wall / one.iterations for one in laps])
        return cls(wall * MICRO, np.array([one.cpu / one.iterations for one in laps]) * MICRO)

    def __sub__(self, other: "Timing") -> "Timing":
        return Timing(self.wall - other.wall, self.cpu - other.cpu)

    def __truediv__(self, other: "Timing") -> "Timing":
        """Repeat by repeat: a ratio, no longer a time."""
        return Timing(self.wall / other.wall, self.cpu / other.cpu)

    def __mul__(self, factor: float) -> "Timing":
        return Timing(self.wall * factor, self.cpu * factor)


@dataclass(frozen=True)
class Row:
    """One line of the table: median and quartiles by the wall clock, median by the processor's."""

    name: str
    unit: str
    n: int = 0
    median: float | None = None
    low: float | None = None
    high: float | None = None
    min: float | None = None
    cpu_median: float | None = None
    cpu_min: float | None = None
    note: str = ""

    @classmethod
    def of(cls, name: str, unit: str, timing: Timing, note: str = "") -> "Row":
        low, median, high = (float(q) for q in np.percentile(timing.wall, (25, 50, 75)))
        return cls(name, unit, timing.wall.size, median, low, high, float(timing.wall.min()),
                   float(np.median(timing.cpu)), float(timing.cpu.min()), note)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """A promise of the library and whether this run kept it."""

    name: str
    value: float
    bound: float
    goal: float | None = None

    @classmethod
    def of(cls, row: Row, bound: float, goal: float | None = None) -> "Check":
        return cls(row.name.strip(), float(row.cpu_median or 0.0), bound, goal)

    @property
    def is_met(self) -> bool:
        return self.value <= self.bound


def interleave(
    cases: Mapping[Any, Callable[[], int | Lap]], repeats: int, warm_up: bool = True
) -> dict[Any, Timing]:
    """Run all cases in turns, `repeats` times, back and forth, after an untimed run of each.

    A case does some iterations and returns their number, or a lap that it timed itself.
    """
    laps: dict[Any, list[Lap]] = {name: [] for name in cases}
    for case in cases.values() if warm_up else ():
        case()
    for repeat in range(repeats):
        for name in list(cases)[:: 1 if repeat % 2 else -1]:
            with lap() as timed:
                done = cases[name]()
            if isinstance(done, Lap):
                timed = done
            else:
                timed.iterations = done
            laps[name].append(timed)
    return {name: Timing.of(timed) for name, timed in laps.items()}


def parse_arguments(
    description: str | None, repeats: int, **choices: Sequence[str]
) -> argparse.Namespace:
    """Return the arguments of all benchmarks, and those of one: a name, what it may be, the first
    unless given."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    parser.add_argument("--repeats", type=int, help=f"default: {repeats}")
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    parser.add_argument("--check", action="store_true", help="exit with 1 where a bound is missed")
    for name, values in choices.items():
        parser.add_argument(f"--{name}", choices=values, default=values[0])
    arguments = parser.parse_args()
    arguments.repeats = arguments.repeats or (1 if arguments.quick else repeats)
    return arguments


def use_one_core() -> None:
    """Start this program again on one core: threads that exist already could not be moved."""
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        sys.stdout.flush()
        os.execv(sys.executable, sys.orig_argv)


def describe_machine() -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "cores_used": cores,
        "system": platform.platform(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "python": platform.python_version(),
        **{name: version for name in _PACKAGES if (version := _version(name))},
    }


def report(rows: Sequence[Row], checks: Sequence[Check], arguments: argparse.Namespace,
           **more: Any) -> None:  # fmt: skip
    """Print the table, write the JSON file if asked for, and end the program."""
    machine = describe_machine()
    print(format_table(rows))
    for check in checks:
        goal = "" if check.goal is None else f", goal {check.goal:g}"
        verdict = "not judged" if arguments.quick else "met" if check.is_met else "MISSED"
        print(f"{check.name}: {check.value:.3g} (at most {check.bound:g}{goal}): {verdict}")
    used = f"{machine['cores_used']} of {machine['cores']} cores"
    print(f"{machine['cpu']}, {used}, load {machine['load'][0]}, jax {machine.get('jax')}")
    if arguments.json is not None:
        content = {
            "benchmark": Path(sys.argv[0]).stem,
            "command": " ".join(["python", *sys.argv]),
            "machine": machine,
            "repeats": arguments.repeats,
            "rows": [asdict(row) for row in rows],
            "checks": [{**asdict(check), "met": check.is_met} for check in checks],
            **more,
        }
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    sys.exit(int(arguments.check and not all(check.is_met for check in checks)))


def format_table(rows: Sequence[Row]) -> str:
    heads = ("", "median", "quartiles", "min", "cpu median", "cpu min", "unit", "n", "")
    cells = [heads]
    for row in rows:
        quartiles = "" if row.low is None else f"{row.low:.3g} .. {row.high:.3g}"
        numbers = (row.median, row.min, row.cpu_median, row.cpu_min)
        median, least, cpu, cpu_least = ("" if x is None else f"{x:.3g}" for x in numbers)
        cells.append((row.name, median, quartiles, least, cpu, cpu_least, row.unit,
                      str(row.n or ""), row.note))  # fmt: skip
    widths = [max(len(line[column]) for line in cells) for column in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in (0, 6, 8) else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ).rstrip()
        for line in cells
    )


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return sys.modules[name].__version__ if name in sys.modules else None
