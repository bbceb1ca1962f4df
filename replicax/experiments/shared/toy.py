"""The 25 modes as the studies sample them (section 5.1), and how far draws are from the truth."""

from typing import Any

import numpy as np

import replicax as rx
from replicax.demo import SETTINGS
from replicax.experiments.shared.study import Work
from replicax.results.posterior import Posterior

NUM_REPLICAS = SETTINGS["num_replicas"]
TARGET = rx.targets.modes25()  # one object, so that all cells share its compiled program
# The paper's start of the buffer, and its gain for ladder and buffer alike.
PAPER: dict[str, Any] = {**SETTINGS, "buffer": 4.0, "buffer_gain": rx.Gain(), "seed": 1}
_CORNERS = (0, 4, 20, 24)  # of the 25 cells
_SPAN, _BINS = 5.0, 40  # divergences are taken on [-5, 5]^2, in bins of width 1/4


def sample(work: Work, num_chains: int, target: rx.Target = TARGET, **options: Any) -> Posterior:
    """The paper's run unless `options` say otherwise; a chain is a seed."""
    chosen = {**PAPER, "num_chains": num_chains, **options}
    return work.sample(target, rx.targets.modes25_start, **chosen)


def num_draws(num_steps: int) -> int:
    """How many draws a chain of the paper's run leaves."""
    return (num_steps - PAPER["burn_in"]) // PAPER["thin"]


def exact_draws(seeds: int, num_steps: int) -> np.ndarray:
    """As many independent exact draws as such chains leave: the floor  (seed, draw, 2)."""
    rng, count = np.random.default_rng(1), num_draws(num_steps)
    return np.stack([rx.targets.modes25_draws(rng, count) for _ in range(seeds)])


def trips_per_1000(posterior: Posterior) -> np.ndarray:
    """Round trips of all replicas per 1,000 steps, by chain."""
    return 1000 * posterior.round_trips / posterior.num_steps


def thinned(draws: np.ndarray, count: int) -> np.ndarray:
    """`count` draws of each chain, evenly spaced  (chain, count, 2)."""
    chosen = np.linspace(0, draws.shape[1] - 1, count).round().astype(int)
    return draws[:, chosen]


def distances(draws: np.ndarray) -> dict[str, np.ndarray]:
    """How far draws (chain, draw, 2) are from the truth: by chain, and of all chains together.

    `tv` is the total variation of the 25 mode masses, renormalised; `kl` the divergence of the
    draws from the truth on a grid of bins of width 1/4; `corner` the mass of the four corner
    modes and `outside` that outside the 25 cells, both as shares of the true ones.
    """
    return {
        **{name: np.array([part(chain) for chain in draws]) for name, part in _PARTS.items()},
        **{f"pooled_{name}": np.array(part(draws)) for name, part in _PARTS.items()},
    }


def divergence(draws: np.ndarray) -> float:
    """KL(draws || truth) over the bins of a grid; draws beyond it count in its outermost bins."""
    edge = np.nextafter(_SPAN, 0)
    x, y = np.clip(np.reshape(draws, (-1, 2)), -edge, edge).T
    counts, _, _ = np.histogram2d(x, y, _BINS, ((-_SPAN, _SPAN), (-_SPAN, _SPAN)))
    seen, true = counts / counts.sum(), rx.targets.modes25_grid(_SPAN, _BINS)
    return float(np.sum(seen[seen > 0] * np.log(seen[seen > 0] / true[seen > 0])))


def corner_share(draws: np.ndarray) -> float:
    """Mass of the four corner modes over their true mass."""
    corners = list(_CORNERS)
    masses = rx.targets.mode_masses(draws)
    return float(masses[corners].sum() / rx.targets.modes25_truth()[corners].sum())


def outside_share(draws: np.ndarray) -> float:
    """Mass outside the 25 cells over the true mass there."""
    return float(rx.targets.mode_masses(draws)[25] / rx.targets.modes25_truth()[25])


_PARTS = {
    "tv": rx.targets.mode_distance,
    "kl": divergence,
    "corner": corner_share,
    "outside": outside_share,
}
