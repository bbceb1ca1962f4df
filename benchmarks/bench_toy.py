"""16 replicas on the 25-mode target, one core, beside TensorFlow Probability.

replicax runs DEO*-SGD with noisy energies and gradients, adapts ladder and buffer, and records
`rung_of` at every step and every tenth draw. ReplicaExchangeMC runs 16 random-walk Metropolis
kernels at fixed temperatures on exact energies and traces the cold state and the adjacent swaps.
"""

import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from loop import TOY, Loop
from timing import Check, Lap, Row, cpu_clock, interleave, parse_arguments, report, use_one_core

import replicax as rx

_UNIT = "us/iteration"


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=15)
    use_one_core()
    steps = 400 if arguments.quick else 20_000
    start = rx.targets.modes25_start
    loop = Loop(rx.targets.modes25(), start, steps, **TOY)
    cases: dict[str, Callable[[], Any]] = {
        "loop": loop,
        "moves": loop.moves_alone(),
        "randomness": loop.randomness_alone(),
    }
    peer = tfp_replica_exchange(steps // 2)
    if peer is not None:
        cases["tfp"] = peer
    timings = interleave(cases, arguments.repeats)
    # Every call of `sample` compiles anew, so this one has fewer repeats, in turns of their own.
    few: dict[str, Callable[[], Any]] = {"sample": lambda: sample_once(5 * steps)}
    if peer is not None:
        few["tfp"] = peer
    whole = interleave(few, max(1, arguments.repeats // 3), warm_up=False)

    drawing = timings["randomness"]
    moves = timings["moves"] - drawing
    rows = [
        Row.of("replicax, compiled loop", _UNIT, timings["loop"]),
        Row.of("  randomness, drawn in blocks", _UNIT, drawing),
        Row.of("  moves and energies", _UNIT, moves),
        Row.of("  exchange, adaptation, records", _UNIT, timings["loop"] - timings["moves"]),
        Row.of("replicax, rx.sample after compiling", _UNIT, whole["sample"]),
    ]
    checks = []
    if peer is None:
        rows.append(Row("TFP ReplicaExchangeMC", _UNIT, note="not installed"))
    else:
        ratio = timings["loop"] / timings["tfp"]
        rows += [
            Row.of("TFP ReplicaExchangeMC", _UNIT, timings["tfp"]),
            Row.of("loop / TFP", "ratio", ratio),
            Row.of("rx.sample / TFP", "ratio", whole["sample"] / whole["tfp"]),
        ]
        checks.append(Check.of(rows[-2], bound=0.65, goal=0.5))
    ops = {} if arguments.quick else loop.body_ops()
    print(f"One step launches {sum(ops.values())} operations: {ops}; randomness is drawn for "
          f"{loop.block} steps at once.")  # fmt: skip
    report(rows, checks, arguments, steps=steps, body_ops=ops, block=loop.block)


def sample_once(num_steps: int) -> Lap:
    """From the end of the first chunk, which compiles, to the result."""
    seen: list[tuple[float, float, int]] = []

    def look(progress: rx.callbacks.Progress) -> None:
        seen.append((time.perf_counter(), cpu_clock(), progress.step))

    target, start = rx.targets.modes25(), rx.targets.modes25_start
    rx.sample(target, start, num_steps=num_steps, callback=look, progress=False, **TOY)
    wall, cpu, step = seen[0]
    return Lap(num_steps - step, time.perf_counter() - wall, cpu_clock() - cpu)


def tfp_replica_exchange(steps: int) -> Callable[[], int] | None:
    """The peer on the same target, or None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tensorflow_probability.substrates.jax import mcmc
    except ImportError:
        return None
    kernel = mcmc.ReplicaExchangeMC(
        target_log_prob_fn=lambda position: -rx.targets.modes25_energy(position),
        inverse_temperatures=jnp.geomspace(1.0, 0.02, TOY["num_replicas"]),
        make_kernel_fn=lambda log_prob: mcmc.RandomWalkMetropolis(target_log_prob_fn=log_prob),
    )

    @jax.jit
    def run(key, position):
        return mcmc.sample_chain(
            steps,
            current_state=position,
            kernel=kernel,
            trace_fn=lambda _, results: results.is_swap_accepted_adjacent,
            seed=key,
        )

    def case() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            jax.block_until_ready(run(jax.random.key(0), jnp.zeros(2)))
        return steps

    return case


if __name__ == "__main__":
    main()
