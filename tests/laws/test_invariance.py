"""What a run does not depend on: chunks, checkpoints, the number of chains."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import ROWS, quietly, slow

import replicax as rx


class Regression:
    """A straight line seen through mini-batches; counts how often Python runs it."""

    calls = 0

    def __call__(self, params: Any, rows: jax.Array, key: jax.Array) -> jax.Array:
        self.calls += 1
        residual = rows[:, 0] - params["slope"] * rows[:, 1] - params["shift"][0]
        return 20 * jnp.mean(residual**2) + 0.1 * jax.random.normal(key)


def regress(**options: Any) -> tuple[rx.Posterior, int]:
    """The posterior, and how often the energy was traced."""
    defaults = {
        "num_steps": 300,
        "num_chains": 3,
        "batches": ROWS,
        "batch_size": 8,
        "kernel": "momentum",
        "learning_rate": (0.0005, 0.005),
        "window": 4,
        "burn_in": 5,
        "thin": 2,
        "history_every": 13,
        "seed": 4,
    }
    params = {"slope": jnp.zeros(()), "shift": [jnp.zeros(())]}
    energy = Regression()
    return quietly(energy, params, **(defaults | options)), energy.calls


@pytest.fixture(scope="module")
def usual() -> tuple[rx.Posterior, int]:
    posterior, calls = regress()
    assert (np.diff(posterior.rung_of.astype(int), axis=1) != 0).sum() > 200
    return posterior, calls


def assert_same_bits(one: rx.Posterior, other: rx.Posterior) -> None:
    pairs = zip(jax.tree.leaves(one.draws), jax.tree.leaves(other.draws), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)
    for name in ("rung_of", "learning_rates", "buffer", "round_trips", "energies"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("verdict_rate", "window_swap_rate", "temperatures"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name, values in one.history.items():
        np.testing.assert_array_equal(values, other.history[name], err_msg=name)


@pytest.mark.parametrize("chunk_steps", [slow(1), 7, slow(64)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_length_of_a_chunk_changes_nothing_and_traces_nothing(usual, chunk_steps) -> None:
    chunks = []
    posterior, calls = regress(chunk_steps=chunk_steps, callback=lambda p: chunks.append(p.step))
    assert len(chunks) == -(-300 // chunk_steps)
    assert calls == usual[1], "traced again"
    assert_same_bits(posterior, usual[0])


@pytest.mark.parametrize(("checkpoint_every", "chunk_steps"), [(3, 64), slow(50, None)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checkpoints_change_nothing(tmp_path, usual, checkpoint_every, chunk_steps) -> None:
    options = {"checkpoint_every": checkpoint_every, "chunk_steps": chunk_steps}
    posterior, _ = regress(run_dir=tmp_path / "run", **options)
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) >= 2
    assert_same_bits(posterior, usual[0])
    assert_same_bits(rx.load(tmp_path / "run"), usual[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_chain_does_not_know_of_the_others(usual) -> None:
    several, (alone, _) = usual[0], regress(num_chains=1)
    np.testing.assert_array_equal(alone.rung_of[0], several.rung_of[0])
    for ours, theirs in zip(jax.tree.leaves(alone.draws), jax.tree.leaves(several.draws)):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone.learning_rates[0], several.learning_rates[0], rtol=1e-4)
    assert not np.array_equal(several.rung_of[0], several.rung_of[1])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_another_seed_is_another_run(usual) -> None:
    other, _ = regress(seed=5)
    assert not np.array_equal(other.rung_of, usual[0].rung_of)
