"""The notebooks in examples/, scripts with cells, run from top to bottom and find what they say."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.slow
def test_two_groups_finds_both_namings_and_prefers_two_groups(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / "two_groups.py"), run_name="__main__")
    assert scope["posterior"].problems() == []
    assert 0.4 < scope["first_is_short"] < 0.6
    assert scope["ordered"].mean(0) == pytest.approx([54.5, 80], abs=2)
    assert scope["posterior"].log_evidence().value > scope["single"].log_evidence().value + 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_moons_are_learnt_and_far_away_is_less_certain_than_inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = runpy.run_path(str(EXAMPLES / "moons.py"), run_name="__main__")
    assert scope["exchanged"].metrics().accuracy > 0.88
    assert scope["exchanged"].metrics().nll < scope["single"]
    epistemic = {place: float(parts.epistemic[0]) for place, parts in scope["doubt"].items()}
    assert epistemic["far away"] > 0.05 > 5 * epistemic["inside a moon"]
