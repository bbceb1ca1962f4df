"""Try mutants: each in a copy of the repository, with the tests that execute it."""

import os
import queue
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from mutations import executed, session
from mutations.executed import Candidate, Map
from mutations.operators import Mutant

STAGES = 2.0, 10.0  # seconds of the tests that are tried together, first and next; then the rest
USUAL = 90.0  # seconds after which a test, or what precedes the first one, is said to hang
PATIENCE = 20.0  # so many times its usual seconds may a test take beyond that


class Outcome(NamedTuple):
    """What became of a mutant."""

    mutant: Mutant
    verdict: str  # killed, timeout, survived, untested or broken
    seconds: float  # of the processor
    killer: str  # the test that failed
    output: str  # of pytest, where the verdict needs an explanation

    @property
    def dies(self) -> bool:
        return self.verdict in ("killed", "timeout")

    def to_json(self) -> dict[str, Any]:
        rest = {"verdict": self.verdict, "seconds": round(self.seconds, 2), "killer": self.killer}
        return {"name": self.mutant.name, "operator": self.mutant.operator, **rest}


class Copies:
    """Copies of the repository, one for each worker."""

    def __init__(self, root: Path, folder: Path, jobs: int) -> None:
        self.root, self.free = root, queue.SimpleQueue[Path]()
        self.workers = ThreadPoolExecutor(jobs)
        for number in range(jobs):
            copy = folder / f"copy-{number}"
            copy_repository(root, copy)
            executed.prepare(copy)
            self.free.put(copy)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Future:
        """Run `task(copy, ...)` when a copy is free."""
        return self.workers.submit(self._in_copy, task, *arguments)

    def _in_copy(self, task: Callable[..., Any], *arguments: Any) -> Any:
        copy = self.free.get()
        try:
            return task(copy, *arguments)
        finally:
            self.free.put(copy)


@contextmanager
def copies(root: Path, jobs: int) -> Iterator[Copies]:
    """Copy the repository for every worker; remove the copies at the end."""
    with tempfile.TemporaryDirectory(prefix="mutants-", ignore_cleanup_errors=True) as temporary:
        made = Copies(root, Path(temporary).resolve(), jobs)
        try:
            yield made
        finally:
            made.workers.shutdown(wait=False, cancel_futures=True)
            session.end_all()  # there are some only if this was interrupted
            made.workers.shutdown()


def copy_repository(root: Path, copy: Path) -> None:
    """Copy all files that git knows or would add; without git, all but hidden folders."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
        paths = [Path(name) for name in listed.stdout.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = (path.relative_to(root) for path in root.rglob("*"))
        paths = [path for path in found if not path.parts[0].startswith((".", "__"))]
    for path in paths:
        if (root / path).is_file():
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / path, copy / path)


def measure(
    copied: Copies, known: Map, files: Iterable[str], report: Callable[[str], Any] = print
) -> list[str]:
    """Measure which lines the tests of these files execute, where the map does not know.

    Every file is kept when it is measured. Returns those that could not be.
    """
    stale, missing = known.stale(files), []
    if not stale:
        return missing
    report(f"measuring which lines the tests of {len(stale)} files execute ...")
    began = time.monotonic()
    largest = sorted(stale, key=lambda file: -(known.root / file).stat().st_size)
    running = {copied.submit(_measure_one, file): file for file in largest}
    for number, future in enumerate(as_completed(running), 1):
        file, (ended, recorded) = running[future], future.result()
        told = f"{number:4}/{len(stale)} {time.monotonic() - began:5.0f} s  {file}"
        if not recorded:
            how = ended.why if ended.code is None else f"exit code {ended.code} of pytest"
            report(f"{told} could not be measured ({how}):\n{ended.output[-3000:]}")
            missing.append(file)
            continue
        failed = recorded["failed"]
        report(told + "".join(f"\n  fails on the package as it is: {test}" for test in failed))
        known.add(file, recorded)
    return missing


def _measure_one(copy: Path, file: str) -> tuple[session.Ended, dict[str, Any]]:
    return session.record(copy, file, 900.0)


def try_all(
    copied: Copies,
    chosen: list[tuple[Mutant, list[Candidate]]],
    budget: float,
    keep: Callable[[Outcome], Any] = lambda outcome: None,
) -> list[Outcome]:
    """Try mutants with their tests; hand every outcome to `keep` when it is known."""
    tried = [
        copied.submit(try_one, mutant, tests, budget, number)
        for number, (mutant, tests) in enumerate(chosen)
    ]
    outcomes = []
    for future in as_completed(tried):
        outcomes.append(future.result())
        keep(outcomes[-1])
    return outcomes


def try_one(
    copy: Path, mutant: Mutant, tests: list[Candidate], budget: float, number: int = 0
) -> Outcome:
    """Change a file of the copy, run tests until one fails, and change it back."""
    if not tests:
        return Outcome(mutant, "untested", 0.0, "", "no test executes it")
    with mutated(copy / mutant.path, mutant, number):
        seconds = 0.0
        for stage in stages(tests, budget):
            limits = {test.name: USUAL + PATIENCE * test.seconds for test in stage}
            ended = session.run(copy, [test.name for test in stage], limits, USUAL)
            seconds += ended.seconds
            verdict = verdict_of(ended)
            if verdict != "survived":
                killer = session.failed_test(ended.output) or current(copy)
                return Outcome(mutant, verdict, seconds, killer, ended.output[-4000:])
    return Outcome(mutant, "survived", seconds, "", "")


def verdict_of(ended: session.Ended) -> str:
    """Return what the end of a session says about a mutant."""
    if ended.why == "timeout":
        return "timeout"
    if ended.why == "ended":  # a signal or an exit, which no test of ours survives
        return "killed"
    return {0: "survived", 1: "killed", 2: "killed"}.get(ended.code, "broken")  # type: ignore[arg-type]


def current(copy: Path) -> str:
    """Return the test that was running last."""
    path = copy / "now.txt"
    return path.read_text().partition(" ")[2] if path.exists() else ""


@contextmanager
def mutated(path: Path, mutant: Mutant, number: int) -> Iterator[None]:
    """Have a mutant in the place of a file of a copy; the repository may change meanwhile."""
    text, before = path.read_text(), path.stat()
    path.write_text(mutant.apply(text))
    os.utime(path, (number, number))  # two changes in one second would look the same to Python
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def stages(tests: list[Candidate], budget: float) -> list[list[Candidate]]:
    """Split tests, the cheapest first, into those that are tried first, next and last.

    All tests of a stage run in one process, those of a file together. The first stage is short: it
    kills most. Tests beyond the budget are left out, but never the first one.
    """
    parts: list[list[Candidate]] = [[] for _ in range(len(STAGES) + 1)]
    total = 0.0
    for number, test in enumerate(tests):
        total += test.seconds
        if number and total > budget:
            break
        parts[sum(total > end for end in STAGES) if number else 0].append(test)
    return [_by_file(part) for part in parts if part]


def _by_file(tests: list[Candidate]) -> list[Candidate]:
    files = list(dict.fromkeys(test.file for test in tests))
    return sorted(tests, key=lambda test: files.index(test.file))
