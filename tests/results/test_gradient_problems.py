"""Whether gradients explain energies, of runs whose moves follow gradients alone."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.results.gradient_problems import unexplained_energy

_ROWS = jnp.asarray(np.random.default_rng(0).normal(1.0, 1.0, 200), jnp.float32)


def log_likelihood(mean: Any, rows: Any) -> Any:
    return -((rows - mean) ** 2) / 2


def posterior_of(likelihood: Callable, batch_size: int | None = 20) -> Any:
    return rx.bayesian(likelihood, lambda mean: -(mean**2) / 200, _ROWS, batch_size=batch_size)


@pytest.fixture(scope="module")
def smooth() -> rx.Posterior:
    options = {"num_steps": 600, "num_replicas": 2, "num_chains": 2, "progress": False}
    with pytest.warns(rx.errors.RunProblem):  # it is short
        return rx.sample(posterior_of(log_likelihood), jnp.array(1.0), **options)


def found(run: rx.Posterior, likelihood: Callable, **other: Any) -> bool:
    """Whether the draws of the run are told to be those of a likelihood with jumps."""
    judged = rx.Posterior(run._records, run._like, posterior_of(likelihood, **other))
    return any("gradient says otherwise" in sentence for sentence in judged.problems())


def test_jumps_are_found_where_moves_follow_gradients(smooth: rx.Posterior) -> None:
    assert not found(smooth, log_likelihood)
    assert found(smooth, lambda m, rows: log_likelihood(m, rows) + 0.02 * jnp.floor(m / 0.05))
    assert found(smooth, lambda m, rows: log_likelihood(jax.lax.stop_gradient(m), rows))


def test_kinks_and_rounding_are_no_jumps(smooth: rx.Posterior) -> None:
    assert not found(smooth, lambda m, rows: -jnp.abs(rows - m))
    assert not found(smooth, lambda m, rows: log_likelihood(m, rows) - 1e5), "energies of 2e7"


def test_what_cannot_be_checked_is_not(smooth: rx.Posterior) -> None:
    assert unexplained_energy(rx.Posterior(smooth._records, smooth._like)) is None, "no target"
    smooth.metadata.resolved["adjusted"] = True
    steep = lambda m, rows: 100.0 * jnp.floor(m / 0.05) + 0 * rows  # noqa: E731
    assert not found(smooth, steep), "moves that are accepted or rejected need no gradient"
    smooth.metadata.resolved["adjusted"] = False
    assert found(smooth, steep)
