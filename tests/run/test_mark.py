"""A run takes a folder by its mark, and removes or replaces nothing that is not its own."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICK, run_failing
from common import assert_same_run
from stopped_runs import STEPS, resume, run
from targets_model import MODEL
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx
from replicax.cli.main import main
from replicax.networks import starting
from replicax.run.storage import files

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

TAKEN = (
    "checkpoints/a.pt", "checkpoints/12/a.pt", "commits/a.txt", "commits/5.json",
    "records.zarr/a.txt",
    "records.zarr/draws/mine/zarr.json", "start.npz", "lock", "run.json", "summary.json",
    "report.html", "figures/a.png",
)  # fmt: skip
STARTS: dict[str, Callable[[Path], Any]] = {
    "sample": lambda folder: run(4, run_dir=folder),
    "train": lambda folder: rx.train(tiny_problem(), NETWORK.init, run_dir=folder, **EXCHANGING),
    "save": lambda folder: run(4).save(folder),
}


def put(path: Path, content: str = "mine") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("taken", TAKEN)
@pytest.mark.parametrize("start", STARTS)
def test_a_name_that_is_taken_is_refused_and_nothing_is_touched(start, taken, tmp_path) -> None:
    folder = tmp_path / "run"
    put(folder / taken)
    before = everything(tmp_path)
    with pytest.raises(
        ValueError, match=f"already (contains {taken.split('/')[0]}, which|holds a run)"
    ):
        STARTS[start](folder)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("command", ["sample", "train"])
def test_the_command_line_deletes_nothing(command, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    put(Path("p/checkpoints/a.pt"), "weights")
    args = ["sample", "model.py:energy", *QUICK] if command == "sample" else ["train"]
    assert "checkpoints" in run_failing(capsys, *args, "--out", "p")
    assert everything(Path("p")) == {"p/checkpoints/a.pt": b"weights"}


def test_a_training_looks_at_its_folder_before_a_range_test(tmp_path, monkeypatch) -> None:
    """Which takes minutes; a folder that is free reaches it, and nothing is in there yet."""

    def found(*_: Any) -> Any:
        raise RuntimeError("a range test")

    def start(name: str) -> None:
        rx.train(tiny_problem(), NETWORK.init, epochs=1, run_dir=tmp_path / name)

    put(tmp_path / "taken/checkpoints/a.pt")
    put(tmp_path / "file")
    run(4, run_dir=tmp_path / "begun")
    monkeypatch.setattr(starting, "find_rate", found)
    refused = {"taken": "contains checkpoints", "file": "a file", "file/a/b": "a file",
               "begun": "holds a run"}  # fmt: skip
    for name, sentence in refused.items():
        with pytest.raises(ValueError, match=sentence):
            start(name)
    with files.Lock(tmp_path / "begun"), pytest.raises(ValueError, match="is in use by"):
        start("begun")
    with pytest.raises(RuntimeError, match="a range test"):
        start("free")
    assert not (tmp_path / "free").exists()


def test_other_files_are_no_obstacle(tmp_path) -> None:
    names = ("notes.txt", "models/12/a.pt", "run.json.tmp", "start.npz.tmp", "summary.json.tmp")
    kept = [put(tmp_path / "run" / name) for name in names]
    run(4, run_dir=tmp_path / "run")
    assert [path.read_text() for path in kept] == ["mine"] * len(kept)


def test_the_mark_comes_first(tmp_path, monkeypatch) -> None:
    """A death at any write leaves a folder that can be started again."""
    written: list[Path] = []
    create, opened = files.create, files._opened_lock

    class Death(BaseException):
        pass

    def dying(path: Path) -> Any:
        written.append(path)
        if len(written) == dies_at:
            raise Death
        return create(path) if path.suffix == files.MARK else opened(path)

    monkeypatch.setattr(files, "create", dying)
    monkeypatch.setattr(files, "_opened_lock", dying)
    for dies_at in range(1, 6):
        folder = tmp_path / f"{dies_at}"
        written.clear()
        with pytest.raises((Death, files.NotWritten)):
            run(4, run_dir=folder)
        assert (folder / files.MARK).read_bytes().startswith(b"This folder holds a run")
        dies_at = 0
        assert run(4, run_dir=folder).num_steps == 4


def test_a_mark_that_was_cut_off_is_one(tmp_path) -> None:
    put(tmp_path / "run" / files.MARK, "This folder ho")
    run(4, run_dir=tmp_path / "run")


@pytest.mark.parametrize("content", ["mine", "x" * 10_000])
def test_a_mark_of_somebody_else_is_refused(tmp_path, content) -> None:
    path = put(tmp_path / "run" / files.MARK, content)
    with pytest.raises(ValueError, match="replicax"):
        run(4, run_dir=tmp_path / "run")
    assert path.read_text() == content and len(list(path.parent.iterdir())) == 1


@pytest.mark.parametrize("taken", [name for name in TAKEN if name != "run.json"])
def test_a_mark_that_outlived_its_run_takes_nothing(taken, tmp_path) -> None:
    """As `rm -r run/*` leaves it: what is there now is the user's."""
    folder = tmp_path / "run"
    run(4, run_dir=folder)
    for path in folder.iterdir():
        if path.name != files.MARK:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    put(folder / taken)
    before = everything(tmp_path)
    with pytest.raises(ValueError, match=r"did not write|holds a run|is not a lock of replicax"):
        run(4, run_dir=folder)
    assert everything(tmp_path) == before


OWN_FILES = (
    "checkpoints/a.pt", "checkpoints/12/a.pt", "checkpoints/notes/7", "commits/a.txt",
    "checkpoints/3", "checkpoints/3.1.json", "checkpoints/7/.mine",
    "checkpoints/8/d", "checkpoints/9/d/mine", "commits/a.npz",
    "records.zarr/mine/zarr.json", "records.zarr/mine/c.0", "records.zarr/draws/mine/notes.txt",
    "records.zarr/draws/notes.txt", "records.zarr/draws/array/c.0",
    "records.zarr/draws/array/zarr.json", "records.zarr/draws/energy/mine.partial",
)  # fmt: skip


def test_what_is_put_into_a_run_folder_stays(folder, whole) -> None:
    kept = [put(folder / name) for name in OWN_FILES]
    assert_same_run(resume(folder, checkpoint_every=7), whole)
    assert [path.read_text() for path in kept] == ["mine"] * len(kept)


def test_what_is_put_into_an_empty_run_stays(tmp_path) -> None:
    folder = tmp_path / "run"
    run(4, run_dir=folder)
    for commit in folder.glob("commits/*.json"):
        commit.unlink()
    kept = [put(folder / name) for name in OWN_FILES if "/draws/array" not in name]
    assert_same_run(run(4, run_dir=folder), run(4))
    assert_same_run(rx.load(folder), run(4))
    assert [path.read_text() for path in kept] == ["mine"] * len(kept)


def test_a_checkpoint_replaces_nothing_of_the_users(folder, whole) -> None:
    kept = put(folder / "checkpoints/60/a.pt")
    with pytest.raises(OSError, match="60 holds what replicax did not write: move it away"):
        resume(folder)
    assert kept.read_text() == "mine"
    kept.unlink()
    kept.parent.rmdir()
    assert_same_run(resume(folder), whole)


def test_a_figure_or_a_page_replaces_nothing_of_the_users(folder, tmp_path) -> None:
    posterior = rx.load(folder)
    kept = [put(tmp_path / "mine" / name) for name in ("paths.png", "report.html")]
    for call in (posterior.plot, posterior.report):
        with pytest.raises(ValueError, match=r"mine.*is there already, and was not written by"):
            call(tmp_path / "mine")
    assert sorted(tmp_path.glob("mine/*")) == sorted(kept), "not some of the figures either"
    assert [path.read_text() for path in kept] == ["mine"] * 2
    for _ in range(2):  # one's own are replaced
        posterior.plot(tmp_path / "shown")
        posterior.report(tmp_path / "shown")


@pytest.mark.parametrize("name", ["figures/paths.png", "report.html", "mine/paths.png"])
def test_nor_does_one_in_the_folder_of_the_run(name, folder) -> None:
    kept, posterior = put(folder / name), rx.load(folder)
    show = posterior.report if kept.suffix == ".html" else lambda: posterior.plot(kept.parent)
    with pytest.raises(ValueError, match="is there already, and was not written by"):
        show()
    assert kept.read_text() == "mine"


def test_nor_does_a_summary(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    args = ["sample", "model.py:energy", *QUICK, "--out", "run"]
    assert main(args) == 0
    assert main(["resume", "run", "--steps", "70"]) == 0, "one's own is replaced"
    kept = put(Path("run/summary.json"), '{"mine": 1}')
    capsys.readouterr()
    assert main(["resume", "run", "--steps", "80"]) == 2
    said = capsys.readouterr()
    assert "80 steps were done" in said.out and "summary.json is there already" in said.err
    assert kept.read_text() == '{"mine": 1}' and rx.load("run").num_steps == 80


@pytest.mark.skipif(os.name != "posix", reason="pipes are those of POSIX")
def test_a_pipe_or_a_device_is_not_replaced(folder, tmp_path) -> None:
    """As /dev/null is where a user may write anywhere; nor is a pipe waited for."""
    for name in ("log", "page.html", "figure.png"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="log.*; give the path of a file"):
        rx.callbacks.csv(tmp_path / "log")
    for write in (
        lambda: rx.load(folder).report(tmp_path / "page.html"),
        lambda: files.write_shown(tmp_path / "figure.png", b"", named=True),
    ):
        with pytest.raises(OSError, match="is no regular file: give another path"):
            write()
    assert all((tmp_path / name).is_fifo() for name in ("log", "page.html", "figure.png"))


def test_a_run_without_run_json_is_not_overwritten(folder) -> None:
    (folder / "run.json").unlink()
    before = everything(folder)
    with pytest.raises(ValueError, match="already holds a run"):
        run(4, run_dir=folder)
    assert {name: x for name, x in everything(folder).items() if "lock" not in name} == {
        name: x for name, x in before.items() if "lock" not in name
    }


def test_a_folder_without_a_mark_still_resumes(folder, whole) -> None:
    """As those of earlier versions, and copies that left out what begins with a dot."""
    (folder / files.MARK).unlink()
    with pytest.raises(ValueError, match="already holds a run"):
        run(run_dir=folder)
    assert_same_run(resume(folder), whole)


@pytest.mark.slow
def test_a_new_demo_keeps_what_is_not_of_the_old_one(tmp_path, capsys) -> None:
    out = tmp_path / "demo"
    arguments = ["demo", "--out", str(out), "--json"]
    assert main(arguments) == 0
    names = ("figures/mine.png", "checkpoints/a.pt", "notes.txt")
    kept = [put(out / name) for name in names]
    victim = put(tmp_path / "victim/2000")
    if os.name == "posix":
        shutil.rmtree(out / "commits")
        (out / "commits").symlink_to(victim.parent)
        assert main(arguments) == 2
        (out / "commits").unlink()
    assert main([*arguments, "--no-plots"]) in (0, 2)
    assert [path.read_text() for path in kept] == ["mine"] * 3 and victim.exists()


def test_a_run_is_resumed_with_its_mark(folder, whole) -> None:
    assert_same_run(resume(folder), whole)
    assert (folder / files.MARK).exists() and rx.load(folder).num_steps == STEPS
