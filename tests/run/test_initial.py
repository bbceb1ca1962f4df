"""Starts of a run: their axes, whether they are one point, and the memory that they take."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.run import devices
from replicax.run.initial import check_memory, have_one_start, initial_points

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("change", "one"),
    [(None, True), ((0, 1), False), ((1, 0), False), ((slice(None), 2), False)],
)
def test_starts_are_one_point_where_no_replica_of_any_chain_differs(change: Any, one: bool) -> None:
    points = jnp.ones((2, 3, 4))
    points = points if change is None else points.at[(*change, 3)].set(2.0)
    carry: Any = SimpleNamespace(
        state=SimpleNamespace(points={"x": points, "y": jnp.zeros((2, 3))})
    )
    assert have_one_start(carry) is one


def test_starts_by_replica_and_by_chain() -> None:
    """With as many chains as replicas, and as many numbers, `by_chain` decides."""
    tree = jnp.arange(8.0).reshape(2, 2, 2)
    by_chain = initial_points(rx.per_replica(tree, by_chain=True), KEY, 2, 2)
    np.testing.assert_array_equal(by_chain, tree)
    by_replica = initial_points(rx.per_replica(tree, by_chain=False), KEY, 2, 2)
    np.testing.assert_array_equal(by_replica, np.stack([tree, tree]))
    with pytest.raises(ValueError, match="write rx.per_replica"):
        initial_points(rx.per_replica(tree), KEY, 2, 2)
    unequal = initial_points(rx.per_replica(tree), KEY, 3, 2)
    np.testing.assert_array_equal(unequal, np.stack([tree] * 3))


def test_memory_is_that_of_three_copies_of_all_replicas_of_all_chains(monkeypatch) -> None:
    """1,000 parameters and 64 bytes of a rung: 12,064 bytes of each of 3 x 5 replicas."""
    for present, fits in ((15 * 12_064, True), (15 * 12_064 - 1, False)):
        monkeypatch.setattr(devices, "memory_bytes", lambda present=present: float(present))
        for params in (np.zeros(1000), lambda key: jnp.zeros(1000)):
            if fits:
                check_memory(params, 3, 5)
                continue
            with pytest.raises(ValueError, match="num_replicas is 5 and num_chains 3"):
                check_memory(params, 3, 5)


@pytest.mark.parametrize(("num_chains", "where"), [(1, "replica 1;"), (2, "replica 1 of chain 0;")])
def test_a_start_without_mass_is_named_with_its_chain_where_there_are_several(
    num_chains: int, where: str
) -> None:
    starts = rx.per_replica(jnp.array([1.0, -1.0, 1.0]))
    options = {"num_steps": 2, "num_replicas": 3, "num_chains": num_chains, "progress": False}
    with pytest.raises(ValueError, match=f"The energy at the start is nan for {where} start where"):
        rx.sample(lambda x: -jnp.log(x), starts, method=rx.deo((0.1, 0.2)), **options)
