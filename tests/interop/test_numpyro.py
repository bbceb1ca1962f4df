"""NumPyro models as posteriors: NumPyro's own density, rows, starts, draws under their names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit, quietly, slow

numpyro = pytest.importorskip("numpyro")

import numpyro.distributions as dist  # noqa: E402
from numpyro.infer.util import potential_energy  # noqa: E402

import replicax as rx  # noqa: E402

NUM_ROWS = 30
X = jax.random.normal(jax.random.key(0), (NUM_ROWS, 2))
Y = X @ jnp.array([1.0, -1.0]) + jax.random.normal(jax.random.key(1), (NUM_ROWS,))
GROUP = jnp.arange(NUM_ROWS) % 3


def regression(x, y=None, scale=1.0):
    """A simplex, a positive scale, and an interval that depends on it."""
    weight = numpyro.sample("weight", dist.Normal(0, 2).expand([2]).to_event(1))
    sigma = numpyro.sample("sigma", dist.HalfNormal(scale))
    share = numpyro.sample("share", dist.Dirichlet(jnp.ones(3)))
    below = numpyro.sample("below", dist.Uniform(0, sigma))
    numpyro.deterministic("twice", 2 * sigma)
    with numpyro.plate("rows", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weight + below * share[0], sigma), obs=y)


def subsampled(x, y, size=NUM_ROWS // 3):
    weight = numpyro.sample("weight", dist.Normal(0, 2).expand([2]).to_event(1))
    with numpyro.plate("rows", NUM_ROWS, subsample_size=size) as rows:
        numpyro.sample("y", dist.Normal(x[rows] @ weight, 1.0), obs=y[rows])


def whole_rows(x, y):
    subsampled(x, y, size=NUM_ROWS)


def grouped(group, y):
    """A plate of groups, and a factor that belongs to no row."""
    mean = numpyro.sample("mean", dist.StudentT(3.0))
    with numpyro.plate("group", 3):
        level = numpyro.sample("level", dist.Normal(mean, 1.0))
    numpyro.factor("penalty", -jnp.sum(level**2))
    with numpyro.plate("rows", y.shape[0]):
        numpyro.sample("y", dist.Normal(level[group], 1.0), obs=y)


def with_local(y):
    """A latent value for every row, and data of two axes."""
    with numpyro.plate("rows", y.shape[0], dim=-2):
        centre = numpyro.sample("centre", dist.Normal(0.0, 1.0))
        with numpyro.plate("columns", y.shape[1], dim=-1):
            numpyro.sample("y", dist.Normal(centre, 1.0), obs=y)


def closed_over():
    rate = numpyro.sample("rate", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.Exponential(rate), obs=jnp.array([0.5, 1.5]))


TABLE = jnp.stack([Y, 2 * Y], axis=1)
CASES = {
    "arguments": (regression, (X,), {"y": Y}, regression),
    "plate": (subsampled, (X, Y), {}, whole_rows),
    "factor": (grouped, (GROUP, Y), {}, grouped),
    "local": (with_local, (TABLE,), {}, with_local),
    "closed over": (closed_over, (), {}, closed_over),
}


@pytest.mark.parametrize("name", ["arguments", "factor", "local", "closed over", slow("plate")])
def test_the_density_is_that_of_numpyro(name) -> None:
    model, args, kwargs, whole = CASES[name]
    posterior = rx.interop.from_numpyro(model, *args, **kwargs)
    target = posterior.target

    def compare(key):
        at = posterior.start(key)
        ours = target.energy(at, posterior.batches.data) + target.prior(at)
        return ours, potential_energy(whole, args, kwargs, at["unconstrained"])

    ours, theirs = quick_jit(jax.vmap(compare))(jax.random.split(jax.random.key(2), 5))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("name", ["plate", slow("arguments"), slow("factor")])
def test_mini_batches_scale_the_likelihood_and_not_the_prior(name) -> None:
    model, args, kwargs, _ = CASES[name]
    size = NUM_ROWS // 3
    posterior = rx.interop.from_numpyro(model, *args, batch_size=size, **kwargs)
    assert posterior.num_rows == NUM_ROWS and posterior.batches.batch_size == size
    rows, target = posterior.batches.data, posterior.target

    def compare(key):
        at = posterior.start(key)
        parts = jax.tree.map(lambda leaf: leaf.reshape(3, size, *leaf.shape[1:]), rows)
        energies = jax.vmap(lambda part: target.energy(at, part))(parts)
        by_row = jax.vmap(lambda part: target.row_energies(at, part))(parts)
        return energies, target.energy(at, rows), by_row, target.whole_energy(at, rows)

    energies, whole, by_row, in_pieces = quick_jit(compare)(jax.random.key(3))
    assert np.std(energies) > 0.01
    for same in (np.mean(energies), np.mean(by_row), in_pieces):
        np.testing.assert_allclose(same, whole, rtol=1e-5)


def test_a_plate_tells_its_own_batch_size() -> None:
    assert rx.interop.from_numpyro(subsampled, X, Y).batches.batch_size == NUM_ROWS // 3


def test_replicas_start_at_draws_from_the_prior() -> None:
    posterior = rx.interop.from_numpyro(regression, X, y=Y, scale=3.0)
    draw = quick_jit(jax.vmap(lambda key: posterior.constrain(posterior.start(key))))
    values = draw(jax.random.split(jax.random.key(0), 4000))
    assert float(values["sigma"].mean()) == pytest.approx(3 * np.sqrt(2 / np.pi), rel=0.05)
    np.testing.assert_allclose(values["weight"].std(axis=0), 2.0, rtol=0.05)
    np.testing.assert_allclose(values["share"].mean(axis=0), 1 / 3, rtol=0.05)


def conjugate(y=None):
    """y ~ N(mean, 1), mean ~ N(0, 10): the posterior is known."""
    mean = numpyro.sample("mean", dist.Normal(0.0, jnp.sqrt(10.0)))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 0.5))
    numpyro.deterministic("square", mean**2)
    with numpyro.plate("rows", 4):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    numpyro.sample("one", dist.Normal(scale, 100.0), obs=1.0)  # hardly says anything


@pytest.fixture(scope="module")
def conjugate_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numpyro") / "run"
    target = rx.interop.from_numpyro(conjugate, y=jnp.array([0.2, 1.0, 1.4, 3.0]))
    options = dict(learning_rate="auto", num_steps=1500, num_replicas=3, num_chains=4)
    run = quietly(target, None, made=rx.posterior, **options, run_dir=folder)
    return target, run


def test_the_draws_have_the_known_law(conjugate_run) -> None:
    _, run = conjugate_run
    variance = 1 / (4 + 0.1)
    mean = np.asarray(run.draws["mean"])
    assert mean.mean() == pytest.approx(5.6 * variance, abs=0.05)
    assert mean.var() == pytest.approx(variance, rel=0.15)
    logs = np.log(run.draws["scale"])
    assert logs.mean() == pytest.approx(0.0, abs=0.06)
    assert logs.std() == pytest.approx(0.5, rel=0.12)


def test_draws_are_constrained_under_their_names(conjugate_run) -> None:
    target, run = conjugate_run
    assert set(run.draws) == {"mean", "scale", "square"}
    assert run.draws["scale"].min() > 0
    np.testing.assert_allclose(run.draws["square"], run.draws["mean"] ** 2, rtol=1e-5)
    assert set(run.summary()["parameters"]) == {"mean", "scale", "square"}
    assert set(run.best[0]) == {"mean", "scale", "square"}
    alone = rx.load(run.run_dir)
    assert set(alone.draws) == {"unconstrained"}, "honest names without the model"
    again = rx.load(run.run_dir, target)
    np.testing.assert_array_equal(again.draws["scale"], run.draws["scale"])
    np.testing.assert_allclose(
        np.exp(alone.draws["unconstrained"]["scale"]), run.draws["scale"], rtol=1e-5
    )


def test_numpyro_predicts_with_the_draws(conjugate_run) -> None:
    _, run = conjugate_run
    predictive = numpyro.infer.Predictive(conjugate, run.draws, batch_ndims=2)
    found = predictive(jax.random.key(0))
    assert found["y"].shape == (run.num_chains, run.num_draws, 4)
    assert found["y"].var() == pytest.approx(1 + 1 / 4.1, rel=0.1)


def discrete(y):
    coin = numpyro.sample("coin", dist.Bernoulli(0.5))
    numpyro.sample("y", dist.Normal(coin, 1.0), obs=y)


def with_param(y):
    mean = numpyro.param("mean", 0.0)
    numpyro.sample("y", dist.Normal(mean + numpyro.sample("z", dist.Normal()), 1.0), obs=y)


def nothing_latent(y):
    numpyro.sample("y", dist.Normal(), obs=y)


def prior_of_all(y):
    centre = numpyro.sample("centre", dist.Normal(jnp.mean(y), 0.1))
    numpyro.sample("y", dist.Normal(centre, jnp.ones(len(y))), obs=y)


def as_long_as_rows(x, scales, y):
    weight = numpyro.sample("weight", dist.Normal(jnp.zeros(2), scales).to_event(1))
    numpyro.sample("y", dist.Normal(x @ weight, 1.0), obs=y)


def standardising(x, y=None):
    weight = numpyro.sample("weight", dist.Normal())
    x = (x - jnp.mean(x)) / jnp.std(x)
    numpyro.sample("y", dist.Normal(x * weight, 1.0), obs=None if y is None else 2 * y)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (prior_of_all, (3.0 + Y,)),
        (as_long_as_rows, (X[:2], jnp.array([0.1, 9.0]), Y[:2])),
        (standardising, (X[:, 0], Y)),
    ],
)
def test_models_that_mix_rows_keep_their_density(model, args) -> None:
    """Their prior or rows depend on all rows, where one row would do for other models."""
    target = rx.interop.from_numpyro(model, *args)

    def compare(key):
        at = target.start(key)
        ours = target.target.energy(at, target.batches.data) + target.target.prior(at)
        return ours, potential_energy(model, args, {}, at["unconstrained"])

    np.testing.assert_allclose(*quick_jit(compare)(jax.random.key(2)), rtol=1e-4)
    with pytest.raises(ValueError, match="depends on (all|other) rows; leave batch_size out"):
        rx.interop.from_numpyro(model, *args, batch_size=1)


BAD = {
    "discrete": (discrete, (Y,), {}, "latent site 'coin' is discrete"),
    "param": (with_param, (Y,), {}, "param site 'mean'"),
    "no latent": (nothing_latent, (Y,), {}, "no latent site"),
    "no data": (regression, (X,), {}, "observes nothing"),
    "local": (with_local, (TABLE,), {"batch_size": 5}, "'centre' has a value for every row"),
    "closed over": (closed_over, (), {"batch_size": 1}, "no argument of the model"),
    "too many": (regression, (X,), {"y": Y, "batch_size": 31}, "batch_size is 31"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_sampled_is_refused(name) -> None:
    model, args, kwargs, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        rx.interop.from_numpyro(model, *args, **kwargs)
