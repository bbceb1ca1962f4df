"""Where replicas and chains are: devices played by an axis that is mapped over, in one process."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from replicax.algorithm.kernel import Observed
from replicax.algorithm.spread import (
    CHAIN,
    IN_ONE_PLACE,
    REPLICA,
    Spread,
    gather_observed,
    share_rows,
)
from replicax.algorithm.tuning import StepSizeTuning

PARTS, EACH = 3, 2
COUNT = PARTS * EACH
SPREAD = Spread(1, PARTS)


def on_devices(function: Callable, *by_device: Any, axis: str = REPLICA) -> Any:
    """The results of all devices, leading axis: device; each gets its part of the arguments."""
    return jax.jit(jax.vmap(function, axis_name=axis))(*by_device or (jnp.zeros(PARTS),))


def parts_of(values: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.reshape(PARTS, EACH, *leaf.shape[1:]), values)


def of_every_kind(*shape: int) -> dict[str, Any]:
    numbers = np.random.default_rng(0).normal(size=(COUNT, *shape))
    return {
        "float": np.where(
            np.arange(numbers.size).reshape(numbers.shape) == 1, -0.0, numbers
        ).astype(np.float32),
        "half": numbers.astype(jnp.bfloat16),
        "gathered": (100 * numbers).astype(np.int32),
        "small": (100 * np.tanh(numbers)).astype(np.int8),
        "flag": numbers > 0,
    }


def assert_same_bits(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(np.asarray(found, float), np.asarray(wanted, float))
    np.testing.assert_array_equal(
        np.signbit(np.asarray(found, float)), np.signbit(np.asarray(wanted, float))
    )


@pytest.mark.parametrize("size", [1, 2**13])  # summed, and gathered where there are many
def test_every_device_gets_all_rows_to_the_last_bit(size: int) -> None:
    values = of_every_kind(size)
    found = on_devices(SPREAD.gathered, parts_of(values))
    for name, wanted in values.items():
        for device in range(PARTS):
            assert_same_bits(np.asarray(found[name])[device], wanted)


def test_a_device_has_its_part_of_the_replicas_in_their_order() -> None:
    values = of_every_kind(2)
    here = on_devices(lambda _: SPREAD.here(values))
    jax.tree.map(np.testing.assert_array_equal, here, parts_of(values))
    assert SPREAD.count(jnp.zeros((EACH, 5))) == COUNT and not SPREAD.in_one_place
    assert IN_ONE_PLACE.count(jnp.zeros((EACH, 5))) == EACH and IN_ONE_PLACE.in_one_place


def test_rows_are_taken_from_wherever_they_are() -> None:
    values = {"a": jnp.arange(2.0 * COUNT).reshape(COUNT, 2), "b": jnp.arange(COUNT)}
    source = jnp.array([5, 0, 0, 3, 2, 1])
    found = on_devices(lambda part: SPREAD.take(part, source), parts_of(values))
    jax.tree.map(
        lambda leaf, whole: np.testing.assert_array_equal(leaf, parts_of(whole[source])),
        found,
        values,
    )
    jax.tree.map(
        lambda leaf, whole: np.testing.assert_array_equal(leaf, whole[source]),
        IN_ONE_PLACE.take(values, source),
        values,
    )


@pytest.mark.parametrize("replicas", [4, [0, 5, 5, 2]])
def test_rows_known_to_one_device_are_joined_on_all(replicas: Any) -> None:
    values, wanted = of_every_kind(2), np.asarray(replicas)

    def known(part: Any) -> tuple[Any, Any]:
        rows = SPREAD.rows(part, wanted)
        return rows, SPREAD.join(rows)

    rows, joined = on_devices(known, parts_of(values))
    owner = np.asarray(wanted) // EACH
    for name, whole in values.items():
        for device in range(PARTS):
            assert_same_bits(np.asarray(joined[name])[device], whole[np.asarray(replicas)])
            elsewhere = np.asarray(rows[name][device], float)[owner != device]
            assert not elsewhere.any(), "rows of others are zeros"
    assert SPREAD.join(()) == ()


def test_what_all_devices_have_is_on_the_first_one_alone() -> None:
    part = jnp.zeros((PARTS, EACH, 3))
    first = on_devices(lambda mine: SPREAD.on_first({"x": mine}), part + 7.0)["x"]
    assert np.all(first[0] == 7) and not np.any(first[1:])


def test_what_happens_in_one_chain_of_a_device_happens_in_all_of_them() -> None:
    happened = jnp.array([False, True, False])
    many = Spread(1, PARTS, several_chains=True)
    assert many.map_chains(many.of_any_chain, 0)(happened).tolist() == [True] * 3
    assert many.map_chains(many.of_any_chain, 0)(happened & False).tolist() == [False] * 3
    assert SPREAD.map_chains(SPREAD.of_any_chain, 0)(happened).tolist() == happened.tolist()


# Chains


def test_chains_are_in_equal_parts_and_come_together() -> None:
    spread = Spread(PARTS)
    values = {"a": jnp.arange(2.0 * COUNT).reshape(COUNT, 2)}
    own = on_devices(lambda _: spread.own_chains(values), axis=CHAIN)
    jax.tree.map(np.testing.assert_array_equal, own, parts_of(values))
    whole = on_devices(spread.all_chains, parts_of(values), axis=CHAIN)["a"]
    np.testing.assert_array_equal(whole, np.broadcast_to(values["a"], whole.shape))
    by_step = jnp.arange(5.0 * COUNT).reshape(5, COUNT)  # the second axis is that of chains
    mine = jnp.moveaxis(by_step.reshape(5, PARTS, EACH), 1, 0)
    joined = on_devices(lambda part: spread.all_chains(part, axis=1), mine, axis=CHAIN)
    np.testing.assert_array_equal(joined, np.broadcast_to(by_step, (PARTS, 5, COUNT)))


@pytest.mark.parametrize(("holds", "wanted"), [([1, 1, 1], True), ([1, 0, 1], False)])
def test_what_holds_everywhere_holds_on_every_device(holds: list, wanted: bool) -> None:
    found = on_devices(Spread(PARTS).everywhere, jnp.array(holds, bool), axis=CHAIN)
    assert found.tolist() == [wanted] * PARTS


def test_one_part_is_all_and_asks_nobody() -> None:
    """Outside of any mapping, where nobody could answer."""
    values = jnp.arange(4.0)
    for alone in (Spread(), Spread(1, 1, True)):
        assert alone.in_one_place and alone.everywhere(values) is values
        assert alone.own_chains(values) is values and alone.all_chains(values) is values
    for name in ("here", "gathered", "join", "on_first", "of_any_chain", "everywhere", "own_chains",
                 "all_chains"):  # fmt: skip
        assert getattr(IN_ONE_PLACE, name)(values) is values
    assert IN_ONE_PLACE.parts == IN_ONE_PLACE.chain_parts == 1
    assert share_rows(values) is values


# Observations


@pytest.mark.parametrize("step", [4, 5, 6])
def test_steepness_is_sent_while_step_sizes_are_tuned(step: int) -> None:
    numbers, steep = jnp.arange(1.0, COUNT + 1), jnp.ones((COUNT, 2)) * jnp.arange(1.0, 3)
    observed = Observed(numbers, {"x": steep}, 2 * numbers, 3 * numbers)
    tuning = StepSizeTuning((3,), until=5)

    def sent(part: Observed) -> Any:
        return gather_observed(tuning, SPREAD, jnp.array(step), part)

    found = on_devices(sent, parts_of(observed))
    for device in range(PARTS):
        np.testing.assert_array_equal(found.step_error[device], numbers)
        np.testing.assert_array_equal(found.acceptance[device], 2 * numbers)
        np.testing.assert_array_equal(found.heating[device], 3 * numbers)
        assert found.steepness["x"][device].shape == steep.shape
        if step < 5:
            np.testing.assert_array_equal(found.steepness["x"][device], steep)
    untuned = on_devices(
        lambda part: gather_observed(None, SPREAD, jnp.array(step), part), parts_of(observed)
    )
    assert untuned.steepness is None
    assert gather_observed(tuning, SPREAD, jnp.array(step), None) is None
