"""Sources of mini-batches: their order, their state in a run folder, and what is refused."""

import functools
import json
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run, rng_of, slow

import replicax as rx
from replicax.networks.problem import Supervised
from replicax.run.batches import EpochBatches
from replicax.run.initial import seed_keys
from replicax.run.source_batches import as_source
from replicax.run.source_reader import Place, SourceReader

NUM_ROWS, SIZE = 60, 6
PER_EPOCH = NUM_ROWS // SIZE
X = np.c_[np.ones(NUM_ROWS), rng_of(0).normal(size=(NUM_ROWS, 2))].astype(np.float32)
Y = (X @ np.array([0.5, -1.0, 2.0]) + rng_of(1).normal(size=NUM_ROWS)).astype(np.float32)


def batch(rows: Any) -> dict[str, np.ndarray]:
    return {"x": X[rows], "y": Y[rows]}


class Plain:
    """Each epoch in the same order; its iterators are generators."""

    def order(self) -> np.ndarray:
        return np.arange(NUM_ROWS)

    def __iter__(self) -> Iterator[Any]:
        order = self.order()
        return (batch(order[i * SIZE : (i + 1) * SIZE]) for i in range(PER_EPOCH))


class ByEpoch(Plain):
    """Each epoch in an order of its own, which follows from its number."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self) -> np.ndarray:
        return rng_of(self.epoch + 7).permutation(NUM_ROWS)


class Stateful:
    """Each epoch in an order drawn when it begins; iterators have grain's interface."""

    encode, decode = staticmethod(lambda state: state), staticmethod(lambda state: state)

    def __init__(self) -> None:
        self.rng = rng_of(3)

    def __iter__(self) -> "StatefulIterator":
        return StatefulIterator(self)


class InBytes(Stateful):
    encode = staticmethod(lambda state: json.dumps(state).encode())
    decode = staticmethod(json.loads)


class StatefulIterator:
    def __init__(self, source: Stateful) -> None:
        self.source, self.next = source, 0
        self.order = source.rng.permutation(NUM_ROWS).tolist()

    def __iter__(self) -> "StatefulIterator":
        return self

    def __next__(self) -> Any:
        if self.next == PER_EPOCH:
            raise StopIteration
        self.next += 1
        return batch(self.order[(self.next - 1) * SIZE : self.next * SIZE])

    def get_state(self) -> Any:
        rng = self.source.rng.bit_generator.state
        return self.source.encode({"rng": rng, "order": self.order, "next": self.next})

    def set_state(self, state: Any) -> None:
        state = self.source.decode(state)
        self.source.rng.bit_generator.state = state["rng"]
        self.order, self.next = state["order"], state["next"]


def stream(source: Any, count: int) -> list[Any]:
    """The batches of a source, epoch after epoch, read plainly."""
    batches, epoch = [], 0
    while len(batches) < count:
        if isinstance(source, ByEpoch):
            source.set_epoch(epoch)
        batches, epoch = batches + list(source), epoch + 1
    return batches[:count]


# Runs


def log_likelihood(params: Any, rows: Any) -> Any:
    return -((rows["y"] - rows["x"] @ params) ** 2) / 2


def log_prior(params: Any) -> Any:
    return -jnp.sum(params**2) / 200


def posterior(source: Any, **options: Any) -> Any:
    given = {"batch_size": SIZE, "num_rows": NUM_ROWS} | options
    return rx.bayesian(log_likelihood, log_prior, source, **given)


def loss_fn(params: Any, model_state: Any, rows: Any, key: Any) -> tuple[Any, Any]:
    return -jnp.mean(log_likelihood(params, rows)), model_state


def problem(source: Any, **options: Any) -> Any:
    return rx.supervised(loss_fn, source, **{"batch_size": SIZE, "num_rows": NUM_ROWS} | options)


SHORT: dict[str, Any] = {
    "num_steps": 47,
    "num_replicas": 3,
    "progress": False,
    "swap_every": 3,
    "learning_rate": 1e-3,
    "temperature": (1.0, 4.0),
    "kernel": "sgld",
    "adapt": False,
    "burn_in": 2,
    "thin": 1,
}
PAPER: dict[str, Any] = {
    "num_steps": 47, "num_replicas": 3, "progress": False, "learning_rate": (1e-3, 1e-2),
    "buffer": 0.1, "burn_in": 0,
}  # fmt: skip
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


def stop_at(step: int) -> Any:
    return lambda progress: "stop" if progress.step >= step else None


@functools.cache
def whole_run(make: Any) -> rx.Posterior:
    return rx.sample(posterior(make()), jnp.zeros(3), **SHORT)


@quiet
def test_a_source_gives_the_numbers_of_a_function_of_the_step() -> None:
    of_step, start = stream(ByEpoch(), 47), (jnp.zeros(3), {})
    network = problem(ByEpoch())
    one = rx.sample(network, start, **PAPER)
    options = PAPER | {"temperature": float(network.temperature(1.0)), "chunk_steps": 9}
    other = rx.sample(network.target, start, batches=lambda step: of_step[step], **options)
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

    run = rx.sample(posterior(Alternating()), jnp.zeros(3), **SHORT | {"swap_every": 1})
    assert np.all(run.energies > 1e6)


@quiet
@pytest.mark.parametrize("make", [slow(Plain), slow(ByEpoch), Stateful, slow(InBytes)])
def test_a_posterior_of_a_source_resumes_bit_for_bit(tmp_path: Any, make: Any) -> None:
    whole = whole_run(make)
    folder, options = tmp_path / "run", SHORT | {"chunk_steps": 5}
    stopped = rx.sample(
        posterior(make()), jnp.zeros(3), **options, run_dir=folder, callback=stop_at(22)
    )
    assert stopped.num_steps == 25  # 34 batches, so that the fourth epoch has begun
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        resumed = rx.resume(folder, posterior(make()), chunk_steps=4)
    assert_same_run(resumed, whole)
    said = [str(w.message) for w in caught if "source" in str(w.message)]
    assert len(said) == (0 if issubclass(make, Stateful) else 1)
    for sentence in said:
        assert "no get_state and set_state: from epoch" in sentence
        assert "continues exactly if" in sentence


def accuracy_test() -> rx.Test:
    def logits(params: Any, model_state: Any, inputs: Any) -> Any:
        return jnp.stack([inputs @ params, -(inputs @ params)], 1)

    return rx.Test(logits, jnp.asarray(X), jnp.asarray(Y < 0, jnp.int32), 2)


def train(source: Any, **options: Any) -> rx.Trained:
    chosen = {"epochs": 3, "num_replicas": 3, "learning_rate": (0.01, 0.1), "method": "deo"}
    chosen |= {"progress": False, "target_swap_rate": 0.3, "keep_networks": True}
    given = source if isinstance(source, Supervised) else problem(source, test=accuracy_test())
    return rx.train(given, (jnp.zeros(3), {}), **chosen | options)


@quiet
@pytest.mark.parametrize("make", [slow(ByEpoch), InBytes, slow(Plain), slow(Stateful)])
def test_a_training_on_a_source_resumes_within_an_epoch(
    tmp_path: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(make())
    monkeypatch.setattr("replicax.run.host_loop._FIRST_STEPS", 3)
    monkeypatch.setattr("replicax.run.host_loop.Pace.after", lambda pace, *times: pace)
    stopped = train(make(), run_dir=tmp_path / "run", callback=stop_at(14))
    assert stopped.num_steps % PER_EPOCH and whole.num_epochs == 3
    resumed = rx.resume_training(
        tmp_path / "run", problem(make(), test=accuracy_test()), progress=False
    )
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
    rx.sample(posterior(source), jnp.zeros(3), **SHORT | {"chunk_steps": 7})
    assert source.given == 47 + 16
    assert not [t for t in threading.enumerate() if t.name.startswith("replicax-source")]

    reader = SourceReader(source, SIZE)
    reader.read(0, 3)
    reader.forget(3)
    reader.read_ahead(4)
    reader.close()
    assert len(reader.pending) == 4


# What is refused


class Yields:
    """A source of given batches."""

    def __init__(self, *batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batches)


FIRST = batch(np.arange(SIZE))
BAD_BATCHES: dict[str, tuple[Any, str]] = {
    "empty": (Yields(), "gives no batch.*iter\\(\\) starts a new epoch"),
    "a short last batch": (
        Yields(FIRST, batch(np.arange(4))),
        r"Batch 1 of epoch 0.*\(4, 3\).*batch_size=6 rows.*drop_remainder",
    ),
    "a long batch": (Yields(batch(np.arange(7))), "Batch 0 of epoch 0.*batch_size=6 rows"),
    "another dtype": (
        Yields(FIRST, {"x": X[:SIZE].astype(np.float64), "y": Y[:SIZE]}),
        "Batch 1 of epoch 0.*float64.*the first had.*float32",
    ),
    "another shape": (
        Yields(FIRST, {"x": X[:SIZE, :2], "y": Y[:SIZE]}),
        r"Batch 1 of epoch 0.*\(6, 2\).*the first had.*\(6, 3\)",
    ),
    "another container": (
        Yields(FIRST, (X[:SIZE], Y[:SIZE])),
        "Batch 1 of epoch 0.*same containers",
    ),
    "text": (Yields(np.array(["a"] * SIZE)), "Batch 0 of epoch 0.*text"),
    "numbers": (Yields(3.0), "Batch 0 of epoch 0.*batch_size=6 rows"),
    "nothing": (Yields({}), "Batch 0 of epoch 0.*of none"),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_named(name: str) -> None:
    source, sentence = BAD_BATCHES[name]
    with pytest.raises(ValueError, match=sentence):
        rx.sample(posterior(source), jnp.zeros(3), **SHORT)


@quiet
def test_a_generator_serves_one_epoch() -> None:
    run = rx.sample(posterior(iter(Plain())), jnp.zeros(3), **SHORT)
    assert run.result.code == "batches_ended" and run.num_steps == 7  # with three that judged
    assert "ended after 10 batches, and gives none when it is iterated again" in run.result.sentence


@pytest.mark.slow
@quiet
def test_an_error_of_the_source_saves_the_run_first(tmp_path: Any) -> None:
    class Fails(Plain):
        healthy = False

        def __iter__(self) -> Iterator[Any]:
            for number, rows in enumerate(super().__iter__()):
                if number == 8 and not self.healthy:
                    raise OSError("the disk went away")
                yield rows

    source, options = Fails(), SHORT | {"chunk_steps": 2, "checkpoint_every": 1000}
    with pytest.raises(OSError, match="went away"):
        rx.sample(posterior(source), jnp.zeros(3), **options, run_dir=tmp_path / "run")
    source.healthy = True
    assert_same_run(rx.resume(tmp_path / "run", posterior(source)), whole_run(Plain))


def test_a_source_that_became_shorter_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer batches than when the run was started"):
        SourceReader(Yields(FIRST, FIRST), SIZE).go_to(Place(25, 2, 5), 25)


REFUSED: dict[str, tuple[Any, str]] = {
    "no num_rows": (lambda: posterior(Plain(), num_rows=None), "num_rows is None"),
    "too few rows": (lambda: posterior(Plain(), num_rows=3), "num_rows is 3.*batch_size=6"),
    "no batch_size": (lambda: posterior(Plain(), batch_size=None), "batch_size is None"),
    "arrays with num_rows": (lambda: posterior(X), "arrays, which have their own"),
    "tuple with num_rows": (lambda: posterior((X, Y)), "num_rows is given, and data is"),
    "no length": (lambda: problem(Plain(), num_rows=None), "num_rows is None"),
    "text": (lambda: posterior("rows.csv", num_rows=None), "data must be arrays"),
    "pointwise": (lambda: posterior(Plain()).pointwise(jnp.zeros((1, 1, 3))), "a part at a time"),
    "all rows": (lambda: _sampled(swap_energy="full"), 'write swap_energy="batch"'),
    "some rows": (lambda: _sampled(swap_energy=20), 'write swap_energy="batch"'),
    "hmc": (lambda: _sampled(kernel="hmc"), "adjusted kernel.*langevin"),
    "metropolis": (lambda: _sampled(rule="metropolis"), "bias_corrected"),
    "one after another": (lambda: _sampled(schedule="ape"), 'write schedule="deo"'),
    "the prior": (lambda: _sampled(temperature=(1.0, np.inf)), "infinite temperature"),
    "bias-corrected networks": (
        lambda: rx.sample(
            problem(Plain()), (jnp.zeros(3), {}), num_steps=9, rule="bias_corrected",
            num_replicas=2, learning_rate=1e-3, temperature=(1.0, 2.0), window=1,
        ),
        "pass arrays",
    ),
    "swag": (lambda: train(Plain(), method="cyc-swag", learning_rate=0.1), "give arrays, or"),
    "a state that is no plain data": (
        lambda: rx.sample(posterior(_Opaque()), jnp.zeros(3), **SHORT),
        "get_state.*bytes",
    ),
}  # fmt: skip


def _sampled(**options: Any) -> Any:
    return rx.sample(posterior(Plain()), jnp.zeros(3), **SHORT | options)


class _Opaque(Stateful):
    encode = staticmethod(lambda state: object())


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_source_cannot_do_is_refused_with_a_remedy(name: str) -> None:
    call, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=sentence):
        call()


@quiet
def test_the_evidence_of_a_source_is_refused() -> None:
    with pytest.raises(ValueError, match="all rows as arrays"):
        whole_run(Plain).log_evidence()


def test_a_list_with_num_rows_is_a_source_and_its_length_counts() -> None:
    batches = list(Plain())
    assert problem(batches).steps_per_epoch == PER_EPOCH
    assert problem(batches, num_rows=100).steps_per_epoch == 16

    class Sized(Plain):
        def __len__(self) -> int:
            return PER_EPOCH

    assert problem(Sized(), num_rows=None).num_rows == NUM_ROWS


# The law


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
    run = rx.sample(
        target, jnp.asarray(mean, jnp.float32), num_steps=9_000, num_replicas=3, num_chains=2,
        swap_every=5, progress=False, seed=3,
    )  # fmt: skip
    draws = np.asarray(run.draws).reshape(-1, 2)
    assert run.round_trips.min() > 20
    np.testing.assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.2)
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, 0.0, atol=0.3)
