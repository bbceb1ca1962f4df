"""Archives, pickles and files that differ from the published ones are refused."""

import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cifar_archives import ARCHIVES, checksums_of, files_of, pickled, write_archive, write_cifar

from replicax.data import archive, load_cifar
from replicax.data.archive import read_pickle


@pytest.mark.parametrize("wrong", (0, 1))
def test_every_checksum_must_be_right(tmp_path: Path, wrong: int) -> None:
    path, checksums = write_cifar(tmp_path, "cifar10", "python")
    sums = list(checksums[path.name])
    sums[wrong] = sums[wrong][:-1] + ("0" if sums[wrong][-1] != "0" else "1")
    with pytest.raises(ValueError, match="Delete it and fetch it again"):
        load_cifar("cifar10", tmp_path, checksums={path.name: sums})


def test_by_default_only_the_published_archive_is_read(tmp_path: Path) -> None:
    write_cifar(tmp_path, "cifar100", "binary")
    with pytest.raises(ValueError, match="not 03b5dce01913d631647c71ecec9e9cb8"):
        load_cifar("cifar100", tmp_path)


@pytest.mark.parametrize("share", (0.0, 0.3, 0.9))
def test_a_truncated_archive(tmp_path: Path, share: float) -> None:
    path, checksums = write_cifar(tmp_path, "cifar10", "python")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match="incomplete, damaged or another file"):
        load_cifar("cifar10", tmp_path, checksums=checksums)
    # Also with a matching checksum.
    with pytest.raises(ValueError, match="cannot be read as a .tar.gz archive"):
        load_cifar("cifar10", tmp_path, checksums=checksums_of(path))


class Malice:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", (0, 2, 4))
def test_a_malicious_pickle_is_refused_and_does_nothing(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    evil = pickle.dumps({b"data": Malice(os.system, f"touch {mark}")}, protocol)
    pickle.loads(evil)
    assert mark.exists(), "this pickle is harmless: the test proves nothing"
    mark.unlink()
    _, checksums = write_cifar(tmp_path, "cifar10", "python", data_batch_2=evil)
    with pytest.raises(
        ValueError, match=r"data_batch_2 is refused because it asks for \w+\.system"
    ):
        load_cifar("cifar10", tmp_path, checksums=checksums)
    assert not mark.exists()


@pytest.mark.parametrize(
    "call",
    [(eval, "1"), (getattr, "x", "y"), (np.load, "x"), (np.frombuffer, b"1")],
    ids=lambda call: call[0].__name__,
)
def test_pickles_can_call_only_functions_that_build_arrays(call: tuple) -> None:
    with pytest.raises(ValueError, match="is refused because it asks for"):
        read_pickle("a file", pickle.dumps(Malice(*call), 2))


def test_other_encodings_are_refused() -> None:
    import _codecs

    with pytest.raises(ValueError, match="only latin1"):
        read_pickle("a file", pickle.dumps(Malice(_codecs.encode, "x", "punycode"), 2))


@pytest.mark.parametrize("protocol", (2, 4))
def test_pickles_of_newer_protocols_are_read(protocol: int) -> None:
    array = np.arange(6, dtype=np.uint8).reshape(2, 3)
    content = read_pickle("a file", pickle.dumps({b"data": array, b"labels": [1, 2]}, protocol))
    np.testing.assert_array_equal(content[b"data"], array)
    assert content[b"labels"] == [1, 2]


def odd(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0):
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, size
    return member


ODD = {
    "parent": (odd("../evil"), "leads out"),
    "hidden parent": (odd("cifar-10-batches-py/../../evil"), "leads out"),
    "absolute": (odd("/tmp/evil"), "leads out"),
    "backslashes": (odd("..\\evil"), "leads out"),
    "symbolic link": (odd("evil", tarfile.SYMTYPE, "/etc/passwd"), "a link or a device"),
    "link": (odd("cifar-10-batches-py/test_batch", tarfile.LNKTYPE, "x"), "a link or a device"),
    "device": (odd("evil", tarfile.CHRTYPE), "a link or a device"),
    "pipe": (odd("evil", tarfile.FIFOTYPE), "a link or a device"),
    "huge": (odd("evil", size=2_000_000), "more than 2,000,000 bytes"),
    "twice": (odd("cifar-10-batches-py/test_batch"), "contains .* twice"),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_members_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(archive, "MAX_UNPACKED_BYTES", 2_000_000)
    member, message = ODD[case]
    inner = tmp_path / "inner"
    inner.mkdir()
    path, checksums = write_cifar(inner, "cifar10", "python", extra=(member,))
    with pytest.raises(ValueError, match=message):
        load_cifar("cifar10", inner, checksums=checksums)
    assert sorted(tmp_path.rglob("*")) == [inner, path], "something was written"


def wrong_rows(**entries) -> bytes:
    good = {"data": np.zeros((2, 3072), np.uint8), "labels": [0, 1], **entries}
    return pickled({key.encode(): value for key, value in good.items() if value is not None})


WRONG_BATCHES = {
    "no labels": (wrong_rows(labels=None), "no entry 'labels'"),
    "no data": (wrong_rows(data=None), "no entry 'data'"),
    "a list": (pickled([1, 2]), "no entry 'data'"),
    "too few labels": (wrong_rows(labels=[0]), "does not have a row of 3072"),
    "small images": (wrong_rows(data=np.zeros((2, 768), np.uint8)), "does not have a row of 3072"),
    "no array": (wrong_rows(data=b"00"), "does not have a row of 3072"),
    "class 10 of 10": (wrong_rows(labels=[0, 10]), "labels go from 0 to 10"),
    "no pickle": (b"<html>not found</html>", "cannot be read as a pickle"),
    "nothing": (b"", "cannot be read as a pickle"),
}


@pytest.mark.parametrize("case", WRONG_BATCHES)
def test_a_wrong_batch(tmp_path: Path, case: str) -> None:
    content, message = WRONG_BATCHES[case]
    _, checksums = write_cifar(tmp_path, "cifar10", "python", test_batch=content)
    with pytest.raises(ValueError, match=message):
        load_cifar("cifar10", tmp_path, checksums=checksums)


def test_binary_records_must_be_whole(tmp_path: Path) -> None:
    _, checksums = write_cifar(tmp_path, "cifar100", "binary", **{"test.bin": bytes(2 * 3074 - 1)})
    with pytest.raises(ValueError, match="6,147 bytes, not a whole number of records of 3074"):
        load_cifar("cifar100", tmp_path, checksums=checksums)


def test_a_wrong_file(tmp_path: Path) -> None:
    path = tmp_path / ARCHIVES["cifar10", "python"]
    path.write_text("<html>404</html>")
    with pytest.raises(ValueError, match="cannot be read as a .tar.gz archive"):
        load_cifar("cifar10", tmp_path, checksums=checksums_of(path))
    files = files_of("cifar10", "python")
    del files["data_batch_4"], files["batches.meta"]
    write_archive(path, files)
    with pytest.raises(ValueError, match="lacks .*batches.meta, .*data_batch_4"):
        load_cifar("cifar10", tmp_path, checksums=checksums_of(path))
