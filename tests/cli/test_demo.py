import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import replicax as rx
from replicax import demo
from replicax.cli.main import main
from replicax.user_code import TargetSpec


def test_demo_samples_25_modes_and_replaces_an_earlier_demo(tmp_path, capsys, monkeypatch):
    out = tmp_path / "demo-run"
    assert main(["demo", "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    ours, paper = summary["demo"][demo.DEFAULT], summary["demo"][demo.PAPER]
    assert summary["num_chains"] == 4 and summary["problems"] == []
    assert ours["modes_found"] == paper["modes_found"] == 25
    assert ours["warnings"] == 0 < paper["warnings"]
    assert ours["mode_distance"] < 0.04 and 0.04 < paper["mode_distance"] < 0.12
    assert len(ours["mode_distance_by_chain"]) == 4
    assert ours["mass_outside"] == pytest.approx(ours["mass_outside_true"], abs=0.02)
    far = (np.array(ours["std"]) - ours["std_true"]) / ours["std_error"]
    assert np.all(np.abs(far) < 5)
    far = (np.array(paper["std"]) - paper["std_true"]) / paper["std_error"]
    assert np.all(far < -8)  # too narrow
    assert ours["round_trips_per_1000_steps"] > 36
    assert 36 < paper["round_trips_per_1000_steps"] < 46
    assert json.loads((out / "summary.json").read_text()) == summary
    figures = {Path(path) for path in summary["figures"]}
    expected = {out / "figures" / f"{name}.png" for name in ("modes25", "ladder", "paths")}
    assert expected <= figures and all(path.is_file() for path in figures)

    kept, both = shutil.copytree(out, tmp_path / "kept"), []
    (out / "notes.txt").write_text("mine")

    def sample_again(*args, **options):
        if "run_dir" in options:
            assert {path.name for path in options["run_dir"].iterdir()} == {"notes.txt"}
        both.append(options)
        return rx.load(kept)

    monkeypatch.setattr(rx, "sample", sample_again)
    assert main(["demo", "--out", str(out), "--no-plots"]) == 0
    shown = capsys.readouterr().out
    assert "Compared with the truth" in shown and demo.PAPER in shown
    assert shown.rstrip().endswith("kept/") and len(both) == 2


def test_standard_deviations_of_exact_draws_have_the_truth_within_their_errors():
    draws = rx.targets.modes25_draws(np.random.default_rng(0), 8000).reshape(4, 2000, 2)
    run = SimpleNamespace(draws=draws, problems=list, round_trips=np.ones(4), counted_steps=10)
    found = demo.compare_with_truth(run)
    assert found["std_error"] == pytest.approx(
        [np.std(draws**2) / np.sqrt(8000) / 3.06] * 2, rel=0.3
    )
    assert np.abs(np.subtract(found["std"], found["std_true"])).max() < 4 * found["std_error"][0]


@pytest.mark.parametrize("name", ["energy", "target"])
def test_a_demo_folder_says_how_to_continue(name):
    spec = TargetSpec(f"replicax.demo:{name}", params="params")
    loaded = spec.load()
    assert spec.is_demo and loaded.target is getattr(demo, name)
    assert loaded.params is rx.targets.modes25_start
    assert demo.TARGET_SPEC.is_demo


def test_a_comparison_before_the_first_draw():
    run = SimpleNamespace(draws=np.zeros((4, 0, 2)), problems=list, round_trips=np.zeros(4),
                          counted_steps=10)  # fmt: skip
    assert demo.render({"one": demo.compare_with_truth(run)}).row_count == 1


@pytest.mark.parametrize("name", ["notes.txt", "records.zarr"])
def test_demo_refuses_folders_that_are_not_its_own(tmp_path, capsys, name):
    (tmp_path / name).write_text("{}")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "--out" in message and message.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_demo_refuses_a_file(tmp_path, capsys):
    path = tmp_path / "file"
    path.write_text("")
    assert main(["demo", "--out", str(path)]) == 2
    assert "is a file" in capsys.readouterr().err


def test_clear_accepts_an_empty_folder_and_a_missing_one(tmp_path):
    demo.clear(tmp_path)
    demo.clear(tmp_path / "absent")
    assert tmp_path.exists()
