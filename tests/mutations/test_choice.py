"""Which mutants are chosen: by files, sample, changes, and what an earlier run has told."""

import subprocess

import pytest

from mutations import choice
from mutations.choice import PACKAGE

SOURCE = "def f(x):\n    return x + 1\n\n\ndef g(x):\n    return x < 2\n"


@pytest.fixture
def root(tmp_path):
    """A small repository."""
    for path in ("algorithm/step.py", "results/plots.py", "results/numbers.py", "cli/main.py"):
        file = tmp_path / PACKAGE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SOURCE)
    return tmp_path


def test_files_are_chosen_by_scope_and_word(root):
    def below(*args):
        return [path.removeprefix(f"{PACKAGE}/") for path in choice.sources(root, *args)]

    assert below() == ["algorithm/step.py", "cli/main.py", "results/numbers.py", "results/plots.py"]
    assert below("release") == ["algorithm/step.py", "results/numbers.py"]
    assert below("all", ["step", "cli/"]) == ["algorithm/step.py", "cli/main.py"]


def test_equivalent_mutants_are_left_out(root):
    texts = choice.sources(root, only=["step"])
    names = [mutant.name for mutant in choice.generated(texts)]
    assert [mutant.name for mutant in choice.generated(texts, names[1:])] == names[:1]


def test_a_sample_follows_from_its_seed_and_changes_only_where_the_source_does(root):
    texts = choice.sources(root)
    mutants = choice.generated(texts)
    some = choice.sampled(mutants, 9, seed=3)
    assert len(some) == 9 and some == choice.sampled(mutants[::-1], 9, seed=3)[::-1]
    assert some != choice.sampled(mutants, 9, seed=4)
    assert choice.sampled(mutants, 10**6, seed=0) == mutants
    edited = {path: "import a\n" + text.replace("x < 2", "x < y") for path, text in texts.items()}
    after = {mutant.name for mutant in choice.sampled(choice.generated(edited), 9, seed=3)}
    kept = {mutant.name for mutant in choice.generated(edited)} & {mutant.name for mutant in some}
    assert kept <= after


def test_every_mutant_is_drawn_equally_often(root):
    mutants = choice.generated(choice.sources(root))
    drawn = [mutant.name for seed in range(100) for mutant in choice.sampled(mutants, 4, seed)]
    expected = 100 * 4 / len(mutants)
    for mutant in mutants:
        assert abs(drawn.count(mutant.name) - expected) < 5 * expected**0.5, mutant.name


def test_mutants_are_chosen_by_the_functions_that_changed(root):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *identity, *arguments], cwd=root, check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    step = root / PACKAGE / "algorithm/step.py"
    step.write_text("import a\n\n" + SOURCE.replace("x < 2", "x < 3"))
    (root / PACKAGE / "new.py").write_text("x = 1\n")
    texts = choice.sources(root)
    found = choice.changed_since("HEAD", root, texts, choice.generated(texts))
    assert {(mutant.path.rpartition("/")[2], mutant.function) for mutant in found} == {
        ("step.py", "g"),
        ("new.py", ""),
    }
    with pytest.raises(subprocess.CalledProcessError):
        choice.changed_since("no-such-commit", root, texts, [])
