"""Choices of a training that do not go together are refused, each with a sentence."""

from typing import Any

import optax
import pytest
from tiny_networks import tiny_problem

import replicax as rx
from replicax.networks.tempered import tempered
from replicax.run.methods import Method, as_method
from replicax.run.options import Training
from replicax.run.resolve import resolve

PROBLEM = tiny_problem()


def refused(method: Any, **options: Any) -> None:
    method = as_method(method)
    problem = tempered(PROBLEM) if method.tempers_likelihood else PROBLEM
    resolve(problem, Training(**({"epochs": 9} | options)), method)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"kernel": "hmc"}, 'kernel is "hmc" or "mala", .* networks take kernel="sghmc"'),
        ({"kernel": "sgdd"}, "kernel is 'sgdd'.*Did you mean 'sgd'"),
        ({"kernel": rx.kernels.hmc()}, "tune their own steps"),
        ({"kernel": rx.kernels.mala()}, "tune their own steps"),
        ({"kernel": optax.adam(1.0), "momentum": 0.5}, "an object with its own momentum"),
        ({"momentum": 1.0}, "momentum is 1.0; it must be a number of at least 0 and below 1"),
        ({"rate_schedule": "cosin"}, "Did you mean 'cosine'"),
        ({"learning_rate": optax.constant_schedule(0.1)}, "rate_schedule, a function of the step"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"learning_rate": "auto"}, "or give learning_rate"),
        ({"learning_rate": (0.2, 0.1)}, "learning_rate is .*rates must not decrease"),
        ({"warmup_epochs": 1}, 'only "cosine" has a warm-up'),
        ({"warmup_epochs": 9, "rate_schedule": "cosine"}, "warmup_epochs is 9, .* write fewer"),
        ({"warmup_epochs": -1, "rate_schedule": "cosine"}, "warmup_epochs is -1"),
        ({"clip_norm": 0}, "clip_norm is 0"),
        ({"schedule": "deo-starr"}, "schedule is .*Did you mean"),
        ({"rule": "metropoli"}, "rule is 'metropoli'; .* Did you mean 'metropolis'"),
        ({"adapt": 3}, "adapt is 3: for networks write True or False"),
        ({"swap_every": 0}, "swap_every is 0"),
        ({"cycle_epochs": 0}, "cycle_epochs is 0"),
        ({"energy_at": "all_rows"}, "decides swaps on mini-batches"),
        ({"energy_at": "later"}, "energy_at is 'later'"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"temperature": (2.0, 1.0)}, "temperature is .*must not decrease"),
        ({"temperature": (1.0, -2.0)}, "must be positive"),
        ({"temperature": float("inf")}, "the prior alone"),
        ({"temperature": float("nan")}, "at least 0"),
        ({"temperature": "auto"}, "a tempered likelihood: give numbers"),
        ({"rule": "bias_corrected"}, "prior_in_energy=True"),
    ],
)
def test_a_ladder_that_cannot_be_built(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refused(rx.deo_star(**choices), burn_in=5)


@pytest.mark.parametrize(
    ("choices", "burn_in", "message"),
    [
        ({"temperature": "auto"}, 0, "adapts in the burn-in .*: give numbers.* burn_in="),
        ({"adapt": False}, 5, "adapts in the burn-in"),
        ({"rule": "deterministic"}, 5, "give numbers"),
        ({"temperature": 1.0, "adapt": True}, 5, "tempers the likelihood on every rung"),
        ({"temperature": 1.0, "rule": "deterministic"}, 5, "tempers the likelihood on every rung"),
        ({"temperature": (0.0, 1.0)}, 5, "both above 0"),
        ({"schedule": "none"}, 5, "has no ladder"),
    ],
)
def test_a_tempered_likelihood_that_cannot_be_sampled(
    choices: dict[str, Any], burn_in: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        refused(rx.sghmc_pt(**choices), burn_in=burn_in)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"rule": "metropolis"}, "rule is 'metropolis'; .*no ladder"),
        ({"adapt": False}, "adapt is False; .*no ladder"),
        ({"swap_every": 2}, "swap_every is 2; .*no ladder"),
        ({"learning_rate": (0.1, 0.2)}, "learning_rate is .* has no ladder: give one number"),
        ({"temperature": (1.0, 2.0)}, "temperature is .* has no ladder: give one number"),
        ({"temperature": "auto"}, "a tempered likelihood: give numbers"),
    ],
)
def test_what_only_a_ladder_has(choices: dict[str, Any], message: str) -> None:
    for method in (rx.ensemble, rx.sgld, rx.cyc_sghmc, rx.pretrain):
        with pytest.raises(ValueError, match=message):
            refused(method(**choices))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs is 0"),
        ({"num_replicas": 0}, "num_replicas is 0"),
        ({"num_replicas": 1}, 'needs at least 2: write more, or method="ensemble"'),
        ({"burn_in": -1}, "burn_in is -1"),
        ({"burn_in": 9}, "burn_in is 9 of 9 epochs .*none would be aver"),
        ({"keep_averaged": -1}, "keep_averaged is -1"),
        ({"keep_networks": 1}, "keep_networks is 1"),
        ({"evaluate": 3}, "evaluate is 3"),
        ({"on_nonfinite": "ignore"}, "one of restart, stop"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"checkpoint_every": "soon"}, "checkpoint_every is 'soon'"),
    ],
)
def test_a_run_that_comes_to_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refused("deo-star", **options)


@pytest.mark.parametrize(
    ("method", "epochs", "burn_in", "message"),
    [
        (rx.ensemble(), 25, 21, "every 10 epochs, so none"),
        (
            rx.Method("rare", averages="all", test_every=7),
            15,
            0,
            "tests networks every 7 epochs and averages them every 10 epochs, so none",
        ),
        (rx.cyc_sghmc(cycle_epochs=10), 6, 10, "cycles' ends"),
        (rx.cyc_swag(cycle_epochs=10), 6, 10, "cycles' ends"),
    ],
)
def test_a_burn_in_after_the_last_average(
    method: Method, epochs: int, burn_in: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        refused(method, num_replicas=2, epochs=epochs, burn_in=burn_in)


def test_a_method_that_is_none() -> None:
    for method, message in (
        ("sgd", "method is 'sgd'; it must be one of .*deep-ensemble"),
        (rx.Method, "method is the class Method"),
        ("posterior", 'samples models of few parameters exactly, .* write method="sghmc-pt"'),
        ("sweeps", 'samples models of few parameters exactly, .* write method="sghmc-pt"'),
        (rx.posterior, 'samples models of few parameters exactly, .* write method="sghmc-pt"'),
    ):
        with pytest.raises(ValueError, match=message):
            refused(method)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"averages": "some"}, "averages is 'some'"),
        ({"averages": "gaussian"}, 'rate_schedule="cyclical"'),
        (
            {"averages": "gaussian", "rate_schedule": "cyclical", "test_every": 2},
            "leave out test_every",
        ),
        ({"is_single": True, "schedule": "deo"}, "one network"),
        ({"is_single": 1}, "is_single is 1"),
        ({"tempers_likelihood": "yes"}, "tempers_likelihood is 'yes'"),
        ({"name": ""}, "give the method a name"),
        ({"name": rx.deo_star}, "give the method a name"),
        ({"test_every": 0}, "test_every is 0"),
        ({"learning_rate": (0.1, 0.2)}, 'write schedule="deo_star"'),
        ({"temperature": [1.0, 2.0]}, "temperature is .* has no ladder"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
    ],
)
def test_a_method_of_ones_own(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        refused(Method(**({"name": "own"} | fields)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"learning_rate": 0.1},
            r"belongs to the method: write method=rx.deo_star\(learning_",
        ),
        ({"method": "ensemble", "clip_norm": 1.0}, r"write method=rx.ensemble\(clip_norm=...\)"),
        (
            {"method": rx.Method("own"), "momentum": 0.5, "clip_norm": 1.0},
            r'momentum and clip_norm belong to the method: write method=rx.Method\("own", momentum',
        ),
        ({"method": ["ensemble"], "momentum": 0.5}, "write method=rx.deo_star"),
    ],
)
def test_what_belongs_to_a_method_is_told_with_the_method(given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rx.train(PROBLEM, (0, {}), epochs=1, **given)
    with pytest.raises(TypeError, match="no argument epoch.*Did you mean 'epochs'"):
        rx.train(PROBLEM, (0, {}), epochs=1, epoch=3)
