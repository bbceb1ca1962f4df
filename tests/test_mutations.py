"""The list of mutations fits the sources, so that it cannot rot."""

import ast
from pathlib import Path

from mutations import Mutation, all_mutations
from mutations.choice import choose, sampled, touched, unfinished
from run_mutants import ROOT, Outcome, places, verdict_of

TESTS = Path(__file__).parent


def test_every_line_is_found_once_in_its_file() -> None:
    wrong = [mutation.name for mutation in all_mutations() if places(mutation) != 1]
    assert not wrong, "change these lines of tests/mutations/ with the sources"


def test_every_mutation_changes_one_line_into_python() -> None:
    for mutation in all_mutations():
        assert "\n" not in mutation.line + mutation.becomes, mutation.name
        assert mutation.line != mutation.becomes, mutation.name
        source = (ROOT / "replicax" / mutation.file).read_text()
        ast.parse(source.replace(mutation.line, mutation.becomes), mutation.name)


def test_every_mutation_names_tests_that_exist() -> None:
    for mutation in all_mutations():
        assert mutation.tests, mutation.name
        for test in mutation.tests:
            file, _, name = test.partition("::")
            source = (TESTS / file).read_text()
            name = name.partition("[")[0].rpartition("::")[2]
            assert not name or f"def {name}(" in source, test


def test_there_are_enough_and_none_twice() -> None:
    changes = [(mutation.file, mutation.line, mutation.becomes) for mutation in all_mutations()]
    assert len(changes) == len(set(changes)) >= 120


def test_the_runner_tells_a_failed_test_from_one_that_could_not_run() -> None:
    assert verdict_of(0, "3 passed in 1 s") == "survived"
    assert verdict_of(1, "E  assert\n1 failed, 2 passed in 1 s") == "killed"
    assert verdict_of(1, "1 error in 1 s") == "killed", "a fixture failed"
    for code in (1, 2, 4, 5, 9, None):  # 1: Python itself ended so
        assert verdict_of(code, "ImportError: no such name") == "broken"


def test_mutations_are_chosen_by_file_and_number() -> None:
    made = [Mutation(f"room/{name}.py", "a", "b", ()) for name in ("one", "two", "three")]
    assert list(choose(made, [])) == [1, 2, 3]
    assert list(choose(made, ["two"])) == [2]
    assert list(choose(made, ["2-3", "one"])) == [1, 2, 3]
    assert list(choose(made, ["3"])) == [3]


def test_mutations_are_chosen_by_what_has_changed() -> None:
    made = {
        1: Mutation("room/one.py", "a", "b", ("room/test_one.py::test_it[4]",)),
        2: Mutation("room/two.py", "a", "b", ("room/test_two.py", "laws/test_all.py")),
    }
    assert list(touched(made, ["replicax/room/one.py"])) == [1]
    assert list(touched(made, ["tests/room/test_one.py", "docs/one.md"])) == [1]
    assert list(touched(made, ["tests/laws/test_all.py"])) == [2]
    assert not touched(made, ["room/one.py", "tests/room/one.py"])


def test_a_sample_follows_from_its_seed() -> None:
    made = choose([Mutation(f"room/{n}.py", "a", "b", ()) for n in range(50)], [])
    some = sampled(made, 10, seed=3)
    assert len(some) == 10 and some == sampled(made, 10, seed=3) != sampled(made, 10, seed=4)
    assert sampled(made, 99, seed=0) == made


def test_what_was_killed_is_left_out_as_long_as_the_entry_is_the_same() -> None:
    made = choose([Mutation("room/one.py", "a", str(n), ("test_one.py",)) for n in range(3)], [])
    output = "FAILED tests/test_one.py::test_it[a b] - assert 0\n1 failed in 1 s"
    verdicts = {1: "killed", 2: "survived"}
    rows = [Outcome(n, made[n], verdict, 1.0, output).to_json() for n, verdict in verdicts.items()]
    assert rows[0]["killer"] == "test_one.py::test_it[a b]"
    assert list(unfinished(made, rows)) == [2, 3]
    changed = {n: mutation._replace(tests=("test_two.py",)) for n, mutation in made.items()}
    assert unfinished(changed, rows) == changed
