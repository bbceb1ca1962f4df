"""What a run reports, draws and starts from."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quietly

import replicax as rx
from replicax.run.carry import count_turns, round_trips

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def sample(start: Any = (0.0, 0.0), **options: Any) -> rx.Posterior:
    start = jnp.array(start) if isinstance(start, tuple) else start
    chosen = {"num_chains": 2, "learning_rate": (0.01, 0.1)} | options
    return quietly(rx.targets.gaussian(), start, **chosen)


def test_the_last_progress_is_what_the_posterior_says() -> None:
    seen: list[rx.callbacks.Progress] = []
    posterior = sample(burn_in=20, chunk_steps=25, callback=seen.append, draw_rungs="all")
    assert [progress.step for progress in seen] == [25, 50, 60]
    last = seen[-1]
    np.testing.assert_allclose(last.verdict_rate, posterior.verdict_rate)
    assert last.verdict_rate.max() > 0
    np.testing.assert_array_equal(last.round_trips, posterior.round_trips)
    np.testing.assert_array_equal(last.cold_energy, posterior._final("energy")[:, 0])
    assert np.all(last.cold_energy != posterior._final("energy")[:, -1])
    assert last.seconds_left == 0 and seen[0].seconds_left > 0
    assert seen[1].seconds_left == pytest.approx(10 / seen[1].steps_per_second)


def test_draws_follow_burn_in_and_thin() -> None:
    """However the run is cut: chunks of 11 steps begin anywhere in the rhythm of draws."""
    every = sample(chunk_steps=60)
    thinned = sample(burn_in=5, thin=3, chunk_steps=11, history_every=7)
    assert thinned.draws.shape == (2, len(range(5, 60, 3)), 2)
    np.testing.assert_array_equal(thinned.draws, every.draws[:, 5::3])
    np.testing.assert_array_equal(thinned.energies, every.energies[:, 5::3])
    assert thinned.history["step"].tolist() == list(range(7, 60, 7))
    whole = sample(history_every=1, chunk_steps=60).history["learning_rate"]
    np.testing.assert_array_equal(thinned.history["learning_rate"], whole[:, 6::7])


def test_a_single_rung_has_no_round_trips() -> None:
    rung_of = np.zeros((2, 9, 1), np.int8)
    assert round_trips(rung_of).tolist() == [0, 0]
    turns = np.ones((2, 1), np.int32)
    np.testing.assert_array_equal(count_turns(turns, rung_of[:, 0], 0), turns)


def test_noise_on_the_coldest_rung_alone_is_noise() -> None:
    quiet, noisy = (sample(temperature=value, schedule="none") for value in (0.0, 1.0))
    assert np.ptp(quiet.draws) == 0, "a gaussian from its centre, without noise"
    assert np.std(noisy.draws[:, 30:]) > 0.1


def test_chains_from_one_start_go_their_own_ways() -> None:
    draws = sample(num_steps=5).draws
    assert not np.array_equal(draws[0], draws[1])


def test_drawn_starts_differ_by_chain_and_replica() -> None:
    seen = []
    sample(
        lambda key: 3 * jax.random.normal(key, (2,)),
        num_steps=1,
        learning_rate=(1e-9, 2e-9),
        temperature=0.0,
        callback=lambda progress: seen.append(np.asarray(progress.carry.state.points)),
    )
    assert len(np.unique(seen[-1].ravel())) == 2 * 4 * 2
