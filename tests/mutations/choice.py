"""Which mutants are tried: those of a scope, of some files, of what has changed, or a sample."""

import hashlib
import subprocess
from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path

from mutations.operators import Mutant, functions_of, mutants_of

PACKAGE = "replicax"
# What must hold before a release: 97 % of `--scope release --sample 300` with seeds 0, 1 and 2.
# Patterns of paths below the package: wanted ones, and among them those left out.
SCOPES = {
    "all": (["*"], []),
    "release": (
        ["algorithm/*", "run/*", "results/*"]
        + [f"networks/*{subject}*" for subject in ("evaluate", "swag", "predict")],
        ["*plot*", "*figure*", "results/report*", "results/summary*"],
    ),
}


def sources(root: Path, scope: str = "all", only: Iterable[str] = ()) -> dict[str, str]:
    """Return the text of the package's files by path: those of a scope whose path has a word."""
    wanted, left_out = SCOPES[scope]
    words = list(only)
    found = {}
    for file in sorted((root / PACKAGE).rglob("*.py")):
        below = file.relative_to(root / PACKAGE).as_posix()
        fits = any(fnmatch(below, x) for x in wanted) and not any(
            fnmatch(below, x) for x in left_out
        )
        if fits and (not words or any(word in below for word in words)):
            found[file.relative_to(root).as_posix()] = file.read_text()
    return found


def generated(texts: dict[str, str], equivalent: Iterable[str] = ()) -> list[Mutant]:
    """Return all mutants of some files but those known to change nothing."""
    known = set(equivalent)
    made = [mutant for path, text in texts.items() for mutant in mutants_of(text, path)]
    return [mutant for mutant in made if mutant.name not in known]


def sampled(mutants: list[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants drawn uniformly.

    Every mutant draws its own number from its name, so an edit changes the sample only there.
    """

    def drawn(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.name}".encode()).digest()

    chosen = set(sorted(mutants, key=drawn)[:count])
    return [mutant for mutant in mutants if mutant in chosen]


def changed_since(
    commit: str, root: Path, texts: dict[str, str], mutants: list[Mutant]
) -> list[Mutant]:
    """Return the mutants of functions whose text differs from what it was at a commit."""
    _git(root, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    changed = set()
    for path, text in texts.items():
        try:
            before = fingerprints(_git(root, "show", f"{commit}:./{path}"))
        except subprocess.CalledProcessError:  # no such file then
            before = {}
        changed |= {
            (path, name)
            for name, print_ in fingerprints(text).items()
            if before.get(name) != print_
        }
    return [mutant for mutant in mutants if (mutant.path, mutant.function) in changed]


def fingerprints(text: str) -> dict[str, str]:
    """Return a hash of the lines of every function and class, and of those outside as ""."""
    lines = text.splitlines()
    spans = functions_of(text)
    inside = {number for first, last in spans.values() for number in range(first, last + 1)}
    parts = {name: lines[first - 1 : last] for name, (first, last) in spans.items()}
    parts[""] = [line for number, line in enumerate(lines, 1) if number not in inside]
    return {name: hash_of("\n".join(part)) for name, part in parts.items()}


def hash_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def unfinished(
    mutants: list[Mutant], rows: Iterable[dict], known: Callable[[dict], bool]
) -> list[Mutant]:
    """Return the mutants that no row of an earlier run answers for."""
    done = {row["name"] for row in rows if known(row)}
    return [mutant for mutant in mutants if mutant.name not in done]


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout
