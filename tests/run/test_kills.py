"""`kill -9` at random moments: the run goes on to the same bits, no draw lost and none twice."""

from pathlib import Path

import pytest
from common import assert_same_run
from killed_runs import KINDS, run_with_kills

import replicax as rx


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("kind", "num_kills"),
    [
        ("sample", 6),
        ("train", 4),
        pytest.param("sample", 25, marks=pytest.mark.slow),
        pytest.param("train", 25, marks=pytest.mark.slow),
    ],
)
def test_killed_runs_end_as_if_they_had_not_been(tmp_path: Path, kind: str, num_kills: int) -> None:
    hits = run_with_kills(kind, tmp_path / "run", num_kills, seed=num_kills)
    assert hits > num_kills / 2, "most kills must hit a run that goes on"
    assert_same_run(rx.load(tmp_path / "run"), KINDS[kind](None))
