"""The best number of replicas: the quick version, and mutants that it detects."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from common import slow
from mutants import flipped_verdict, gate_that_never_closes

from replicax import theory
from replicax.algorithm import swap as rules
from replicax.algorithm.schedule import WindowedDEO
from studies import replicas
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Results, Scale, Work


def no_finding_is_missed(summary: dict) -> bool:
    verdicts = [f["met"] for f in summary["findings"]]
    return verdicts.count(True) == 8 and verdicts.count(None) == 4 and False not in verdicts


@pytest.mark.slow
def test_the_quick_version(tmp_path: Path) -> None:
    summary = reproduce(replicas.STUDY, tmp_path, Scale(quick=True), progress=False)
    assert no_finding_is_missed(summary)


def test_times_of_lemma_1_leave_a_page_on_which_nothing_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_trips(program, ladder, expected, num_trips, tick):
        return SimpleNamespace(round_trip_time=expected)

    monkeypatch.setattr(replicas.index_process, "count_trips", count_trips)
    summary = reproduce(replicas.STUDY, tmp_path, Scale(quick=True), progress=False)
    assert no_finding_is_missed(summary)
    page = (tmp_path / "replicas.md").read_text()
    assert "not met" not in page
    assert "49.5 to 63.6 (with / 4), and Lemma 1 is least at P = 93" in page
    assert len(summary["figures"]) == 3
    assert all((tmp_path / name).stat().st_size > 10_000 for name in summary["figures"])


@pytest.mark.parametrize("kind", ["paper", "corrected", "exact"])
def test_the_best_size_is_inside_the_searched_sizes(kind: str) -> None:
    for noise in (10.0, 100.0):
        sizes = replicas.sizes_around(noise)
        assert sizes[0] + 2 < replicas.best_size("DEO*", noise, kind) < sizes[-1] / 1.5


def test_corollary_has_the_mu_of_the_ladder() -> None:
    mu = 0.9 * 20 / 2  # (1 - 1/10) sigma / 2
    count = replicas.corollary(20.0)
    assert count.lower == pytest.approx(1.1 * mu)
    assert count.upper == pytest.approx(math.sqrt(2) * mu)


def test_rejections_fall_as_the_barrier_over_the_replicas() -> None:
    rejected = 1 - replicas.swap_rate(5_001, 20.0)
    assert 5_000 * rejected == pytest.approx(replicas.barrier(20.0), rel=0.01)


def half_the_noise(pair, window_correction=0.0):
    slope = pair.inverse_temperature_gap
    gap = pair.cold_energy - pair.hot_energy
    return slope * gap - slope**2 * pair.energy_noise_var / 2


MUTANTS = [
    slow(rules, "judge", flipped_verdict),
    slow(rules, "log_swap_probability", half_the_noise),
    slow(WindowedDEO, "swapping_pairs", gate_that_never_closes),
]


def distances() -> list[bool | None]:
    """Of DEO and DEO*."""
    settings = {"num_replicas": 8, "num_trips": 2_000}
    record = replicas.run(settings, Work(lambda fraction: None, lambda: False))
    return [f.met for f in replicas.distances(Results([(Cell("small", settings), record)]))]


def test_a_small_cell_is_met() -> None:
    assert distances() == [True, True]


@pytest.mark.parametrize(("module", "name", "mutant"), MUTANTS)
def test_a_mutant_is_not(module, name, mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, name, mutant)
    # A window of 1 needs no gate: only DEO* shows that it never closes.
    assert distances() == [name == "swapping_pairs", False]


def test_the_corrected_exponent_is_the_rate_of_decay() -> None:
    noise = np.array([39.0, 40.0])
    exact, corrected, paper = (
        -np.diff(np.log(rate))[0]
        for rate in (
            theory.swap_probability_under_noise(0.0, 0.9, noise),
            replicas.swap_rate_of_paper(0.9, noise, replicas.CORRECTED),
            replicas.swap_rate_of_paper(0.9, noise, replicas.PAPER),
        )
    )
    assert corrected == pytest.approx(exact, rel=0.01) and corrected == pytest.approx(2 * paper)
