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

import replicax as rx
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


def test_without_jumps_nothing_is_searched() -> None:
    run = sample(method="posterior")
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
