"""What sources of mini-batches cannot do, and batches that do not fit."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run
from row_sources import (
    NUM_ROWS,
    PER_EPOCH,
    SIZE,
    Plain,
    Stateful,
    X,
    Y,
    batch,
    posterior,
    problem,
    quiet,
    sample,
    train,
    whole_run,
)

import replicax as rx
from replicax.run.sources import Place, SourceReader


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
        sample(source)


@quiet
def test_a_generator_serves_one_epoch() -> None:
    run = sample(iter(Plain()))
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

    source, options = Fails(), {"chunk_steps": 2, "checkpoint_every": 1000}
    with pytest.raises(OSError, match="went away"):
        sample(source, **options, run_dir=tmp_path / "run")
    source.healthy = True
    assert_same_run(rx.resume(tmp_path / "run", posterior(source)), whole_run(Plain))


def test_a_source_that_became_shorter_is_refused() -> None:
    with pytest.raises(ValueError, match="fewer batches than when the run was started"):
        SourceReader(Yields(FIRST, FIRST), SIZE).go_to(Place(25, 2, 5), 25)


REFUSED: dict[str, tuple[Any, str]] = {
    "no num_rows": (lambda: posterior(Plain(), num_rows=None), "num_rows is None"),
    "too few rows": (lambda: posterior(Plain(), num_rows=3), "num_rows is 3.*batch_size=6"),
    "an iterator": (lambda: posterior(iter(Plain()), batch_size=None), "read once alone"),
    "arrays with num_rows": (lambda: posterior(X), "arrays, which have their own"),
    "tuple with num_rows": (lambda: posterior((X, Y)), "num_rows is given, and data is"),
    "no length": (lambda: problem(Plain(), num_rows=None), "num_rows is None"),
    "text": (lambda: posterior("rows.csv", num_rows=None), "data must be arrays"),
    "pointwise": (lambda: posterior(Plain()).pointwise(jnp.zeros((1, 1, 3))), "a part at a time"),
    "all rows": (lambda: _sampled(energy_at="all_rows"), 'write energy_at="moved"'),
    "hmc": (lambda: _sampled(kernel="hmc"), "adjusted kernel.*sgld"),
    "metropolis": (lambda: _sampled(rule="metropolis"), "bias_corrected"),
    "one after another": (lambda: _sampled(schedule="ape"), 'write schedule="deo"'),
    "the prior": (lambda: _sampled(temperature=(1.0, np.inf)), "infinite temperature"),
    "bias-corrected networks": (
        lambda: rx.sample(
            problem(Plain()), (jnp.zeros(3), {}), num_steps=9, num_replicas=2,
            method=rx.deo(1e-3, rule="bias_corrected", temperature=(1.0, 2.0)),
        ),
        "pass arrays",
    ),
    "swag": (lambda: train(Plain(), method=rx.cyc_swag(learning_rate=0.1)), "give arrays, or"),
    "a state that is no plain data": (
        lambda: sample(_Opaque()),
        "get_state.*bytes",
    ),
}  # fmt: skip


def _sampled(**options: Any) -> Any:
    return sample(Plain(), **options)


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
