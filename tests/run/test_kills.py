"""`kill -9` at random moments: the run goes on to the same bits, no draw lost and none twice."""

from pathlib import Path

import pytest
from common import assert_same_run
from killed_runs import KINDS, evaluated, kill_while, run_with_kills, show

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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("epoch", [1, 4, 8])
def test_a_run_killed_while_it_evaluates_ends_as_if_it_had_not_been(
    tmp_path: Path, epoch: int
) -> None:
    folder, at_work = tmp_path / "run", tmp_path / "at work"
    (tmp_path / "wait").write_text(str(epoch))
    kill_while(evaluated, (folder,), at_work.exists)
    (tmp_path / "wait").unlink()
    whole, resumed = evaluated(None), evaluated(folder)
    assert_same_run(resumed, whole)
    assert resumed.epochs["twice"].tolist() == [2.0 * (1 + i) for i in range(8)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_report_that_is_killed_leaves_whole_files_and_an_intact_run(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    page = folder / "report.html"
    for kill in range(8):
        page.unlink(missing_ok=True)
        kill_while(show, (folder,), page.exists, seconds=0.13 * kill)
        assert page.read_text().rstrip().endswith("</html>")
        for figure in folder.glob("figures/*.png"):
            assert figure.read_bytes().endswith(b"IEND\xaeB`\x82"), figure
        for path, content in before.items():
            assert path.read_bytes() == content
    rx.load(folder).report()
    left = {path.relative_to(folder).parts[0] for path in folder.rglob("*.replicax")}
    assert left <= {".replicax", ".report.html.replicax", "figures"}
