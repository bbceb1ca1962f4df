"""Properties of batches that hold for any data, batch size and chunk length."""

import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import SEEDS, few
from hypothesis import given
from hypothesis import strategies as st

from replicax.run import batches


@given(num_rows=st.sampled_from([1, 7]), batch_size=st.sampled_from([1, 3, 7]), seed=SEEDS)
@few
def test_batches_of_arrays_are_rows_of_them(num_rows, batch_size, seed) -> None:
    batch_size = min(batch_size, num_rows)
    data = {"x": np.arange(2.0 * num_rows).reshape(num_rows, 2), "y": np.arange(num_rows)}
    source = batches.as_batches(data, batch_size)
    drawn = source.draw(jax.random.key(seed))
    rows = np.arange(num_rows) if batch_size == num_rows else drawn  # everything, in order
    assert rows.shape == (batch_size,) and (rows >= 0).all() and (rows < num_rows).all()
    taken = source.take(source.data, None, drawn, step=jnp.array(0), place=jnp.array(0))
    np.testing.assert_array_equal(taken["y"], rows)
    np.testing.assert_array_equal(taken["x"][:, 0], 2 * taken["y"])


def test_every_row_is_drawn_equally_often() -> None:
    source = batches.as_batches(np.zeros((5, 1)), 4)
    rows = jax.vmap(source.draw)(jax.random.split(jax.random.key(0), 2500))
    counts = np.bincount(np.asarray(rows).ravel(), minlength=5)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000 * 0.8)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), peeks=st.integers(0, 9))
def test_an_iterable_feeds_the_same_batches_however_it_is_cut(lengths, peeks) -> None:
    total = sum(lengths)
    from_function = batches.as_batches(lambda step: {"x": np.full(2, step)}, None)
    from_iterable = batches.as_batches(({"x": np.full(2, k)} for k in range(total)), None)
    assert from_function.is_function and not from_iterable.is_function
    ahead = min(peeks, total - 1)  # `sample` tests the energy on a first batch
    assert from_iterable.at(ahead)["x"].tolist() == [ahead, ahead]
    start = 0
    for length in lengths:
        (count, ours), (_, theirs) = (
            b.feed(start, length, 5) for b in (from_iterable, from_function)
        )
        assert count == length
        assert ours["x"].shape == (5, 2), "padded to the capacity of a chunk"
        np.testing.assert_array_equal(ours["x"], theirs["x"])
        assert ours["x"][:length, 0].tolist() == list(range(start, start + length))
        start += length
    with pytest.raises(ValueError, match=f"ended at step {total}; .*itertools.cycle"):
        from_iterable.at(total)
    with pytest.raises(ValueError, match="cannot be had again. Give a function of the step"):
        from_iterable.at(start - 1)


@given(skipped=st.integers(0, 9))
@few
def test_a_resumed_iterable_is_skipped_forward(skipped: int) -> None:
    source = batches.as_batches(iter(range(10)), None)
    source.skip_to(skipped)
    assert source.position == skipped
    count, fed = source.feed(skipped, 2, 3)
    assert count == min(2, 10 - skipped) and fed[0] == skipped, "the rest, then the end"


def test_an_iterable_is_skipped_forward_one_batch_at_a_time() -> None:
    batches_made: list[weakref.ref] = []
    most = 0

    def produce():
        nonlocal most
        for step in range(1000):
            alive = sum(reference() is not None for reference in batches_made[-50:])
            most = max(most, alive)
            batch = np.full(3, step)
            batches_made.append(weakref.ref(batch))
            yield batch

    source = batches.as_batches(produce(), None)
    source.at(3)  # four batches are waiting
    source.skip_to(900)
    assert most <= 5 and not source.pending
    assert source.at(900)[0] == 900


def test_an_iterable_may_end_while_it_is_skipped() -> None:
    source = batches.as_batches(iter(range(3)), None)
    source.skip_to(5)
    assert source.bytes_per_step(5) == 0
    assert source.feed(5, 2, 3) == (0, None)
    with pytest.raises(ValueError, match="ended at step 5"):
        source.at(5)
