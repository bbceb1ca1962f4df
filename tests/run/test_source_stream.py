"""The stream of batches of a source by itself: numbers, epochs, places and what is read ahead."""

import json
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from replicax.run.sources import (
    Place,
    SourceReader,
    _decoded,
    _encoded,
    as_source,
    is_source,
)

PER_EPOCH, SIZE = 4, 3


def batch_of(number: int) -> np.ndarray:
    return np.full((SIZE, 2), number, np.float32)


class Counting:
    """Epochs of four batches, each full of its number in the stream; says what was asked of it."""

    def __init__(self, epochs: int = 100) -> None:
        self.opened, self.given, self.epochs = 0, 0, epochs

    def __iter__(self) -> Iterator[np.ndarray]:
        self.opened += 1
        epoch = self.opened - 1
        return (self.batch(PER_EPOCH * epoch + i) for i in range(PER_EPOCH * (epoch < self.epochs)))

    def batch(self, number: int) -> np.ndarray:
        self.given += 1
        return batch_of(number)


class Seeking:
    """The same batches, from an iterator that tells where it stands."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> "SeekingIterator":
        return SeekingIterator(self.epoch)


class SeekingIterator:
    def __init__(self, epoch: int) -> None:
        self.epoch, self.place = epoch, 0

    def __next__(self) -> np.ndarray:
        if self.place == PER_EPOCH:
            raise StopIteration
        self.place += 1
        return batch_of(PER_EPOCH * self.epoch + self.place - 1)

    def get_state(self) -> dict[str, int]:
        return {"place": self.place}

    def set_state(self, state: dict[str, int]) -> None:
        self.place = state["place"]


def numbers(batches: list[Any]) -> list[int]:
    return [int(leaf.flat[0]) for batch in batches for leaf in jax.tree.leaves(batch)]


# One stream


def test_epochs_follow_each_other_as_one_stream() -> None:
    source = Counting()
    reader = SourceReader(source, SIZE)
    assert numbers(reader.read(0, 3)) == [0, 1, 2] and source.given == 3
    assert numbers(reader.read(0, 2)) == [0, 1] and source.given == 3, "nothing is read twice"
    reader.forget(2)
    assert (reader.number, numbers(reader.pending)) == (2, [2])
    assert numbers(reader.read(2, 7)) == list(range(2, 9)) and source.opened == 3
    reader.forget(9)
    assert numbers(reader.read(9, 1)) == [9] and source.given == 10


def test_places_are_those_from_which_it_was_read() -> None:
    reader = SourceReader(Counting(), SIZE)
    reader.read(0, 3)
    reader.forget(3)
    reader.read(3, 4)
    assert reader.place(2) == Place(0, 0, 0)
    assert reader.place(3) == reader.place(6) == Place(3, 0, 3)
    reader.forget(5)
    reader.read(5, 4)
    assert reader.place(7) == Place(7, 1, 3)
    assert reader.place(5) == Place(3, 0, 3), "of what was dropped last a run may still be saved"
    reader.forget(9)
    assert reader.place(9) == Place(7, 1, 3)
    assert all(place.number >= 7 for place in reader._places[1:])


def test_reading_ahead_gives_the_same_batches_and_stops_where_it_was_told() -> None:
    source = Counting()
    reader = SourceReader(source, SIZE)
    reader.read(0, 2)
    reader.read_ahead(5)
    reader._wait()
    assert source.given == 5 and numbers(reader.pending) == [0, 1, 2, 3, 4]
    reader.read_ahead(5)
    assert reader._reading is None, "there is nothing to do"
    assert numbers(reader.read(0, 6)) == [0, 1, 2, 3, 4, 5] and source.given == 6
    reader.close()
    assert reader._worker is None


@pytest.mark.parametrize(("epochs", "count"), [(0, 0), (1, 4), (2, 8)])
def test_a_source_that_ends_says_after_how_many(epochs: int, count: int) -> None:
    reader = SourceReader(Counting(epochs), SIZE)
    assert numbers(reader.read(0, 9)) == list(range(count))
    said = f"ended after {count} batches" if count else "gives no batch"
    assert said in str(reader.ending)
    assert numbers(reader.read(0, 9)) == list(range(count))
    reader.read_ahead(9)
    assert reader._reading is None


# Again from a place


@pytest.mark.parametrize("number", [2, 3, 4, 6, 9])
def test_a_stream_goes_on_from_a_stored_place(number: int) -> None:
    """By its state where the iterator has one, else by dropping what was before in its epoch."""
    reader = SourceReader(Seeking(), SIZE)
    reader.read(0, 2)
    reader.forget(2)
    reader.read(2, 5)
    place = Place._make(json.loads(json.dumps(reader.place(2))))
    assert place == Place(2, 0, 2, '{"place": 2}')
    again = SourceReader(Seeking(), SIZE)
    assert again.go_to(place, number) is True
    assert numbers(again.read(number, 3)) == [number, number + 1, number + 2]
    source = Counting()
    plain = SourceReader(source, SIZE)
    assert plain.go_to(place._replace(state=None), number) is False
    assert numbers(plain.read(number, 3)) == [number, number + 1, number + 2]
    assert source.given == number + 3


def test_a_place_of_a_later_epoch_opens_that_epoch() -> None:
    reader = SourceReader(Seeking(), SIZE)
    assert reader.go_to(Place(9, 2, 1, '{"place": 1}'), 10) is True
    assert numbers(reader.read(10, 3)) == [10, 11, 12]
    assert reader.place(10).number == 10


def test_what_was_looked_at_before_counts() -> None:
    """The first batch shows its shapes; it is not lost where the stream begins there."""
    source = Counting()
    reader = SourceReader(source, SIZE)
    reader.read(0, 1)
    assert reader.go_to(Place(), 0) is False
    assert numbers(reader.read(0, 2)) == [0, 1] and source.given == 2


def test_an_epoch_that_became_shorter_is_refused() -> None:
    reader = SourceReader(Counting(), SIZE)
    with pytest.raises(ValueError, match="Epoch 0 of the source has fewer batches.* 5 or more"):
        reader.go_to(Place(5, 0, 5), 5)


# States


@pytest.mark.parametrize("state", [None, 3, "a", {"a": [1, None]}, [], {"bytes": "x", "b": 1}])
def test_plain_states_are_stored_as_they_are(state: Any) -> None:
    assert _decoded(_encoded(state)) == state


@pytest.mark.parametrize("state", [b"", b"\x00\xff", bytearray(b"ab")])
def test_states_of_bytes_are_bytes_again(state: Any) -> None:
    found = _decoded(_encoded(state))
    assert isinstance(found, bytes) and found == bytes(state)


def test_other_states_are_refused_and_none_is_none() -> None:
    assert _decoded(None) is None and _decoded("") is None
    with pytest.raises(ValueError, match="get_state of the source's iterator returns"):
        _encoded({1, 2})


# Steps


@pytest.mark.parametrize("every", [None, 1, 2, 3, 5])
def test_steps_take_their_batches_and_those_that_judge_them(every: int | None) -> None:
    """One for each move, and one more at each step that attempts swaps: steps 0, every, ..."""
    batches = as_source(Counting(), SIZE, 12, judges=True).for_run(every)
    taken = [0]
    for step in range(12):
        taken.append(taken[-1] + 1 + (every is not None and step % every == 0))
    assert [int(batches.batches_before(step)) for step in range(13)] == taken
    assert batches.steps_per_epoch == 4
    one = SIZE * 2 * 4
    assert batches.bytes_per_step(0) == (one if every is None else one + -(-one // every))
    count, data = batches.feed(0, 7, 10)
    assert count == 7 and data.shape == (taken[10], SIZE, 2)
    assert numbers(list(data[: taken[7]])) == list(range(taken[7])) and not data[taken[7] :].any()
    count, data = batches.feed(7, 3, 10)
    assert numbers([data[0]]) == [taken[7]] and count == 3
    for step in range(7, 10):
        batch = batches.take(data, None, None, np.int32(step), np.int32(step - 7))
        assert numbers([batch]) == [taken[step]]
        if every is not None and step % every == 0:
            fresh = batches.fresh(data, np.int32(step), np.int32(step - 7))
            assert numbers([fresh(jax.random.key(0))]) == [taken[step] + 1]  # type: ignore[misc]
    fresh = batches.fresh(data, np.int32(7), np.int32(0))
    assert (fresh is None) == (every is None)


@pytest.mark.parametrize("every", [None, 2])
def test_the_steps_that_remain_have_all_their_batches(every: int | None) -> None:
    batches = as_source(Counting(1), SIZE, 12, judges=True).for_run(every)
    count, _ = batches.feed(0, 9, 9)
    assert count == (4 if every is None else 2), "of five, the third step needs two"
    if every is None:
        assert batches.feed(count, 9, 9) == (0, None)
    assert "ended after 4 batches" in batches.ending(count)


def test_no_more_is_read_ahead_than_there_are_steps() -> None:
    source = Counting()
    batches = as_source(source, SIZE, 12)
    batches.feed(0, 2, 4)
    batches.read_ahead(2, 0)
    assert batches.reader._reading is None
    batches.read_ahead(2, 3)
    batches.reader._wait()
    assert source.given == 5
    batches.close()


def test_a_stream_without_states_warns_where_batches_are_read_again() -> None:
    batches = as_source(Counting(), SIZE, 12)
    batches.feed(0, 6, 6)
    state = batches.state(6)
    again = as_source(Counting(), SIZE, 12)
    with pytest.warns(UserWarning, match="from epoch 0 on, 6 batches were read again"):
        again.skip_to(6, state)
    assert numbers([again.feed(6, 1, 1)[1]]) == [6]
    fresh = as_source(Counting(), SIZE, 12)
    fresh.skip_to(0)
    stateful = as_source(Seeking(), SIZE, 12)
    stateful.feed(0, 6, 6)
    other = as_source(Seeking(), SIZE, 12)
    other.skip_to(6, stateful.state(6))
    assert numbers([other.feed(6, 1, 1)[1]]) == [6]


# What is a source


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (Counting(), True),
        (iter([1]), True),
        (np.zeros(3), False),
        ([np.zeros(3), np.zeros(3)], False),  # a tree of arrays
        ("abc", False),
        ({"a": np.zeros(3)}, False),
        (3, False),
    ],
)
def test_sources_are_iterable_and_no_arrays_unless_told(data: Any, wanted: bool) -> None:
    assert is_source(data, None) == wanted
    assert is_source(data, 5)


def test_a_source_has_as_many_rows_as_a_batch_at_least() -> None:
    assert as_source([batch_of(0)] * 4, SIZE, None).num_rows == 4 * SIZE
    assert as_source(Counting(), SIZE, SIZE).num_rows == SIZE
    for wrong in ({"num_rows": SIZE - 1}, {"num_rows": None}, {"batch_size": 0},
                  {"batch_size": 1.5}, {"data": "a"}, {"data": (1,)}, {"data": {}}, {"data": 3},
                  {"data": np.zeros(3)}):  # fmt: skip
        with pytest.raises(ValueError):
            as_source(**{"data": Counting(), "batch_size": SIZE, "num_rows": 12} | wrong)
    with pytest.raises(ValueError, match="num_rows is None"):
        as_source([batch_of(0)], SIZE, None, judges=True)
