"""Numbers computed from the records of the study of small networks."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from replicax import theory
from replicax.data.digits import NUM_TEST
from replicax.experiments.shared.index_process import simulate_trips
from replicax.experiments.shared.measured import Measured
from replicax.experiments.shared.study import Record, Results

NUM_REPLICAS = 8
LADDER = (0.02, 0.2)
RATE = 0.1  # the target swap rate of the window study
_REPEATS = 200
BEST = 0  # means the best window
COLD_TEMPERATURES = (1.0, 0.1, 0.01)
NUM_BATCHES = 100  # mini-batches to estimate the energy noise
NUM_ROWS = 1797 - NUM_TEST  # training images
STEPS_PER_EPOCH = 21  # mini-batches of 64


class Noise(NamedTuple):
    """The energy noise, averaged over seeds."""

    rate: np.ndarray  # (rung,) learning rates
    energy: np.ndarray  # (rung,) mean loss
    alone: np.ndarray  # (rung,) standard deviation over mini-batches
    pair: np.ndarray  # (pair,) sigma_p of neighbours on the same mini-batches


def best_window(rate: float) -> int:
    """Return the window of Theorem 1."""
    return int(theory.optimal_window(NUM_REPLICAS, rate))


def windows(results: Results) -> list[int]:
    return sorted(s["window"] for s, _ in results.where(rate=RATE))


def trips(results: Results, window: int) -> Measured:
    """Return round trips per 100 epochs, over seeds."""
    record = results.only(rate=RATE, window=window or best_window(RATE))
    return Measured.of(record["trips"])


def lemma(window: float, verdict_rate: Any = None) -> float:
    """Return round trips per 100 epochs by Lemma 1, at the target rate or at measured rates."""
    if verdict_rate is not None and np.any(np.asarray(verdict_rate) <= 0):
        return 0.0  # no replica passes a pair that never swaps
    if verdict_rate is None:
        rate = theory.round_trip_rate(1 - RATE, window, NUM_REPLICAS)
    else:
        rate = theory.round_trip_rate(1 - np.asarray(verdict_rate, float), window)
    return float(100 * STEPS_PER_EPOCH * rate)


def coins(results: Results, window: int) -> Measured:
    """Return trips per 100 epochs of coins with the measured rates, in runs of equal length."""
    ((settings, record),) = results.where(rate=RATE, window=window)
    rates, steps = record["verdict_rate"].mean(axis=0), settings["epochs"] * STEPS_PER_EPOCH
    counts = simulate_trips(rates, window, steps, repeats=_REPEATS)
    return Measured.of(100 * counts / settings["epochs"])


def sweep(results: Results) -> Iterator[tuple[float, Record]]:
    """Return target swap rates in order, with the record of each at its best window."""
    records = [(s["rate"], r) for s, r in results.where(kind="exchange")
               if s["window"] == best_window(s["rate"])]  # fmt: skip
    return iter(sorted(records, key=lambda pair: pair[0]))


def noise_of(results: Results) -> Noise:
    record = results["noise"]
    return Noise(
        np.asarray(record["learning_rate"][0], float),
        record["energy"].mean(axis=0),
        record["std"].mean(axis=0),
        record["difference_std"].mean(axis=0) / np.sqrt(2),
    )


def replica_counts(results: Results) -> list[list[Any]]:
    """Return P_star by cold temperature, from the noise of single energies and of differences."""
    noise = noise_of(results)
    rows: list[list[Any]] = []
    for cold in COLD_TEMPERATURES:
        temperatures = cold * noise.rate / noise.rate[0]
        apart = np.sqrt((noise.alone[1:] ** 2 + noise.alone[:-1] ** 2) / 2)
        counts = [
            theory.optimal_num_replicas(NUM_ROWS * sigma, temperatures)
            for sigma in (apart, noise.pair)
        ]
        ranges = [f"{c.num_replicas} ({c.lower:.0f} to {c.upper:.0f})" for c in counts]
        rows.append([f"{cold:g}", *ranges])
    return rows
