"""`train` against a loop that moves networks from rung to rung."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from common import slow
from reference import adapt_ladder
from tiny_networks import (
    DECAY,
    EXCHANGING,
    LADDER,
    NETWORK,
    NUM_REPLICAS,
    STEPS_PER_EPOCH,
    Last,
    assert_trees_close,
    by_replica,
    tiny_problem,
)

import replicax as rx
from replicax.algorithm.randomness import seed_keys
from replicax.networks.task import Supervised
from replicax.networks.train import train
from replicax.nn.networks import small_cnn


def starts_of(network: Any, num_replicas: int = NUM_REPLICAS) -> Any:
    return jax.vmap(network.init)(jax.random.split(jax.random.key(7), num_replicas))


def deo_star_by_hand(
    problem: Supervised,
    evaluate: Any,
    starts: Any,
    num_steps: int,
    on_swap: str,
    travels: tuple[str, ...] = ("label", "params", "state", "velocity"),
) -> SimpleNamespace:
    """Algorithm 1 on networks that really move from rung to rung; all lists are by rung."""
    ((key,), _) = seed_keys(0, 1)
    orders = [np.asarray(problem.batches.order(key, epoch)) for epoch in range(num_steps)]
    options, num_rungs = LADDER, NUM_REPLICAS
    cold, hot = options["learning_rate"]
    rates, buffer = np.geomspace(cold, hot, num_rungs), options["buffer"]
    target, window = options["target_swap_rate"], options["window"]
    params, state = ([by_replica(part, r) for r in range(num_rungs)] for part in starts)
    zero = lambda tree: jax.tree.map(np.zeros_like, tree)  # noqa: E731
    velocity = [zero(one) for one in params]
    on = {"label": list(range(num_rungs)), "params": params, "state": state, "velocity": velocity}
    gate, num_swaps = [True] * (num_rungs - 1), 0
    for k in range(num_steps):
        rows = orders[k // STEPS_PER_EPOCH].reshape(STEPS_PER_EPOCH, -1)[k % STEPS_PER_EPOCH]
        images, labels = (np.asarray(part)[rows] for part in problem.batches.data)
        batch = problem.batches.prepare(key, (images, labels))
        energy = []
        for rung, eta in enumerate(rates):
            seen, slope = evaluate(on["params"][rung], on["state"][rung], batch, None)
            energy.append(float(seen[0]))
            on["state"][rung] = seen[1]
            slope = jax.tree.map(lambda g, p: g + 0.01 * p, slope, on["params"][rung])
            v = jax.tree.map(lambda v, g: DECAY * v + g, on["velocity"][rung], slope)
            on["velocity"][rung] = v
            move = lambda p, v, eta=eta: p - eta * v  # noqa: E731
            on["params"][rung] = jax.tree.map(move, on["params"][rung], v)
        wanted = [energy[i + 1] + buffer < energy[i] for i in range(num_rungs - 1)]
        for i in range(num_rungs - 1):
            gate[i] = gate[i] or k % window == 0
            if wanted[i] and gate[i] and (i + 1) % 2 == (k // window) % 2:
                for name in travels:
                    on[name][i], on[name][i + 1] = on[name][i + 1], on[name][i]
                if on_swap == "reset":
                    on["velocity"][i : i + 2] = [zero(v) for v in on["velocity"][i : i + 2]]
                gate[i] = False
                num_swaps += 1
        rates = adapt_ladder(rates, wanted, target, float(options["gain"](k)))
        buffer += float(options["buffer_gain"](k)) * (np.mean(wanted) - target)
    return SimpleNamespace(**on, rates=rates, buffer=buffer, num_swaps=num_swaps)


CNN = small_cnn(3, widths=(4, 4))


@pytest.mark.parametrize(
    ("network", "on_swap"),
    [(NETWORK, "keep"), slow(CNN, "keep"), slow(CNN, "reset")],
    ids=["keep", "cnn-keep", "cnn-reset"],
)
def test_training_is_algorithm_1_with_networks_that_move(network: Any, on_swap: str) -> None:
    problem, starts, last = tiny_problem(network), starts_of(network), Last()
    method = rx.deo_star(**LADDER, on_swap=on_swap)
    options = EXCHANGING | {"epochs": 10, "method": method, "callback": last}
    train(problem, rx.per_replica(starts), **options)
    found = last.state
    evaluate = jax.jit(jax.value_and_grad(problem.target.energy, has_aux=True))
    wanted = deo_star_by_hand(problem, evaluate, starts, 10 * STEPS_PER_EPOCH, on_swap)
    assert wanted.num_swaps >= 5
    assert found.replica_at[0].tolist() == wanted.label
    at_rung = [
        by_replica(jax.tree.map(lambda leaf: leaf[0], (found.replicas, found.model_state)), r)
        for r in found.replica_at[0]
    ]
    for rung, (replica, state) in enumerate(at_rung):
        assert_trees_close(replica.params, wanted.params[rung])
        assert_trees_close(state, wanted.state[rung])
        assert_trees_close(replica.memory.trace, wanted.velocity[rung])
    np.testing.assert_allclose(found.ladder.learning_rate[0], wanted.rates, rtol=1e-4)
    np.testing.assert_allclose(found.buffer[0], wanted.buffer, atol=1e-5)

    def agrees(travels: tuple[str, ...]) -> bool:
        other = deo_star_by_hand(problem, evaluate, starts, 10 * STEPS_PER_EPOCH, on_swap, travels)
        try:
            for rung, (replica, state) in enumerate(at_rung):
                assert_trees_close(state, other.state[rung])
                assert_trees_close(replica.memory.trace, other.velocity[rung])
        except AssertionError:
            return False
        return True

    assert agrees(("label", "params", "state", "velocity"))
    assert not agrees(("label", "params", "velocity")), "batch statistics stayed on their rung"
    if on_swap == "keep":
        assert not agrees(("label", "params", "state")), "momentum stayed on its rung"
