"""One session of pytest in a copy of the repository, in a process of its own.

The process is forked from one that has imported the libraries, but not the package: that takes a
tenth of a second instead of two.
"""

import multiprocessing
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

PROCESSES = multiprocessing.get_context("forkserver")
PRELOADED = [
    "jax",
    "optax",
    "pytest",
    "hypothesis",
    "scipy.stats",
    "xarray",
    "zarr",
    "orbax.checkpoint",
    "coverage",
]
MEMORY = 8 << 30  # bytes that a process may ask for: a mutant may ask for anything
_PYTEST = 100  # exit codes of pytest are told from others by this much
_ANOTHER_PACKAGE = 99
_NOW, _LOG = "now.txt", "log.txt"
_RUNNING: set[Any] = set()  # the processes of sessions that have not ended


class Ended(NamedTuple):
    """How a session ended."""

    code: int | None  # of pytest: 0 all passed, 1 one failed, 2 one could not be read, ...
    why: str  # "pytest", "timeout", "ended" (by itself), "ended by signal 9", "another package"
    output: str
    seconds: float  # of the processor, with the processes that tests started


def run(copy: Path, tests: list[str], limits: dict[str, float], usual: float) -> Ended:
    """Run these tests in this order until one fails or exceeds its limit in seconds.

    `usual` is the limit of a test that has none, and of what happens before the first one.
    """
    return _await(copy, usual, "chosen", tests, limits, usual)


def record(copy: Path, file: str, limit: float) -> tuple[Ended, dict[str, Any]]:
    """Run a test file and return, too, which lines of the package each of its tests executed."""
    from mutations import executed

    executed.forget_recorded(copy)
    ended = _await(copy, limit, "recorded", [file], {}, limit)
    return ended, executed.read_recorded(copy)


def _await(copy: Path, limit: float, kind: str, tests: list[str], *rest: Any) -> Ended:
    """Start a session and wait until it ends or a test exceeds its limit."""
    (copy / _NOW).unlink(missing_ok=True)
    process = PROCESSES.Process(target=_session, args=(copy, kind, tests, *rest))
    process.start()
    _RUNNING.add(process)
    try:
        began = time.time()
        while process.exitcode is None:
            process.join(0.5)
            if process.exitcode is None and time.time() > _deadline(copy, began + limit):
                return Ended(None, "timeout", _read(copy / _LOG), 0.0)
    finally:
        _RUNNING.discard(process)
        _kill(process)  # and what it left running
    output, _, seconds = _read(copy / _LOG).rpartition("seconds of the processor: ")
    code = process.exitcode - _PYTEST
    if 0 <= code < 10:
        return Ended(code, "pytest", output, float(seconds or 0))
    why = {
        _ANOTHER_PACKAGE: "another package",
        # Nobody here sent it: the system does so where memory is short.
        -signal.SIGKILL: "ended by signal 9",
    }.get(process.exitcode, "ended")
    return Ended(None, why, output or seconds, 0.0)


def end_all() -> None:
    """Kill all sessions: whoever waits for one learns that it was ended by a signal."""
    for process in tuple(_RUNNING):
        _kill(process)


def _kill(process: Any) -> None:
    """Kill a session and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    except PermissionError:
        pass
    process.join()


def _deadline(copy: Path, usual: float) -> float:
    try:
        return float((copy / _NOW).read_text().split()[0])
    except (OSError, IndexError, ValueError):
        return usual


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _session(copy: Path, kind: str, tests: list[str], limits: dict, usual: float) -> None:
    """Run pytest in `copy`, on the package there and not on the installed one."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    os.chdir(copy)
    log = os.open(_LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ["PYTHONPATH"] = str(copy)  # of processes that tests start
    # Bytecode is known by size and second of its source: one mutant's would pass for another's.
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    here = Path(__file__).resolve().parents[1]
    sys.path[:] = [str(copy), *(path for path in sys.path if Path(path).resolve() != here)]
    from mutations import executed
    from mutations.choice import PACKAGE

    if kind == "chosen":  # what a mutant compiles is of no use to others
        import jax

        jax.config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
    plugin: Any = (
        executed.Recorder(copy) if kind == "recorded" else Chosen(copy, tests, limits, usual)
    )
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    import pytest

    code = pytest.main([*_options(copy), *files], plugins=[plugin])
    import importlib.util

    found = importlib.util.find_spec(PACKAGE)
    if found is None or not Path(str(found.origin)).is_relative_to(copy):
        os._exit(_ANOTHER_PACKAGE)
    print(f"seconds of the processor: {sum(os.times()[:4])}", flush=True)
    os._exit(_PYTEST + int(code))


def _options(copy: Path) -> list[str]:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=short", "-o", "addopts="]
    options += ["--import-mode=importlib", "-m", "not slow", "--rootdir", str(copy)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return [*options, "--basetemp", str(copy / "tmp")]


class Chosen:
    """A plugin that runs the chosen tests in their order, and writes when each must have ended."""

    def __init__(self, copy: Path, tests: list[str], limits: dict, usual: float) -> None:
        self.now, self.tests, self.limits, self.usual = copy / _NOW, tests, limits, usual

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        """Keep the chosen tests, in their order."""
        config.option.maxfail = 1
        whole = {test for test in self.tests if "::" not in test}
        place = {test: number for number, test in enumerate(self.tests)}
        kept = [x for x in items if x.nodeid in place or x.nodeid.partition("::")[0] in whole]
        items[:] = sorted(kept, key=lambda item: place.get(item.nodeid, -1))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write until when the test may run."""
        until = time.time() + self.limits.get(nodeid, self.usual)
        self.now.write_text(f"{until} {nodeid}")


def failed_test(output: str) -> str:
    """Return which test failed first, as pytest's summary names it."""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.partition(" ")[2].partition(" - ")[0].strip()
    return ""
