"""The 25 modes as the studies sample them (section 5.1), and how far draws are from the truth."""

from typing import Any

import numpy as np

import replicax as rx
from replicax.demo import SETTINGS
from replicax.experiments.study import Work
from replicax.posterior import Posterior

_TARGET = rx.targets.modes25()  # one object, so that all cells share its compiled program
_BUFFER = 4.0  # the paper's start of the buffer, and its gain for ladder and buffer alike


def sample(work: Work, settings: dict[str, Any], **options: Any) -> Posterior:
    """The paper's run with `seeds` independent chains; `settings` are those of a cell."""
    chosen = {"window": None, **settings, **options}
    num_chains = chosen.pop("seeds")
    defaults = {**SETTINGS, "buffer": _BUFFER, "buffer_gain": rx.Gain(), "seed": 1}
    return work.sample(
        _TARGET, rx.targets.modes25_start, num_chains=num_chains, **{**defaults, **chosen}
    )


def trips_per_1000(posterior: Posterior) -> np.ndarray:
    """Of all replicas, by chain."""
    return 1000 * posterior.round_trips / posterior.num_steps


def mode_distances(draws: np.ndarray) -> np.ndarray:
    """Total variation of the 25 mode masses, by chain; `draws` is (chain, draw, 2)."""
    return np.array([rx.targets.mode_distance(chain) for chain in draws])
