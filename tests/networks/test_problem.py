"""A network and its data as a posterior: units, priors, losses."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run, slow
from tiny_networks import (
    EXCHANGING,
    LADDER,
    NETWORK,
    NUM_ROWS,
    Last,
    tiny_data,
    tiny_problem,
)

import replicax as rx
from replicax.networks.task import Supervised, supervised
from replicax.networks.tempered import tempered
from replicax.networks.train import train
from replicax.nn import Network
from replicax.run.batches import Orders


def in_unit(unit: str, problem: Supervised) -> Supervised:
    """The problem, whose energies are mean losses, or in the unit of the posterior of all rows."""
    return tempered(problem) if unit == "total" else problem


def run_in(unit: str, temperature: Any, weight_decay: float) -> tuple[Any, np.ndarray]:
    last = Last()
    problem = in_unit(unit, tiny_problem(weight_decay=weight_decay))
    method = rx.deo_star(**LADDER | {"buffer": 0.05, "temperature": temperature})
    options = EXCHANGING | {"method": method, "callback": last}
    trained = train(problem, NETWORK.init, **options)
    return last.state, trained.rung_of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "decay"), [(0.0, 1e-12), (0.05, 1e-12), ((1.0, 1.0), 0.01)]
)
def test_the_unit_of_energies_does_not_change_the_path(temperature: Any, decay: float) -> None:
    """A prior has the temperature 1 where the likelihood is tempered: it is the same at 1."""
    runs = (run_in(unit, temperature, decay) for unit in ("mean", "total"))
    (mean, mean_path), (total, total_path) = runs
    assert len(np.unique(mean_path[0], axis=0)) > 2, "replicas must have exchanged"
    np.testing.assert_array_equal(mean_path, total_path)

    def same(one: Any, other: Any) -> None:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)

    jax.tree.map(same, mean.replicas.params, total.replicas.params)
    jax.tree.map(same, mean.model_state, total.model_state)
    jax.tree.map(lambda a, b: same(NUM_ROWS * a, b), mean.replicas.memory, total.replicas.memory)
    same(mean.ladder.learning_rate, NUM_ROWS * total.ladder.learning_rate)
    same(NUM_ROWS * mean.ladder.temperature, total.ladder.temperature)
    same(mean.ladder.temperature[0, 0], np.min(temperature) / NUM_ROWS)
    same(NUM_ROWS * mean.buffer, total.buffer)
    assert abs(mean.buffer[0]) > 1e-3


def squared(params: Any, model_state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
    x, y = batch
    return jnp.mean((params["slope"] * x - y) ** 2), model_state


BATCH = (np.array([1.0, 2.0, 3.0, 4.0], np.float32), np.array([1.0, 3.0, 2.0, 5.0], np.float32))
SLOPE = 1.5
MEAN_LOSS = np.mean((SLOPE * BATCH[0] - BATCH[1]) ** 2)
MEAN_SLOPE = np.mean(2 * (SLOPE * BATCH[0] - BATCH[1]) * BATCH[0])


@pytest.mark.parametrize(
    ("unit", "scale", "prior_in_energy"),
    [("mean", 1.0, False), ("mean", 1.0, True), ("total", 4.0, False)],
)
def test_weight_decay_is_felt_always_and_seen_when_asked(
    unit: str, scale: float, prior_in_energy: bool
) -> None:
    problem = supervised(
        squared, BATCH, batch_size=2, weight_decay=0.2, prior_in_energy=prior_in_energy
    )
    problem = in_unit(unit, problem)
    params = {"slope": jnp.array(SLOPE)}
    energy, gradient, state = problem.target.evaluate_state(params, {}, BATCH, None)
    prior = 0.5 * 0.2 * SLOPE**2 if prior_in_energy else 0.0
    np.testing.assert_allclose(energy, scale * (MEAN_LOSS + prior), rtol=1e-6)
    np.testing.assert_allclose(gradient["slope"], scale * (MEAN_SLOPE + 0.2 * SLOPE), rtol=1e-6)
    np.testing.assert_allclose(problem.target.energy_at((params, {}), BATCH, None), energy)
    assert state == {}


def test_rates_and_temperatures_are_given_once_for_both_units() -> None:
    problem = supervised(squared, BATCH, batch_size=2, weight_decay=0.2)
    mean, total = problem.unit, tempered(problem).unit
    assert (mean.energy(1.0), total.energy(1.0)) == (1.0, 4.0)
    assert (mean.learning_rate(0.2), total.learning_rate(0.2)) == (0.2, 0.05)
    assert (mean.temperatures(0.5), total.temperatures(0.5)) == (0.125, 0.5)


NUM_ROWS_OF_GAUSSIAN = 200
MEASURED = np.random.default_rng(1).normal(0.7, 1.0, NUM_ROWS_OF_GAUSSIAN).astype(np.float32)
RATE = 0.4
DRAWING: dict[str, Any] = {
    "num_chains": 40,
    "num_replicas": 1,
    "burn_in": 20,
    "thin": 10,
    "progress": False,
}


def gaussian_problem(unit: str, weight_decay: float = 1e-9) -> Supervised:
    """The mean of a normal variable of variance 1, measured 200 times; all rows a batch."""

    def loss_fn(mean: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.mean((mean - batch) ** 2) / 2, state

    chosen: Any = {"batch_size": NUM_ROWS_OF_GAUSSIAN, "weight_decay": weight_decay}
    return in_unit(unit, supervised(loss_fn, MEASURED, **chosen))


@pytest.mark.parametrize(
    ("unit", "temperature"), [slow("mean", 1.0), slow("total", 1.0), ("mean", 0.25)]
)
def test_sampling_a_problem_gives_its_posterior(unit: str, temperature: float) -> None:
    """SGLD at the rate eta leaves the exact variance, T / N here, divided by 1 - eta / 2."""
    posterior = rx.sample(
        gaussian_problem(unit),
        (jnp.array(0.7), {}),
        num_steps=420,
        method=rx.sgld(learning_rate=RATE, temperature=temperature),
        **DRAWING,
    )
    draws = np.asarray(posterior.draws[0])
    assert draws.shape == (40, 40)  # ten steps apart: their correlation is 0.6^10 = 0.006
    exact = temperature / NUM_ROWS_OF_GAUSSIAN
    assert abs(draws.mean() - MEASURED.mean()) < 5 * np.sqrt(exact / draws.size)
    # The standard error of the variance is sqrt(2 / 1600), 3.5 %.
    np.testing.assert_allclose(draws.var(), exact / (1 - RATE / 2), rtol=0.12)


@pytest.mark.slow
@pytest.mark.parametrize(("unit", "scale", "decay"), [("mean", 1.0, 0.0), ("total", 200.0, 0.1)])
def test_units_are_converted_when_a_run_starts_and_not_when_it_resumes(
    unit: str, scale: float, decay: float, tmp_path: Path
) -> None:
    problem, start = gaussian_problem(unit, decay), (jnp.array(0.7), {})
    method = rx.deo_star((0.1, 0.4), temperature=(1.0, 9.0), rule="metropolis")
    options: Any = {"num_replicas": 3, "method": method, "progress": False}
    folder = tmp_path / "run"
    whole = rx.sample(problem, start, num_steps=12, **options)
    np.testing.assert_allclose(whole.learning_rates, np.array([[0.1, 0.2, 0.4]]) / scale, rtol=1e-5)
    exact = np.array([[1.0, 3.0, 9.0]]) * scale / NUM_ROWS_OF_GAUSSIAN
    np.testing.assert_allclose(whole.temperatures, exact, rtol=1e-5)
    rx.sample(problem, start, num_steps=5, run_dir=folder, **options)
    assert_same_run(rx.resume(folder, problem, num_steps=12), whole)


def test_rates_in_words_get_the_same_sentence_for_a_problem() -> None:
    with pytest.raises(ValueError, match=r"learning_rate is 'fast'.*a pair .cold, hot."):
        rx.sample(
            gaussian_problem("mean"),
            (jnp.array(0.7), {}),
            num_steps=1,
            method=rx.sgld(learning_rate="fast"),
            **DRAWING,
        )


def test_augmentation_has_a_key_of_its_own_in_every_step() -> None:
    plain, augmented = (tiny_problem(augment=augment).batches for augment in (False, True))
    orders = Orders(jnp.array(0), jnp.arange(NUM_ROWS)[None])

    def images(batches: Any, key: int, step: int = 1) -> np.ndarray:
        arguments = (orders, jax.random.key(key), jnp.array(step), jnp.array(0))
        return np.asarray(batches.take(batches.data, *arguments)[0])

    np.testing.assert_array_equal(images(plain, 0), images(plain, 1))
    for one, other in ((plain, augmented), (augmented, augmented)):
        differ = (images(one, 0) != images(other, 1)).any(axis=(1, 2, 3))
        assert differ.mean() > 0.5
    np.testing.assert_array_equal(images(augmented, 0), images(augmented, 0))
    # Of a crop, a flip and an erased part most pixels are those of the image, somewhere.
    known = [np.isin(a, b).mean() for a, b in zip(images(augmented, 0), images(plain, 0))]
    assert np.mean(known) > 0.5
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = [np.asarray(jax.random.key_data(augmented.draw(key))) for key in keys]
    assert len(np.unique(drawn, axis=0)) == 3


def start_with(loss_fn: Any, model_state: Any) -> None:
    problem = supervised(loss_fn, BATCH, batch_size=2)
    rx.sample(
        problem.target,
        ({"slope": jnp.array(SLOPE)}, model_state),
        batches=problem.batches,
        num_steps=1,
        num_replicas=2,
        method=rx.deo_star(learning_rate=(0.1, 0.2)),
        progress=False,
    )


def with_state(change: Any) -> Any:
    return lambda params, state, batch, key: (squared(params, state, batch, key)[0], change(state))


@pytest.mark.parametrize(
    ("change", "state"),
    [
        (lambda state: {"mean": state["mean"][:1]}, {"mean": jnp.zeros(2)}),
        (lambda state: {"mean": state["mean"].astype(jnp.bfloat16)}, {"mean": jnp.zeros(2)}),
        (lambda state: {**state, "more": jnp.zeros(2)}, {"mean": jnp.zeros(2)}),
        (lambda state: None, {"mean": jnp.zeros(2)}),
    ],
    ids=["shape", "dtype", "names", "nothing"],
)
def test_a_model_state_must_come_back_as_it_was(change: Any, state: Any) -> None:
    with pytest.raises(ValueError, match="other shapes or dtypes than it was given"):
        start_with(with_state(change), state)


def test_a_problem_is_shown_without_its_rows() -> None:
    shown = repr(tiny_problem())
    assert shown == "Supervised(32 rows in batches of 8, 12 rows to test)"


def test_a_loss_alone_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"must return \(loss, model_state\)"):
        start_with(lambda *given: squared(*given)[0], {})


def test_a_target_with_an_energy_alone_gets_a_sentence() -> None:
    target = rx.Target(lambda x, state, batch, key: jnp.sum(x**2), has_state=True)
    with pytest.raises(ValueError, match=r"must return \(loss, model_state\)"):
        rx.sample(
            target,
            (jnp.zeros(1), {}),
            num_steps=1,
            num_replicas=2,
            method=rx.deo_star(learning_rate=(0.1, 0.2)),
        )


def test_bad_input_gets_a_sentence() -> None:
    def by_row(params, state, batch, key):
        return (params["slope"] * batch[0] - batch[1]) ** 2, state

    with pytest.raises(ValueError, match="sum \\(or average\\) it"):
        start_with(by_row, {})
    with pytest.raises(ValueError, match="must be a pair"):
        problem = supervised(squared, BATCH, batch_size=2)
        options: Any = {"num_steps": 1, "num_replicas": 2, "method": rx.deo_star((0.1, 0.2))}
        rx.sample(problem.target, {"slope": jnp.ones(2)}, batches=problem.batches, **options)
    with pytest.raises(ValueError, match="weight_decay is -1"):
        supervised(squared, BATCH, batch_size=2, weight_decay=-1.0)


@pytest.mark.parametrize(("unit", "scale"), [("mean", 1.0), ("total", float(NUM_ROWS))])
def test_the_loss_of_a_classification_is_cross_entropy(unit: str, scale: float) -> None:
    data, problem = tiny_data(), in_unit(unit, tiny_problem())
    params, state = NETWORK.init(jax.random.key(1))
    images, labels = data.train_images[:8], data.train_labels[:8]
    orders = Orders(jnp.array(0), jnp.arange(NUM_ROWS)[None])
    batch = problem.batches.take(
        problem.batches.data, orders, jax.random.key(0), jnp.array(0), jnp.array(0)
    )
    np.testing.assert_allclose(batch[0], (images / 255.0 - 0.5) / 0.25, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(batch[1], labels)

    found, after = problem.target.energy(params, state, batch, None)
    logits, statistics = NETWORK.apply(params, state, batch[0], True)
    logits = np.asarray(logits, np.float64)
    each = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), labels]
    np.testing.assert_allclose(found, scale * each.mean(), rtol=1e-5)
    jax.tree.map(np.testing.assert_array_equal, after, statistics)
    assert not np.allclose(after["mean"], state["mean"])

    tested = problem.test.outputs(params, state, jnp.asarray(data.test_images))
    seen = jnp.asarray((data.test_images / 255.0 - 0.5) / 0.25, jnp.float32)
    wanted = NETWORK.apply(params, state, seen, False)[0]
    np.testing.assert_allclose(tested, wanted, rtol=1e-4, atol=1e-5)


def test_cross_entropy_of_low_precision_is_summed_in_float32() -> None:
    logits = jnp.array([[100.0, 0.0, -3.0], [1.0, 2.0, 300.0]], jnp.bfloat16)
    network = Network(lambda key: ({}, {}), lambda params, state, images, train: (logits, state))
    energy, _ = tiny_problem(network).target.energy({}, {}, (None, jnp.array([1, 2])), None)
    assert energy.dtype == jnp.float32
    np.testing.assert_allclose(energy, 50.0, rtol=1e-6)
