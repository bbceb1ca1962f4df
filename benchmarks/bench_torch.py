"""What `rx.torch.Exchange.step` adds to a training step in PyTorch.

Losses come as floats, and as scalar tensors of the CPU and, where there is one, of a GPU; beside
each stands the copy of the losses to the host alone, which a loop that prints them pays anyway.
"""

import sys
from typing import Any

import numpy as np
from timing import Check, Row, interleave, parse_arguments, report, use_one_core

import replicax as rx

try:
    import torch
except ImportError:
    torch: Any = None

BOUND = 100.0  # microseconds


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=9)
    if torch is None:
        print("torch is not installed: nothing to time.")
        sys.exit(0)
    use_one_core()
    num_steps = 20 if arguments.quick else 2000
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    rows, checks = [], []
    for num_replicas in (4,) if arguments.quick else (4, 10, 32):
        models = [torch.nn.Linear(2, 2) for _ in range(num_replicas)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        exchange = rx.torch.Exchange(optimizers, learning_rate=(0.005, 0.02))
        values = np.random.default_rng(0).normal(size=(num_steps, num_replicas))
        losses = {"floats": values.tolist()}
        losses |= {x: [list(torch.tensor(row, device=x)) for row in values] for x in devices}
        cases = {}
        for kind, told in losses.items():
            cases[kind] = lambda told=told, step=exchange.step: each(step, told)
            cases[kind, "copy"] = lambda told=told: each(copy_to_host, told)
        timings = interleave(cases, arguments.repeats)
        for kind in losses:
            added = timings[kind] - timings[kind, "copy"]
            rows += [
                Row.of(f"{num_replicas} replicas, {kind}", "us", timings[kind]),
                Row.of("  the copy alone", "us", timings[kind, "copy"]),
                Row.of(f"  added by the exchange of {num_replicas}, {kind}", "us", added),
            ]
            if num_replicas <= 10:
                checks.append(Check.of(rows[-1], bound=BOUND))
    report(rows, checks, arguments, torch=torch.__version__)


def each(function: Any, told: list) -> int:
    for losses in told:
        function(losses)
    return len(told)


def copy_to_host(losses: list) -> Any:
    """One copy for all losses."""
    return torch.stack(losses).tolist() if torch.is_tensor(losses[0]) else losses


if __name__ == "__main__":
    main()
