"""Rows of `resnet.py` for the library's own training, chunk by chunk as `rx.train` runs it.

`train`: DEO* with augmentation, swaps, adaptation and records. `train-alone`: the same without
exchange (an ensemble); the difference is what the exchange costs.
"""

import jax
import numpy as np
from resnet_rows import Case, Setup

from replicax.data import Dataset
from replicax.networks.classification import classification
from replicax.run import chunk as layout
from replicax.run.chunk import build_chunk
from replicax.run.initial import initial_carry, seed_keys
from replicax.run.options import Training
from replicax.run.records import Records
from replicax.run.resolve import resolve

_NUM_ROWS = 50_000


def build(setup: Setup, method: str) -> Case:
    """`setup.steps` steps at a time of a training on made-up images."""
    problem = classification(
        setup.network, _images(setup), batch_size=setup.batch_size, weight_decay=5e-4
    )
    program = resolve(problem, Training(epochs=500, num_replicas=setup.replicas), method)
    carry = initial_carry(program, setup.network.init)
    chunk = build_chunk(program, seed_keys(program.seed, 1)[0], setup.steps)
    records, step = Records(), 0

    def run() -> float:
        nonlocal carry, step
        slots = layout.draw_slots(program, step, setup.steps, setup.steps)
        carry, rows = chunk(carry, program.batches.data, setup.steps, slots)
        for group, arrays in layout.to_records(program, rows, step, setup.steps).items():
            records.append(group, arrays)
        step += setup.steps
        return float(np.mean(jax.device_get(carry.counters.energy)))

    return Case(run)


def _images(setup: Setup) -> Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(_NUM_ROWS, setup.side, setup.side, 3), dtype=np.uint8)
    labels = rng.integers(setup.num_classes, size=_NUM_ROWS, dtype=np.int32)
    few = slice(0, 100)
    half = (0.5, 0.5, 0.5)
    return Dataset(
        "made up", images, labels, images[few], labels[few], setup.num_classes, half, half
    )
