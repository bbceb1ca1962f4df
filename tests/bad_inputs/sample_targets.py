"""Energies, starts and data of `rx.sample` and `rx.bayesian`."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from common import ROWS as DATA

import replicax as rx
from bad_inputs import NAN, NOT_WHOLE, Meant, Refused, Thing, bowl, listed, sample, with_batch


def branches(x: Any) -> Any:
    if x[0] > 0:
        return jnp.sum(x)
    return jnp.sum(x**2)


def loops(x: Any) -> Any:
    while jnp.sum(x) > 1.0:
        x = x / 2
    return jnp.sum(x)


def in_numpy(x: Any) -> Any:
    return np.sum(np.asarray(x) ** 2)


def in_floats(x: Any) -> Any:
    return math.exp(x[0])


def as_float(x: Any) -> Any:
    return float(jnp.sum(x))


def as_item(x: Any) -> Any:
    return jnp.sum(x).item()


def masked(x: Any) -> Any:
    return jnp.sum(x[x > 0])


def ranged(x: Any) -> Any:
    return sum(x[0] for _ in range(x[1]))


def asserts(x: Any) -> Any:
    assert jnp.all(jnp.isfinite(x))
    return jnp.sum(x)


def assigns(x: Any) -> Any:
    x[0] = 0.0
    return jnp.sum(x)


def misses(x: Any) -> Any:
    return jnp.sum(x["weights"])


def of_three(x: Any) -> Any:
    return jnp.sum((x - jnp.zeros(3)) ** 2)


HERE = "sample_targets.py"
ENERGIES: dict[str, tuple[dict[str, Any], str]] = {
    "if": ({"target": branches}, f"energy line {HERE} jnp.where"),
    "while": ({"target": loops}, f"energy line {HERE} while_loop"),
    "numpy": ({"target": in_numpy}, f"energy line {HERE} jax.numpy"),
    "math": ({"target": in_floats}, f"energy line {HERE} jnp"),
    "float()": ({"target": as_float}, f"energy line {HERE} jnp"),
    ".item()": ({"target": as_item}, f"energy line {HERE}"),
    "a mask": ({"target": masked}, f"energy line {HERE} jnp.where"),
    "a range": ({"target": ranged}, f"energy line {HERE}"),
    "an assertion": ({"target": asserts}, f"energy line {HERE}"),
    "an assignment": ({"target": assigns}, f"energy line {HERE} .at["),
    "an entry that is not there": ({"target": misses}, f"energy line {HERE} params"),
    "another shape": ({"target": of_three}, f"energy line {HERE} params"),
    "a vector": ({"target": lambda x: x**2}, "energy shape scalar"),
    "shape (1,)": ({"target": lambda x: jnp.sum(x)[None]}, "energy shape scalar"),
    "complex": ({"target": lambda x: jnp.sum(x) * 1j}, "energy real"),
    "a whole number": ({"target": lambda x: jnp.array(3)}, "energy floating-point"),
    "a truth value": ({"target": lambda x: jnp.all(x > 0)}, "energy floating-point"),
    "two values": ({"target": lambda x: (jnp.sum(x), 1.0)}, "energy scalar"),
    "nothing": ({"target": lambda x: None}, "energy scalar"),
    "words": ({"target": lambda x: "low"}, "energy"),
    "an object": ({"target": lambda x: Thing()}, "energy"),
    "infinite": ({"target": lambda x: jnp.sum(x) + jnp.inf}, "energy start"),
    "nan": ({"target": lambda x: jnp.sum(x) * jnp.nan}, "energy start"),
    "no function": ({"target": 3}, "target energy(params"),
    "an array": ({"target": jnp.zeros(2)}, "target energy(params"),
    "not given": ({"target": None}, "target energy(params"),
    "in words": ({"target": "bowl"}, "target energy(params"),
    "in a list": ({"target": [bowl]}, "target energy(params"),
    "four arguments": ({"target": lambda a, b, c, d: jnp.sum(a)}, "arguments (params, batch, key)"),
    "no argument": ({"target": lambda: jnp.zeros(())}, "arguments (params)"),
    "keyword arguments": ({"target": lambda *, x: jnp.sum(x)}, "arguments (params)"),
    "a built-in": ({"target": print}, "energy"),
    "a gradient no function": ({"target": rx.Target(bowl, gradient=3)}, "gradient"),  # type: ignore
    "a gradient of another shape": (
        {"target": rx.Target(bowl, gradient=lambda x: jnp.zeros(5))},
        "gradient",
    ),
    "a gradient of one number": ({"target": rx.Target(bowl, gradient=lambda x: 1.0)}, "gradient"),
    "a noise no function": ({"target": rx.Target(bowl, noise=3)}, "noise"),  # type: ignore
    "a gradient apart, before": (
        {"target": rx.Target(bowl, lambda x: 2 * x), "energy_at": "before"},
        "energy_at",
    ),
    "params and energy swapped": ({"target": jnp.zeros(2), "start": bowl}, "target energy(params"),
}
STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "not given": ({"start": None}, "start"),
    "empty": ({"start": {}}, "start"),
    "no numbers": ({"start": jnp.zeros(0)}, "start"),
    "in words": ({"start": "zero"}, "start"),
    "an object": ({"start": Thing()}, "start"),
    "words in a tree": ({"start": {"w": jnp.zeros(2), "name": "a"}}, "start"),
    "words in an array": ({"start": np.array(["a", "b"])}, "start"),
    "objects in an array": ({"start": np.array([Thing()])}, "start"),
    "whole numbers": ({"start": jnp.zeros(2, int)}, "start floating-point"),
    "a whole number": ({"start": 0}, "start floating-point"),
    "truth values": ({"start": jnp.zeros(2, bool)}, "start floating-point"),
    "complex": ({"start": jnp.zeros(2, complex)}, "start floating-point"),
    "nan": ({"start": jnp.array([0.0, NAN])}, "start"),
    "another shape": ({"target": of_three}, "params"),
    "a function of nothing": ({"start": lambda: jnp.zeros(2)}, "start key"),
    "a function of two": ({"start": lambda key, size: jnp.zeros(2)}, "start key"),
    "a function that returns nothing": ({"start": lambda key: None}, "start"),
    "a function that returns words": ({"start": lambda key: "zero"}, "start"),
    "a function that fails": ({"start": lambda key: jnp.zeros(2)[key]}, "start"),
    "a function that branches": (
        {"start": lambda key: jnp.zeros(2) if jax.random.uniform(key) > 0 else jnp.ones(2)},
        "start line",
    ),
    "too many replicas": ({"start": rx.per_replica(jnp.zeros((4, 2)))}, "per_replica"),
    "replicas of numbers": ({"start": rx.per_replica(1.0)}, "per_replica"),
    "replicas of nothing": ({"start": rx.per_replica({})}, "per_replica"),
    "replicas of words": ({"start": rx.per_replica("abc")}, "start"),
    "unequal replicas": (
        {"start": rx.per_replica({"a": jnp.zeros((3, 2)), "b": jnp.zeros((2, 2))})},
        "per_replica",
    ),
    "chains or replicas": (
        {"start": rx.per_replica(jnp.zeros((3, 3, 2))), "num_chains": 3},
        "per_replica by_chain",
    ),
    "no chains where asked": (
        {"start": rx.per_replica(jnp.zeros((3, 2)), by_chain=True), "num_chains": 2},
        "per_replica",
    ),
}
ON_ROWS: dict[str, Any] = {"target": with_batch, "batches": DATA, "batch_size": 3}
BATCHES: dict[str, tuple[dict[str, Any], str]] = {
    "for an energy that takes none": ({"batches": DATA, "batch_size": 3}, "batches energy"),
    "of a function for an energy that takes none": (
        {"batches": lambda step: DATA[:3]},
        "batches energy",
    ),
    "none for an energy that needs them": ({"target": with_batch}, "batches energy"),
    "none for one that needs a key, too": (
        {"target": lambda x, rows, key: jnp.sum(x) + jnp.mean(rows)},
        "batches energy",
    ),
    "none for an entry": ({"target": lambda x, rows: jnp.sum(x - rows["x"])}, "batches energy"),
    "no size": ({"target": with_batch, "batches": DATA}, "batch_size"),
    "size alone": ({"batch_size": 3}, "batch_size batches"),
    "size too large": ({**ON_ROWS, "batch_size": 41}, "batch_size"),
    "size 0": ({**ON_ROWS, "batch_size": 0}, "batch_size"),
    "size negative": ({**ON_ROWS, "batch_size": -3}, "batch_size"),
    "of words": ({**ON_ROWS, "batches": np.array(["a"] * 8)}, "batches"),
    "of objects": ({**ON_ROWS, "batches": np.array([Thing()] * 8)}, "batches"),
    "of dates": ({**ON_ROWS, "batches": np.zeros(8, "datetime64[s]")}, "batches"),
    "of one number": ({**ON_ROWS, "batches": np.float32(3)}, "batches"),
    "of nothing": ({**ON_ROWS, "batches": {}}, "batches"),
    "of no rows": ({**ON_ROWS, "batches": np.zeros((0, 2))}, "batches rows"),
    "of unequal rows": ({**ON_ROWS, "batches": (DATA, DATA[:9])}, "batches rows"),
    "of lists": ({**ON_ROWS, "batches": [[1.0, 2.0], [3.0]]}, "batches"),
    "a number": ({"target": with_batch, "batches": 3}, "batches"),
    "in words": ({"target": with_batch, "batches": "rows"}, "batches"),
    "an object": ({"target": with_batch, "batches": Thing()}, "batches"),
    "nothing to iterate": ({"target": with_batch, "batches": iter([])}, "batches"),
    "an empty list": ({"target": with_batch, "batches": []}, "batches"),
    "a function of nothing": ({"target": with_batch, "batches": lambda: DATA[:3]}, "batches step"),
    "a function of two": ({"target": with_batch, "batches": lambda a, b: DATA[:3]}, "batches step"),
    "a function that returns nothing": (
        {"target": with_batch, "batches": lambda k: None},
        "batches",
    ),
    "a function that returns words": ({"target": with_batch, "batches": lambda k: "a"}, "batches"),
    "a function that returns objects": (
        {"target": with_batch, "batches": lambda k: np.array([Thing()])},
        "batches",
    ),
    "unequal by step": ({"target": with_batch, "batches": lambda k: DATA[: k + 1]}, "batches step"),
    "unequal in a list": ({"target": with_batch, "batches": [DATA[:3], DATA[:2]] * 40}, "batches"),
    "of other trees by step": (
        {"target": lambda x, b: bowl(x), "batches": [{"x": DATA}, {"y": DATA}] * 40},
        "batches",
    ),
    "a function under a rule with noise": (
        {
            "target": with_batch,
            "batches": lambda step: DATA[:3],
            "rule": "bias_corrected",
            "temperature": (1.0, 2.0),
        },
        "batch_size",
    ),
    "metropolis on mini-batches": (
        {**ON_ROWS, "rule": "metropolis", "temperature": (1.0, 2.0)},
        "rule batch_size",
    ),
    "the exact sampler on mini-batches": (
        {**ON_ROWS, "method": "posterior"},
        "noisy learning_rate",
    ),
    "a rate that tunes itself on mini-batches": (
        {**ON_ROWS, "learning_rate": "auto"},
        "learning_rate",
    ),
    "beside a posterior": (
        {
            "target": rx.bayesian(lambda m, r: -(r**2), lambda m: 0.0 * m, DATA[:, 0]),
            "batches": DATA,
        },
        "batches",
    ),
}


def posterior(**options: Any) -> rx.Posterior:
    """A call of `rx.bayesian` that is fine but for what is given, and of `rx.sample`."""
    chosen: dict[str, Any] = {
        "log_likelihood": lambda mean, rows: -((rows - mean) ** 2) / 2,
        "log_prior": lambda mean: -(mean**2) / 200,
        "data": DATA[:, 0],
    } | options
    parts = {name: chosen.pop(name) for name in ("energy_at", "kernel") if name in chosen}
    method = rx.posterior(**parts)
    return rx.sample(rx.bayesian(**chosen), 0.5, num_steps=100, method=method, progress=False)


POSTERIORS: dict[str, tuple[dict[str, Any], str]] = {
    "likelihood no function": ({"log_likelihood": 3}, "log_likelihood"),
    "likelihood not given": ({"log_likelihood": None}, "log_likelihood"),
    "likelihood of one": ({"log_likelihood": lambda mean: mean}, "log_likelihood"),
    "likelihood of three": ({"log_likelihood": lambda a, b, c: a}, "log_likelihood"),
    "likelihood summed": ({"log_likelihood": lambda m, r: -jnp.sum(r**2)}, "log_likelihood row"),
    "likelihood by two": ({"log_likelihood": lambda m, r: jnp.stack([r, r], 1)}, "log_likelihood"),
    "likelihood of nothing": ({"log_likelihood": lambda m, r: None}, "log_likelihood"),
    "likelihood of words": ({"log_likelihood": lambda m, r: "low"}, "log_likelihood"),
    "likelihood complex": ({"log_likelihood": lambda m, r: 1j * r}, "log_likelihood"),
    "likelihood of whole numbers": (
        {"log_likelihood": lambda m, r: jnp.zeros(len(r), int)},
        "log_likelihood",
    ),
    "likelihood that branches": (
        {"log_likelihood": lambda m, r: r if m > 0 else -r},
        "log_likelihood line",
    ),
    "likelihood in numpy": ({"log_likelihood": lambda m, r: np.log(r**2)}, "log_likelihood line"),
    "likelihood infinite": ({"log_likelihood": lambda m, r: -jnp.inf * r**2}, "log_likelihood"),
    "prior no function": ({"log_prior": 0.0}, "log_prior"),
    "prior not given": ({"log_prior": None}, "log_prior"),
    "prior of two": ({"log_prior": lambda a, b: a}, "log_prior"),
    "prior of an array": ({"log_prior": lambda m: jnp.zeros(3) * m}, "log_prior"),
    "prior of nothing": ({"log_prior": lambda m: None}, "log_prior"),
    "prior of words": ({"log_prior": lambda m: "flat"}, "log_prior"),
    "prior complex": ({"log_prior": lambda m: 1j * m}, "log_prior"),
    "prior infinite": ({"log_prior": lambda m: m - jnp.inf}, "log_prior"),
    "prior nan": ({"log_prior": lambda m: m * jnp.nan}, "log_prior"),
    "prior that branches": ({"log_prior": lambda m: m if m > 0 else -m}, "log_prior line"),
    "data one number": ({"data": 3.0}, "data rows"),
    "data nothing": ({"data": None}, "data"),
    "data empty": ({"data": {}}, "data"),
    "data without rows": ({"data": np.zeros(0)}, "data rows"),
    "data of words": ({"data": np.array(["a", "b"])}, "data"),
    "data in words": ({"data": "rows.csv"}, "data"),
    "data of objects": ({"data": np.array([Thing(), None])}, "data"),
    "data of unequal rows": ({"data": (DATA, DATA[:3])}, "data rows"),
    "data of numbers in a list": ({"data": [1.0, 2.0]}, "data"),
    "data nan": ({"data": np.full(4, NAN)}, "data"),
    "size too large": ({"batch_size": 41}, "batch_size"),
    "size 0": ({"batch_size": 0}, "batch_size"),
    "size 1": ({"batch_size": 1}, "batch_size"),
    "rows that judge": ({"batch_size": 8, "energy_at": 30}, "energy_at"),
    "energy that judges": ({"batch_size": 8, "energy_at": "all"}, "energy_at all_rows"),
    "energy before the move": ({"energy_at": "before"}, "energy_at moved"),
    "hmc on mini-batches": ({"batch_size": 8, "kernel": "hmc"}, "kernel batch_size"),
}
MEANT = [
    Meant(
        "bayesian: a size of all rows",
        lambda: rx.bayesian(lambda m, r: -(r**2), lambda m: 0.0 * m, DATA[:, 0], batch_size=40),
        "as without a size: every step sees all rows",
        lambda posterior: posterior.batches.has_all_rows,
    ),
    Meant(
        "per_replica: chain and replica",
        lambda: rx.per_replica(jnp.zeros((2, 3, 2))),
        "the shapes decide later",
        lambda starts: starts.by_chain is None,
    ),
]
ROWS = [
    Refused(
        "start: by_chain in words",
        lambda: rx.per_replica(jnp.zeros((3, 2)), by_chain="no"),  # type: ignore
        ("by_chain",),
    ),
    *listed("energy", sample, ENERGIES),
    *listed("start", sample, STARTS),
    *listed("batches", sample, BATCHES),
    *[
        Refused(
            f"batches: batch_size {k}",
            lambda v=v: sample(**ON_ROWS | {"batch_size": v}),
            ("batch_size",),
        )
        for k, v in NOT_WHOLE.items()
    ],
    *listed("bayesian", posterior, POSTERIORS),
    *[
        Refused(f"bayesian: batch_size {k}", lambda v=v: posterior(batch_size=v), ("batch_size",))
        for k, v in NOT_WHOLE.items()
    ],
    *MEANT,
]
