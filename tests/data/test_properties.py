"""Properties that must hold for any input: keys, trees, batches."""

import functools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import SEEDS, few
from hypothesis import example, given
from hypothesis import strategies as st

import replicax as rx
from replicax.algorithm import prng
from replicax.algorithm.randomness import draw_block
from replicax.run import batches
from replicax.run import pytrees as trees

# Keys: the bits of JAX's own generator.
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
        ours, theirs = draw_all(wide)(prng.make_key(seed)), draw_all(wide)(jax.random.key(seed))
        assert ours.keys() == theirs.keys()
        for name, drawn in ours.items():
            assert drawn.dtype == theirs[name].dtype, name
            np.testing.assert_array_equal(drawn, theirs[name], err_msg=name)


@given(seed=SEEDS)
@few
def test_an_ordinary_key_is_one_of_jax(seed: int) -> None:
    key = prng.ordinary(prng.make_key(seed))
    assert key.dtype == jax.random.key(0).dtype
    np.testing.assert_array_equal(
        jax.random.key_data(key), jax.random.key_data(jax.random.key(seed))
    )


def test_a_block_of_chance_is_that_of_its_steps_one_by_one() -> None:
    key = prng.make_key(5)

    def draw(step: jax.Array) -> dict[str, jax.Array]:
        now = jax.random.fold_in(key, step)
        return {"normal": jax.random.normal(now, (3, 2)), "coin": jax.random.bernoulli(now)}

    block = jax.jit(functools.partial(draw_block, draw))(17 + jnp.arange(6))
    assert block["normal"].shape == (6, 3, 2)
    for place in range(6):
        one = jax.jit(draw)(17 + place)
        np.testing.assert_array_equal(block["normal"][place], one["normal"])
        np.testing.assert_array_equal(block["coin"][place], one["coin"])


# Trees as plain data.
LEAVES = st.builds(
    lambda shape, dtype: np.ones(shape, dtype),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["float32", "float64", "int8"]),
)
NAMES = st.text(alphabet="ab/ .é_0", min_size=1, max_size=4)
TREES = st.recursive(
    LEAVES | st.none(),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.lists(parts, max_size=3).map(tuple)
        | st.dictionaries(NAMES, parts, max_size=3)
    ),
    max_leaves=6,
)


@given(tree=TREES)
@example(tree={"a b": np.ones(1), "a/b": np.ones(2)})
def test_a_tree_is_rebuilt_from_its_description(tree: Any) -> None:
    described = json.loads(json.dumps(trees.describe(tree)))
    leaves = jax.tree.leaves(tree)
    rebuilt = trees.rebuild(described, leaves)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(tree)
    assert all(a is b for a, b in zip(jax.tree.leaves(rebuilt), leaves, strict=True))
    assert [tuple(shape) for shape in described["shapes"]] == [x.shape for x in leaves]
    assert described["dtypes"] == [str(x.dtype) for x in leaves]
    names = described["names"]
    assert len(set(names)) == len(names) == len(leaves)
    assert all(name and not set(name) & set("/ \\") for name in names)


def test_a_tree_with_containers_of_its_own_needs_a_likeness() -> None:
    tree = {"replica": rx.Replica(np.ones(2), np.zeros(3)), "n": np.ones(())}
    described = trees.describe(tree)
    leaves = jax.tree.leaves(tree)
    assert described["structure"] is None
    assert trees.rebuild(described, leaves).keys() == {"n", "replica.params", "replica.memory"}
    rebuilt = trees.rebuild(described, leaves, like=tree)
    assert isinstance(rebuilt["replica"], rx.Replica)


# Batches.
@given(num_rows=st.sampled_from([1, 7]), batch_size=st.sampled_from([1, 3, 7]), seed=SEEDS)
@few
def test_batches_of_arrays_are_rows_of_them(num_rows, batch_size, seed) -> None:
    batch_size = min(batch_size, num_rows)
    data = {"x": np.arange(2.0 * num_rows).reshape(num_rows, 2), "y": np.arange(num_rows)}
    source = batches.as_batches(data, batch_size)
    rows = source.draw(jax.random.key(seed))
    assert rows.shape == (batch_size,) and (rows >= 0).all() and (rows < num_rows).all()
    if batch_size == num_rows:
        assert rows.tolist() == list(range(num_rows)), "everything, in order"
    taken = source.take(source.data, rows)
    np.testing.assert_array_equal(taken["y"], rows)
    np.testing.assert_array_equal(taken["x"][:, 0], 2 * taken["y"])


def test_every_row_is_drawn_equally_often() -> None:
    source = batches.as_batches(np.zeros((5, 1)), 4)
    rows = jax.vmap(source.draw)(jax.random.split(jax.random.key(0), 2500))
    counts = np.bincount(np.asarray(rows).ravel(), minlength=5)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000 * 0.8)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), looks=st.integers(0, 9))
def test_an_iterable_feeds_the_same_batches_however_it_is_cut(lengths, looks) -> None:
    total = sum(lengths)
    from_function = batches.as_batches(lambda step: {"x": np.full(2, step)}, None)
    from_iterable = batches.as_batches(({"x": np.full(2, k)} for k in range(total)), None)
    assert from_function.replayable and not from_iterable.replayable
    ahead = min(looks, total - 1)  # as `sample` does, to see whether the energy is usable
    assert from_iterable.at(ahead)["x"].tolist() == [ahead, ahead]
    start = 0
    for length in lengths:
        (count, ours), (_, theirs) = (
            b.feed(start, length, 5) for b in (from_iterable, from_function)
        )
        assert count == length
        assert ours["x"].shape == (5, 2), "padded to the capacity of a chunk"
        np.testing.assert_array_equal(ours["x"], theirs["x"])
        assert ours["x"][:length, 0].tolist() == list(range(start, start + length))
        start += length
    with pytest.raises(ValueError, match=f"ended at step {total}; .*itertools.cycle"):
        from_iterable.at(total)
    with pytest.raises(ValueError, match="cannot be had again. Give a function of the step"):
        from_iterable.at(start - 1)


@given(skipped=st.integers(0, 9))
@few
def test_a_resumed_iterable_is_skipped_forward(skipped: int) -> None:
    source = batches.as_batches(iter(range(10)), None)
    source.skip_to(skipped)
    assert source.position == skipped
    count, fed = source.feed(skipped, 2, 3)
    assert count == min(2, 10 - skipped) and fed[0] == skipped, "what there is, then the end"
