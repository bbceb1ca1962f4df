"""Files that are on the disk before they are relied on, and digests, against `hashlib` itself."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replicax.run.storage import checkpoint, files
from replicax.run.storage.files import Damaged, NotWritten


def blake(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# On the disk


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was waited for or renamed, in order, by name."""
    told: list[str] = []
    fsync, replace = os.fsync, os.replace

    def name_of(descriptor: int) -> str:
        return Path(os.readlink(f"/proc/self/fd/{descriptor}")).name

    def waited(descriptor: int) -> None:
        told.append(name_of(descriptor))
        fsync(descriptor)

    def renamed(one: Any, other: Any, **rest: Any) -> None:
        told.append(f"{Path(one).name} -> {Path(other).name}")
        replace(one, other, **rest)

    monkeypatch.setattr(os, "fsync", waited)
    monkeypatch.setattr(os, "replace", renamed)
    return told


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of descriptors")


@needs_proc
def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_afterwards(
    seen: list[str], tmp_path: Path
) -> None:
    files.write_whole(tmp_path / "a.json", b"first")
    files.write_whole(tmp_path / "a.json", b"whole")
    assert (tmp_path / "a.json").read_bytes() == b"whole"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"], "nothing is left over"
    half = len(seen) // 2
    assert seen[:half] == seen[half:] and len(seen) == 6
    content, renamed, names = seen[:half]
    assert renamed == f"{content} -> a.json" and names == tmp_path.name


@needs_proc
def test_all_below_a_folder_is_on_the_disk_where_it_is_asked_for(
    seen: list[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    files.digests_below(tmp_path)
    assert not seen
    files.digests_below(tmp_path, synced=True)
    assert sorted(seen) == sorted(["in", "a", "b", tmp_path.name]) and seen[-1] == tmp_path.name


@needs_proc
def test_a_checkpoint_is_on_the_disk_with_its_name_before_it_is_relied_on(
    seen: list[str], tmp_path: Path
) -> None:
    digest = checkpoint.save(tmp_path, 5, {"x": np.arange(3)})
    assert digest == files.digest_folder(tmp_path / checkpoint.FOLDER / "5")
    below = [path.name for path in (tmp_path / checkpoint.FOLDER / "5").rglob("*")]
    assert set(below) <= set(seen), "files and folders"
    assert seen[-2:] == ["5", checkpoint.FOLDER]


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotWritten, match="a could not be written"):
        files.write_whole(tmp_path / "none/a", b"")


def test_room_is_asked_for_before_half_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = type("usage", (), {"free": 1000})
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: usage)
    files.check_room(tmp_path, 1000)
    with pytest.raises(OSError, match="No space left"):
        files.check_room(tmp_path, 1001)


# Digests


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20 + 5])
def test_a_digest_is_that_of_the_whole_content(size: int, tmp_path: Path) -> None:
    content = np.random.default_rng(0).bytes(size)
    (tmp_path / "a").write_bytes(content)
    assert files.digest(content) == files.digest_file(tmp_path / "a") == blake(content)


def test_a_folder_is_known_by_names_and_contents_of_all_below_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"content")
    (tmp_path / "b").write_bytes(b"")
    found = files.digests_below(tmp_path)
    assert found == {"in": "", "in/a": blake(b"content"), "b": blake(b"")}
    listed = b"".join(name.encode() + b"\0" + found[name].encode() for name in ("b", "in", "in/a"))
    assert files.combine(found) == files.digest_folder(tmp_path) == blake(listed)
    assert files.combine(dict(reversed(found.items()))) == files.combine(found)
    for other in ({**found, "c": ""}, {**found, "b": "0"}, {"in": "", "b": blake(b"")}):
        assert files.combine(other) != files.combine(found)


# Arrays and JSON


def test_arrays_are_read_as_they_were_written_and_as_nothing_else(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(3, np.int8)}
    digest = files.write_arrays(tmp_path / "x.npz", arrays)
    found = files.read_arrays(tmp_path / "x.npz", digest)
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_array_equal(found[name], values)
        assert found[name].dtype == values.dtype
    for path, expected in (("x.npz", "0" * 32), ("none.npz", digest)):
        with pytest.raises(Damaged):
            files.read_arrays(tmp_path / path, expected)


def test_an_object_carries_the_digest_of_its_other_entries(tmp_path: Path) -> None:
    path, content = tmp_path / "a.json", {"b": [1, None, "ü"], "a": {"c": 0.5}}
    files.write_json(path, content)
    written = json.loads(path.read_text())
    assert written.pop("digest") == blake(json.dumps(content, sort_keys=True).encode())
    assert written == content
    assert files.check_digest(path, files.read_json(path)) == content
    for changed in ({**content, "digest": "0" * 32}, content):
        with pytest.raises(Damaged, match="is damaged"):
            files.check_digest(path, changed)


@pytest.mark.parametrize("text", ["[1]", "3", '"a"', "{", "", "\ud83d", "[" * 100_000])
def test_what_is_no_object_is_damage(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode(errors="surrogatepass"))
    with pytest.raises(Damaged, match="a.json"):
        files.read_json(tmp_path / "a.json")


def test_a_file_that_would_fill_the_memory_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with path.open("wb") as file:  # without taking the room on the disk
        file.truncate(2**24 + 1)
    with pytest.raises(Damaged, match="larger than 16 MiB"):
        files.read_json(path)
    with pytest.raises(Damaged):
        files.read_json(tmp_path / "none.json")
