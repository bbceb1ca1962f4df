"""Labels that are declared exchangeable, from the call to the evidence."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of, slow
from jax.scipy.stats import norm

import replicax as rx
from replicax.run.search import search

AT, SD, WIDE = np.array([[-4.0, 1.0], [3.0, -2.0]]), np.array([0.05, 0.1]), 10.0
LOG_EVIDENCE = float(np.sum(norm.logpdf(AT, 0, np.hypot(WIDE, SD)[:, None])))


def log_likelihood(params, rows):
    """Two planets: one is where the data say, the other too, and nothing says which is which."""
    xy = jnp.stack([params["x"], params["y"]], axis=1)
    orders = [jnp.sum(norm.logpdf(xy[jnp.array(o)], AT, SD[:, None])) for o in ((0, 1), (1, 0))]
    return (jax.nn.logsumexp(jnp.array(orders)) - jnp.log(2.0))[None] + 0 * rows


def log_prior(params):
    return jnp.sum(norm.logpdf(params["x"], 0, WIDE)) + jnp.sum(norm.logpdf(params["y"], 0, WIDE))


def planets(exchangeable=0, **more):
    return rx.bayesian(log_likelihood, log_prior, jnp.zeros(1), exchangeable=exchangeable, **more)


def start(key):
    return {"x": 4 * jax.random.normal(key, (2,)), "y": jnp.zeros(2)}


def one_labelling(key):
    return {"x": jnp.array([-4.0, 3.0]) + 0.1 * jax.random.normal(key, (2,)), "y": jnp.zeros(2)}


def sample(target, begin=one_labelling, **options):
    options = {"num_steps": 420, "burn_in": 240, "num_chains": 2, "seed": 1} | options
    options = {"method": rx.posterior(jumps=64)} | options
    return rx.sample(target, begin, num_replicas=4, progress=False, **options)


@pytest.fixture(scope="module")
def whole():
    return sample(planets())


def test_the_evidence_counts_all_orders_of_the_labels(whole) -> None:
    """From starts in one of two orders, which jumps alone would know, it is low by log 2."""
    value, error = whole.log_evidence(by="bridge")
    assert error < 0.05 and abs(value - LOG_EVIDENCE) < 5 * error


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_without_the_declaration_it_is_low_by_log_2() -> None:
    value, _ = sample(planets(None)).log_evidence(by="bridge")
    assert value - LOG_EVIDENCE == pytest.approx(-np.log(2), abs=0.1)


def test_draws_have_their_labels_in_random_order(whole) -> None:
    x, y = whole.draws["x"], whole.draws["y"]
    first = x[..., 0] < x[..., 1]
    assert abs(first.mean() - 0.5) < 0.06
    # Labels keep what is theirs, and positions of one path change their orders apart.
    assert np.array_equal(first, y[..., 0] > y[..., 1])
    assert abs(np.mean(first[:, 1:] != first[:, :-1]) - 0.5) < 0.06
    low = np.where(first, x[..., 0], x[..., 1])
    assert abs(low.mean() + 4) < 0.01 and abs(low.std() - 0.05) < 0.005
    assert whole.jumps["accepted"].min() > 0.5


@pytest.mark.parametrize("stop", [101, slow(300)])
def test_a_run_that_resumes_is_equal_bit_for_bit(stop, whole, tmp_path) -> None:
    with chunks_of(37):
        sample(
            planets(),
            run_dir=tmp_path / "run",
            callback=lambda progress: "stop" if progress.step >= stop else None,
        )
    resumed = rx.resume(tmp_path / "run", planets(), progress=False)
    np.testing.assert_array_equal(resumed.draws["x"], whole.draws["x"])
    np.testing.assert_array_equal(resumed.jump_weights, whole.jump_weights)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_without_jumps_draws_are_permuted_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    y = jnp.asarray(rng.choice([-3.0, 3.0], 60) + rng.standard_normal(60), jnp.float32)

    def run(exchangeable):
        parts = lambda x, rows: norm.logpdf(rows[:, None], x) - jnp.log(2.0)  # noqa: E731
        posterior = rx.bayesian(
            lambda x, rows: jax.nn.logsumexp(parts(x, rows), axis=1),
            lambda x: jnp.sum(norm.logpdf(x, 0, 5)),
            y,
            exchangeable=exchangeable,
        )
        begin = jnp.array([-3.0, 3.0])
        method = rx.posterior(jumps=0)
        return sample(posterior, begin, method=method, num_steps=60, burn_in=20)

    plain, permuted = run(None), run(0)
    assert np.any(plain.draws != permuted.draws)
    assert 0.3 < np.mean(permuted.draws[..., 0] < permuted.draws[..., 1]) < 0.7
    np.testing.assert_allclose(np.sort(plain.draws), np.sort(permuted.draws), rtol=1e-3)
    np.testing.assert_allclose(plain.energies, permuted.energies, rtol=1e-3)


@pytest.mark.parametrize("begin", [one_labelling, {"x": jnp.zeros(2), "y": jnp.zeros(2)}])
def test_labels_that_differ_are_refused_with_the_energies(begin) -> None:
    """Also where all labels start at one point."""
    with pytest.raises(ValueError, match="log likelihood is .* when the labels .* are permuted"):
        sample(planets({"x": 0}), begin)

    def first_is_elsewhere(params):
        return log_prior(params) - (params["x"][0] - 1) ** 2

    with pytest.raises(ValueError, match="log prior is .* cannot be exchanged"):
        sample(rx.bayesian(log_likelihood, first_is_elsewhere, jnp.zeros(1), exchangeable=0), begin)


@pytest.mark.slow
def test_labels_of_a_bare_energy_are_exchanged() -> None:
    energy = lambda x: -log_likelihood({"x": x[:2], "y": x[2:]}, jnp.zeros(1))[0]  # noqa: E731
    target = rx.Target(energy, exchangeable=np.array([[0, 2], [1, 3]]))
    begin = lambda key: ravelled(one_labelling(key))  # noqa: E731
    x = sample(target, begin).draws
    assert abs(np.mean(x[..., 0] < x[..., 1]) - 0.5) < 0.06
    with pytest.raises(ValueError, match="The energy is"):
        sample(rx.Target(energy, exchangeable=np.array([[0, 1], [2, 3]])), begin)


def ravelled(params):
    return jnp.concatenate([params["x"], params["y"]])


def test_minima_that_are_permutations_of_each_other_are_one() -> None:
    at = jnp.array([[-3.0, 0.0], [0.0, 1.0], [4.0, 0.0]])
    orders = jnp.array(list(itertools.permutations(range(3))))

    def energy(x, data):
        apart = jnp.sum((x.reshape(3, 2)[orders] - at) ** 2, axis=(1, 2))
        return -jax.nn.logsumexp(-2 * apart)

    starts = (3 * np.random.default_rng(0).standard_normal((8, 6))).astype(np.float32)
    places = np.arange(6).reshape(3, 2)
    assert len(search(energy, starts).minima) > 1
    found = search(energy, starts, places=places)
    assert len(found.minima) == 1
    in_order, direction = found.in_order(places)
    keys = in_order.minima[0].reshape(3, 2) @ direction
    assert np.all(np.diff(keys) > 0)
    np.testing.assert_allclose(np.linalg.eigvalsh(in_order.covariances[0]), 0.25, atol=0.02)
