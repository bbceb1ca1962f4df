"""Which group is which? A mixture, sampled with replica exchange."""

# %% [markdown]
# # Which group is which? A mixture, sampled with replica exchange
#
# A notebook as a script: open it in VS Code, PyCharm or Jupyter (with jupytext), or run it:
# `python examples/two_groups.py`. It takes about a minute on a CPU.
#
# Waiting times between the eruptions of a geyser come in two groups, short and long (the
# numbers here are drawn at random, much like those of Old Faithful). A mixture of two normal
# distributions fits them, and its posterior has two modes that differ only in the names of
# the groups. One chain of an ordinary sampler stays in the mode in which it began. A ladder
# of replicas visits both.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import replicax as rx

rng = np.random.default_rng(3)
long = rng.random(272) < 0.64
minutes = np.where(long, rng.normal(80, 6, 272), rng.normal(54.5, 6, 272))

# %% [markdown]
# ## The model
#
# The likelihood gives one number for each row. Parameters are any tree of arrays; constraints
# are met by transformations: the share of the first group is a sigmoid, the spread an exponential.


# %%
def log_likelihood(params, rows):
    share = jax.nn.log_sigmoid(jnp.array([1.0, -1.0]) * params["share"])
    parts = share + norm.logpdf(rows[:, None], params["means"], jnp.exp(params["log_spread"]))
    return jax.nn.logsumexp(parts, axis=1)


def log_prior(params):
    means = jnp.sum(norm.logpdf(params["means"], 70, 20))
    return means + norm.logpdf(params["share"]) + norm.logpdf(params["log_spread"], 2, 1)


def start(key):
    one, other = jax.random.split(key)
    return {
        "means": 70 + 20 * jax.random.normal(one, (2,)),
        "share": jax.random.normal(other),
        "log_spread": jnp.array(2.0),
    }


with_prior = rx.posterior(temperature=(1.0, np.inf))  # the hottest rung, which the evidence needs
posterior = rx.sample(
    rx.bayesian(log_likelihood, log_prior, minutes),
    start,
    num_steps=12_000,
    num_replicas=10,
    num_chains=4,
    method=with_prior,
    seed=0,
)

# %% [markdown]
# ## Can it be trusted?
#
# Look at the problems first: each is a sentence with a remedy. Round trips show whether replicas
# carry states from the hot end to the cold one.

# %%
print(posterior.problems())
print("round trips of each chain:", posterior.round_trips)

# %% [markdown]
# ## The result
#
# Both labellings have the same mass, so the first mean must be the smaller one in half of the
# draws. For means and spread, order the groups.

# %%
means = posterior.draws["means"]
first_is_short = (means[..., 0] < means[..., 1]).mean()
ordered = np.sort(means, axis=-1).reshape(-1, 2)
print(f"the first group is the short one in {100 * first_is_short:.0f} % of draws")
print("minutes:", ordered.mean(0).round(1), "+-", ordered.std(0).round(1))

# %% [markdown]
# ## Two groups, or one?
#
# Because the ladder reaches the prior, it also gives the evidence, if likelihood and prior
# include their constants. One normal distribution is the same model with one mean.


# %%
def of_one_group(params, rows):
    return norm.logpdf(rows, params["mean"], jnp.exp(params["log_spread"]))


def prior_of_one_group(params):
    return norm.logpdf(params["mean"], 70, 20) + norm.logpdf(params["log_spread"], 2, 1)


def start_of_one_group(key):
    return {"mean": 70 + 20 * jax.random.normal(key), "log_spread": jnp.array(2.0)}


single = rx.sample(
    rx.bayesian(of_one_group, prior_of_one_group, minutes),
    start_of_one_group,
    num_steps=3_000,
    num_replicas=10,
    num_chains=4,
    method=with_prior,
    seed=0,
)
print("one group: ", single.log_evidence())
print("two groups:", posterior.log_evidence())
