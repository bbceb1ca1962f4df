import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import replicax as rx
from replicax import demo
from replicax.cli.main import main


def test_demo_samples_25_modes_and_replaces_an_earlier_demo(tmp_path, capsys, monkeypatch):
    out = tmp_path / "demo-run"
    assert main(["demo", "--out", str(out), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["num_steps"], summary["num_replicas"], summary["num_chains"]) == (20000, 16, 4)
    assert summary["window"] == 8
    assert all(36 < trips < 46 for trips in summary["round_trips_per_1000_steps"])
    assert summary["demo"]["modes_found"] == 25
    assert summary["demo"]["mode_distance"] < 0.12
    assert len(summary["demo"]["mode_distance_by_chain"]) == 4
    assert json.loads((out / "summary.json").read_text()) == summary
    assert rx.load(out).draws.shape == (4, 1990, 2)
    figures = {Path(path) for path in summary["figures"]}
    expected = {out / "figures" / f"{name}.png" for name in ("modes25", "ladder", "paths")}
    assert expected <= figures and all(path.is_file() for path in figures)

    kept = shutil.copytree(out, tmp_path / "kept")
    (out / "notes.txt").write_text("mine")

    def sample_again(*args, **options):
        assert {path.name for path in options["run_dir"].iterdir()} == {"notes.txt"}
        return rx.load(kept)

    monkeypatch.setattr(rx, "sample", sample_again)
    assert main(["demo", "--out", str(out), "--no-plots"]) == 0
    shown = capsys.readouterr().out
    assert "total variation of the mode masses" in shown and "25 of 25" in shown
    assert shown.rstrip().endswith("kept/")


def test_a_demo_folder_says_how_to_continue():
    loaded = demo.TARGET_SPEC.load()
    assert loaded.target is demo.target and loaded.params is rx.targets.modes25_start


def test_a_comparison_before_the_first_draw():
    accuracy = demo.compare_with_truth(SimpleNamespace(draws=np.zeros((4, 0))))
    assert accuracy["mode_distance"] is None
    assert demo.render(accuracy).row_count == 1


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
