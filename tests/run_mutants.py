"""Change one place of the package at a time: a test must fail each time.

    python tests/run_mutants.py [--scope release] [--sample 300] [--seed 0] [--changed main]
                                [--only swap] [--by-hand] [--resume] [--near] [--jobs 2]

Mutants are made from the syntax tree (`tests/mutations/`). First it is measured which tests execute
which lines; that takes some minutes and is kept in `.mutants/`. Then each mutant is put into a copy
of the repository, and the tests that execute it run there, near and quick ones first. Test files
that are named after a changed file are measured and run before any other is measured: they kill
most mutants.

    killed    a test failed, as it should
    timeout   a test hung; counts as killed
    survived  all tests passed: write one that does not, or list the mutant as equivalent
    untested  no test executes the place
    broken    no test could run

Exit code 1 if fewer than the wanted share is killed (`--at-least`, 100 % unless given).
"""

import argparse
import faulthandler
import functools
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))

from mutations import choice, session, trials  # noqa: E402
from mutations.equivalent import EQUIVALENT  # noqa: E402
from mutations.executed import Map, write_whole  # noqa: E402
from mutations.meanings import by_hand  # noqa: E402
from mutations.operators import Mutant  # noqa: E402
from mutations.trials import Outcome  # noqa: E402

KEPT = ROOT / ".mutants"
# Tests outside the folder of a mutant that may kill it, too.
ALWAYS = ("laws", "bad_inputs")
# Tests that notice every change of what is computed, also right ones, prove nothing.
NEVER = ("frozen", "mutations")
ENVIRONMENT = {
    "JAX_COMPILATION_CACHE_DIR": str(KEPT / "programs"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.05",
    "JAX_PLATFORMS": "cpu",
    "PYTHONDONTWRITEBYTECODE": "",  # what is not changed is compiled once
}
KEEPS = "What was measured and tried is kept: the same command, with --resume, goes on from there."
VERDICTS = ("killed", "timeout", "survived", "untested", "broken")


def test_files(root: Path, mutants: list[Mutant]) -> list[str]:
    """Return the test files that may kill these mutants: of their folders, and of `ALWAYS`."""
    rooms = {Path(mutant.path).parts[1].removesuffix(".py") for mutant in mutants} | {*ALWAYS}
    files = sorted(path.relative_to(root) for path in (root / "tests").rglob("test_*.py"))
    return [
        file.as_posix()
        for file in files
        if file.parts[1] not in NEVER
        and (file.parts[1] in rooms or file.stem.removeprefix("test_") in rooms)
    ]


def by_nearness(files: list[str], changed: Iterable[str]) -> list[list[str]]:
    """Split test files into those that are named after a changed file, and all others."""
    paths = {Path(path) for path in changed}
    after = {(path.parts[1].removesuffix(".py"), f"test_{path.stem}") for path in paths}

    def is_near(file: Path) -> bool:
        room = file.parts[1].removeprefix("test_").removesuffix(".py")
        return any(room == own and file.stem.startswith(name) for own, name in after)

    near = [file for file in files if is_near(Path(file))]
    return [near, [file for file in files if file not in near]]


def chosen_by(given: argparse.Namespace, texts: dict[str, str]) -> list[Mutant]:
    """Return the mutants that the command line asks for."""
    hand = [mutant for mutant in by_hand(ROOT) if mutant.path in texts]
    mutants = hand
    if not given.by_hand:
        every = choice.generated(texts)
        gone = {n for n in EQUIVALENT if n.partition(":")[0] in texts} - {x.name for x in every}
        for name in sorted(gone):
            print(f"Listed as equivalent, and gone: {name}")
        made = [mutant for mutant in every if mutant.name not in EQUIVALENT]
        names = {mutant.name for mutant in made}
        mutants = [*made, *(mutant for mutant in hand if mutant.name not in names)]
    if given.changed:
        mutants = choice.changed_since(given.changed, ROOT, texts, mutants)
    if given.sample is None:
        return mutants
    seeds = range(given.seed, given.seed + given.seeds)
    samples = [choice.sampled(mutants, given.sample, seed) for seed in seeds]
    return list(dict.fromkeys(mutant for sample in samples for mutant in sample))


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """Return the outcomes of earlier runs by the name of the mutant."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {row["name"]: row for row in rows}


@contextmanager
def saying_how_it_ends(folder: Path) -> Iterator[None]:
    """Say which signal ended this run; after one that leaves no time, the next run says so."""

    def ended(number: int, frame: Any) -> None:
        sys.exit(f"Ended by {signal.Signals(number).name}. {KEEPS}")

    for note in folder.glob("running-*.txt"):
        if not is_alive(int(note.stem.partition("-")[2])):
            print(f"{note.read_text()} was killed, perhaps for want of memory. {KEEPS}", flush=True)
            note.unlink()
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, ended) for number in numbers]
    note = folder / f"running-{os.getpid()}.txt"
    write_whole(note, f"The run that began at {time.ctime()}, process {os.getpid()},")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True


def report(outcome: Outcome, done: int, total: int, seconds: float) -> None:
    left = seconds / done * (total - done)
    print(
        f"{done:4}/{total} {left / 60:5.1f} min left  {outcome.verdict:8} "
        f"{outcome.seconds:5.1f} s  {outcome.mutant.name}",
        flush=True,
    )
    if outcome.verdict == "broken":
        print("\n".join(outcome.output.splitlines()[-15:]), flush=True)


def summarise(rows: list[dict[str, Any]], at_least: float) -> bool:
    """Print a row for every operator, and what is not killed; return whether enough are."""
    counts = Counter((row["operator"], row["verdict"]) for row in rows)
    print(f"\n{'operator':14}" + "".join(f"{verdict:>10}" for verdict in VERDICTS))
    for operator in sorted({row["operator"] for row in rows}):
        print(f"{operator:14}" + "".join(f"{counts[operator, verdict]:10}" for verdict in VERDICTS))
    for row in rows:
        if row["verdict"] not in ("killed", "timeout"):
            print(f"{row['verdict']}: {row['name']}")
    dead = sum(row["verdict"] in ("killed", "timeout") for row in rows)
    share = 100 * dead / max(1, len(rows))
    print(f"\n{dead} of {len(rows)} mutants die: {share:.1f} %; wanted: {at_least:g} %")
    return share >= at_least


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Change one place at a time; a test must fail.")
    parser.add_argument("--scope", choices=choice.SCOPES, default="all", help="a set of files")
    parser.add_argument("--only", action="append", default=[], help="part of the path of a file")
    parser.add_argument("--changed", metavar="COMMIT", help="only functions changed since then")
    parser.add_argument("--by-hand", action="store_true", help="only mutants written by hand")
    parser.add_argument("--sample", type=int, help="so many of them, chosen by --seed")
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86400, help="today's day")
    parser.add_argument("--seeds", type=int, default=1, help="samples of so many seeds, pooled")
    parser.add_argument(
        "--at-least", type=float, default=100.0, help="wanted share of killed, in %%"
    )
    parser.add_argument("--resume", action="store_true", help="keep what --json says was killed")
    parser.add_argument(
        "--near", action="store_true", help="only test files named after the changed file"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="workers")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests for a mutant")
    parser.add_argument("--json", type=Path, default=KEPT / "outcomes.json", help="the outcomes")
    parser.add_argument("--list", action="store_true", help="print the mutants, try none")
    return parser.parse_args()


def main() -> int:
    """Choose mutants, measure what is executed, try them, and say how many die."""
    given = arguments()
    texts = choice.sources(ROOT, given.scope, given.only)
    mutants = chosen_by(given, texts)
    known = read_rows(given.json)
    done = {
        mutant.name: known[mutant.name]
        for mutant in mutants
        if given.resume and known.get(mutant.name, {}).get("verdict") in ("killed", "timeout")
    }
    left = [mutant for mutant in mutants if mutant.name not in done]
    print(
        f"{len(mutants)} mutants of {len(texts)} files; {len(done)} were killed before", flush=True
    )
    if given.list:
        print("\n".join(f"{mutant.operator:12} {mutant.name}" for mutant in mutants))
        return 0
    faulthandler.enable()
    os.environ.update(ENVIRONMENT)
    session.PROCESSES.set_forkserver_preload(session.PRELOADED)
    began = time.monotonic()
    executed = Map(KEPT / "executed", ROOT)
    rows, outcomes, missing, seconds = dict(done), [], [], 0.0

    def keep(is_last: bool, outcome: Outcome) -> None:
        if outcome.dies or is_last:
            rows[outcome.mutant.name] = known[outcome.mutant.name] = outcome.to_json()
            report(outcome, len(rows) - len(done), total, seconds + time.monotonic() - began)
            write_whole(given.json, json.dumps(list(known.values()), indent=1))

    with (
        saying_how_it_ends(KEPT),
        trials.copies(ROOT, max(1, given.jobs)) as copied,
    ):
        total, say = len(left), functools.partial(print, flush=True)
        near, others = by_nearness(test_files(ROOT, left), (mutant.path for mutant in left))
        for files, is_last in [(near, True)] if given.near else [(near, False), (others, True)]:
            if not left:
                break
            missing += trials.measure(copied, executed, files, say)
            began = time.monotonic()
            tests = [(mutant, executed.tests_of(mutant, texts[mutant.path])) for mutant in left]
            told = functools.partial(keep, is_last)
            outcomes += trials.try_all(copied, tests, given.budget, told)
            seconds += time.monotonic() - began
            left = [mutant for mutant in left if mutant.name not in rows]
    enough = summarise([rows[mutant.name] for mutant in mutants], given.at_least)
    if missing:
        print(f"Not measured, so that their tests killed nothing: {', '.join(missing)}")
    used = sum(outcome.seconds for outcome in outcomes) / 60
    print(f"{seconds / 60:.1f} min, {used:.1f} min of the processor")
    return 0 if mutants and enough else 1


if __name__ == "__main__":
    sys.exit(main())
