"""R-hat over replicas: by hand on paths and draws that are made here, and on runs of two modes."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.results import diagnostics
from replicax.results.diagnostics import _find_visits, _replica_rhat, _Visits, replica_rhat


def run_of(paths: np.ndarray, burn_in: int = 0, thin: int = 1) -> Any:
    """All of a run that the diagnostic reads; `paths` are (chain, step, replica)."""
    num_chains, num_steps, num_replicas = paths.shape
    steps = np.arange(burn_in, num_steps, thin)
    return SimpleNamespace(rung_of=paths, draw_steps=steps, num_draws=len(steps),
                           num_steps=num_steps, num_chains=num_chains,
                           num_replicas=num_replicas)  # fmt: skip


def rotating(num_chains: int, num_steps: int, num_replicas: int = 3, stay: int = 4) -> np.ndarray:
    """Replicas that take turns on the rungs, `stay` steps each  (chain, step, replica)."""
    turns = np.arange(num_steps)[:, None] // stay + np.arange(num_replicas)
    return np.broadcast_to(turns % num_replicas, (num_chains, num_steps, num_replicas))


def holder_of(paths: np.ndarray) -> np.ndarray:
    return np.argmin(paths, axis=2)


def noise(paths: np.ndarray, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(paths.shape[:2])


def rhat(paths: np.ndarray, values: np.ndarray, **options: int) -> float:
    return replica_rhat(run_of(paths, **options), {"x": values})["x"]


def test_a_visit_ends_on_the_hottest_rung() -> None:
    # Replica 0 leaves the cold rung twice, but only once for the hottest rung.
    path = [0, 0, 1, 0, 1, 2, 1, 0, 0, 2] * 4
    rest = np.where(np.array(path) == 0, 1, 0), np.where(np.array(path) == 2, 1, 2)
    visits = _find_visits(run_of(np.stack([path, *rest], axis=1)[None]))
    assert visits is not None
    first = visits.of_draw[np.array(path) == 0]
    np.testing.assert_array_equal(np.unique(first, return_inverse=True)[1][:7],
                                  [0, 0, 0, 1, 1, 2, 2])  # fmt: skip
    assert visits.replica.tolist().count(0) == 8


def test_replicas_that_agree_have_1_and_others_have_the_closed_form() -> None:
    paths = rotating(num_chains=4, num_steps=6_000)
    assert rhat(paths, noise(paths)) == 1.0
    # Ranks of a shift that is small beside the noise are nearly the values themselves.
    shift = 0.6 * (holder_of(paths) - 1)  # variance of -0.6, 0, 0.6 with ddof=1: 0.36
    assert rhat(paths, noise(paths) + shift) == pytest.approx(np.sqrt(1 + 0.36), rel=0.02)


def test_it_sees_what_rhat_over_chains_does_not() -> None:
    paths = rotating(num_chains=4, num_steps=3_000)
    modes = np.where(holder_of(paths) == 1, -5.0, 5.0) + noise(paths)
    assert diagnostics.rhat(modes) < 1.01 < 1.5 < rhat(paths, modes)


def test_it_sees_replicas_that_differ_in_spread_alone() -> None:
    paths = rotating(num_chains=4, num_steps=3_000)
    assert rhat(paths, noise(paths) * (1 + 3 * (holder_of(paths) == 2))) > 1.1


@pytest.mark.parametrize(("shift", "scale"), [(100.0, 1.0), (-7.0, 1e-3), (0.0, -5.0)])
def test_it_depends_neither_on_the_place_nor_on_the_scale(shift: float, scale: float) -> None:
    paths = rotating(num_chains=4, num_steps=600)
    wide = noise(paths) * (1 + 3 * (holder_of(paths) == 2))
    for values in (wide, noise(paths) + 1.0 * holder_of(paths)):
        found = rhat(paths, values)
        assert found > 1.1 and rhat(paths, shift + scale * values) == pytest.approx(found, rel=1e-3)


def test_draws_are_those_of_the_replica_that_was_cold_at_their_step() -> None:
    paths = rotating(num_chains=2, num_steps=4_000, stay=5)
    modes = np.where(holder_of(paths) == 1, -5.0, 5.0) + noise(paths)
    assert rhat(paths, modes[:, 101::7], burn_in=101, thin=7) > 1.5
    assert rhat(paths, noise(paths)[:, 101::7], burn_in=101, thin=7) == 1.0


def test_draws_of_one_visit_count_once() -> None:
    # Every visit has a mean of its own, of which its 40 draws hardly differ.
    paths = rotating(num_chains=1, num_steps=1_200, stay=40)
    alarms = 0
    for seed in range(50):
        means = np.random.default_rng(seed).standard_normal(30).repeat(40)
        values = means + 0.01 * noise(paths, seed)
        by_draw = [values[0][holder_of(paths)[0] == replica][:400] for replica in range(3)]
        alarms += diagnostics.rhat(np.array(by_draw)) > 1.05
        assert rhat(paths, values) == 1.0
    assert alarms > 25  # by the ordinary R-hat


def test_chains_may_differ() -> None:
    paths = rotating(num_chains=4, num_steps=1_200)
    assert rhat(paths, noise(paths) + 2.0 * np.arange(4)[:, None]) == 1.0


def test_where_nothing_can_be_told_it_is_nan() -> None:
    paths = rotating(num_chains=1, num_steps=24)  # two visits of each replica
    assert np.isnan(rhat(paths, noise(paths)))
    still = np.broadcast_to(np.arange(3), (2, 400, 3))
    assert np.isnan(rhat(still, noise(still)))
    assert np.isnan(rhat(rotating(1, 600), np.full((1, 600), np.nan)))
    cyclical = run_of(rotating(1, 600))  # draws of which the steps are not known
    cyclical.num_draws = 300
    assert np.isnan(replica_rhat(cyclical, {"x": noise(paths)})["x"])


def test_a_replica_that_came_down_once_does_no_harm() -> None:
    paths = rotating(num_chains=1, num_steps=1_200).copy()
    paths = np.concatenate([paths, np.full((1, 1_200, 1), 3)], axis=2)
    paths[paths == 2] = 3
    paths[:, :, 3] = 2
    at = int(np.argmax(paths[0, :, 0] == 0))
    paths[0, at, [0, 3]] = paths[0, at, [3, 0]]
    values = noise(paths)
    assert rhat(paths, values) == 1.0
    assert rhat(paths, values + 6.0 * (holder_of(paths) == 1)) > 1.5


def test_visits_of_unequal_numbers_are_weighed_as_in_an_analysis_of_variance() -> None:
    """Two chains of three replicas each, with few visits of two draws: no part can be neglected."""
    counts = np.array([3, 5, 8, 4, 2, 6])  # visits of each replica
    replica = np.repeat(np.arange(6), counts)
    chain = replica // 3
    rng = np.random.default_rng(0)
    mean = 1.5 * chain + 1.6 * replica + rng.standard_normal(len(replica))  # of each visit
    scores = mean.repeat(2) + rng.standard_normal(2 * len(replica))
    visits = _Visits(np.arange(len(replica)).repeat(2), replica, chain)

    mean = scores.reshape(-1, 2).mean(axis=1)
    of_replica = np.array([mean[replica == r].mean() for r in range(6)])
    of_chain = np.array([mean[chain == c].mean() for c in range(2)])
    between = counts @ (of_replica - of_chain[[0, 0, 0, 1, 1, 1]]) ** 2 / (6 - 2)
    within = np.sum((mean - of_replica[replica]) ** 2) / (len(mean) - 6)
    effective = 0.0  # of the six, as if all had as many visits
    for own in (counts[:3], counts[3:]):
        effective += (own.sum() - np.sum(own**2) / own.sum()) / (6 - 2)
    by_draw = replica.repeat(2)
    centre = np.array([scores[by_draw == r].mean() for r in range(6)])
    spread = np.mean((scores - centre[by_draw]) ** 2)
    wanted = np.sqrt(1 + (between - within) / effective / spread)
    assert _replica_rhat(scores, visits, chance=0.5) == pytest.approx(wanted, rel=1e-9)
    assert 1.2 < wanted < 3
    assert _replica_rhat(scores, visits, chance=1e-12) == 1.0, "chance explains it"


def two_modes(x: Any) -> Any:
    """Modes at -3 and 3 of the first coordinate, of standard deviation 1/2."""
    return -jnp.logaddexp(-2 * (x[0] - 3) ** 2, -2 * (x[0] + 3) ** 2) + x[1] ** 2 / 2


def sample_two_modes(hottest: float, num_steps: int, **options: Any) -> rx.Posterior:
    defaults = {"num_chains": 4, "num_replicas": 6}
    return rx.sample(
        two_modes, lambda key: 4 * jax.random.normal(key, (2,)), num_steps=num_steps, burn_in=300,
        method=rx.deo(0.1, temperature=(1.0, hottest), rule="metropolis"), **(defaults | options),
    )  # fmt: skip


def test_a_ladder_too_cold_to_change_modes_is_found() -> None:
    with pytest.warns(UserWarning, match=r"R-hat over replicas is 1\.\d{3} for params\[0\]"):
        posterior = sample_two_modes(hottest=2.5, num_steps=1_500)
    assert posterior.round_trips.min() > 300
    assert posterior.replica_rhat()["params[0]"] > 1.4
    assert posterior.replica_rhat()["params[1]"] < 1.05
    summary = posterior.summary()
    assert summary["parameters"]["params[0]"]["replica_rhat"] > 1.4
    assert "R-hat over replicas" in str(summary)


@pytest.mark.filterwarnings("error")
def test_a_ladder_that_changes_modes_gives_no_warning() -> None:
    posterior = sample_two_modes(hottest=40.0, num_steps=4_000)
    assert max(posterior.replica_rhat().values()) < 1.05
    assert 0.4 < (posterior.draws[..., 0] > 0).mean() < 0.6
