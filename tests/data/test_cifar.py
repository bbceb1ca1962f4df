"""CIFAR from tiny archives in the published format; `test_refused` has the bad ones."""

import hashlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
from cifar_archives import ARCHIVES, FOLDERS, NUM_CLASSES, assert_is, files_of, write_cifar

from replicax.data import cifar, load, load_cifar


@pytest.mark.parametrize(("name", "edition"), ARCHIVES)
def test_pixels_and_labels_are_read(tmp_path: Path, name: str, edition: str) -> None:
    path, checksums = write_cifar(tmp_path, name, edition)
    assert_is(load_cifar(name, tmp_path, checksums=checksums), name)
    assert list(tmp_path.iterdir()) == [path], "something was written beside the archive"


def test_the_python_edition_comes_first(tmp_path: Path) -> None:
    _, checksums = write_cifar(tmp_path, "cifar10", "python")
    (tmp_path / ARCHIVES["cifar10", "binary"]).write_bytes(b"never read")
    assert_is(load_cifar("cifar10", tmp_path, checksums=checksums), "cifar10")


def unpack(folder: Path, name: str) -> dict[str, tuple[str, ...]]:
    top = FOLDERS[ARCHIVES[name, "python"]]
    (folder / top).mkdir()
    checksums = {}
    for file, content in files_of(name, "python").items():
        (folder / top / file).write_bytes(content)
        checksums[f"{top}/{file}"] = (f"md5:{hashlib.md5(content).hexdigest()}",)
    return checksums


@pytest.mark.parametrize("name", NUM_CLASSES)
def test_an_unpacked_folder_is_read(tmp_path: Path, name: str) -> None:
    checksums = unpack(tmp_path, name)
    assert_is(load_cifar(name, tmp_path, checksums=checksums), name)


def test_an_unpacked_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    checksums = unpack(tmp_path, "cifar10")
    batch = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    batch.write_bytes(batch.read_bytes() + b" ")
    with pytest.raises(ValueError, match="data_batch_3 .* has the md5 checksum"):
        load_cifar("cifar10", tmp_path, checksums=checksums)
    batch.unlink()
    with pytest.raises(
        FileNotFoundError, match="data_batch_3 is missing: its folder is incomplete"
    ):
        load_cifar("cifar10", tmp_path, checksums=checksums)


def test_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="cifar-10-python.tar.gz .*download=True"):
        load_cifar("cifar10", tmp_path / "nowhere")
    monkeypatch.setenv("REPLICAX_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="elsewhere holds neither"):
        load("cifar100")
    with pytest.raises(ValueError, match="Did you mean 'cifar100'"):
        load("cifar-100")


def test_downloads_are_checked_and_happen_once(tmp_path: Path, monkeypatch) -> None:
    path, checksums = write_cifar(tmp_path, "cifar100", "python")
    requests = []

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> None:
        requests.append((url, known_hash))
        path.mkdir()
        (path / fname).write_bytes((tmp_path / fname).read_bytes())

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))
    for _ in range(2):
        dataset = load_cifar("cifar100", tmp_path / "new", download=True, checksums=checksums)
        assert_is(dataset, "cifar100")
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    assert requests == [(url, checksums[path.name][1])], "fetched once, with its SHA-256"


def test_downloads_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(*_, **__) -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))
    with pytest.raises(ValueError, match=r"could not be downloaded \(no route\)"):
        load_cifar("cifar10", tmp_path, download=True)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"pip install replicax\[data\]"):
        load_cifar("cifar10", tmp_path, download=True)


def test_every_file_has_a_checksum() -> None:
    known = {"md5": 32, "sha256": 64}
    for editions in cifar.EDITIONS.values():
        for file in (*(edition.archive for edition in editions), *editions[0].files):
            for checksum in cifar.CHECKSUMS[file]:
                kind, _, digits = checksum.partition(":")
                assert len(digits) == known[kind] and int(digits, 16)
    assert len(set(cifar.CHECKSUMS.values())) == len(cifar.CHECKSUMS) == 14


def test_reading_images_imports_nothing_heavy() -> None:
    program = "import sys, replicax.data; print({'jax', 'sklearn', 'pooch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
