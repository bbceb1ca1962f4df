"""The ladder: a learning rate and a temperature for every rung, from what users write."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from replicax.algorithm.swap import Rule
from replicax.errors import at_least, check_number


class Metric(NamedTuple):
    """The metric of the local moves: L of each rung, L L' close to a covariance."""

    root: Any  #                                              shape (rung, d, d)


class Ladder(NamedTuple):
    """Hyper-parameters of each rung, coldest first."""

    learning_rate: Any  # eta^(p)                     shape (rung,)
    temperature: Any  # tau^(p) of the injected noise shape (rung,), 0 means plain SGD
    # Where it is tuned, a Metric, or of each parameter the square of its scale; leading axis: rung
    scale: Any = ()


def geometric(cold: float, hot: float, num_replicas: int) -> np.ndarray:
    """Return values evenly spaced on a logarithmic scale, both ends exact.

    >>> geometric(1.0, 8.0, 4).tolist()
    [1.0, 2.0, 4.0, 8.0]
    """
    at_least("num_replicas", num_replicas, 1)
    for name, end in (("cold", cold), ("hot", hot)):
        check_number(name, end, lambda x: x > 0, "the ends of a ladder must be positive numbers")
    if num_replicas == 1:
        return np.array([cold])
    # Rounding must not carry an inner rung beyond an end: equal ends give equal rungs.
    rungs = np.clip(np.geomspace(cold, hot, num_replicas), min(cold, hot), max(cold, hot))
    rungs[0], rungs[-1] = cold, hot
    return rungs


def per_rung(name: str, value: Any, num_replicas: int) -> np.ndarray:
    """Return one value per rung, given one for all, a pair (cold, hot) or one per rung."""
    values = np.asarray(value, float)
    if values.ndim == 0:
        return np.full(num_replicas, float(values))
    if values.shape == (num_replicas,):
        return values
    if values.shape == (2,):
        if not np.all(values > 0):  # NaN fails too
            raise ValueError(f"{name} is {value}; the two ends of a ladder must be positive.")
        if values[1] == np.inf:  # the prior, above the hottest of the others
            return np.append(geometric(values[0], 1000.0 * values[0], num_replicas - 1), np.inf)
        return geometric(values[0], values[1], num_replicas)
    raise ValueError(
        f"{name} has shape {values.shape}; with {num_replicas} replicas give one number, a pair "
        f"(cold, hot), or {num_replicas} values."
    )


def as_kept(by_rung: np.ndarray) -> np.ndarray:
    """Return the values of rungs as JAX has them."""
    with np.errstate(over="ignore"):
        return by_rung.astype(jnp.result_type(float))


def temperatures(value: Any, num_replicas: int, rule: Rule) -> np.ndarray:
    """Return the temperatures of all rungs; raise if the rule cannot compare them."""
    by_rung = per_rung("temperature", value, num_replicas)
    if np.ndim(value) == 0:  # the cold rung's; SGD above
        by_rung[1:] = 0
    if np.any(np.isnan(by_rung)) or np.any(by_rung < 0):
        raise ValueError(f"temperature is {value}; temperatures must be at least 0.")
    warm = by_rung[by_rung > 0]  # rungs of temperature 0 are SGD, and stand anywhere
    if np.any(np.diff(warm) < 0) and not rule.uses_temperature:
        raise ValueError(
            f"temperature is {value}; temperatures must not decrease: the first belongs to the "
            "coldest rung, the last to the hottest."
        )
    kept = as_kept(by_rung)
    increasing = np.all(kept > 0) and np.all(np.diff(kept) > 0)
    increasing &= np.array_equal(np.isinf(kept), np.isinf(by_rung))
    if rule.uses_temperature and not increasing:
        raise ValueError(
            f'The rule "{rule.name}" compares temperatures, but temperature is {value}: give '
            "strictly increasing positive ones, a pair (cold, hot) or one per rung."
        )
    return by_rung
