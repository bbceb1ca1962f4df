"""Run folders from strangers: nothing outside is written or deleted, nothing hangs or runs."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from common import assert_same_run, slow
from stopped_runs import resume, run

import replicax as rx
from replicax import errors
from replicax.cli.main import main
from replicax.run.storage import files

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.skipif(os.name != "posix", reason="links and pipes are those of POSIX"),
]


def rewrite(path: Path, change: Callable[[dict], Any]) -> None:
    """Change a JSON file and make its digest again, which needs no key."""
    content = json.loads(path.read_text())
    content.pop("digest")
    change(content)
    files.write_json(path, content)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Folders and files of the user's, beside the run."""
    for name in ("victim/0/a.pt", "victim/draws/zarr.json", "victim/energy/c.0", "victim/0.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"the user's {name}")
    return tmp_path / "victim"


def contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


TRIES: dict[str, Callable[[Path], Any]] = {
    "load": lambda folder: rx.load(folder).summary(),
    "figures": lambda folder: rx.load(folder).plot(folder / "figures"),
    "report": lambda folder: rx.load(folder).report(),
    "start": lambda folder: run(run_dir=folder),
    "resume": resume,
    "summary": lambda folder: main(["resume", str(folder)]),
}


def try_all(folder: Path, name: str, seconds: float = 60) -> None:
    """Whatever opens a folder, and may write what is at `name`: it ends soon, or refuses."""
    for kind, call in TRIES.items():
        shows = ("figures", "report", "summary")
        if kind in shows and not name.removeprefix(".").startswith(kind):
            continue
        began = time.monotonic()
        with contextlib.suppress(ValueError, OSError):
            call(folder)
        assert time.monotonic() - began < seconds


NAMES = ("../../victim", "..", "/", "draws/../../../victim", "a\0b", "v" * 300, "")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["group", "column", "parameter"])
def test_names_of_a_file_lead_nowhere(where, name, folder, victim) -> None:
    before = contents(victim)

    def change(content: dict) -> None:
        if where == "group":
            content["groups"][name] = content["groups"]["draws"]
        elif where == "column":
            columns = content["groups"]["draws"]["columns"]
            columns[name] = columns["energy"]
        else:
            content["params"]["names"][0] = name

    paths = [folder / "run.json"] if where == "parameter" else sorted(folder.glob("commits/*.json"))
    for path in paths:
        rewrite(path, change)
    for call in (lambda: rx.load(folder), lambda: resume(folder)):
        with pytest.raises(ValueError, match="damaged|left to go back"):
            call()
    assert contents(victim) == before


LINKS = (
    "lock", "run.json", "start.npz", ".run.json.replicax", "summary.json",
    ".summary.json.replicax", "report.html", ".report.html.replicax", "figures",
    "figures/ladder.png", "records.zarr", "records.zarr/draws", "records.zarr/draws/energy",
    "records.zarr/steps/zarr.json",
    "records.zarr/extra", "checkpoints", "checkpoints/7", "checkpoints/40", "commits",
    "commits/.60.npz.replicax", "commits/41.json", "commits/40.npz", ".replicax",
)  # fmt: skip


@pytest.mark.parametrize("kind", ["symbolic", slow("hard"), slow("pipe")])
@pytest.mark.parametrize("name", LINKS)
def test_links_and_pipes_are_not_followed(name, kind, folder, victim, tmp_path) -> None:
    place = folder / name
    place.parent.mkdir(exist_ok=True)
    is_folder = place.is_dir() or name in ("figures", "checkpoints/7", "records.zarr/extra")
    if place.is_dir():
        shutil.copytree(place, victim, dirs_exist_ok=True)
        shutil.rmtree(place)
    elif place.exists():
        shutil.copy(place, victim / "0.json")
        place.unlink()
    before = {path: path.stat().st_size for path in victim.rglob("*")}
    if kind == "symbolic":
        place.symlink_to(victim if is_folder else victim / "0.json")
    elif kind == "hard":
        os.link(victim / "0.json", place)
    else:
        os.mkfifo(place)
    try_all(folder, name)
    assert {path: path.stat().st_size for path in victim.rglob("*")} == before


def test_a_link_is_named(folder, victim) -> None:
    shutil.rmtree(folder / "checkpoints")
    (folder / "checkpoints").symlink_to(victim)
    with pytest.raises(ValueError, match="checkpoints is a symbolic link, which replicax does not"):
        resume(folder)
    (folder / "figures").symlink_to(victim)
    with pytest.raises(ValueError, match="figures is a symbolic link"):
        rx.load(folder).plot(folder / "figures")


def test_a_link_to_a_run_is_the_users_own(folder, whole, tmp_path) -> None:
    """People name their newest run so; and what they name for a page or for figures they mean."""
    (tmp_path / "latest").symlink_to(folder)
    assert_same_run(resume(tmp_path / "latest"), whole)
    (tmp_path / "shown.html").symlink_to(tmp_path / "page.html")
    rx.load(tmp_path / "latest").report(tmp_path / "shown.html")
    assert (tmp_path / "shown.html").is_symlink() and (tmp_path / "page.html").stat().st_size > 1000


def sparse(path: Path, num_bytes: int = 40 * 2**30) -> None:
    with path.open("r+b" if path.exists() else "wb") as file:
        file.truncate(num_bytes)


BOMBS = (
    "run.json", "start.npz", "commits/40.npz", "commits/40.json", "checkpoints/40/_METADATA",
    "checkpoints/40/more", "records.zarr/draws/energy/zarr.json",
    "records.zarr/draws/energy/c.0.0.0",
    "records.zarr/zarr.json", "records.zarr/draws/zarr.json",
)  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_of_forty_gigabytes_is_not_read(name, folder) -> None:
    sparse(folder / name)
    try_all(folder, name)


@pytest.mark.parametrize("size", [None, [40 * 2**30, 40 * 2**30], [2**70, 2**70]])
def test_a_size_that_a_stranger_wrote_does_not_help(size, folder) -> None:
    for path in folder.glob("commits/*.json"):
        rewrite(path, lambda content: content.update(num_bytes=size))
    for path in folder.glob("commits/*.npz"):
        sparse(path)
    with pytest.raises(ValueError, match="is larger than"):
        rx.load(folder)
    with pytest.raises(ValueError, match="is larger than"):
        resume(folder)


@pytest.mark.parametrize("to", ["/dev/zero", slow("/dev/tty")])
@pytest.mark.parametrize("name", ["run.json", "commits/40.npz", "records.zarr/steps/zarr.json"])
def test_devices_are_not_read(name, to, folder) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to(to)
    try_all(folder, name)


def test_arrays_that_overlap_in_a_file_do_not_fill_the_memory(folder, tmp_path) -> None:
    """A file of a few kilobytes of which each entry is the same part."""
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(1000), b=np.zeros(1000))
    content = path.read_bytes()
    first, second = (content.rindex(name) for name in (b"a.npy", b"b.npy"))
    offset = content[first - 4 : first]
    path.write_bytes(content[: second - 4] + offset + content[second:])
    grown = path.read_bytes() + bytes(0)
    with pytest.raises(ValueError, match="holds no arrays"):
        files.read_arrays(path, files.digest(grown))


LAYOUTS = {
    "codecs": lambda x: x.update(codecs=[{"name": "numcodecs.pickle"}]),
    "more codecs": lambda x: x["codecs"].append({"name": "gzip", "configuration": {"level": 1}}),
    "blocks": lambda x: x["codecs"][1]["configuration"].update(blocksize=2**31 - 1),
    "size of a type": lambda x: x["codecs"][1]["configuration"].update(typesize=2**31),
    "chunks": lambda x: x["chunk_grid"]["configuration"].update(chunk_shape=[2**33, 2, 1]),
    "no rows in a chunk": lambda x: x["chunk_grid"]["configuration"].update(chunk_shape=[0, 2, 1]),
    "rows": lambda x: x.update(shape=[10**15, 2, 1]),
    "another format": lambda x: x.update(zarr_format=2),
    "no chunks": lambda x: x.pop("chunk_grid"),
    "a list": lambda x: x.update(shape="many"),
}


@pytest.mark.parametrize("change", LAYOUTS.values(), ids=LAYOUTS)
def test_arrays_of_another_layout_are_refused(change, folder) -> None:
    path = folder / "records.zarr/draws/energy/zarr.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    for call in (lambda: rx.load(folder).energies, lambda: resume(folder)):
        with pytest.raises(ValueError, match=r"energy is damaged") as caught:
            call()
        assert len(str(caught.value)) < 600


VALUES = {
    "thin": 0, "history_every": 0, "num_chains": 10**12, "num_replicas": -1, "burn_in": -5,
    "draw_rungs": [7], "swap_every": 0, "counted_from": -1, "window": 2**60,
    "draws_per_step": 2**33,
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_numbers_that_are_none_of_a_run_are_refused(name, folder) -> None:
    rewrite(folder / "run.json", lambda content: content["resolved"].update({name: VALUES[name]}))
    for call in (rx.load, resume):
        with pytest.raises(ValueError, match=r"damaged|does not fit run\.json"):
            call(folder)


OPTIONS: tuple[tuple[str, ...], ...] = (
    ("run", "history_every"), ("method", "swap_every"), ("method", "adapt"),
    ("method", "clip_norm"), ("method", "gain", "Gain", "scale"),
)  # fmt: skip


@pytest.mark.parametrize("place", OPTIONS, ids=".".join)
def test_options_that_jax_has_no_number_for_are_refused(place, folder) -> None:
    *above, last = place
    for size in (2**33, 2**100):

        def change(content: dict, size: int = size) -> None:
            for name in above:
                content = content[name]
            content[last] = size

        rewrite(folder / "run.json", change)
        with pytest.raises(ValueError, match=r"none of replicax: its run\.json is damaged"):
            resume(folder)


def forge_checkpoint(folder: Path, change: Callable[[Any, list[str]], Any]) -> None:
    """Change the store of the newest checkpoint and make its digest again."""
    import tensorstore

    path = folder / "checkpoints/40"
    base = {"driver": "file", "path": f"{path}/"}
    store = tensorstore.KvStore.open({"driver": "ocdbt", "base": base}).result()
    change(store, [name.decode() for name in store.list().result()])
    made = {"checkpoint": files.digest_folder(path), "num_bytes": [2**30, 2**30]}
    rewrite(folder / "commits/40.json", lambda content: content.update(made))


def test_a_checkpoint_does_not_fill_the_memory(folder) -> None:
    """An array of two numbers in a part of 2**28, all zeros, has 33 kB on the disk."""

    def change(store: Any, names: list[str]) -> None:
        name = next(name for name in names if name.endswith("best_energy/.zarray"))
        layout = json.loads(store.read(name).result().value)
        store.write(name, json.dumps(layout | {"chunks": [2**28]}).encode()).result()

    forge_checkpoint(folder, change)
    with pytest.raises(ValueError, match="40 is damaged: it holds no arrays of replicax"):
        resume(folder)


def test_folders_without_end_are_said(folder, monkeypatch) -> None:
    """What walks them would end with a RecursionError."""
    monkeypatch.chdir(folder / "checkpoints/40")
    for _ in range(100):
        os.mkdir("a")
        os.chdir("a")
    with pytest.raises(ValueError, match="checkpoints holds folders in folders without end"):
        resume(folder)


OF_ORBAX = {
    "no kind": lambda text: text.replace('"np.ndarray"', '"None"'),
    "another store": lambda text: text.replace('"use_ocdbt": true', '"use_ocdbt": false'),
    "another format": lambda text: text.replace('"use_zarr3": false', '"use_zarr3": true'),
    "a list": lambda text: "[]",
    "a very deep one": lambda text: "[" * 10**6,
}


@pytest.mark.parametrize("change", OF_ORBAX.values(), ids=OF_ORBAX)
def test_a_checkpoint_that_orbax_does_not_read_is_said(change, folder) -> None:
    path = folder / "checkpoints/40/_METADATA"
    path.write_text(change(path.read_text()))
    forge_checkpoint(folder, lambda store, names: None)
    with pytest.raises(ValueError, match="40 is damaged: it holds no arrays of replicax"):
        resume(folder)


GROUPS = {
    "describes arrays": {"consolidated_metadata": {"kind": "inline", "metadata": {}}},
    "is an array": {"node_type": "array"},
}


@pytest.mark.parametrize("change", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("group", ["", "steps"])
def test_a_group_that_is_none_of_ours_is_refused_before_the_run(group, change, folder) -> None:
    """zarr would append by the layout that it describes, at the end of the run."""
    path = folder / "records.zarr" / group / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=r"zarr\.json is damaged: it is none that replicax writes"):
        resume(folder)


def test_a_file_of_very_many_arrays_is_not_read(tmp_path, monkeypatch) -> None:
    """A hundred bytes each, and seconds for every ten thousand."""
    digest = files.write_arrays(tmp_path / "a.npz", {f"{i}": np.zeros(1) for i in range(5)})
    assert len(files.read_arrays(tmp_path / "a.npz", digest)) == 5
    monkeypatch.setattr(files, "_ARRAYS", 4)
    with pytest.raises(ValueError, match="holds no arrays"):
        files.read_arrays(tmp_path / "a.npz", digest)


def test_names_of_another_run_are_said(folder) -> None:
    rewrite(folder / "run.json", lambda content: content["params"].update(names=["c", "d"]))
    for call in (rx.load, resume):
        with pytest.raises(ValueError, match=r"json does not fit run\.json: its names or shapes"):
            call(folder)


def test_a_sampling_that_names_networks_has_none(folder, tmp_path, capsys) -> None:
    note = {"task": {"model": "mlp", "data": "digits"}}
    rewrite(folder / "run.json", lambda content: content.update(note=note))
    np.save(tmp_path / "rows.npy", np.ones((3, 2)))
    assert main(["predict", str(folder), str(tmp_path / "rows.npy")]) == 2
    assert "contains no networks" in capsys.readouterr().err


STEERING = "\x1b]52;c;cm0gLXJm\x07\x1b[2J"


def test_a_sentence_cannot_steer_the_terminal(folder, capsys) -> None:
    result = {"code": "stopped", "sentence": STEERING, "step": 40}
    rewrite(folder / "run.json", lambda content: content.update(result=result))
    assert main(["summary", str(folder)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_error_cannot_steer_the_terminal(folder, capsys) -> None:
    (folder / "checkpoints/40" / STEERING.replace("/", "")).symlink_to("nowhere")
    assert main(["resume", str(folder), "replicax.demo:target"]) == 2
    other = {"format_version": STEERING, "version": STEERING * 1000}
    rewrite(folder / "run.json", lambda content: content.update(other))
    assert main(["summary", str(folder)]) == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said and "is a symbolic link" in said and "has format version" in said
    assert len(said) < 2000


def test_brackets_are_no_markup(folder, capsys) -> None:
    names = {"schedule": "[/red]", "rule": "[link=file:///etc/passwd]a[/link]"}
    rewrite(folder / "run.json", lambda content: content["resolved"].update(names))
    assert main(["summary", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "[/red]" in shown and "[link=" in shown


@pytest.mark.parametrize("place", ["records.zarr", "records.zarr/draws"])
def test_a_group_is_not_read_whole(place, folder) -> None:
    """zarr would read all of it before the run goes on."""
    sparse(folder / place / "zarr.json", 2**17)
    with pytest.raises((ValueError, OSError), match="zarr.json is damaged: it is larger than"):
        resume(folder)


def test_rows_that_fill_the_memory_are_not_read(folder, monkeypatch) -> None:
    """A kilobyte on the disk can hold a gigabyte of zeros."""
    monkeypatch.setattr(errors, "memory_of_machine", lambda: 100.0)
    with pytest.raises(ValueError, match="energy holds 0.0 GB of numbers, and this machine has"):
        _ = rx.load(folder).energies


@pytest.mark.parametrize("name", ["..", "../a", "a/b", "/a", "", ".a", "a\0", "a" * 300, 3])
def test_a_name_that_leads_elsewhere_makes_no_path(name, tmp_path) -> None:
    """The last check before a path; what reads a name has checked it before."""
    assert files.below(tmp_path, "a", "b.c-1") == tmp_path / "a" / "b.c-1"
    with pytest.raises(files.Damaged):
        files.below(tmp_path, "a", name)
