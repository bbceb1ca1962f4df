"""Planets in the radial velocities of a star, found blind, and the evidence for each number.

    python examples/planets.py                       # a simulated star
    pip install radvel; python examples/planets.py HD164922 --planets 2
    python examples/planets.py TOI141 --planets 2

The velocities come with the package radvel. Nothing starts near a known answer: periods are
log-uniform up to 3,000 days. Orbits are Keplerian; each instrument has an offset and a jitter.
Offsets and amplitudes, in which velocities are linear, are integrated out.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx

AMPLITUDE, OFFSET = (
    10.0,
    100.0,
)  # prior standard deviations, m/s: of K cos w and K sin w; of offsets
SHORTEST = {"TOI141": 0.5}  # days; 1.1 for the others
LONGEST = 3_000.0
MOST_ECCENTRIC = 0.9


class Velocities(NamedTuple):
    """Radial velocities of a star."""

    time: np.ndarray  # days from the middle of the observations
    velocity: np.ndarray  # m/s
    error: np.ndarray
    instrument: np.ndarray  # its number

    @property
    def num_instruments(self) -> int:
        return int(self.instrument.max()) + 1


def read(star: str) -> Velocities:
    """Read the velocities of a star from the installed package radvel, and bin them by night."""
    folder = radvel_folder()
    if star == "HD164922":
        lines = (folder / "164922_fixed.txt").read_text().split("\n")[1:]
        rows = [line.split()[:4] for line in lines if line.strip()]
    else:
        lines = (folder / "rvs_toi141.dat").read_text().split("\n")
        rows = [line.split()[:4] for line in lines if line.strip()]
    at, velocity, error = np.array([row[:3] for row in rows], float).T
    width = 1.0 if star == "HD164922" else 0.02  # the nearest planet of TOI-141 takes a day
    return binned(at, velocity, error, np.array([row[3] for row in rows]), width)


def radvel_folder() -> Path:
    """Return the folder of data that radvel installs, beside itself or beside all packages."""
    places = (Path(place) / "radvel_example_data" for place in (sys.prefix, *sys.path))
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise SystemExit("The velocities come with radvel: run `pip install radvel`.")
    return folder


def binned(at: np.ndarray, velocity: np.ndarray, error: np.ndarray, names: np.ndarray,
           width: float = 1.0) -> Velocities:  # fmt: skip
    """Return weighted means over so many days, by instrument."""
    instrument = np.unique(names, return_inverse=True)[1]
    place = np.stack([np.floor(at / width), instrument])
    nights = np.unique(place, axis=1, return_inverse=True)[1].ravel()
    weight = np.bincount(nights, 1 / error**2)

    def mean(x: np.ndarray) -> np.ndarray:
        return np.bincount(nights, x / error**2) / weight

    middle = (at.min() + at.max()) / 2
    number = mean(instrument).round().astype(int)
    velocity = mean(velocity)
    for i in range(instrument.max() + 1):
        velocity[number == i] -= velocity[number == i].mean()
    return Velocities(mean(at) - middle, velocity, weight**-0.5, number)


def simulated(periods=(23.7, 310.0), num_nights: int = 60, seed: int = 0) -> Velocities:
    """Return velocities of a star with planets of these periods, seen by two instruments."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.uniform(0, 900, num_nights))
    velocity = rng.normal(0, 1.5, num_nights)
    for period, amplitude, e in zip(periods, (6.0, 9.0), (0.1, 0.3)):
        columns = np.asarray(orbit(at, period, e, rng.uniform(0, 2 * np.pi)))
        velocity += columns @ (amplitude * np.array([np.cos(1.0), np.sin(1.0)]))
    names = np.where(np.arange(num_nights) % 3, "a", "b")
    return binned(at, velocity + 20 * (names == "b"), np.full(num_nights, 1.2), names)


def orbit(at, period, e, anomaly):
    """Return the velocities of a planet of amplitude 1 with the argument of its periastron at 0,
    and at 90 degrees  (time, 2); `anomaly` is the mean one in the middle."""
    mean = jnp.mod(2 * jnp.pi * at / period + anomaly + jnp.pi, 2 * jnp.pi) - jnp.pi
    eccentric = mean + 0.85 * e * jnp.sign(mean)
    for step in range(3):  # of Halley and, the last one, of Newton, to solve Kepler's equation
        eccentric = jax.lax.stop_gradient(eccentric)
        sin, cos = e * jnp.sin(eccentric), e * jnp.cos(eccentric)
        gap, slope = eccentric - sin - mean, 1 - cos
        curved = jax.lax.stop_gradient(0.5 * gap * sin / slope) if step < 2 else 0.0
        eccentric = eccentric - gap / (slope - curved)
    cos, sin = jnp.cos(eccentric), jnp.sin(eccentric)
    far = 1 / (1 - e * cos)
    return jnp.stack([(cos - e) * far + e, -jnp.sqrt(1 - e**2) * sin * far], axis=-1)


def build(star: Velocities, num_planets: int, shortest: float = 1.1):
    """Return the posterior of some planets, for `rx.sample`."""
    at, velocity, error = (jnp.asarray(x, jnp.float32) for x in star[:3])
    offsets = jax.nn.one_hot(star.instrument, star.num_instruments)
    scale = jnp.array([OFFSET] * star.num_instruments + [AMPLITUDE] * 2 * num_planets)
    priors = {"jitter": rx.priors.half_normal(5.0, shape=star.num_instruments)}
    if num_planets:
        priors["period"] = rx.priors.log_uniform(shortest, LONGEST, shape=num_planets)
        priors["shape"] = rx.priors.disk(num_planets)  # uniform in eccentricity and mean anomaly

    def log_likelihood(values):
        noise = jnp.sqrt(error**2 + values["jitter"][star.instrument] ** 2)
        columns = [offsets]
        for i in range(num_planets):
            e, anomaly = eccentricity_and_anomaly(values["shape"][i])
            columns.append(orbit(at, values["period"][i], e, anomaly))
        columns = scale * jnp.concatenate(columns, axis=1)
        table = jnp.concatenate([columns, velocity[:, None]], axis=1) / noise[:, None]
        square, log_volume = integrated(jax.lax.optimization_barrier(table))  # computed once
        constants = jnp.sum(jnp.log(noise)) + len(at) / 2 * jnp.log(2 * jnp.pi)
        return -0.5 * (square + log_volume) - constants

    def in_words(values):
        if not num_planets:
            return values
        e, anomaly = jax.vmap(eccentricity_and_anomaly)(values["shape"])
        return {"period": values["period"], "eccentricity": e, "anomaly": anomaly,
                "jitter": values["jitter"]}  # fmt: skip

    labels = {"period": 0, "shape": 0} if num_planets > 1 else None
    return rx.bayesian(
        log_likelihood,
        priors,
        exchangeable=labels,
        order_by="period" if labels else None,
        constrain=in_words,
    )


def integrated(table):
    """Return what standard normal coefficients of the columns but the last leave of the square of
    the last, and the log determinant of their precision, by Gauss's elimination."""
    square, log_volume = table.T @ table, 0.0
    for _ in range(table.shape[1] - 1):
        pivot, row = square[0, 0] + 1.0, square[0, 1:]
        square = square[1:, 1:] - jnp.outer(row, row) / pivot
        log_volume += jnp.log(pivot)
    return square[0, 0], log_volume


def eccentricity_and_anomaly(point):
    """Return both, given a point of the disk."""
    square = jnp.sum(point**2)
    safe = jnp.where(square > 0, point, jnp.array([1.0, 0.0]))
    return MOST_ECCENTRIC * square, jnp.arctan2(safe[1], safe[0])


def posterior_of(star: str, num_planets: int):
    """Return the posterior of a star by its name."""
    velocities = simulated() if star == "simulated" else read(star)
    return build(velocities, num_planets, SHORTEST.get(star, 1.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "star", nargs="?", default="simulated", choices=("simulated", "HD164922", "TOI141")
    )
    parser.add_argument("--planets", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    posterior = posterior_of(arguments.star, arguments.planets)
    before = time.process_time()
    run = rx.sample(posterior, seed=arguments.seed)
    print(f"{arguments.star}: {time.process_time() - before:.0f} s of processor time")
    print(run.summary())
    print("log evidence", run.log_evidence())


if __name__ == "__main__":
    main()
