"""Real numbers: `rx.regression` and what it is given."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import replicax as rx
from bad_inputs import (
    INF,
    NAN,
    NOT_FLAGS,
    NOT_NAMES,
    NOT_NUMBERS,
    NOT_WHOLE,
    Thing,
    crossed,
    listed,
)

X = np.linspace(-1, 1, 12, dtype=np.float32)[:, None]
Y = X[:, 0] ** 2


def line(params: Any, inputs: Any) -> Any:
    return inputs @ params


def regress(**options: Any) -> rx.Trained:
    """A call of `rx.regression` and of `rx.train` that is fine but for what is given."""
    chosen = {
        "network": line,
        "data": (X, Y),
        "batch_size": 4,
        "start": (jnp.ones(1), {}),
    } | options
    start = chosen.pop("start")
    problem = rx.regression(chosen.pop("network"), chosen.pop("data"), **chosen)
    return rx.train(problem, start, epochs=1, num_replicas=2, progress=False)


LISTED: dict[str, tuple[dict[str, Any], str]] = {
    "network nothing": ({"network": None}, "network"),
    "network of one argument": ({"network": lambda params: params}, "network inputs"),
    "network that fails": ({"network": lambda params, x: params["w"]}, "network"),
    "network of two outputs": ({"start": (jnp.ones((1, 2)), {})}, "network outputs"),
    "network of one output and its noise": ({"noise": "network"}, "network outputs noise"),
    "network of other inputs": ({"start": (jnp.ones(3), {})}, "network"),
    "data one array": ({"data": X}, "data"),
    "data nothing": ({"data": None}, "data"),
    "data of unequal rows": ({"data": (X, Y[:3])}, "data rows"),
    "data nan": ({"data": (X, Y * NAN)}, "data NaN"),
    "data infinite": ({"data": (X * INF, Y)}, "data"),
    "data in words": ({"data": (X, ["a"] * 12)}, "data"),
    "data objects": ({"data": (X, Thing())}, "data"),
    "data of none": ({"data": (X[:0], Y[:0])}, "data"),
    "data complex": ({"data": (X, Y * 1j)}, "targets"),
    "targets of three axes": ({"data": (X, Y[:, None, None])}, "targets"),
    "test one array": ({"test": X}, "test"),
    "test of other inputs": ({"test": (np.ones((3, 2)), np.ones(3))}, "test"),
    "test of more targets": ({"test": (X, np.stack([Y, Y], 1))}, "test targets"),
    "test nan": ({"test": (X, Y * NAN)}, "test NaN"),
    "noise 0": ({"noise": 0.0}, "noise"),
    "noise negative": ({"noise": -1.0}, "noise"),
    "noise misspelt": ({"noise": "learnt"}, "noise learned"),
    "noise infinite": ({"noise": INF}, "noise"),
    "degrees 2": ({"likelihood": "student", "degrees": 2.0}, "degrees"),
    "degrees in words": ({"likelihood": "student", "degrees": "many"}, "degrees"),
    "a likelihood that lacks a letter": ({"likelihood": "gausian"}, "likelihood gaussian"),
    "a misspelt option": ({"batchsize": 3}, "batchsize"),
    "start nothing": ({"start": None}, "start"),
    "size too large": ({"batch_size": 13}, "batch_size"),
}
ROWS = [
    *listed("regression", regress, LISTED),
    *crossed("regression", regress, ("batch_size",), NOT_WHOLE),
    *crossed("regression", regress, ("noise", "weight_decay"), NOT_NUMBERS),
    *crossed("regression", regress, ("likelihood",), NOT_NAMES),
    *crossed("regression", regress, ("standardise", "prior_in_energy"), NOT_FLAGS),
]
