"""The studies on the 25 modes, quick versions: their numbers, and that broken rules change them.

Eight seeds of 6,000 steps: trips have a standard deviation of about 1 over seeds, mode distances
of 0.02.
"""

import functools
from pathlib import Path

import pytest
from common import slow
from mutants import flipped_verdict, gate_that_never_closes, parity_of_every_step

from replicax.algorithm import swap as rules
from replicax.algorithm.schedule import WindowedDEO
from studies import load_study, window
from studies.shared.runner import read_record, reproduce
from studies.shared.study import Results, Scale, Work

QUICK = Scale(quick=True)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")

    @functools.cache
    def once(name: str) -> tuple[dict, Path]:
        study = load_study(name)
        return reproduce(study, folder, QUICK, progress=False), folder

    return once


def finding_of(summary: dict, what: str) -> dict:
    (finding,) = [finding for finding in summary["findings"] if finding["what"] == what]
    return finding


def numbers(summary: dict, cell: str) -> dict:
    return next(c["numbers"] for c in summary["cells"] if c["name"] == cell)


def unmet(summary: dict) -> list[str]:
    return [finding["what"] for finding in summary["findings"] if finding["met"] is False]


def mean(values: list) -> float:
    return sum(values) / len(values)


def test_round_trips_peak_at_the_window_of_theorem_1(run) -> None:
    summary, _ = run("window")
    assert unmet(summary) == []
    assert finding_of(summary, "window with the most trips")["ours"] == 8
    assert finding_of(summary, "trips per 1,000 steps, W = 8")["ours"]["mean"] == pytest.approx(
        37.5, abs=3
    )
    assert finding_of(summary, "trips per 1,000 steps, W = 1")["ours"]["mean"] == pytest.approx(
        15, abs=2
    )


def test_lemma_1_with_measured_rates_is_an_upper_bound_within_a_third(run) -> None:
    """Verdicts of neighbouring steps are correlated, which Lemma 1 does not know."""
    _, folder = run("window")
    for cell in window.cells(QUICK):
        record = read_record(folder, window.STUDY, cell)
        lemma = window.predicted(record, cell.settings["window"])
        assert 0.66 < record["trips"].mean() / lemma < 1.02


@pytest.mark.slow
def test_deo_star_finds_the_modes_that_deo_misses(run) -> None:
    summary, _ = run("modes25")
    assert unmet(summary) == []
    tv = {name: mean(numbers(summary, name)["tv"]) for name in ("deo", "deo_star", "exact")}
    assert tv["deo"] > 0.4
    assert tv["exact"] < tv["deo_star"] < 0.2
    assert numbers(summary, "deo")["pooled_outside"] < 0.02
    assert 0.85 < numbers(summary, "exact")["pooled_corner"] < 1.15
    # 590 draws each, at the end of the same budget: the baselines lie between.
    for baseline in ("sgld", "cyclical"):
        assert tv["deo_star"] < mean(numbers(summary, baseline)["tv"]) < tv["deo"]


def test_the_bias_changes_sign_with_the_swap_rate(run) -> None:
    summary, _ = run("swap-rate")
    assert unmet(summary) == []
    corner = {rate: numbers(summary, f"S={rate}-W=8")["pooled_corner"] for rate in (0.2, 0.4, 0.6)}
    assert corner[0.2] < 0.1 < 0.6 < corner[0.4] < 1 < 1.2 < corner[0.6]
    assert mean(numbers(summary, "S=0.2-W=8")["buffer"]) > 1
    assert mean(numbers(summary, "S=0.6-W=8")["buffer"]) < -2


@pytest.mark.slow
def test_the_tempered_setting_has_less_bias_than_the_papers(run) -> None:
    summary, _ = run("tempered")
    assert unmet(summary) == []
    tempered, paper = numbers(summary, "tempered"), numbers(summary, "paper")
    assert tempered["pooled_tv"] < 0.07 < paper["pooled_tv"]
    assert tempered["pooled_outside"] == pytest.approx(1, abs=0.15)
    assert mean(tempered["trips"]) == pytest.approx(140, abs=15)


@pytest.mark.parametrize("name", ["window", "swap-rate", slow("modes25"), slow("tempered")])
def test_a_study_leaves_numbers_figures_and_a_page(run, name: str) -> None:
    summary, folder = run(name)
    page = (folder / f"{name}.md").read_text()
    assert summary["command"] in page
    assert "quick version" in page
    for figure in summary["figures"]:
        assert f"({figure})" in page
        assert (folder / figure).stat().st_size > 5_000


@pytest.mark.parametrize(
    ("module", "name", "mutant"),
    [
        slow(rules, "judge", flipped_verdict),
        slow(WindowedDEO, "active_pairs", parity_of_every_step),
        slow(WindowedDEO, "swapping_pairs", gate_that_never_closes),
    ],
)
def test_a_mutant_loses_the_round_trips_of_the_window(module, name, mutant, monkeypatch) -> None:
    monkeypatch.setattr(module, name, mutant)
    cells = [cell for cell in window.cells(QUICK) if cell.settings["window"] in (1, 8)]
    work = Work(lambda fraction: None, lambda: False)
    results = Results([(cell, window.run(cell.settings, work)) for cell in cells])
    failed = [finding.what for finding in window.findings(results) if finding.met is False]
    assert "W = 8 over W = 1" in failed
