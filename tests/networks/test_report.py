"""The report of a training: epochs and calibration."""

import pytest
from numpy.testing import assert_allclose
from plotted_numbers import numbers
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_problem

import replicax as rx
from replicax.networks import predict
from replicax.networks.report import build_page
from replicax.networks.tempered import tempered
from replicax.page.render import Chart

pytest.importorskip("plotly")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def trained() -> rx.Trained:
    """As the figures have it, so that it is compiled once."""
    options = EXCHANGING | {"epochs": 6, "burn_in": 2}
    return rx.train(tiny_problem(), NETWORK.init, **options)


@pytest.fixture(scope="module")
def page(trained):
    return build_page(trained)


def chart(page, name) -> Chart:
    parts = [part for section in page.sections for part in section.parts]
    return next(part for part in parts if isinstance(part, Chart) and part.name == name)


def rows(chart: Chart) -> list[tuple[str, ...]]:
    assert chart.table is not None
    return chart.table.rows


def test_sections(page):
    names = ["glance", "epochs", "predictions", "exchange"]
    assert [section.name for section in page.sections] == names
    average = page.sections[0].parts[2].rows[2]
    assert average[0] == "average of 4, probabilities"


def test_epochs_are_those_of_the_records(trained, page):
    for name in ("accuracy", "nll"):
        table = rows(chart(page, f"epochs-{name}"))
        assert_allclose([float(row[1]) for row in table], trained.epochs[name][:, 0], atol=6e-5)
        assert [row[2] for row in table[:2]] == ["", ""], "burn-in"
        average = trained.epochs[f"average_{name}_probabilities"][2:]
        assert_allclose([float(row[2]) for row in table[2:]], average, atol=6e-5)


def test_reliability_has_counts(trained, page):
    bins = predict.reliability(trained.log_probabilities(), trained.labels)
    table = rows(chart(page, "reliability"))
    assert sum(int(row[1]) for row in table) == len(trained.labels) == 12
    filled = bins.count > 0
    assert_allclose([float(row[3]) for row in table], bins.accuracy[filled], atol=6e-4)
    assert [int(row[1]) for row in table] == bins.count[filled].tolist()
    accuracy = chart(page, "reliability").figures[""]["data"][0]
    low, high = predict.accuracy_interval(bins)[filled].T
    heights, error = numbers(accuracy["y"]), accuracy["error_y"]
    assert_allclose(heights - numbers(error["arrayminus"]), low, atol=1e-6)
    assert_allclose(heights + numbers(error["array"]), high, atol=1e-6)
    texts = chart(page, "counts").figures[""]["data"][0]["text"]
    assert [int(text or 0) for text in texts] == bins.count.tolist()


def test_learning_rates_and_temperatures_are_those_that_were_given():
    """Per mean loss and of the posterior, whatever the unit of the records."""
    rates, heats = (0.02, 0.1), (0.5, 2.0)
    method = rx.deo_star(**LADDER, temperature=heats, adapt=False)
    options = EXCHANGING | {"epochs": 2, "method": method}
    for problem in (tiny_problem(), tempered(tiny_problem())):
        run = rx.train(problem, NETWORK.init, **options)
        table = rows(chart(build_page(run), "ladder"))
        assert [float(table[end][1]) for end in (0, -1)] == pytest.approx(rates, rel=1e-3)
        assert [float(table[end][2]) for end in (0, -1)] == pytest.approx(heats, rel=1e-3)
        lines = chart(build_page(run), "ladder").figures[""]["data"]
        assert_allclose([numbers(lines[end]["y"])[-1] for end in (0, -1)], heats, rtol=1e-5)


def test_a_training_writes_its_own_page(trained, tmp_path):
    assert "Predictions of the average" in trained.report(tmp_path).read_text()
