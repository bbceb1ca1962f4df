"""Figures show the numbers of the records."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from altered_runs import alter
from common import in_method
from made_up_metadata import metadata_of
from numpy.testing import assert_allclose, assert_array_equal

import replicax as rx
from replicax.results import figure_style, plots
from replicax.results.plots import verdict_rates
from replicax.run import carry

NUM_STEPS, EVERY, BURN_IN = 600, 20, 110


def bowl(x):
    return jnp.sum(x**2) / 2


def quick(target=bowl, params=None, **options):
    """A run of a few steps, without warnings about its quality."""
    params = jnp.zeros(2) if params is None else params
    options = {"num_steps": 60, "num_replicas": 4, "learning_rate": (0.01, 0.3)} | options
    options = {"buffer": 0.1, "buffer_gain": 0.1} | options  # no steps that only measure
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rx.Posterior, "warn", lambda self: None)
        return rx.sample(target, params, progress=False, **in_method(options))


@pytest.fixture(scope="module")
def posterior():
    return quick(
        rx.targets.modes25(),
        rx.targets.modes25_start,
        num_steps=NUM_STEPS,
        num_replicas=5,
        num_chains=3,
        learning_rate=(0.003, 0.6),
        history_every=EVERY,
        burn_in=BURN_IN,
        thin=2,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("figures") / "new" / "folder"


@pytest.fixture(scope="module")
def figures(posterior, folder):
    return posterior.plot(folder)


def lines(axes):
    """The lines that show data, without those across the panel and handles of a legend."""
    return [line for line in axes.get_lines() if len(line.get_xdata()) > 2]


def names(figure):
    """The components that a figure shows."""
    return [title for a in figure.axes if (title := a.get_title(loc="left"))]


def dashed(axes):
    return next(line for line in axes.get_lines() if line.get_linestyle() == "--")


def words(figure):
    return " ".join(text.get_text() for text in figure.findobj(match=_is_text))


def _is_text(artist):
    return hasattr(artist, "get_text")


def test_names_and_no_pyplot():
    code = (
        "import sys; from replicax.results import plots; assert 'matplotlib' not in sys.modules; "
        "from replicax.results.figure_style import new_figure; new_figure(2, 2); "
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_figures_are_written(figures, folder):
    assert list(figures) == ["ladder", "rates", "buffer", "paths", "trips", "draws"]
    for name in figures:
        written = (folder / f"{name}.png").read_bytes()
        assert written.startswith(b"\x89PNG") and len(written) > 5_000


def test_every_axis_is_named(figures):
    for name, figure in figures.items():
        first = figure.axes[0]
        assert first.get_ylabel() or first.get_title(loc="left") == "params[0]", name
        assert any(axes.get_xlabel() for axes in figure.axes), name
        assert figure.axes[0].get_title(loc="left"), name


def test_ladder_is_the_history_of_learning_rates(posterior, figures):
    over_time, at_end, key = figures["ladder"].axes
    assert key.get_ylabel() == "rung (0 = coldest)"
    drawn = lines(over_time)
    assert len(drawn) == 5
    assert over_time.get_yscale() == "log" and over_time.get_ylabel() == "learning rate"
    for rung, line in enumerate(drawn):
        assert_array_equal(line.get_xdata(), np.arange(EVERY, NUM_STEPS + 1, EVERY))
        assert_allclose(line.get_ydata(), posterior.history["learning_rate"][0, :, rung])
    places = at_end.collections[0].get_offsets()
    assert_array_equal(places[:, 0], np.tile(np.arange(5), 3))
    assert_allclose(places[:, 1], posterior.learning_rates.ravel())


def test_colours_run_from_cold_to_hot(figures):
    colours = np.array([line.get_color() for line in lines(figures["ladder"].axes[0])])
    red, blue = colours[:, 0], colours[:, 2]
    assert np.all(np.diff(red) > 0) and blue[0] > blue[-1]


def test_rates_are_differences_of_counts(posterior, figures):
    over_time, at_end, key = figures["rates"].axes
    assert key.get_ylabel() == "pair (0 = coldest)" and key.get_ylim() == (-0.5, 3.5)
    assert_array_equal(key.get_yticks(), [0, 1, 2, 3])
    drawn = lines(over_time)
    assert len(drawn) == 4
    steps = drawn[0].get_xdata()
    assert_array_equal(steps, np.arange(120, NUM_STEPS + 1, EVERY))
    counts = posterior.history["verdicts"]
    for pair, line in enumerate(drawn):
        rate = line.get_ydata()
        assert rate[0] == pytest.approx(counts[:, 5, pair].mean() / (120 - BURN_IN))
        assert rate[-1] == pytest.approx((counts[:, -1] - counts[:, -2])[:, pair].mean() / EVERY)
        steps_counted = np.diff(steps, prepend=BURN_IN)
        assert np.sum(rate * steps_counted) == pytest.approx(counts[:, -1, pair].mean())
    assert_array_equal(dashed(over_time).get_ydata(), [0.4, 0.4])
    says_yes, swaps = (cloud.get_offsets() for cloud in at_end.collections)
    assert_allclose(says_yes[:, 1], posterior.verdict_rate.ravel())
    assert_allclose(swaps[:, 1], posterior.window_swap_rate.ravel())
    assert f"window of {posterior.window} steps" in words(figures["rates"])


def test_rates_of_long_histories_are_averaged():
    steps = np.arange(1, 1001) * 10
    counts = np.cumsum(np.full((1, 1000, 1), 4), axis=1)
    history = {"step": steps, "verdicts": counts}
    ends, rates = verdict_rates(history, counted_from=0, swap_every=1)
    assert ends.size == 50 and ends[-1] == 10_000
    assert_allclose(rates, 0.4)


def test_rates_leave_out_a_very_short_interval_after_burn_in():
    steps = np.array([100, 200, 300])
    counts = np.array([1, 41, 81]).reshape(1, 3, 1)
    history = {"step": steps, "verdicts": counts}
    ends, rates = verdict_rates(history, counted_from=99, swap_every=1)
    assert_array_equal(ends, [200, 300])
    assert_allclose(rates.ravel(), [41 / 101, 0.4])


def test_rates_over_time_divide_by_the_attempts_that_there_were():
    """Attempts at steps 0, 10, 20, ..., a point of the history every four steps: a pair that always
    says yes has the rate 1 in every interval."""
    steps = np.arange(4, 804, 4)
    attempts = -(-steps // 10)
    history = {"step": steps, "verdicts": attempts.reshape(1, -1, 1)}
    ends, rates = verdict_rates(history, counted_from=0, swap_every=10)
    assert ends.size > 5 and ends[-1] == 800
    assert_array_equal(rates, np.ones_like(rates))
    short = {"step": steps[:3], "verdicts": attempts[:3].reshape(1, -1, 1)}
    assert_array_equal(verdict_rates(short, counted_from=0, swap_every=10)[1], [[[1.0]]])


def test_rates_are_per_attempt_in_both_panels(posterior):
    """With attempts every second step, of temperatures that adapt to no target."""
    options = {"swap_every": 2, "rule": "metropolis", "adapts": "temperature"}
    rare = alter(posterior, **options)
    figure = plots.plot_posterior(rare)["rates"]
    usual = plots.plot_posterior(posterior)["rates"]
    one, other = (x.axes[0].get_lines()[0].get_ydata() for x in (figure, usual))
    assert_allclose(one, 2 * np.asarray(other))
    assert "per attempt" in words(figure) and "per step" not in words(figure)
    assert "target" not in words(figure) and "target" in words(usual)


def test_buffer_has_a_zero_line(posterior, figures):
    axes = figures["buffer"].axes[0]
    assert_array_equal(axes.get_lines()[0].get_ydata(), [0, 0])
    low, high = axes.get_ylim()
    assert low < 0 < high
    assert_allclose([line.get_ydata() for line in lines(axes)], posterior.history["buffer"])
    assert "chain 2" in words(figures["buffer"])


def test_paths_show_all_replicas_and_mark_round_trips(posterior, figures):
    axes = figures["paths"].axes[0]
    rung_of = posterior.rung_of[0]
    *drawn, marks = axes.get_lines()
    assert len(drawn) == 5
    steps = drawn[0].get_xdata()
    assert steps[-1] == NUM_STEPS
    shown = np.sort([line.get_ydata()[1:] for line in drawn], axis=0)
    assert_array_equal(shown, np.tile(np.arange(5), (len(steps) - 1, 1)).T)  # a permutation
    one = drawn[-1].get_ydata()
    assert any(np.array_equal(one[1:], rung_of[steps[1:] - 1, replica]) for replica in range(5))
    assert {line.get_color() for line in drawn[:-1]}.isdisjoint({drawn[-1].get_color()})
    for end in marks.get_xdata():
        assert one[list(steps).index(end)] == 0
    assert f"{len(marks.get_xdata())} round trip" in words(figures["paths"])


def test_paths_thin_themselves_before_they_are_solid():
    """30 replicas that go up and down without a pause: few are grey, over a part of the steps."""
    walk = np.abs((np.arange(20_000)[:, None] + 2 * np.arange(30)) % 58 - 29)
    axes = figure_style.new_figure(10, 3.6).add_subplot()
    plots.draw_paths(axes, walk)
    *drawn, _ = axes.get_lines()
    assert 3 <= len(drawn) < 10
    moves = [np.count_nonzero(np.diff(line.get_ydata())) for line in drawn]
    assert max(moves) <= 450 and sum(moves) < 3000
    (label,) = (text.get_text() for text in axes.get_legend().get_texts())
    assert f"{len(drawn) - 1} of 29 others in grey" in label
    calm = figure_style.new_figure(10, 3.6).add_subplot()
    plots.draw_paths(calm, np.repeat(walk[:30], 500, axis=0))  # a move in 500 steps
    assert len(calm.get_lines()) == 31 and calm.get_lines()[0].get_xdata()[0] == 0


@pytest.mark.parametrize("num_replicas", [2, 3, 6])
def test_trip_ends_agree_with_the_count_of_a_run(num_replicas):
    rng = np.random.default_rng(num_replicas)
    rung_of = np.empty((1, 2000, num_replicas), np.int8)
    now = np.arange(num_replicas)
    for step in range(2000):
        rungs = np.arange(num_replicas)
        cold = rng.integers(num_replicas - 1)
        rungs[[cold, cold + 1]] = cold + 1, cold
        now = rung_of[0, step] = rungs[now]
    path = np.concatenate([np.arange(num_replicas)[None], rung_of[0]])
    (count,) = carry.round_trips(path[None])
    assert len(np.concatenate(carry.trip_ends(rung_of[0]))) == count > 10


def test_trip_ends_of_a_known_path():
    """Up and down a ladder of 3; replica 2 starts hot, so its first way down is no trip."""
    replica_0 = [1, 2, 2, 1, 0, 0, 1, 2, 1, 0]
    replica_2 = [1, 0, 0, 1, 2, 2, 1, 0, 1, 2]
    rung_of = np.array([replica_0, np.ones(10), replica_2], dtype=int).T
    ends = carry.trip_ends(rung_of)
    assert [steps.tolist() for steps in ends] == [[5, 10], [], [8]]


def test_trips_end_at_the_counts_beside_lemma_1(posterior, figures):
    axes = figures["trips"].axes[0]
    assert [line.get_ydata()[-1] for line in lines(axes)] == posterior.round_trips.tolist()
    expected = posterior.summary()["round_trips_per_1000_steps_expected"]
    per_1000 = dashed(axes).get_ydata()[-1] / (NUM_STEPS - BURN_IN) * 1000
    assert per_1000 == pytest.approx(np.mean(expected), abs=1e-3)


def test_draws_say_what_they_leave_out_and_take_names():
    start = {"a": jnp.zeros(3), "b": jnp.zeros(()), "c": jnp.zeros((2, 2)), "d": jnp.zeros(1)}
    run = quick(lambda x: sum(jnp.sum(leaf**2) for leaf in x.values()), start, num_replicas=2)

    def shown(var_names=None):
        figure = plots._plot_draws(run, var_names)
        return names(figure), figure._suptitle

    labels, left_out = shown()
    assert labels == ["a[0]", "a[1]", "a[2]", "b", "energy"]
    assert left_out.get_text() == "4 of 9 parameters (var_names chooses)"
    labels, left_out = shown(["c[1, 0]", "b"])
    assert labels[:3] == ["c[1, 0]", "b", "energy"]
    assert left_out.get_text().startswith("2 of 9")
    assert shown("a")[0] == ["a[0]", "a[1]", "a[2]", "energy"]
    assert shown(("a", "b", "c", "d"))[1] is None
    for wrong, sentence in (
        ("e", r"there are a\[0\], a\[1\], a\[2\], b, c"),
        (["a[3]"], r"there are a\[0\], a\[1\], a\[2\]\."),
        (3, "var_names is 3"),
        ([1], r"var_names is \[1\]"),
    ):
        with pytest.raises(ValueError, match=sentence):
            plots._plot_draws(run, wrong)


def test_draws_have_traces_marginals_ranks_and_a_map(posterior, figures):
    axes = figures["draws"].axes
    assert names(figures["draws"])[:3] == ["params[0]", "params[1]", "energy"]
    for chain, line in enumerate(lines(axes[3])):
        assert_allclose(line.get_ydata(), posterior.draws[chain, :, 1])
    for patch in axes[4].patches:
        height, edges, _ = patch.get_data()
        assert np.sum(height * np.diff(edges)) == pytest.approx(1)
    for patch in axes[5].patches:
        assert patch.get_data()[0].mean() == pytest.approx(1)
    hexagons = axes[9].collections[0]
    assert hexagons.get_array().sum() == posterior.num_draws * posterior.num_chains


def test_short_runs_have_no_history(posterior):
    plotted = alter(posterior, {"history": 0}).plot()
    assert list(plotted) == ["ladder", "rates", "paths", "trips", "draws"]
    for name in ("ladder", "rates"):
        assert "no history yet" in words(plotted[name]) and not lines(plotted[name].axes[0])
    assert plotted["ladder"].axes[1].collections[0].get_offsets().shape == (15, 2)


def test_after_one_step(posterior, tmp_path):
    once = alter(posterior, {"steps": 1, "history": 0, "draws": 1}, {"step": np.array(1)})
    plotted = once.plot(tmp_path)
    assert len(list(tmp_path.iterdir())) == len(plotted) == 5


def test_without_draws(posterior):
    assert "draws" not in alter(posterior, {"draws": 0}).plot()


def test_without_exchange(posterior):
    assert list(alter(posterior, schedule="none").plot()) == ["ladder", "draws"]
    alone = quick(num_replicas=1, learning_rate=0.01, schedule="none", history_every=20).plot()
    assert list(alone) == ["ladder", "draws"]
    assert len(lines(alone["ladder"].axes[0])) == 1


@pytest.mark.parametrize("adapts", ["temperature", None])
def test_temperatures_where_they_make_the_ladder(posterior, adapts):
    final = {
        "learning_rates": np.full((3, 5), 0.1),
        "temperatures": np.tile(np.geomspace(1, 9, 5), (3, 1)),
    }
    run = alter(posterior, final=final, rule="metropolis", adapts=adapts)
    plotted = run.plot()
    assert "buffer" not in plotted
    assert plotted["ladder"].axes[0].get_ylabel() == "temperature"
    for rung, line in enumerate(lines(plotted["ladder"].axes[0])):
        assert_allclose(line.get_ydata(), run.history["temperature"][0, :, rung])
    assert ("self-tuned" if adapts else "fixed") in words(plotted["ladder"])
    assert "target" not in words(plotted["rates"])  # temperatures adapt to equal rejection


def test_lemma_1_is_left_out_where_it_does_not_apply(posterior, figures):
    assert "Lemma" in words(figures["trips"])
    assert "Lemma" not in words(alter(posterior, schedule="seo").plot()["trips"])


@pytest.mark.slow
def test_many_replicas_are_thinned_out():
    rates = dict(learning_rate=(0.01, 0.3), history_every=10)
    plotted = quick(num_steps=30, num_replicas=1024, **rates).plot()
    drawn = lines(plotted["ladder"].axes[0])
    assert len(drawn) == 32
    assert drawn[0].get_ydata()[0] == pytest.approx(0.01)
    assert drawn[-1].get_ydata()[0] == pytest.approx(0.3)
    assert len(lines(plotted["rates"].axes[0])) == 32
    assert len(lines(plotted["paths"].axes[0])) <= 33


@pytest.mark.slow
def test_two_replicas_many_chains_and_parameters():
    run = quick(
        lambda tree: sum(bowl(leaf) for leaf in jax.tree.leaves(tree)),
        {"weights": jnp.zeros((50, 60)), "a_name_that_goes_on_and_on": jnp.zeros(1)},
        num_replicas=2,
        num_chains=9,
        thin=10,
        history_every=20,
    )
    plotted = run.plot()
    assert len(lines(plotted["rates"].axes[0])) == 1
    assert len(lines(plotted["buffer"].axes[0])) == 9
    assert "chain" not in words(plotted["buffer"])
    shown = names(plotted["draws"])
    assert len(shown) == 5 and shown[-1] == "energy"
    assert all(len(name) <= 40 for name in shown)


def test_draws_that_are_not_finite_are_left_out(posterior, tmp_path):
    run = alter(posterior)
    draws = run._records.read("draws", "params.params").copy()
    draws[::2] = np.inf
    draws[1, 0] = np.nan
    run._records._pending["draws"][0]["params.params"] = draws
    plotted = run.plot(tmp_path)
    hexagons = plotted["draws"].axes[9].collections[0]
    assert hexagons.get_array().sum() == np.isfinite(draws).all(axis=-1).sum() > 0


SAME = np.full((2, 3), 0.1)
RATES = np.array([[0.1, 0.2, 0.4], [0.1, 0.3, 0.4]])
HEATS = np.array([[1.0, 2.0, 9.0], [1.0, 3.0, 9.0]])


def made_up(
    rates: np.ndarray = RATES, heats: np.ndarray = SAME, num_replicas: int = 3, **about: Any
) -> Any:
    return SimpleNamespace(
        metadata=metadata_of(**about),
        num_replicas=num_replicas,
        learning_rates=rates,
        temperatures=heats,
        energy_scale=32.0,
        temperature_scale=0.5,
        window=about.get("window", 1),
    )


@pytest.mark.parametrize(
    ("known", "name"),
    [
        ({"adapts": "learning_rate"}, "learning_rate"),
        ({"adapts": None}, "learning_rate"),
        ({"adapts": None, "rates": SAME, "heats": HEATS}, "temperature"),
        ({"adapts": None, "heats": HEATS}, "temperature"),  # rates are tuned for each rung
        ({"adapts": "learning_rate", "heats": HEATS}, "learning_rate"),
        ({"adapts": "temperature", "rates": SAME, "heats": SAME}, "temperature"),
        ({"adapts": None, "heats": HEATS - 1}, "learning_rate"),  # SGD on the coldest rung
        ({"adapts": None, "heats": HEATS, "num_replicas": 1}, "learning_rate"),
    ],
)
def test_what_differs_by_rung_makes_the_ladder(known: dict[str, Any], name: str) -> None:
    assert plots.name_of_ladder(made_up(**known)) == name


def test_densities_are_those_of_finite_draws() -> None:
    values = np.array([[0.0, 1.0, 2.0, np.inf], [2.0, np.nan, 4.0, 4.0]])
    edges = plots.bin_edges(values)
    assert len(edges) == 11 and (edges[0], edges[-1]) == (0, 4)
    for chain in values:
        assert np.sum(plots.density(chain, edges) * np.diff(edges)) == pytest.approx(1)
    broken = np.full((1, 3), np.nan)
    assert not plots.density(broken, plots.bin_edges(broken)).any()


@pytest.mark.parametrize("length", [1, 7, 8, 9, 1000])
def test_places_are_thinned_evenly(length: int) -> None:
    kept = plots.thinned(length, 8)
    assert kept[0] == 0 and len(kept) <= 8 and len(np.unique(np.diff(kept))) <= 1
    shown = figure_style.some(length, 8)
    assert (shown[0], shown[-1], len(shown)) == (0, length - 1, min(length, 8))
