"""Runs of `train`: interruptions, which networks are averaged, networks that break."""

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import OF_NETWORKS, assert_same_run, chunks_of, slow
from tiny_networks import (
    EXCHANGING,
    LADDER,
    NETWORK,
    NUM_REPLICAS,
    NUM_ROWS,
    STEPS_PER_EPOCH,
    Last,
    assert_trees_close,
    by_replica,
    networks_that_start_from,
    tiny_problem,
)

import replicax as rx
from replicax.algorithm.tuning import ConstantGain
from replicax.networks import evaluate
from replicax.networks.task import Supervised, Test, supervised
from replicax.networks.tempered import tempered
from replicax.networks.train import train
from replicax.networks.trained import Trained
from replicax.run.carry import Carry
from replicax.run.methods import METHODS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


PROBLEM = tiny_problem()
MLP = rx.nn.mlp(36, 3, hidden=(4,))  # without batch statistics, which a posterior refuses


def options_of(name: str) -> dict[str, Any]:
    method = METHODS[name]()
    if not method.has_ladder:
        return {"epochs": 2, "num_replicas": 2, "method": method, "progress": False}
    choices, others = dict(LADDER), {}
    if name != "deo-star":
        del choices["window"]
    if method.tempers_likelihood:  # temperatures are found in the burn-in
        choices |= {"learning_rate": 0.01, "swap_every": 1}
        others = {"burn_in": 1}
    chosen = {"epochs": 2, "num_replicas": NUM_REPLICAS, "method": METHODS[name](**choices)}
    return EXCHANGING | chosen | others


def posed(name: str) -> tuple[Supervised, Any]:
    """The problem and the start of a method."""
    if METHODS[name]().tempers_likelihood:
        return tiny_problem(MLP), MLP.init
    return PROBLEM, NETWORK.init


@functools.cache
def whole(folder: Path, method: str) -> tuple[Trained, Any]:
    last = Last()
    options = options_of(method) | {"callback": last, "run_dir": folder / method}
    return train(*posed(method), **options, keep_networks=True), last.state


def stop_at(step: int) -> Any:
    return lambda progress: "stop" if progress.step >= step else None


QUICK = ("deo", "ensemble", "cyc-sghmc")  # with a ladder, without one, one network in cycles


@pytest.mark.parametrize("method", [name if name in QUICK else slow(name) for name in OF_NETWORKS])
def test_a_run_stopped_within_an_epoch_goes_on_bit_for_bit(
    method: str, folder: Path, tmp_path: Path
) -> None:
    straight, state = whole(folder, method)
    options = options_of(method) | {"keep_networks": True}
    problem, start = posed(method)
    last = Last()
    with chunks_of(3):  # and to the end of an epoch of four steps
        stopped = train(problem, start, **options, run_dir=tmp_path / "run", callback=stop_at(5))
        assert (stopped.result.code, stopped.num_epochs) == ("stopped", 1)
        assert STEPS_PER_EPOCH < stopped.num_steps < 2 * STEPS_PER_EPOCH
        resumed = rx.resume(tmp_path / "run", problem, callback=last, progress=False)
    assert resumed.result.code == straight.result.code == "finished"
    assert_same_run(resumed, straight)
    jax.tree.map(np.testing.assert_array_equal, last.state, state)


@pytest.mark.slow
def test_a_run_stopped_after_an_epoch_goes_on_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    straight, state = whole(folder, "deo-star")
    assert len(np.unique(straight.rung_of[0], axis=0)) > 1, "replicas must have exchanged"
    options = options_of("deo-star") | {"keep_networks": True}
    stopped = train(
        PROBLEM,
        NETWORK.init,
        **options,
        run_dir=tmp_path / "run",
        callback=stop_at(STEPS_PER_EPOCH),
    )
    assert (stopped.num_steps, stopped.num_epochs) == (STEPS_PER_EPOCH, 1)
    last = Last()
    resumed = rx.resume(tmp_path / "run", PROBLEM, callback=last, progress=False)
    assert_same_run(resumed, straight)
    jax.tree.map(np.testing.assert_array_equal, last.state, state)
    assert_same_run(rx.load(tmp_path / "run"), straight)


def logits_of(points: Any, count: int) -> np.ndarray:
    """(network, image, class) of points with a leading axis, one network after the other."""
    assert PROBLEM.test is not None
    return np.stack(
        [PROBLEM.test.outputs(*by_replica(points, n), PROBLEM.test.inputs) for n in range(count)]
    )


def assert_average_of(average: Any, logits: np.ndarray) -> None:
    assert float(average.weight) == len(logits)
    wanted = np.asarray(logits, np.float64)
    np.testing.assert_allclose(average.logits, wanted.sum(axis=0), rtol=1e-4, atol=1e-5)
    exponents = np.exp(wanted - wanted.max(axis=-1, keepdims=True))
    probabilities = exponents / exponents.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(average.probabilities, probabilities.sum(axis=0), rtol=1e-4)


def test_the_average_is_that_of_the_networks_kept(folder: Path) -> None:
    trained, _ = whole(folder, "deo")
    kept = jax.tree.map(lambda leaf: leaf[0], trained.draws)
    assert_average_of(trained.average, logits_of(kept, 2))
    assert trained.epochs["weight"].tolist() == [1.0, 2.0]
    probabilities = np.asarray(trained.average.probabilities) / 2
    labels = np.asarray(PROBLEM.test.targets)  # type: ignore[union-attr]
    nll = -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    np.testing.assert_allclose(trained.metrics().nll, nll, rtol=1e-5)
    np.testing.assert_allclose(trained.epochs["average_nll_probabilities"][-1], nll, rtol=1e-5)


def test_an_average_may_begin_after_a_burn_in() -> None:
    options = options_of("deo-star") | {"burn_in": 1, "keep_networks": True}
    trained = train(PROBLEM, NETWORK.init, **options)
    kept = jax.tree.map(lambda leaf: leaf[0, 1:], trained.draws)
    assert_average_of(trained.average, logits_of(kept, 1))
    assert trained.epochs["weight"].tolist() == [0.0, 1.0]


def test_rows_of_an_epoch_are_by_rung(folder: Path) -> None:
    trained, state = whole(folder, "deo")
    points = jax.tree.map(lambda leaf: leaf[0][state.replica_at[0]], state.points)
    logits = logits_of(points, NUM_REPLICAS).astype(np.float64)
    labels = np.asarray(PROBLEM.test.targets)  # type: ignore[union-attr]
    normal = np.log(np.exp(logits).sum(axis=-1))
    nll = (normal - logits[:, np.arange(len(labels)), labels]).mean(axis=1)
    np.testing.assert_allclose(trained.epochs["nll"][-1], nll, rtol=1e-4)
    accuracy = (logits.argmax(axis=-1) == labels).mean(axis=1)
    np.testing.assert_allclose(trained.epochs["accuracy"][-1], accuracy, rtol=1e-6)


@pytest.mark.parametrize("method", ["ensemble", slow("sgld")])
def test_independent_networks_are_averaged_all_at_once(method: str, folder: Path) -> None:
    """In so short a run, at its end; in longer ones as `test_methods.py` says."""
    trained, state = whole(folder, method)
    points = jax.tree.map(lambda leaf: leaf[0], state.points)
    assert_average_of(trained.average, logits_of(points, 2))


def test_a_cycle_is_averaged_at_its_end(folder: Path) -> None:
    trained, state = whole(folder, "cyc-sghmc")
    assert trained.epochs["weight"].tolist() == [0.0, 0.0, 0.0, 1.0]
    points = jax.tree.map(lambda leaf: leaf[0], state.points)
    assert_average_of(trained.average, logits_of(points, 1))


@pytest.mark.slow
def test_a_pretraining_keeps_no_average_and_starts_the_next_run(folder: Path) -> None:
    pretrained, state = whole(folder, "pretrain")
    assert float(pretrained.average.weight) == 0
    method, last = rx.deo_star(**LADDER | {"learning_rate": (1e-9, 2e-9)}), Last()
    options = EXCHANGING | {"num_replicas": 2, "epochs": 1, "method": method, "callback": last}
    train(PROBLEM, folder / "pretrain", **options)
    params = state.replicas.params
    assert_trees_close(last.state.replicas.params, params, 1e-6)
    one, other = (by_replica(jax.tree.map(lambda leaf: leaf[0], params), r) for r in range(2))
    assert not np.allclose(one["first"]["weight"], other["first"]["weight"], atol=1e-2)


def test_a_run_starts_from_the_coldest_networks_of_another(folder: Path) -> None:
    _, state = whole(folder, "deo")
    replica_at = state.replica_at[0]
    assert replica_at.tolist() != list(range(NUM_REPLICAS))
    found, _ = networks_that_start_from(folder / "deo", PROBLEM, 2)
    wanted = jax.tree.map(lambda leaf: leaf[0][replica_at[:2]], state.replicas.params)
    assert_trees_close(found, wanted, 1e-6)


def test_one_network_starts_from_the_coldest_of_several(folder: Path) -> None:
    _, state = whole(folder, "pretrain")
    cycles = rx.cyc_sghmc(learning_rate=1e-9, temperature=0.0, cycle_epochs=2)
    last = Last()
    options = EXCHANGING | {"num_replicas": 2, "epochs": 1, "method": cycles, "callback": last}
    assert train(PROBLEM, folder / "pretrain", **options).num_replicas == 1
    first = jax.tree.map(lambda leaf: leaf[:, :1], state.replicas.params)
    assert_trees_close(last.state.replicas.params, first, 1e-6)


def test_starts_that_do_not_fit_get_a_sentence(folder: Path) -> None:
    whole(folder, "ensemble")
    options = options_of("deo-star")
    with pytest.raises(ValueError, match="holds 2 networks, but 3 are needed"):
        train(PROBLEM, folder / "ensemble", **options)
    fewer = tiny_problem(num_rows=24)
    for call in (
        lambda: train(fewer, folder / "ensemble", **options),
        lambda: rx.resume(folder / "ensemble", fewer),
    ):
        with pytest.raises(ValueError, match="was trained on 32 rows; the problem has 24"):
            call()
    with pytest.raises(ValueError, match="is not a run folder"):
        train(PROBLEM, folder / "nowhere", **options)
    with pytest.raises(ValueError, match="has no ladder"):
        train(PROBLEM, NETWORK.init, epochs=1, method=rx.ensemble(learning_rate=(0.1, 0.2)))
    with pytest.raises(ValueError, match="one of .*deep-ensemble"):
        train(PROBLEM, NETWORK.init, epochs=1, method="sgd")


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "scale"), [(PROBLEM, 1), (tempered(PROBLEM), NUM_ROWS)])
def test_gains_may_be_numbers(problem: Supervised, scale: float) -> None:
    """With the buffer so high that no pair agrees, each step takes gain x target from it."""
    high, gain = 50.0, 0.1
    method = rx.deo_star(**LADDER | {"buffer": high, "buffer_gain": gain})
    trained = train(problem, NETWORK.init, **EXCHANGING | {"epochs": 1, "method": method})
    assert trained.verdict_rate.max() == 0
    fallen = STEPS_PER_EPOCH * gain * LADDER["target_swap_rate"]
    np.testing.assert_allclose(trained.buffer, scale * (high - fallen), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "gain",
    [ConstantGain(0.02), lambda step: 0.02 / (1 + step)],
)
def test_gains_of_ones_own_go_on(gain: Any, tmp_path: Path) -> None:
    method = rx.deo_star(**LADDER | {"buffer_gain": gain})
    options = options_of("deo-star") | {"method": method, "keep_networks": True}
    straight = train(PROBLEM, NETWORK.init, **options)
    train(PROBLEM, NETWORK.init, **options, run_dir=tmp_path / "run", callback=stop_at(5))
    again: Any = {} if isinstance(gain, ConstantGain) else {"method": method}
    if again:
        with pytest.raises(ValueError, match=r"method=rx.deo_star\(buffer_gain=...\)"):
            rx.resume(tmp_path / "run", PROBLEM)
    assert_same_run(rx.resume(tmp_path / "run", PROBLEM, progress=False, **again), straight)


def counting(breaks_at: int) -> Supervised:
    """A loss that is not finite in one step, told by a counter in the model state."""

    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        loss = jnp.mean((params - batch) ** 2)
        return jnp.where(state == breaks_at, jnp.nan, loss), state + 1

    logits = lambda params, state, inputs: inputs[:, None] * params  # noqa: E731
    test = Test(logits, jnp.ones(2), jnp.array([0, 1]), 2)
    return supervised(loss_fn, np.zeros((8, 2), np.float32), batch_size=2, test=test)


class Own(NamedTuple):
    both: Any


@pytest.mark.slow
def test_parameters_in_containers_of_ones_own_get_a_sentence_on_resuming(tmp_path: Path) -> None:
    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.mean((params.both - batch) ** 2), state

    plain = counting(100)
    logits = lambda params, state, inputs: inputs[:, None] * params.both  # noqa: E731
    test = Test(logits, jnp.ones(2), jnp.array([0, 1]), 2)
    problem = supervised(loss_fn, plain.batches.data, batch_size=2, test=test)
    options: Any = {"method": "ensemble", "num_replicas": 2, "progress": False}
    start = lambda key: (Own(jax.random.normal(key, (2,))), {})  # noqa: E731
    train(problem, start, epochs=1, run_dir=tmp_path / "run", **options)
    with pytest.raises(ValueError, match="custom containers.* dicts, lists and tuples"):
        rx.resume(tmp_path / "run", problem)


BREAKING = {"epochs": 4, "method": "ensemble", "num_replicas": 2, "progress": False}


@pytest.mark.parametrize("step", [9, slow(11), slow(15)])
def test_a_coldest_network_that_breaks_ends_the_run(step: int) -> None:
    start = lambda key: (jax.random.normal(key, (2,)), jnp.array(0))  # noqa: E731
    trained = train(counting(step), start, **BREAKING)
    assert (trained.result.code, trained.num_steps) == ("nonfinite", step + 1)
    assert np.isfinite(trained.average.logits).all()


def test_a_network_without_weight_cannot_spoil_the_average() -> None:
    weights = lambda epoch, num_replicas: np.eye(num_replicas)[0]  # noqa: E731
    evaluation = evaluate.build_average(counting(100), weights)
    points = (jnp.array([[[1.0, 2.0], [jnp.nan, 1.0]]]), jnp.zeros((1, 2)))
    state = SimpleNamespace(points=points, replica_at=jnp.array([[0, 1]]))
    averages, _, _ = evaluation.evaluate(evaluation.state, Carry(state, None))  # type: ignore
    np.testing.assert_allclose(averages.sampled.logits, [[1.0, 2.0], [1.0, 2.0]])
