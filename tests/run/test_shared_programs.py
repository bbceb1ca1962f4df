"""Shared programs take the numbers of each run, and are shared by no others."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def mean_energy(x: Any, rows: Any) -> Any:
    return jnp.mean((x - rows) ** 2) / 2


def sample(programs: Any, target: Any = None, **options: Any) -> rx.Posterior:
    chosen = {"num_steps": 80, "num_replicas": 3, "learning_rate": 0.1, "progress": False}
    target = rx.targets.gaussian() if target is None else target
    return rx.sample(target, jnp.zeros(2), programs=programs, **chosen | options)


def test_the_noise_of_each_pair_is_that_of_the_run() -> None:
    """One run is told of no noise, one of so much that the first or the last pair never swaps."""
    programs, temperature = rx.Programs(), (1.0, 2.0, 4.0)
    rates = []
    target = rx.targets.gaussian()
    for std in ((0.0, 0.0), (0.0, 1e4), (1e4, 0.0)):
        rule = rx.swap.bias_corrected(np.array(std))
        posterior = sample(programs, target, rule=rule, temperature=temperature, window=1)
        rates.append(posterior.verdict_rate[0] > 0.1)
    assert np.array(rates).tolist() == [[True, True], [True, False], [False, True]]
    made = len(programs)
    assert made == len(_programs_of_one(target, temperature)), "all three were compiled once"


def _programs_of_one(target: Any, temperature: Any) -> rx.Programs:
    programs = rx.Programs()
    rule = rx.swap.bias_corrected(np.array([1.0, 2.0]))
    sample(programs, target, rule=rule, temperature=temperature, window=1)
    return programs


def test_other_data_of_the_same_shape_do_not_share() -> None:
    programs = rx.Programs()
    options = {"batch_size": 4, "learning_rate": (0.1, 0.3), "temperature": 0.0}
    low, high = (np.full((8, 2), value, np.float32) for value in (-3.0, 3.0))
    one = sample(programs, mean_energy, batches=low, **options)
    made = len(programs)
    other = sample(programs, mean_energy, batches=high, **options)
    assert len(programs) == 2 * made
    assert one.draws[0, -1].max() < -2 and other.draws[0, -1].min() > 2


def test_kernels_of_other_constants_do_not_share() -> None:
    programs = rx.Programs()
    target = rx.targets.gaussian()
    fast, slow = (
        sample(programs, target, kernel=rx.kernels.momentum(decay), num_steps=20)
        for decay in (0.9, 0.0)
    )
    alone = sample(None, target, kernel=rx.kernels.momentum(0.0), num_steps=20)
    np.testing.assert_allclose(slow.draws, alone.draws, rtol=1e-5)
    assert not np.allclose(fast.draws, slow.draws)


def test_the_burn_in_is_that_of_the_run() -> None:
    programs = rx.Programs()
    target = rx.targets.gaussian()
    counts = []
    for burn_in in (0, 40):
        posterior = sample(programs, target, burn_in=burn_in, buffer=-1e6, adapt=False, window=1)
        assert np.all(posterior.verdict_rate == 1), "such a buffer always says yes"
        counts.append(posterior.num_windows.max())
    assert counts[0] == 2 * counts[1] > 0
