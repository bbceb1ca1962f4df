"""Weak scaling: time per step where every device has the same number of replicas.

The devices are virtual, threads of one process that share its cores, so that times by the wall
clock grow once there are more devices than cores; what a device adds is seen in the processor time
of a replica, and what an exchange costs on the 25 modes, where a move costs next to nothing. Last,
devices that share each replica and the rows of its mini-batches: the processor time of a step tells
what they compute more than once.
"""

import os
from argparse import Namespace
from typing import Any

_MOST = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={_MOST}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from bench_overhead import logistic_regression  # noqa: E402
from loop import TOY, Loop, toy_method  # noqa: E402
from timing import Row, interleave, parse_arguments, report  # noqa: E402

import replicax as rx  # noqa: E402
from replicax.run.batches import as_batches  # noqa: E402

_UNIT = "us/iteration"
_NUM_FEATURES = 50
_PER_DEVICE = 2
_SLOW = {**TOY, "method": toy_method((1e-6, 1e-5))}


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=7)
    devices = (1, 2) if arguments.quick else (1, 2, 4, _MOST)
    rows = []
    steps = 50 if arguments.quick else 2_000
    modes, start = rx.targets.modes25(), rx.targets.modes25_start
    cases = {}
    for count in devices:
        toy = {**TOY, "num_replicas": _PER_DEVICE * _MOST}
        cases[count] = Loop(modes, start, steps, devices=count, **toy)
    timings = interleave(cases, arguments.repeats)
    for count, timing in timings.items():
        name = f"25 modes, {_PER_DEVICE * _MOST} replicas on {count} devices"
        rows.append(Row.of(name, _UNIT, timing))
        if count > 1:
            name = f"  the exchange between {count} devices"
            rows.append(Row.of(name, _UNIT, timing - timings[1]))

    energy = logistic_regression(num_rows=100 if arguments.quick else 20_000)
    steps = 10 if arguments.quick else 100
    cases = {}
    for count in devices:
        given = {**_SLOW, "num_replicas": _PER_DEVICE * count}
        cases[count] = Loop(energy, jnp.zeros(_NUM_FEATURES), steps, devices=count, **given)
    for count, timing in interleave(cases, arguments.repeats).items():
        each = np.median(timing.cpu) / (_PER_DEVICE * count)
        name = f"logistic regression, {_PER_DEVICE * count} replicas on {count} devices"
        rows.append(Row.of(name, _UNIT, timing, f"{each:.3g} a replica (cpu)"))
    rows += shared_rows(devices, steps, arguments)
    report(rows, [], arguments)


def shared_rows(devices: tuple[int, ...], steps: int, arguments: Namespace) -> list[Row]:
    """Two replicas on one device, or on so many that share each mini-batch."""
    size = 64 if arguments.quick else 16_384
    rng = np.random.default_rng(0)
    data = rng.normal(size=(size, _NUM_FEATURES)).astype(np.float32), rng.random(size) < 0.5
    batches = as_batches(jax.tree.map(jnp.asarray, data), size)

    def energy(weights: Any, rows: Any) -> Any:
        logits = rows[0] @ weights
        return jnp.sum(jnp.logaddexp(0, logits) - rows[1] * logits)

    cases = {}
    for count in devices:
        given = {**_SLOW, "num_replicas": _PER_DEVICE}
        given |= {"devices": count, "data_parallel": count, "batches": batches}
        cases[count] = Loop(energy, jnp.zeros(_NUM_FEATURES), steps, **given)
    return [
        Row.of(
            f"logistic regression, batches of {size}, {count} devices share each replica",
            _UNIT,
            timing,
            f"{np.median(timing.cpu):.3g} in all (cpu)",
        )
        for count, timing in interleave(cases, arguments.repeats).items()
    ]


if __name__ == "__main__":
    main()
