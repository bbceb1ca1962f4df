"""What one step draws at random: no number serves two purposes."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import quick_jit

import replicax as rx
from replicax.algorithm import kernels, randomness, schedule, step, swap

NUM_REPLICAS = 4
TARGET = rx.Target(lambda x, batch, noise: 0.0, noise=lambda key: jax.random.normal(key, (2,)))


def drawn(made: schedule.Schedule, key: int = 0, number: int = 3) -> dict[str, np.ndarray]:
    """Everything that is drawn, by name; normals of the shape of the target's noise."""
    settings = rx.algorithm.Settings(made, swap.bias_corrected())
    draw_batch = lambda key: jax.random.normal(key, (2,))  # noqa: E731
    draw = step.build_draw(TARGET, kernels.sgld(), settings, draw_batch)
    replicas = rx.kernels.Replica(np.zeros((NUM_REPLICAS, 2), np.float32), ())
    random = draw(randomness.make_key(key), number, replicas)
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


@dataclass(frozen=True)
class Telling(schedule.Sequential):
    """A schedule that gives away the keys that it draws with."""

    def num_attempts(self, num_replicas: int) -> int:
        return 2

    def draw(self, key: jax.Array, num_replicas: int) -> jax.Array:
        return jax.random.key_data(key)

    def attempt_order(self, key: jax.Array, num_replicas: int) -> jax.Array:
        return jax.random.key_data(key)


def test_no_key_is_used_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one key a coin and a uniform number would depend on each other, though none is equal."""
    tell = lambda key, *rest: jax.random.key_data(key)  # noqa: E731
    monkeypatch.setattr(step, "log_uniform", tell)
    target = rx.Target(lambda x, batch, noise: 0.0, noise=tell)
    kernel = kernels.sgld()._replace(draw=tell)
    settings = rx.algorithm.Settings(Telling(), swap.bias_corrected())
    draw = step.build_draw(target, kernel, settings, draw_batch=tell)
    replicas = rx.kernels.Replica(np.zeros((NUM_REPLICAS, 2), np.float32), ())
    drawn = quick_jit(lambda: draw(randomness.make_key(0), jnp.int32(3), replicas))()
    leaves = jax.tree.leaves(drawn)
    typed = [jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves]
    keys = [tell(leaf) if is_key else leaf for leaf, is_key in zip(leaves, typed, strict=True)]
    keys = np.concatenate([np.asarray(leaf).reshape(-1, 2) for leaf in keys])
    # Of each replica three; two of pairs, of schedule and order; of attempts, their energies, ...
    assert len(keys) == 3 * NUM_REPLICAS + 1 + 1 + 1 + 1 + 2 * 2 + 2 + 1 + 1
    assert len(np.unique(keys, axis=0)) == len(keys)
    split = quick_jit(jax.vmap(lambda key: jax.random.split(jax.random.wrap_key_data(key), 8)))(
        keys
    )
    children = {tuple(key) for key in jax.random.key_data(split).reshape(-1, 2).tolist()}
    assert children.isdisjoint(tuple(key) for key in keys.tolist()), "a key that is used and split"


def test_another_step_or_key_draws_other_numbers() -> None:
    one = drawn(schedule.ape())
    for other in (drawn(schedule.ape(), number=4), drawn(schedule.ape(), key=1)):
        for name, values in one.items():
            assert not np.any(values == other[name]), name


def test_log_uniforms_are_logarithms_of_uniform_numbers() -> None:
    from scipy import stats

    from replicax.algorithm.randomness import log_uniform

    values = np.asarray(log_uniform(randomness.make_key(2), 20_000), float)
    assert np.isfinite(values).all()
    assert stats.kstest(np.exp(values), "uniform").pvalue > 1e-3


def test_the_coin_of_seo_is_fair() -> None:
    keys = jax.random.split(randomness.make_key(0), 4000)
    coins = jax.vmap(lambda key: schedule.seo().draw(key, NUM_REPLICAS))(keys)
    assert abs(float(np.mean(coins)) - 0.5) < 0.04  # standard error 0.008
