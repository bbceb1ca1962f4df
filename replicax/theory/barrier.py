"""The barrier of a ladder, and temperatures at which all pairs reject equally often."""

import numpy as np

from replicax.errors import at_least


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
