"""Figures of a training show the numbers of its records."""

import numpy as np
import pytest
from altered_runs import alter
from numpy.testing import assert_allclose, assert_array_equal
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

import replicax as rx
from replicax.networks import plots as training_plots
from replicax.networks.summary import _exchange_line
from replicax.networks.tempered import tempered
from replicax.networks.train import train
from replicax.results import figure_style

EPOCHS = 6
ALL = ["epochs", "ladder", "exchange", "reliability", "reliability-logits"]


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


def test_colours_have_a_key(figures):
    for name, label in (("ladder", "rung (0 = coldest)"), ("exchange", "pair (0 = coldest)")):
        assert any(axes.get_ylabel() == label for axes in figures[name].axes), name


def test_ladder_is_the_history_by_epoch(trained, figures):
    rates, buffer, _ = figures["ladder"].axes
    for rung, line in enumerate(rates.get_lines()):
        assert_array_equal(line.get_xdata(), np.arange(1, EPOCHS + 1))
        assert_allclose(line.get_ydata(), trained.history["learning_rate"][0, :, rung])
    assert rates.get_yscale() == "log"
    assert_allclose(buffer.get_lines()[1].get_ydata(), trained.history["buffer"][0])


@pytest.mark.slow
def test_ladder_is_per_mean_loss_in_either_unit():
    """At temperature 1 the paths in both units are the same."""
    method, problem = rx.deo_star(**LADDER, temperature=(1.0, 1.0)), tiny_problem()
    mean, total = (run(method, posed) for posed in (problem, tempered(problem)))
    ratio = mean.learning_rates / total.learning_rates
    assert_allclose(ratio, 32, rtol=1e-4)  # the records themselves differ
    both = total.plot()["ladder"].axes[:2], mean.plot()["ladder"].axes[:2]
    for one, other in zip(*both, strict=True):
        for line, expected in zip(one.get_lines(), other.get_lines(), strict=True):
            assert_allclose(line.get_ydata(), expected.get_ydata(), rtol=1e-4, atol=1e-6)


def test_exchange_shows_both_rates_and_the_index_process(trained, figures):
    over_time, verdicts, swaps, paths, _ = figures["exchange"].axes
    assert_allclose(verdicts.collections[0].get_offsets()[:, 1], trained.verdict_rate[0])
    assert_allclose(swaps.collections[0].get_offsets()[:, 1], trained.window_swap_rate[0])
    assert named(over_time, "target 0.3").get_ydata() == [0.3, 0.3]
    shown = words(figures["exchange"])
    trips = int(trained.round_trips.sum())
    assert "window of 2" in shown and f"{trips} round trip" in shown
    chosen = paths.get_lines()[-2]
    steps, rungs = chosen.get_xdata(), chosen.get_ydata()
    rung_of = trained.rung_of[0]
    assert any(np.array_equal(rungs[1:], rung_of[steps[1:] - 1, r]) for r in range(3))
    assert paths.get_xlabel() == "epoch"
    labels = {
        label.get_text(): at for label, at in zip(paths.get_xticklabels(), paths.get_xticks())
    }
    assert labels["4"] == 16  # steps


def test_a_tempered_ladder_is_that_of_the_posterior(trained):
    """Energies are totals over 32 rows, temperatures adapt, and swaps are tried every 2 steps."""
    options = {"rule": "metropolis", "adapts": "temperature", "tempers_likelihood": True}
    tempered = alter(trained, swap_every=2, **options)
    history = trained.history
    for rows in tempered._records._pending["history"]:
        rows["temperature"] = np.full_like(rows["temperature"], 3.0)
    plotted = tempered.plot()
    temperatures, rates, _ = plotted["ladder"].axes
    for rung, (heat, rate) in enumerate(zip(temperatures.get_lines(), rates.get_lines())):
        assert_allclose(heat.get_ydata(), 3.0)
        assert_allclose(rate.get_ydata(), 32 * history["learning_rate"][0, :, rung])
    assert "uffer" not in words(plotted["ladder"])
    assert "target" not in words(plotted["exchange"]) and "attempt" in words(plotted["exchange"])
    exchange = tempered.summary()["exchange"]
    assert "buffer" not in exchange and len(exchange["temperatures"]) == 3
    assert_allclose(exchange["learning_rates"], 32 * trained.learning_rates[0])
    assert "% of attempts, temperatures up to" in _exchange_line(exchange)
    assert "% of steps, buffer" in _exchange_line(trained.summary()["exchange"])


def test_intervals_are_long_enough_for_a_few_verdicts(trained):
    """8 verdicts at a rate of 0.3 in 4 steps per epoch need 7 epochs."""
    thinned = training_plots._thinned(trained, trained.history)
    assert_array_equal(thinned["step"], [4 * EPOCHS])
    often = alter(trained, target_swap_rate=0.99)
    steps = training_plots._thinned(often, often.history)["step"]
    assert_array_equal(steps, [8, 16, 24])
    assert thinned["verdicts"][0, -1].tolist() == trained._final("verdicts")[0].tolist()


def test_reliability_is_that_of_both_averages(trained, figures):
    for by, name in (("probabilities", "reliability"), ("logits", "reliability-logits")):
        error = trained.metrics(by).calibration_error
        assert f"error {error:.3f}" in words(figures[name])
        assert f"Average of {EPOCHS - 2} networks by {by}" in words(figures[name])


@pytest.mark.slow
def test_networks_without_a_ladder_are_alike_and_have_a_mean(alone):
    plotted = alone.plot()
    assert list(plotted) == ["epochs", "reliability", "reliability-logits"]
    axes = plotted["epochs"].axes[1]
    assert_allclose(named(axes, "their mean").get_ydata(), alone.epochs["nll"].mean(axis=1))
    assert len({line.get_color() for line in axes.get_lines()[:3]}) == 1
    assert "coldest" not in words(plotted["epochs"]) and "starts" not in words(plotted["epochs"])


@pytest.mark.slow
def test_a_single_network():
    plotted = run(rx.cyc_sghmc(cycle_epochs=2), epochs=2, num_replicas=2).plot()
    assert list(plotted) == ["epochs", "reliability", "reliability-logits"]
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
    assert plotted["exchange"].axes[3].get_xlabel() == "step"


def test_no_epoch_no_figure(trained, tmp_path):
    empty = {f"average.{name}": 0 * value for name, value in trained.average._asdict().items()}
    final = {**empty, "step": np.array(2)}
    stopped = alter(trained, {"epochs": 0, "history": 0, "steps": 2, "draws": 0}, final)
    assert stopped.num_epochs == 0
    assert stopped.plot(tmp_path / "none") == {}
    assert not (tmp_path / "none").exists()


def test_early_rare_and_broken_values_do_not_squeeze_the_rest():
    axes = figure_style.new_figure(3, 3).add_subplot()
    axes.set_title("NLL", loc="left")
    networks = np.tile(np.linspace(1.0, 1.5, 100)[:, None], 2)
    networks[:5], networks[50, 0], networks[60] = 90, 40, np.nan
    average = np.full((100, 1), 0.5)
    training_plots._set_limits(axes, networks, average)
    low, high = axes.get_ylim()
    assert 0.4 < low < 0.5 and 1.4 < high < 1.7
    assert axes.get_title(loc="left") == "NLL (peaks at 40)"
    axes.set_title("Accuracy", loc="left")
    training_plots._set_limits(axes, -networks, -average)
    assert axes.get_title(loc="left") == "Accuracy (dips to -40)"
    axes.set_ylim(low, high)
    training_plots._set_limits(axes, networks[61:] + 3, networks[61:] + 3)
    training_plots._set_limits(axes, np.full((6, 1), np.nan), average)
    assert axes.get_ylim() == (low, high)  # neither has anything to leave out
