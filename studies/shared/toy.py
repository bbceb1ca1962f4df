"""The 25 modes of section 5.1: sampling them, and distances of draws to the truth."""

from typing import Any

import numpy as np

import replicax as rx
from studies.shared.study import Work, split_options

NUM_REPLICAS = 16
TARGET = rx.targets.modes25()  # one object, so that all cells share its compiled program
PAPER: dict[str, Any] = {
    "num_replicas": NUM_REPLICAS,
    "burn_in": 100,
    "thin": 10,
    "seed": 1,
    # and of the method
    "schedule": "deo_star",
    "learning_rate": (0.003, 0.6),
    "target_swap_rate": 0.4,
    "buffer": 4.0,
    "buffer_gain": rx.Gain(),  # as that of the ladder
}
_CORNERS = (0, 4, 20, 24)  # of the 25 cells
_SPAN, _BINS = 5.0, 40  # divergences are taken on [-5, 5]^2, in bins of width 1/4


def sample(work: Work, num_chains: int, target: rx.Target = TARGET, **options: Any) -> rx.Posterior:
    """Sample with the paper's settings, changed by `options`; each chain is one seed."""
    of_method, of_run = split_options({**PAPER, "num_chains": num_chains, **options})
    method = rx.Method("25 modes", **of_method)
    return work.sample(target, rx.targets.modes25_start, method=method, **of_run)


def num_draws(num_steps: int) -> int:
    """Return the number of draws per chain of the paper's run."""
    return (num_steps - PAPER["burn_in"]) // PAPER["thin"]


def exact_draws(seeds: int, num_steps: int) -> np.ndarray:
    """Return independent exact draws, as many as the chains would make  (seed, draw, 2)."""
    rng, count = np.random.default_rng(1), num_draws(num_steps)
    return np.stack([rx.targets.modes25_draws(rng, count) for _ in range(seeds)])


def trips_per_1000(posterior: rx.Posterior) -> np.ndarray:
    """Return the round trips of all replicas per 1,000 steps, by chain."""
    return 1000 * posterior.round_trips / posterior.num_steps


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """Return `count` evenly spaced draws of each chain  (chain, count, 2)."""
    chosen = np.linspace(0, draws.shape[1] - 1, count).round().astype(int)
    return draws[:, chosen]


def distances(draws: np.ndarray) -> dict[str, np.ndarray]:
    """Return distances of draws (chain, draw, 2) to the truth, by chain and pooled over chains.

    `tv` is the total variation of the 25 renormalised mode masses, `kl` the divergence of the
    draws from the truth on a grid of bins of width 1/4, `corner` the mass of the four corner
    modes and `outside` the mass outside the 25 cells, both divided by the true mass.
    """
    return {
        **{
            name: np.array([measure(chain) for chain in draws])
            for name, measure in _MEASURES.items()
        },
        **{f"pooled_{name}": np.array(measure(draws)) for name, measure in _MEASURES.items()},
    }


def divergence(draws: np.ndarray) -> float:
    """Return KL(draws || truth) on a grid; draws outside it count in its outermost bins."""
    edge = np.nextafter(_SPAN, 0)
    x, y = np.clip(np.reshape(draws, (-1, 2)), -edge, edge).T
    counts, _, _ = np.histogram2d(x, y, _BINS, ((-_SPAN, _SPAN), (-_SPAN, _SPAN)))
    filled = counts > 0
    share, true = counts[filled] / counts.sum(), rx.targets.modes25_grid(_SPAN, _BINS)[filled]
    return float(np.sum(share * np.log(share / true)))


def corner_share(draws: np.ndarray) -> float:
    """Return the mass of the four corner modes divided by their true mass."""
    corners = list(_CORNERS)
    masses = rx.targets.mode_masses(draws)
    return float(masses[corners].sum() / rx.targets.modes25_truth()[corners].sum())


def outside_share(draws: np.ndarray) -> float:
    """Return the mass outside the 25 cells divided by the true mass there."""
    return float(rx.targets.mode_masses(draws)[25] / rx.targets.modes25_truth()[25])


_MEASURES = {
    "tv": rx.targets.mode_distance,
    "kl": divergence,
    "corner": corner_share,
    "outside": outside_share,
}
