"""Targets with data, made from a fixed seed, and mirror modes: mixtures."""

from itertools import permutations
from math import factorial

import jax
import jax.numpy as jnp
import numpy as np
from target import Target, normal


def mixture(k: int = 2, rows: int = 1_000, batch: int = 100) -> Target:
    """Return a mixture of k normals; all orders of the labels have the same mass."""
    truth = {
        2: dict(mean=(-1.0, 1.5), scale=(0.8, 0.6), weight=(0.4, 0.6)),
        3: dict(mean=(-3.0, 0.0, 3.5), scale=(0.7, 0.5, 1.0), weight=(0.3, 0.3, 0.4)),
    }[k]
    rng = np.random.default_rng(k)
    label = rng.choice(k, size=rows, p=truth["weight"])
    y = np.take(truth["mean"], label) + np.take(truth["scale"], label) * rng.standard_normal(rows)

    def log_weights(params):
        # Two labels have one logit, three have three: exchanging labels must be a symmetry.
        logit = params["logit"]
        logits = jnp.stack([logit / 2, -logit / 2]) if k == 2 else logit
        return jax.nn.log_softmax(logits)

    def log_likelihood(params, rows):
        parts = normal(rows[:, None], params["mean"], jnp.exp(params["log_scale"]))
        return jax.nn.logsumexp(parts + log_weights(params), axis=1)

    def log_prior(params):
        return (
            jnp.sum(normal(params["mean"], 0.0, 5.0))
            + jnp.sum(normal(params["log_scale"], 0.0, 1.0))
            + jnp.sum(normal(params["logit"], 0.0, 1.5))
        )

    def start(key):
        keys = jax.random.split(key, 3)
        return {
            "mean": 3 * jax.random.normal(keys[0], (k,)),
            "log_scale": 0.5 * jax.random.normal(keys[1], (k,)),
            "logit": jax.random.normal(keys[2], () if k == 2 else (k,)),
        }

    orders = jnp.array(list(permutations(range(k))))

    def functions(params):
        order = jnp.argsort(params["mean"])
        weights = jnp.exp(log_weights(params))[order]
        named = {"mean": params["mean"][order], "log scale": params["log_scale"][order]}
        values = {f"{name} {i + 1}": value[i] for name, value in named.items() for i in range(k)}
        return values | {f"weight {i + 1}": weights[i] for i in range(k - 1)}

    log_w = np.log(truth["weight"])
    return Target(
        f"mixture-{k}", f"mixture of {k} normals, {factorial(k)} mirror modes", start, functions,
        log_likelihood=log_likelihood, log_prior=log_prior, data=jnp.asarray(y, jnp.float32),
        batch_size=batch, masses=(1 / len(orders),) * len(orders), num_steps=60_000,
        mode=lambda params: jnp.argmax(jnp.all(orders == jnp.argsort(params["mean"]), axis=1)),
        truth={
            "mean": jnp.array(truth["mean"]), "log_scale": jnp.log(jnp.array(truth["scale"])),
            "logit": jnp.array(log_w[0] - log_w[1] if k == 2 else log_w - log_w.mean()),
        }, num_replicas=12,
    )  # fmt: skip


def hierarchical_mixture(groups: int = 8, rows: int = 5_000, batch: int = 500) -> Target:
    """Return a mixture of two normals shifted by the offset of a row's group."""
    rng = np.random.default_rng(5)
    offset, group = 0.35 * rng.standard_normal(groups), rng.integers(groups, size=rows)
    label = (rng.random(rows) < 0.65).astype(int)
    y = np.take((-1.0, 1.2), label) + np.take((0.8, 0.6), label) * rng.standard_normal(rows)
    data = {"y": jnp.asarray(y + offset[group], jnp.float32), "group": jnp.asarray(group)}

    def log_likelihood(params, rows):
        means = params["mean"] + params["offset"][rows["group"]][:, None]
        parts = normal(rows["y"][:, None], means, jnp.exp(params["log_scale"]))
        logit = jnp.stack([params["logit"] / 2, -params["logit"] / 2])
        return jax.nn.logsumexp(parts + jax.nn.log_softmax(logit), axis=1)

    def log_prior(params):
        tau = jnp.exp(params["log_tau"])
        return (
            jnp.sum(normal(params["mean"], 0.0, 5.0))
            + jnp.sum(normal(params["log_scale"], 0.0, 1.0))
            + normal(params["logit"], 0.0, 1.5)
            + normal(params["log_tau"], -1.0, 1.0)
            + jnp.sum(normal(params["offset"], 0.0, tau))
        )

    def start(key):
        keys = jax.random.split(key, 5)
        return {
            "mean": 3 * jax.random.normal(keys[0], (2,)),
            "log_scale": 0.5 * jax.random.normal(keys[1], (2,)),
            "logit": jax.random.normal(keys[2]),
            "log_tau": -1 + 0.5 * jax.random.normal(keys[3]),
            "offset": 0.5 * jax.random.normal(keys[4], (groups,)),
        }

    def functions(params):
        order = jnp.argsort(params["mean"])
        sign = jnp.where(order[0] == 0, 1.0, -1.0)
        return {
            "mean 1": params["mean"][order][0], "mean 2": params["mean"][order][1],
            "log scale 1": params["log_scale"][order][0],
            "log scale 2": params["log_scale"][order][1],
            "logit": sign * params["logit"], "log tau": params["log_tau"],
            "offset 1": params["offset"][0], "offset 5": params["offset"][4],
        }  # fmt: skip

    return Target(
        "hierarchical-mixture", "hierarchical mixture, mirror modes", start, functions,
        log_likelihood=log_likelihood, log_prior=log_prior, data=data, batch_size=batch,
        mode=lambda params: jnp.where(params["mean"][0] < params["mean"][1], 0, 1),
        masses=(0.5, 0.5), num_steps=60_000, num_replicas=12,
        truth={
            "mean": jnp.array([-1.0, 1.2]), "log_scale": jnp.log(jnp.array([0.8, 0.6])),
            "logit": jnp.array(np.log(0.35 / 0.65)), "log_tau": jnp.array(-1.0),
            "offset": jnp.asarray(offset),
        },
    )  # fmt: skip
