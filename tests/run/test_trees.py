"""Descriptions of pytrees as plain data, for any tree."""

import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

import replicax as rx
from replicax.run import trees

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
    spec = trees.describe(tree)
    described = replace(spec, structure=json.loads(json.dumps(spec.structure)))
    leaves = jax.tree.leaves(tree)
    rebuilt = trees.rebuild(described, leaves)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(tree)
    assert all(a is b for a, b in zip(jax.tree.leaves(rebuilt), leaves, strict=True))
    assert described.shapes == tuple(x.shape for x in leaves)
    assert described.num_elements == sum(x.size for x in leaves)
    assert described.dtypes == tuple(str(x.dtype) for x in leaves)
    names = described.names
    assert len(set(names)) == len(names) == len(leaves)
    assert all(name and not set(name) & set("/ \\") for name in names)


def test_a_tree_with_containers_of_its_own_needs_a_likeness() -> None:
    tree = {"replica": rx.kernels.Replica(np.ones(2), np.zeros(3)), "n": np.ones(())}
    described = trees.describe(tree)
    leaves = jax.tree.leaves(tree)
    assert described.structure is None
    assert trees.rebuild(described, leaves).keys() == {"n", "replica.params", "replica.memory"}
    rebuilt = trees.rebuild(described, leaves, like=tree)
    assert isinstance(rebuilt["replica"], rx.kernels.Replica)
