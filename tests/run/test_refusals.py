"""Combinations that cannot work: each refusal has calls that it alone refuses, with its remedy."""

import re
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from row_sources import Plain
from row_sources import posterior as of_source
from row_sources import problem as trained_on
from tiny_networks import tiny_problem

import replicax as rx
from replicax.run import refusals as module
from replicax.run.options import Run, Sampling, Training
from replicax.run.refusals import REFUSALS
from replicax.run.resolve import resolve
from replicax.run.task import as_task

ROWS = np.linspace(-1.0, 1.0, 40, dtype=np.float32)


def bowl(x: Any) -> Any:
    return jnp.sum(x**2)


def with_rows(x: Any, rows: Any) -> Any:
    return jnp.sum((x - jnp.mean(rows)) ** 2)


def log_likelihood(x: Any, rows: Any) -> Any:
    return -((x - rows) ** 2)


BOWL, NETWORKS = as_task(bowl), tiny_problem()
ON_ROWS, TOLD = as_task(with_rows, ROWS, 8), as_task(with_rows, lambda step: ROWS)
POSTERIOR = rx.bayesian(log_likelihood, lambda x: -(x**2), ROWS)
IN_BATCHES = rx.bayesian(log_likelihood, lambda x: -(x**2), ROWS, batch_size=8)
DRAWN, DRAWN_IN_BATCHES = (
    replace(task, target=task.target._replace(redraw=lambda key, x: (x, 0.0)))
    for task in (POSTERIOR, IN_BATCHES)
)
OWN_GRADIENT = as_task(rx.Target(bowl, gradient=lambda x: 2 * x))
UNSEEN = as_task(rx.Target(bowl, prior=bowl))

SHORT, EPOCHS = Sampling(num_steps=100, num_replicas=3), Training(epochs=4, num_replicas=3)
TEMPERED = {"temperature": (1.0, 2.0), "rule": "metropolis"}
CORRECTED = TEMPERED | {"rule": "bias_corrected"}
INFINITE = {"temperature": (1.0, np.inf)}
SGLD, DECAYED = rx.kernels.sgld(), rx.kernels.sgld(weight_decay=0.1)
CYCLES = rx.kernels.cyclical(SGLD, 1000)


def steps(**options: Any) -> Sampling:
    return Sampling(**{"num_steps": 100, "num_replicas": 3} | options)


def epochs(**options: Any) -> Training:
    return Training(**{"epochs": 4, "num_replicas": 3} | options)


Case = tuple[Any, Run, rx.Method, str]
CASES: dict[str, list[Case]] = {
    "_of_targets_alone": [
        (NETWORKS, EPOCHS, rx.posterior(), "exactly, by rx.sample.*sghmc-pt"),
        (NETWORKS, EPOCHS, rx.deo_star(adapt=3), "adapt is 3.*write True or False"),
        (NETWORKS, EPOCHS, rx.deo_star(kernel="hmc"), "tune their own steps"),
        (NETWORKS, EPOCHS, rx.deo_star(kernel=rx.kernels.mala()), "tune their own steps"),
    ],
    "_of_networks_alone": [
        (BOWL, SHORT, rx.cyc_sghmc(0.1), "cyc-sghmc.*write rx.train"),
        (BOWL, SHORT, rx.cyc_swag(0.1), "cyc-swag.*write rx.train"),
        (BOWL, SHORT, rx.ensemble(0.1, rate_schedule="cosine"), "'cosine'.*which count epochs"),
        (BOWL, SHORT, rx.deo_star(0.1, warmup_epochs=1), "count epochs, for rx.train"),
        (BOWL, SHORT, rx.sghmc_pt(0.1), "tempers the likelihood.*write rx.train"),
    ],
    "_law_of_noisy_energies": [
        (ON_ROWS, SHORT, rx.posterior(), "energy is noisy.*rx.bayesian.*method=rx.deo_star"),
        (TOLD, SHORT, rx.posterior(), "energy is noisy"),
        (IN_BATCHES, SHORT, rx.posterior(jumps=9), "a ladder.*leave out batch_size.*write method"),
        (of_source(Plain()), SHORT, rx.posterior("sgld"), "leave out the options for sweeps"),
    ],
    "_not_given": [
        (BOWL, Sampling(num_steps=100), rx.deo_star((0.1, 0.2)), "write num_replicas=16"),
        (BOWL, SHORT, rx.deo_star(), r"method=rx.deo_star\(learning_rate=\(cold, hot\)\)"),
        (BOWL, SHORT, rx.sgld(), r"method=rx.sgld\(learning_rate="),
        (BOWL, SHORT, rx.Method("own"), r'method=rx.Method\("own", learning_rate='),
    ],
    "_no_ladder": [
        (NETWORKS, epochs(num_replicas=1), rx.deo_star(), 'at least 2: .* method="ensemble"'),
        (NETWORKS, EPOCHS, rx.ensemble(rule="metropolis"), "rule is 'metropolis'.*no ladder"),
        (NETWORKS, EPOCHS, rx.ensemble(adapt=True), "adapt is True.*no ladder"),
        (NETWORKS, EPOCHS, rx.sgld(swap_every=2), "swap_every is 2.*no ladder"),
        (NETWORKS, EPOCHS, rx.ensemble((0.01, 0.1)), "learning_rate is .*give one number"),
        (NETWORKS, EPOCHS, rx.sgld(temperature=(0.5, 1.0)), "temperature is .*give one number"),
    ],
    "_temperature_of_networks": [
        (NETWORKS, EPOCHS, rx.deo_star(temperature="auto"), "adapts in the burn-in to the swaps"),
        (NETWORKS, EPOCHS, rx.sghmc_pt(temperature="auto"), "burn_in=..., for example a third"),
        (NETWORKS, EPOCHS, rx.sghmc_pt(temperature=(0.0, 1.0)), "both above 0"),
        (NETWORKS, EPOCHS, rx.sghmc_pt(temperature=1.0, swap_every=2), "both above 0"),
    ],
    "_ignored": [
        (NETWORKS, EPOCHS, rx.deo_star(kernel=SGLD, momentum=0.5), "own momentum: leave"),
        (BOWL, SHORT, rx.deo_star(0.1, kernel=optax.sgd(1.0), momentum=0.5), "own momentum"),
        (NETWORKS, EPOCHS, rx.deo_star(warmup_epochs=1), 'only "cosine" has a warm-up'),
        (as_task(bowl, ROWS, 8), SHORT, rx.deo_star(0.1), "energy takes .params. alone"),
    ],
    "_no_draws": [
        (BOWL, steps(burn_in=100), rx.deo_star(0.1), "burn_in is 100 and num_steps 100"),
        (BOWL, steps(thin=101), rx.deo_star(0.1), "thin is 101 and num_steps 100"),
        (BOWL, SHORT, rx.deo_star(0.1, kernel=CYCLES), "No draw would be taken in num_steps=100"),
    ],
    "_nothing_averaged": [
        (NETWORKS, epochs(burn_in=4), rx.deo_star(), "burn_in is 4 of 4 epochs"),
        (NETWORKS, epochs(epochs=15, burn_in=12), rx.ensemble(), "every 10 epochs, so none"),
        (NETWORKS, epochs(burn_in=11), rx.cyc_swag(0.1, cycle_epochs=7), "at cycles' ends"),
    ],
    "_held_out_rows": [
        (NETWORKS, epochs(early_stop=2), rx.deo_star(), 'early_stop is 2.*method="deep-ensemble"'),
        (trained_on(Plain()), EPOCHS, rx.cyc_swag(0.1), "from rows in memory.*give arrays"),
    ],
    "_no_law": [
        (BOWL, SHORT, rx.deo(0.1, kernel=optax.adam(1.0), **TEMPERED), "keeps a state"),
        (BOWL, SHORT, rx.deo(0.1, kernel="momentum", on_swap="reset", **TEMPERED), "too cold"),
        (BOWL, SHORT, rx.deo(0.1, kernel=DECAYED, **TEMPERED), "would not see"),
        (UNSEEN, SHORT, rx.deo(0.1, **TEMPERED), "prior_in_energy=True"),
    ],
    "_lost_memory": [
        (BOWL, SHORT, rx.deo(0.1, kernel=CYCLES, on_swap="reset"), "forget the clock"),
        (BOWL, SHORT, rx.deo(0.1, kernel="hmc", on_swap="reset"), "adjusted kernel compares"),
    ],
    "_no_fresh_batches": [
        (TOLD, SHORT, rx.deo(0.1, **CORRECTED), "pass arrays with batch_size"),
        (
            of_source(Plain()),
            SHORT,
            rx.Method("ape", 0.1, schedule="ape", **CORRECTED),
            'write schedule="deo" or',
        ),
    ],
    "_inexact_target": [
        (OWN_GRADIENT, SHORT, rx.posterior(), "needs an exact energy that JAX can"),
        (ON_ROWS, SHORT, rx.deo(0.1, kernel="hmc", **TEMPERED), "leave out batch_size, or write"),
        (IN_BATCHES, SHORT, rx.deo(0.1, **CORRECTED | INFINITE), "the prior alone"),
        (BOWL, SHORT, rx.posterior(temperature=(1.0, np.inf)), "the prior alone"),
    ],
    "_energy_of_swaps": [
        (BOWL, SHORT, rx.deo(0.1, energy_at="before", **TEMPERED), 'Write energy_at="moved"'),
        (OWN_GRADIENT, SHORT, rx.deo(0.1, energy_at="before"), "separate gradient"),
        (BOWL, SHORT, rx.deo(0.1, energy_at="all_rows"), "needs an rx.bayesian posterior of"),
        (of_source(Plain()), SHORT, rx.deo(0.1, energy_at="all_rows"), 'energy_at="moved"'),
        (NETWORKS, EPOCHS, rx.deo_star(energy_at="all_rows"), 'write method="sghmc-pt"'),
        (ON_ROWS, SHORT, rx.deo(0.1, **TEMPERED), 'write rule="bias_corrected", or batch_size'),
    ],
    "_nothing_to_learn_from": [
        (BOWL, SHORT, rx.deo("auto"), "or give learning_rate"),
        (NETWORKS, EPOCHS, rx.deo_star("auto"), "or give learning_rate"),
        (BOWL, SHORT, rx.posterior("sgld"), "measures its own error"),
        (BOWL, SHORT, rx.posterior(jumps=64), "burn_in 33, too few steps to learn"),
        (BOWL, SHORT, rx.deo(0.1, jumps=64), r"rx.posterior\(jumps=...\), with all rows"),
        (POSTERIOR, SHORT, rx.posterior(redraws=2), r"write rx.bayesian\(..., draw_prior=...\)"),
        (DRAWN_IN_BATCHES, SHORT, rx.deo(0.1, redraws=2), "accepted or rejected by exact"),
        (DRAWN, SHORT, rx.posterior("sgld", learning_rate=0.1, redraws=2), "kernel hmc or mala"),
    ],
}


def test_every_refusal_has_a_case() -> None:
    names = [refusal.__name__ for refusal in REFUSALS]
    assert sorted(names) == sorted(CASES) and all(CASES.values())


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name, cases in CASES.items() for place in range(len(cases))],
)
def test_a_combination_that_cannot_work_is_refused_with_a_remedy(name, place, monkeypatch) -> None:
    task, run, method, said = CASES[name][place]
    with pytest.raises(ValueError, match=said) as first:
        resolve(task, run, method)
    sentence = str(first.value)
    assert sentence[-1] == "." and len(sentence) < 400 and not re.search(r"\s\s|None\b", sentence)
    alone = [refusal for refusal in REFUSALS if refusal.__name__ == name]
    monkeypatch.setattr(module, "REFUSALS", tuple(alone))
    with pytest.raises(ValueError, match=said):
        resolve(task, run, method)


@pytest.mark.parametrize(
    ("task", "run", "method"),
    [
        (NETWORKS, epochs(epochs=20, burn_in=12), rx.ensemble()),  # averages epoch 20
        (NETWORKS, epochs(epochs=10, burn_in=9), rx.ensemble()),
        (tiny_problem(prior_in_energy=True), epochs(burn_in=1), rx.sghmc_pt()),
        (NETWORKS, epochs(burn_in=3), rx.deo_star()),
        (BOWL, SHORT, rx.posterior()),
        (BOWL, SHORT, rx.deo_star(0.1)),
        (ON_ROWS, SHORT, rx.deo_star((0.01, 0.1), energy_at="before")),
        (POSTERIOR, SHORT, rx.posterior(temperature=(1.0, np.inf))),
        (IN_BATCHES, SHORT, rx.deo(0.1, energy_at="all_rows", **TEMPERED)),
        (NETWORKS, EPOCHS, rx.deo_star()),
        (NETWORKS, EPOCHS, rx.ensemble(rate_schedule="cosine", warmup_epochs=1)),
    ],
)
def test_calls_near_the_refused_ones_are_not(task: Any, run: Run, method: rx.Method) -> None:
    assert resolve(task, run, method).task is task


def test_a_warm_up_as_long_as_the_run_is_refused() -> None:
    method = rx.ensemble(rate_schedule="cosine", warmup_epochs=4)
    with pytest.raises(ValueError, match="warmup_epochs is 4, and a network takes 4 epochs: write"):
        resolve(NETWORKS, EPOCHS, method)
