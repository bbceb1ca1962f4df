"""Mini-batches epoch by epoch: each row once, in an order of its own, whatever the chunks."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of, slow

import replicax as rx
from replicax.algorithm import randomness
from replicax.run.batches import as_batches, as_epochs

NUM_STEPS = 20
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def rows_and_luck(key: Any, rows: Any) -> tuple[Any, Any]:
    return rows, jax.random.uniform(key)


def remembering(x: Any, seen: Any, batch: Any, key: Any) -> tuple[Any, Any]:
    """A replica that writes down what it is shown, and is drawn to the mean of it."""
    rows, luck = batch
    seen = {
        "rows": seen["rows"].at[seen["count"]].set(rows),
        "luck": seen["luck"].at[seen["count"]].set(luck),
        "count": seen["count"] + 1,
    }
    return jnp.sum((x - jnp.mean(rows.astype(jnp.float32))) ** 2) / 2, seen


@functools.cache
def run(
    num_rows: int, batch_size: int, chunk_steps: int | None = None, **options: Any
) -> rx.Posterior:
    start = {
        "rows": jnp.full((NUM_STEPS, batch_size), -1),
        "luck": jnp.zeros(NUM_STEPS),
        "count": jnp.array(0),
    }
    chosen = {"num_chains": 2, "num_replicas": 2, "seed": 0, "history_every": NUM_STEPS} | options
    with chunks_of(chunk_steps):
        return rx.sample(
            rx.Target(remembering, has_state=True),
            (jnp.zeros(1), start),
            num_steps=NUM_STEPS,
            batches=as_epochs(np.arange(num_rows), batch_size, rows_and_luck),
            method=rx.deo_star(learning_rate=(0.01, 0.1), buffer=0.1, buffer_gain=0.1),
            draw_rungs="all",
            progress=False,
            **chosen,
        )


def shown(posterior: rx.Posterior, rung: int = 0) -> dict[str, np.ndarray]:
    """What the replica that ends on a rung was shown: rows (chain, step, row), luck, count."""
    _, seen = posterior.draws_at(rung)
    return {name: values[:, -1] for name, values in seen.items()}


def test_an_epoch_shows_every_row_once() -> None:
    rows = shown(run(24, 8))["rows"]
    assert rows.shape == (2, NUM_STEPS, 8)
    epochs = rows[:, :18].reshape(2, 6, 24)
    np.testing.assert_array_equal(
        np.sort(epochs, axis=-1), np.broadcast_to(np.arange(24), (2, 6, 24))
    )
    assert len(np.unique(epochs.reshape(12, 24), axis=0)) == 12, "orders of epochs and chains"
    last = rows[:, 18:].reshape(2, 16)
    assert all(len(np.unique(chain)) == 16 for chain in last)


def test_a_batch_of_everything_is_whole() -> None:
    assert (
        as_epochs(np.arange(24), 24).has_all_rows and not as_epochs(np.arange(24), 23).has_all_rows
    )
    assert (
        as_batches(np.arange(24), 24).has_all_rows
        and not as_batches(np.arange(24), 23).has_all_rows
    )


def test_no_step_has_the_key_of_an_order() -> None:
    batches, key = as_epochs(np.arange(24), 8), randomness.make_key(0)
    orders = {tuple(batches.order(key, jnp.array(epoch)).tolist()) for epoch in range(3)}
    for step in range(8):
        of_step = jax.random.fold_in(key, step)
        drawn = (jax.random.permutation(jax.random.fold_in(of_step, k), 24) for k in range(3))
        assert orders.isdisjoint(tuple(order.tolist()) for order in drawn)


def test_a_last_batch_is_filled_from_the_beginning_of_its_epoch() -> None:
    rows = shown(run(10, 4))["rows"]
    epochs = rows[:, :18].reshape(2, 6, 12)
    np.testing.assert_array_equal(
        np.sort(epochs[..., :10], axis=-1), np.broadcast_to(np.arange(10), (2, 6, 10))
    )
    np.testing.assert_array_equal(epochs[..., 10:], epochs[..., :2])


def test_replicas_share_what_they_are_shown() -> None:
    cold, hot = (shown(run(24, 8), rung) for rung in (0, 1))
    for name, values in cold.items():
        np.testing.assert_array_equal(values, hot[name], err_msg=name)
    assert (cold["count"] == NUM_STEPS).all()


def test_a_batch_is_prepared_with_luck_of_its_own() -> None:
    luck = shown(run(24, 8))["luck"]
    assert len(np.unique(luck)) == 2 * NUM_STEPS


@pytest.mark.parametrize(
    "options", [slow({"chunk_steps": 3}), {"chunk_steps": 7, "history_every": 2}]
)
def test_how_a_run_is_cut_changes_nothing(options: dict[str, int]) -> None:
    """All 20 steps, of more than six epochs, lie in one segment unless a run is cut."""
    whole, cut = run(24, 8), run(24, 8, **options)
    for one, other in zip(jax.tree.leaves(whole.draws), jax.tree.leaves(cut.draws), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(whole.rung_of, cut.rung_of)
    np.testing.assert_array_equal(whole.energies, cut.energies)
    np.testing.assert_array_equal(whole.learning_rates, cut.learning_rates)


@pytest.mark.slow
def test_the_order_follows_from_seed_and_chain_alone() -> None:
    first = shown(run(24, 8))["rows"]
    alone, other = (shown(run(24, 8, num_chains=1, seed=seed))["rows"] for seed in (0, 1))
    np.testing.assert_array_equal(alone[0], first[0])
    assert (np.any(alone[0] != other[0], axis=-1)).mean() > 0.9


def test_a_program_does_not_grow_with_the_epochs_of_a_segment() -> None:
    batches = as_epochs(np.arange(24), 8)

    def size(num_steps: int) -> int:
        plan = lambda key, step: batches.plan(key, step, num_steps)  # noqa: E731
        return len(jax.make_jaxpr(plan)(jax.random.key(0), 0).eqns)

    assert size(60) == size(6)


def fresh_rows(num_rows: int, batch_size: int, num_draws: int = 6000) -> np.ndarray:
    """Rows of further batches  (draw, row)."""
    batches = as_epochs(jnp.arange(num_rows), batch_size)
    keys = jax.random.split(jax.random.key(0), num_draws)
    return np.asarray(jax.jit(jax.vmap(batches.fresh(batches.data)))(keys))


@pytest.mark.parametrize(
    ("num_rows", "batch_size"), [slow(6, 1), (6, 2), slow(6, 3), (6, 4), slow(6, 5)]
)
def test_every_subset_of_rows_is_an_equally_likely_further_batch(
    num_rows: int, batch_size: int
) -> None:
    rows = np.sort(fresh_rows(num_rows, batch_size), axis=1)
    subsets = list(itertools.combinations(range(num_rows), batch_size))
    counts = np.array([(rows == subset).all(axis=1).sum() for subset in subsets])
    assert counts.sum() == len(rows), "a row came twice"
    expected = len(rows) / len(subsets)
    chi_square, freedom = np.sum((counts - expected) ** 2 / expected), len(subsets) - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)


def test_a_further_batch_of_everything_is_the_rows_in_order() -> None:
    np.testing.assert_array_equal(fresh_rows(7, 7, 3), np.tile(np.arange(7), (3, 1)))


def test_a_further_batch_is_prepared_with_a_key_of_its_own() -> None:
    batches = as_epochs(np.arange(24), 8, rows_and_luck)
    keys = jax.random.split(jax.random.key(0), 50)
    rows, luck = jax.jit(jax.vmap(batches.fresh(batches.data)))(keys)
    assert len(np.unique(luck)) == 50 and len(np.unique(np.sort(rows), axis=0)) > 45


LOSSES = np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0, 64.0, 100.0])


@pytest.mark.parametrize("batch_size", [slow(1), 3, slow(5), 9, slow(10)])
def test_the_noise_of_energies_is_that_of_a_finite_population(batch_size: int) -> None:
    """N times the mean of n of N losses has the variance N^2 (1 - n/N) S^2 / n."""
    num_rows = len(LOSSES)
    energies = num_rows * LOSSES[fresh_rows(num_rows, batch_size, 20_000)].mean(axis=1)
    share = 1 - batch_size / num_rows
    expected = num_rows**2 * share * LOSSES.var(ddof=1) / batch_size
    np.testing.assert_allclose(energies.var(), expected, rtol=0.05, atol=1e-9)
    error = np.sqrt(expected / len(energies))
    assert abs(energies.mean() - LOSSES.sum()) <= 4 * error + 1e-9


def test_batch_sizes_are_checked() -> None:
    with pytest.raises(ValueError, match="from 1 to 5"):
        as_epochs(np.arange(5), 6)
    with pytest.raises(ValueError, match="differ in their number of rows"):
        as_epochs((np.arange(5), np.arange(4)), 2)
