"""Runs in chunks of a given length, on which no result depends."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import replicax as rx
from replicax.run import chunk, loop


@contextlib.contextmanager
def chunks_of(steps: int | None) -> Iterator[None]:
    """Make chunks of so many steps, however slow; with None as long as they are elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        if steps is not None:
            patch.setattr(loop, "_FIRST_STEPS", steps)
            patch.setattr(chunk, "_CHUNK_STEPS", steps)
            patch.setattr(chunk, "_CHUNK_SECONDS", 1e9)
        yield


def sample(*arguments: Any, chunk_steps: int | None = None, **options: Any) -> Any:
    """`rx.sample` in chunks of so many steps."""
    with chunks_of(chunk_steps):
        return rx.sample(*arguments, **options)


def resume(*arguments: Any, chunk_steps: int | None = None, **options: Any) -> Any:
    """`rx.resume` in chunks of so many steps."""
    with chunks_of(chunk_steps):
        return rx.resume(*arguments, **options)
