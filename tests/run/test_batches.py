"""Runs on mini-batches: all kinds of them, resumed, ended and given again."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import assert_same_run, chunks_of

import replicax as rx


def linear_energy(params, batch):
    x, y = batch
    return 50 / len(y) * jnp.sum((y - x @ params["w"] - params["b"]) ** 2)


X = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
DATA = (X, X @ np.array([1.0, -2.0, 3.0], np.float32))
START = {"w": jnp.zeros(3), "b": jnp.zeros(())}
METHOD = rx.deo_star(learning_rate=(1e-4, 1e-3), buffer=0.1)
LINEAR = dict(num_replicas=3, progress=False, method=METHOD)


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
    ],
    ids=["arrays", "function"],
)
def test_every_kind_of_batch_resumes_bit_for_bit(tmp_path, batches):
    whole = rx.sample(linear_energy, START, num_steps=90, **LINEAR, **batches())
    rx.sample(linear_energy, START, num_steps=41, run_dir=tmp_path / "r", **LINEAR, **batches())
    with chunks_of(20):
        resumed = rx.resume(tmp_path / "r", linear_energy, num_steps=90, **batches())
    assert_same_run(resumed, whole)
    assert whole.energies[0, -1] < whole.energies[0, 0]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_resume_refuses_what_is_not_the_run_it_continues(tmp_path):
    folder = tmp_path / "run"
    rx.sample(linear_energy, START, num_steps=20, run_dir=folder, batches=batch_of, **LINEAR)
    with pytest.raises(ValueError, match="Give the same target and batches"):
        rx.resume(folder, linear_energy, num_steps=30)
    with pytest.raises(ValueError, match="stands at step 20"):
        rx.resume(folder, linear_energy, num_steps=10, batches=batch_of)
    with pytest.raises(ValueError, match="takes no seed"):
        rx.resume(folder, linear_energy, batches=batch_of, seed=4)
    with pytest.raises(ValueError, match="takes no kernel.*method=rx.deo_star.kernel="):
        rx.resume(folder, linear_energy, batches=batch_of, kernel="momentum", num_steps=30)
    with pytest.raises(ValueError, match="kernel is given.*leave out kernel"):
        changed = rx.deo_star(kernel="momentum")
        rx.resume(folder, linear_energy, batches=batch_of, method=changed, num_steps=30)
    with pytest.raises(ValueError, match="not a run folder"):
        rx.resume(tmp_path, linear_energy)
    with pytest.raises(ValueError, match="already holds a run"):
        rx.sample(linear_energy, START, num_steps=20, run_dir=folder, batches=batch_of, **LINEAR)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_a_folder_cannot_hold_must_be_given_again(tmp_path):
    kernel = rx.kernels.from_optax(optax.adam(1.0))
    given = {"kernel": kernel, "gain": lambda step: 0.01 + 0 * step}
    options = dict(LINEAR, method=replace(METHOD, **given))
    whole = rx.sample(linear_energy, START, num_steps=40, batches=DATA, batch_size=8, **options)
    folder = tmp_path / "run"
    rx.sample(linear_energy, START, num_steps=20, batches=DATA, batch_size=8, run_dir=folder,
              **options)  # fmt: skip
    again = dict(num_steps=40, batches=DATA, batch_size=8)
    with pytest.raises(ValueError, match="kernel of your own"):
        rx.resume(folder, linear_energy, **again)
    with pytest.raises(ValueError, match="gain of your own"):
        rx.resume(folder, linear_energy, method=rx.deo_star(kernel=kernel), **again)
    resumed = rx.resume(folder, linear_energy, method=rx.deo_star(**given), **again)
    assert_same_run(resumed, whole)


@pytest.mark.slow  # much like the one above
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_transform_of_optax_is_given_again(tmp_path):
    transform = optax.sgd(1.0)
    method = replace(METHOD, kernel=transform)
    options = dict(LINEAR, method=method, batches=DATA, batch_size=8)
    whole = rx.sample(linear_energy, START, num_steps=40, **options)
    folder, again = tmp_path / "run", dict(num_steps=40, batches=DATA, batch_size=8)
    rx.sample(linear_energy, START, num_steps=20, run_dir=folder, **options)
    with pytest.raises(
        ValueError, match=r"kernel of your own.*target, method=rx.deo_star\(kernel=\.\.\.\)"
    ):
        rx.resume(folder, linear_energy, **again)
    assert_same_run(rx.resume(folder, linear_energy, method=method, **again), whole)
