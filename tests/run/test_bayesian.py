"""Posteriors whose likelihood, prior and rows are known apart."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from common import assert_same_run, chunks_of

import replicax as rx
from replicax.algorithm.target import as_target
from replicax.run.bayesian import Bayesian

ROWS = 60
DATA = (1.0 + np.random.default_rng(0).normal(size=ROWS)).astype(np.float32)
PRIOR_VAR = 4.0
NORMAL = -0.5 * np.log(2 * np.pi)


def log_likelihood(mean, rows):
    return NORMAL - (rows - mean) ** 2 / 2


def log_prior(mean):
    return NORMAL - np.log(PRIOR_VAR) / 2 - mean**2 / (2 * PRIOR_VAR)


def start(key):
    return 2 * jax.random.normal(key)


def posterior_of(**options) -> Bayesian:
    return rx.bayesian(log_likelihood, log_prior, DATA, **options)


def moments(temperature: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of prior x likelihood^(1 / temperature)."""
    variance = 1 / (1 / PRIOR_VAR + ROWS / temperature)
    return variance * DATA.sum() / temperature, variance


@pytest.fixture(scope="module")
def exact() -> rx.Posterior:
    options = {"num_steps": 9_000, "num_replicas": 5, "num_chains": 2, "draw_rungs": "all"}
    return rx.sample(posterior_of(), start, progress=False, **options)


def test_every_rung_has_the_prior_and_a_part_of_the_likelihood(exact) -> None:
    assert np.isinf(exact.temperatures[:, -1]).all(), "the hottest rung is the prior"
    for rung in range(5):
        mean, variance = moments(exact.temperatures[:, rung])
        draws = exact.draws_at(rung)
        np.testing.assert_allclose(draws.mean(axis=1), mean, atol=0.15 * variance.max() ** 0.5)
        np.testing.assert_allclose(draws.var(axis=1), variance, rtol=0.15)


def test_the_only_call_needs_no_choice_and_ends_without_a_warning(exact) -> None:
    assert exact.problems() == []
    options = exact.options
    assert (options["kernel"], options["rule"], options["window"]) == ("hmc", "metropolis", 1)
    assert options["burn_in"] == 3_000 and exact.num_draws == 6_000
    assert np.abs(exact.acceptance - 0.8).max() < 0.15


def test_pairs_reject_equally_often(exact) -> None:
    assert np.ptp(exact.verdict_rate, axis=1).max() < 0.1
    rejected = 4 * (1 - exact.verdict_rate.min(axis=1).max())
    assert abs(exact.replicas_advised - (2 * rejected + 1)) < 2
    assert f" {exact.replicas_advised} " in str(exact.summary())


def test_the_evidence_is_that_of_the_conjugate_model(exact) -> None:
    covariance = np.eye(ROWS) + PRIOR_VAR
    _, log_det = np.linalg.slogdet(covariance)
    expected = ROWS * NORMAL - (log_det + DATA @ np.linalg.solve(covariance, DATA)) / 2
    value, error = exact.log_evidence()
    assert 0 < error < 0.1
    assert abs(value - expected) < 4 * error + 0.01


def test_the_evidence_is_in_the_summary_and_in_the_report(exact, noisy, tmp_path) -> None:
    value, error = exact.log_evidence()
    summary = exact.summary()
    assert (summary["log_evidence"]["value"], summary["log_evidence"]["standard_error"]) == (
        value,
        error,
    )
    words = f" ± {error:.2g} by the bridge (by the ladder {value:.2f} ± "
    assert words in str(summary)
    page = exact.report(tmp_path / "report.html").read_text()
    assert "log evidence" in page and words in page
    summary["log_evidence"]["standard_error"] = np.inf
    assert "share too few energies" in str(summary)
    assert noisy.summary()["log_evidence"] is None
    assert "log evidence" not in str(noisy.summary())


@pytest.fixture(scope="module")
def noisy() -> rx.Posterior:
    """The paper's moves on mini-batches, whose swaps all rows judge."""
    law = {"temperature": (1.0, 4.0), "rule": "metropolis", "energy_at": "all_rows"}
    options = {"num_steps": 20_000, "num_replicas": 3, "num_chains": 4, "burn_in": 5_000}
    method = rx.deo(1e-3, swap_every=10, **law)
    return rx.sample(
        posterior_of(batch_size=12), start, progress=False, thin=10, method=method, **options
    )


def test_mini_batches_leave_mean_and_variance_right(noisy) -> None:
    mean, variance = moments(np.ones(1))
    assert abs(noisy.draws.mean() - mean[0]) < 0.1 * variance[0] ** 0.5
    heated = 1 + 1e-3 * ROWS**2 / 12 * DATA.var() / 2 / (1 / variance[0])  # by its gradients' noise
    assert 0.9 < (noisy.draws.var() / variance[0] / heated) ** 0.5 < 1.1
    assert noisy.options["decided"].startswith("mini-batches of 12 rows")


def test_energies_of_draws_are_those_of_all_rows(noisy) -> None:
    energy = -log_likelihood(noisy.draws[..., None], DATA).sum(axis=-1)
    np.testing.assert_allclose(noisy.energies, energy, rtol=1e-4)


def test_pointwise_likelihoods_are_those_of_the_rows(noisy) -> None:
    draws = noisy.draws[:2, :5]
    found = posterior_of(batch_size=12).pointwise(draws)
    np.testing.assert_allclose(found, log_likelihood(draws[..., None], DATA), rtol=1e-5)


def test_the_evidence_is_refused_where_it_is_not_known(noisy, exact) -> None:
    with pytest.raises(ValueError, match="exact energies"):
        noisy.log_evidence()


@pytest.mark.slow
@pytest.mark.parametrize("energy_at", ["all_rows", "moved"])
def test_a_run_on_mini_batches_resumes_bit_for_bit(tmp_path, energy_at) -> None:
    rule = "metropolis" if energy_at == "all_rows" else "bias_corrected"
    law = {"temperature": (1.0, 4.0), "rule": rule, "energy_at": energy_at}
    method = rx.deo(1e-3, swap_every=3, **law)
    options = {"num_replicas": 3, "num_chains": 2, "method": method, "num_steps": 120}
    target, call = posterior_of(batch_size=12), {"burn_in": 40, "progress": False}
    whole = rx.sample(target, start, run_dir=tmp_path / "a", **options, **call)
    folder = tmp_path / "b"
    stop = lambda progress: "stop" if progress.step >= 60 else None  # noqa: E731
    with chunks_of(30):
        rx.sample(target, start, run_dir=folder, callback=stop, **options, **call)
    assert_same_run(whole, rx.resume(folder, target, progress=False))


def test_pieces_of_the_data_add_up(monkeypatch) -> None:
    from replicax.run import bayesian

    monkeypatch.setattr(bayesian, "_PIECE_ROWS", 25)
    whole = posterior_of().target.whole_energy(jnp.float32(0.3), jnp.asarray(DATA))
    assert float(whole) == pytest.approx(-float(log_likelihood(0.3, DATA).sum()), rel=1e-5)


BAD = {
    "a sum": ({"log_likelihood": lambda m, rows: log_likelihood(m, rows).sum()}, "do not sum"),
    "a prior by parameter": ({"log_prior": lambda m: jnp.stack([m, m])}, "scalar"),
    "no function": ({"log_prior": 3.0}, "log_prior holds 3.0"),
    "one argument": (
        {"log_likelihood": lambda m: m},
        r"log_likelihood must take 2 arguments: write it as log_likelihood\(params, rows\)",
    ),
    "no rows": ({"data": 3.0}, "rows on their first axis"),
    "a data frame": ({"data": pd.DataFrame({"y": DATA})}, r"a data frame; give dict\(data\)"),
    "rows that are missing": (
        {"data": np.where(DATA > 2, np.nan, DATA)},
        "the data hold NaN or inf",
    ),
    "one that is missing, of many": (
        {"data": np.where(np.arange(len(DATA)) == 7, np.nan, DATA), "batch_size": 2},
        "the data hold NaN or inf",
    ),
    "too many rows a batch": ({"batch_size": 61}, "batch_size is 61"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_posteriors_are_refused_with_a_sentence(name) -> None:
    changed, message = BAD[name]
    parts = {"log_likelihood": log_likelihood, "log_prior": log_prior, "data": DATA} | changed
    with pytest.raises(ValueError, match=message):
        rx.sample(rx.bayesian(**parts), 0.0, num_steps=10, progress=False)


CALLS = {
    "batches twice": ({"batches": DATA}, "its own data"),
    "only of a ladder": ({}, "num_replicas is given"),
    "options of a ladder": ({"method": rx.posterior("hmc")}, "all rows in every step"),
    "a kernel that cannot tune": ({"method": rx.deo("auto")}, "measures its own error"),
    "adjusted on mini-batches": ({"method": rx.deo(0.1, kernel="hmc")}, "exact energies"),
    "the prior on mini-batches": (
        {"method": rx.deo(0.1, temperature=(1, np.inf), rule="bias_corrected")},
        "prior alone",
    ),
    "steps that would be sweeps": (
        {"num_steps": 6_000, "num_replicas": None},
        "num_steps is 6,000",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_calls_are_refused_with_a_sentence(name) -> None:
    options, message = CALLS[name]
    with pytest.raises(ValueError, match=message):
        rx.sample(
            posterior_of(batch_size=12), 0.0, **{"num_steps": 10, "num_replicas": 2} | options
        )


def test_an_energy_with_noise_is_not_given_a_learning_rate() -> None:
    with pytest.raises(ValueError, match=r"rx\.bayesian"):
        rx.sample(
            lambda m, rows: jnp.mean(rows - m) ** 2, 0.0, num_steps=9, batches=DATA, batch_size=3
        )


def test_an_energy_that_depends_on_its_key_is_not_taken_as_exact() -> None:
    with pytest.raises(ValueError, match="with one key"):
        rx.sample(
            lambda x, batch, key: x**2 / 2 + 3 * jax.random.normal(key),
            0.0,
            num_steps=9,
            progress=False,
        )


@pytest.mark.slow
def test_an_energy_that_only_takes_a_key_is_exact() -> None:
    def energy(x, batch, key):
        return x**2 / 2 + 0 * jax.random.normal(key)

    assert rx.sample(energy, 0.0, num_steps=9, progress=False).num_draws == 6


def test_arguments_with_values_of_their_own_are_neither_batch_nor_key() -> None:
    own = as_target(lambda x, scale=2.0: scale * x).energy
    assert own(3.0, "batch", "key") == 6.0
    both = as_target(lambda x, batch, scale=2.0: (scale * x, batch)).energy
    assert both(3.0, "batch", "key") == (6.0, "batch")
    open_ones = as_target(lambda x, batch=None, key=None: (x, batch, key)).energy
    assert open_ones(3.0, "batch", "key") == (3.0, "batch", "key")
    assert as_target(lambda x, scale=2.0, key=None: (scale, key)).energy(3.0, 1, 2) == (2.0, None)


def test_batches_of_the_host_are_not_taken_as_all_the_data() -> None:
    given = {"learning_rate": 0.1, "temperature": (1.0, 4.0), "rule": "metropolis"}
    with pytest.raises(ValueError, match="exact energies"):
        rx.sample(
            lambda x, rows: jnp.mean((rows - x) ** 2),
            0.0,
            num_steps=9,
            num_replicas=2,
            method=rx.deo(kernel="hmc", **given),
            batches=lambda step: DATA,
        )


def test_other_kernels_temper_the_likelihood_alone() -> None:
    """SGLD with a rate of the user's own: the prior's gradient grows with the temperature."""
    given = {"learning_rate": 1e-3, "temperature": (1.0, 400.0), "adapt": False}
    run = rx.sample(
        posterior_of(),
        start,
        num_steps=6_000,
        num_replicas=2,
        num_chains=8,
        method=rx.posterior("sgld", schedule="none", **given),
        draw_rungs="all",
        progress=False,
    )
    _, variance = moments(np.array([400.0]))
    assert run.draws_at(1).var() == pytest.approx(variance[0], rel=0.25)
