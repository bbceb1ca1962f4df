"""The buffer of Lemma 2: the quick version, and mutants that it detects."""

from pathlib import Path

import numpy as np
import pytest
from mutants import energies_the_wrong_way, flipped_verdict

from replicax import theory
from replicax.algorithm import swap
from replicax.algorithm import swap as rules
from studies import buffer
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Results, Scale, Work


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("buffer")


@pytest.fixture(scope="module")
def summary(folder: Path) -> dict:
    return reproduce(buffer.STUDY, folder, Scale(quick=True), progress=False)


def test_every_finding_is_met(summary: dict) -> None:
    assert len(summary["findings"]) == 7
    assert [f["what"] for f in summary["findings"] if f["met"] is not True] == []


def test_numbers(summary: dict) -> None:
    ours = {f["what"]: f["ours"] for f in summary["findings"]}
    assert ours["dT σ at which C⋆ changes sign, dU = 0"] == pytest.approx(0.954, abs=5e-4)
    quiet = ours["bias-corrected swap rate, dU = 0, dT σ = 0.5: C⋆ < 0"]
    assert quiet == pytest.approx(0.7237, abs=0.009)  # 50,000 draws: 4.5 standard errors


def test_page_and_figures_are_written(summary: dict, folder: Path) -> None:
    page = (folder / "buffer.md").read_text()
    assert "not met" not in page and "needs dT σ > 0.9539" in page
    assert len(summary["figures"]) == 3
    assert all((folder / name).stat().st_size > 10_000 for name in summary["figures"])


@pytest.mark.parametrize("noise", [0.5, 2.0])
def test_the_best_constant_is_the_best_of_a_grid(noise: float) -> None:
    grid = np.linspace(-4, noise**2, 400)
    least = min(buffer.mean_error(value, noise) for value in grid)
    assert buffer.mean_error(buffer.best_buffer(noise), noise) <= least + 1e-6


def test_without_a_buffer_the_rules_agree_where_the_sign_changes() -> None:
    for gap in (-2.0, 0.0, 2.0):
        noise = buffer.sign_change(gap)
        assert theory.swap_probability_under_noise(gap, 1.0, noise) == pytest.approx(
            theory.deterministic_swap_probability(gap, 0.0, noise)
        )


def distances(noise: float = 1.0) -> list[bool | None]:
    settings = {"noise": noise, "seeds": 1}
    record = buffer.run(settings, Work(lambda fraction: None, lambda: False))
    return [f.met for f in buffer.distances(Results([(Cell("small", settings), record)]))]


@pytest.mark.parametrize("noise", [0.25, 1.0])  # at 0.25 the largest gap swaps always
def test_a_small_cell_is_met(noise: float) -> None:
    assert distances(noise) == [True, True]


@pytest.mark.parametrize("mutant", [flipped_verdict, energies_the_wrong_way])
def test_a_mutant_is_not(mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "judge", mutant)
    assert distances() == [False, False]


def test_a_rule_that_forgets_the_noise_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def uncorrected(pair, window_correction=0.0):
        return pair.inverse_temperature_gap * (pair.cold_energy - pair.hot_energy)

    monkeypatch.setattr(rules, "log_swap_probability", uncorrected)
    assert distances() == [True, False]
