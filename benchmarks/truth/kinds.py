"""Posteriors as they occur: regressions and mixtures of thousands of rows, hierarchies, and
densities that are hard for one reason each. Parameters are one vector, starts are N(0, 2^2).
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from math import factorial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from densities import chain, modes_25
from jax.scipy.special import gammaln
from target import Target, normal

STEPS = 1_000


def start_of(size: int, scale: float = 2.0) -> Callable[[jax.Array], jax.Array]:
    """Return the start function of a vector."""
    return lambda key: scale * jax.random.normal(key, (size,))


def from_afar(target: Target, scale: float) -> Target:
    """Return a kind whose starts are N(0, scale^2)."""
    size = jax.eval_shape(target.start, jax.random.key(0)).size
    return replace(target, start=start_of(size, scale))


def _kind(name: str, title: str, truth: Any, data: dict[str, Any], *laws, **more: Any) -> Target:
    """Return a target of rows whose parameters are a vector, each entry judged."""
    log_likelihood, log_prior = laws
    data = {
        key: jnp.asarray(rows, jnp.int32 if rows.dtype.kind == "i" else jnp.float32)
        for key, rows in data.items()
    }
    truth = np.asarray(truth, float)
    more.setdefault("functions", lambda x: {f"x{i}": x[i] for i in range(truth.size)})
    return Target(
        name, title, start_of(truth.size), log_likelihood=log_likelihood, log_prior=log_prior,
        data=data, truth=jnp.asarray(truth), num_steps=STEPS, **more,
    )  # fmt: skip


def _predictors(rng: np.random.Generator, rows: int, size: int) -> np.ndarray:
    x = rng.standard_normal((rows, size))
    x[:, 0] = 1.0
    return x


def _wide(sd: float) -> Callable[[jax.Array], jax.Array]:
    return lambda x: jnp.sum(normal(x, 0.0, sd))


def _bernoulli(coef, rows):
    logit = rows["x"] @ coef
    return rows["y"] * logit - jax.nn.softplus(logit)


def _binary(
    name: str, title: str, seed: int, x: np.ndarray, truth: np.ndarray, sd: float
) -> Target:
    y = np.random.default_rng(seed).random(len(x)) < 1 / (1 + np.exp(-x @ truth))
    return _kind(name, title, truth, {"x": x, "y": y * 1.0}, _bernoulli, _wide(sd))


def poisson_far(rows: int = 20_000, size: int = 8) -> Target:
    rng = np.random.default_rng(21)
    x, truth = _predictors(rng, rows, size), np.append(3.0, rng.normal(0, 0.4, size - 1))
    y = rng.poisson(np.exp(x @ truth))

    def log_likelihood(coef, rows):
        log_rate = rows["x"] @ coef
        return rows["y"] * log_rate - jnp.exp(log_rate) - gammaln(rows["y"] + 1)

    title = "Poisson regression far from its starts"
    return _kind("poisson-far", title, truth, {"x": x, "y": y * 1.0}, log_likelihood, _wide(5.0))


def negative_binomial(rows: int = 20_000, size: int = 6) -> Target:
    rng = np.random.default_rng(22)
    x, coef = _predictors(rng, rows, size), np.append(1.0, rng.normal(0, 0.4, size - 1))
    y = rng.poisson(np.exp(x @ coef) * rng.gamma(0.8, 1 / 0.8, rows))

    def log_likelihood(params, rows):
        log_mean, shape, y = rows["x"] @ params[:-1], jnp.exp(params[-1]), rows["y"]
        log_whole = jnp.logaddexp(log_mean, params[-1])
        counted = gammaln(y + shape) - gammaln(shape) - gammaln(y + 1)
        return counted + shape * (params[-1] - log_whole) + y * (log_mean - log_whole)

    return _kind(
        "negative-binomial", "negative binomial regression", np.append(coef, np.log(0.8)),
        {"x": x, "y": y * 1.0}, log_likelihood, _wide(3.0),
    )  # fmt: skip


def heteroscedastic(rows: int = 20_000, size: int = 5) -> Target:
    rng = np.random.default_rng(23)
    x, coef = _predictors(rng, rows, size), rng.normal(0, 1, size)
    of_scale = rng.normal(0, 0.4, size)
    y = x @ coef + np.exp(x @ of_scale) * rng.standard_normal(rows)

    def log_likelihood(params, rows):
        return normal(rows["y"], rows["x"] @ params[:size], jnp.exp(rows["x"] @ params[size:]))

    return _kind(
        "heteroscedastic", "regression of mean and scale", np.append(coef, of_scale),
        {"x": x, "y": y}, log_likelihood, _wide(5.0),
    )  # fmt: skip


def student_regression(rows: int = 20_000, size: int = 6) -> Target:
    rng = np.random.default_rng(24)
    x, coef = _predictors(rng, rows, size), rng.normal(0, 1, size)
    y = x @ coef + 0.7 * rng.standard_t(2.5, rows)

    def log_likelihood(params, rows):
        freedom, log_scale = jnp.exp(params[-1]), params[-2]
        square = ((rows["y"] - rows["x"] @ params[:-2]) * jnp.exp(-log_scale)) ** 2
        constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - params[-1] / 2
        return constant - log_scale - (freedom + 1) / 2 * jnp.log1p(square / freedom)

    return _kind(
        "student-regression", "Student regression, freedom unknown",
        np.append(coef, [np.log(0.7), np.log(2.5)]), {"x": x, "y": y}, log_likelihood, _wide(3.0),
    )  # fmt: skip


def unscaled(rows: int = 20_000) -> Target:
    rng = np.random.default_rng(25)
    scales = np.array([1.0, 1e-3, 1e-2, 1.0, 30.0, 1e3])
    x = _predictors(rng, rows, scales.size) * scales
    truth = rng.normal(0, 0.8, scales.size) / scales
    return _binary("unscaled", "logistic regression, scales .001 to 1,000", 26, x, truth, 2e3)


def correlated(rows: int = 20_000, size: int = 10) -> Target:
    rng = np.random.default_rng(27)
    x = np.sqrt(0.02) * rng.standard_normal((rows, size))
    x = x + np.sqrt(0.98) * rng.standard_normal((rows, 1))
    x[:, 0] = 1.0
    title = "logistic regression, predictors correlated by .98"
    return _binary("correlated", title, 28, x, rng.normal(0, 0.7, size), 2.5)


def rare(rows: int = 20_000, size: int = 6) -> Target:
    rng = np.random.default_rng(29)
    truth = np.array([-6.0, 0.9, -0.7, 0.0, 0.4, 0.0])[:size]
    x = _predictors(rng, rows, size)
    return _binary("rare", "logistic regression, rare events", 30, x, truth, 2.5)


def softmax(rows: int = 10_000, size: int = 8, classes: int = 5) -> Target:
    rng = np.random.default_rng(31)
    x = _predictors(rng, rows, size)
    truth = rng.normal(0, 0.7, (size, classes - 1))

    def logits(params, x):
        free = x @ params.reshape(size, classes - 1)
        return jnp.concatenate([jnp.zeros((*free.shape[:-1], 1), free.dtype), free], axis=-1)

    chance = np.asarray(jax.nn.softmax(logits(jnp.asarray(truth), jnp.asarray(x)), axis=1), float)
    y = (rng.random((rows, 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(0, classes - 1)

    def log_likelihood(params, rows):
        return jnp.take_along_axis(
            jax.nn.log_softmax(logits(params, rows["x"]), axis=-1), rows["y"][:, None], axis=-1
        )[:, 0]

    title = "softmax regression, 32 coefficients"
    return _kind("softmax", title, truth.ravel(), {"x": x, "y": y}, log_likelihood, _wide(2.5))


def hierarchical_logit(rows: int = 10_000, groups: int = 50, size: int = 4) -> Target:
    rng = np.random.default_rng(32)
    x, coef = rng.standard_normal((rows, size)), rng.normal(0, 0.7, size)
    offset, group = -0.5 + 0.5 * rng.standard_normal(groups), rng.integers(groups, size=rows)
    y = rng.random(rows) < 1 / (1 + np.exp(-(x @ coef + offset[group])))

    def log_likelihood(params, rows):
        logit = rows["x"] @ params[:size] + params[size : size + groups][rows["group"]]
        return rows["y"] * logit - jax.nn.softplus(logit)

    def log_prior(params):
        mean, log_tau = params[-2], params[-1]
        offsets = jnp.sum(normal(params[size:-2], mean, jnp.exp(log_tau)))
        rest = jnp.sum(normal(params[:size], 0.0, 2.0)) + normal(mean, 0.0, 2.0)
        return offsets + rest + normal(log_tau, -1.0, 1.0)

    return _kind(
        "hierarchical-logit", "logistic regression, 50 groups",
        np.concatenate([coef, offset, [-0.5, np.log(0.5)]]),
        {"x": x, "y": y * 1.0, "group": group}, log_likelihood, log_prior, by_nuts=True,
    )  # fmt: skip


def zero_inflated(rows: int = 20_000, size: int = 4) -> Target:
    rng = np.random.default_rng(33)
    x = _predictors(rng, rows, size)
    of_zero, coef = np.array([-0.5, 0.6, 0.0, -0.4]), np.array([0.8, 0.3, -0.3, 0.2])
    y = rng.poisson(np.exp(x @ coef)) * (rng.random(rows) > 1 / (1 + np.exp(-x @ of_zero)))

    def log_likelihood(params, rows):
        logit, log_rate, y = rows["x"] @ params[:size], rows["x"] @ params[size:], rows["y"]
        count = y * log_rate - jnp.exp(log_rate) - gammaln(y + 1)
        zero = jnp.logaddexp(logit, -jnp.exp(log_rate))
        return jnp.where(y == 0, zero, count) - jax.nn.softplus(logit)

    return _kind(
        "zero-inflated", "zero-inflated Poisson regression", np.append(of_zero, coef),
        {"x": x, "y": y * 1.0}, log_likelihood, _wide(3.0),
    )  # fmt: skip


def weibull(rows: int = 20_000, size: int = 5) -> Target:
    """Return times of survival, a third of them cut off."""
    rng = np.random.default_rng(35)
    x, coef = _predictors(rng, rows, size), np.append(1.0, rng.normal(0, 0.4, size - 1))
    time = np.exp(x @ coef) * rng.weibull(1.6, rows)
    cut = np.quantile(time, 0.8) * rng.random(rows) ** 0.5
    log_t, seen = np.log(np.minimum(time, cut)), (time < cut) * 1.0

    def log_likelihood(params, rows):
        shape = jnp.exp(params[-1])
        log_hazard = shape * (rows["log_t"] - rows["x"] @ params[:-1])
        return rows["seen"] * (params[-1] + log_hazard - rows["log_t"]) - jnp.exp(log_hazard)

    return _kind(
        "weibull", "Weibull regression, censored", np.append(coef, np.log(1.6)),
        {"x": x, "log_t": log_t, "seen": seen}, log_likelihood, _wide(3.0),
    )  # fmt: skip


def horseshoe(rows: int = 5_000, size: int = 10) -> Target:
    rng = np.random.default_rng(34)
    x, coef = rng.standard_normal((rows, size)), np.zeros(size)
    coef[:3] = 1.0, -0.5, 0.1
    y = x @ coef + rng.standard_normal(rows)

    def log_likelihood(params, rows):
        return normal(rows["y"], rows["x"] @ params[:size], jnp.exp(params[-1]))

    def half_cauchy(log):
        return log - jnp.log1p(jnp.exp(2 * log))

    def log_prior(params):
        local, log_tau = params[size:-2], params[-2]
        coefs = jnp.sum(normal(params[:size], 0.0, jnp.exp(local + log_tau)))
        return coefs + jnp.sum(half_cauchy(local)) + half_cauchy(log_tau) + normal(params[-1])

    def functions(params):
        coefs = {f"coef {i}": params[i] for i in range(size)}
        return coefs | {"local 0": params[size], "log tau": params[-2], "log sigma": params[-1]}

    truth = np.concatenate([coef + 0.01, np.zeros(size), [-2.0, 0.0]])
    return _kind(
        "horseshoe", "linear regression, horseshoe prior", truth, {"x": x, "y": y},
        log_likelihood, log_prior, functions=functions, by_nuts=True,
    )  # fmt: skip


def _ordered(k: int, names: tuple[str, ...], order_by: str) -> tuple[Callable, Callable]:
    """Return functions of ordered labels, and the mode, of a vector of `names` by label."""
    orders = jnp.array(list(permutations(range(k))))
    at = lambda params, name: params.reshape(len(names), k)[names.index(name)]  # noqa: E731

    def functions(params):
        order = jnp.argsort(at(params, order_by))
        return {f"{name} {i}": at(params, name)[order][i] for name in names for i in range(k)}

    def mode(params):
        return jnp.argmax(jnp.all(orders == jnp.argsort(at(params, order_by)), axis=1))

    return functions, mode


def mixture_of(k: int, rows: int = 5_000) -> Target:
    """Return a mixture of k normals in one dimension, labels free."""
    means = {2: (-1.5, 1.5), 3: (-3.0, 0.0, 3.0), 4: (-6.0, -2.0, 2.0, 6.0)}[k]
    rng = np.random.default_rng(40 + k)
    scales, shares = rng.uniform(0.6, 1.0, k), rng.dirichlet(5 * np.ones(k))
    label = rng.choice(k, size=rows, p=shares)
    y = np.take(means, label) + scales[label] * rng.standard_normal(rows)

    def log_likelihood(params, rows):
        mean, log_scale, logit = params.reshape(3, k)
        parts = normal(rows["y"][:, None], mean, jnp.exp(log_scale))
        return jax.nn.logsumexp(parts + jax.nn.log_softmax(logit), axis=1)

    def log_prior(params):
        mean, log_scale, logit = params.reshape(3, k)
        return _wide(5.0)(mean) + _wide(1.0)(log_scale) + _wide(1.0)(logit)

    functions, mode = _ordered(k, ("mean", "log scale", "logit"), "mean")
    logits = np.log(shares) - np.log(shares).mean()
    return _kind(
        f"normals-{k}", f"mixture of {k} normals", np.concatenate([means, np.log(scales), logits]),
        {"y": y}, log_likelihood, log_prior, functions=functions, mode=mode,
        masses=(1 / factorial(k),) * factorial(k),
    )  # fmt: skip


def mixture_of_regressions(rows: int = 5_000) -> Target:
    """Return two lines, labels free."""
    rng = np.random.default_rng(46)
    x, label = rng.standard_normal(rows), rng.random(rows) < 0.4
    y = np.where(label, 1.0 + 1.5 * x, -0.5 - 1.0 * x) + 0.6 * rng.standard_normal(rows)

    def log_likelihood(params, rows):
        intercept, slope, log_scale, logit = params.reshape(4, 2)
        line = intercept + slope * rows["x"][:, None]
        parts = normal(rows["y"][:, None], line, jnp.exp(log_scale))
        return jax.nn.logsumexp(parts + jax.nn.log_softmax(logit), axis=1)

    def log_prior(params):
        lines, log_scale, logit = params[:4], params[4:6], params[6:]
        return _wide(5.0)(lines) + _wide(1.0)(log_scale) + _wide(1.0)(logit)

    functions, mode = _ordered(2, ("intercept", "slope", "log scale", "logit"), "slope")
    truth = [-0.5, 1.0, -1.0, 1.5, np.log(0.6), np.log(0.6), 0.2, -0.2]
    return _kind(
        "regressions-2", "mixture of two regressions", truth, {"x": x, "y": y}, log_likelihood,
        log_prior, functions=functions, mode=mode, masses=(0.5, 0.5),
    )  # fmt: skip


def group_means(rows: int = 20_000, groups: int = 20) -> Target:
    """Return means of groups, one of which has five rows."""
    rng = np.random.default_rng(47)
    means = 2.0 + 0.8 * rng.standard_normal(groups)
    group = rng.integers(groups - 1, size=rows)
    group[:5] = groups - 1
    y = means[group] + 1.5 * rng.standard_normal(rows)

    def log_likelihood(params, rows):
        return normal(rows["y"], params[:groups][rows["group"]], jnp.exp(params[-1]))

    def log_prior(params):
        mean, log_tau = params[-3], params[-2]
        of_groups = jnp.sum(normal(params[:groups], mean, jnp.exp(log_tau)))
        return of_groups + normal(mean, 0.0, 5.0) + normal(log_tau, 0.0, 1.0) + normal(params[-1])

    return _kind(
        "group-means", "means of 20 groups, one of 5 rows",
        np.concatenate([means, [2.0, np.log(0.8), np.log(1.5)]]), {"y": y, "group": group},
        log_likelihood, log_prior, by_nuts=True,
    )  # fmt: skip


_SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
_SCHOOL_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def schools(is_centred: bool) -> Target:
    """Return eight schools: mu ~ N(0, 5), tau half-Cauchy(5)."""
    from regressions import eight_schools

    draw_centred = eight_schools().exact

    def energy(x):
        mu, log_tau = x[0], x[1]
        tau = jnp.exp(log_tau)
        theta = x[2:] if is_centred else mu + tau * x[2:]
        of_theta = normal(x[2:], mu, tau) if is_centred else normal(x[2:])
        prior = normal(mu, 0.0, 5.0) + log_tau - jnp.log1p((tau / 5) ** 2) + jnp.sum(of_theta)
        return -prior - jnp.sum(normal(jnp.asarray(_SCHOOLS), theta, jnp.asarray(_SCHOOL_SD)))

    def draw(rng, n):
        found = draw_centred(rng, n)
        mu, log_tau, theta = found["mu"], found["log_tau"], found["theta"]
        if not is_centred:
            theta = (theta - mu[:, None]) / np.exp(log_tau)[:, None]
        return np.concatenate([mu[:, None], log_tau[:, None], theta], axis=1)

    def functions(x):
        theta = x[2:] if is_centred else x[0] + jnp.exp(x[1]) * x[2:]
        return {"mu": x[0], "log tau": x[1], "theta 0": theta[0], "theta 4": theta[4]}

    word = "centred" if is_centred else "non-centred"
    return Target(
        f"schools-{word}", f"eight schools, {word}", start_of(10), functions, bare=energy,
        exact=draw, num_steps=STEPS,
    )  # fmt: skip


def _bare(name: str, title: str, size: int, energy: Callable, exact: Callable, **more) -> Target:
    more.setdefault("functions", lambda x: {f"x{i}": x[i] for i in range(min(size, 5))})
    return Target(name, title, start_of(size), bare=energy, exact=exact, num_steps=STEPS, **more)


def banana() -> Target:
    def energy(x):
        return x[0] ** 2 / 8 + 2.0 * (x[1] - x[0] ** 2 / 2) ** 2

    def draw(rng, n):
        z = rng.standard_normal((n, 2))
        return np.stack([2 * z[:, 0], 2 * z[:, 0] ** 2 + z[:, 1] / 2], axis=1)

    return _bare("banana", "a banana, 2-d", 2, energy, draw)


def cauchy(size: int = 2) -> Target:
    """Return independent Cauchy laws; judged are functions that have moments."""

    def draw(rng, n):
        return rng.standard_cauchy((n, size))

    def functions(x):
        return {f"asinh x{i}": jnp.arcsinh(x[i]) for i in range(size)}

    energy = lambda x: jnp.sum(jnp.log1p(x**2))  # noqa: E731
    return _bare("cauchy", "two Cauchy laws", size, energy, draw, functions=functions)


def two_modes(size: int) -> Target:
    """Return .7 N(-2, 1) and .3 N(2, .7^2) in each dimension of a vector."""
    log_share, at, sd = np.log([0.7, 0.3]), np.array([-2.0, 2.0]), np.array([1.0, 0.7])

    def energy(x):
        parts = jnp.sum(normal(x[:, None], at, sd), axis=0)
        return -jax.nn.logsumexp(parts + log_share)

    def draw(rng, n):
        label = rng.choice(2, size=(n, 1), p=np.exp(log_share))
        return at[label] + sd[label] * rng.standard_normal((n, size))

    mode = lambda x: jnp.where(jnp.mean(x) > 0, 1, 0)  # noqa: E731
    return _bare(
        f"two-modes-{size}", f"two modes, {size}-d", size, energy, draw, mode=mode,
        log_evidence=lambda: 0.0,
    )  # fmt: skip


def gaussian(size: int = 100, correlation: float = 0.99) -> Target:
    root = np.linalg.cholesky((1 - correlation) * np.eye(size) + correlation)
    inverse = jnp.asarray(np.linalg.inv(root))
    energy = lambda x: jnp.sum((inverse @ x) ** 2) / 2  # noqa: E731
    draw = lambda rng, n: rng.standard_normal((n, size)) @ root.T  # noqa: E731
    functions = lambda x: {"x0": x[0], "x99": x[-1], "x0 - x1": x[0] - x[1], "sum": x.sum()}  # noqa: E731
    known = size / 2 * np.log(2 * np.pi) + np.log(np.diag(root)).sum()
    return _bare(
        f"gaussian-{size}", f"Gaussian, {size}-d, correlation {correlation:g}", size, energy, draw,
        functions=functions, log_evidence=lambda: float(known),
    )  # fmt: skip


def lotka_volterra(num_times: int = 20) -> Target:
    """Return predators and prey: four rates, two starts and a scale of noise, as logarithms."""
    truth = np.log([0.55, 0.028, 0.84, 0.026, 33.0, 6.0, 0.25])

    def solve(x):
        a, b, c, d = jnp.exp(x[:4])

        def slope(z):  # of the logarithms
            return jnp.stack([a - b * jnp.exp(z[1]), d * jnp.exp(z[0]) - c])

        def step(z, _):
            for _ in range(4):
                k1 = slope(z)
                k2 = slope(z + 0.125 * k1)
                k3 = slope(z + 0.125 * k2)
                z = z + 0.25 / 6 * (k1 + 2 * k2 + 2 * k3 + slope(z + 0.25 * k3))
            return z, z

        return jax.lax.scan(step, x[4:6], length=num_times)[1]

    noise = np.random.default_rng(50).standard_normal((num_times, 2))
    log_y = np.asarray(solve(jnp.asarray(truth, jnp.float32)), float) + 0.25 * noise

    def energy(x):
        prior = jnp.sum(normal(x, jnp.log(jnp.array([1.0, 0.05, 1.0, 0.05, 10.0, 10.0, 0.3])), 1.0))
        fit = jnp.sum(normal(jnp.asarray(log_y), solve(x), jnp.exp(x[6])))
        return -prior - fit

    return Target(
        "lotka-volterra", "predators and prey", start_of(7),
        lambda x: {f"x{i}": x[i] for i in range(7)}, bare=energy, truth=jnp.asarray(truth),
        num_steps=STEPS, by_nuts=True,
    )  # fmt: skip


_KINDS = (
    poisson_far(),
    negative_binomial(),
    heteroscedastic(),
    student_regression(),
    unscaled(),
    correlated(),
    softmax(),
    rare(),
    hierarchical_logit(),
    zero_inflated(),
    weibull(),
    horseshoe(),
    mixture_of(2),
    mixture_of(3),
    mixture_of(4),
    mixture_of_regressions(),
    group_means(),
    schools(True),
    schools(False),
    banana(),
    cauchy(),
    lotka_volterra(),
    two_modes(20),
    two_modes(50),
    gaussian(),
    replace(chain(), name="chain-32", num_steps=STEPS),
    replace(modes_25(), num_steps=STEPS),
)
KINDS: dict[str, Target] = {target.name: target for target in _KINDS}
