"""The ladder: a learning rate and a temperature for every rung."""

from typing import Any, NamedTuple

import numpy as np

from replicax.errors import at_least, check_number


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


def barrier(rejection_rate: np.ndarray) -> float:
    """Lambda = sum_p r_p: how far apart the two ends of the ladder are (Syed et al., 2022).

    With exact energies the sum hardly depends on the number of rungs once there are enough.
    """
    return float(np.sum(rejection_rate))


def equal_rejection_temperatures(
    temperature: np.ndarray, rejection_rate: np.ndarray, num_replicas: int | None = None
) -> np.ndarray:
    """Temperatures at which every pair would reject equally often, both ends fixed.

    For exact energies: the cumulated rejection rates are points of the barrier as a function of
    the inverse temperature; a monotone cubic joins them and is cut into equal parts (Syed et
    al., 2022, Algorithm 2). `num_replicas` may differ from that of the ladder measured.

    >>> hot_pair_rejects = equal_rejection_temperatures([1.0, 2.0, 4.0], [0.1, 0.5])
    >>> bool(hot_pair_rejects[1] > 2.0)
    True
    """
    from scipy.interpolate import PchipInterpolator

    temperature = np.asarray(temperature, float)
    rejection_rate = np.asarray(rejection_rate, float)
    if not (np.all(temperature > 0) and np.all(np.diff(temperature) > 0)):  # NaN fails too
        raise ValueError("temperature must be positive and strictly increasing, one per rung.")
    if rejection_rate.shape != (temperature.size - 1,):
        raise ValueError(
            f"{temperature.size} temperatures have {temperature.size - 1} pairs, but "
            f"rejection_rate has shape {rejection_rate.shape}: give one rate per pair."
        )
    if not np.all((rejection_rate >= 0) & (rejection_rate <= 1)):
        raise ValueError("rejection_rate holds probabilities: they must lie in [0, 1].")
    num_replicas = temperature.size if num_replicas is None else num_replicas
    at_least("num_replicas", num_replicas, 2)
    # A pair that never rejected would make the barrier flat there and not invertible.
    steps = np.maximum(rejection_rate, 1e-6)
    at_rung = np.concatenate([[0.0], np.cumsum(steps)])
    inverse_temperature = PchipInterpolator(at_rung, 1 / temperature)
    tuned = 1 / inverse_temperature(np.linspace(0.0, at_rung[-1], num_replicas))
    tuned[0], tuned[-1] = temperature[0], temperature[-1]
    return tuned
