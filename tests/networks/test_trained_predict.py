"""`trained.predict`: the model average for any inputs, in this process and after `rx.load`."""

import warnings
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from rich.console import Console
from tiny_networks import EXCHANGING, LADDER, NETWORK, tiny_data, tiny_problem

import replicax as rx
from replicax.networks import evaluate, predictor
from replicax.networks.predictor import as_inputs
from replicax.networks.report import render, sections_of
from replicax.networks.train import train

PROBLEM, DATA = tiny_problem(), tiny_data()
IMAGES = DATA.test_images
OPTIONS: dict[str, Any] = EXCHANGING | {"burn_in": 1}
METHODS: dict[str, tuple[rx.Method, int, int]] = {  # epochs, replicas
    "ensemble": (rx.ensemble(), 20, 3),
    "sgld": (rx.sgld(), 10, 2),
    "cyc-sghmc": (rx.cyc_sghmc(cycle_epochs=14), 20, 2),
    "cyc-swag": (rx.cyc_swag(cycle_epochs=14), 20, 2),
    "deo": (rx.deo(**LADDER | {"window": None}), 8, 3),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> rx.Trained:
    """A short run in a folder."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    return train(PROBLEM, NETWORK.init, **OPTIONS, run_dir=folder)


def same_as_the_test(trained: rx.Trained) -> None:
    for by in ("probabilities", "logits"):
        predicted = trained.predict(IMAGES, by=by)
        assert_allclose(predicted, trained.log_probabilities(by), atol=2e-6)


def test_the_test_is_predicted_as_it_was_judged(trained: rx.Trained) -> None:
    same_as_the_test(trained)
    assert_array_equal(trained.networks.epoch, [2, 3, 4])
    assert_array_equal(trained.networks.rung, 0)
    assert float(trained.average.weight) == trained.networks.weight.sum() == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_method_predicts_with_what_it_averages(name: str, tmp_path: Path) -> None:
    method, epochs, num_replicas = METHODS[name]
    run = train(
        PROBLEM,
        NETWORK.init,
        method=method,
        epochs=epochs,
        num_replicas=num_replicas,
        burn_in=3,
        progress=False,
        run_dir=tmp_path / "run",
    )
    same_as_the_test(run)
    assert run.networks.epoch.min() > 3
    assert float(run.average.weight) == len(run.networks.weight) > 1
    same_as_the_test(rx.load(tmp_path / "run", PROBLEM))  # type: ignore[arg-type]


def test_members_average_to_the_prediction(trained: rx.Trained) -> None:
    members = trained.predict(IMAGES[:5], members=True)
    assert members.shape == (3, 5, 3)
    weights = trained.networks.weight
    average = rx.predict.log_probabilities(rx.predict.average(members, weights))
    assert_allclose(average, trained.predict(IMAGES[:5]), atol=2e-6)
    params, state = (
        jax.tree.map(lambda leaf: leaf[1], tree)
        for tree in (trained.networks.params, trained.networks.model_state)
    )
    assert PROBLEM.test is not None
    alone = PROBLEM.test.outputs(params, state, jnp.asarray(IMAGES[:5]))
    assert_allclose(members[1], jax.nn.log_softmax(alone), atol=2e-6)


def test_pieces_are_padded_and_compiled_once(trained: rx.Trained, monkeypatch) -> None:
    whole = trained.predict(IMAGES)
    monkeypatch.setattr(predictor, "_PIECE", 4)
    assert PROBLEM.predictor is not None
    compiled: Any = PROBLEM.predictor._compiled
    assert_allclose(trained.predict(IMAGES[:9]), whole[:9], atol=2e-6)
    before = compiled._cache_size()
    for count in (3, 4, 7, 12):
        assert_allclose(trained.predict(IMAGES[:count]), whole[:count], atol=2e-6)
    assert compiled._cache_size() == before


def test_a_copy_and_a_folder_predict_once_they_have_the_network(
    trained: rx.Trained, tmp_path: Path
) -> None:
    wanted = trained.predict(IMAGES)
    trained.save(tmp_path / "copy")
    assert trained.run_dir is not None
    for folder in (tmp_path / "copy", trained.run_dir):
        loaded: Any = rx.load(folder)
        with pytest.raises(ValueError, match=r"rx.load\(folder, network\)"):
            loaded.predict(IMAGES)
        assert_array_equal(loaded.predict(IMAGES, problem=PROBLEM), wanted)
        for given in (PROBLEM, NETWORK):  # the network alone needs no data
            again: Any = rx.load(folder, given)
            assert_array_equal(again.predict(IMAGES), wanted)
            with pytest.raises(ValueError, match=r"the network takes \(row, 6, 6, 1\)"):
                again.predict(IMAGES[:, 1:])
        with pytest.raises(ValueError, match="The network is a function; give an rx.nn.Network"):
            loaded.predict(IMAGES, problem=lambda params, inputs: inputs)


def test_a_network_that_computes_something_else_is_told(trained: rx.Trained) -> None:
    def apply(params: Any, state: Any, images: Any, train: bool) -> Any:
        logits, state = NETWORK.apply(params, state, images, train)
        return 0.8 * logits, state

    folder: Any = trained.run_dir
    with pytest.warns(UserWarning, match="differs from the one that was trained"):
        rx.load(folder, rx.nn.Network(NETWORK.init, apply)).predict(IMAGES)  # type: ignore
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rx.load(folder, NETWORK).predict(IMAGES)  # type: ignore[attr-defined]


def test_a_saved_run_of_no_folder_knows_its_network(tmp_path: Path) -> None:
    line = rx.nn.mlp(2, 2, hidden=(3,), activation="tanh")
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    problem = rx.classification(line, (rows, (rows[:, 0] > 0).astype(int)), batch_size=10)
    made = rx.train(problem, line.init, epochs=1, num_replicas=2, method="ensemble", progress=False)
    made.save(tmp_path / "saved")
    other: Any = rx.load(tmp_path / "saved", rx.nn.mlp(2, 2, hidden=(3,)))
    with pytest.warns(UserWarning, match="differs from the one that was trained"):
        other.predict(rows)


def test_a_run_that_broke_says_so_where_it_has_no_average() -> None:
    line = rx.nn.mlp(2, 2, hidden=(3,))
    rows = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    problem = rx.classification(line, (rows, (rows[:, 0] > 0).astype(int)), batch_size=10)
    with pytest.warns(UserWarning, match="A smaller learning rate"):
        broken = rx.train(
            problem,
            line.init,
            epochs=3,
            num_replicas=2,
            method=rx.ensemble(learning_rate=1e30),
            progress=False,
        )
    with pytest.raises(ValueError, match="No network has been averaged.* at step"):
        broken.predict(rows)


def test_few_networks_are_kept_evenly_spaced(trained: rx.Trained) -> None:
    few = train(PROBLEM, NETWORK.init, **OPTIONS, keep_averaged=2)
    assert float(few.average.weight) == 3, "the running sums go on"
    assert_array_equal(few.networks.epoch, [2, 3])
    first = trained.predict(IMAGES, members=True)[:2]
    wanted = rx.predict.log_probabilities(rx.predict.average(first))
    assert_allclose(few.predict(IMAGES), wanted, atol=2e-6)


def test_shades_of_grey_are_recognised(trained: rx.Trained) -> None:
    wanted = trained.predict(IMAGES)
    for images in (IMAGES.astype(np.int64), IMAGES.astype(np.float32), IMAGES / 255.0):
        assert_allclose(trained.predict(images), wanted, atol=1e-4)
    bright = IMAGES > 128
    for images in (jnp.asarray(bright, jnp.bfloat16), bright):  # white is 1
        assert_allclose(trained.predict(images), trained.predict(255 * bright), atol=1e-4)


WRONG = {
    "one image": (IMAGES[0], r"shape \(6, 6, 1\).*write inputs\[None\]"),
    "of another size": (IMAGES[:, :3], r"the network takes \(row, 6, 6, 1\)"),
    "none": (IMAGES[:0], "at least one row"),
    "nan": (np.where(IMAGES > 9, IMAGES, np.nan), "inputs are NaN or infinite, row"),
    "normalised": (IMAGES / 128.0 - 1, "float64 from -1 .*uint8 images"),
    "too bright": (IMAGES.astype(int) * 2, "uint8 images"),
    "words": (np.array(["a"]), "holds text"),
    "a dict": ({"images": IMAGES}, "takes one array"),
    "nothing": (None, "are None; give arrays"),
}


def test_floats_and_bytes_are_not_the_same() -> None:
    """Of a network of floats, bytes are refused, and lists are taken as arrays."""
    row = jax.ShapeDtypeStruct((2,), jnp.float32)
    assert as_inputs([[1, 2], [3, 4]], row).dtype == np.float32
    assert as_inputs(np.ones((1, 2), bool), row).dtype == np.float32
    with pytest.raises(ValueError, match="uint8, and the network was trained on float32"):
        as_inputs(np.ones((1, 2), np.uint8), row)
    with pytest.raises(ValueError, match="The inputs are complex128"):
        as_inputs(np.ones((1, 2), complex), row)


@pytest.mark.parametrize("case", WRONG)
def test_inputs_that_do_not_fit_are_refused(case: str, trained: rx.Trained) -> None:
    inputs, sentence = WRONG[case]
    with pytest.raises(ValueError, match=sentence):
        trained.predict(inputs)


def test_what_cannot_be_asked_for_is_refused(trained: rx.Trained, monkeypatch) -> None:
    with pytest.raises(ValueError, match="by is 'logit'.*Did you mean 'logits'"):
        trained.predict(IMAGES, by="logit")
    with pytest.raises(ValueError, match="members is 3"):
        trained.predict(IMAGES, members=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="The problem is 7"):
        trained.predict(IMAGES, problem=7)
    monkeypatch.setattr(evaluate, "read", lambda *records: None)
    metadata = trained.metadata
    for changed, sentence in (
        ({}, "earlier versions"),
        ({"run": replace(metadata.run, keep_averaged=0)}, "train with keep_averaged=100"),
        ({"method": rx.pretrain()}, '"pretrain" only trains'),
    ):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=sentence):
            patch.setattr(trained._records, "metadata", replace(metadata, **changed))
            rx.Trained(trained._records, None, PROBLEM).predict(IMAGES)
    with (
        monkeypatch.context() as patch,
        pytest.raises(ValueError, match="more epochs than burn_in"),
    ):
        patch.setitem(trained._records.final, "average.weight", np.zeros(()))
        unpicked = rx.Trained(trained._records, None, PROBLEM)
        with pytest.raises(ValueError, match="No network has been averaged"):
            unpicked.metrics()
        unpicked.predict(IMAGES)


def test_a_loss_predicts_with_its_logits(trained: rx.Trained) -> None:
    def loss_fn(params: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.sum(params), state

    assert PROBLEM.test is not None
    rows = np.zeros((4, 1), np.float32)
    problem = rx.supervised(loss_fn, rows, batch_size=2, logits=PROBLEM.test.outputs)
    assert_allclose(trained.predict(IMAGES, problem=problem), trained.predict(IMAGES), atol=2e-6)
    with pytest.raises(ValueError, match=r"rx.supervised\(..., logits=...\)"):
        trained.predict(IMAGES, problem=rx.supervised(loss_fn, rows, batch_size=2))
    other = rx.supervised(loss_fn, rows, batch_size=2, logits=lambda params, state, x: params["a"])
    with pytest.raises(ValueError, match="The network fails"):
        trained.predict(IMAGES, problem=other)
    assert problem.describe()["predicts"] is None, "a loss does not tell it"


def test_a_problem_without_a_test_is_trained_and_predicts(trained: rx.Trained) -> None:
    run = train(replace(PROBLEM, test=None), NETWORK.init, **OPTIONS)
    assert repr(run) == "Trained(deo-star, 4 epochs of 3 networks; 3 averaged; finished)"
    assert_array_equal(run.predict(IMAGES), trained.predict(IMAGES))
    summary = run.summary()
    assert summary["averages"] == [] and summary["averaged"] == 3 and "by_rung" not in summary
    console = Console(file=StringIO(), width=200)
    console.print(render(summary))
    assert "3; the problem has no test" in console.file.getvalue()  # type: ignore
    assert [one.title for one in sections_of(run)] == ["At a glance", "Exchange"]
    for ask in (run.metrics, run.log_probabilities, lambda: run.labels):
        with pytest.raises(ValueError, match="had no test"):
            ask()
