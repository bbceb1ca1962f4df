"""What held-out rows decide: when a training ends, and when it turns into sampling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_networks import tiny_problem

import replicax as rx
from replicax.networks import validation
from replicax.networks.validation import is_averaged, sampling_factor, without_held_out

QUIET = {"num_replicas": 2, "progress": False}
ROWS = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
NOISY = ROWS, (ROWS[:, 0] + 2 * np.random.default_rng(1).normal(size=60) > 0).astype(int)


def noisy_problem():
    """Labels that are mostly noise, which a wide network learns by heart."""
    network = rx.nn.mlp(5, 2, hidden=(30,))
    problem = rx.classification(network, NOISY, test=NOISY, batch_size=10, weight_decay=1e-4)
    return problem, network.init


def easy_problem():
    network = rx.nn.mlp(5, 2, hidden=(3,))
    labels = (ROWS[:, 0] > 0).astype(int)
    return rx.classification(
        network, (ROWS, labels), batch_size=10, weight_decay=1e-2
    ), network.init


def test_rows_are_held_out_of_the_training():
    problem = tiny_problem()
    less = without_held_out(problem, 0.25)
    images = [np.asarray(x) for x in (less.batches.data[0], less.validation.inputs)]
    assert (less.num_rows, len(images[1])) == (24, 8)
    both = np.concatenate(images).reshape(32, -1)
    all_rows = np.asarray(problem.batches.data[0]).reshape(32, -1)
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(all_rows, axis=0))
    assert without_held_out(problem, 0.0) is problem


def test_the_loss_on_held_out_rows_is_that_of_the_networks():
    problem, init = easy_problem()
    method = rx.deep_ensemble(0.1)
    trained = rx.train(problem, init, epochs=2, method=method, hold_out=0.2, **QUIET)
    inputs, targets = (np.asarray(x) for x in without_held_out(problem, 0.2).validation[1:3])
    logs = trained.predict(inputs, members=True)
    nll = -np.mean(logs[:, np.arange(len(targets)), targets], axis=1)
    np.testing.assert_allclose(trained.epochs["validation"][-1], nll, rtol=1e-4)


def test_a_network_that_learns_by_heart_is_sampled_and_others_are_trained_to_the_end(tmp_path):
    problem, init = noisy_problem()
    options = {"epochs": 24, "method": rx.ensemble_then_sample(0.2, kernel="momentum"), **QUIET}
    sampled = rx.train(problem, init, **options)
    begun = int(sampled._final("validation.begun"))
    assert 2 <= begun <= 20 and "sampled at temperature 1 from" in sampled.decision
    assert sampled.summary()["decision"] == sampled.decision
    picked = [epoch for epoch in range(1, 25) if is_averaged(epoch, begun, 24)]
    assert sorted(set(sampled.networks.epoch)) == picked
    assert float(sampled.average.weight) == 2 * len(picked)
    rates = sampled._records.read("history", "learning_rate")[:, 0, 0]
    heats = sampled._records.read("history", "temperature")[:, 0, 0]
    np.testing.assert_array_equal(heats > 0, np.arange(1, 25) > begun)
    first = max(0.5 * (1 + np.cos(np.pi * begun / 24)), 0.1)
    wanted = [0.2 * sampling_factor(epoch, begun, 24, first) for epoch in range(begun + 1, 25)]
    np.testing.assert_allclose(rates[begun:], wanted, rtol=1e-5)
    stop = lambda now: "stop" if now.step >= (begun + 1) * 5 else None  # noqa: E731
    rx.train(problem, init, run_dir=tmp_path / "run", callback=stop, **options)
    again = rx.resume(tmp_path / "run", problem, progress=False)
    np.testing.assert_array_equal(again.log_probabilities(), sampled.log_probabilities())
    assert again.decision == sampled.decision

    problem, init = easy_problem()
    slow = {"method": rx.ensemble_then_sample(0.02), "hold_out": 0.4}
    trained = rx.train(problem, init, **options | slow)
    assert "did not rise" in trained.decision and float(trained.average.weight) == 2
    assert set(trained.networks.epoch) == {24}


def test_a_given_share_needs_no_held_out_rows():
    problem, init = easy_problem()
    method = rx.ensemble_then_sample(0.1, sample_from=0.5)
    trained = rx.train(problem, init, epochs=8, method=method, **QUIET)
    assert sorted(set(trained.networks.epoch)) == [7, 8] and "validation" not in trained.epochs
    assert trained.metadata.num_rows == 60


def test_the_sampling_has_the_temperature_of_the_posterior():
    """A Gaussian posterior with one parameter: the spread of the sampled networks is its own."""
    rows = np.random.default_rng(0).normal(size=(40, 1)).astype(np.float32)
    network = lambda params, inputs: params["m"] * jnp.ones(len(inputs))  # noqa: E731
    problem = rx.regression(
        network, (rows, rows[:, 0]), batch_size=40, noise=1.0, standardise=False, weight_decay=1e-6
    )
    start = lambda key: ({"m": jax.random.normal(key)}, {})  # noqa: E731
    method = rx.ensemble_then_sample(0.5, sample_from=0.01, warmup_epochs=0)
    trained = rx.train(
        problem,
        start,
        epochs=400,
        method=method,
        num_replicas=40,
        keep_averaged=8000,
        progress=False,
    )
    assert np.var(trained.networks.params["m"]) == pytest.approx(1 / 40, rel=0.2)


def test_an_early_stop_averages_the_networks_of_the_best_epoch(tmp_path):
    problem, init = noisy_problem()
    options = {"epochs": 30, "early_stop": 3, "method": rx.deep_ensemble(0.2), **QUIET}
    stopped = rx.train(problem, init, **options)
    losses = stopped.epochs["validation"].mean(axis=1)
    best = int(np.argmin(losses)) + 1
    assert stopped.num_epochs == best + 3 < 30 and stopped.result.code == "stopped"
    assert "has not fallen any more" in stopped.result.sentence
    inputs, targets = (np.asarray(x) for x in without_held_out(problem, 0.1).validation[1:3])
    logs = stopped.predict(inputs, members=True)
    nll = -np.mean(logs[:, np.arange(len(targets)), targets], axis=1)
    np.testing.assert_allclose(nll, stopped.epochs["validation"][best - 1], rtol=1e-4)
    half = lambda now: "stop" if now.step >= 10 else None  # noqa: E731
    rx.train(problem, init, run_dir=tmp_path / "run", callback=half, **options)
    again = rx.resume(tmp_path / "run", problem, progress=False)
    np.testing.assert_array_equal(again.log_probabilities(), stopped.log_probabilities())


def test_what_cannot_be_held_out_or_stopped_gets_a_sentence():
    problem, init = easy_problem()
    for options, message in (
        ({"method": "ensemble", "early_stop": 2}, 'write method="deep-ensemble"'),
        ({"early_stop": 0}, "early_stop is 0"),
        ({"hold_out": 1.5}, "hold_out is 1.5"),
    ):
        with pytest.raises(ValueError, match=message):
            rx.train(problem, init, epochs=3, **options, **QUIET)
    loss = lambda params, state, batch, key: (jnp.mean((params - batch) ** 2), state)  # noqa: E731
    own = rx.supervised(loss, np.ones(16, np.float32), batch_size=4)
    with pytest.raises(ValueError, match="Rows are held out of arrays"):
        rx.train(own, (0.0, {}), epochs=3, early_stop=1, **QUIET)


def test_noise_of_single_epochs_is_no_rise():
    noisy = np.linspace(2, 1, 30) + 0.04 * (-1.0) ** np.arange(30)
    assert not any(validation.is_rising(noisy[:n], 30) for n in range(31))
    spike = np.append(noisy, [1.5, 1.5])
    assert not validation.is_rising(spike, 32)
    assert validation.is_rising(np.append(spike, 1.2), 33)
