"""Table 1 and Lemma 1 by simulation: the quick version, and mutants that it detects."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from common import slow
from mutants import always_odd, flipped_verdict, gate_that_never_closes

from replicax.algorithm import swap as rules
from replicax.algorithm.schedule import StochasticEvenOdd, WindowedDEO
from studies import round_trips
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Finding, Results, Scale, Work

SMALL = {"num_replicas": 8, "num_trips": 2_000}


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict:
    folder = tmp_path_factory.mktemp("round-trips")
    return reproduce(round_trips.STUDY, folder, Scale(quick=True), progress=False)


@pytest.mark.slow
def test_every_finding_is_met(summary: dict) -> None:
    assert len(summary["findings"]) == 8 + 8 + 3
    assert [f["what"] for f in summary["findings"] if f["met"] is not True] == []


@pytest.mark.slow
def test_orders_of_growth(summary: dict) -> None:
    ours = {f["what"]: f["ours"] for f in summary["findings"]}

    def order(scheme: str, column: str) -> float:
        return ours[f"{scheme}, {column}: k of P^k, P = 16 to 32"]

    assert order("DEO", "r = 0.6") == pytest.approx(2.0, abs=0.1)
    assert order("DEO*", "r = 0.6") == pytest.approx(1.22, abs=0.08)
    assert order("SEO", "r = 2 / P") == pytest.approx(1.95, abs=0.1)
    assert order("ADJ", "r = 2 / P") == pytest.approx(0.965, abs=0.1)


def test_times_of_the_closed_forms_leave_a_page_on_which_all_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_trips(program, ladder, expected, num_trips, tick):
        return SimpleNamespace(round_trip_time=expected, trips=np.array([num_trips]))

    monkeypatch.setattr(round_trips.index_process, "count_trips", count_trips)
    summary = reproduce(round_trips.STUDY, tmp_path, Scale(quick=True), progress=False)
    assert [f["what"] for f in summary["findings"] if f["met"] is not True] == []
    page = (tmp_path / "round-trips.md").read_text()
    assert "not met" not in page and "half of DEO's 196 steps" in page
    assert len(summary["figures"]) == 3
    assert all((tmp_path / name).stat().st_size > 10_000 for name in summary["figures"])


def test_closed_forms_of_the_full_study() -> None:
    sizes = [16, 32, 64]
    times = {
        scheme: round_trips.order_of_growth(
            sizes, [round_trips.closed_form(scheme, 0.6, size) for size in sizes]
        )
        for scheme in ("ADJ", "SEO", "DEO", "DEO*")
    }
    assert times == pytest.approx(
        {"ADJ": 2.011, "SEO": 2.035, "DEO": 2.011, "DEO*": 1.214}, abs=2e-3
    )


def distances(schemes: list[str]) -> list[Finding]:
    settings = {"schemes": schemes, **SMALL}
    record = round_trips.run(settings, Work(lambda fraction: None, lambda: False))
    return round_trips.distances(Results([(Cell("small", settings), record)]))


MUTANTS = [
    slow(StochasticEvenOdd, "active_pairs", always_odd, ["SEO"]),
    slow(WindowedDEO, "active_pairs", always_odd, ["DEO", "DEO*"]),
    (WindowedDEO, "swapping_pairs", gate_that_never_closes, ["DEO", "DEO*"]),
    slow(rules, "judge", flipped_verdict, ["ADJ"]),
    slow(rules, "judge", flipped_verdict, ["DEO", "DEO*"]),
]


@pytest.mark.parametrize("schemes", [["ADJ"], ["DEO", "DEO*"]])
def test_a_small_cell_is_met(schemes: list[str]) -> None:
    assert all(finding.met for finding in distances(schemes))


@pytest.mark.parametrize(("module", "name", "mutant", "schemes"), MUTANTS)
def test_a_mutant_is_not(module, name, mutant, schemes, monkeypatch) -> None:
    monkeypatch.setattr(module, name, mutant)
    missed = [finding.what for finding in distances(schemes) if not finding.met]
    # A window of 1 needs no gate: only DEO* shows that it never closes.
    at_least = [scheme for scheme in schemes if name != "swapping_pairs" or scheme == "DEO*"]
    assert all(any(what.startswith(f"{scheme}, ") for what in missed) for scheme in at_least)
