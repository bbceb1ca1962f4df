"""Priors of rx.priors have their laws, and posteriors show what their users declare."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import replicax as rx
from replicax import priors
from replicax.run.priors import Priors

LAWS = {
    "normal": (priors.normal(2.0, 3.0), stats.norm(2, 3)),
    "log_normal": (priors.log_normal(2.0, 0.5), stats.lognorm(0.5, scale=2)),
    "half_normal": (priors.half_normal(2.0), stats.halfnorm(scale=2)),
    "uniform": (priors.uniform(-1.0, 4.0), stats.uniform(-1, 5)),
    "log_uniform": (priors.log_uniform(0.1, 100.0), stats.loguniform(0.1, 100)),
    "angle": (priors.angle(), stats.uniform(0, 2 * np.pi)),
    "period from -3": (priors.angle(-3.0, 5.0), stats.uniform(-3, 5)),
    "quantile": (priors.quantile(lambda u: -jnp.log1p(-u)), stats.expon()),
}


def drawn(prior, count=20_000):
    made = Priors(prior, None)
    return np.asarray(jax.vmap(lambda key: made.values(made.start(key)))(
        jax.random.split(jax.random.key(1), count)), float)  # fmt: skip


@pytest.mark.parametrize("name", LAWS)
def test_draws_have_the_law(name):
    prior, law = LAWS[name]
    assert stats.kstest(drawn(prior), law.cdf).pvalue > 1e-3
    shifted = drawn(prior) + 0.1 * law.std()  # which a test of this size detects
    assert stats.kstest(shifted, law.cdf).pvalue < 1e-6


@pytest.mark.parametrize("name", LAWS)
def test_values_and_slopes_are_finite_far_out(name):
    prior, law = LAWS[name]
    at = jnp.array([-9.0, -3.0, 0.0, 3.0, 9.0])
    at = at if prior.num_normals is None else jnp.stack([at, at[::-1]], axis=-1)
    value, slope = jax.vmap(jax.value_and_grad(lambda z: prior.value(z).sum()))(at[:2])
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(slope))
    low, high = law.support()
    values = np.asarray(prior.value(at))
    assert np.all((values >= low - 1e-5) & (values <= high + 1e-4))


def test_points_of_the_disk_are_uniform():
    x, y = drawn(priors.disk()).T
    assert stats.kstest(x**2 + y**2, "uniform").pvalue > 1e-3
    assert stats.kstest(np.arctan2(y, x) / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-3
    slope = jax.jacobian(priors.disk().value)(jnp.zeros(2))
    np.testing.assert_allclose(slope, np.eye(2) * 0.5**0.5, rtol=1e-5)


def test_an_angle_goes_on_where_it_wraps():
    """Two close points on both sides of the end of the period have close values, modulo it."""
    value = priors.angle(1.0, 10.0).value(jnp.array([[1.0, 1e-3], [1.0, -1e-3]]))
    assert value[0] == pytest.approx(1.0, abs=1e-2) and value[1] == pytest.approx(11.0, abs=1e-2)


@pytest.mark.parametrize("shape", [(), 3, (2, 3)])
def test_shapes(shape):
    whole = (shape,) if isinstance(shape, int) else shape
    for prior in (priors.normal(shape=shape), priors.angle(shape=shape)):
        assert drawn(prior, 4).shape == (4, *whole)
    assert drawn(priors.disk(shape), 4).shape == (4, *whole, 2)
    assert priors.uniform(np.zeros(3), 1.0).shape == (3,)


def test_the_evidence_of_priors_has_their_constants():
    """exp(-energy - prior) over the standard normal number has the integral of likelihood x
    prior over the quantity."""
    data = np.array([0.4, 0.9], np.float32)
    posterior = rx.bayesian(
        lambda v, rows: -((rows - v["rate"]) ** 2) * 3, {"rate": priors.log_uniform(0.1, 2.0)}, data
    )
    z = np.linspace(-7, 7, 4001)
    target = posterior.target

    def density(z):
        params = {"standard": {"rate": z}}
        return jnp.exp(-target.energy(params, data, None) - target.prior(params))

    ours = integrate.trapezoid(np.asarray(jax.vmap(density)(jnp.asarray(z)), float), z)
    rate = np.geomspace(0.1, 2.0, 4001)
    likelihood = np.exp(-3 * ((data[:, None] - rate) ** 2).sum(axis=0))
    truth = integrate.trapezoid(likelihood / rate / np.log(20), rate)
    assert ours == pytest.approx(truth, rel=1e-4)


def test_redraws_take_one_block_or_all():
    tree = {"planet": {"period": priors.log_uniform(1.0, 9.0, (2,)), "shape": priors.disk(2)},
            "noise": priors.half_normal(shape=3)}  # fmt: skip
    made = Priors(tree, {"planet": 0})
    start = made.start(jax.random.key(0))
    seen = set()
    for key in jax.random.split(jax.random.key(1), 60):
        after, gain = made.redraw(key, start, jax.random.fold_in(key, 1))
        assert gain == 0
        moved = jax.tree.map(lambda x, y: np.asarray(x != y), after, start)["standard"]
        period, shape = moved["planet"]["period"], moved["planet"]["shape"]
        assert np.all(shape == period[:, None])  # a planet moves as a whole
        assert len(set(moved["noise"].tolist())) == 1
        seen.add((bool(moved["noise"][0]), *period.tolist()))
    assert seen == {(True, False, False), (False, True, False), (False, False, True), (True,) * 3}


def test_distributions_of_numpyro():
    dist = pytest.importorskip("numpyro.distributions")
    value = drawn({"x": dist.Gumbel(1.0, 2.0)}["x"], 5000)
    assert stats.kstest(value, stats.gumbel_r(1, 2).cdf).pvalue > 1e-3
    with pytest.raises(ValueError, match="from_numpyro"):
        Priors({"x": dist.Dirichlet(jnp.ones(3))}, None)


def two_lines(params):
    """The likelihood of sorted data under two exchangeable means, as one number."""
    return -jnp.sum((jnp.sort(params["mean"]) - jnp.array([1.0, 3.0])) ** 2) * 20


@pytest.fixture(scope="module")
def run():
    posterior = rx.bayesian(
        two_lines,
        {"mean": priors.uniform(-10.0, 10.0, shape=2), "side": priors.normal(shape=(2, 2))},
        exchangeable={"mean": 0},
        constrain=lambda values: values | {"gap": jnp.abs(jnp.diff(values["mean"]))[0]},
        order_by="mean",
        names={"side": ("left", "right")},
    )
    return rx.sample(posterior, num_steps=600, num_replicas=4, num_chains=2)


def test_draws_show_values_in_order_and_by_name(run):
    draws = run.draws
    assert set(draws) == {"mean", "gap", "left", "right"}
    assert np.all(np.diff(draws["mean"], axis=-1) >= 0)
    np.testing.assert_allclose(draws["mean"].mean(axis=(0, 1)), [1, 3], atol=0.1)
    np.testing.assert_allclose(draws["gap"], np.diff(draws["mean"])[..., 0], atol=1e-5)
    assert draws["left"].shape == draws["mean"].shape
    assert {"mean[0]", "mean[1]", "gap", "left[0]"} <= set(run.summary()["parameters"])


def test_the_evidence_of_one_number_for_all_rows(run):
    truth = np.log(2 * np.pi / 40 / 400 * 2)  # two labellings of a Gaussian
    assert run.log_evidence().value == pytest.approx(truth, abs=0.1)


def made(**options):
    given = {"prior": {"mean": priors.normal(shape=2)}, "exchangeable": {"mean": 0}} | options
    return rx.bayesian(two_lines, given.pop("prior"), **given)


def params_of(posterior):
    return posterior.start(jax.random.key(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order_by": "men"}, "arrays of params are mean"),
        ({"order_by": "mean", "exchangeable": None}, "needs exchangeable labels"),
        ({"names": ["a", "b", "c"]}, "names are"),
        ({"names": {"men": ["a", "b"]}}, "names has"),
        ({"names": {"mean": ["a", "a"]}}, "different one"),
        ({"prior": {"mean": 3.0}}, "rx.priors.uniform"),
        ({"prior": {}, "exchangeable": None}, "empty"),
        ({"draw_prior": jax.random.normal}, "leave out draw_prior"),
        ({"constrain": 3}, "constrain is 3"),
    ],
)
def test_what_cannot_be_is_said(options, message):
    with pytest.raises(ValueError, match=message):
        posterior = made(**options)
        posterior.constrain(params_of(posterior))


def test_a_likelihood_without_data_returns_one_number():
    posterior = rx.bayesian(lambda params: jnp.zeros(3), {"x": priors.normal()})
    with pytest.raises(ValueError, match="one number for all observations"):
        posterior.target.energy(params_of(posterior), jnp.zeros((1, 0)), None)


@pytest.mark.parametrize(
    "make",
    [lambda: priors.normal(0.0, -1.0), lambda: priors.uniform(2.0, 1.0),
     lambda: priors.log_uniform(0.0, 1.0), lambda: priors.angle(period=0.0),
     lambda: priors.uniform(np.zeros(3), 1.0, shape=2), lambda: priors.quantile(3)],
)  # fmt: skip
def test_bounds_that_are_none_are_refused(make):
    with pytest.raises(ValueError, match="must|fit|function"):
        make()


def test_constrained_values_without_priors():
    posterior = rx.bayesian(
        lambda params: -jnp.sum(params**2),
        lambda params: -jnp.sum(params**2) / 2,
        constrain=jnp.exp,
        names=["scale", "rate"],
    )
    shown = posterior.constrain(jnp.array([0.0, 1.0]))
    assert shown["scale"] == 1 and shown["rate"] == pytest.approx(np.e)
