import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import replicax as rx
from replicax import demo
from replicax.cli.main import main
from replicax.results import figure_style
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


def test_the_picture_compares_runs_with_the_truth():
    rung_of = np.array([[[0, 1], [1, 0], [0, 1]]])
    rng = np.random.default_rng(0)
    centre, right = rng.normal(0, 0.1, (2, 500, 2)), rx.targets.modes25_draws(rng, 500)
    runs = {name: SimpleNamespace(draws=draws, rung_of=rung_of, counted_steps=1000,
                                  round_trips=np.array([7, 9]))
            for name, draws in (("All in one", centre), ("Right", right))}  # fmt: skip
    figure = demo.plot_modes25(runs)
    distance = rx.targets.mode_distance(centre, rx.targets.modes25_truth(50))
    shown = " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))
    assert f"All in one: mode TV {distance:.3f}" in shown
    assert "Right: 8 round trips per 1,000 steps" in shown
    true, *sampled, _, masses, first, second = figure.axes
    np.testing.assert_array_equal(true.images[0].get_extent(), [-2.9, 2.9, -2.9, 2.9])
    for axes in sampled:
        assert axes.images[0].get_clim() == true.images[0].get_clim()
        assert axes.images[0].get_array().sum() * 0.05**2 == pytest.approx(1)
    heights = np.array([bar.get_height() for bar in masses.patches]).reshape(2, 25)
    truth = masses.get_lines()[0].get_ydata()
    assert heights[0, 0] == 1
    assert masses.get_xticklabels()[0].get_text() == "0, 0"
    assert np.all(np.diff(truth) < 1e-6)
    apart = 0.5 * np.abs(heights[0] / heights[0].sum() - truth / truth.sum()).sum()
    assert apart == pytest.approx(distance, abs=1e-5)
    assert 0.5 * np.abs(heights[1] - truth).sum() < 0.2
    assert first.get_lines() and second.get_lines()


def test_the_map_of_25_modes_shows_x_to_the_right_and_y_up():
    axes = figure_style.new_figure(4, 4).add_subplot()
    picture = demo.draw_density(axes, np.array([[2.0, -1.0]])).get_array()
    row, column = np.unravel_index(np.argmax(picture), picture.shape)
    assert column * 0.05 - 2.9 == pytest.approx(2, abs=0.06)
    assert row * 0.05 - 2.9 == pytest.approx(-1, abs=0.06)
