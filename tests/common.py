"""What several test files share."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import replicax as rx

SIZES = st.sampled_from([2, 3, 5, 8])
SEEDS = st.integers(0, 2**32 - 1)
FINITE = st.floats(-50, 50, width=32)
few = settings(max_examples=25)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def quick_jit(function: Callable) -> Callable:
    """The same program, compiled in half the time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def quietly(target: Any, params: Any, **options: Any) -> rx.Posterior:
    defaults = {
        "num_steps": 60,
        "num_replicas": 4,
        "learning_rate": (0.02, 0.1),
        "buffer": 0.1,
        "buffer_gain": 0.1,
        "progress": False,
    }
    return rx.sample(target, params, **(defaults | options))
