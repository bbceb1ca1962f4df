"""The report of a run shows its numbers and its warnings; a browser can show it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from altered_runs import alter, with_properties
from chromium import Browser, needs_chromium
from command_line import run_failing, run_json
from numpy.testing import assert_allclose
from stopped_runs import run

import replicax as rx
from replicax.cli import results as commands
from replicax.results import plots
from replicax.results.report import Picture, Section, Warnings, render, sections_of
from replicax.results.summary import Table, run_table

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
EVIL = "</title><script>alert(1)</script><img src=x onerror=alert(1)>\"'&{}"


@pytest.fixture(scope="module")
def posterior() -> rx.Posterior:
    return run(3000, burn_in=500, chunk_steps=50, learning_rate=(0.2, 0.4))


@pytest.fixture(scope="module")
def sections(posterior) -> list[Section]:
    return sections_of(posterior)


@pytest.fixture(scope="module")
def folder(posterior, tmp_path_factory) -> Path:
    return posterior.save(tmp_path_factory.mktemp("runs") / "run")


def parts(sections: list[Section], kind: type, title: str = "") -> list[Any]:
    chosen = [section for section in sections if title in ("", section.title)]
    return [part for section in chosen for part in section.parts if isinstance(part, kind)]


def test_sections(posterior, sections):
    titles = ["At a glance", "Draws", "Exchange"]
    assert [section.title for section in sections] == titles
    page = render(posterior, sections)
    assert "3,000 of 3,000 steps, 3 replicas" in page
    assert page.count("<img src=") == len(parts(sections, Picture)) == page.count("<figcaption>")


def test_a_glance_shows_the_summary(posterior, sections):
    summary = posterior.summary()
    facts = dict(parts(sections, Table)[0].rows)
    assert facts["steps x replicas x chains"] == "3,000 x 3 x 2"
    worst = max(row["rhat"] for row in summary["parameters"].values())
    assert facts["R-hat over chains, largest"] == f"{worst:.3f}"
    expected = summary["round_trips_per_1000_steps_expected"]
    assert facts["  Lemma 1 at the measured swap rates"] == f"{expected[0]:.3g}, {expected[1]:.3g}"
    assert set(facts) >= {name for name, _ in run_table(summary).rows}


def test_warnings_say_what_is_wrong_and_what_to_do(posterior, sections):
    (warnings,) = parts(sections, Warnings)
    assert warnings.sentences == posterior.problems() != []
    page = render(
        posterior, [Section("one", [Warnings(["It is wrong. Write less. Or more."], "")])]
    )
    assert "<strong>It is wrong. </strong>Write less. Or more." in page
    fine = with_properties(posterior, problems=lambda: [])
    (shown,) = parts(sections_of(fine), Warnings)
    assert shown.sentences == [] and shown.if_none.startswith("No check found")
    running = with_properties(posterior, result=rx.run.records.Result("running", ""))
    (shown,) = parts(sections_of(running), Warnings)
    assert "continues" in shown.if_none


def test_the_exchange_has_all_figures_and_the_ladder(posterior, sections):
    exchange = parts(sections, Picture, "Exchange")
    assert len(exchange) == len(plots.plot_exchange(posterior)) == 5
    (table,) = parts(sections, Table, "Exchange")
    assert [float(row[1]) for row in table.rows] == pytest.approx(
        posterior.learning_rates[0], rel=1e-3
    )
    assert [float(row[3]) for row in table.rows[:-1]] == pytest.approx(
        posterior.verdict_rate[0], abs=6e-4
    )


def test_components_have_trace_marginal_and_ranks(posterior, sections):
    figure = next(part.figure for part in parts(sections, Picture) if "of b in" in part.words)
    trace, marginal, ranks = figure.axes
    values = posterior.components()["b"]
    for chain, line in enumerate(trace.get_lines()):
        kept = plots.thinned(values.shape[1], plots._MAX_POINTS)
        assert_allclose(line.get_ydata(), values[chain, kept])
        heights, edges, _ = marginal.patches[chain].get_data()
        assert_allclose(heights, np.histogram(values[chain], edges, density=True)[0])
        assert ranks.patches[chain].get_data()[0].mean() == pytest.approx(1)
    apart = np.stack([np.arange(100.0), 100 + np.arange(100.0)])
    assert_allclose(plots.rank_shares(apart)[0], [2] * 10 + [0] * 10)
    assert_allclose(plots.rank_shares(apart.reshape(1, -1))[0], [2] * 10 + [0] * 10)
    assert plots.rank_shares(np.ones((1, 1))).tolist() == [[0] * 20] * 2


def test_of_many_parameters_those_with_the_smallest_sizes_are_drawn(posterior):
    rng = np.random.default_rng(0)
    many = {f"x[{i}]": rng.normal(size=(2, 400)) for i in range(20)}
    many["slow"] = np.cumsum(rng.normal(size=(2, 400)), axis=1)
    summary = posterior.summary()
    rows = {name: {"effective_size": 400.0 + i} for i, name in enumerate(many)}
    rows["slow"]["effective_size"] = 3.0
    wide = with_properties(posterior, components=lambda names=None: many)
    full = next(iter(summary["parameters"].values()))
    changed = {**summary, "parameters": {name: {**full, **row} for name, row in rows.items()}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(wide), "summary", lambda self: changed)
        draws = next(one for one in sections_of(wide) if one.title == "Draws")
    drawn = parts([draws], Picture)
    assert len(drawn) == 9 + 3 and "slow" in drawn[1].words


@pytest.mark.parametrize(
    "lengths", [{"draws": 0}, {"draws": 1}, {"history": 0}, {"history": 1}], ids=str
)
def test_runs_that_have_just_begun(posterior, lengths):
    sections = sections_of(alter(posterior, lengths))
    assert {section.title for section in sections} >= {"At a glance", "Exchange"}


def test_where_the_report_goes(posterior, folder, tmp_path):
    assert rx.load(folder).report() == folder / "report.html"
    assert posterior.report(tmp_path) == tmp_path / "report.html"
    assert (tmp_path / "report.html").stat().st_size < 2_000_000
    with pytest.raises(ValueError, match="out='report.html'"):
        posterior.report()
    for wrong in (3, "", "a.png"):
        with pytest.raises(ValueError, match="out is"):
            posterior.report(wrong)


def test_the_command_writes_the_page(capsys, folder, tmp_path):
    out = tmp_path / "page.html"
    answer = run_json(capsys, "report", folder, "--out", out, "--every", 5)
    assert answer == {"report": str(out), "bytes": out.stat().st_size}
    assert "refresh" not in out.read_text()  # the run has ended
    assert "There is no folder" in run_failing(capsys, "report", tmp_path / "nothing")


def test_the_page_of_a_run_that_goes_on_is_written_again(monkeypatch, capsys, posterior, tmp_path):
    """While it runs; then it is being rewritten; then it has ended."""
    out = tmp_path / "page.html"
    running = with_properties(posterior, result=rx.run.records.Result("running", ""))
    seen: list[str] = []
    states = iter([running, ValueError("the folder is being rewritten"), posterior])

    def load(folder: Path) -> rx.Posterior:
        seen.append(out.read_text() if out.exists() else "")
        state = next(states)
        if isinstance(state, ValueError):
            raise state
        return state

    monkeypatch.setattr(commands, "_load", load)
    monkeypatch.setattr(commands.time, "sleep", lambda seconds: seen.append(f"{seconds}"))
    run_json(capsys, "report", tmp_path, "--out", out, "--every", 5)
    first, *waits, last = seen[0], seen[1], seen[3], seen[4]
    assert first == "" and waits == ["5.0", "5.0"]
    assert '<meta http-equiv="refresh" content="5">' in last and "refresh" not in out.read_text()


def test_no_text_becomes_html_and_nothing_is_fetched(posterior):
    figure = plots.plot_component("x", np.zeros((1, 9)))
    texts = [EVIL, Table((EVIL,), [(EVIL, EVIL)], EVIL), Table(("", ""), [(EVIL, EVIL)])]
    others = [Warnings([EVIL], EVIL), Warnings([], EVIL), Picture(figure, EVIL)]
    page = render(posterior, [Section(EVIL, [*texts, *others])])
    assert page.count("alert(1)") > 15 and "<script" not in page and "<img src=x" not in page
    assert set(re.findall(r'src="([^:]*:)', page)) == {"data:"}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy[1]
    assert "script" not in policy[1] and "http" not in policy[1]


@needs_chromium
@pytest.mark.parametrize("width", [320, 390, 1600])
def test_a_browser_shows_the_page_at_any_width(folder, width):
    with Browser() as browser:
        tab = browser.open(rx.load(folder).report().as_uri(), width, dark=width == 390)
        assert tab.problems() == [] and len(tab.requests()) == 1
        assert tab.value("document.documentElement.scrollWidth") == width
        images = "[...document.querySelectorAll('img')]"
        assert tab.value(f"{images}.every(x => x.naturalWidth > 500 && x.alt)")
        assert tab.value(f"{images}.length") == 12
