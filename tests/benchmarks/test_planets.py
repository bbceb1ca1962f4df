"""The benchmark of planets: its cells, and the page of their numbers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import planets
import planets_page

OURS = {"cpu": 50.0, "log_evidence": -636.05, "error": 0.004, "ended": "Done after 900 steps."}
CHAINS = [[[75.7, 75.75, 75.8], [1190.0, 1203.0, 1212.0]]] * 3
CHAINS += [[[8.5, 8.6, 8.7], [1190.0, 1203.0, 1212.0]]]


def test_cells_of_two_planets_come_first_and_nuts_has_planets():
    cells = planets.cells()
    assert len(cells) == 72 and cells[0][1:] == [2, "replicax", 0]
    assert all(number for _, number, sampler, _ in cells if sampler == "NUTS")


def test_a_cell_is_not_run_again_but_for_those_with_an_error(tmp_path, monkeypatch):
    started = []

    def run(command, **_):
        started.append(command[-1])
        raise planets.subprocess.TimeoutExpired(command, 9)

    monkeypatch.setattr(planets.subprocess, "run", run)
    kept = planets.Cells(tmp_path / "planets.json")
    kept.found = {"simulated 0 dynesty 0": {"cpu": 1.0}, "simulated 0 dynesty 1": {"failed": "no"}}
    for seed in (0, 1, 2):
        kept.run(["simulated", 0, "dynesty", seed], 9.0)
    assert [command[-2] for command in started] == ["1", "2"]
    assert planets.Cells(tmp_path / "planets.json").found["simulated 0 dynesty 2"] == {"over": 9.0}


def test_the_page_says_who_found_both_planets_and_what_was_not_finished(tmp_path):
    found = {
        "HD164922 2 replicax 0": OURS | {"periods": CHAINS[:2], "rhat": 1.0},
        "HD164922 2 replicax 1": {"over": 540.0},
        "HD164922 2 NUTS 0": {"cpu": 40.0, "periods": CHAINS, "rhat": 2.7},
        "HD164922 2 dynesty 0": {"failed": "no"},
    }
    planets_page.write_page(found, tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    ours, dynesty, nuts = [line for line in page.split("\n") if line.startswith("| 2 |")]
    assert "2 of 2 chains find both" in ours and "1 of 1 done; over 540 s" in ours
    assert "-636.05" in ours and "failed" in dynesty
    assert "3 of 4 chains find both" in nuts and "R-hat 2.70" in nuts
