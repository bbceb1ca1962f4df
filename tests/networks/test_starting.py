"""What methods of sampling do with new networks: train them first, with settings that fit."""

import warnings

import jax
import numpy as np
import optax
import pytest
from tiny_networks import (
    NETWORK,
    NUM_REPLICAS,
    STEPS_PER_EPOCH,
    by_replica,
    plain_training,
    tiny_problem,
)

import replicax as rx
from replicax.networks.starting import fitted, warn
from replicax.networks.train import weights_of
from replicax.run.methods import METHODS
from replicax.run.options import Training
from replicax.run.parts import clock_of
from replicax.run.resolve import resolve

PROBLEM = tiny_problem()
QUIET = {"num_replicas": NUM_REPLICAS, "progress": False}
STARTS = jax.vmap(NETWORK.init)(jax.random.split(jax.random.key(7), NUM_REPLICAS))


def fit(method, epochs=8, start=NETWORK.init, num_replicas=NUM_REPLICAS, **options):
    run = Training(epochs=epochs, num_replicas=num_replicas, **options)
    return fitted(PROBLEM, PROBLEM, method, run, start)


def test_new_networks_are_trained_along_a_cosine_and_then_sampled():
    method = rx.ensemble(0.01, pretrain=0.5, pretrain_rate=0.05)
    trained = rx.train(PROBLEM, rx.per_replica(STARTS), epochs=6, method=method, **QUIET)
    half, rest = 3 * STEPS_PER_EPOCH, optax.constant_schedule(0.01)
    fall = optax.warmup_cosine_decay_schedule(0.05, 0.05, 0, half)
    rate = optax.join_schedules([fall, rest], [half])
    transform = optax.chain(optax.add_decayed_weights(0.01), optax.sgd(rate, momentum=0.9))
    for replica in range(NUM_REPLICAS):
        plain = plain_training(PROBLEM, by_replica(STARTS, replica), transform, 6)
        found = by_replica((trained.networks.params, trained.networks.model_state), replica)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), plain, found)


def test_no_network_swaps_and_nothing_adapts_while_networks_are_trained():
    method = rx.deo_star((0.02, 0.2), target_swap_rate=0.3, window=1, buffer=0.0, pretrain=0.5,
                         pretrain_rate=0.1)  # fmt: skip
    trained = rx.train(PROBLEM, NETWORK.init, epochs=12, method=method, **QUIET)
    steps, paths = 6 * STEPS_PER_EPOCH, trained.rung_of[0]
    assert np.all(paths[:steps] == np.arange(NUM_REPLICAS)) and np.any(paths[steps:] != paths[0])
    rates = trained._records.read("history", "learning_rate")[:, 0]
    assert np.all(rates[:6] == rates[0]) and np.any(rates[-1] != rates[0])
    assert trained.metadata.run.burn_in == 6 and float(trained.average.weight) == 6


@pytest.mark.parametrize("name", ["deo-star", "deo", "ensemble", "cyc-sghmc", "cyc-swag"])
def test_rates_of_new_networks_are_in_proportion_to_the_best_one(name):
    method, _, tested = fit(METHODS[name](pretrain_rate=0.4))
    cold, hot = 0.4 / 20, 0.4 / 5
    wanted = {"deo-star": (cold, hot), "deo": (cold, hot), "cyc-sghmc": 0.4, "cyc-swag": 0.4}
    assert method.learning_rate == pytest.approx(wanted.get(name, cold))
    assert method.pretrain == 0.375 and tested is None
    given, _, _ = fit(METHODS[name](learning_rate=0.03, pretrain_rate=0.4))
    assert given.learning_rate == 0.03


def test_the_rate_of_the_training_is_found_by_a_range_test():
    method, _, tested = fit(rx.deo())
    assert list(tested["candidates"]) == ["momentum"] and 0.001 < method.pretrain_rate < 0.5


def test_the_summary_shows_the_rate_of_the_training():
    trained = rx.train(PROBLEM, NETWORK.init, epochs=2, method="deo", **QUIET)
    assert trained.summary()["range_test"]["learning_rate"] == trained.metadata.method.pretrain_rate
    assert float(trained.average.weight) == 1 and trained.metadata.run.burn_in == 1


@pytest.mark.parametrize("name", ["deo-star", "deo", "ensemble", "cyc-sghmc", "cyc-swag"])
def test_trained_networks_keep_the_settings_of_the_paper(name):
    method = METHODS[name]()
    same, run, tested = fit(method, start=rx.per_replica(STARTS))
    assert (same, run.burn_in, tested) == (method, None, None)
    own = rx.Method("own", 0.01, averages="all")
    assert fit(own)[0] == own, "a method of one's own does what it says"


def test_cycles_begin_after_the_training():
    method = rx.cyc_sghmc(0.1, cycle_epochs=3, pretrain=0.5, pretrain_rate=0.1)
    run = Training(epochs=4, num_replicas=2)
    clock = clock_of(run, method, STEPS_PER_EPOCH)
    found = weights_of(resolve(PROBLEM, run, method), clock)
    assert [found(epoch, 1).tolist() for epoch in range(1, 9)] == [[0.0]] * 4 + [[1.0]] + [
        [0.0]] * 2 + [[1.0]]  # fmt: skip
    swag = rx.cyc_swag(0.05, cycle_epochs=3, pretrain=0.5, pretrain_rate=0.1)
    trained = rx.train(PROBLEM, NETWORK.init, epochs=4, method=swag, **QUIET | {"num_replicas": 2})
    assert set(trained.networks.epoch) == {5, 8}


def test_the_target_swap_rate_makes_round_trips_in_a_short_run():
    long, short = (fit(rx.deo_star(pretrain_rate=0.1), epochs=n)[0] for n in (50_000, 100))
    assert long.target_swap_rate == 0.005 < short.target_swap_rate
    given = fit(rx.deo_star(pretrain_rate=0.1, target_swap_rate=0.02), epochs=100)[0]
    assert given.target_swap_rate == 0.02


def said(method, epochs, num_replicas=NUM_REPLICAS):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warn(PROBLEM, resolve(PROBLEM, Training(epochs=epochs, num_replicas=num_replicas), method))
    return [str(one.message) for one in found]


def test_a_run_without_round_trips_is_told_before_it_starts_with_what_would():
    (sentence,) = said(rx.deo_star(), epochs=100, num_replicas=6)
    assert 'method=rx.deo_star(target_swap_rate=0.1); or method="deep-ensemble"' in sentence
    assert said(rx.deo_star(target_swap_rate=0.1), epochs=100, num_replicas=6) == []
    (sentence,) = said(rx.deo_star(), epochs=2, num_replicas=6)
    epochs = int(sentence.split("write ")[1].split(" epochs")[0].replace(",", ""))
    assert said(rx.deo_star(target_swap_rate=0.4), epochs, num_replicas=6) == []
    assert said(rx.ensemble(), epochs=2) == []


def test_inputs_that_are_not_standardised_are_named():
    rng = np.random.default_rng(0)
    inputs = rng.normal([0, 900], [1, 40], (60, 2))
    network = rx.nn.mlp(2, 1, hidden=(3,))

    def told(inputs):
        problem = rx.regression(network, (inputs, inputs[:, 0]), batch_size=20)
        program = resolve(problem, Training(epochs=1, num_replicas=2), "ensemble")
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            warn(problem, program)
        return [str(one.message) for one in found]

    (sentence,) = told(inputs)
    assert "column 1 has a mean of 9" in sentence and "inputs.std(0)" in sentence
    assert told((inputs - inputs.mean(0)) / inputs.std(0)) == []
    assert told(rng.binomial(1, [0.02, 0.5], (60, 2)).astype(float)) == [], "a rare category"
    assert len(told(0.01 * rng.normal(size=(60, 2)))) == 1
