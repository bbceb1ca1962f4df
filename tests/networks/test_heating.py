"""The heating of the coldest rung by the noise of mini-batches: its size, and when one is told."""

import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from made_up_metadata import metadata_of
from numpy.testing import assert_allclose

import replicax as rx
from replicax.networks.evaluate import Networks
from replicax.networks.tempered import _share, find_heating, heating_problem
from replicax.run.methods import Method
from replicax.run.storage.metadata import Metadata, Resolved, TreeSpec

NUM_ROWS, BATCH, SIZE, MOMENTUM = 60, 6, 40, 0.9
# Columns without correlations, of the mean 0 and the variance 1.
RANDOM = np.random.default_rng(0).normal(size=(NUM_ROWS, SIZE))
ROWS = np.linalg.qr(RANDOM - RANDOM.mean(axis=0))[0].astype(np.float32) * NUM_ROWS**0.5


def mean_problem(batch_size: int = BATCH, precision: Any = 1.0, decay: float = 0.02) -> Any:
    """The means of Gaussian columns of the variance 1, which have a `precision` in the model."""

    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.mean(jnp.sum(precision * (params - batch) ** 2, axis=1)) / 2, state

    return rx.supervised(loss_fn, ROWS, batch_size=batch_size, weight_decay=decay)


def by_loops(steepness: float, decay: float, size: int) -> float:
    """The share of noise that is left at the end of an epoch, from the rows of all its batches."""
    num_steps = -(-NUM_ROWS // size)
    taken = np.zeros((num_steps, NUM_ROWS))
    for step in range(num_steps):
        taken[step, (step * size + np.arange(size)) % NUM_ROWS] = 1 / size
    noise = taken @ (np.eye(NUM_ROWS) - 1 / NUM_ROWS) @ taken.T  # of rows in a random order
    matrix = np.array([[1 + decay - steepness, -decay], [1.0, 0.0]])

    def variance(noise: np.ndarray) -> float:
        covariance = np.zeros((2, 2))
        left = [np.linalg.matrix_power(matrix, num_steps - 1 - i)[:, 0] for i in range(num_steps)]
        left, epoch = np.transpose(left), np.linalg.matrix_power(matrix, num_steps)
        for _ in range(2000):
            covariance = epoch @ covariance @ epoch.T + left @ noise @ left.T
        return covariance[0, 0]

    return variance(noise) / variance(noise[0, 0] * np.eye(num_steps))


@pytest.mark.parametrize("size", [6, 16, 30, 31, 50])  # four do not divide the rows, or hardly
@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_the_noise_of_an_epoch_cancels_in_slow_directions(size: int, decay: float) -> None:
    batches = mean_problem(size).batches
    steepness = np.array([[0.01, 0.1], [0.5, 1.2]])
    wanted = [[by_loops(x, decay, size) for x in row] for row in steepness]
    assert_allclose(_share(steepness, decay, batches), wanted, rtol=1e-6)


def trained_of(problem: Any, draws: np.ndarray, rate: float, **changes: Any) -> Any:
    """A run whose networks are these draws; learning rates refer to the mean loss."""
    count = len(draws)
    hotter = np.full((count, SIZE), 1e3, np.float32)  # of another rung, which does not count
    stored = np.concatenate([draws.astype(np.float32), hotter])
    rungs = np.repeat([0, 1], count)
    given = {
        "_target": problem,
        "_like": (),
        "metadata": metadata("momentum"),
        "_records": SimpleNamespace(length=lambda group: 2 * count),
        "networks": Networks(stored, {}, np.ones(2 * count), rungs, rungs),
        "learning_rates": np.array([[rate, rate]]) / NUM_ROWS,
        "temperatures": np.array([[1.0, 2.0]]),
    }
    return SimpleNamespace(**(given | changes))


def draws_and_excess(
    precision: np.ndarray, decay: float, temperature: float, rate: float
) -> tuple[np.ndarray, float]:
    """Draws of the exact tempered posterior, and the root mean square of the excess temperature
    over the parameters that the data determine."""
    of_rows, eta = NUM_ROWS * precision / temperature, rate / NUM_ROWS
    of_posterior = of_rows + NUM_ROWS * decay
    normal = np.random.default_rng(1).normal(size=(100, SIZE))
    draws = normal / np.sqrt(of_posterior)
    noise = NUM_ROWS**2 * precision**2 * (1 / BATCH - 1 / NUM_ROWS) * NUM_ROWS / (NUM_ROWS - 1)
    share = [by_loops(eta * temperature * h, MOMENTUM, BATCH) for h in of_posterior]
    excess = eta * noise / (2 * (1 - MOMENTUM) * temperature) * share
    return draws, np.sqrt(np.sum(excess**2) / np.sum((of_rows / of_posterior) ** 2))


FEW = np.repeat([1.0, 1e-4], [10, SIZE - 10])  # ten parameters that the data determine


@pytest.mark.parametrize(
    ("precision", "temperature", "decay"),
    [(np.ones(SIZE), 1.0, 0.2), (np.ones(SIZE), 3.0, 1.0), (FEW, 1.0, 0.2)],
    ids=["cold", "hot", "few"],
)
def test_the_excess_temperature_of_exact_draws(
    precision: Any, temperature: float, decay: float
) -> None:
    """Seeds are fixed; noise and energies are known to about a tenth."""
    rate = 0.06
    draws, wanted = draws_and_excess(precision, decay, temperature, rate)
    problem = mean_problem(precision=jnp.asarray(precision, jnp.float32), decay=decay)
    temperatures = np.array([[temperature, 5.0]])
    found = find_heating(trained_of(problem, draws, rate, temperatures=temperatures))
    assert found is not None and wanted > 0.1
    assert_allclose(found, wanted, rtol=0.2)


def test_what_cannot_be_measured_is_left_out() -> None:
    draws = np.random.default_rng(0).normal(size=(12, SIZE)) / 8
    problem = mean_problem()
    find = lambda **changes: find_heating(trained_of(problem, draws, 0.06, **changes))  # noqa: E731
    assert find() > 0.1  # type: ignore[operator]
    assert find_heating(trained_of(mean_problem(NUM_ROWS), draws, 0.06)) == 0, "all rows"
    assert find_heating(trained_of(problem, draws[:9], 0.06)) is None, "few networks"
    assert find(_target=None) is None, "a folder without its problem"
    source = SimpleNamespace(batches=SimpleNamespace(data=None))
    assert find(_target=source) is None, "a source of batches"
    assert find(_records=SimpleNamespace(length=lambda group: 0)) is None, "nothing was kept"
    unknown = metadata("sgld", params=TreeSpec((), (), (), None))
    assert find(_like=None, metadata=unknown) is None, "no containers"
    assert find(metadata=metadata("momentum", rx.deo_star())) is None, "no posterior"
    assert find(metadata=metadata("preconditioned")) is None, "the scales are not known"
    assert 0 < find(metadata=metadata("sgld")) < find()  # type: ignore[operator]
    own = rx.sghmc_pt(kernel=rx.kernels.momentum(0.5))
    assert 0 < find(metadata=metadata("momentum", own)) < find()  # type: ignore[operator]


def metadata(kernel: str, method: Method = rx.sghmc_pt(), **changes: Any) -> Metadata:  # noqa: B008
    return metadata_of(resolved=resolved_of(kernel), method=method, **changes)


def resolved_of(kernel: str) -> Resolved:
    return replace(metadata_of().resolved, kernel=kernel)


def test_a_tenth_is_told() -> None:
    assert heating_problem(None) is None and heating_problem(0.1) is None
    sentence = heating_problem(0.104)
    assert sentence is not None and "heats the coldest rung by about 10%" in sentence
    assert "method=rx.sghmc_pt(learning_rate=...)" in sentence
    assert "smaller learning_rate" in sentence and "larger batch_size" in sentence
    own = heating_problem(0.2, "my own")
    assert own is not None and 'method=rx.Method("my own", learning_rate=...)' in own


def sghmc(rate: float) -> Method:
    return rx.sghmc_pt(learning_rate=rate, temperature=(1.0, 1.2), adapt=False)


OPTIONS: dict[str, Any] = {
    "num_replicas": 2,
    "epochs": 140,
    "burn_in": 20,
    "keep_averaged": 200,
    "progress": False,
}


@pytest.mark.parametrize(
    ("rate", "batch_size", "is_hot"),
    [(0.06, BATCH, True), (0.01, BATCH, False), (0.06, NUM_ROWS, False)],
)
def test_networks_that_are_too_far_apart_are_told(
    rate: float, batch_size: int, is_hot: bool
) -> None:
    """Where standard deviations are too large there is a warning, and none where they are right;
    40 parameters and 120 draws give them to 3 %."""
    problem = mean_problem(batch_size)
    epochs = OPTIONS["epochs"] if batch_size < NUM_ROWS else 1000
    options = OPTIONS | {"method": sghmc(rate), "epochs": epochs, "keep_averaged": 1000}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = rx.train(problem, (jnp.zeros(SIZE), {}), **options)
    told = [str(one.message) for one in caught if "noise of mini-batches heats" in str(one.message)]
    draws, exact = np.asarray(trained.networks.params), 1 / (NUM_ROWS * 1.02)
    excess = np.mean(draws**2) / exact - 1  # the mean of all columns is 0
    assert len(told) == is_hot
    assert excess > 0.2 if is_hot else abs(excess) < 0.1
    assert trained.summary()["heating"] == trained.heating
    if is_hot:
        assert_allclose(trained.heating, excess, rtol=0.35)


def test_runs_that_resume_are_told(tmp_path: Path) -> None:
    problem, start = mean_problem(), (jnp.zeros(SIZE), {})
    options = OPTIONS | {"method": sghmc(0.06), "epochs": 22, "burn_in": 2}
    with pytest.warns(UserWarning, match="noise of mini-batches heats"):
        rx.train(problem, start, run_dir=tmp_path / "run", **options)
    with pytest.warns(UserWarning, match="noise of mini-batches heats"):
        rx.resume(tmp_path / "run", problem, epochs=24, progress=False)
    loaded = rx.load(tmp_path / "run")
    assert loaded.heating is None  # type: ignore[union-attr]
    assert rx.load(tmp_path / "run", problem).heating > 0.1  # type: ignore[operator,union-attr]
