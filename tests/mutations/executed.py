"""Which tests execute which lines of the package: measured once, kept in a folder of files.

Tests of one file share an entry. It is measured again when the file changes, or when a file of the
package that its tests execute is gone. Lines are found again by their function; of a function that
is new since then, all tests of its file are tried, of a new file those that import it.
"""

import ast
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mutations.choice import PACKAGE, fingerprints, hash_of
from mutations.operators import Mutant

_SETTINGS = """\
[run]
source = {package}
data_file = {copy}/.coverage
parallel = True
context = ${{MUTANTS_TEST-}}
disable_warnings = no-data-collected, module-not-imported, couldnt-parse
"""
_START = """\
import os

if os.environ.get("COVERAGE_PROCESS_START"):
    import coverage

    coverage.process_startup()
"""
_RECORDED = "recorded.json"
_DEAREST_CASE = 6  # those after it cost as much


class Candidate(NamedTuple):
    """A test that executes a mutated line."""

    name: str  # as pytest names it
    seconds: float  # of the processor
    near: int  # 1 if it is in the folder that mirrors that of the mutant, 1 if it imports its file

    @property
    def file(self) -> str:
        return self.name.partition("::")[0]


def prepare(copy: Path) -> None:
    """Write what measures processes that tests start in a copy of the repository."""
    (copy / "coverage.ini").write_text(_SETTINGS.format(copy=copy, package=copy / PACKAGE))
    (copy / "sitecustomize.py").write_text(_START)


class Recorder:
    """A plugin that measures which lines each test executes, and its seconds."""

    def __init__(self, copy: Path) -> None:
        import coverage

        self.copy = copy
        for old in copy.glob(".coverage*"):
            old.unlink()
        settings = str(copy / "coverage.ini")
        self.coverage = coverage.Coverage(config_file=settings, data_suffix="main")
        os.environ["COVERAGE_PROCESS_START"] = settings
        self.context = self.test = ""
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []
        self.fixtures: dict[str, list[str]] = {}
        self.coverage.start()

    def _switch(self, context: str) -> None:
        self.context = context
        os.environ["MUTANTS_TEST"] = context
        self.coverage.switch_context(context)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
        """Count for this test what follows."""
        if item.nodeid.partition("[")[0] != self.test:
            _forget_programs()  # cases of one test seldom share one
        self.test = item.nodeid.partition("[")[0]
        self._switch(item.nodeid)
        (self.copy / "now.txt").write_text(f"{time.time() + 900} {item.nodeid}")
        names = [
            f"{item.nodeid.partition('::')[0]}:{name}" for name in getattr(item, "fixturenames", [])
        ]
        self.fixtures[item.nodeid] = names
        began = sum(os.times()[:4])  # what a busy machine does not make longer
        yield
        self.seconds[item.nodeid] = sum(os.times()[:4]) - began
        self._switch("")

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Count for all tests that use it what sets up a fixture that several share."""
        if fixturedef.scope == "function":
            yield
            return
        test = self.context
        self._switch(f"{test.partition('::')[0]}:{fixturedef.argname}")
        yield
        self._switch(test)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note which tests fail."""
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what was measured."""
        import coverage

        self.coverage.stop()
        self.coverage.save()
        merged = coverage.CoverageData(basename=str(self.copy / ".coverage"), suffix="merged")
        for part in sorted(self.copy.glob(".coverage.*")):
            if part.name != ".coverage.merged":
                data = coverage.CoverageData(basename=str(part))
                try:
                    data.read()
                    merged.update(data)
                except coverage.CoverageException:
                    continue  # of a process that was killed
        files = {}
        for file in merged.measured_files():
            path = Path(file).resolve().relative_to(self.copy.resolve()).as_posix()
            files[path] = merged.contexts_by_lineno(file)
        for old in self.copy.glob(".coverage*"):
            old.unlink()
        self._write(files)

    def _write(self, files: dict[str, dict[int, list[str]]]) -> None:
        tests = sorted(self.seconds)
        users: dict[str, list[int]] = defaultdict(list)
        for number, test in enumerate(tests):
            for context in (test, *self.fixtures[test]):
                users[context].append(number)
        recorded = {
            "tests": {test: round(self.seconds[test], 3) for test in tests},
            "failed": sorted(set(self.failed)),
            "sources": {
                path: _source((self.copy / path).read_text(), contexts, users)
                for path, contexts in sorted(files.items())
            },
        }
        (self.copy / _RECORDED).write_text(json.dumps(recorded))


def _source(text: str, contexts: dict[int, list[str]], users: dict[str, list[int]]) -> dict:
    """Return which tests executed which lines of a file, by function and line within it."""
    inside = _innermost(text)
    masks: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for line, names in contexts.items():
        if line not in inside:
            continue
        function, offset = inside[line]
        for test in {test for name in names for test in users.get(_of_test(name), ())}:
            masks[function][test] |= 1 << offset
    by_mask: dict[str, dict[str, list[int]]] = {}
    for function, tests in masks.items():
        grouped: dict[str, list[int]] = defaultdict(list)
        for test, mask in sorted(tests.items()):
            grouped[f"{mask:x}"].append(test)
        by_mask[function] = grouped
    return {"functions": fingerprints(text), "executed": by_mask}


def _of_test(context: str) -> str:
    """Return the test of a context of coverage: of a process, "test|"; of this one, "|test"."""
    return context.strip("|")


def _innermost(text: str) -> dict[int, tuple[str, int]]:
    """Return function and line within it for every line in the body of a function.

    What is executed on import is left out: class bodies, signatures.
    """
    found: dict[int, tuple[str, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = range(child.body[0].lineno, (child.end_lineno or child.lineno) + 1)
                found.update({line: (name, line - child.lineno) for line in lines})
            visit(child, name)

    visit(ast.parse(text), "")
    return found


def _forget_programs() -> None:
    """Let the next test trace its programs itself."""
    import jax

    jax.clear_caches()


def forget_recorded(copy: Path) -> None:
    """Remove what an earlier session has measured: one that breaks must not pass it on."""
    (copy / _RECORDED).unlink(missing_ok=True)


def read_recorded(copy: Path) -> dict[str, Any]:
    """Return what a session has measured, empty if it did not end."""
    path = copy / _RECORDED
    return json.loads(path.read_text()) if path.exists() else {}


def write_whole(path: Path, text: str) -> None:
    """Write a file so that one who is interrupted leaves the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(text)
    part.replace(path)


class Map:
    """The entries of all test files, in a folder."""

    def __init__(self, folder: Path, root: Path) -> None:
        self.folder, self.root = folder, root
        self.entries: dict[str, dict[str, Any]] = {}
        self._lines: dict[str, list[tuple[dict, dict[str, float], set[str]]]] | None = None
        self._imports: dict[str, set[str]] = {}

    def stale(self, files: Iterable[str]) -> list[str]:
        """Read the entries of these test files; return those that must be measured."""
        left = []
        for file in files:
            entry = self._read(file)
            if entry is None or not self._holds(file, entry):
                left.append(file)
            else:
                self.entries[file] = entry
        self._lines = None
        return left

    def add(self, file: str, recorded: dict[str, Any]) -> None:
        """Keep what was measured of a test file."""
        self.entries[file] = {"hash": self._hash(file), **recorded}
        self._lines = None
        write_whole(self._path(file), json.dumps(self.entries[file]))

    def tests_of(self, mutant: Mutant, text: str) -> list[Candidate]:
        """Return the tests that may see a mutant, those that execute its line and are near first.

        A mutant outside functions is seen by all that execute something in its file.
        """
        inside = _innermost(text)
        print_ = fingerprints(text).get(mutant.function)
        if mutant.path not in self._sources():
            return self._importing(mutant)
        direct: dict[str, float] = {}
        rest: dict[str, float] = {}
        for source, seconds, failed in self._sources()[mutant.path]:
            names, executed = list(seconds), source["executed"]
            own = _anywhere(executed, mutant.function)
            if not mutant.called or mutant.function not in source["functions"]:
                own, found = set(), own or _anywhere(executed, "")
            elif source["functions"].get(mutant.function) == print_:
                found = _on_lines(executed, inside, mutant.lines)
                found = found or _on_lines(executed, inside, mutant.statement)
            else:
                found = own
            for target, chosen in ((direct, found), (rest, own - found)):
                target.update({names[n]: seconds[names[n]] for n in chosen})
            for name in failed:
                direct.pop(name, None), rest.pop(name, None)
        wanted = direct or rest
        return by_cost(Candidate(test, wanted[test], self._near(test, mutant)) for test in wanted)

    def _importing(self, mutant: Mutant) -> list[Candidate]:
        """Return the tests that import the file of a mutant, or those of its folder."""
        tests = [
            Candidate(test, seconds, self._near(test, mutant))
            for entry in self.entries.values()
            for test, seconds in entry["tests"].items()
            if test not in entry["failed"]
        ]
        nearest = max((test.near for test in tests), default=0)
        return by_cost(test for test in tests if nearest and test.near == nearest)

    def _sources(self) -> dict[str, list[tuple[dict, dict[str, float], set[str]]]]:
        """Return by file of the package what each entry knows of it."""
        if self._lines is None:
            self._lines = defaultdict(list)
            for entry in self.entries.values():
                for source, lines in entry["sources"].items():
                    self._lines[source].append((lines, entry["tests"], set(entry["failed"])))
        return self._lines

    def _near(self, test: str, mutant: Mutant) -> int:
        """Count what speaks for a test: it is in the folder of its mutant, it imports its file."""
        file, path = test.partition("::")[0], Path(mutant.path)
        if file not in self._imports:
            there = (self.root / file).exists()  # it may have been renamed since the run began
            self._imports[file] = imported_names((self.root / file).read_text()) if there else set()
        is_beside = Path(file).parts[1].removesuffix(".py") == path.parts[1]
        return is_beside + (path.stem in self._imports[file])

    def _read(self, file: str) -> dict[str, Any] | None:
        path = self._path(file)
        return json.loads(path.read_text()) if path.exists() else None

    def _path(self, file: str) -> Path:
        return self.folder / (file.removesuffix(".py").replace("/", ".") + ".json")

    def _hash(self, file: str) -> str:
        return hash_of((self.root / file).read_text())

    def _holds(self, file: str, entry: dict[str, Any]) -> bool:
        """Whether the test file is the same, and the files that it executes are still there."""
        same = entry["hash"] == self._hash(file)
        return same and all(
            (self.root / path).exists() for path, x in entry["sources"].items() if x["executed"]
        )


def imported_names(text: str) -> set[str]:
    """Return all parts of the names of modules, and the names, that a file imports."""
    nodes = [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Import | ast.ImportFrom)]
    names = [alias.name for node in nodes for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {part for name in names for part in name.split(".")}


def _anywhere(executed: dict[str, dict[str, list[int]]], function: str) -> set[int]:
    """Return the tests that executed something in a function or class; "" is the whole file."""
    names = [x for x in executed if not function or x == function or x.startswith(f"{function}.")]
    return {n for name in names for numbers in executed[name].values() for n in numbers}


def _on_lines(
    executed: dict[str, dict[str, list[int]]],
    inside: dict[int, tuple[str, int]],
    span: tuple[int, int],
) -> set[int]:
    """Return the tests that executed one of some lines."""
    wanted: dict[str, int] = defaultdict(int)
    for line in range(span[0], span[1] + 1):
        if line in inside:
            function, offset = inside[line]
            wanted[function] |= 1 << offset
    return {
        number
        for function, bits in wanted.items()
        for mask, numbers in executed.get(function, {}).items()
        if int(mask, 16) & bits
        for number in numbers
    }


def by_cost(tests: Iterable[Candidate]) -> list[Candidate]:
    """Sort tests: near and quick ones first, and of many cases of one test the first before others.

    A case costs half as much again as the one before, as where one passes, the next tends to pass,
    too; but the tenth of a quick test is still tried before slow tests that are far away.
    """
    cases: dict[str, int] = defaultdict(int)
    costs = {}
    for test in sorted(tests, key=lambda test: (test.seconds, test.name)):
        function = test.name.partition("[")[0]
        factor = 1.5 ** min(cases[function], _DEAREST_CASE)
        costs[test] = (0.1 + test.seconds) * (1.0, 0.3, 0.1)[test.near] * factor
        cases[function] += 1
    return sorted(costs, key=lambda test: (costs[test], test.name))
