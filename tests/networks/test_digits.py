"""What `rx.train` promises on the digits: by default, and by the paper's method."""

import jax
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.networks.by_name import DEFAULTS, NamedProblem
from replicax.networks.train import train
from replicax.run.methods import deo_star, ensemble

USUAL = DEFAULTS["digits"]
METHOD = deo_star(**{name: USUAL[name] for name in ("learning_rate", "target_swap_rate")})
RUN = {name: USUAL[name] for name in ("num_replicas", "epochs", "burn_in")}
SETTINGS = {**RUN, "method": METHOD}


def problem():
    pytest.importorskip("sklearn")
    task = NamedProblem(USUAL["model"], "digits", batch_size=USUAL["batch_size"], augment=False)
    return task.problem()


def nll_alone(found, start, epochs, num_networks):
    """Mean NLL of networks that never met, at the rate of the coldest rung."""
    options = {"method": ensemble(USUAL["learning_rate"][0]), "progress": False}
    alone = train(found, start, epochs=epochs, num_replicas=num_networks, **options)
    return float(alone.epochs["nll"][-1].mean())


def plain_networks(problem, init, transform, epochs, seed):
    """Ten networks trained by optax alone, and the NLL of their average."""
    inputs, labels = problem.batches.data
    starts = jax.vmap(lambda key: init(key)[0])(jax.random.split(jax.random.key(seed), 10))
    memory, key = jax.vmap(transform.init)(starts), jax.random.key(seed + 100)

    def loss(params, rows):
        return problem.target.energy(params, {}, (inputs[rows], labels[rows]), None)[0]

    def step(networks, rows):
        def one(params, memory):
            update, memory = transform.update(jax.grad(loss)(params, rows), memory, params)
            return optax.apply_updates(params, update), memory

        return jax.vmap(one)(*networks), None

    @jax.jit
    def epoch(networks, key):
        order = jax.random.permutation(key, len(labels))
        size = problem.batches.batch_size
        rows = order[: len(labels) // size * size].reshape(-1, size)
        return jax.lax.scan(step, networks, rows)[0]

    networks = starts, memory
    for number in range(epochs):
        networks = epoch(networks, jax.random.fold_in(key, number))
    outputs = jax.vmap(lambda params: problem.test.outputs(params, {}, problem.test.inputs))
    mean = jax.nn.logsumexp(jax.nn.log_softmax(outputs(networks[0])), axis=0) - np.log(10)
    return float(rx.predict.nll(np.asarray(mean), np.asarray(problem.test.targets)))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_the_default_is_as_good_as_ten_plain_networks(seed):
    """Ten perceptrons, 60 epochs; plain: Adam at its usual rate, constant or along a cosine."""
    sklearn = pytest.importorskip("sklearn.datasets")
    digits = sklearn.load_digits()
    inputs, labels = digits.data.astype(np.float32) / 16, digits.target
    order = np.random.default_rng(0).permutation(len(labels))
    train_rows, test_rows = order[500:], order[:500]
    network = rx.nn.mlp(64, 10, hidden=(50, 50))
    found = rx.classification(
        network,
        (inputs[train_rows], labels[train_rows]),
        test=(inputs[test_rows], labels[test_rows]),
        batch_size=64,
    )
    trained = train(found, network.init, epochs=60, seed=seed, progress=False)
    fall = optax.cosine_decay_schedule(1e-3, 60 * found.steps_per_epoch)
    plain = [
        plain_networks(found, network.init, optax.adam(rate), 60, seed) for rate in (1e-3, fall)
    ]
    print(trained.metadata.method.kernel, trained.metadata.method.learning_rate)
    print(trained.metrics().nll, plain)
    assert trained.metrics().nll <= min(plain)


@pytest.mark.slow
def test_a_short_run_beats_networks_alone_at_equal_steps():
    """A tenth of the default: 12 epochs."""
    found, start = problem()
    shorter = SETTINGS | {"epochs": 12, "burn_in": 6}
    trained = train(found, start, **shorter, seed=0, progress=False)
    average = trained.metrics()
    assert average.accuracy >= 0.96
    assert average.nll < trained.epochs["nll"][6:, 0].mean()
    assert average.nll < nll_alone(found, start, 12, num_networks=3)
    assert trained.window_swap_rate.sum() > 0
