"""The report of a training: epochs and calibration."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

import replicax as rx
from replicax.networks import predict
from replicax.networks.outcomes import coverage_by_level
from replicax.networks.report import _plot_coverage, plot_training, sections_of
from replicax.networks.tempered import tempered
from replicax.results.figure_style import panels
from replicax.results.summary import Table

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def trained() -> rx.Trained:
    """As the figures have it, so that it is compiled once."""
    options = EXCHANGING | {"epochs": 6, "burn_in": 2}
    return rx.train(tiny_problem(), NETWORK.init, **options)


def test_sections(trained):
    sections = sections_of(trained)
    titles = ["At a glance", "Epochs", "Predictions of the average", "Exchange"]
    assert [section.title for section in sections] == titles
    scores = sections[0].parts[2]
    assert isinstance(scores, Table) and scores.rows[2][0] == "average of 4, probabilities"


def test_reliability_has_counts_and_intervals(trained):
    bins = predict.reliability(trained.log_probabilities(), trained.labels)
    filled = bins.count > 0
    right, often, _ = plot_training(trained)["predictions"].axes
    assert_allclose([bar.get_height() for bar in right.patches], bins.accuracy[filled])
    ends = np.array([segment[:, 1] for segment in right.collections[0].get_segments()])
    assert_allclose(ends, predict.accuracy_interval(bins)[filled], atol=1e-6)
    assert [bar.get_height() for bar in often.patches] == bins.count.tolist()
    assert sum(bins.count) == len(trained.labels) == 12
    assert f"{bins.error:.3f}" in right.get_title(loc="left")


def test_coverage_of_a_regression():
    below = np.array([0.5, 0.04, 0.81, 0.45])
    made: Any = SimpleNamespace(
        average=SimpleNamespace(below=3 * below[:, None], weight=np.array(3.0)),
        metrics=lambda: SimpleNamespace(calibration_error=0.125),
    )
    _, right, often = panels(2)
    _plot_coverage(made, right, often)
    (line,) = right.get_lines()
    levels, inside, interval, counts = coverage_by_level(below, 21)
    assert_allclose(line.get_xydata(), np.column_stack([levels, inside]))
    (band,) = right.collections
    corners = band.get_paths()[0].vertices
    assert (corners[:, 1].min(), corners[:, 1].max()) == (interval.min(), interval.max())
    assert [bar.get_height() for bar in often.patches] == counts.tolist()
    assert counts.sum() == 4 and "0.125" in right.get_title(loc="left")


def test_learning_rates_and_temperatures_are_those_that_were_given():
    """Per mean loss and of the posterior, whatever the unit of the records."""
    rates, heats = (0.02, 0.1), (0.5, 2.0)
    method = rx.deo_star(**LADDER, temperature=heats, adapt=False)
    options = EXCHANGING | {"epochs": 2, "method": method}
    for problem in (tiny_problem(), tempered(tiny_problem())):
        run = rx.train(problem, NETWORK.init, **options)
        table = sections_of(run)[-1].parts[-1]
        assert isinstance(table, Table)
        assert [float(table.rows[end][1]) for end in (0, -1)] == pytest.approx(rates, rel=1e-3)
        assert [float(table.rows[end][2]) for end in (0, -1)] == pytest.approx(heats, rel=1e-3)
        lines = run.plot()["ladder"].axes[0].get_lines()
        assert_allclose([lines[end].get_ydata()[-1] for end in (0, -1)], heats, rtol=1e-5)


def test_a_training_writes_its_own_page(trained, tmp_path):
    assert "Predictions of the average" in trained.report(tmp_path).read_text()
