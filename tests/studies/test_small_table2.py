"""Table 2 in small: what runs, and the page from the summaries of its runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from studies import __main__ as command
from studies.table2 import small, trainings


def summary(method: str, seed: int, nll: float) -> dict[str, Any]:
    weight = 1.0 if method == trainings.STARTS else 0.0
    way = {"start_weight": weight, "accuracy": 0.5 + seed / 100, "nll": nll}
    return {
        "model": "tiny", "method": method, "seed": seed, "networks": 6, "averaged": 300,
        "machine": "cpu", "one_network": 0.4,
        "averages": [{"by": by, **way} for by in ("probabilities", "logits")],
        **({"trips": 7 + seed} if method.startswith("deo") else {}),
    }  # fmt: skip


FOUND = [
    summary(method, seed, nll + seed / 10)
    for method, nll in (("deep-ensemble", 1.0), ("deo-star", 1.25), ("starts", 2.0))
    for seed in range(2)
]


def test_the_page_compares_every_method_with_the_deep_ensemble(tmp_path: Path) -> None:
    written = small.write_page(FOUND, tmp_path, "python -m studies table2 --small")
    page = (tmp_path / "small-table2.md").read_text()
    assert "| DEO⋆-mSGD | 300, 300 | 50.50 ± 0.71 | 1.300 ± 0.071 | 1.250, 1.350 |" in page
    assert "| 7, 8 |" in page and "| start networks alone | 300, 300 |" in page
    (finding,) = written["findings"]
    assert finding["what"].startswith("tiny: DEO⋆-mSGD minus deep ensemble")
    assert finding["ours"] == "+0.250, +0.250; accuracy +0.00, +0.00 points"


def test_its_runs_are_the_paper_s_in_proportion() -> None:
    of = {name: small.SETTINGS.options(name) for name in trainings.MADE}
    fewer = [of.pop(name) for name in trainings.FEWER]
    assert [(one["num_replicas"], one["epochs"]) for one in fewer] == [(1, 480), (2, 240), (3, 160)]
    assert {name: options["epochs"] for name, options in of.items()} == {
        "starts": 30, "ensemble": 50, "deo": 50, "deo-star": 50, "cyc-sghmc": 50, "cyc-swag": 50,
        "deep-ensemble": 80,
    }  # fmt: skip
    assert {options["num_replicas"] for options in of.values()} == {6}
    assert of["cyc-swag"]["method"].cycle_epochs == 10
    assert of["deo"]["method"].target_swap_rate == 0.1
    assert of["deep-ensemble"]["method"].learning_rate == 0.1
    whole = trainings.Settings().options("deo-star")
    assert (whole["num_replicas"], whole["method"].target_swap_rate) == (10, None)


def test_methods_belong_to_the_small_table(capsys) -> None:
    assert command.main(["table2", "--methods", "deo"]) == 2
    assert "--methods belongs to --small" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_makes_all_and_goes_on(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(
        small, "SETTINGS", replace(small.SETTINGS, num_replicas=2, batch_size=64, cycle_epochs=1)
    )
    options = ["table2", "--small", "--model", "mlp-4", "--data", "digits", "--seeds", "2",
               "--epochs", "2", "--start-epochs", "1", "--out", str(tmp_path)]  # fmt: skip
    assert command.main([*options, "--methods", "starts", "deep-ensemble"]) == 0
    assert not (tmp_path / "small-table2.md").exists()
    runs = tmp_path / "records" / "small-table2"
    before = (runs / "mlp-4-starts-1.json").stat().st_mtime_ns
    assert command.main(options) == 0
    assert (runs / "mlp-4-starts-1.json").stat().st_mtime_ns == before
    found = small.read(runs)
    assert len(found) == 2 * len(trainings.MADE)
    epochs = {run["method"]: run["epochs"] for run in found}
    assert epochs["deep-ensemble"] == 3 and epochs["cyc-sghmc"] == 4 and epochs["deo"] == 2
    assert "DEO⋆" in (tmp_path / "small-table2.md").read_text()
