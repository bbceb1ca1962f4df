"""Which steps rates and round trips count: after burn-in and after the steps that only measure."""

import jax.numpy as jnp
import numpy as np
import pytest
from common import in_method, quietly, slow

import replicax as rx
from replicax.run.carry import trip_ends


def sample(**options) -> rx.Posterior:
    chosen = {"num_steps": 400, "num_replicas": 3, "learning_rate": (0.01, 0.1), "window": 1}
    chosen |= {"progress": False, "num_chains": 2}
    target = rx.targets.modes25(noise_std=2.0)
    return rx.sample(target, rx.targets.modes25_start, **in_method(chosen | options))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("options", "counted_from"),
    [slow({}, 100), ({"burn_in": 250}, 250)],
)
def test_rates_and_trips_are_those_of_the_counted_steps(options, counted_from) -> None:
    """The first 100 steps measure the unit of energy and exchange nothing: counted, they would
    dilute the rates."""
    posterior = sample(**options)
    assert posterior.counted_steps == 400 - counted_from
    rung_of = posterior.rung_of
    before = np.concatenate([np.tile(np.arange(3), (2, 1, 1)), rung_of[:, :-1]], axis=1)
    steps = np.arange(400)
    for chain in range(2):
        ends = np.concatenate(trip_ends(rung_of[chain]))
        assert posterior.round_trips[chain] == np.sum(ends > counted_from)
        for pair in range(2):
            # With windows of one step the pair has its turn in every second one.
            turns = (steps >= counted_from) & ((pair + 1) % 2 == steps % 2)
            cold = np.argmax(before[chain] == pair, axis=1)
            swapped = rung_of[chain][steps, cold] == pair + 1
            rate = swapped[turns].mean()
            np.testing.assert_allclose(posterior.window_swap_rate[chain, pair], rate, rtol=1e-6)
    assert posterior.round_trips.min() > 5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_all_steps_count_where_nothing_is_measured() -> None:
    posterior = sample(buffer=0.1, buffer_gain=0.01)
    assert posterior.counted_steps == 400
    np.testing.assert_array_equal(posterior.round_trips, rx.diagnostics.round_trips(
        np.concatenate([np.tile(np.arange(3), (2, 1, 1)), posterior.rung_of], axis=1)
    ))  # fmt: skip


def bowl(x):
    return jnp.sum((x - 1.0) ** 2)


def before(schedule: str) -> rx.Posterior:
    """A run whose energies are those before the move."""
    options = {"num_steps": 40, "num_replicas": 2, "learning_rate": (0.01, 0.02)}
    return quietly(bowl, jnp.zeros(2), energy_at="before", schedule=schedule, **options)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_energies_before_the_move_do_not_tell_the_best_draw() -> None:
    with pytest.raises(ValueError, match="exactly_one"):
        _ = before("deo").best


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_best_point_that_is_tracked_is_that_of_its_energy_before_the_move() -> None:
    point, energy = before("exactly_one").best
    np.testing.assert_allclose(bowl(point), energy, rtol=1e-5)
