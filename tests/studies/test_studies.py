"""Running studies: saved cells, pages written from records, and the command."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import studies
from replicax.results import figure_style
from studies import __main__ as command
from studies.shared import page
from studies.shared.runner import read_record, reproduce
from studies.shared.study import (
    Cell,
    Finding,
    Measured,
    Results,
    Scale,
    Stopped,
    Study,
    Table,
    Work,
)


class CountedStudy:
    """A study of squares that counts how often each cell is run."""

    def __init__(self, sizes=(1, 2, 3), fails_at: int | None = None) -> None:
        self.ran: list[int] = []
        self.sizes, self.fails_at = sizes, fails_at
        self.study = Study(
            name="squares",
            title="Squares",
            about="Squares of whole numbers.",
            cells=self.cells,
            run=self.run,
            findings=self.findings,
            figures=self.figures,
            tables=lambda results: [Table("All", ["n"], [[s["n"]] for s, _ in results])],
            notes=lambda results: ["One.", "Two."],
        )

    def cells(self, scale: Scale) -> list[Cell]:
        sizes = scale.choose(self.sizes, self.sizes[:1])
        return [Cell(f"n-{n}", {"n": n, "seeds": scale.num_seeds(4, 2)}) for n in sizes]

    def run(self, settings: dict, work: Work) -> dict:
        if settings["n"] == self.fails_at:
            raise KeyboardInterrupt
        self.ran.append(settings["n"])
        work.tick(0.5)
        return {
            "square": settings["n"] ** 2,
            "by_seed": np.ones(settings["seeds"]),
            "long": range(999),
        }

    def findings(self, results: Results) -> list[Finding]:
        total = float(results.column("square").sum())
        by_seed = Measured.of(results.column("by_seed"))
        return [Finding("sum", "14", total, "14", total == 14), Finding("one | two", "1", by_seed)]

    def figures(self, results: Results) -> dict:
        figure = figure_style.new_figure(3, 2)
        figure.add_subplot().plot(results.column("square"))
        figure.set_label("Squares.")
        return {"squares": figure}


def test_shares_run_every_cell_once_and_the_page_is_written_from_all(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(page, "describe_machine", lambda: "a large machine")
    counted = CountedStudy(sizes=(1, 2, 3))
    for share in ((1, 2), (2, 2)):
        assert reproduce(counted.study, tmp_path, progress=False, share=share) is None
        assert not (tmp_path / "squares.md").exists()
    assert counted.ran == [1, 3, 2]
    monkeypatch.setattr(page, "describe_machine", lambda: "a small machine")
    assert reproduce(counted.study, tmp_path, progress=False) is not None
    assert counted.ran == [1, 3, 2]
    assert ", a large machine, " in (tmp_path / "squares.md").read_text(), "where the cells ran"


@pytest.mark.parametrize("text", ["1", "0/2", "3/2", "a/b"])
def test_a_share_is_one_of_several(text: str, capsys) -> None:
    with pytest.raises(SystemExit):
        command.parser().parse_args(["round-trips", "--share", text])
    assert text in capsys.readouterr().err
    assert command.parser().parse_args(["round-trips", "--share", "2/3"]).share == (2, 3)


def test_finished_cells_are_kept_and_a_second_call_only_draws(tmp_path) -> None:
    squares = CountedStudy()
    first = reproduce(squares.study, tmp_path, progress=False)
    assert sorted(squares.ran) == [1, 2, 3]
    (tmp_path / "squares.md").unlink()
    again = reproduce(squares.study, tmp_path, progress=False)
    assert sorted(squares.ran) == [1, 2, 3]
    assert (tmp_path / "squares.md").exists()
    assert first["findings"] == again["findings"]
    reproduce(squares.study, tmp_path, progress=False, fresh=True)
    assert sorted(squares.ran) == [1, 1, 2, 2, 3, 3]


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path) -> None:
    broken = CountedStudy(fails_at=3)
    with pytest.raises(KeyboardInterrupt):
        reproduce(broken.study, tmp_path, progress=False)
    kept = [cell for cell in broken.cells(Scale()) if read_record(tmp_path, broken.study, cell)]
    assert "n-3" not in [cell.name for cell in kept]
    mended = CountedStudy()
    reproduce(mended.study, tmp_path, progress=False)
    assert sorted([*mended.ran, *(cell.settings["n"] for cell in kept)]) == [1, 2, 3]


def test_a_running_cell_ends_at_its_next_tick_when_another_fails(tmp_path) -> None:
    squares, started = CountedStudy(sizes=(1, 2)), threading.Event()

    def run(settings: dict, work: Work) -> dict:
        if settings["n"] == 2:
            started.wait(10)
            raise ValueError("This cell cannot run.")
        started.set()
        for _ in range(10_000):
            work.tick(0.1)
            threading.Event().wait(0.002)
        raise AssertionError("nobody message stop")

    study = Study(**{**vars(squares.study), "run": run})
    with pytest.raises(ValueError, match="cannot run"):
        reproduce(study, tmp_path, progress=False)


def test_other_settings_or_a_damaged_file_run_again(tmp_path) -> None:
    squares = CountedStudy()
    reproduce(squares.study, tmp_path, progress=False)
    reproduce(squares.study, tmp_path, Scale(seeds=7), progress=False)
    assert sorted(squares.ran) == [1, 1, 2, 2, 3, 3]
    (tmp_path / "records" / "squares" / "n-2.npz").write_bytes(b"PK\x03\x04 cut off")
    reproduce(squares.study, tmp_path, Scale(seeds=7), progress=False)
    assert sorted(squares.ran) == [1, 1, 2, 2, 2, 3, 3]


def test_the_page_and_the_json_say_what_was_found(tmp_path) -> None:
    summary = reproduce(
        CountedStudy().study, tmp_path, progress=False, command="python -m studies squares"
    )
    assert json.loads((tmp_path / "squares.json").read_text()) == json.loads(json.dumps(summary))
    page = (tmp_path / "squares.md").read_text()
    for part in (
        "# Squares",
        "| sum | 14 | 14 | 14 | met |",
        r"| one \| two | 1 | 1 ± 0 (n = 12) |",
        "- One.\n- Two.",
        "![Squares.](squares-squares.png)",
        "python -m studies squares",
        "cores",
    ):
        assert part in page
    numbers = summary["cells"][2]["numbers"]
    assert numbers["square"] == 9
    assert "long" not in numbers
    unmet = reproduce(CountedStudy(sizes=(1, 2)).study, tmp_path / "b", progress=False)
    assert unmet["findings"][0]["met"] is False
    assert "**not met**" in (tmp_path / "b" / "squares.md").read_text()


def test_a_cell_can_be_stopped() -> None:
    work = Work(lambda fraction: None, lambda: True)
    with pytest.raises(Stopped):
        work.tick(0.1)


def test_progress_names_the_running_cells(tmp_path, capsys) -> None:
    reproduce(CountedStudy().study, tmp_path, progress=True)
    assert "squares" in capsys.readouterr().err


def test_every_study_has_a_name_a_title_and_quick_cells() -> None:
    for name in studies.STUDIES:
        study = studies.load_study(name)
        assert study.name == name
        for scale in (Scale(), Scale(quick=True), Scale(seeds=3)):
            cells = study.cells(scale)
            assert len({cell.name for cell in cells}) == len(cells)
            assert all("/" not in cell.name for cell in cells)
            json.dumps([cell.settings for cell in cells])
        assert len(study.cells(Scale(quick=True))) <= len(study.cells(Scale()))


def test_the_command_lists_studies_and_refuses_unknown_ones(capsys) -> None:
    assert command.main(["--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(studies.NAMES)
    assert command.main([]) == 0
    assert "round-trips" in capsys.readouterr().out
    assert command.main(["roundtrips"]) == 2
    message = capsys.readouterr().err
    assert "'round-trips'?" in message
    assert all(name in message for name in studies.NAMES)
    assert command.main(["window", "--seeds", "1"]) == 2


def test_the_command_writes_where_it_is_told(tmp_path, capsys, monkeypatch) -> None:
    squares = CountedStudy()
    monkeypatch.setattr(studies, "load_study", lambda name: squares.study)
    monkeypatch.chdir(tmp_path)
    assert command.main(["window", "--quick", "--seeds", "3", "--out", "here"]) == 0
    assert "sum" in capsys.readouterr().out
    summary = json.loads((tmp_path / "here" / "squares.json").read_text())
    assert summary["command"] == "python -m studies squares --quick --seeds 3 --out here"
    assert summary["cells"][0]["settings"]["seeds"] == 3
    assert (tmp_path / "here" / "index.md").read_text().count("|") == 10  # nothing of that name
    assert command.main(["window", "--quick", "--seeds", "3", "--out", "here", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["study"] == "squares"


def test_the_index_lists_what_is_there(tmp_path) -> None:
    reproduce(CountedStudy(sizes=(1, 2)).study, tmp_path, progress=False)
    page.write_index(tmp_path, ["nothing", "squares"])
    (line,) = [line for line in (tmp_path / "index.md").read_text().split("\n") if "[" in line]
    assert "[squares](squares.md) | Squares | 0 met, **1 not met**" in line
    (tmp_path / "peers.md").write_text("# A race\n")
    page.write_index(tmp_path, ["squares"])
    assert "\n- [peers](peers.md): A race" in (tmp_path / "index.md").read_text()


@pytest.mark.slow
def test_ctrl_c_twice_keeps_finished_cells_and_ends_in_a_sentence(tmp_path) -> None:
    command = [sys.executable, "-m", "studies", "buffer", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--seeds", "40"], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    kept = tmp_path / "records" / "buffer"
    deadline = time.monotonic() + 120
    while not list(kept.glob("*.npz")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), message  # the second may come after the end
    assert "Everything saved so far is kept." in message
    assert "terminate" not in message
    assert list(kept.glob("*.npz"))


def test_the_index_of_the_documentation_lists_every_page_of_results() -> None:
    results = Path(__file__).parents[2] / "docs/results"
    index = (results / "index.md").read_text()
    pages = {path.name for path in results.glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"]({name})" not in index} == set() and len(pages) > 10
