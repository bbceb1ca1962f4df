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
from replicax.algorithm.mixture import Mixture
from replicax.run import learning

STEPS, BURN_IN = 420, 240


def two_modes(x):
    centres = jnp.array([[-4.0, 0.0], [4.0, 1.0]])
    parts = -jnp.sum((x - centres) ** 2, axis=1) / (2 * 0.5**2)
    return -jax.nn.logsumexp(parts + jnp.log(jnp.array([0.3, 0.7])))


def start(key):
    return 4 * jax.random.normal(key, (2,))


def sample(chunk_steps=None, **options):
    options = {"num_steps": STEPS, "burn_in": BURN_IN, "num_chains": 2, "seed": 1} | options
    options = {"method": rx.posterior(jumps=64)} | options
    with chunks_of(chunk_steps):
        return rx.sample(two_modes, start, num_replicas=4, progress=False, **options)


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
    seen = []
    renew = learning.Learning._renew_mixture

    def recorded(self, program, state, step):
        seen.append(step)
        return renew(self, program, state, step)

    monkeypatch.setattr(learning.Learning, "_renew_mixture", recorded)
    sample()
    assert seen and max(seen) <= BURN_IN and seen == sorted(seen)


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
