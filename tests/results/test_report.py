"""The report of a run shows its numbers and its warnings; a browser can show it."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered_runs import alter, with_properties
from chromium import Browser, needs_chromium
from command_line import run_failing, run_json
from numpy.testing import assert_allclose, assert_array_equal
from plotted_numbers import numbers
from recorded_progress import record

import replicax as rx
from replicax.cli.live import LivePages
from replicax.page.render import Chart, Page, Paths, Table, Warnings
from replicax.results import report as sections
from replicax.results.plotted import verdict_rates
from replicax.results.report import build_page
from replicax.results.summary import run_table
from replicax.run.carry import trip_ends

pytest.importorskip("plotly")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def posterior() -> rx.Posterior:
    return record()[0]


@pytest.fixture(scope="module")
def page(posterior) -> Page:
    return build_page(posterior)


@pytest.fixture(scope="module")
def folder(posterior, tmp_path_factory) -> Path:
    return posterior.save(tmp_path_factory.mktemp("runs") / "run")


def section(page: Page, name: str) -> Any:
    return next(section for section in page.sections if section.name == name)


def part(page: Page, kind: type, name: str = "") -> Any:
    parts = [part for section in page.sections for part in section.parts]
    return next(p for p in parts if isinstance(p, kind) and (not name or p.name == name))


def trace(chart: Chart, place: int, choice: str = "") -> tuple[np.ndarray, np.ndarray]:
    trace = chart.figures[choice]["data"][place]
    return numbers(trace["x"]), numbers(trace["y"])


def test_sections(page):
    names = ["glance", "draws", "pairs", "exchange"]
    assert [section.name for section in page.sections] == names
    assert "3,000 of 3,000 steps, 3 replicas" in page.subtitle


def test_a_glance_shows_the_summary(posterior, page):
    summary = posterior.summary()
    facts = dict(part(page, Table).rows)
    assert facts["steps x replicas x chains"] == "3,000 x 3 x 2"
    worst = max(row["rhat"] for row in summary["parameters"].values())
    assert facts["R-hat over chains, largest"] == f"{worst:.3f}"
    expected = summary["round_trips_per_1000_steps_expected"]
    assert facts["  Lemma 1 at the measured swap rates"] == f"{expected[0]:.3g}, {expected[1]:.3g}"
    assert set(facts) >= {name for name, _ in run_table(summary).rows}


def test_warnings_say_what_is_wrong_and_what_to_do(posterior, page):
    problems = posterior.problems()
    warnings = part(page, Warnings)
    assert problems and len(warnings.sentences) == len(problems)
    for (what, remedy), problem in zip(warnings.sentences, problems, strict=True):
        assert remedy and problem.startswith(what[:-1])
    fine = with_properties(posterior, problems=lambda: [])
    shown = part(build_page(fine), Warnings)
    assert shown.sentences == [] and shown.if_none.startswith("No check found")


def test_marginals_hold_all_draws(posterior, page):
    chart = part(page, Chart, "marginals")
    for chain in range(2):
        x, y = trace(chart, chain, "a[0]")
        edges, heights = x[::2], y[1:-1:2]
        expected, _ = np.histogram(posterior.components()["a[0]"][chain], edges, density=True)
        assert_allclose(heights, expected, rtol=0.05)
        assert_allclose(np.sum(heights * np.diff(edges)), 1, rtol=1e-3)


def test_traces_and_ranks(posterior, page):
    x, y = trace(part(page, Chart, "traces"), 1, "b")
    kept = posterior.draw_steps[:: -(-posterior.num_draws // sections._TRACE_POINTS)]
    assert_array_equal(x, kept)
    assert_allclose(y, posterior.components()["b"][1, kept - kept[0]])
    assert len(x) <= sections._TRACE_POINTS
    _, heights = trace(part(page, Chart, "ranks"), 0, "b")
    assert_allclose(heights[1:-1:2].mean(), 1, rtol=1e-5)
    apart = np.stack([np.arange(100.0), 100 + np.arange(100.0)])
    heights = numbers(sections._ranks(apart)["data"][0]["y"])[1:-1:2]
    assert_allclose(heights, [2] * 10 + [0] * 10)


def test_index_paths_are_those_of_the_run(posterior, page):
    paths = part(page, Paths)
    assert paths.every == 1 and "every step" in paths.note
    assert_array_equal(paths.rung_of, posterior.rung_of)
    assert_array_equal(paths.trip_ends[1][2], trip_ends(posterior.rung_of[1])[2])


def test_long_runs_are_thinned(posterior, monkeypatch):
    monkeypatch.setattr(sections, "_PATH_BYTES", 3000)
    paths = part(build_page(posterior), Paths)
    assert paths.every == 6 and "one step in 6" in paths.note
    assert_array_equal(paths.rung_of, posterior.rung_of[:, 5::6])


def test_ladder_rates_and_trips_over_time(posterior, page):
    history = posterior.history
    x, y = trace(part(page, Chart, "ladder"), 1)
    assert set(x) <= set(history["step"])
    assert_allclose(y[-1], history["learning_rate"][0, -1, 1], rtol=1e-5)
    steps, rates = verdict_rates(history, posterior.metadata.resolved.counted_from, swap_every=1)
    x, y = trace(part(page, Chart, "rates"), 0)
    assert_array_equal(x, steps)
    assert_allclose(y, rates[:, :, 0].mean(axis=0), rtol=1e-5)
    trips = part(page, Chart, "trips")
    for chain in range(2):
        x, y = trace(trips, chain)
        assert y[-1] == posterior.round_trips[chain] and x[-1] == posterior.num_steps
    expected = np.mean(posterior.summary()["round_trips_per_1000_steps_expected"])
    _, line = trace(trips, 2)
    assert_allclose(line, [0, expected * posterior.counted_steps / 1000], rtol=1e-5)


@pytest.mark.parametrize(
    "lengths", [{"draws": 0}, {"draws": 1}, {"history": 0}, {"history": 1}], ids=str
)
def test_runs_that_have_just_begun(posterior, lengths):
    page = build_page(alter(posterior, lengths))
    assert {section.name for section in page.sections} >= {"glance", "exchange"}


def test_where_the_report_goes(posterior, folder, tmp_path):
    assert rx.load(folder).report() == folder / "report.html"
    assert posterior.report(tmp_path) == tmp_path / "report.html"
    assert (tmp_path / "report.html").stat().st_size < 6_000_000
    with pytest.raises(ValueError, match="out='report.html'"):
        posterior.report()
    for wrong in (3, "", "a.png"):
        with pytest.raises(ValueError, match="out is"):
            posterior.report(wrong)


def test_the_command_writes_the_page(capsys, folder, tmp_path):
    out = tmp_path / "page.html"
    answer = run_json(capsys, "report", folder, "--out", out)
    assert answer == {"report": str(out), "bytes": out.stat().st_size}
    assert "There is no folder" in run_failing(capsys, "report", tmp_path / "nothing")
    assert "There is no folder" in run_failing(capsys, "watch", tmp_path / "nothing")


def test_without_plotly_it_is_said_what_to_install(monkeypatch, posterior, tmp_path):
    for name in ("plotly", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"replicax\[report\]"):
        posterior.report(tmp_path)


def test_live_pages_wait_follow_and_survive(monkeypatch, folder, tmp_path):
    """A folder without a state; then one; then one that is just being rewritten."""
    pages = LivePages(tmp_path)
    first = pages.version()
    assert "has not saved its first checkpoint yet" in pages.page()
    for name in ("run.json", "records.zarr", "commits"):
        (tmp_path / name).symlink_to(folder / name)
    assert pages.version() != first
    shown = pages.page()
    assert "3,000 of 3,000 steps" in shown and f'data-version="{pages.version()}"' in shown
    assert pages.page() is shown, "nothing is built twice"
    assert not (tmp_path / "lock").exists()
    monkeypatch.setattr(LivePages, "version", lambda _: "newer")

    def rewritten(_: Any) -> None:
        raise rx.run.storage.files.Damaged("part of the records is missing")

    monkeypatch.setattr("replicax.cli.live.load", rewritten)
    assert pages.page() is shown


def test_plotly_is_imported_when_it_is_needed():
    top = re.compile(r"^\s*(import|from) plotly", re.MULTILINE)
    sources = Path(rx.__file__).parent.rglob("*.py")
    assert not [path for path in sources if top.search(path.read_text())]


@needs_chromium
def test_a_browser_shows_the_page_and_the_slider_moves_the_path(folder):
    with Browser() as browser:
        tab = browser.open(rx.load(folder).report().as_uri(), width=390, dark=True)
        assert tab.problems() == [] and len(tab.requests()) == 1
        assert tab.value("document.documentElement.scrollWidth") == 390
        charts = tab.value("document.querySelectorAll('.plot').length")
        drawn = (
            "[...document.querySelectorAll('.plot')].filter(x => x.querySelector('.trace, .hm'))"
        )
        assert tab.value(f"{drawn}.length") == charts == 11
        end = "document.getElementById('paths').data[1].x.at(-1)"
        assert tab.value(end) == 3000
        tab.press("Home", 36, "paths-step")
        assert tab.value(end) == 1
        tab.press("PageUp", 33, "paths-step")
        at = tab.value(end)
        assert 1 < at < 3000
        rung = rx.load(folder).rung_of[0, at - 1].tolist()
        assert tab.value("document.getElementById('paths').data[1].y.at(-1)") == rung[0]
        words = tab.value("document.getElementById('paths-words').textContent")
        assert words.startswith(f"Step {at:,}: replica 0 is on rung {rung[0]}")
        items = "[...document.querySelectorAll('#paths-rungs li')]"
        shown = tab.value(f"{items}.map(item => Number(item.textContent))")
        assert shown == np.argsort(rung).tolist()
