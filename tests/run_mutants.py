"""Run the mutations of `tests/mutations/`: each must make one of its tests fail.

    python tests/run_mutants.py [--only swap] [--only 3-7] [--changed main] [--sample 60] [--jobs 4]

Package and tests are copied to a temporary folder for every worker. First all tests named by the
list run on the package as it is. Then one line at a time is changed in a copy, and its tests run:

    killed    a test failed, as it should
    survived  all tests passed: write one that does not
    broken    no test could run, or not in time, or one fails on the package as it is

Exit code 1 unless every mutation is killed. Outcomes are written to `.mutants.json` as they come;
`--resume` leaves out what was killed there. Compiled programs are shared by all workers and kept in
`.jax_cache/` for the next run.
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
from mutations.choice import (  # noqa: E402
    changed_since,
    choose,
    files_of,
    sampled,
    touched,
    unfinished,
)

COPIED = ("replicax", "tests", "pyproject.toml")
FOUND = ROOT / ".mutants.json"
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
_SECONDS = "seconds of the processor: "


class Outcome(NamedTuple):
    """What became of one mutation."""

    number: int
    mutation: Mutation
    verdict: str  # killed, survived or broken
    seconds: float  # of the processor
    output: str  # of pytest

    def to_json(self) -> dict[str, Any]:
        found = re.search(r"^(?:FAILED|ERROR) tests/(\S+(?: .*\])?)", self.output, re.MULTILINE)
        rest = {"verdict": self.verdict, "seconds": round(self.seconds, 2)}
        return {**self.mutation._asdict(), **rest, "killer": found and found[1]}


def places(mutation: Mutation, package: Path = ROOT / "replicax") -> int:
    """Return how often the line of a mutation occurs in its file; once is right."""
    return (package / mutation.file).read_text().count(mutation.line)


def run_tests(copy: Path, tests: Iterable[str], limit: float) -> tuple[int | None, str, float]:
    """Run tests in a copy of the repository; return pytest's exit code (None out of time), what it
    wrote, and its seconds of the processor."""
    log = copy / "log.txt"
    process = PROCESSES.Process(target=_run_pytest, args=(copy, [f"tests/{x}" for x in tests]))
    process.start()
    process.join(limit)
    code = process.exitcode
    if code is None:
        process.kill()
        process.join()
    output = log.read_text(errors="replace")
    if code is None:
        return None, f"{output}\nno answer after {limit:.0f} s", limit
    output, _, seconds = output.rpartition(_SECONDS)
    return code, output, float(seconds or 0)


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
    if all(test.endswith("]") for test in tests):  # single cases, which may be slow
        options += ["-m", ""]
    code = pytest.main([*options, *tests])
    print(f"{_SECONDS}{sum(os.times()[:4])}", flush=True)  # with processes that tests started
    os._exit(int(code))


def verdict_of(code: int | None, output: str) -> str:
    """Return what an exit code of pytest says of a mutation."""
    if code == 0:
        return "survived"
    failed = re.search(r"^\d+ (failed|error|passed, \d+ error)", output, re.MULTILINE)
    return "killed" if code == 1 and failed else "broken"


def try_one(copy: Path, number: int, mutation: Mutation, sources: Path, limit: float) -> Outcome:
    """Change one line of a copy, run the tests that must fail, and change it back."""
    path = copy / "replicax" / mutation.file
    original = sources / "replicax" / mutation.file
    if places(mutation, sources / "replicax") != 1:
        return Outcome(number, mutation, "broken", 0.0, "the line is not found once in its file")
    path.write_text(original.read_text().replace(mutation.line, mutation.becomes))
    os.utime(path, (number, number))  # two changes in one second would look the same to Python
    code, output, seconds = run_tests(copy, mutation.tests, limit)
    shutil.copy2(original, path)
    return Outcome(number, mutation, verdict_of(code, output), seconds, output)


def run_all(
    chosen: dict[int, Mutation],
    jobs: int,
    limit: float,
    check: bool,
    keep: Callable[[Outcome], Any] = lambda outcome: None,
) -> list[Outcome]:
    """Run the chosen mutations with `jobs` workers, print each outcome and hand it to `keep`."""
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

        failing: dict[str, str] = {}
        if check:
            groups = by_file(chosen.values())
            failing = check_tests({submit(run_tests, group, limit): group for group in groups})
        began, tried = time.monotonic(), []
        for number, mutation in chosen.items():
            bad = [failing[file] for file in files_of(mutation) if file in failing]
            if bad:
                outcomes.append(Outcome(number, mutation, "broken", 0.0, bad[0]))
            else:
                tried.append(submit(try_one, number, mutation, sources, limit))
        for future in as_completed(tried):
            outcomes.append(future.result())
            report(outcomes[-1], len(outcomes), len(chosen), time.monotonic() - began)
            keep(outcomes[-1])
    return sorted(outcomes)


def by_file(mutations: Iterable[Mutation]) -> list[list[str]]:
    """Return all tests of the mutations, one list per file."""
    tests = sorted({test for mutation in mutations for test in mutation.tests})
    return [list(group) for _, group in groupby(tests, lambda test: test.partition("::")[0])]


def check_tests(running: dict[Future, list[str]]) -> dict[str, str]:
    """Wait for the tests on the package as it is; return those of them that do not all pass, the
    output of pytest by file."""
    began, failing = time.monotonic(), {}
    print(f"tests of {len(running)} files on the package as it is ...", flush=True)
    for future in as_completed(running):
        code, output, _ = future.result()
        if code != 0:
            file = running[future][0].partition("::")[0]
            failing[file] = output
            print(f"{output[-4000:]}\n{file} fails on the package as it is.", flush=True)
    print(f"{len(failing)} of them fail; {time.monotonic() - began:.0f} s", flush=True)
    return failing


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


def main() -> int:
    parser = argparse.ArgumentParser(description="Change one line at a time; a test must fail.")
    parser.add_argument("-k", "--only", action="append", default=[], help="part of a file, or 3-7")
    parser.add_argument("--changed", metavar="COMMIT", help="only of files changed since then")
    parser.add_argument("--sample", type=int, help="so many of them, chosen by --seed")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()) // 86400, help="today's number"
    )
    parser.add_argument(
        "--resume", action="store_true", help="leave out what --json says is killed"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one mutation")
    parser.add_argument("--json", type=Path, default=FOUND, help="file for the outcomes")
    parser.add_argument("--unchecked", action="store_true", help="do not run the tests as they are")
    given = parser.parse_args()
    rows = json.loads(given.json.read_text()) if given.resume and given.json.exists() else []
    chosen = choose(all_mutations(), given.only)
    chosen = touched(chosen, changed_since(given.changed, ROOT)) if given.changed else chosen
    chosen = chosen if given.sample is None else sampled(chosen, given.sample, given.seed)
    left = unfinished(chosen, rows)

    def keep(outcome: Outcome) -> None:
        rows.append(outcome.to_json())
        given.json.write_text(json.dumps(rows, indent=1))

    os.environ.update(ENVIRONMENT)
    PROCESSES.set_forkserver_preload(PRELOADED)
    began = time.monotonic()
    outcomes = run_all(left, max(1, given.jobs), given.limit, not given.unchecked, keep)
    summarise(outcomes)
    used = sum(outcome.seconds for outcome in outcomes) / 60
    print(f"{len(outcomes)} mutations in {(time.monotonic() - began) / 60:.1f} min", end="")
    print(f", {used:.1f} min of the processor; {len(chosen) - len(left)} were killed before")
    return 0 if chosen and all(outcome.verdict == "killed" for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
