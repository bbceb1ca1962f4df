"""The benchmark of many rows: its cells, their table and the picture."""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import rows

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_a_cell_of_laplace_has_the_moments_of_importance_sampling():
    cell = rows.run_laplace("logistic-10", 2_000, 20.0)
    assert cell["effective"] >= rows.WANTED
    assert cell["cpu"] >= cell["setup_cpu"] > 0
    slopes = np.random.default_rng(1).normal(0, 0.6, 10)
    assert np.abs((np.array(cell["mean"]) - slopes) / cell["sd"]).max() < 4


def test_the_page_has_the_table_and_the_picture_of_its_numbers(tmp_path):
    found = json.loads((RESULTS / "rows.json").read_text())
    page = (RESULTS / "rows.md").read_text()
    assert rows.table(found) in page
    rows.draw(found, tmp_path / "crossing.png")
    assert (tmp_path / "crossing.png").stat().st_size > 10_000


def test_cells_that_were_not_finished_are_said_to_be_over_the_budget(tmp_path):
    found = {"NUTS mixture 1000000": {"over": True}, "Laplace mixture 1000": {"failed": ["no"]}}
    assert rows.table(found).count("over the budget") == 1
    assert "failed" in rows.table(found)
