"""The ladder: a learning rate and a temperature for every rung."""

from typing import Any, NamedTuple

import numpy as np

from replicax.errors import at_least, check_number
from replicax.theory.barrier import barrier as barrier
from replicax.theory.barrier import equal_rejection_temperatures as equal_rejection_temperatures


class Ladder(NamedTuple):
    """Hyper-parameters of each rung, coldest first."""

    learning_rate: Any  # eta^(p)                     shape (rung,)
    temperature: Any  # tau^(p) of the injected noise shape (rung,), 0 means plain SGD
    scale: Any = ()  # of each parameter, squared, where it is tuned     leading axis: rung


def geometric(cold: float, hot: float, num_replicas: int) -> np.ndarray:
    """Evenly spaced on a logarithmic scale, both ends exact and nothing beyond them.

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
