"""Runs on mini-batches: all kinds of them, resumed, ended and given again."""

import chunks
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import assert_same_run

import replicax as rx


def linear_energy(params, batch):
    x, y = batch
    return 50 / len(y) * jnp.sum((y - x @ params["w"] - params["b"]) ** 2)


X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
DATA = (X, X @ np.array([1.0, -2.0, 3.0], np.float32))
START = {"w": jnp.zeros(3), "b": jnp.zeros(())}
LINEAR = dict(num_replicas=3, learning_rate=(1e-4, 1e-3), progress=False, buffer=0.1, burn_in=0)


def batch_of(step: int):
    rows = np.random.default_rng(step).integers(0, 50, 8)
    return tuple(x[rows] for x in DATA)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "batches",
    [
        lambda: dict(batches=DATA, batch_size=8),
        lambda: dict(batches=batch_of),
        lambda: dict(batches=(batch_of(step) for step in range(10_000))),
    ],
    ids=["arrays", "function", "iterable"],
)
def test_every_kind_of_batch_resumes_bit_for_bit(tmp_path, batches):
    whole = rx.sample(linear_energy, START, num_steps=90, **LINEAR, **batches())
    rx.sample(linear_energy, START, num_steps=41, run_dir=tmp_path / "r", **LINEAR, **batches())
    resumed = chunks.resume(
        tmp_path / "r", linear_energy, num_steps=90, chunk_steps=20, **batches()
    )
    assert_same_run(resumed, whole)
    assert whole.energies[0, -1] < whole.energies[0, 0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_function_and_an_iterable_of_the_same_batches_agree():
    one = rx.sample(linear_energy, START, num_steps=50, batches=batch_of, **LINEAR)
    feed = (batch_of(step) for step in range(50))
    other = chunks.sample(linear_energy, START, num_steps=50, batches=feed, chunk_steps=7, **LINEAR)
    assert_same_run(one, other)


def test_batches_that_end_stop_the_run_and_keep_what_was_drawn():
    feed = [batch_of(step) for step in range(20)]
    with pytest.warns(UserWarning, match="batches ended at step 20"):
        posterior = rx.sample(linear_energy, START, num_steps=50, batches=feed, **LINEAR)
    assert posterior.result.code == "batches_ended" and posterior.draws["w"].shape == (1, 20, 3)
    with pytest.raises(ValueError, match="ended at step 0"):
        rx.sample(linear_energy, START, num_steps=50, batches=[], **LINEAR)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_finished_run_needs_no_more_batches_than_it_had(tmp_path):
    folder, feed = tmp_path / "run", [batch_of(step) for step in range(20)]
    whole = rx.sample(linear_energy, START, num_steps=20, run_dir=folder, batches=feed, **LINEAR)
    resumed = rx.resume(folder, linear_energy, batches=feed)
    assert resumed.result.code == whole.result.code == "finished"
    assert_same_run(resumed, whole)
    longer = rx.resume(folder, linear_energy, batches=feed, num_steps=30)
    assert longer.result.code == "batches_ended" and longer.num_steps == 20
    with pytest.raises(ValueError, match="ended at step 0"):  # by which it is not recognised
        rx.resume(folder, linear_energy, batches=iter([]))


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_resume_refuses_what_is_not_the_run_it_continues(tmp_path):
    folder = tmp_path / "run"
    rx.sample(linear_energy, START, num_steps=20, run_dir=folder, batches=batch_of, **LINEAR)
    with pytest.raises(ValueError, match="Give the same batches"):
        rx.resume(folder, linear_energy, num_steps=30)
    with pytest.raises(ValueError, match="stands at step 20"):
        rx.resume(folder, linear_energy, num_steps=10, batches=batch_of)
    with pytest.raises(ValueError, match="takes no seed"):
        rx.resume(folder, linear_energy, batches=batch_of, seed=4)
    with pytest.raises(ValueError, match="does not fit"):
        rx.resume(folder, linear_energy, batches=batch_of, kernel="momentum", num_steps=30)
    with pytest.raises(ValueError, match="not a run folder"):
        rx.resume(tmp_path, linear_energy)
    with pytest.raises(ValueError, match="already holds a run"):
        rx.sample(linear_energy, START, num_steps=20, run_dir=folder, batches=batch_of, **LINEAR)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_folder_cannot_hold_must_be_given_again(tmp_path):
    kernel = rx.kernels.from_optax(optax.adam(1.0))
    options = dict(LINEAR, kernel=kernel, gain=lambda step: 0.01 + 0 * step)
    whole = rx.sample(linear_energy, START, num_steps=40, batches=DATA, batch_size=8, **options)
    folder = tmp_path / "run"
    rx.sample(linear_energy, START, num_steps=20, batches=DATA, batch_size=8, run_dir=folder,
              **options)  # fmt: skip
    again = dict(num_steps=40, batches=DATA, batch_size=8)
    with pytest.raises(ValueError, match="kernel of your own"):
        rx.resume(folder, linear_energy, **again)
    with pytest.raises(ValueError, match="gain of your own"):
        rx.resume(folder, linear_energy, kernel=kernel, **again)
    resumed = rx.resume(folder, linear_energy, kernel=kernel, gain=options["gain"], **again)
    assert_same_run(resumed, whole)


@pytest.mark.slow  # much like the one above
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_transform_of_optax_is_given_again(tmp_path):
    transform = optax.sgd(1.0)
    options = dict(LINEAR, kernel=transform, batches=DATA, batch_size=8)
    whole = rx.sample(linear_energy, START, num_steps=40, **options)
    folder, again = tmp_path / "run", dict(num_steps=40, batches=DATA, batch_size=8)
    rx.sample(linear_energy, START, num_steps=20, run_dir=folder, **options)
    with pytest.raises(ValueError, match=r"kernel of your own.*target, kernel=\.\.\."):
        rx.resume(folder, linear_energy, **again)
    assert_same_run(rx.resume(folder, linear_energy, kernel=transform, **again), whole)
