"""How many steps a chunk may have, by the memory of what it records."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest

from replicax.run.compiled_loop import chunk_capacity

BYTES, MOST = 2**26, 2**16


def capacity(**changes: Any) -> int:
    """Of two chains of four replicas with 1,000 parameters each, or with changes."""
    known = {"keep_draws": True, "draw_rungs": (0,), "thin": 1, "mesh": None}
    batch_bytes, size = changes.pop("batch_bytes", 0), changes.pop("size", 1000)
    program: Any = SimpleNamespace(**known | changes)
    program.batches = SimpleNamespace(bytes_per_step=lambda step: batch_bytes)
    state = SimpleNamespace(
        rung_of=jnp.zeros((2, 4), int), points=jnp.zeros((2, 4, size)), step=jnp.array(0)
    )
    carry: Any = SimpleNamespace(state=state)
    return chunk_capacity(program, carry)


@pytest.mark.parametrize(
    ("changes", "bytes_per_step"),
    [
        ({}, 8 + 2 * 4000),
        ({"draw_rungs": (0, 1, 3)}, 8 + 3 * 2 * 4000),
        ({"thin": 7}, 8 + 1143),  # 8,000 bytes every seventh step, rounded up
        ({"batch_bytes": 5000}, 8 + 2 * 4000 + 5000),
    ],
)
def test_a_chunk_has_room_for_its_draws_paths_and_batches(changes, bytes_per_step) -> None:
    assert capacity(**changes) == BYTES // bytes_per_step


def test_a_chunk_has_at_least_one_step_and_a_greatest_number() -> None:
    assert capacity(keep_draws=False) == MOST
    assert capacity(batch_bytes=2**30) == 1
    assert capacity(mesh="two devices") == 2**22 // 8008
