"""`replicax.algorithm.randomness`: keys draw the same bits as JAX's own generator."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import SEEDS, few
from hypothesis import example, given
from hypothesis import strategies as st

from replicax.algorithm import randomness
from replicax.algorithm.randomness import draw_block

DRAWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "bits8": lambda key: jax.random.bits(key, (5,), jnp.uint8),
    "bits16": lambda key: jax.random.bits(key, (4, 3), jnp.uint16),
    "bits32": lambda key: jax.random.bits(key, (7,), jnp.uint32),
    "one word": lambda key: jax.random.bits(key, (), jnp.uint32),
    "nothing": lambda key: jax.random.bits(key, (0,), jnp.uint32),
    "normal": lambda key: jax.random.normal(key, (3, 2)),
    "bfloat16": lambda key: jax.random.normal(key, (5,), jnp.bfloat16),
    "uniform": lambda key: jax.random.uniform(key, (6,)),
    "exponential": lambda key: jax.random.exponential(key, (6,)),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (9,)),
    "randint": lambda key: jax.random.randint(key, (9,), 0, 1000),
    "permutation": lambda key: jax.random.permutation(key, 13),
    "split": lambda key: jax.random.key_data(jax.random.split(key)),
    "split many": lambda key: jax.random.key_data(jax.random.split(key, (3, 2))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 - 1)),
    "grandchild": lambda key: jax.random.normal(jax.random.split(jax.random.fold_in(key, 7), 4)[2]),
}
WIDE_DRAWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "bits64": lambda key: jax.random.bits(key, (5,), jnp.uint64),
    "doubles": lambda key: jax.random.normal(key, (3,)),
    "long integers": lambda key: jax.random.randint(key, (4,), 0, 2**40),
    "permutation": lambda key: jax.random.permutation(key, 13),
}


@functools.cache
def draw_all(wide: bool) -> Callable[[jax.Array], dict[str, jax.Array]]:
    draws = WIDE_DRAWS if wide else DRAWS
    return jax.jit(
        lambda key: {name: draw(key) for name, draw in draws.items()},
        compiler_options={"xla_backend_optimization_level": 0},
    )


@given(seed=st.integers(-(2**31), 2**31 - 1), wide=st.booleans())
@example(seed=0, wide=False)
@example(seed=0, wide=True)
@few
def test_keys_draw_what_the_default_generator_draws(seed, wide) -> None:
    with jax.enable_x64(wide):
        ours, theirs = (
            draw_all(wide)(randomness.make_key(seed)),
            draw_all(wide)(jax.random.key(seed)),
        )
        assert ours.keys() == theirs.keys()
        for name, drawn in ours.items():
            assert drawn.dtype == theirs[name].dtype, name
            np.testing.assert_array_equal(drawn, theirs[name], err_msg=name)


@given(seed=SEEDS)
@few
def test_an_ordinary_key_is_one_of_jax(seed: int) -> None:
    key = randomness.ordinary(randomness.make_key(seed))
    assert key.dtype == jax.random.key(0).dtype
    np.testing.assert_array_equal(
        jax.random.key_data(key), jax.random.key_data(jax.random.key(seed))
    )


def test_a_block_of_draws_is_that_of_its_steps_one_by_one() -> None:
    key = randomness.make_key(5)

    def draw(step: jax.Array) -> dict[str, jax.Array]:
        now = jax.random.fold_in(key, step)
        return {"normal": jax.random.normal(now, (3, 2)), "coin": jax.random.bernoulli(now)}

    block = jax.jit(functools.partial(draw_block, draw))(17 + jnp.arange(6))
    assert block["normal"].shape == (6, 3, 2)
    for index in range(6):
        one = jax.jit(draw)(17 + index)
        np.testing.assert_array_equal(block["normal"][index], one["normal"])
        np.testing.assert_array_equal(block["coin"][index], one["coin"])


def test_the_quick_generator_is_used_where_it_is_quick() -> None:
    is_ordinary = randomness.make_key(0).dtype == jax.random.key(0).dtype
    assert is_ordinary is (jax.default_backend() != "cpu")
    assert randomness.ordinary(randomness.make_key(0)).dtype == jax.random.key(0).dtype


def test_a_draw_that_one_key_cannot_serve_is_refused() -> None:
    high, _ = jax.eval_shape(lambda: randomness._counters((2**16, 2**15)))
    assert high.shape == (2**16, 2**15)
    with pytest.raises(ValueError, match="larger than one key can serve"):
        jax.eval_shape(lambda: randomness._counters((2**16, 2**16)))


def test_derived_keys_are_computed_once() -> None:
    """Without barriers XLA nests them in every draw; jax 0.11 then compiles for minutes."""
    derive = jax.jit(lambda key: jax.random.split(jax.random.fold_in(key, 3), 4)[2])
    text = derive.lower(randomness.make_key(0)).as_text()
    assert text.count("optimization_barrier") == 2
