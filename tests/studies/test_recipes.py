"""The study of recipes: what is averaged, what is chosen, and when a finding is met."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import replicax as rx
from replicax.networks.validation import sampling_factor
from studies import recipes
from studies.shared import small_images
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Results, Scale

NLL = {"deep-ensemble": (1.5, 1.4, 1.3), "ensemble-then-sample": (1.4, 1.3, 1.2)}


def record(nll: Any, held_out: float, accuracy: Any = 0.5, **more: Any) -> dict[str, Any]:
    nll = np.asarray(nll, float)
    ones, names = np.ones_like(nll), ("single accuracy", "training loss", "rate", "sampled from")
    ways = {f"{way} {name}": nll + shift for shift, way in enumerate(recipes._WAYS)
            for name in ("nll", "accuracy")}  # fmt: skip
    held = {f"held out {way} nll": held_out + shift for shift, way in enumerate(recipes._WAYS)}
    return {
        "nll": nll, "accuracy": np.asarray(accuracy) * ones, "held out nll": held_out,
        **{name: ones for name in names}, "adam": 0 * ones, "trips": ones, **ways, **held, **more,
    }  # fmt: skip


def results(**changes: Any) -> Results:
    """Two settings of each family, of which the first is better on held-out images; `changes`
    replace the NLL of a family."""
    pairs = []
    for regime in recipes.REGIMES:
        for family, nll in (NLL | changes).items():
            for held_out, name in ((1.0, family), (2.0, f"{family} .1")):
                one = record(nll if held_out == 1.0 else np.zeros(3), held_out)
                settings = {"regime": regime, "recipe": name, "epochs": 40, "held_out": True}
                pairs.append((Cell(f"{regime}-{name}", settings), one))
    return Results(pairs)


def test_a_family_wins_if_it_is_better_in_every_seed() -> None:
    assert [finding.met for finding in recipes.findings(results())] == [True, None] * 2
    first = recipes.findings(results())[0]
    assert first.ours == "-0.100, -0.100, -0.100"  # of the settings chosen on held-out images
    worse = results(**{"ensemble-then-sample": (1.4, 1.41, 1.2)})
    assert [finding.met for finding in recipes.findings(worse)] == [False, None] * 2


def with_ladders() -> Results:
    """Results with ladders, of which one with swaps and one without are best on held-out images."""
    pairs = list(results()._pairs)
    for name in (*recipes.LADDERS, "deo-star"):
        held_out = 0.5 if name in ("rates .01-.05, DEO*", "falling, T 1") else 1.5
        nll = np.array([0.9, 0.8]) if recipes._swaps(name) else np.array([1.0, 0.7])
        for regime in ("plain", *["augmented"] * (name in recipes.MAIN)):
            settings = {"regime": regime, "recipe": name, "epochs": 40, "held_out": True}
            pairs.append((Cell(f"{regime}-{name}", settings), record(nll, held_out)))
    return Results(pairs)


def test_exchange_is_compared_at_what_is_best_on_images_held_out() -> None:
    made = with_ladders()
    assert recipes.best_exchange(made, True)[:2] == ("rates .01-.05, DEO*", "last")
    assert recipes.best_exchange(made, False)[:2] == ("falling, T 1", "last")
    best, *coldest = recipes.exchange_findings(made)
    assert (best.ours, best.met) == ("-0.100, +0.100", False)
    assert {finding.ours for finding in coldest} == {"-2.000, -2.000"}  # "coldest" minus "all"
    table = next(one for one in recipes.tables(made) if one.title.startswith("Exchange"))
    assert len(table.rows) == len(recipes.LADDERS)


def test_recipes_without_exchange_compete_by_their_own_average() -> None:
    pairs = [pair for pair in with_ladders()._pairs if pair[0].settings["recipe"] != "falling, T 1"]
    name, way, found = recipes.best_exchange(Results(pairs), False)
    assert (name, way) == ("deep-ensemble", recipes._OWN)  # 1.0 on held-out images
    assert found["nll"].tolist() == list(NLL["deep-ensemble"])
    assert [recipes._swaps(name) for name in ("deo-star", "ensemble", "rates .01-.05, apart")] == [
        True, False, False,
    ]  # fmt: skip


def test_every_way_averages_its_networks() -> None:
    labels = np.array([0, 1])
    recorder = recipes.Recorder(None, SimpleNamespace(targets=labels))  # type: ignore[arg-type]
    sure, wrong = np.array([[9.0, -9.0], [-9.0, 9.0]]), np.array([[-9.0, 9.0], [9.0, -9.0]])
    recorder.epochs = [np.stack(pair) for pair in
                       [(wrong, wrong), (wrong, wrong), (sure, wrong), (sure, sure)]]  # fmt: skip
    found = recorder.ways(sampled_from=0)
    assert found["last nll"] < 1e-6 and found["coldest half nll"] < 1e-6
    assert found["coldest nll"] == pytest.approx(np.log(2), abs=1e-3)
    assert found["all nll"] == pytest.approx(np.log(8 / 3), abs=1e-3)
    assert found["all half nll"] == pytest.approx(np.log(4 / 3), abs=1e-3)
    assert np.isnan(recorder.ways(sampled_from=4)["all nll"])


def test_falling_rates_are_those_of_the_method_that_samples() -> None:
    factor = recipes.falling(40, 50)
    assert float(factor(700)) == pytest.approx(0.5, abs=1e-6), "half of the trunk"
    of_epoch = [sampling_factor(epoch, 28, 40, 0.5) for epoch in (29, 32, 40)]
    ours = [float(factor(50 * (epoch - 1))) for epoch in (29, 32, 40)]
    assert ours == pytest.approx(of_epoch, abs=1e-6)


def images() -> rx.data.Dataset:
    rng = np.random.default_rng(0)
    whole = rx.data.Dataset(
        "noise", rng.integers(0, 256, (60, 32, 32, 3)).astype(np.uint8),
        np.arange(60, dtype=np.int32) % 10, rng.integers(0, 256, (20, 32, 32, 3)).astype(np.uint8),
        np.arange(20, dtype=np.int32) % 10, 10, (0.5,) * 3, (0.29,) * 3,
    )  # fmt: skip
    return whole


def test_small_images_are_means_of_blocks_of_some_classes(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(small_images, "PER_CLASS", 4)
    whole = images()
    monkeypatch.setattr(rx.data, "load", lambda name, folder: whole)
    reduced = small_images.small_images(tmp_path)
    assert reduced.train_images.shape == (8, 16, 16, 3) and reduced.num_classes == 2
    first = np.flatnonzero(np.isin(whole.train_labels, (0, 5)))[0]
    block = whole.train_images[first, :2, :2].mean((0, 1))
    np.testing.assert_allclose(reduced.train_images[0, 0, 0], block, atol=0.51)
    monkeypatch.setattr(rx.data, "load", None)  # the second time they are read
    assert (small_images.small_images(tmp_path).test_images == reduced.test_images).all()


@pytest.mark.slow
def test_the_quick_version_writes_a_page(tmp_path: Path, monkeypatch) -> None:
    def small(folder: Any = None) -> rx.data.Dataset:
        monkeypatch.setattr(small_images, "PER_CLASS", 6)
        return small_images.reduce(images())

    for name, value in {"small_images": small, "WIDTHS": (2,), "BATCH": 4, "HELD_OUT": 4}.items():
        monkeypatch.setattr(recipes, name, value)
    recipes.problem.cache_clear()
    recipes._outputs.cache_clear()
    summary = reproduce(recipes.STUDY, tmp_path, Scale(quick=True), progress=False)
    recipes.problem.cache_clear()
    recipes._outputs.cache_clear()
    assert summary is not None and len(summary["findings"]) == 4
    assert "By the epochs of each network" in (tmp_path / "recipes.md").read_text()
    assert (tmp_path / "recipes-budgets.png").exists()
