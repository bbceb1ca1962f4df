"""The studies on the 25 modes, quick versions: their numbers, and that broken rules change them.

Eight seeds of 6,000 steps: trips have a standard deviation of about 1 over seeds, mode distances
of 0.02.
"""

import functools
from pathlib import Path

import pytest
from mutants import flipped_verdict, gate_that_never_closes, parity_of_every_step

from replicax.algorithm import schedule, swap
from replicax.experiments import load_study, window
from replicax.experiments.shared.runner import read_record, reproduce
from replicax.experiments.shared.study import Results, Scale, Work
from replicax.run.program import Programs

QUICK = Scale(quick=True)
PROGRAMS = Programs()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")

    @functools.cache
    def once(name: str) -> tuple[dict, Path]:
        held = reproduce(load_study(name), folder, QUICK, progress=False, programs=PROGRAMS)
        return held, folder

    return once


def found(held: dict, what: str) -> dict:
    (finding,) = [finding for finding in held["findings"] if finding["what"] == what]
    return finding


def numbers(held: dict, cell: str) -> dict:
    return next(made["numbers"] for made in held["cells"] if made["name"] == cell)


def judged(held: dict) -> list[str]:
    return [finding["what"] for finding in held["findings"] if finding["met"] is False]


def mean(values: list) -> float:
    return sum(values) / len(values)


def test_round_trips_peak_at_the_window_of_theorem_1(run) -> None:
    held, _ = run("window")
    assert judged(held) == []
    assert found(held, "window with the most trips")["ours"] == 8
    assert found(held, "trips per 1,000 steps, W = 8")["ours"]["mean"] == pytest.approx(37.5, abs=3)
    assert found(held, "trips per 1,000 steps, W = 1")["ours"]["mean"] == pytest.approx(15, abs=2)


def test_lemma_1_with_measured_rates_is_an_upper_bound_within_a_third(run) -> None:
    """Verdicts of neighbouring steps are correlated, which Lemma 1 does not know."""
    _, folder = run("window")
    for cell in window.cells(QUICK):
        record = read_record(folder, window.STUDY, cell)
        lemma = window.predicted(record, cell.settings["window"])
        assert 0.66 < record["trips"].mean() / lemma < 1.02


def test_deo_star_finds_the_modes_that_deo_misses(run) -> None:
    held, _ = run("modes25")
    assert judged(held) == []
    tv = {name: mean(numbers(held, name)["tv"]) for name in ("deo", "deo_star", "exact")}
    assert tv["deo"] > 0.4
    assert tv["exact"] < tv["deo_star"] < 0.2
    assert numbers(held, "deo")["pooled_outside"] < 0.02
    assert 0.85 < numbers(held, "exact")["pooled_corner"] < 1.15
    # 590 draws each, at the end of the same budget: the baselines lie between.
    for baseline in ("sgld", "cyclical"):
        assert tv["deo_star"] < mean(numbers(held, baseline)["tv"]) < tv["deo"]


def test_the_bias_changes_sign_with_the_swap_rate(run) -> None:
    held, _ = run("swap-rate")
    assert judged(held) == []
    corner = {rate: numbers(held, f"S={rate}-W=8")["pooled_corner"] for rate in (0.2, 0.4, 0.6)}
    assert corner[0.2] < 0.1 < 0.6 < corner[0.4] < 1 < 1.2 < corner[0.6]
    assert mean(numbers(held, "S=0.2-W=8")["buffer"]) > 1
    assert mean(numbers(held, "S=0.6-W=8")["buffer"]) < -2


def test_the_preset_has_less_bias_than_the_paper(run) -> None:
    held, _ = run("preset")
    assert judged(held) == []
    tempered, paper = numbers(held, "tempered"), numbers(held, "paper")
    assert tempered["pooled_tv"] < 0.07 < paper["pooled_tv"]
    assert tempered["pooled_outside"] == pytest.approx(1, abs=0.15)
    assert mean(tempered["trips"]) == pytest.approx(140, abs=15)


def test_every_study_leaves_numbers_figures_and_a_page(run) -> None:
    for name in ("window", "modes25", "swap-rate", "preset"):
        held, folder = run(name)
        page = (folder / f"{name}.md").read_text()
        assert held["command"] in page
        assert "quick version" in page
        for figure in held["figures"]:
            assert f"({figure})" in page
            assert (folder / figure).stat().st_size > 5_000


MUTANTS = [
    (swap.Rule, "wanted", flipped_verdict),
    (schedule, "active_pairs", parity_of_every_step),
    (schedule, "swapping_pairs", gate_that_never_closes),
]


@pytest.mark.parametrize(("room", "name", "mutant"), MUTANTS, ids=[m[2].__name__ for m in MUTANTS])
def test_a_mutant_loses_the_round_trips_of_the_window(room, name, mutant, monkeypatch) -> None:
    monkeypatch.setattr(room, name, mutant)
    cells = [cell for cell in window.cells(QUICK) if cell.settings["window"] in (1, 8)]
    work = Work(lambda fraction: None, lambda: False, Programs())
    results = Results([(cell, window.run(cell.settings, work)) for cell in cells])
    unmet = [finding.what for finding in window.findings(results) if finding.met is False]
    assert "W = 8 over W = 1" in unmet
