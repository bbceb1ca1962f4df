"""Figures of a training show the numbers of its records."""

import numpy as np
import pytest
from altered_runs import alter
from numpy.testing import assert_allclose, assert_array_equal
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

import replicax as rx
from replicax.networks.report import tables_of
from replicax.networks.tempered import tempered
from replicax.networks.train import train
from replicax.results.figure_style import settled_range

EPOCHS = 6
ALL = ["epochs", "predictions", "ladder", "rates", "buffer", "paths", "trips"]


def run(method="deo-star", problem=None, **options):
    options = {"epochs": EPOCHS, "num_replicas": 3, "progress": False, "method": method} | options
    return train(problem or tiny_problem(), NETWORK.init, **options)


@pytest.fixture(scope="module")
def trained():
    return run(**EXCHANGING | {"epochs": EPOCHS, "burn_in": 2})


@pytest.fixture(scope="module")
def alone():
    return run(rx.ensemble(learning_rate=0.05))


@pytest.fixture(scope="module")
def figures(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures") / "new" / "folder"
    plotted = trained.plot(folder)
    assert {path.stem for path in folder.iterdir()} == set(plotted)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in folder.iterdir())
    return plotted


def named(axes, name):
    (line,) = (line for line in axes.get_lines() if line.get_label() == name)
    return line


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text")))


def test_names(figures):
    assert list(figures) == ALL
    for name, figure in figures.items():
        assert figure.axes[0].get_ylabel(), name
        assert any(axes.get_xlabel() for axes in figure.axes), name


@pytest.mark.parametrize("panel, name, factor", [(0, "accuracy", 100), (1, "nll", 1)])
def test_epochs_show_every_network_and_the_average(trained, figures, panel, name, factor):
    epochs, axes = trained.epochs, figures["epochs"].axes[panel]
    coldest = named(axes, "rung 0 (coldest)")
    assert_array_equal(coldest.get_xdata(), np.arange(1, EPOCHS + 1))
    assert_allclose(coldest.get_ydata(), factor * epochs[name][:, 0])
    assert_allclose(named(axes, "rung 1").get_ydata(), factor * epochs[name][:, 1])
    hottest = named(axes, "rung 2 (hottest)")
    assert_allclose(hottest.get_ydata(), factor * epochs[name][:, -1])
    others = [line for line in axes.get_lines() if line is not coldest]
    assert coldest.get_linewidth() > 2 * min(line.get_linewidth() for line in others)
    for by in ("probabilities", "logits"):
        average = named(axes, f"average so far, by {by}").get_ydata()
        assert np.isnan(average[:2]).all()  # burn-in
        assert_allclose(average[2:], factor * epochs[f"average_{name}_{by}"][2:])


def test_colours_run_from_cold_to_hot(figures):
    axes = figures["epochs"].axes[0]
    ends = ("rung 0 (coldest)", "rung 2 (hottest)")
    cold, hot = (named(axes, end).get_color() for end in ends)
    assert cold[2] > hot[2] and cold[0] < hot[0]  # blue, yellow


@pytest.mark.slow
def test_ladder_is_per_mean_loss_in_either_unit():
    """At temperature 1 the paths in both units are the same."""
    method, problem = rx.deo_star(**LADDER, temperature=(1.0, 1.0)), tiny_problem()
    mean, total = (run(method, posed) for posed in (problem, tempered(problem)))
    ratio = mean.learning_rates / total.learning_rates
    assert_allclose(ratio, 32, rtol=1e-4)  # the records themselves differ
    one, other = (run.plot()["ladder"].axes[0].get_lines() for run in (total, mean))
    for line, expected in zip(one, other, strict=True):
        assert_allclose(line.get_ydata(), expected.get_ydata(), rtol=1e-4, atol=1e-6)


def test_a_tempered_ladder_is_that_of_the_posterior(trained):
    """Energies are totals over 32 rows, temperatures adapt, and swaps are tried every 2 steps."""
    options = {"rule": "metropolis", "adapts": "temperature", "tempers_likelihood": True}
    tempered = alter(trained, swap_every=2, **options)
    for rows in tempered._records._pending["history"]:
        rows["temperature"] = np.full_like(rows["temperature"], 3.0)
    plotted = tempered.plot()
    assert list(plotted) == [name for name in ALL if name != "buffer"]
    for heat in plotted["ladder"].axes[0].get_lines():
        assert_allclose(heat.get_ydata(), 3.0)
    assert "target" not in words(plotted["rates"]) and "attempt" in words(plotted["rates"])
    exchange = tempered.summary()["exchange"]
    assert "buffer" not in exchange and len(exchange["temperatures"]) == 3
    assert_allclose(exchange["learning_rates"], 32 * trained.learning_rates[0])
    said, usual = (dict(tables_of(run.summary())[0].rows) for run in (tempered, trained))
    assert said["rule accepts"].endswith("% of attempts") and "highest temperature" in said
    assert usual["rule accepts"].endswith("% of steps") and "buffer" in usual


@pytest.mark.slow
def test_networks_without_a_ladder_are_alike_and_have_a_mean(alone):
    plotted = alone.plot()
    assert list(plotted) == ["epochs", "predictions"]
    axes = plotted["epochs"].axes[1]
    assert_allclose(named(axes, "their mean").get_ydata(), alone.epochs["nll"].mean(axis=1))
    assert len({line.get_color() for line in axes.get_lines()[:3]}) == 1
    assert "coldest" not in words(plotted["epochs"]) and "starts" not in words(plotted["epochs"])


@pytest.mark.slow
def test_a_single_network():
    plotted = run(rx.cyc_sghmc(cycle_epochs=2), epochs=2, num_replicas=2).plot()
    assert list(plotted) == ["epochs", "predictions"]
    assert len(named(plotted["epochs"].axes[0], "the network").get_xdata()) == 4


@pytest.mark.slow
def test_nothing_is_averaged():
    plotted = run("pretrain", epochs=10).plot()
    assert list(plotted) == ["epochs"]
    assert "average" not in words(plotted["epochs"])
    assert named(plotted["epochs"].axes[0], "their mean").get_marker() == "."  # one test, one point


def test_one_epoch(trained, tmp_path):
    lengths = {"epochs": 1, "history": 1, "steps": 4, "draws": 1}
    plotted = alter(trained, lengths, {"step": np.array(4)}).plot(tmp_path)
    assert list(plotted) == ALL


def test_no_epoch_no_figure(trained, tmp_path):
    empty = {f"average.{name}": 0 * value for name, value in trained.average._asdict().items()}
    final = {**empty, "step": np.array(2)}
    stopped = alter(trained, {"epochs": 0, "history": 0, "steps": 2, "draws": 0}, final)
    assert stopped.num_epochs == 0
    assert stopped.plot(tmp_path / "none") == {}
    assert not (tmp_path / "none").exists()


def test_early_rare_and_broken_values_do_not_squeeze_the_rest():
    networks = np.tile(np.linspace(1.0, 1.5, 100)[:, None], 2)
    networks[:5], networks[50, 0], networks[60] = 90, 40, np.nan
    average = np.full((100, 1), 0.5)
    low, high = settled_range(networks, average) or (0, 0)
    assert 0.4 < low < 0.5 and 1.4 < high < 1.7
    assert_allclose(settled_range(-networks, -average), (-high, -low))
    assert settled_range(np.full((6, 1), np.nan), average) is None


def test_one_spike_of_the_coldest_network_does_not_hide_its_difference_from_the_average():
    coldest = 1.3 - 0.1 * np.linspace(0, 1, 40)
    coldest[25] = 40.0
    average = np.linspace(1.2, 1.0, 40)
    low, high = settled_range(coldest[:, None], np.column_stack([coldest, average]))
    assert low < 1.0 and 1.4 > high > coldest[8:20].max()
    assert (coldest[-1] - average[-1]) > 0.3 * (high - low)  # a third of the height
    coldest[-1] = 40.0  # what is true at the end is shown
    assert settled_range(coldest[:, None], coldest[:, None])[1] > 40
