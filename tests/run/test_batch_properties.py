"""Properties of batches that hold for any data, batch size and chunk length."""

import jax
import jax.numpy as jnp
import numpy as np
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


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_a_function_feeds_the_same_batches_however_it_is_cut(lengths) -> None:
    source = batches.as_batches(lambda step: {"x": np.full(2, step)}, None)
    start = 0
    for length in lengths:
        count, fed = source.feed(start, length, 5)
        assert count == length
        assert fed["x"].shape == (5, 2), "padded to the capacity of a chunk"
        assert fed["x"][:length, 0].tolist() == list(range(start, start + length))
        start += length
