"""The study of window bias and its correction: the quick version, and mutants of what it rests on.

Its numbers come from short chains: bounds are some four standard errors, and narrow enough that a
broken rule, gate or sign is seen.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from replicax.algorithm import swap as rules
from replicax.algorithm.schedule import WindowedDEO
from studies import load_study, mixture, two_modes
from studies.shared.runner import read_record, reproduce
from studies.shared.study import Scale, Work

STUDY = load_study("mixture")


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("mixture")
    return folder, reproduce(STUDY, folder, Scale(quick=True), progress=False)


def record(quick: tuple[Path, dict[str, Any]], name: str) -> Any:
    cell = next(cell for cell in STUDY.cells(Scale(quick=True)) if cell.name == name)
    return read_record(quick[0], STUDY, cell)


@pytest.mark.slow
def test_all_that_is_asked_for_is_met(quick: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = quick
    unmet = [finding["what"] for finding in summary["findings"] if finding["met"] is False]
    assert not unmet
    assert json.loads((folder / "mixture.json").read_text())["findings"] == summary["findings"]
    for figure in ("correction", "mass", "density"):
        assert (folder / f"mixture-{figure}.png").stat().st_size > 10_000
    assert "**not met**" not in (folder / "mixture.md").read_text()


@pytest.mark.slow
def test_exact_and_sampled_values_are_those_of_the_reference(
    quick: tuple[Path, dict[str, Any]],
) -> None:
    left, distance, swaps, best, corrected_swaps = mixture.REFERENCE[3.0, 100]
    cell = record(quick, "sigma=3-W=100")
    assert cell["exact_left"] == pytest.approx([left, mixture.UNBIASED], abs=0.001)
    assert cell["exact_distance"][0] == pytest.approx(distance, abs=0.001)
    assert cell["exact_swaps"] == pytest.approx([swaps, corrected_swaps], abs=0.002)
    assert cell["window_correction"][1] == pytest.approx(best, abs=0.02)
    # Standard errors: 0.017 of a mass, 0.003 and 0.008 of the swap rates.
    assert cell["left"].mean(axis=1) == pytest.approx(cell["exact_left"], abs=0.06)
    assert cell["swaps"].mean(axis=1) == pytest.approx(cell["exact_swaps"], abs=0.03)
    short = record(quick, "sigma=3-W=1")
    assert short["exact_left"] == pytest.approx([mixture.UNBIASED], abs=0.001)
    assert short["swaps"].mean() == pytest.approx(0.0305, abs=0.002)


def test_draws_of_the_target_leave_numbers_figures_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the chains, whose draws are compared with exact values below."""
    coarse = two_modes.OF_THE_PAPER._replace(grid=(-12.0, 9.5, 37))
    monkeypatch.setattr(mixture, "_MODES", coarse)

    def sample(work: Work, settings: dict[str, Any], window_correction: float) -> Any:
        drawn = np.random.default_rng(0).choice(coarse.points(), (16, 300), p=coarse.truth())
        each = np.full(16, window_correction)
        return SimpleNamespace(draws=drawn, window_swap_rate=each[:, None])

    monkeypatch.setattr(mixture, "sample", sample)
    summary = reproduce(STUDY, tmp_path, Scale(quick=True), progress=False)
    assert [cell["name"] for cell in summary["cells"]] == [
        "sigma=3-W=1", "sigma=3-W=100"
    ]  # fmt: skip
    assert len(summary["figures"]) == 3
    page = (tmp_path / "mixture.md").read_text()
    for figure in summary["figures"]:
        assert f"({figure})" in page and (tmp_path / figure).stat().st_size > 10_000


def test_the_full_version_has_every_cell_that_is_asked_for() -> None:
    cells = {cell.name: cell.settings for cell in STUDY.cells(Scale())}
    for sigma, window in mixture.REFERENCE:
        assert f"sigma={sigma:g}-W={window}" in cells
    for sigma in (2, 3, 4, 5, 6):
        settings = cells[f"sigma={sigma}-W=1"]
        assert settings["num_steps"] * settings["seeds"] >= 6_000_000
    for sigma in (3, 4, 5):
        for window in (10, 100, 1000):
            assert f"sigma={sigma}-W={window}" in cells


@pytest.mark.slow
def test_swap_rates_of_the_strongest_noise() -> None:
    one = two_modes.solve(two_modes.OF_THE_PAPER, 6.0, 1)
    assert one.swaps_per_window == pytest.approx(7.6e-5, rel=0.01)
    assert one.left == pytest.approx(mixture.UNBIASED, abs=0.001)


SMALL = {"sigma": 3.0, "window": 100, "num_steps": 100_000, "seeds": 16}
EXACT = {0.0: (0.482, 0.902), 3.07: (0.4034, 0.387)}  # left mass and swaps per window by lambda


def agrees(window_correction: float) -> bool:
    """Whether one small cell has the exact left mass (standard error 0.011) and swap rate."""
    work = Work(lambda fraction: None, lambda: False)
    posterior = mixture.sample(work, SMALL, window_correction)
    left, swaps = EXACT[window_correction]
    sampled = mixture.left_masses(posterior.draws).mean()
    return bool(
        abs(sampled - left) < 0.04 and abs(posterior.window_swap_rate.mean() - swaps) < 0.03
    )


@pytest.mark.parametrize("window_correction", EXACT)
def test_a_small_cell_has_its_exact_values(window_correction: float) -> None:
    assert agrees(window_correction)


@pytest.mark.slow
def test_a_rule_turned_around_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.judge
    monkeypatch.setattr(rules, "judge", lambda rule, proposal: ~right(rule, proposal))
    assert not agrees(0.0)


@pytest.mark.slow
def test_a_gate_that_never_closes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = WindowedDEO.swapping_pairs

    def always_open(schedule, step, active, gate, wanted, finite):
        return right(schedule, step, active, np.True_, wanted, finite)

    monkeypatch.setattr(WindowedDEO, "swapping_pairs", always_open)
    assert not agrees(0.0)


@pytest.mark.slow
def test_a_correction_of_the_wrong_sign_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = rules.log_swap_probability
    wrong = lambda pair, window_correction: right(pair, -window_correction)  # noqa: E731
    monkeypatch.setattr(rules, "log_swap_probability", wrong)
    assert not agrees(3.07)
