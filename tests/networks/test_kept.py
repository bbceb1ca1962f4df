"""Which networks of an average are kept, and how they come back."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up_metadata import metadata_of
from numpy.testing import assert_array_equal

from replicax.networks import evaluate
from replicax.networks.evaluate import MAX_BYTES, Thinning
from replicax.run import trees
from replicax.run.records import Records


def write(thinning: Thinning, num_picks: int, members: int = 1) -> list[dict[str, Any]]:
    """The rows of every pick; network n holds the number of its pick."""
    written = []
    for number in range(1, num_picks + 1):
        points = ({"w": np.full((members, 1), number, np.float32)}, {})
        rungs = np.arange(members)
        weights = np.full(members, 0.5)
        written.append(thinning.rows(number, 10 * number, weights, rungs, lambda p=points: p))
    return written


def read(written: list[dict[str, Any]]) -> evaluate.Networks | None:
    records: Any = Records()
    like = ({"w": np.zeros(1, np.float32)}, {})
    records.metadata = metadata_of(params=trees.describe(like))
    for rows in written:
        if rows:
            records.append("networks", rows)
    return evaluate.read(records)


@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("limit", [3, 8])
def test_kept_networks_are_evenly_spaced_and_few(limit: int, members: int) -> None:
    most = max(1, limit // members)
    for num_picks in (1, most, most + 1, 37, 100):
        networks = read(write(Thinning(limit), num_picks, members))
        assert networks is not None
        picks = np.unique(networks.params["w"])
        assert len(networks.weight) == members * len(picks) <= limit
        assert len(picks) >= min(num_picks, most) // 2
        assert_array_equal(picks, picks[0] * np.arange(1, len(picks) + 1))
        assert picks[-1] > num_picks - 2 * picks[0], "the newest are among them"
        assert_array_equal(networks.epoch, 10 * networks.params["w"][:, 0])
        assert_array_equal(networks.rung, np.tile(np.arange(members), len(picks)))
        assert set(networks.weight.tolist()) == {0.5}


def test_of_a_pick_above_the_limit_a_part_is_kept() -> None:
    """Ten networks are drawn from a Gaussian at once; the limit holds for them, too."""
    for num_picks in (1, 2, 5):
        networks = read(write(Thinning(4), num_picks, members=10))
        assert networks is not None and len(networks.weight) == 4
        assert_array_equal(networks.rung, np.arange(4))
        assert len(np.unique(networks.params["w"])) == 1
    points = {"w": np.arange(10, dtype=np.float32)[:, None]}, {}
    drawn = read([Thinning(4).rows(1, 7, np.ones(10), np.full(10, -1), lambda: points)])
    assert drawn is not None
    assert_array_equal(drawn.params["w"][:, 0], np.arange(4))


def test_all_are_kept_while_there_is_room() -> None:
    networks = read(write(Thinning(8), 8))
    assert networks is not None and len(networks.weight) == 8


def test_rows_that_are_written_grow_slowly() -> None:
    """Up to the limit all, then half of it whenever the number doubles."""
    rows = [bool(row) for row in write(Thinning(8), 512)]
    assert all(rows[:8]) and sum(rows) <= 8 + 4 * 6 + 1


def test_a_limit_of_none_and_of_bytes() -> None:
    assert not any(write(Thinning(0), 3)) and read([{}]) is None
    large = {"w": jnp.zeros(MAX_BYTES // 4 // 5, jnp.float32)}  # a fifth of the room
    assert Thinning.of(large, 100).limit == 5
    assert Thinning.of({"w": jnp.zeros(3)}, 100).limit == 100
    assert Thinning.of({"w": jnp.zeros(MAX_BYTES, jnp.int8)}, 0).limit == 0
    huge = {"w": jax.ShapeDtypeStruct((MAX_BYTES,), jnp.float32)}
    assert Thinning.of(huge, 100) == Thinning(1), "one is kept, whatever its size"


def test_networks_come_back_bit_for_bit() -> None:
    rng = np.random.default_rng(0)
    points = (
        {"a": rng.normal(size=(4, 2, 3)).astype(np.float32), "none": np.zeros((4, 0), np.float32)},
        {
            "low": jnp.asarray(rng.normal(size=(4, 5)), jnp.bfloat16),
            "count": np.arange(4, dtype=np.int32),
            "flag": np.array([True, False, True, True]),
        },
    )
    one = trees.describe(_first(points))
    back = evaluate._unpack(one, evaluate._pack(points), None)
    for x, y in zip(_leaves(back), _leaves(points), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        assert_array_equal(np.asarray(x), np.asarray(y))


def _leaves(tree: Any) -> list[Any]:
    import jax

    return jax.tree.leaves(tree)


def _first(tree: Any) -> Any:
    import jax

    return jax.tree.map(lambda leaf: leaf[0], tree)
