"""What a run learns in its burn-in: it is frozen then, stored, and the same when a run resumes."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import chunks_of, slow
from jax.scipy.stats import norm

import replicax as rx
from replicax.algorithm.fitting import log_density
from replicax.algorithm.mixture import Mixture, make_mixture
from replicax.run import blas, learning
from replicax.run.options import Session
from replicax.run.start import extended

STEPS, BURN_IN = 420, 240


def two_modes(x):
    centres = jnp.array([[-4.0, 0.0], [4.0, 1.0]])
    parts = -jnp.sum((x - centres) ** 2, axis=1) / (2 * 0.5**2)
    return -jax.nn.logsumexp(parts + jnp.log(jnp.array([0.3, 0.7])))


def start(key):
    return 4 * jax.random.normal(key, (2,))


def sample(target=two_modes, chunk_steps=None, **options):
    options = {"num_steps": STEPS, "burn_in": BURN_IN, "num_chains": 2, "seed": 1} | options
    options = {"method": rx.posterior(jumps=64)} | options
    with chunks_of(chunk_steps):
        return rx.sample(target, start, num_replicas=4, progress=False, **options)


def values(run):
    return {"draws": run.draws, "energies": run.energies, "rung_of": run.rung_of} | {
        name: value for name, value in run._records.final.items() if "learn" in name
    }


def assert_same(one, other):
    for name, value in values(one).items():
        np.testing.assert_array_equal(value, values(other)[name], err_msg=name)


@pytest.fixture(scope="module")
def whole():
    return sample()


def test_both_modes_have_their_mass(whole) -> None:
    right = whole.draws[..., 0] > 0
    assert abs(right.mean() - 0.7) < 0.1
    changes = np.mean(right[:, 1:] != right[:, :-1])
    assert changes > 0.2, "nearly every draw is a new one: independent ones change in .42"


@pytest.mark.parametrize("stop", [101, slow(BURN_IN // 4), slow(192), slow(300)])
def test_a_run_that_resumes_is_equal_bit_for_bit(stop, whole, tmp_path) -> None:
    """In the middle of a round, at its end, at the last one, and after it."""
    stopped = sample(
        run_dir=tmp_path / "run",
        callback=lambda progress: "stop" if progress.step >= stop else None,
        chunk_steps=37,
    )
    assert stop <= stopped.num_steps < STEPS
    assert_same(rx.resume(tmp_path / "run", two_modes, progress=False), whole)


def test_what_is_learned_is_frozen_before_the_first_draw(monkeypatch) -> None:
    seen, threads = [], set()
    renew = learning.Learning._renew_mixture

    def recorded(self, program, state, step):
        seen.append(step)
        threads.update(count() for count, _ in blas._openblas())
        return renew(self, program, state, step)

    monkeypatch.setattr(learning.Learning, "_renew_mixture", recorded)
    sample()
    assert seen and max(seen) <= BURN_IN and seen == sorted(seen)
    assert threads <= {1}


def test_weights_of_draws_and_proposals_are_kept(whole) -> None:
    mixture = Mixture(*(whole._records.final[f"mixture.{name}"] for name in Mixture._fields))
    of_draws, of_proposals = np.moveaxis(whole.jump_weights, -1, 0)
    expected = -whole.energies - [log_density(mixture, draws) for draws in whole.draws]
    np.testing.assert_allclose(of_draws, expected, atol=2e-3)
    # The integral is 2 pi / 4, by independent proposals, and by draws upside down.
    assert abs(np.log(np.mean(np.exp(of_proposals))) - np.log(np.pi / 2)) < 0.05
    assert abs(-np.log(np.mean(np.exp(-of_draws))) - np.log(np.pi / 2)) < 0.1
    accepted = np.mean(of_draws == of_proposals)
    assert abs(accepted - whole.jumps["accepted"].mean()) < 0.1


def conjugate(seed, count=20):
    """A linear regression of three coefficients, and the log of its evidence."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3)).astype(np.float32)
    y = x @ rng.standard_normal(3) + 0.5 * rng.standard_normal(count)
    target = rx.bayesian(
        lambda w, rows: norm.logpdf(rows[:, 3], rows[:, :3] @ w, 0.5),
        lambda w: jnp.sum(norm.logpdf(w, 0, 2)),
        jnp.asarray(np.column_stack([x, y]), jnp.float32),
    )
    covariance = 0.25 * np.eye(count) + 4 * x.astype(float) @ x.T
    _, log_det = np.linalg.slogdet(2 * np.pi * covariance)
    return target, -(log_det + y @ np.linalg.solve(covariance, y)) / 2


@pytest.mark.slow
def test_bridges_find_the_evidence_of_regressions_within_their_errors() -> None:
    away = []
    for seed in range(5):
        target, exact = conjugate(seed)
        run = rx.sample(
            target,
            lambda key: 2 * jax.random.normal(key, (3,)),
            num_steps=400,
            burn_in=200,
            num_chains=2,
            num_replicas=4,
            method=rx.posterior(jumps=64),
            seed=seed,
            progress=False,
        )
        value, error = run.log_evidence()
        assert error < 0.02 and not any("evidence" in sentence for sentence in run.problems())
        away.append(abs(value - exact) / error)
    assert sorted(away)[2] < 2 and max(away) < 5


def test_without_jumps_nothing_is_searched() -> None:
    run = sample(method=rx.posterior(jumps=0))
    assert run.jump_weights is None
    assert run.jumps is None and "learning.evaluations" not in run._records.final


@pytest.mark.slow
def test_several_draws_of_a_step_are_positions_of_its_path(whole) -> None:
    """A short run keeps eight; fewer are some of these."""
    assert whole.num_draws == 8 * (STEPS - BURN_IN) == len(whole.draw_steps)
    for count in (1, 4):
        fewer = sample(method=rx.posterior(jumps=64, draws_per_step=count))
        every = 8 // count
        np.testing.assert_array_equal(fewer.draws, whole.draws[:, every - 1 :: every])
        np.testing.assert_array_equal(fewer.rung_of, whole.rung_of)


ON_DEVICES = """
import sys, warnings
sys.path += sys.argv[1:]
import numpy as np, test_learning as here
warnings.simplefilter("ignore")
one, four = (here.sample(devices=count, num_steps=300) for count in (1, 4))
np.testing.assert_array_equal(one.draws, four.draws)
np.testing.assert_array_equal(one.rung_of, four.rung_of)
"""


@pytest.mark.slow
def test_chains_and_replicas_on_four_devices_learn_what_one_does() -> None:
    tests = Path(__file__).parents[1]
    flags = "--xla_force_host_platform_device_count=4"
    command = [sys.executable, "-c", ON_DEVICES, str(tests), str(tests / "run")]
    done = subprocess.run(
        command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# A burn-in that is cut short


def one_mode(x):
    return jnp.sum((x - 3.0) ** 2 / jnp.array([1.0, 4.0])) / 2


@pytest.fixture(scope="module")
def short():
    return sample(one_mode, num_steps=700)


def test_a_burn_in_ends_where_nothing_is_left_to_learn(short, whole) -> None:
    spared = int(short._records.final["learning.spared"])
    assert 0 < spared < BURN_IN and whole._records.final["learning.spared"] == 0
    assert short.rung_of.shape[1] == short.num_steps == 700
    still = np.all(short.rung_of[:, 1:] == short.rung_of[:, :-1], axis=(0, 2))
    assert np.all(still[BURN_IN - 12 - spared : BURN_IN - 13])
    gradients = 2 * 4 * 8 * (700 - spared)
    assert short.jumps["evaluations"]["ladder"] == gradients
    assert short.round_trips.min() >= 10
    draws = short.draws.reshape(-1, 2)
    np.testing.assert_allclose(draws.mean(axis=0), [3, 3], atol=0.15)
    np.testing.assert_allclose(draws.std(axis=0), [1, 2], rtol=0.08)


@pytest.mark.parametrize("stop", [61, slow(BURN_IN - 5)])
def test_a_run_with_a_short_burn_in_resumes_bit_for_bit(stop, short, tmp_path) -> None:
    """From a round that is its last, and from the steps after it."""
    stopped = sample(
        one_mode,
        num_steps=700,
        run_dir=tmp_path / "run",
        callback=lambda progress: "stop" if progress.step >= stop else None,
        chunk_steps=9,
    )
    assert stopped.num_steps < 700
    assert_same(rx.resume(tmp_path / "run", one_mode, progress=False), short)


def test_all_chains_have_the_temperatures_that_their_verdicts_together_make(whole) -> None:
    assert np.ptp(whole.temperatures, axis=0).max() == 0
    assert len(np.unique(whole.history["temperature"][0, :, 1])) > 1


def test_a_run_that_goes_on_traces_its_target_no_more(short) -> None:
    traced = []

    def energy(x):
        traced.append(x)
        return one_mode(x)

    run = sample(energy, num_steps=300)
    before = len(traced)
    more = extended(run._records, None, 340, Session(progress=False))
    assert before == len(traced) > 0 and int(more.final["step"]) == 340
    again = sample(one_mode, num_steps=340)
    np.testing.assert_array_equal(more.read("steps", "rung_of"), np.moveaxis(again.rung_of, 0, 1))


# Where replicas begin

RATES = np.random.default_rng(5).poisson(np.exp(1.0 + 0.5 * np.linspace(-1, 1, 200)))


def poisson(coef, rows):
    x, y = rows
    log_rate = coef[0] + coef[1] * x
    return y * log_rate - jnp.exp(log_rate)


@pytest.mark.slow  # how they are led to finite energies is tested in test_search.py
@pytest.mark.parametrize("far", [1e2, 1.0])
def test_starts_that_overflow_are_no_different_from_near_ones(far: float) -> None:
    """exp(100) is infinite in float32, and so is the energy at half of the starts."""
    rows = jnp.linspace(-1, 1, 200), jnp.asarray(RATES, jnp.float32)
    target = rx.bayesian(poisson, lambda coef: -jnp.sum(coef**2) / 200, rows)
    run = rx.sample(
        target,
        lambda key: far * jax.random.normal(key, (2,)),
        num_steps=660,
        num_replicas=4,
        num_chains=4,
        progress=False,
    )
    assert run.problems() == []
    assert run.round_trips.min() > 10
    np.testing.assert_allclose(run.draws.mean(axis=(0, 1)), [1.0, 0.5], atol=0.2)


def test_starts_that_are_all_outside_are_refused() -> None:
    with pytest.raises(ValueError, match="energy at the start is nan .* start where the posterior"):
        rx.sample(lambda x: jnp.sum(x) * jnp.nan, start, num_steps=660, num_replicas=3)


def within_reach(points, temperature, mixture):
    """Move points (replica, d) of one chain, whose energy has two modes, 40 apart."""

    def energies(_, points):
        apart = [np.sum((points - at) ** 2, axis=1) / 2 for at in (20.0, -20.0)]
        energy = np.where(np.abs(points).max(axis=1) > 1e3, np.inf, np.minimum(*apart))
        return energy, np.zeros(len(points))

    room = object.__new__(learning.Learning)
    room._energies_at = energies  # type: ignore[method-assign]
    points = np.asarray(points, np.float32)[None]
    return room._within_reach(None, points, np.asarray(temperature)[None], mixture)[0]  # type: ignore[arg-type]


def test_a_start_moves_to_the_nearest_minimum_as_far_as_its_rung_needs() -> None:
    means = np.array([[20.0, 20.0], [-20.0, -20.0]])
    mixture = make_mixture(np.zeros(2), means, np.stack([np.eye(2)] * 2))
    points = [[18.0, 21.0], [9.0, 5.0], [9.0, 5.0], [-3e3, 1.0]]
    near, cold, hot, far = within_reach(points, [1, 1, 100, 1], mixture)
    np.testing.assert_array_equal(near, points[0])  # it is where its rung can be
    np.testing.assert_array_equal(hot, points[2])  # 173 above the minimum is near enough there
    assert 0 < np.sum((cold - 20) ** 2) / 2 < learning._REACH * 12
    assert np.all(np.diff(cold - points[1]) > 0), "on the straight line to the minimum"
    assert np.sum((far + 20) ** 2) / 2 < learning._REACH * 12


def test_without_minima_a_start_moves_until_its_energy_is_finite() -> None:
    near, far = within_reach([[500.0, 0.0], [3e3, 0.0]], [1.0, 1.0], None)
    assert near[0] == 500.0 and far[0] == 750.0


def test_the_search_takes_the_starts_of_all_chains_in_turn_and_each_once() -> None:
    starts = np.array([[[1.0], [2.0], [1.0]], [[4.0], [3.0], [0.0]]])  # (chain, replica, d)
    assert learning._in_turn(starts).ravel().tolist() == [1.0, 4.0, 2.0, 3.0, 0.0]


def test_the_search_may_follow_draws_from_the_prior(monkeypatch) -> None:
    """Half of the further starts are the prior's, where the user's are all in one place."""
    seen, search = [], learning.search
    monkeypatch.setattr(learning, "search", lambda *args: seen.append(args[6]) or search(*args))
    posterior = rx.bayesian(
        lambda x: -8 * jnp.sum(jnp.abs(jnp.abs(x) - 3)),
        lambda x: jnp.sum(norm.logpdf(x, 0.0, 3.0)),
        draw_prior=lambda key: 3 * jax.random.normal(key, (2,)),
    )
    begin = lambda key: 3 + 0.1 * jax.random.normal(key, (2,))  # noqa: E731
    options = {"burn_in": 60, "method": rx.posterior(jumps=16), "progress": False}
    rx.sample(posterior, begin, num_steps=80, num_replicas=2, num_chains=1, **options)
    spread = seen[0].reshape(-1, 2, 2).std(axis=(0, 2))
    np.testing.assert_allclose(spread, [0.1, 3.0], rtol=0.2)
