"""Networks of which some parameters are frozen: the others move as if the rest were constants."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import OF_NETWORKS, assert_same_run
from tiny_networks import LADDER, NETWORK, NUM_REPLICAS, tiny_data

import replicax as rx
from replicax.nn.network import Network, apply_dense

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
DATA = tiny_data()
PRETRAINED = jax.tree.map(  # with batch statistics unlike those at the start
    lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size, dtype=x.dtype)).reshape(x.shape),
    NETWORK.init(jax.random.key(5)),
)
HEAD, START = rx.freeze(NETWORK, PRETRAINED, "last")
PROBLEM = rx.classification(HEAD, DATA, batch_size=8, augment=False, weight_decay=0.01)
QUICK = {"deo-star": rx.deo_star(**LADDER), "sghmc-pt": rx.sghmc_pt(1e-3, pretrain=0.0)}
OTHERS = [name for name in OF_NETWORKS if name not in QUICK]


def features_of(images: np.ndarray) -> np.ndarray:
    """The outputs of the trunk with its batch statistics, by hand."""
    params, state = jax.tree.map(lambda x: np.asarray(x, np.float64), PRETRAINED)
    x = ((images / 255 - DATA.mean) / DATA.std).reshape(len(images), -1)
    x = x @ params["first"]["weight"] + params["first"]["bias"]
    x = (x - state["mean"]) / np.sqrt(state["var"] + 1e-5)
    return np.maximum(x * params["norm"]["scale"] + params["norm"]["shift"], 0).astype(np.float32)


def of_features() -> Any:
    """The problem of the head alone, whose inputs are those outputs."""

    def apply(params: Any, state: Any, inputs: Any, train: bool) -> tuple[Any, Any]:
        layer = {"weight": params["last.weight"], "bias": params["last.bias"]}
        return apply_dense(layer, inputs), state

    rows = features_of(DATA.train_images), DATA.train_labels
    test = features_of(DATA.test_images), DATA.test_labels
    return rx.classification(
        Network(HEAD.init, apply), rows, test=test, num_classes=3, batch_size=8, weight_decay=0.01
    )


def trained(problem: Any, method: Any, **options: Any) -> rx.Trained:
    count = 1 if str(method).startswith("cyc") else NUM_REPLICAS
    replicas = jax.vmap(HEAD.init)(jax.random.split(jax.random.key(1), count))
    chosen = {"epochs": 3, "num_replicas": NUM_REPLICAS, "keep_networks": True} | options
    return rx.train(problem, rx.per_replica(replicas), method=method, progress=False, **chosen)


def stop_at(step: int) -> Any:
    return lambda progress: "stop" if progress.step >= step else None


@pytest.fixture(scope="module")
def straight() -> rx.Trained:
    return trained(PROBLEM, QUICK["deo-star"])


def assert_as_by_hand(frozen: rx.Trained, method: Any, **options: Any) -> None:
    by_hand = trained(of_features(), method, **options)
    for leaf in ("last.weight", "last.bias"):
        one, other = (run.networks.params[leaf] for run in (frozen, by_hand))
        assert np.ptp(one, axis=0).max() > 1e-6, "networks differ"
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(frozen.epochs["nll"], by_hand.epochs["nll"], rtol=1e-3)
    images = DATA.test_images
    members = frozen.predict(images, members=True)
    by_hand_members = by_hand.predict(features_of(images), members=True)
    np.testing.assert_allclose(members, by_hand_members, atol=1e-4)


def test_heads_are_those_of_a_problem_whose_inputs_are_the_features(straight: Any) -> None:
    assert_as_by_hand(straight, QUICK["deo-star"])


@pytest.mark.slow
def test_sghmc_samples_a_head_on_batch_norm() -> None:
    """It refuses networks with batch statistics, which move; these are frozen."""
    method = QUICK["sghmc-pt"]
    assert_as_by_hand(trained(PROBLEM, method, burn_in=1), method, burn_in=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_heads_of_other_methods_are_those_of_the_features(name: str) -> None:
    frozen = trained(PROBLEM, name, epochs=10)
    if name == "pretrain":  # which keeps no networks to predict with
        by_hand = trained(of_features(), name, epochs=10)
        np.testing.assert_allclose(frozen.epochs["nll"], by_hand.epochs["nll"], rtol=1e-3)
    else:
        assert_as_by_hand(frozen, name, epochs=10)


def test_a_run_goes_on_in_its_folder_and_predicts_in_another_process(
    straight: rx.Trained, tmp_path: Any
) -> None:
    trained(PROBLEM, QUICK["deo-star"], run_dir=tmp_path / "run", callback=stop_at(8))
    again = rx.resume(tmp_path / "run", PROBLEM, progress=False)
    assert_same_run(again, straight)
    sizes = {name: leaf.size for name, leaf in again.networks.params.items()}
    assert set(sizes) == {"last.weight", "last.bias"}, "the folder has no frozen parameters"
    head, _ = rx.freeze(NETWORK, PRETRAINED, "last")
    loaded = rx.load(tmp_path / "run", head)
    expected = straight.predict(DATA.test_images)
    np.testing.assert_array_equal(loaded.predict(DATA.test_images), expected)
    with pytest.raises(ValueError, match=r"networks of the run have other .* rx\.freeze"):
        rx.load(tmp_path / "run", NETWORK).predict(DATA.test_images)
    other = jax.tree.map(lambda x: x + 0.01, PRETRAINED)
    changed, _ = rx.freeze(NETWORK, other, "last")
    with pytest.warns(UserWarning, match="The network differs"):
        rx.load(tmp_path / "run", changed).predict(DATA.test_images)
    problem = rx.classification(changed, DATA, batch_size=8, augment=False, weight_decay=0.01)
    with pytest.raises(ValueError, match="does not fit the run"):
        rx.resume(tmp_path / "run", problem)


def test_the_posterior_of_a_head_can_be_sampled_by_the_other_call() -> None:
    """Energies of both problems at one head are the same, and one call draws from them."""
    energies = []
    for problem in (PROBLEM, of_features()):
        rows = jax.tree.map(lambda x: x[:8], problem.batches.data)
        batch = problem.batches.prepare(jax.random.key(0), rows)
        energies.append(float(problem.target.energy(*START, batch, None)[0]))
    assert energies[0] == pytest.approx(energies[1], rel=1e-5)
    options = {"num_steps": 20, "num_replicas": 2, "progress": False}
    run = rx.sample(PROBLEM, START, method=rx.deo_star((1e-3, 1e-2)), **options)
    assert set(run.draws[0]) == {"last.weight", "last.bias"}
    assert np.ptp(run.draws[0]["last.weight"], axis=1).max() > 1e-4


def test_what_is_trainable_is_said_by_name_by_function_or_by_a_tree() -> None:
    every = {"params": PRETRAINED[0], "by": lambda t: set(rx.freeze(NETWORK, PRETRAINED, t)[1][0])}
    chosen = every["by"]
    assert chosen("last") == {"last.weight", "last.bias"}
    assert chosen(["*bias", "norm"]) == {"first.bias", "last.bias", "norm.scale", "norm.shift"}
    assert chosen(lambda name: name.startswith("first")) == {"first.weight", "first.bias"}
    tree = {"first": False, "norm": False, "last": {"weight": True, "bias": False}}
    assert chosen(tree) == {"last.weight"}


def test_layers_that_are_frozen_at_the_end_leave_the_first_ones_to_move() -> None:
    first, start = rx.freeze(NETWORK, PRETRAINED, "first")
    inputs = jnp.ones((4, 6, 6, 1))
    whole = NETWORK.apply(*PRETRAINED, inputs, False)[0]
    np.testing.assert_array_equal(first.apply(*start, inputs, True)[0], whole)
    moved = jax.tree.map(lambda x: x + 0.1, start[0])
    by_name = PRETRAINED[0] | {"first": {name[6:]: leaf for name, leaf in moved.items()}}
    expected = NETWORK.apply(by_name, PRETRAINED[1], inputs, False)[0]
    np.testing.assert_array_equal(first.apply(moved, {}, inputs, True)[0], expected)


def test_functions_of_params_and_inputs_are_frozen_too() -> None:
    def line(params: Any, inputs: Any) -> Any:
        return params["slope"] * inputs[:, 0] + params["offset"]

    pretrained = {"slope": jnp.array(3.0), "offset": jnp.array(0.0)}, {}
    network, start = rx.freeze(line, pretrained, "offset")
    x = np.linspace(-1, 1, 64, dtype=np.float32)[:, None]
    y = 3 * x[:, 0] + 7
    problem = rx.regression(
        network, (x, y), batch_size=64, noise=0.5, standardise=False, weight_decay=1e-6
    )
    run = rx.train(
        problem, start, epochs=120, num_replicas=1, progress=False, method=rx.deep_ensemble(0.02)
    )
    np.testing.assert_allclose(run.predict(x).mean, y, atol=0.05)


@pytest.mark.parametrize(
    ("trainable", "sentence"),
    [
        ("lust", r"trainable has 'lust', which fits no parameter; they are .*mean 'last"),
        ((lambda name: False), "Nothing is trainable; name some"),
        ({"first": True}, "trainable is .*; give names or patterns"),
        ({"first": 2.0, "norm": False, "last": True}, "trainable is .*; give names or patterns"),
        (3, "trainable is 3; give names or patterns"),
    ],
)
def test_what_cannot_be_trainable_is_refused(trainable: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        rx.freeze(NETWORK, PRETRAINED, trainable)


def test_params_of_another_network_are_refused() -> None:
    params, state = PRETRAINED
    with pytest.raises(ValueError, match="The start is .*; give the pretrained"):
        rx.freeze(NETWORK, params, "last")
    less = {name: part for name, part in params.items() if name != "norm"}
    with pytest.raises(ValueError, match=r"the parameter norm.scale .* does not have it"):
        rx.freeze(NETWORK, (less, state), "last")
    with pytest.raises(ValueError, match="has the parameter more, which the network does not"):
        rx.freeze(NETWORK, (params | {"more": jnp.ones(2)}, state), "last")
    with pytest.raises(ValueError, match="The network is 3; give an rx.nn.Network"):
        rx.freeze(3, PRETRAINED, "last")
    with pytest.raises(ValueError, match=r"other parameters .* what rx\.freeze returns"):
        rx.train(PROBLEM, PRETRAINED, epochs=1, num_replicas=1, method=rx.sgld(1e-3))
