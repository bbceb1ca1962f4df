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
from replicax.networks.options import TrainOptions

from bad_inputs import bowl
from replicax.algorithm.target import as_target
from replicax.data import archive, cifar, load_cifar
from replicax.run.batch_source import NoBatches
from replicax.run.options import Options
from replicax.run.program import build_program

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


def program_of(options: Options) -> Any:
    return build_program(options.complete(), as_target(bowl), NoBatches())


@few
@given(some_of(Options))
@example({"target_swap_rate": 1e-300})
@example({"window": 10**400})
def test_options_are_good_or_refused(chosen: dict[str, Any]) -> None:
    good = {"num_steps": 40, "num_replicas": 3, "learning_rate": (0.01, 0.1)}
    options = accepted(lambda: Options(**{**good, **chosen}))
    if options is not None and (options.num_replicas or 1) < 100:
        accepted(lambda: program_of(options))


@few
@given(some_of(TrainOptions))
def test_options_of_networks_are_good_or_refused(chosen: dict[str, Any]) -> None:
    accepted(lambda: TrainOptions(**{"epochs": 20, **chosen}))


@few
@pytest.mark.parametrize("kind", [Options, TrainOptions])
@given(data=st.data())
def test_options_of_a_damaged_folder_are_good_or_refused(kind: Any, data: st.DataObject) -> None:
    length = {"num_steps": 40} if kind is Options else {"epochs": 20}
    stored = json.loads(json.dumps(kind(**length).to_json()))
    damaged = {**stored, **data.draw(some_of(kind))}
    for name in data.draw(st.lists(st.sampled_from([*stored]), max_size=1)):
        del damaged[name]
    again = accepted(lambda: kind.from_json(damaged, {}))
    if json.dumps(damaged) == json.dumps(stored):
        assert again.to_json() == stored


@few
@given(PLAIN)
def test_anything_in_the_place_of_stored_options(data: Any) -> None:
    assert accepted(lambda: Options.from_json(data, {})) is None
    assert accepted(lambda: TrainOptions.from_json(data, {})) is None


def spec_of(depth: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": "sgld"}
    for _ in range(depth):
        spec = {"name": "stepwise", "falls": [3], "factor": 0.5, "kernel": spec}
    return spec


def test_a_kernel_in_ten_thousand_others_is_refused() -> None:
    stored = Options(num_steps=40).to_json()
    assert accepted(lambda: Options.from_json({**stored, "kernel": {"kernel": spec_of(2)}}, {}))
    deep = {**stored, "kernel": {"kernel": spec_of(10_000)}}
    assert accepted(lambda: Options.from_json(deep, {})) is None


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
