"""Runs as ArviZ data: what the installed ArviZ makes of them."""

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
from common import quietly

az = pytest.importorskip("arviz")

import replicax as rx  # noqa: E402

matplotlib.use("Agg")
ROWS = jax.random.normal(jax.random.key(0), (25,)) + 2.0


@pytest.fixture(scope="module")
def run():
    posterior = rx.bayesian(
        lambda at, rows: -((rows - at["mean"][0] - at["layer"]["shift"]) ** 2) / 2,
        lambda at: -jnp.sum(at["mean"] ** 2) / 2 - at["layer"]["shift"] ** 2 / 2,
        ROWS,
    )
    start = {"mean": jnp.zeros(2), "layer": {"shift": 0.0}}
    return quietly(
        posterior,
        start,
        num_steps=900,
        num_replicas=3,
        num_chains=2,
        thin=2,
        made=rx.posterior,
        kernel="mala",
        learning_rate=0.02,
        temperature=(1.0, 9.0),
        adapt=False,
    )


@pytest.fixture(scope="module")
def data(run):
    return run.to_arviz()


def test_draws_have_the_names_and_axes_of_their_paths(run, data) -> None:
    posterior = data["posterior"]
    assert set(posterior.data_vars) == {"mean", "layer.shift"}
    assert posterior["mean"].dims == ("chain", "draw", "mean_dim_0")
    np.testing.assert_array_equal(posterior["mean"], run.draws["mean"])
    np.testing.assert_array_equal(posterior["layer.shift"], run.draws["layer"]["shift"])


def test_statistics_are_those_of_the_run(run, data) -> None:
    stats = data["sample_stats"]
    np.testing.assert_array_equal(stats["energy"], run.energies)
    assert "lp" not in stats, "the energy of an rx.bayesian posterior has no prior"
    np.testing.assert_array_equal(stats["rung_of"], run.rung_of[:, run.draw_steps])
    assert (stats["rung_of"].values == 0).sum() == run.num_draws * 2
    np.testing.assert_array_equal(stats["verdict_rate"], run.verdict_rate)
    np.testing.assert_array_equal(stats["window_swap_rate"], run.window_swap_rate)
    np.testing.assert_array_equal(stats["temperature"][:, -1], run.temperatures)
    np.testing.assert_array_equal(stats["learning_rate"][:, -1], run.learning_rates)
    np.testing.assert_array_equal(stats["restart_rate"], run.restart_rate)
    assert stats["diverging"].dtype == bool and not stats["diverging"].any()
    assert stats["step"].values.tolist() == run.draw_steps.tolist()
    assert stats.attrs["rule"] == "metropolis"


def test_rows_and_their_likelihoods_are_there(run, data) -> None:
    np.testing.assert_array_equal(data["observed_data"]["rows"], ROWS)
    values = data["log_likelihood"]["rows"]
    assert values.dims == ("chain", "draw", "row")
    np.testing.assert_allclose(-values.sum("row"), run.energies, rtol=1e-4)
    assert not hasattr(run.to_arviz(log_likelihood=False), "log_likelihood")


@pytest.mark.filterwarnings("ignore")
def test_arviz_summarises_plots_and_compares(run, data) -> None:
    table = az.summary(data)
    ours = run.summary()["parameters"]
    assert table.loc["mean[0]", "mean"] == pytest.approx(ours["mean[0]"]["mean"], abs=1e-3)
    assert table.loc["layer.shift", "r_hat"] == pytest.approx(
        ours["layer.shift"]["rhat"], abs=0.006
    )
    loo = az.loo(data)
    assert np.isfinite(loo.elpd if hasattr(loo, "elpd") else loo.elpd_loo)  # ArviZ 1, or before
    assert az.plot_trace(data) is not None
    matplotlib.pyplot.close("all")
