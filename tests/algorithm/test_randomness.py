"""What one step draws at random: no number serves two purposes."""

import jax
import numpy as np
import pytest

import replicax as rx
from replicax.algorithm import kernels, prng, schedule, swap
from replicax.algorithm.randomness import build_draw

NUM_REPLICAS = 4
TARGET = rx.Target(lambda x, batch, noise: 0.0, noise=lambda key: jax.random.normal(key, (2,)))


def drawn(made: schedule.Schedule, key: int = 0, step: int = 3) -> dict[str, np.ndarray]:
    """Everything that is drawn, by name; normals of the shape of the target's noise."""
    draw = build_draw(
        TARGET,
        kernels.sgld(),
        made,
        swap.bias_corrected(),
        moved=True,
        langevin=True,
        draw_batch=lambda key: jax.random.normal(key, (2,)),
    )
    replicas = rx.Replica(np.zeros((NUM_REPLICAS, 2), np.float32), ())
    random = draw(prng.make_key(key), step, replicas)
    found = {name: getattr(random, name) for name in ("move", "gradient", "energy", "log_uniform")}
    found["batch"] = random.batch
    keys = [leaf for leaf in jax.tree.leaves(random) if hasattr(leaf, "dtype")]
    keys = [leaf for leaf in keys if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    for number, leaf in enumerate(keys):  # of estimates, of the batches of attempts
        draws = [jax.random.normal(one, (2,)) for one in leaf.reshape(-1)]
        found[f"key {number}"] = np.stack(draws)
    if random.attempts is not None:
        found["attempts"] = random.attempts.energy
        found["attempts' log_uniform"] = random.attempts.log_uniform
    return {name: np.asarray(values) for name, values in found.items()}


@pytest.mark.parametrize("made", [schedule.deo(), schedule.ape()], ids=lambda made: made.name)
def test_no_number_is_drawn_twice(made: schedule.Schedule) -> None:
    found = drawn(made)
    assert found["move"].shape == found["gradient"].shape == (NUM_REPLICAS, 2)
    assert found["energy"].shape == (NUM_REPLICAS, 2)
    assert found["log_uniform"].shape == (NUM_REPLICAS - 1,)
    assert any(name.startswith("key") for name in found)
    numbers = np.concatenate([values.ravel() for values in found.values()])
    assert len(np.unique(np.abs(numbers))) == numbers.size
    if made.name == "ape":
        assert found["attempts"].shape == (6, 2, 2)
        assert found["attempts' log_uniform"].shape == (6,)


def test_another_step_or_key_draws_other_numbers() -> None:
    one = drawn(schedule.ape())
    for other in (drawn(schedule.ape(), step=4), drawn(schedule.ape(), key=1)):
        for name, values in one.items():
            assert not np.any(values == other[name]), name


def test_log_uniforms_are_logarithms_of_uniform_numbers() -> None:
    from scipy import stats

    from replicax.algorithm.randomness import log_uniform

    values = np.asarray(log_uniform(prng.make_key(2), 20_000), float)
    assert np.isfinite(values).all()
    assert stats.kstest(np.exp(values), "uniform").pvalue > 1e-3


def test_the_coin_of_seo_is_fair() -> None:
    keys = jax.random.split(prng.make_key(0), 4000)
    coins = jax.vmap(lambda key: schedule.seo().draw(key, NUM_REPLICAS))(keys)
    assert abs(float(np.mean(coins)) - 0.5) < 0.04  # standard error 0.008
