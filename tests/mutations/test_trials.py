"""What becomes of a mutant, on a small package of the same name with tests of its own."""

import os
import signal
import subprocess

import pytest
import run_mutants

from mutations import choice, executed, session, trials
from mutations.executed import Candidate, Map, by_cost

SOURCE = """\
LIMIT = 3


def half(x):
    return x / 2


def count_down(number):
    while number > 0:
        number -= 1
    return number


def same(x):
    return x + 0


def elsewhere(x):
    return 3 * x


def unused(x):
    return 4 * x


def below_limit(x):
    return x < LIMIT
"""
TESTS = """\
import os, signal, subprocess, sys
import pytest
from replicax import numbers

@pytest.fixture(scope="module")
def shared():
    return numbers.half(4)

def test_half(shared):
    assert shared == 2

def test_half_again(shared):
    assert shared

def test_the_way_down():
    assert numbers.count_down(3) == 0

def test_same():
    assert numbers.same(1) == 1

@pytest.mark.parametrize("x", [1, 2, 5])
def test_limit(x):
    assert numbers.below_limit(x) == (x < 3)

def test_elsewhere():
    code = "import sys; from replicax import numbers; sys.exit(numbers.elsewhere(1))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 3

def test_that_fails_anyway():
    assert numbers.same(1) == 2
"""
FILE = "tests/numbers/test_numbers.py"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A small repository whose package is called like ours."""
    root = tmp_path_factory.mktemp("toy")
    for path, text in (
        ("replicax/__init__.py", ""),
        ("replicax/numbers.py", SOURCE),
        (FILE, TESTS),
        ("pyproject.toml", "[tool.pytest.ini_options]\n"),
    ):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


@pytest.fixture(scope="module")
def copied(root):
    """A copy of it for one worker."""
    session.PROCESSES.set_forkserver_preload(session.PRELOADED)
    with trials.copies(root, 1) as copied:
        yield copied


@pytest.fixture(scope="module")
def known(copied, root):
    """What its tests execute."""
    known, told = Map(root / "measured", root), []
    trials.measure(copied, known, [FILE], told.append)
    assert f"fails on the package as it is: {FILE}::test_that_fails_anyway" in told[-1]
    return known


def mutants(root):
    return {
        mutant.name.partition(":")[2]: mutant for mutant in choice.generated(choice.sources(root))
    }


def names_of(known, root, name):
    return [test.name.partition("::")[2] for test in known.tests_of(mutants(root)[name], SOURCE)]


def test_tests_are_those_that_execute_the_line(known, root):
    assert names_of(known, root, "count_down: number -= 1 -> pass") == ["test_the_way_down"]
    assert names_of(known, root, "same: x + 0 -> x - 0") == ["test_same"]  # without the failing one
    assert names_of(known, root, "unused: 4 * x -> 4 / x") == []


def test_a_shared_fixture_counts_for_all_its_users(known, root):
    assert set(names_of(known, root, "half: x / 2 -> x * 2")) == {"test_half", "test_half_again"}


def test_processes_that_tests_start_count(known, root):
    assert names_of(known, root, "elsewhere: 3 * x -> 3 / x") == ["test_elsewhere"]


def test_what_is_executed_on_import_is_seen_by_all_tests_of_the_file(known, root):
    assert len(names_of(known, root, ": LIMIT = 3 -> LIMIT = 4")) == 8


@pytest.mark.parametrize(
    ("name", "verdict", "killer"),
    [
        ("half: x / 2 -> x * 2", "killed", "test_half"),
        ("elsewhere: 3 * x -> 3", "survived", ""),
        ("elsewhere: 3 * x -> x", "killed", "test_elsewhere"),
        ("same: x + 0 -> x - 0", "survived", ""),
        ("below_limit: x < LIMIT -> x > LIMIT", "killed", "test_limit"),
        ("count_down: number -= 1 -> pass", "timeout", "test_the_way_down"),
        ("unused: 4 * x -> 4 / x", "untested", ""),
    ],
)
def test_the_verdict(known, copied, root, name, verdict, killer, monkeypatch):
    monkeypatch.setattr(trials, "USUAL", 10.0)
    mutant = mutants(root)[name]
    (outcome,) = trials.try_all(copied, [(mutant, known.tests_of(mutant, SOURCE))], 60.0)
    assert outcome.verdict == verdict, outcome.output
    assert killer in outcome.killer and bool(killer) == bool(outcome.killer)
    assert outcome.dies == (verdict in ("killed", "timeout"))
    assert (root / "replicax/numbers.py").read_text() == SOURCE


def test_files_named_after_a_changed_file_come_first():
    changed = "replicax/run/search.py", "replicax/run/storage/files.py", "replicax/targets.py"
    near = ["tests/run/test_search.py", "tests/run/test_files_of_runs.py", "tests/test_targets.py"]
    others = ["tests/run/test_loop.py", "tests/laws/test_search.py", "tests/run/test_research.py"]
    assert run_mutants.by_nearness([*others, *near], changed) == [near, others]


def test_the_end_of_a_session_that_is_no_verdict():
    def verdict(code, why="pytest"):
        return trials.verdict_of(session.Ended(code, why, "", 0.0))

    assert [verdict(code) for code in range(6)] == ["survived", "killed", "killed", *["broken"] * 3]
    assert verdict(None, "another package") == "broken"
    assert verdict(None, "ended") == "killed"
    assert verdict(None, "ended by signal 9") == "broken", "the system does it for want of memory"


def test_a_file_that_cannot_be_measured_is_named_and_the_map_goes_on_from_the_others(known, root):
    killed, told = "tests/numbers/test_killed.py", []
    (root / killed).write_text("import os\nos.kill(os.getpid(), 9)\n")
    try:
        with trials.copies(root, 1) as copied:
            again = Map(root / "measured", root)
            assert trials.measure(copied, again, [FILE, killed], told.append) == [killed]
    finally:
        (root / killed).unlink()
    assert told[0].startswith("measuring which lines the tests of 1 files"), "the other is known"
    assert "could not be measured (ended by signal 9)" in told[1]


def test_a_run_says_how_it_ended_or_the_next_one_does(tmp_path, capsys):
    note = tmp_path / f"running-{os.getpid()}.txt"
    ending = pytest.raises(SystemExit, match="Ended by SIGTERM")
    with ending, run_mutants.saying_how_it_ends(tmp_path):
        assert note.exists()
        os.kill(os.getpid(), signal.SIGTERM)
    assert not note.exists()
    dead = subprocess.Popen(["true"])
    dead.wait()
    (tmp_path / f"running-{dead.pid}.txt").write_text("The run that began yesterday")
    for told in (True, False):
        with run_mutants.saying_how_it_ends(tmp_path):
            assert ("yesterday was killed" in capsys.readouterr().out) == told


def test_an_entry_is_stale_when_the_test_changes_or_what_it_executes_is_gone(known, root):
    def stale():
        return Map(root / "measured", root).stale([FILE])

    path, tests = root / "replicax/numbers.py", root / FILE
    assert stale() == []
    try:
        path.write_text("import a\n\n" + SOURCE.replace("x / 2", "x / 4"))
        assert stale() == []
        moved = Map(root / "measured", root)
        moved.stale([FILE])
        (mutant,) = [x for x in choice.generated(choice.sources(root)) if x.before == "x / 4"][:1]
        assert len(moved.tests_of(mutant, path.read_text())) == 2, "found again by their function"
        path.write_text(SOURCE.replace("def half", "def third"))
        assert stale() == []
        moved.stale([FILE])
        (mutant,) = [x for x in choice.generated(choice.sources(root)) if x.function == "third"][:1]
        tests_of_file = moved.tests_of(mutant, path.read_text())
        assert len(tests_of_file) == 8, "of a new function all that execute its file"
        elsewhere = mutant._replace(path="replicax/new_numbers.py")
        assert moved.tests_of(elsewhere, path.read_text()) == []
        elsewhere = mutant._replace(path="replicax/numbers/new.py")
        assert len(moved.tests_of(elsewhere, path.read_text())) == 8, "of a new file its folder's"
        path.unlink()
        assert stale() == [FILE]
        path.write_text(SOURCE)
        tests.write_text(TESTS + "\n")
        assert stale() == [FILE]
    finally:
        path.write_text(SOURCE)
        tests.write_text(TESTS)
    assert Map(root / "measured", root).stale(["tests/new.py"]) == ["tests/new.py"]


def test_near_and_quick_tests_come_first_and_cases_of_one_test_apart():
    def test(name, seconds, near=0):
        return Candidate(f"tests/a/test_a.py::{name}", seconds, near)

    slow, near = test("slow", 5.0), test("near", 5.0, near=1)
    cases = [test(f"case[{number}]", 1.0) for number in range(9)]
    order = by_cost([slow, *cases, near])
    assert order[0] == cases[0] and order.index(near) < order.index(slow) < order.index(cases[8])
    named = test("imports it", 5.0, near=2)
    assert by_cost([cases[0], near, named])[0] == named
    many = [test(f"quick[{number}]", 0.0, near=2) for number in range(40)]
    assert by_cost([near, *many])[-1] == near, "however many quick cases there are"
    assert "numbers" in executed.imported_names(TESTS) and "half" not in executed.imported_names("")


def test_the_first_stages_are_short_and_the_budget_is_kept():
    def named(seconds):
        return [Candidate(f"tests/a/test_a.py::{x}", float(s), 0) for x, s in enumerate(seconds)]

    def lengths(*seconds):
        return [[test.seconds for test in stage] for stage in trials.stages(named(seconds), 60.0)]

    assert lengths(1, 1, 2, 3, 4, 5) == [[1, 1], [2, 3], [4, 5]]
    assert lengths(1, 50, 20, 1) == [[1], [50]]
    assert lengths(100) == [[100]]
    assert lengths() == []
