"""Which mutations of the list are run."""

import random
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from mutations import Mutation


def files_of(mutation: Mutation) -> list[str]:
    return [test.partition("::")[0] for test in mutation.tests]


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


def touched(mutations: dict[int, Mutation], paths: Iterable[str]) -> dict[int, Mutation]:
    """Return those of the mutations whose source, or one of whose tests, is among the paths."""
    paths = set(paths)

    def files(mutation: Mutation) -> list[str]:
        return [f"replicax/{mutation.file}", *(f"tests/{file}" for file in files_of(mutation))]

    return {n: m for n, m in mutations.items() if not paths.isdisjoint(files(m))}


def changed_since(commit: str, root: Path) -> list[str]:
    """Return the paths that differ from a commit, and those that git does not know."""
    paths: list[str] = []
    for command in (
        ["diff", "--name-only", commit],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        paths += subprocess.run(
            ["git", *command], cwd=root, check=True, capture_output=True, text=True
        ).stdout.splitlines()
    return paths


def sampled(mutations: dict[int, Mutation], count: int, seed: int) -> dict[int, Mutation]:
    """Return so many of the mutations, chosen at random."""
    print(f"{min(count, len(mutations))} of {len(mutations)} mutations, by --seed {seed}")
    numbers = random.Random(seed).sample(sorted(mutations), min(count, len(mutations)))
    return {number: mutations[number] for number in sorted(numbers)}


def unfinished(mutations: dict[int, Mutation], rows: list[dict]) -> dict[int, Mutation]:
    """Return those of the mutations that no row says were killed by these tests."""
    killed = {
        Mutation(row["file"], row["line"], row["becomes"], tuple(row["tests"]))
        for row in rows
        if row["verdict"] == "killed"
    }
    return {n: m for n, m in mutations.items() if m not in killed}
