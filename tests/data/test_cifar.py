"""CIFAR from tiny archives in the published format."""

import sys
import types
from pathlib import Path

import pytest
from cifar_archives import ARCHIVES, assert_is, publish, write_cifar

from replicax.data import cifar, load, load_cifar


@pytest.mark.parametrize("name", ARCHIVES)
def test_pixels_labels_and_names_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write_cifar(tmp_path, name)
    publish(monkeypatch, path)
    assert_is(load_cifar(name, tmp_path), name)
    assert list(tmp_path.iterdir()) == [path], "something was written beside the archive"


@pytest.mark.parametrize("name", ARCHIVES)
def test_only_the_published_archive_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = write_cifar(tmp_path, name)
    published = cifar.SHA256[path.name]
    with pytest.raises(ValueError, match=f"not {published}: .* fetch it again"):
        load_cifar(name, tmp_path)
    publish(monkeypatch, path)
    content = path.read_bytes()
    for other in (b"", content[: len(content) // 2], content[:-1] + bytes([content[-1] ^ 1])):
        path.write_bytes(other)
        with pytest.raises(ValueError, match="incomplete, damaged or another file"):
            load_cifar(name, tmp_path)


def test_a_pickle_that_is_not_published_is_not_opened(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    call = f"cos\nsystem\n(Vtouch {mark}\ntR.".encode()
    write_cifar(tmp_path, "cifar10", data_batch_2=call, test_batch=call)
    with pytest.raises(ValueError, match="SHA-256"):
        load_cifar("cifar10", tmp_path)
    assert not mark.exists()


def test_missing_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match="cifar-10-python.tar.gz.*download=True"):
        load_cifar("cifar10", tmp_path / "nowhere")
    monkeypatch.setenv("REPLICAX_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="elsewhere holds no cifar-100"):
        load("cifar100")
    with pytest.raises(ValueError, match="Did you mean 'cifar100'"):
        load("cifar-100")


def test_downloads_are_checked_and_happen_once(tmp_path: Path, monkeypatch) -> None:
    path = write_cifar(tmp_path, "cifar100")
    publish(monkeypatch, path)
    requests = []

    def retrieve(url: str, known_hash: str, fname: str, path: Path) -> None:
        requests.append((url, known_hash))
        path.mkdir()
        (path / fname).write_bytes((tmp_path / fname).read_bytes())

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))
    for _ in range(2):
        dataset = load_cifar("cifar100", tmp_path / "new", download=True)
        assert_is(dataset, "cifar100")
    url = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
    assert requests == [(url, f"sha256:{cifar.SHA256[path.name]}")], (
        "fetched once, with its checksum"
    )


def test_downloads_that_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def retrieve(*_, **__) -> None:
        raise ConnectionError("no route")

    monkeypatch.setitem(sys.modules, "pooch", types.SimpleNamespace(retrieve=retrieve))
    with pytest.raises(ValueError, match=r"could not be downloaded \(no route\)"):
        load_cifar("cifar10", tmp_path, download=True)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ValueError, match=r"pip install replicax\[data\]"):
        load_cifar("cifar10", tmp_path, download=True)
