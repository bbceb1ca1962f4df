"""Run the mutations of `tests/mutations/`: each must make one of its tests fail.

    python tests/run_mutants.py [--only swap] [--only 3-7] [--jobs 4] [--json found.json]

Package and tests are copied to a temporary folder for every worker. First all tests named by the
list run on the package as it is. Then one line at a time is changed in a copy, and its tests run:

    killed    a test failed, as it should
    survived  all tests passed: write one that does not
    broken    no test could run, or not in time: the list, or the change itself, is wrong

Exit code 1 unless every mutation is killed. Compiled programs are shared by all workers and kept
in `.jax_cache/` for the next run.
"""

import argparse
import json
import multiprocessing
import os
import queue
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from mutations import Mutation, all_mutations  # noqa: E402

COPIED = ("replicax", "tests", "pyproject.toml")
ENVIRONMENT = {
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PLATFORMS": "cpu",
    "PYTHONDONTWRITEBYTECODE": "",  # what is not changed is compiled once
}
# Every run of pytest is forked from a process that has imported these: half of its time.
PRELOADED = [
    "jax",
    "optax",
    "pytest",
    "hypothesis",
    "scipy.stats",
    "xarray",
    "zarr",
    "orbax.checkpoint",
]
PROCESSES = multiprocessing.get_context("forkserver")
ANOTHER_PACKAGE = 9  # exit code; those of pytest are 0 to 5


class Outcome(NamedTuple):
    """What became of one mutation."""

    number: int
    mutation: Mutation
    verdict: str  # killed, survived or broken
    seconds: float
    output: str  # of pytest


def places(mutation: Mutation, package: Path = ROOT / "replicax") -> int:
    """Return how often the line of a mutation occurs in its file; once is right."""
    return (package / mutation.file).read_text().count(mutation.line)


def run_tests(copy: Path, tests: Iterable[str], limit: float) -> tuple[int | None, str]:
    """Run tests in a copy of the repository; return pytest's exit code, None out of time."""
    log = copy / "log.txt"
    process = PROCESSES.Process(target=_run_pytest, args=(copy, [f"tests/{x}" for x in tests]))
    process.start()
    process.join(limit)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    late = f"\nno answer after {limit:.0f} s" if code is None else ""
    return code, log.read_text(errors="replace") + late


def _run_pytest(copy: Path, tests: list[str]) -> None:
    """Run pytest in `copy`, on the package there and not on the installed one."""
    os.chdir(copy)
    log = os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.path[:] = [str(copy), *(path for path in sys.path if path != str(ROOT / "tests"))]
    import pytest

    import replicax

    if not Path(replicax.__file__).is_relative_to(copy):
        os._exit(ANOTHER_PACKAGE)
    options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=short", "--rootdir", str(copy)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    code = pytest.main([*options, *tests])
    sys.stdout.flush()
    os._exit(int(code))


def verdict_of(code: int | None, output: str) -> str:
    """Return what an exit code of pytest says of a mutation."""
    if code == 0:
        return "survived"
    failed = re.search(r"^\d+ (failed|error|passed, \d+ error)", output, re.MULTILINE)
    return "killed" if code == 1 and failed else "broken"


def try_one(copy: Path, number: int, mutation: Mutation, sources: Path, limit: float) -> Outcome:
    """Change one line of a copy, run the tests that must fail, and change it back."""
    began, path = time.monotonic(), copy / "replicax" / mutation.file
    original = sources / "replicax" / mutation.file
    if places(mutation, sources / "replicax") != 1:
        return Outcome(number, mutation, "broken", 0.0, "the line is not found once in its file")
    path.write_text(original.read_text().replace(mutation.line, mutation.becomes))
    os.utime(path, (number, number))  # two changes in one second would look the same to Python
    code, output = run_tests(copy, mutation.tests, limit)
    shutil.copy2(original, path)
    return Outcome(number, mutation, verdict_of(code, output), time.monotonic() - began, output)


def run_all(chosen: dict[int, Mutation], jobs: int, limit: float, check: bool) -> list[Outcome]:
    """Run the chosen mutations with `jobs` workers, and print each outcome."""
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as temporary,
        ThreadPoolExecutor(jobs) as workers,
    ):
        folder = Path(temporary).resolve()
        sources = copy_to(ROOT, folder / "sources")
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for number in range(jobs):
            copies.put(copy_to(sources, folder / str(number)))

        def in_copy(task: Callable[..., Any], *arguments: Any) -> Any:
            copy = copies.get()
            try:
                return task(copy, *arguments)
            finally:
                copies.put(copy)

        def submit(task: Callable[..., Any], *arguments: Any) -> Future:
            return workers.submit(in_copy, task, *arguments)

        if check:
            check_tests([submit(run_tests, group, limit) for group in by_file(chosen.values())])
        began = time.monotonic()
        tried = [submit(try_one, *item, sources, limit) for item in chosen.items()]
        for future in as_completed(tried):
            outcomes.append(future.result())
            report(outcomes[-1], len(outcomes), len(chosen), time.monotonic() - began)
    return sorted(outcomes)


def by_file(mutations: Iterable[Mutation]) -> list[list[str]]:
    """Return all tests of the mutations, one list per file."""
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    return [list(group) for _, group in groupby(tests, lambda test: test.partition("::")[0])]


def check_tests(running: list[Future]) -> None:
    """Wait for the tests on the package as it is, and end the program unless all pass."""
    began = time.monotonic()
    print(f"tests of {len(running)} files on the package as it is ...", flush=True)
    for future in as_completed(running):
        code, output = future.result()
        if code != 0:
            for other in running:
                other.cancel()
            sys.exit(f"{output[-4000:]}\nThe tests must pass before anything is changed.")
    print(f"passed in {time.monotonic() - began:.0f} s", flush=True)


def copy_to(source: Path, folder: Path) -> Path:
    folder.mkdir()
    for name in COPIED:
        if (source / name).is_dir():
            shutil.copytree(source / name, folder / name)
        else:
            shutil.copy2(source / name, folder / name)
    return folder


def report(outcome: Outcome, done: int, total: int, seconds: float) -> None:
    left = seconds / done * (total - done)
    print(
        f"{done:4}/{total}  {left / 60:5.1f} min left  {outcome.verdict:8} "
        f"{outcome.seconds:5.1f} s  {outcome.number:3}  {outcome.mutation.name}",
        flush=True,
    )
    if outcome.verdict == "broken":
        print("\n".join(outcome.output.splitlines()[-15:]), flush=True)


def summarise(outcomes: list[Outcome]) -> None:
    """Print a row for every file, and what is not killed."""
    verdicts = ("killed", "survived", "broken")
    counts = Counter((outcome.mutation.file, outcome.verdict) for outcome in outcomes)
    files = list(dict.fromkeys(outcome.mutation.file for outcome in outcomes))
    print(f"\n{'file':34}" + "".join(f"{verdict:>10}" for verdict in verdicts))
    for file in files:
        print(f"{file:34}" + "".join(f"{counts[file, verdict]:10}" for verdict in verdicts))
    totals = [sum(counts[file, verdict] for file in files) for verdict in verdicts]
    print(f"{'all':34}" + "".join(f"{total:10}" for total in totals))
    for outcome in outcomes:
        if outcome.verdict != "killed":
            print(f"{outcome.verdict}: {outcome.number}  {outcome.mutation.name}")


def choose(mutations: list[Mutation], only: list[str]) -> dict[int, Mutation]:
    """Return mutations by number, from 1: all, or those of the numbers and files in `only`."""
    numbered = dict(enumerate(mutations, start=1))
    if not only:
        return numbered

    def fits(number: int, mutation: Mutation, word: str) -> bool:
        span = re.fullmatch(r"(\d+)(?:-(\d+))?", word)
        if span is None:
            return word in mutation.file
        return int(span[1]) <= number <= int(span[2] or span[1])

    return {n: m for n, m in numbered.items() if any(fits(n, m, word) for word in only)}


def main() -> int:
    parser = argparse.ArgumentParser(description="Change one line at a time; a test must fail.")
    parser.add_argument("-k", "--only", action="append", default=[], help="part of a file, or 3-7")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one mutation")
    parser.add_argument("--json", type=Path, help="file for the outcomes")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests as they are")
    given = parser.parse_args()
    chosen = choose(all_mutations(), given.only)
    os.environ.update(ENVIRONMENT)
    PROCESSES.set_forkserver_preload(PRELOADED)
    began = time.monotonic()
    outcomes = run_all(chosen, max(1, given.jobs), given.limit, not given.unchecked)
    summarise(outcomes)
    print(f"{len(outcomes)} mutations in {(time.monotonic() - began) / 60:.1f} min")
    if given.json:
        rows = [
            {"number": o.number, **o.mutation._asdict(), "verdict": o.verdict, "seconds": o.seconds}
            for o in outcomes
        ]
        given.json.write_text(json.dumps(rows, indent=1))
    return 0 if outcomes and all(outcome.verdict == "killed" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
