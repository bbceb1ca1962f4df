"""What a run folder promises: checkpoints by path, metadata with a format version."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of
from made_up_metadata import metadata_of

import replicax as rx
from replicax.run.options import Sampling
from replicax.run.storage import checkpoint, files, metadata
from replicax.run.storage.arrays import Column, Group
from replicax.run.storage.files import Damaged
from replicax.run.storage.folder import (
    Commit,
    _check_fits,
    has_begun,
    read_commit,
    write_commit,
)


class Before(NamedTuple):
    up: Any
    down: Any


class After(NamedTuple):  # the same fields, of the same shapes, in another order
    down: Any
    up: Any


def test_a_checkpoint_is_restored_by_path_not_by_position(tmp_path) -> None:
    saved = {"state": Before(up=np.arange(3.0), down=-np.arange(3.0)), "more": [np.ones(2)]}
    checkpoint.save(tmp_path, 7, checkpoint.by_path(saved))
    like = {"state": After(down=np.empty(3), up=np.empty(3)), "more": [np.empty(2)]}
    restored = checkpoint.restore(tmp_path, 7, like)
    np.testing.assert_array_equal(restored["state"].up, np.arange(3.0))
    np.testing.assert_array_equal(restored["state"].down, -np.arange(3.0))
    np.testing.assert_array_equal(restored["more"][0], np.ones(2))


def test_names_that_look_alike_are_kept_apart(tmp_path) -> None:
    """By path means by the whole path: quotes, dots and slashes in names included."""
    saved = {"a.b": np.ones(1), "a": {"b": np.zeros(1)}, "a/b": np.full(1, 2.0), "c": np.zeros(0)}
    checkpoint.save(tmp_path, 0, checkpoint.by_path(saved))
    restored = checkpoint.restore(tmp_path, 0, jax.tree.map(np.empty_like, saved))
    jax.tree.map(np.testing.assert_array_equal, restored, saved)


@pytest.mark.parametrize("like", [{"a": np.empty(2), "c": np.empty(1)}, {"a": np.empty(3)}])
def test_a_checkpoint_of_other_arrays_is_refused(tmp_path, like) -> None:
    checkpoint.save(tmp_path, 0, checkpoint.by_path({"a": np.ones(2), "b": np.ones(1)}))
    with pytest.raises(ValueError, match="does not fit"):
        checkpoint.restore(tmp_path, 0, like)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    rx.sample(
        rx.targets.gaussian(), 0.0, num_steps=4, num_replicas=2, method=rx.deo_star((0.1, 0.2)),
        run_dir=folder, progress=False,
    )  # fmt: skip
    return folder


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("version", [None, 1, metadata.FORMAT_VERSION + 1])
def test_another_format_is_refused_by_its_version(folder, tmp_path, version) -> None:
    content = json.loads((folder / metadata.FILE).read_text())
    assert content["format_version"] == metadata.FORMAT_VERSION
    if version is None:  # the first format had none
        del content["format_version"]
    else:
        content["format_version"] = version
    (tmp_path / metadata.FILE).write_text(json.dumps(content))
    written_by = re.escape(rx.__version__)
    said = f"format version {version or 1}, written by replicax {written_by}.*reads format versions"
    with pytest.raises(ValueError, match=said):
        rx.load(tmp_path)
    with pytest.raises(ValueError, match=said):
        rx.resume(tmp_path, rx.targets.gaussian())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "does not hold JSON"),
        ("[]", "does not hold a JSON object"),
        ("[" * 100_000, "does not hold JSON"),
        ('{"options": 1}', "was not written by replicax"),
        (
            '{"options": {}, "resolved": {}, "params": {}, "format_version": 5}',
            "not what its digest says",
        ),
    ],
)
def test_damaged_metadata_get_a_sentence(tmp_path, text, said) -> None:
    (tmp_path / metadata.FILE).write_text(text)
    with pytest.raises(ValueError, match=said):
        rx.load(tmp_path)


def test_metadata_are_read_as_they_were_written(folder) -> None:
    posterior = rx.load(folder)
    assert posterior.metadata == metadata.read_metadata(folder)
    assert posterior.metadata.kind == "sample"
    assert isinstance(posterior.metadata.run, Sampling)
    assert posterior.result.code == "finished"
    assert posterior.metadata.version == rx.__version__


@pytest.mark.slow
def test_a_killed_extension_is_not_finished(tmp_path) -> None:
    target, folder = rx.targets.gaussian(), tmp_path / "run"
    method = rx.deo_star((0.1, 0.2))
    rx.sample(
        target, 0.0, num_steps=10, num_replicas=2, method=method, run_dir=folder, progress=False
    )
    assert rx.load(folder).result.code == "finished"

    def break_down(progress: rx.callbacks.Progress) -> None:
        assert rx.load(folder).result.code == "running"
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"), chunks_of(5):
        rx.resume(folder, target, num_steps=40, callback=break_down)
    assert rx.load(folder).result.code == "running"
    assert rx.resume(folder, target).result.code == "finished"
    assert rx.load(folder).num_steps == 40


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_room_is_asked_for_rows_and_checkpoint(tmp_path: Path, monkeypatch: Any) -> None:
    """Two replicas of 10,000 numbers in the checkpoint, and a draw of one of them."""
    asked: list[int] = []
    monkeypatch.setattr(files, "check_room", lambda folder, num_bytes: asked.append(num_bytes))
    options = {"num_steps": 2, "num_replicas": 2, "burn_in": 1, "progress": False}
    for keep_draws in (False, True):
        asked.clear()
        rx.sample(
            lambda x: jnp.sum(x**2), jnp.zeros(10_000), method=rx.deo((1e-5, 2e-5), buffer=0.1),
            keep_draws=keep_draws, run_dir=tmp_path / str(keep_draws), **options,
        )  # fmt: skip
        wanted = 2**19 + 4 * 10_000 * (2 + keep_draws)
        assert wanted <= max(asked) < wanted + 4_000


# Two chains of three rungs after step 7; draws of the coldest two rungs have five numbers in "x".
FITS: dict[str, Any] = {
    "step": 7,
    "values": {"step": (), "buffer": (2,), "temperatures": (2, 3), "windows": (2, 2),
               "best.000000": (2, 5), "source": (9,)},
    "num_steps": 9,
    "steps": {"rung_of": (2, 3)},
    "num_draws": 4,
    "draws": {"params.x": (2, 2, 5), "energy": (2, 2)},
    "keep_draws": True,
    "draws_per_step": 1,
}  # fmt: skip


def check_fits(**changes: Any) -> None:
    made = FITS | changes
    resolved = SimpleNamespace(
        num_chains=2,
        num_replicas=3,
        draw_rungs=(0, 1),
        keep_draws=made["keep_draws"],
        draws_per_step=made["draws_per_step"],
    )
    described: Any = SimpleNamespace(
        resolved=resolved, params=SimpleNamespace(names=["x"], shapes=[(5,)])
    )
    groups = {
        name: Group(length, {key: Column("<f4", shape) for key, shape in made[name].items()})
        for name, length in (("steps", made["num_steps"]), ("draws", made["num_draws"]))
        if length is not None
    }
    values = {
        name: np.full(shape, made.get("at", 7) if name == "step" else 0)
        for name, shape in made["values"].items()
    }
    _check_fits(Path("run"), described, Commit(made["step"], groups), values)


def with_value(name: str, *shape: int) -> dict[str, Any]:
    return {"values": FITS["values"] | {name: shape}}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_steps": 7},
        {"values": {}},
        {"step": 0, "at": 0, "num_steps": None, "num_draws": None},
        {"step": 0, "at": 0, "num_steps": 0, "steps": {"rung_of": (1,)}},
        {"num_draws": 0, "draws": {}},
        {"keep_draws": False, "draws": {"energy": (2, 2)}},
        {"num_draws": None, "draws_per_step": 1024},
        {"num_draws": 2000, "draws_per_step": 2000},
        with_value("another", 3),
    ],
)
def test_a_commit_of_the_run_fits_its_metadata(changes: dict[str, Any]) -> None:
    check_fits(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        *(
            with_value(name, *shape, 1)
            for name, shape in FITS["values"].items()
            if name != "source"
        ),
        with_value("windows", 2, 3),
        with_value("best.000000", 5),
        {"num_steps": 6},
        {"num_steps": None},
        {"at": 6},
        {"at": 8},
        {"steps": {"rung_of": (2, 4)}},
        {"steps": {}},
        {"draws": {"params.y": (2, 2, 5)}},
        {"draws": {"params.x": (2, 3, 5)}},
        {"draws": {"params.x": (2, 2, 5), "params.y": (2, 2)}},
        {"num_draws": None, "draws_per_step": 1025},
        {"num_draws": 2000, "draws_per_step": 2001},
    ],
)
def test_a_commit_of_another_run_is_damage_whatever_differs(changes: dict[str, Any]) -> None:
    with pytest.raises(Damaged, match=r"7\.json does not fit run\.json"):
        check_fits(**changes)


ROWS = {"rung_of": Column("|i1", (2, 3)), "more": Column("<f4", ())}


def committed(folder: Path, name: str = "steps", length: int = 5, **columns: Column) -> Any:
    (folder / "commits").mkdir()
    write_commit(folder, Commit(7, {name: Group(length, ROWS | columns)}))
    return read_commit(folder, 7)


def test_a_commit_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert committed(tmp_path).groups == {"steps": Group(5, ROWS)}
    with pytest.raises(Damaged, match="belongs to step 7"):
        (tmp_path / "commits/8.json").write_bytes((tmp_path / "commits/7.json").read_bytes())
        read_commit(tmp_path, 8)


@pytest.mark.parametrize(
    "other",
    [
        {"name": "stairs"},
        {"length": -1},
        {"rung_of": Column("|i1", (2, -1))},
        {"rung_of": Column("|i1", (-1, 2))},
        {"rung_of": Column("<U3", (2, 3))},
        {"rung_of": Column("no type", (2, 3))},
        {"../more": Column("<f4", ())},
    ],
)
def test_a_commit_of_other_rows_than_records_have_is_damage(tmp_path: Path, other: Any) -> None:
    with pytest.raises(Damaged, match="its entries are not those of a commit"):
        committed(tmp_path, **other)


def test_a_run_has_begun_once_a_step_after_its_start_is_saved(tmp_path: Path) -> None:
    assert not has_begun(tmp_path)
    (tmp_path / files.MARK).write_text("")
    assert not has_begun(tmp_path)
    metadata_of().write(tmp_path)
    (tmp_path / "commits").mkdir()
    write_commit(tmp_path, Commit(0))
    assert not has_begun(tmp_path)
    write_commit(tmp_path, Commit(1))
    assert has_begun(tmp_path)
    (tmp_path / "commits/1.json").unlink()
    (tmp_path / metadata.FILE).write_text("{}")  # of another program
    assert has_begun(tmp_path)
