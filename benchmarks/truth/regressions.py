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


def survival(batch: int = 100, rows: int = 1_000) -> Target:
    """Return a Weibull regression of times of which some are censored."""
    rng = np.random.default_rng(10)
    x = rng.standard_normal((rows, 3))
    time = rng.weibull(1.6, rows) * np.exp(0.5 + x @ np.array([0.4, -0.3, 0.0]))
    end = rng.exponential(3.0, rows)
    data = {"x": jnp.asarray(x, jnp.float32), "ended": jnp.asarray(time <= end, jnp.float32),
            "log_time": jnp.asarray(np.log(np.minimum(time, end)), jnp.float32)}  # fmt: skip

    def log_likelihood(params, rows):
        log_shape = params["log_shape"]
        place = rows["log_time"] - params["intercept"] - rows["x"] @ params["coef"]
        hazard = jnp.exp(log_shape) * place
        return rows["ended"] * (log_shape + hazard - rows["log_time"]) - jnp.exp(hazard)

    def log_prior(params):
        return (
            normal(params["log_shape"])
            + normal(params["intercept"], 0.0, 3.0)
            + jnp.sum(normal(params["coef"], 0.0, 2.0))
        )

    def start(key):
        z = jax.random.normal(key, (5,))
        return {"log_shape": 0.3 * z[0], "intercept": z[1], "coef": 0.5 * z[2:]}

    def functions(params):
        coef = {f"coef {i + 1}": params["coef"][i] for i in range(3)}
        return {"log shape": params["log_shape"], "intercept": params["intercept"], **coef}

    truth = {"log_shape": jnp.log(1.6), "intercept": jnp.array(0.5),
             "coef": jnp.array([0.4, -0.3, 0.0])}  # fmt: skip
    return Target(
        "survival", "Weibull regression, censored times", start, functions, batch_size=batch,
        log_likelihood=log_likelihood, log_prior=log_prior, data=data, truth=truth,
        num_steps=20_000,
    )  # fmt: skip


def change_point(batch: int | None = None, rows: int = 200) -> Target:
    """Return Poisson counts whose rate changes at an unknown time: the likelihood has jumps."""
    rng = np.random.default_rng(12)
    y = rng.poisson(np.where(np.arange(rows) < 120, 3.0, 4.5)).astype(float)
    data = {"time": jnp.arange(rows, dtype=jnp.float32), "y": jnp.asarray(y, jnp.float32)}

    def log_likelihood(params, rows_):
        before = rows_["time"] < rows * jax.nn.sigmoid(params["place"])
        log_rate = jnp.where(before, params["log_rate"][0], params["log_rate"][1])
        return rows_["y"] * log_rate - jnp.exp(log_rate)

    def log_prior(params):  # the place is uniform, the logarithms of the rates are N(1, 1)
        place = jax.nn.log_sigmoid(params["place"]) + jax.nn.log_sigmoid(-params["place"])
        return place + jnp.sum(normal(params["log_rate"], 1.0, 1.0))

    def draw(rng, n):
        """The number of rows before the change, then both rates, on a grid."""
        grid = np.linspace(0.3, 2.2, 1_901)
        sums, counts = np.cumsum(y), np.arange(1, rows + 1)

        def log_law(total, count):
            return np.outer(total, grid) - np.outer(count, np.exp(grid)) - (grid - 1) ** 2 / 2

        laws = log_law(sums, counts), log_law(sums[-1] - sums, rows - counts)
        log_mass = sum(np.logaddexp.reduce(law, axis=1) for law in laws)
        mass = np.exp(log_mass - log_mass.max())
        last = rng.choice(rows, size=n, p=mass / mass.sum())
        share = (last + rng.random(n)) / rows
        rates = []
        for law in laws:
            weights = np.exp(law - law.max(axis=1, keepdims=True))
            edges = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
            at = [np.searchsorted(edges[k], u) for k, u in zip(last, rng.random(n))]
            rates.append(grid[at] + (rng.random(n) - 0.5) * (grid[1] - grid[0]))
        return {"place": np.log(share / (1 - share)), "log_rate": np.stack(rates, axis=1)}

    def start(key):
        z = 1.5 * jax.random.normal(key, (3,))
        return {"place": z[0], "log_rate": z[1:]}

    def functions(params):
        rates = params["log_rate"]
        return {"place": params["place"], "log rate 1": rates[0], "log rate 2": rates[1]}

    return Target(
        "change-point" + ("-batch" if batch else ""), "change point in counts, likelihood of jumps",
        start, functions, log_likelihood=log_likelihood, log_prior=log_prior, data=data,
        batch_size=batch, exact=draw, num_steps=20_000,
    )  # fmt: skip
