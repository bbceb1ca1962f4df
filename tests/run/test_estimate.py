"""Sweeps with energies that are estimated from some of the rows: `rx.sweeps(exact=False)`."""

import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import rng_of
from scipy.special import expit

import replicax as rx
from replicax.run import sweep, sweep_state, sweeps
from replicax.run.estimate import more_rows, weighted_noise
from replicax.run.storage.folder import open_records

pytestmark = pytest.mark.filterwarnings("ignore:The commit of step")
ROWS, SOME, SD, TILT = 40_000, 4_096, 0.7, 0.9
MEANS = 0.55, -0.55
MASS = expit(TILT * (MEANS[0] - MEANS[1]))  # of the labelling in which the first mean is larger


def log_likelihood(means, rows):
    both = -0.5 * ((rows[:, None] - means) / SD) ** 2
    return jax.nn.logsumexp(both, axis=1)


def log_prior(means):
    return -0.5 * jnp.sum(means**2) + 0.5 * TILT * (means[0] - means[1])


def start(key):
    return 2 * jax.random.normal(key, (2,))


def target() -> rx.run.bayesian.Bayesian:
    rng = rng_of(3)
    means = np.where(rng.random(ROWS) < 0.5, *MEANS)
    rows = np.sort(means + SD * rng.normal(size=ROWS)).astype(np.float32)
    return rx.bayesian(log_likelihood, log_prior, rows)


@pytest.fixture(scope="module", autouse=True)
def few_rows():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweep, "FIRST_ROWS", SOME)
        yield


def sampled(task, method, folder=None) -> rx.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return rx.sample(
            task, start, method=method, num_steps=5, run_dir=folder, keep_checkpoints=99
        )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> rx.Posterior:
    folder = tmp_path_factory.mktemp("estimates") / "run"
    return sampled(target(), rx.sweeps(exact=False), folder)


def test_draws_have_the_masses_of_the_modes(run) -> None:
    assert abs((run.draws[..., 0] > run.draws[..., 1]).mean() - MASS) < 0.05


@pytest.mark.slow
def test_draws_are_as_good_as_those_of_all_rows(run) -> None:
    exact = sampled(target(), rx.sweeps())
    larger, of_all = (x.draws[x.draws[..., 0] > x.draws[..., 1]] for x in (run, exact))
    sd = of_all.std(axis=0)
    np.testing.assert_allclose(larger.mean(axis=0), of_all.mean(axis=0), atol=0.12 * sd.max())
    np.testing.assert_allclose(larger.std(axis=0), sd, rtol=0.1)
    assert abs(run.log_evidence()[0] - exact.log_evidence()[0]) < 0.15


def test_the_run_says_from_how_many_rows_and_how_well(run) -> None:
    spent = run.sweeps
    assert spent["estimated_from"] == SOME and run.problems() == []
    assert 0 < max(spent["noise"]) < 0.05 and 0 < spent["error"] < 0.05
    # What the parts of the rows say is what all rows say.
    assert 0.2 < spent["error"] / spent["noise"][-1] < 5
    per_sweep = spent["evaluations"]["kept"] / spent["kept"] / (4 * 128 + sweep.WITNESSES)
    assert per_sweep == pytest.approx(SOME)
    assert f"from {SOME:,} rows" in str(run.summary())


def test_a_run_that_was_killed_goes_on_bit_for_bit(run, tmp_path) -> None:
    shutil.copytree(run.run_dir, tmp_path / "run")
    for path in (tmp_path / "run" / "commits").glob("*"):
        if int(path.stem) > run.num_steps - 2:
            path.unlink()
    open_records(tmp_path / "run", with_checkpoint=True)
    again = rx.resume(tmp_path / "run", target())
    np.testing.assert_array_equal(again.draws, run.draws)
    assert again.sweeps["noise"] == run.sweeps["noise"]


def test_estimates_are_within_their_errors_of_all_rows_where_a_second_order_is_not(run) -> None:
    state, metadata = sweep_state.restored(run._records.final), run.metadata
    like = jax.ShapeDtypeStruct((2,), jnp.float32)
    finder = sweeps._finder(target(), metadata.run, like)
    sampler = sweep.Sampler(target(), finder, like, metadata.run, metadata.method)
    points = (state.centre + 0.08 * rng_of(9).normal(size=(64, 2))).astype(np.float32)
    found, _, error = sampler.energies(state, points, lambda count: None)
    all_rows = state._replace(estimated_from=np.array(0))
    known, _, none = sampler.energies(all_rows, points, lambda count: None)
    assert not none.any()
    z = (found[:, 1] - known[:, 1]) / error
    assert np.sqrt(np.mean(z**2)) < 3
    step = points - state.centres.at[0]
    series = state.centres.gradient[0] @ step.T
    series += np.einsum("mi,ij,mj->m", step, state.centres.hessian[0], step) / 2
    left = np.std(known[:, 1] - series)
    assert left > 5 * np.std(found[:, 1] - known[:, 1])


def of_groups(p, rows):
    group, y = rows[:, 0].astype(int), rows[:, 1]
    return y * p[group] - jax.nn.softplus(p[group])


@pytest.mark.slow
def test_rare_rows_that_are_not_among_some_are_seen_by_the_check() -> None:
    rng = rng_of(5)
    group = rng.random(ROWS) < 0.5
    rows = np.stack([group, rng.random(ROWS) < 0.6], axis=1).astype(np.float32)
    rows[1:9] = [[2.0, 1.0]] * 8  # between the rows that are seen: a third group, very skewed
    task = rx.bayesian(of_groups, lambda p: -0.5 * jnp.sum(p**2) / 4, rows)
    run = rx.sample(
        task,
        lambda key: jax.random.normal(key, (3,)),
        method=rx.sweeps(exact=False),
        num_steps=4,
        progress=False,
    )
    spent = run.sweeps
    assert spent["noise"][0] < 0.05, "parts without these rows say that all is well"
    assert spent["estimated_from"] in (0, 4 * SOME) and spent["learning"] > 1
    z = np.linspace(-3, 12, 4001)
    density = np.exp(8 * z - 8 * np.logaddexp(0, z) - z**2 / 8)
    mean = np.sum(z * density) / density.sum()
    assert abs(run.draws[..., 2].mean() - mean) < 0.2


def test_energies_that_stay_rough_are_told(run) -> None:
    final = dict(run._records.final)
    run._records.final = final | {"sweeps.error": np.array(0.4)}
    try:
        assert "Energies are estimated from 4,096 of 40,000 rows, to ± 0.4" in " ".join(
            run.problems()
        )
    finally:
        run._records.final = final


def test_labels_are_refused() -> None:
    task = rx.bayesian(log_likelihood, log_prior, np.zeros(100, np.float32), exchangeable=0)
    with pytest.raises(ValueError, match="exact=False does not know of exchangeable"):
        rx.sample(task, start, method=rx.sweeps(exact=False))


def test_more_rows_are_taken_until_they_are_half_of_all() -> None:
    assert more_rows(1_000, 100_000) == 4_000
    assert more_rows(16_000, 100_000) == 0


def test_the_noise_is_that_at_the_draws() -> None:
    assert weighted_noise(np.log([1.0, 3.0, 1e-30]), np.array([1.0, 2.0, 1e9])) == pytest.approx(
        np.sqrt((1 + 3 * 4) / 4), rel=1e-6
    )
    assert weighted_noise(np.array([-np.inf]), np.array([0.0])) == np.inf
