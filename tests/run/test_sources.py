"""Sources of mini-batches: their order, and their state in a run folder."""

import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run, chunks_of, rng_of, slow
from row_sources import (
    NUM_ROWS,
    PAPER,
    PER_EPOCH,
    SIZE,
    ByEpoch,
    InBytes,
    Plain,
    Stateful,
    accuracy_test,
    batch,
    log_likelihood,
    log_prior,
    loss_fn,
    posterior,
    problem,
    quiet,
    sample,
    stop_at,
    stream,
    train,
    whole_run,
)

import replicax as rx
from replicax.algorithm.randomness import seed_keys
from replicax.run.batches import EpochBatches
from replicax.run.sources import SourceReader, as_source


@quiet
def test_a_source_gives_the_numbers_of_a_function_of_the_step() -> None:
    of_step, start = stream(ByEpoch(), 47), (jnp.zeros(3), {})
    network = problem(ByEpoch())
    one = rx.sample(network, start, **PAPER)
    method = replace(PAPER["method"], temperature=float(network.unit.temperatures(1.0)))
    options = PAPER | {"method": method, "batches": lambda step: of_step[step]}
    with chunks_of(9):
        other = rx.sample(network.target, start, **options)
    assert_same_run(one, other)
    assert len(np.unique(one.energies)) == 47


def test_a_source_may_write_over_its_batches() -> None:
    def overwriting() -> Iterator[Any]:
        rows = np.zeros(SIZE)
        for number in range(4):
            rows[:] = number
            yield rows

    batches = SourceReader(overwriting(), SIZE).read(0, 4)
    assert [rows[0] for rows in batches] == [0, 1, 2, 3]


@pytest.mark.parametrize("every", [1, 3, 10])
def test_swaps_are_judged_on_the_batch_after_that_of_the_move(every: int) -> None:
    batches = as_source(ByEpoch(), SIZE, NUM_ROWS, judges=True).for_run(every)
    expected, number, step = stream(ByEpoch(), 100), 0, 0
    for count in (1, 7, 12, 4):
        fed, data = batches.feed(step, count, 12)
        assert fed == count
        batches.read_ahead(step + count, 3)
        for place in range(count):
            at = jnp.asarray(step + place), jnp.asarray(place)
            moved = batches.take(data, None, None, *at)
            np.testing.assert_array_equal(moved["x"], expected[number]["x"])
            number += 1
            if (step + place) % every == 0:
                fresh = batches.fresh(data, *at)
                assert fresh is not None and fresh.noise_share == 1.0
                judged = fresh(jax.random.key(0))
                np.testing.assert_array_equal(judged["y"], expected[number]["y"])
                number += 1
        step += count
    batches.close()


@pytest.mark.slow
@quiet
def test_the_batch_that_moves_never_judges() -> None:
    """Where the judging batches are of another scale, the recorded energies have it."""

    class Alternating(Plain):
        def __iter__(self) -> Iterator[Any]:
            for number, rows in enumerate(super().__iter__()):
                yield {"x": rows["x"], "y": rows["y"] + 1000 * (number % 2)}

    run = sample(Alternating(), swap_every=1)
    assert np.all(run.energies > 1e6)


@quiet
@pytest.mark.parametrize("make", [slow(Plain), slow(ByEpoch), Stateful, slow(InBytes)])
def test_a_posterior_of_a_source_resumes_bit_for_bit(tmp_path: Any, make: Any) -> None:
    whole = whole_run(make)
    folder = tmp_path / "run"
    stopped = sample(make(), chunk_steps=5, run_dir=folder, callback=stop_at(22))
    assert stopped.num_steps == 25  # 34 batches, so that the fourth epoch has begun
    with warnings.catch_warnings(record=True) as caught, chunks_of(4):
        warnings.simplefilter("always")
        resumed = rx.resume(folder, posterior(make()))
    assert_same_run(resumed, whole)
    said = [str(w.message) for w in caught if "source" in str(w.message)]
    assert len(said) == (0 if issubclass(make, Stateful) else 1)
    for sentence in said:
        assert "no get_state and set_state: from epoch" in sentence
        assert "continues exactly if" in sentence


@quiet
@pytest.mark.parametrize("make", [slow(ByEpoch), InBytes, slow(Plain), slow(Stateful)])
def test_a_training_on_a_source_resumes_within_an_epoch(tmp_path: Any, make: Any) -> None:
    whole = train(make())
    folder = tmp_path / "run"
    with chunks_of(3):
        stopped = train(make(), run_dir=folder, callback=stop_at(14))
    assert stopped.num_steps % PER_EPOCH and whole.num_epochs == 3
    with chunks_of(3):
        resumed = rx.resume(folder, problem(make(), test=accuracy_test()), progress=False)
    assert_same_run(resumed, whole)


@pytest.mark.slow
@quiet
def test_a_training_on_a_source_is_that_on_arrays_in_the_same_order() -> None:
    rows = batch(np.arange(NUM_ROWS))
    arrays = rx.supervised(loss_fn, rows, batch_size=SIZE, test=accuracy_test())
    assert isinstance(arrays.batches, EpochBatches)
    key = seed_keys(0, 1)[0][0]
    orders = [np.asarray(arrays.batches.order(key, jnp.array(epoch))) for epoch in range(3)]

    class SameOrder(ByEpoch):
        def order(self) -> np.ndarray:
            return orders[self.epoch]

    assert_same_run(train(SameOrder()), train(arrays))


def test_a_run_that_stops_within_a_chunk_is_saved_at_a_place_before() -> None:
    """The source is then ahead of the run by the rest of the chunk, and by what was read ahead."""
    batches = as_source(Stateful(), SIZE, NUM_ROWS, judges=True).for_run(3)
    expected = stream(Stateful(), 80)
    batches.feed(0, 20, 20)
    batches.read_ahead(20, 5)
    batches.feed(20, 20, 20)
    batches.read_ahead(40, 5)
    batches.close()
    for step in (20, 21, 29, 40):
        again = as_source(Stateful(), SIZE, NUM_ROWS, judges=True).for_run(3)
        again.first(jax.random.key(0))
        again.skip_to(step, batches.state(step))
        _, data = again.feed(step, 1, 2)
        np.testing.assert_array_equal(data["x"][0], expected[step - (-step // 3)]["x"])


@pytest.mark.slow
@quiet
def test_memory_is_bounded_and_the_source_is_left_alone_after_the_run() -> None:
    class Counted(Plain):
        given = 0

        def __iter__(self) -> Iterator[Any]:
            for rows in super().__iter__():
                self.given += 1
                yield rows

    source = Counted()
    sample(source, chunk_steps=7)
    assert source.given == 47 + 16
    assert not [t for t in threading.enumerate() if t.name.startswith("replicax-source")]

    reader = SourceReader(source, SIZE)
    reader.read(0, 3)
    reader.forget(3)
    reader.read_ahead(4)
    reader.close()
    assert len(reader.pending) == 4


@pytest.mark.slow
@quiet
def test_a_source_has_the_law_of_the_posterior() -> None:
    """Standard deviations within 20 % of the exact ones, means within 0.3 of them: about five times
    the error of an estimate, and far from what a likelihood with another scale would give."""
    num_rows, size = 200, 40
    x = np.c_[np.ones(num_rows), rng_of(4).normal(size=num_rows)].astype(np.float32)
    y = (x @ np.array([0.5, -1.0]) + rng_of(5).normal(size=num_rows)).astype(np.float32)

    class Independent:
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

        def __iter__(self) -> Iterator[Any]:
            rows = rng_of(self.epoch).integers(0, num_rows, (5, size))
            return ({"x": x[own], "y": y[own]} for own in rows)

    covariance = np.linalg.inv(x.T.astype(float) @ x + np.eye(2) / 100)
    mean, sd = covariance @ (x.T.astype(float) @ y), np.sqrt(np.diag(covariance))
    target = rx.bayesian(
        log_likelihood, log_prior, Independent(), batch_size=size, num_rows=num_rows
    )
    method = rx.deo(1e-4, temperature=(1.0, 4.0), rule="bias_corrected", swap_every=5)
    run = rx.sample(
        target, jnp.asarray(mean, jnp.float32), num_steps=9_000, num_replicas=3, num_chains=2,
        method=method, burn_in=1_000, progress=False, seed=3,
    )  # fmt: skip
    draws = np.asarray(run.draws).reshape(-1, 2)
    assert run.round_trips.min() > 20
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.2)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.3)
