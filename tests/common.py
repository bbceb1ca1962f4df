"""Helpers that several test files share."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import replicax as rx
from replicax.algorithm import randomness
from replicax.algorithm.tuning import Tuning
from replicax.run import chunk
from replicax.run.chunk import STATE_AXES
from replicax.run.methods import METHODS

SIZES = st.sampled_from([2, 3, 5, 8])
SEEDS = st.integers(0, 2**32 - 1)
FINITE = st.floats(-50, 50, width=32)
few = settings(max_examples=25)


def slow(*values: Any) -> Any:
    """One set of values for `parametrize`, for `make slow` alone."""
    return pytest.param(*values, marks=pytest.mark.slow)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


def quick_jit(function: Callable) -> Callable:
    """The same program, compiled in half the time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


OF_NETWORKS = [name for name, made in METHODS.items() if not made().keeps_law]
OF_METHODS = {entry.name for entry in fields(rx.Method)}


def in_method(options: dict[str, Any], made: Callable[..., rx.Method] = rx.deo_star) -> Any:
    """The options of a call with those of its method in one: `method=made(...)`."""
    parts = {name: value for name, value in options.items() if name in OF_METHODS}
    others = {name: value for name, value in options.items() if name not in OF_METHODS}
    return others | {"method": made(**parts)}


@contextlib.contextmanager
def chunks_of(steps: int | None) -> Iterator[None]:
    """Runs in chunks of so many steps, at whatever pace; None: as they are."""
    if steps is None:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunk, "FIRST_STEPS", steps)
        patch.setattr(chunk.Pace, "after", lambda pace, *times: pace)
        yield


def quietly(
    target: Any,
    start: Any,
    chunk_steps: int | None = None,
    made: Callable[..., rx.Method] = rx.deo_star,
    **options: Any,
) -> rx.Posterior:
    """A short run of a method; its options stand beside those of the run."""
    defaults = {
        "num_steps": 60,
        "num_replicas": 4,
        "learning_rate": (0.02, 0.1),
        "buffer": 0.1,
        "buffer_gain": 0.1,
        "progress": False,
    }
    with chunks_of(chunk_steps):
        return rx.sample(target, start, **in_method(defaults | options, made))


_REPORTED = (
    "draws",
    "energies",
    "rung_of",
    "round_trips",
    "learning_rates",
    "temperatures",
    "buffer",
    "verdict_rate",
    "window_swap_rate",
    "history",
)
_REPORTED_OF_NETWORKS = ("epochs", "average", "restarts")


def assert_same_run(one: rx.Posterior, other: rx.Posterior) -> None:
    """Bit for bit, in everything a posterior (of networks) reports."""
    assert type(one) is type(other)
    names = _REPORTED + (_REPORTED_OF_NETWORKS if isinstance(one, rx.Trained) else ())
    for name in names:
        a, b = getattr(one, name), getattr(other, name)
        assert jax.tree.structure(a) == jax.tree.structure(b), name
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
            np.testing.assert_array_equal(x, y, err_msg=name)
    columns = one._records.names("networks")
    assert columns == other._records.names("networks")
    for name in columns:
        a, b = (run._records.read("networks", name) for run in (one, other))
        np.testing.assert_array_equal(a, b, err_msg=f"networks: {name}")


# A ladder that does not move, and many chains at once

FIXED = Tuning(adapts=None, adapts_buffer=False)


def start_chains(step: Callable, state: rx.algorithm.State, params: Any, seed: int = 1) -> tuple:
    """`step` for many chains at once, their keys, and their states from params (chain, replica)."""
    num_chains = jax.tree.leaves(params)[0].shape[0]
    copies = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_chains, *leaf.shape)), state)
    states = copies._replace(step=state.step, replicas=copies.replicas._replace(params=params))
    keys = jax.random.split(randomness.make_key(seed), num_chains)
    return jax.vmap(step, (0, STATE_AXES), (STATE_AXES, 0)), keys, states
