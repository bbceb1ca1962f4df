"""Batches by hand: which rows a step sees, what is refused, and sums over all rows in pieces."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax.run import batches
from replicax.run.batches import HostBatches, NoBatches, as_batches, as_epochs, as_rows

KEY = jax.random.key(0)

# Batches of the host


def test_the_first_step_whose_shapes_differ_is_named() -> None:
    made = [np.zeros(3), np.zeros(3), np.zeros(2), np.zeros(3)]
    source = HostBatches(lambda step: made[step])
    with pytest.raises(ValueError, match=r"at step 1 their shapes are \(3,\), at step 2 \(2,\)"):
        source.feed(1, 3, 3)
    with pytest.raises(ValueError, match=r"at step 2 their shapes are \(2,\), at step 3 \(3,\)"):
        source.feed(2, 2, 2)
    trees = [{"a": np.zeros(1)}, (np.zeros(1),)]
    with pytest.raises(ValueError, match="batches differ: at step 0 .*, at step 1"):
        HostBatches(lambda step: trees[step]).feed(0, 2, 2)


def test_the_last_batch_fills_a_chunk_up() -> None:
    source = HostBatches(lambda step: np.full(2, step))
    count, data = source.feed(1, 3, 5)
    assert count == 3 and data[:, 0].tolist() == [1, 2, 3, 3, 3]
    assert NoBatches().ending(5) == "The batches ended at step 5."


def test_bytes_and_first_batch_are_those_of_a_step() -> None:
    source = HostBatches(lambda step: {"a": np.zeros((step + 1, 2), np.float32)})
    assert [source.bytes_per_step(step) for step in (0, 2)] == [8, 24]
    assert source.first(KEY)["a"].shape == (1, 2)
    with pytest.raises(ValueError, match="gives nothing at step 0"):
        HostBatches(lambda step: {}).first(KEY)
    assert not source.can_refresh and NoBatches().can_refresh and NoBatches().has_all_rows
    assert NoBatches().feed(3, 7, 9) == (7, None) and NoBatches().bytes_per_step(0) == 0


# Rows in memory


@pytest.mark.parametrize(("size", "share"), [(2, 0.6), (5, 0.0)])
def test_further_batches_of_an_epoch_are_drawn_without_replacement(size: int, share: float) -> None:
    made = as_epochs(np.arange(5), size)
    fresh = made.fresh(made.data)
    assert fresh.noise_share == pytest.approx(share)
    rows = jax.jit(jax.vmap(fresh.draw))(jax.random.split(KEY, 400))
    assert all(len(set(some)) == size for some in rows.tolist())
    counts = np.bincount(np.asarray(rows).ravel(), minlength=5)
    assert np.all(np.abs(counts - 80 * size) <= 5 * np.sqrt(80 * size * share + 1e-9))
    np.testing.assert_array_equal(fresh.all_rows, np.arange(5))
    with_replacement = as_rows(np.arange(5), 2, "data")
    assert with_replacement.fresh(with_replacement.data).noise_share == 1
    assert as_rows(np.arange(5), None, "data").fresh(np.arange(5)).noise_share == 0


@pytest.mark.parametrize(("num_rows", "size", "steps"), [(7, 2, 4), (5, 5, 1)])
def test_an_epoch_has_every_row_once_and_is_filled_up_from_its_beginning(
    num_rows: int, size: int, steps: int
) -> None:
    made = as_epochs(np.arange(num_rows), size)
    assert made.steps_per_epoch == steps and made.has_all_rows == (size == num_rows)
    first, count = 2 * steps + 1, 3 * steps  # from within an epoch on
    plan = made.plan(KEY, jnp.array(first), count)
    seen = [
        np.asarray(made.take(made.data, plan, None, jnp.array(step), None))
        for step in range(first, first + count)
    ]
    for epoch in range(3, 5):
        order = np.asarray(made.order(KEY, jnp.array(epoch)))
        assert sorted(order) == list(range(num_rows))
        mine = np.concatenate(seen[epoch * steps - first : (epoch + 1) * steps - first])
        np.testing.assert_array_equal(mine, np.resize(order, steps * size))


@pytest.mark.parametrize(("count", "num_rows"), [(3, 20), (10, 20), (11, 20), (19, 20), (20, 20)])
def test_rows_are_different_and_all_in_order_where_they_are_everything(count, num_rows) -> None:
    rows = np.asarray(batches._different_rows(KEY, count, num_rows))
    assert len(set(rows.tolist())) == count and rows.min() >= 0 and rows.max() < num_rows
    assert (rows.tolist() == list(range(num_rows))) == (count == num_rows)


@pytest.mark.parametrize(("size", "taken"), [(1, True), (4, True), (0, False), (5, False),
                                             (2.0, False), (True, False)])  # fmt: skip
def test_a_batch_has_from_one_row_to_all(size: Any, taken: bool) -> None:
    if taken:
        assert as_rows(np.zeros((4, 2)), size, "data").batch_size == size
        return
    with pytest.raises(ValueError, match="it must be a whole number from 1 to 4"):
        as_rows(np.zeros((4, 2)), size, "data")


def test_rows_are_arrays_of_equally_many() -> None:
    assert as_rows(np.zeros((1, 2)), None, "data").has_all_rows
    for wrong, said in (
        (np.zeros((0, 2)), "no rows"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, r"\[2, 3\]"),
        (np.float32(1), "rows on their first axis"),
        ({}, "rows on their first axis"),
        ([1.0, 2.0], "rows on their first axis"),
    ):
        with pytest.raises(ValueError, match=said):
            as_rows(wrong, 1, "data")


def test_what_batches_stand_for() -> None:
    assert as_batches(NoBatches(), None) == NoBatches()
    assert isinstance(as_batches(lambda step: step, None), HostBatches)
    for stream in ([], iter([np.zeros(1)]), range(3), (k for k in range(2))):
        with pytest.raises(ValueError, match="A source of batches belongs to rx.bayesian"):
            as_batches(stream, None)
    for wrong, said in (
        (None, "without batches"),
        (np.zeros(3), "the size of a mini-batch"),
        ((np.zeros(3), jnp.zeros(3)), "the size of a mini-batch"),
        ("abc", "batches is 'abc'"),
        ({"a": 1}, "batches is {'a': 1}"),
        (3, "batches is 3"),
    ):
        with pytest.raises(ValueError, match=said):
            as_batches(wrong, None)


# Sums over all rows


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 100])
def test_a_sum_in_pieces_is_that_over_all_rows(size: int) -> None:
    data = {"x": jnp.arange(12.0).reshape(6, 2), "y": jnp.arange(6.0) ** 2}
    lengths = []

    def sum_over(rows: Any) -> Any:
        lengths.append(len(rows["y"]))
        return jnp.sum(rows["x"][:, 1] * rows["y"])

    found = batches.sum_in_pieces(sum_over, data, size)
    assert float(found) == float(jnp.sum(data["x"][:, 1] * data["y"]))
    assert max(lengths) == min(size, 6), "memory is bounded"
    assert len(lengths) == (2 if 6 % size and size < 6 else 1)
