"""Code that a run folder names runs where its user has named it, and nowhere else."""

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import QUICK, run_failing, run_json, write_run

import replicax as rx
from replicax import user_code
from replicax.cli.main import main
from replicax.networks.by_name import NamedProblem
from replicax.user_code import TargetSpec

EVIL = "from pathlib import Path\nPath({mark!r}).touch()\ntarget = params = batches = print\n"


@pytest.fixture
def state(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REPLICAX_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path / "state"


def evil(path: Path, mark: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(EVIL.format(mark=str(mark)))


WAYS: dict[str, dict[str, Any]] = {
    "a module in the folder": {"target": "evil:target", "directory": "{run}"},
    "a module of a package that is the folder": {"target": "run.evil:target"},
    "a file in the folder": {"target": "{run}/evil.py:target"},
    "a file in the folder, by another way": {"target": "{run}/../run/evil.py:target"},
    "a file in the folder, from home": {"target": "~/run/evil.py:target"},
    "a file beside the folder": {"target": "{run}/../evil.py:target"},
    "a module beside the folder": {"target": "evil:target", "directory": "{run}/.."},
    "a part of a library": {"target": "os:abort"},
    "another part of replicax": {"target": "replicax.demo:clear"},
    "other params of the demo": {"target": "replicax.demo:target", "params": "clear"},
}


@pytest.mark.parametrize("way", WAYS)
def test_code_that_only_the_folder_names_does_not_run(way, state, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    mark = tmp_path / "code was run"
    for place in ("run/evil.py", "evil.py"):
        evil(tmp_path / place, mark)
    note = {name: value.format(run=tmp_path / "run") for name, value in WAYS[way].items()}
    write_run("run", {"leaf": 0}, {"target": note})
    named = note["target"].partition(":")[2]
    assert named in run_failing(capsys, "resume", "run")
    assert not mark.exists() and not state.exists()


def test_networks_and_data_that_only_the_folder_names_do_not_run(state, tmp_path, capsys):
    mark = tmp_path / "code was run"
    evil(tmp_path / "run/evil.py", mark)
    for other in ({"model": "evil:target", "data": "digits"}, {"model": "mlp", "data": "evil:x"}):
        note = {**other, "directory": str(tmp_path / "run")}
        write_run(tmp_path / "run", {"leaf": 0}, {"task": note})
        for command in (("predict", "rows.npy"), ("resume",)):
            name, *more = command
            run_failing(capsys, name, tmp_path / "run", *more)
    assert not mark.exists() and not state.exists()


def test_a_start_of_ones_own_is_known_until_the_file_changes(model, state, capsys, monkeypatch):
    run_json(capsys, "sample", "model.py:energy", *QUICK, "--out", "run")
    assert len(list(state.rglob("*.json"))) == 1
    assert main(["resume", "run", "--steps", "70"]) == 0
    assert "Running" in capsys.readouterr().err
    path = Path("model.py")
    path.write_text(path.read_text() + "\nevil = 1\n")
    assert "If you trust it, name it: replicax resume run /" in run_failing(capsys, "resume", "run")
    assert main(["resume", "run", "model.py:energy", "--steps", "80"]) == 0
    capsys.readouterr()
    assert main(["resume", "run", "--steps", "90"]) == 0, "it was named for the file as it is now"
    monkeypatch.setenv("REPLICAX_STATE", "another")
    assert "name it" in run_failing(capsys, "resume", "run")


def test_another_function_of_a_known_file_is_not_known(model, state):
    spec = TargetSpec.from_command_line("model.py:energy")
    user_code.remember(spec.to_note(), [spec.target])
    assert user_code.is_known(spec.to_note(), [spec.target])
    for other in ("model.py:well", "model.py:energy"):
        spec = TargetSpec.from_command_line(other, params="cleanup")
        assert not user_code.is_known(spec.to_note(), [spec.target])


def test_code_inside_a_run_folder_is_named_each_time(state, tmp_path):
    write_run(tmp_path / "run", {"leaf": 0})
    (tmp_path / "run/model.py").write_text("def energy(x): return x**2\n")
    spec = TargetSpec.from_command_line(f"{tmp_path}/run/model.py:energy")
    user_code.remember(spec.to_note(), [spec.target])
    assert not user_code.is_known(spec.to_note(), [spec.target])


@pytest.mark.parametrize("within", ["..", "."])
def test_what_is_in_the_folder_passes_for_no_library(within, model, state, capsys, monkeypatch):
    run_json(capsys, "sample", "model.py:energy", *QUICK, "--out", "run")
    evil(Path("run/shadowing.py"), Path("code was run").absolute())
    file, folder = Path("model.py").absolute(), Path("run").absolute()
    note = {"target": {"target": f"{file}:energy", "directory": str(folder)}}
    content = json.loads(Path("run/run.json").read_text())
    content.pop("digest")
    rx.run.storage.files.write_json(Path("run/run.json"), {**content, "note": note})
    monkeypatch.chdir("run/" + within)
    sys.path.insert(0, "")
    assert main(["resume", str(folder), f"{file}:energy", "--steps", "80"]) == 0
    capsys.readouterr()
    Path(folder / "model.py").write_text(file.read_text())
    main(["resume", str(folder), f"{folder / 'model.py'}:energy", "--steps", "90"])
    assert all(Path(place or os.getcwd()).resolve() != folder for place in sys.path)
    assert importlib.util.find_spec("shadowing") is None


def test_the_demo_takes_nothing_from_where_one_is(state, tmp_path, monkeypatch):
    """A folder may name it unasked: what an archive has beside the run passes for no library."""
    monkeypatch.chdir(tmp_path)
    before = [*sys.path]
    spec = TargetSpec("replicax.demo:target", params="params")
    assert spec.is_demo and spec.load().target is not None
    assert sys.path == before


def test_a_folder_of_modules_comes_last_once_they_are_imported(model, state, tmp_path):
    TargetSpec.from_command_line("model.py:energy").load()
    assert sys.path[-1] == str(tmp_path)


NOTES = (
    {"target": {"target": 1}}, {"target": "m:x"},
    {"target": {"target": "m:x", "batch_size": "many"}}, {"target": {"target": "\x1b[2J:x"}},
    {"target": {"target": "m:x", "params": {"a": 1}}}, {"target": None}, {},
)  # fmt: skip


@pytest.mark.parametrize("note", NOTES)
def test_notes_of_another_kind_name_nothing(note, state, tmp_path, capsys):
    write_run(tmp_path / "run", {"leaf": 0}, note)
    assert "is unknown" in run_failing(capsys, "resume", tmp_path / "run")


@pytest.mark.parametrize("end", ["", ":", ":1", ":a.b"])
def test_a_file_without_a_name_is_not_looked_into(end, state, tmp_path, capsys):
    mark = tmp_path / "code was run"
    evil(tmp_path / "run/evil.py", mark)
    write_run(tmp_path / "run", {"leaf": 0}, {"target": {"target": f"{tmp_path}/run/evil.py{end}"}})
    run_failing(capsys, "resume", tmp_path / "run")
    assert not mark.exists()


def test_a_folder_downloads_nothing():
    task = {"model": "mlp", "data": "cifar10", "download": True, "data_dir": "/elsewhere"}
    named = NamedProblem.from_note({"task": task})
    assert named is not None and not named.download
    assert NamedProblem.from_note({"task": {**task, "batch_size": "x"}}) is None
    deep: list = [0.1]
    for _ in range(900):
        deep = [deep]
    for other in ({"data_dir": 3}, {"noise": deep}, {"noise": {}}):
        assert NamedProblem.from_note({"task": {**task, **other}}) is None


def test_a_file_that_exits_is_said(model, capsys):
    Path("exits.py").write_text("import sys\nsys.exit(3)\n")
    line = run_failing(capsys, "sample", "exits.py:energy", *QUICK)
    assert "SystemExit: 3 (line 2 of" in line
