"""Trainings that cannot come to anything are told: at once, or as problems at the end."""

import warnings
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.networks.checks import check_apart, checked_first, find_training_problems
from replicax.networks.likelihoods import gaussian
from replicax.networks.outcomes import Classes, Numbers
from replicax.networks.task import Supervised
from replicax.networks.train import _warn_of_low_peak, build_evaluation
from replicax.run.methods import as_method
from replicax.run.options import Training
from replicax.run.records import Evaluation
from replicax.run.resolve import resolve, with_usual
from replicax.run.storage.metadata import Predicts


def problem_of(loss: Any, logits: Any = lambda params, state, x: x * params) -> Supervised:
    test = rx.Test(logits, jnp.ones((2, 2)), jnp.array([0, 1]), 2)
    return rx.supervised(
        lambda params, state, batch, key: (loss(params, batch), state),
        np.ones((8, 2), np.float32),
        batch_size=4,
        test=test,
    )


BRIEF: dict[str, Any] = {"epochs": 3, "num_replicas": 2, "progress": False}


def test_a_loss_that_is_not_finite_at_the_start_is_an_error() -> None:
    problem = problem_of(lambda params, batch: jnp.mean(jnp.log(params) * batch))
    with pytest.raises(ValueError, match="loss of the start is nan for network 0, before it has"):
        rx.train(problem, (jnp.array(-1.0), {}), method="deo-star", **BRIEF)
    with pytest.raises(ValueError, match="not finite after a few steps at any learning rate"):
        problem = problem_of(lambda params, batch: jnp.mean(jnp.sqrt(params) * batch))
        rx.train(problem, lambda key: (-1 - jax.random.uniform(key), {}), **BRIEF)


def test_a_test_that_is_not_finite_is_an_error_after_the_first_epoch() -> None:
    method = with_usual(rx.ensemble(), of_networks=True)

    def tests(nll: list[float]) -> Evaluation:
        rows = iter(nll)
        evaluate = lambda state, carry: (state, {"nll": np.array([next(rows), np.nan])})  # noqa: E731
        return checked_first(Evaluation(None, evaluate, None), method)  # type: ignore[arg-type]

    told = r"predictions of all 2 networks .* not finite.*method=rx.ensemble\(learning_rate=...\)"
    with pytest.raises(ValueError, match=told):
        tests([np.nan]).evaluate(None, None)  # type: ignore[arg-type]
    later = tests([1.0, np.nan])  # what was once finite is told at the end
    for _ in range(2):
        later.evaluate(None, None)  # type: ignore[arg-type]
    problem = problem_of(lambda params, batch: jnp.mean((params - batch) ** 2))
    program = resolve(problem, Training(epochs=3, num_replicas=2), "deo-star")
    made = build_evaluation(problem, program, (jnp.zeros(()), {}))
    assert made.evaluate.__qualname__.startswith("checked_first"), "a training has the check"


def trained_of(
    weight: float, nll: list[float], code: str = "finished", method: Any = "deo-star"
) -> Any:
    return SimpleNamespace(
        metadata=SimpleNamespace(method=with_usual(as_method(method), of_networks=True)),
        num_epochs=3,
        average=SimpleNamespace(weight=weight),
        epochs={"nll": np.array([nll])},
        result=SimpleNamespace(code=code),
        likelihood=Classes(3),
    )


def test_an_average_of_nothing_is_a_problem() -> None:
    assert find_training_problems(trained_of(3, [1.0, 2.0])) == []
    assert find_training_problems(trained_of(0, [1.0, 2.0], "stopped")) == []
    assert find_training_problems(trained_of(0, [1.0, 2.0], method="pretrain")) == []
    (sentence,) = find_training_problems(trained_of(0, [1.0, 2.0]))
    assert "No network was averaged in 3 epochs: write more epochs" in sentence
    (sentence,) = find_training_problems(trained_of(3, [1.0, np.nan]))
    assert "networks on rungs [1] have non-finite predictions" in sentence


def test_networks_that_are_worse_than_a_guess_are_a_problem() -> None:
    """Large rates may break a network that stays finite; log 3 = 1.1."""
    assert find_training_problems(trained_of(3, [0.1, 10.9])) == []
    (sentence,) = find_training_problems(trained_of(3, [0.1, 11.05]))
    assert "rungs [1] predict far worse than chance, with an NLL of 11" in sentence
    as_written = "learning_rate, as in method=rx.deo_star(learning_rate=(cold, hot))"
    assert f"write a smaller hot end of {as_written}" in sentence
    (sentence,) = find_training_problems(trained_of(3, [4e8, 12.0]))
    assert "rungs [0, 1]" in sentence and f"write a smaller {as_written}" in sentence
    (sentence,) = find_training_problems(trained_of(3, [0.1, 12.0], method="ensemble"))
    smaller = "write a smaller learning_rate, as in method=rx.ensemble(learning_rate=...)"
    assert smaller in sentence, "without a ladder there is no hot end"
    own = trained_of(3, [0.1, 12.0], method=rx.Method("own"))
    assert 'method=rx.Method("own", learning_rate=...)' in find_training_problems(own)[0]
    tempered = rx.sghmc_pt(temperature=(1.0, 9.0))
    near = trained_of(3, [0.1, 99.0], method=tempered)
    assert find_training_problems(near) == [], "near the prior"
    (sentence,) = find_training_problems(trained_of(3, [99.0, 0.1], method=tempered))
    assert "method=rx.sghmc_pt(learning_rate=...)" in sentence, "one rate for all rungs"


def test_real_numbers_and_losses_that_are_worse_than_a_guess_are_a_problem() -> None:
    """Targets at 0 and 2, and at 1000 and 1002: one that guesses their means has an error of 1."""
    targets = np.array([[0.0, 1000.0], [2.0, 1002.0]])
    unit = {"centre": (1.0, 1001.0), "spread": (1.0, 1.0)}
    trained = trained_of(3, [1.0, 1.0])
    trained.likelihood, trained.labels = Numbers(gaussian(), **unit), targets
    trained.epochs["rmse"] = np.array([[99.0, 99.0], [0.5, 9.9]])
    assert find_training_problems(trained) == []
    trained.epochs["rmse"] = np.array([[0.5, 10.1]])
    (sentence,) = find_training_problems(trained)
    assert "rungs [1]" in sentence and "with an RMSE of 10.1 on the test instead of 1" in sentence
    untested = trained_of(3, [1.0, 1.0])
    untested.epochs, untested.likelihood, untested.energy_scale = {}, None, 8.0
    untested.predicts = Predicts(Classes(3).to_json(), inputs=None)
    untested._final = lambda name: np.array([[8.0, 8 * 11.05]])
    (sentence,) = find_training_problems(untested)
    assert "rungs [1]" in sentence and "with a loss of 11.1 in the last step" in sentence
    untested.predicts = None
    assert find_training_problems(untested) == []


def test_an_optax_transform_that_needs_the_loss_is_refused() -> None:
    problem = problem_of(lambda params, batch: jnp.mean((params - batch) ** 2))
    with pytest.raises(ValueError, match="optax transform fails: .* gradients and parameters alon"):
        rx.train(problem, (jnp.array(1.0), {}), **BRIEF, method=rx.deo_star(kernel=optax.lbfgs()))


def test_labels_that_count_from_1_are_refused() -> None:
    """They would make one class more, which no row has."""
    network, rows = rx.nn.mlp(2, 4, hidden=()), np.ones((3, 2), np.float32)
    labels = np.array([1, 2, 3])
    with pytest.raises(
        ValueError, match=r"dataset\[1\] go from 1 to 3, and none is 0: .*num_classes"
    ):
        rx.classification(network, (rows, labels), batch_size=1)
    rx.classification(network, (rows, labels), batch_size=1, num_classes=4)
    rx.classification(network, (rows, np.eye(4)[labels]), batch_size=1)


def test_networks_that_would_stay_the_same_are_refused() -> None:
    """From one start, on the same batches, without noise."""
    problem = problem_of(lambda params, batch: jnp.mean((params - batch) ** 2))
    start = jnp.zeros(()), {}
    with pytest.raises(ValueError, match="one point for all 2 networks .* would stay identical"):
        rx.train(problem, start, method="ensemble", **BRIEF)
    points = jax.tree.map(lambda leaf: jnp.zeros((1, 2, *leaf.shape)), start)
    carry: Any = SimpleNamespace(state=SimpleNamespace(points=points))

    def check(problem: Any = problem, method: str = "deo-star", num_replicas: int = 2) -> None:
        run = Training(epochs=3, num_replicas=num_replicas)
        check_apart(problem, resolve(problem, run, method), start, carry)

    for method in ("deo-star", "sgld", "cyc-sghmc"):  # rates that differ, noise, one network
        check(method=method)
    check(method="ensemble", num_replicas=1)
    noisy = lambda params, state, batch, key: (params * jax.random.normal(key), state)  # noqa: E731
    rows = np.ones((8, 2), np.float32)
    check(rx.supervised(noisy, rows, batch_size=4), method="ensemble")
    with pytest.raises(ValueError, match="would stay identical"):
        check(method="pretrain")


def test_a_schedule_of_rates_instead_of_factors_is_told() -> None:
    problem = problem_of(lambda params, batch: jnp.mean((params - batch) ** 2))
    run = Training(epochs=4, num_replicas=2)
    low = optax.cosine_decay_schedule(0.1, 8)
    told = (
        r"rate_schedule is at most 0.1 in the 8 steps .*rx.deo_star\(learning_rate=\.\.\., rate_sch"
    )
    with pytest.warns(UserWarning, match=told):
        _warn_of_low_peak(resolve(problem, run, rx.deo_star(rate_schedule=low)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rises = optax.warmup_cosine_decay_schedule(0.0, 1.0, 3, 8)
        _warn_of_low_peak(resolve(problem, run, rx.deo_star(rate_schedule=rises)))
