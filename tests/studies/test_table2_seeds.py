"""The section of Table 2 over seeds: what is counted, its means, and its differences by seed."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from studies.table2 import page, seeds, trainings

ACCURACY = {"ensemble": (0.70, 0.72, 0.71), "deo": (0.71, 0.725, 0.73)}


def run_of(accuracy: float, **more: Any) -> dict[str, Any]:
    way = {"by": "logits", "start_weight": 0.0, "accuracy": accuracy, "nll_sum": 1e4 * accuracy}
    return {"epochs": 20, "averages": [way], "one_network": accuracy - 0.1, **more}


def described() -> list[dict[str, Any]]:
    return [
        {
            "seed": seed,
            "runs": {
                "starts": {"epochs": 40, "averages": []},
                **{name: run_of(values[seed]) for name, values in ACCURACY.items()},
            },
        }
        for seed in range(3)
    ]


def test_the_table_has_means_and_standard_deviations_over_seeds() -> None:
    text = "\n".join(seeds.section("tiny", described()))
    assert "of 40 epochs, and 20 epochs of sampling" in text
    assert "| mSGD×P10 | 3 | 71.00 ± 1.00 | 7100 ± 100 | 70.00, 72.00, 71.00 | 61.00 ± 1.00" in text
    assert "DEO⋆" not in text  # it has no runs


def test_differences_are_paired_by_seed_with_students_interval() -> None:
    text = "\n".join(seeds.section("tiny", described()))
    gained = 100 * (np.array(ACCURACY["deo"]) - ACCURACY["ensemble"])
    low, high = stats.t.interval(0.95, 2, gained.mean(), stats.sem(gained))
    expected = (
        f"DEO-mSGD×P10 minus mSGD×P10, by seed: {gained.mean():+.2f} ± {high - gained.mean():.2f}"
    )
    assert expected in text and low < gained.mean()


def test_a_seed_without_one_of_the_methods_counts_for_the_others_alone() -> None:
    some = described()
    del some[1]["runs"]["deo"]
    text = "\n".join(seeds.section("tiny", some))
    assert "| mSGD×P10 | 3 |" in text and "| DEO-mSGD×P10 | 2 |" in text
    assert "+1.50 ± 6.35 points" in text and "n = 2" in text  # of seeds 0 and 2
    del some[2]["runs"]["deo"]
    assert "by seed:" not in "\n".join(seeds.section("tiny", some))


def test_seeds_run_into_folders_of_their_own(tmp_path: Path, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(trainings, "run_all", lambda settings, runs, **display: calls.append(
        (settings.seed, settings.methods, runs.name)))  # fmt: skip
    seeds.run_all(trainings.Settings(), tmp_path, 2)
    methods = ("starts", "ensemble", "deo", "deo-star")
    assert calls == [(0, methods, "seed-0"), (1, methods, "seed-1")]


@pytest.mark.parametrize("there", [True, False])
def test_seeds_stay_on_the_page_when_their_folders_are_elsewhere(
    tmp_path: Path, monkeypatch, there: bool
) -> None:
    if there:
        monkeypatch.setattr(seeds, "describe", lambda model, runs: described())
    else:
        monkeypatch.setattr(page, "_earlier_models", lambda out: {
            "tiny": {"runs": {}, "starts_alone": [], "compared": {}, "findings": [],
                     "captions": {}, "seeds": described()}})  # fmt: skip
    (tmp_path / "runs" / "seed-0").mkdir(parents=True)
    runs_of = trainings.open_runs(tmp_path / "runs", trainings.Settings(model="tiny"))
    assert "seed-0" not in runs_of
    summary = page.write({"tiny": runs_of["tiny"]}, tmp_path / "runs", tmp_path, "command")
    assert summary["models"]["tiny"]["seeds"] == described()
    assert "## tiny: several seeds" in (tmp_path / "table2.md").read_text()
