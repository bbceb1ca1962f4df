"""A small mini-batch run that tests stop, damage and continue."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
from common import chunks_of, in_method

import replicax as rx

OPTIONS: dict[str, Any] = dict(
    num_replicas=3, num_chains=2, learning_rate=(0.01, 0.1), buffer=0.1, seed=2, progress=False
)
STEPS = 60


def energy(x, rows):
    return jnp.sum((x["a"] - jnp.mean(rows)) ** 2) + 0.1 * x["b"] ** 2


START = {"a": jnp.zeros(2), "b": jnp.array(1.0)}
ROWS = jnp.arange(40.0)


def run(
    num_steps: int = STEPS, rows: Any = ROWS, chunk_steps: int | None = None, **options: Any
) -> rx.Posterior:
    with chunks_of(chunk_steps):
        return rx.sample(
            energy, START, num_steps=num_steps, batches=rows, batch_size=8, history_every=10,
            **in_method(OPTIONS | options),
        )  # fmt: skip


def resume(
    folder: Path,
    target: Any = energy,
    rows: Any = ROWS,
    chunk_steps: int | None = None,
    **options: Any,
) -> rx.Posterior:
    with chunks_of(chunk_steps):
        return rx.resume(folder, target, batches=rows, batch_size=8, progress=False, **options)
