"""Targets with data and one mode: regressions and eight schools."""

import jax
import jax.numpy as jnp
import numpy as np
from target import Target, normal


def logistic(batch: int | None = None, rows: int = 10_000, size: int = 10) -> Target:
    """Return a logistic regression with an intercept and correlated predictors."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((rows, size)) + 0.7 * rng.standard_normal((rows, 1))
    x[:, 0] = 1.0
    truth = rng.normal(0, 0.7, size)
    y = rng.random(rows) < 1 / (1 + np.exp(-x @ truth))
    data = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}

    def log_likelihood(coef, rows):
        logit = rows["x"] @ coef
        return rows["y"] * logit - jax.nn.softplus(logit)

    return Target(
        "logistic" + ("-batch" if batch else ""), "logistic regression, 10 coefficients",
        lambda key: jax.random.normal(key, (size,)),
        lambda coef: {f"coef {i}": coef[i] for i in range(size)}, log_likelihood=log_likelihood,
        log_prior=lambda coef: jnp.sum(normal(coef, 0.0, 2.5)), data=data, batch_size=batch,
        truth=jnp.asarray(truth), num_steps=20_000 if batch else 3_000,
    )  # fmt: skip


def eight_schools() -> Target:
    """Return eight schools, centred: theta ~ N(mu, tau), tau half-Cauchy(5), mu ~ N(0, 5)."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    data = {"y": jnp.asarray(y), "sd": jnp.asarray(sd), "school": jnp.arange(8)}

    def log_likelihood(params, rows):
        return normal(rows["y"], params["theta"][rows["school"]], rows["sd"])

    def log_prior(params):
        tau = jnp.exp(params["log_tau"])
        half_cauchy = params["log_tau"] - jnp.log1p((tau / 5) ** 2)  # the Jacobian included
        return (
            normal(params["mu"], 0.0, 5.0)
            + half_cauchy
            + jnp.sum(normal(params["theta"], params["mu"], tau))
        )

    def draw(rng, n):
        """Draw log tau from its law on a grid, then mu given tau, then theta given both."""
        grid = np.linspace(-14.0, 7.0, 20_001)
        tau2 = np.exp(2 * grid)[:, None]
        precision = 1 / (sd**2 + tau2)
        mu_precision = 1 / 25 + precision.sum(1)
        centre = (precision * y).sum(1) / mu_precision
        log_law = (
            grid - np.log1p(tau2[:, 0] / 25) + 0.5 * np.log(precision).sum(1)
            - 0.5 * np.log(mu_precision)
            - 0.5 * ((precision * y**2).sum(1) - mu_precision * centre**2)
        )  # fmt: skip
        law = np.exp(log_law - log_law.max())
        i = rng.choice(grid.size, size=n, p=law / law.sum())
        mu = centre[i] + rng.standard_normal(n) / np.sqrt(mu_precision[i])
        row_precision = 1 / sd**2 + 1 / tau2[i]
        theta = (y / sd**2 + mu[:, None] / tau2[i]) / row_precision
        theta = theta + rng.standard_normal((n, 8)) / np.sqrt(row_precision)
        return {"mu": mu, "log_tau": grid[i], "theta": theta}

    def start(key):
        keys = jax.random.split(key, 3)
        return {
            "mu": 5 * jax.random.normal(keys[0]),
            "log_tau": 1 + jax.random.normal(keys[1]),
            "theta": 10 * jax.random.normal(keys[2], (8,)),
        }

    def functions(params):
        theta = {f"theta {i + 1}": params["theta"][i] for i in (0, 2, 4, 7)}
        return {"mu": params["mu"], "log tau": params["log_tau"], **theta}

    return Target(
        "eight-schools", "eight schools, centred", start, functions, log_likelihood=log_likelihood,
        log_prior=log_prior, data=data, exact=draw, num_steps=60_000,
    )  # fmt: skip


def linear(batch: int | None = None, rows: int = 500, size: int = 6) -> Target:
    """Return a conjugate linear regression with unknown scale and predictors correlated by .98."""
    rng = np.random.default_rng(11)
    x = rng.standard_normal((rows, size)) * 0.14 + 0.99 * rng.standard_normal((rows, 1))
    y = x @ np.array([1.0, -1.0, 0.5, 0.0, 2.0, -0.5]) + 1.3 * rng.standard_normal(rows)
    data = {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}

    # coef given sigma ~ N(0, 3² sigma²), sigma^-2 ~ Gamma(2, 2), in terms of log sigma.
    def log_likelihood(params, rows):
        return normal(rows["y"], rows["x"] @ params["coef"], jnp.exp(params["log_sigma"]))

    def log_prior(params):
        log_sigma = params["log_sigma"]
        gamma = -4 * log_sigma - 2 * jnp.exp(-2 * log_sigma)
        return gamma + jnp.sum(normal(params["coef"], 0.0, 3 * jnp.exp(log_sigma)))

    def draw(rng, n):
        precision = x.T @ x + np.eye(size) / 9
        centre = np.linalg.solve(precision, x.T @ y)
        shape, rate = 2 + rows / 2, 2 + (y @ y - centre @ precision @ centre) / 2
        sigma = 1 / np.sqrt(rng.gamma(shape, 1 / rate, n))
        root = np.linalg.cholesky(np.linalg.inv(precision))
        coef = centre + sigma[:, None] * (rng.standard_normal((n, size)) @ root.T)
        return {"coef": coef, "log_sigma": np.log(sigma)}

    def start(key):
        return {"coef": 3 * jax.random.normal(key, (size,)), "log_sigma": jnp.zeros(())}

    def functions(params):
        coef = {f"coef {i}": params["coef"][i] for i in range(size)}
        return {**coef, "sum": params["coef"].sum(), "log sigma": params["log_sigma"]}

    return Target(
        "linear" + ("-batch" if batch else ""), "linear regression, predictors correlated by .98",
        start, functions, log_likelihood=log_likelihood, log_prior=log_prior, data=data,
        batch_size=batch, exact=draw, num_steps=30_000,
    )  # fmt: skip


def poisson(groups: int = 20, rows: int = 400) -> Target:
    """Return a Poisson regression with centred random intercepts."""
    rng = np.random.default_rng(13)
    offset, group = 0.6 * rng.standard_normal(groups), rng.integers(groups, size=rows)
    x = rng.standard_normal(rows)
    y = rng.poisson(np.exp(0.3 + 0.4 * x + offset[group]))
    data = {"y": jnp.asarray(y, jnp.float32), "x": jnp.asarray(x, jnp.float32),
            "group": jnp.asarray(group)}  # fmt: skip

    def log_likelihood(params, rows):
        log_rate = params["intercept"][rows["group"]] + params["slope"] * rows["x"]
        return rows["y"] * log_rate - jnp.exp(log_rate)

    def log_prior(params):
        tau = jnp.exp(params["log_tau"])
        return (
            normal(params["mean"], 0.0, 2.0)
            + normal(params["slope"], 0.0, 1.0)
            + normal(params["log_tau"], -1.0, 1.0)
            + jnp.sum(normal(params["intercept"], params["mean"], tau))
        )

    def start(key):
        z = jax.random.normal(key, (groups + 3,))
        return {"mean": z[0], "slope": z[1], "log_tau": -1 + z[2], "intercept": z[3:]}

    def functions(params):
        names = ("mean", "slope", "log_tau")
        groups = {f"intercept {i + 1}": params["intercept"][i] for i in (0, 7, 15)}
        return {name: params[name] for name in names} | groups

    truth = {"mean": jnp.array(0.3), "slope": jnp.array(0.4), "log_tau": jnp.array(-0.5),
             "intercept": jnp.asarray(0.3 + offset)}  # fmt: skip
    return Target(
        "poisson", "Poisson regression, random intercepts", start, functions,
        log_likelihood=log_likelihood, log_prior=log_prior, data=data, truth=truth,
    )  # fmt: skip
