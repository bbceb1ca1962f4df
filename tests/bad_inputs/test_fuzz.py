"""Arbitrary values as options, and arbitrary bytes as data: good, or refused with a sentence."""

import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cifar_archives import checksums_of, files_of, write_cifar
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_networks import tiny_problem

import replicax as rx
from bad_inputs import bowl
from replicax.data import archive, cifar, load_cifar
from replicax.run.options import Sampling, Training
from replicax.run.resolve import resolve
from replicax.run.storage.encoding import from_plain, given_again, to_plain
from replicax.run.task import as_task

PROBLEM = tiny_problem()
few = settings(max_examples=100)
NUMBERS = st.one_of(
    st.integers(-5, 50), st.integers(), st.floats(), st.floats(1e-3, 1), st.booleans()
)
WORDS = st.sampled_from(
    ["auto", "full", "all", "none", "deo", "DEO*", "metropolis", "momentum", "hmc", "custom", ""]
)
PLAIN = st.recursive(
    st.one_of(st.none(), NUMBERS, WORDS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def some_of(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Values for a few of the options of a dataclass."""
    return st.dictionaries(st.sampled_from([*kind.__dataclass_fields__]), PLAIN, max_size=3)


def accepted(call: Any) -> Any:
    """What the call returns, or None where it refuses with a sentence."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message[-1:] in ".?)" and " " in message and "\n" not in message, message
        assert len(message) < 500, message
        return None


def resolved(task: Any, good: Any, options: dict[str, Any], parts: dict[str, Any]) -> Any:
    """The program of a run with some arbitrary options and parts of a method, or None."""
    run = accepted(lambda: type(good)(**vars(good) | options))
    method = accepted(lambda: rx.deo_star(**{"learning_rate": (0.01, 0.1)} | parts))
    if run is None or method is None or (run.num_replicas or 1) > 100:
        return None
    return accepted(lambda: resolve(task, run, method))


GOOD_RUNS = {Sampling: Sampling(num_steps=40, num_replicas=3), Training: Training(epochs=4)}


@few
@given(some_of(Sampling), some_of(rx.Method))
@example({}, {"target_swap_rate": 1e-300})
@example({}, {"window": 10**400})
def test_options_are_good_or_refused(options: dict[str, Any], parts: dict[str, Any]) -> None:
    resolved(as_task(bowl), GOOD_RUNS[Sampling], options, parts)


@few
@given(some_of(Training), some_of(rx.Method))
def test_options_of_networks_are_good_or_refused(
    options: dict[str, Any], parts: dict[str, Any]
) -> None:
    resolved(PROBLEM, GOOD_RUNS[Training], options, parts)


def again(kind: Any, data: Any) -> Any:
    """The options that a folder holds, as resuming reads them."""
    return given_again(from_plain(kind, data), {}, lambda name: f"method=rx.deo_star({name}=...)")


@few
@pytest.mark.parametrize("kind", [Sampling, Training, rx.Method])
@given(data=st.data())
def test_options_of_a_damaged_folder_are_good_or_refused(kind: Any, data: st.DataObject) -> None:
    good = GOOD_RUNS.get(kind) or rx.deo_star((0.01, 0.1))
    stored = json.loads(json.dumps(to_plain(good)))
    damaged = {**stored, **data.draw(some_of(kind))}
    for name in data.draw(st.lists(st.sampled_from([*stored]), max_size=1)):
        del damaged[name]
    read = accepted(lambda: again(kind, damaged))
    if json.dumps(damaged) == json.dumps(stored):
        assert json.loads(json.dumps(to_plain(read))) == stored


@few
@given(PLAIN)
def test_anything_in_the_place_of_stored_options(data: Any) -> None:
    for kind in (Sampling, Training, rx.Method):
        assert accepted(lambda kind=kind: again(kind, data)) is None


def spec_of(depth: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": "sgld"}
    for _ in range(depth):
        spec = {"name": "stepwise", "falls": [3], "factor": 0.5, "kernel": spec}
    return spec


def test_a_kernel_in_ten_thousand_others_is_refused() -> None:
    stored = to_plain(rx.deo_star(0.1))
    assert accepted(lambda: again(rx.Method, {**stored, "kernel": {"kernel": spec_of(2)}}))
    deep = {**stored, "kernel": {"kernel": spec_of(10_000)}}
    assert accepted(lambda: again(rx.Method, deep)) is None


READERS = [
    reader
    for editions in cifar.EDITIONS.values()
    for edition in editions
    for reader in (edition.read_rows, edition.read_names)
]
ARRAYS = st.builds(
    lambda shape, kind: np.zeros(shape, kind),
    st.lists(st.integers(0, 3), max_size=3).map(tuple) | st.sampled_from([(1, 3072), (2, 3072)]),
    st.sampled_from(["u1", "i4", "f8", "O", "U3"]),
)
ENTRIES = st.sampled_from(["data", "labels", "fine_labels", "label_names", "fine_label_names"])
CONTENTS = st.dictionaries(
    ENTRIES.map(str.encode),
    st.one_of(ARRAYS, PLAIN, st.lists(st.integers(-(2**40), 2**40), max_size=2)),
    max_size=4,
)


@few
@given(st.sampled_from(READERS), st.binary(max_size=200) | st.binary(min_size=3073, max_size=3073))
def test_any_bytes_are_read_or_refused(reader: Any, content: bytes) -> None:
    accepted(lambda: reader("a file", content))


@few
@given(st.sampled_from(READERS), CONTENTS, st.sampled_from([0, 2, 4]))
def test_any_pickle_is_read_or_refused(reader: Any, content: Any, protocol: int) -> None:
    accepted(lambda: reader("a file", pickle.dumps(content, protocol)))


GOOD = files_of("cifar10", "python")["test_batch"]


@few
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4))
def test_a_pickle_with_other_bytes_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    content = bytearray(GOOD)
    for place, byte in changes:
        content[place] = byte
    accepted(lambda: cifar.EDITIONS["cifar10"][0].read_rows("a file", bytes(content)))


@settings(max_examples=20)
@given(st.binary(max_size=300), st.integers(0, 400))
def test_an_archive_with_other_bytes_is_read_or_refused(bytes_: bytes, place: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, _ = write_cifar(Path(folder), "cifar10", "binary")
        content = path.read_bytes()
        start = min(place * len(content) // 400, len(content))
        path.write_bytes(content[:start] + bytes_ + content[start + len(bytes_) :])
        accepted(lambda: load_cifar("cifar10", folder, checksums=checksums_of(path)))


@pytest.mark.parametrize("size", [10**12, 10**18])
def test_a_pickle_cannot_ask_for_a_huge_array(size: int) -> None:
    from cifar_archives import python2

    count = b"\x8a\x08" + size.to_bytes(8, "little")  # LONG1
    by_class = b"\x80\x02cnumpy\nndarray\n" + count + b"\x85R."
    by_function = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
        + count
        + b"\x85"
        + python2(b"b")
        + b"\x87R."
    )
    for content in (by_class, by_function):
        with pytest.raises(ValueError, match="pickle"):
            archive.read_pickle("a file", content)
