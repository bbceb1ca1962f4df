"""What `rx.torch.Exchange` adds to a training step in PyTorch: its own step, and in the steps of
optimizers the rates of their rungs.

Losses come as floats, and as scalar tensors and one tensor of the device; beside each stands the
copy of the losses to the host alone, which a loop that prints them pays anyway. The last line is
JSON: microseconds per step by the wall clock and by the processor's, median, least and most.
"""

import json
import sys
import warnings
from typing import Any

import numpy as np
from timing import (
    Check,
    Row,
    Timing,
    describe_machine,
    interleave,
    parse_arguments,
    report,
    use_one_core,
)

import replicax as rx
from replicax.errors import RunProblem

try:
    import torch
except ImportError:
    torch: Any = None

BOUND = 100.0  # microseconds


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=9, device=("cpu", "cuda"))
    if torch is None:
        print("torch is not installed: nothing to time.")
        sys.exit(0)
    device = arguments.device
    if device == "cpu":
        use_one_core()  # the driver of a GPU has threads of its own
    elif not torch.cuda.is_available():
        sys.exit("PyTorch sees no GPU here.")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", RunProblem)  # random numbers are no training
    free = free_memory(device)
    num_steps = 20 if arguments.quick else 2000
    rows, checks, added_by = [], [], {}
    for num_replicas in (4,) if arguments.quick else (4, 10, 32):
        models = [torch.nn.Linear(2, 2).to(device) for _ in range(num_replicas)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
        exchange = rx.torch.Exchange(optimizers, learning_rate=(0.005, 0.02))
        values = np.random.default_rng(0).normal(size=(num_steps, num_replicas)).astype(np.float32)
        told = torch.tensor(values, device=device)
        losses = {
            "floats": values.tolist(),
            f"{device} scalars": [list(row) for row in told],
            f"one {device} tensor": list(told),
        }
        cases = {}
        for kind, some in losses.items():
            cases[kind] = lambda some=some, step=exchange.step: each(step, some, device)
            cases[kind, "copy"] = lambda some=some: each(copy_to_host, some, device)
        timings = interleave(cases, arguments.repeats)
        for kind in losses:
            added = timings[kind] - timings[kind, "copy"]
            rows += [
                Row.of(f"{num_replicas} replicas, {kind}", "us", timings[kind]),
                Row.of("  the copy alone", "us", timings[kind, "copy"]),
                Row.of(f"  added by the exchange of {num_replicas}, {kind}", "us", added),
            ]
            copy = spread_of(timings[kind, "copy"])
            added_by[f"{num_replicas} {kind}"] = {"added": spread_of(added), "copy": copy}
            if num_replicas <= 10:
                checks.append(Check.of(rows[-1], bound=BOUND))
    for rate in ("float", "tensor"):
        added = stepping_adds(rate, num_steps, arguments.repeats, device)
        rows.append(Row.of(f"added to a step of Adam, its rate a {rate}", "us", added))
        added_by[f"Adam {rate}"] = {"added": spread_of(added)}
    more = {
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "gpu_mib_taken": round((free - free_memory(device)) / 2**20),
        "us": added_by,
    }
    machine = describe_machine()
    line = {"benchmark": "bench_torch", "n": arguments.repeats, "steps": num_steps, **more}
    line |= {name: machine[name] for name in ("cpu", "cores_used", "load", "python", "jax")}
    try:
        report(rows, checks, arguments, **more)
    finally:  # it ends the program
        print(json.dumps(line))


def stepping_adds(rate: str, num_steps: int, repeats: int, device: str) -> Timing:
    """What an exchange adds to the step of an optimizer."""

    def adam() -> Any:
        param = torch.zeros(3, requires_grad=True, device=device)
        param.grad = torch.ones_like(param)
        lr = 0.1 if rate == "float" else torch.tensor(0.1, device=device)
        return torch.optim.Adam([param], lr=lr, capturable=device == "cuda")

    def steps(optimizer: Any) -> int:
        for _ in range(num_steps):
            optimizer.step()
        return num_steps

    alone, both = adam(), [adam(), adam()]
    rx.torch.Exchange(both, learning_rate=(0.005, 0.02))
    cases = {"alone": lambda: steps(alone), "exchanged": lambda: steps(both[0])}
    timings = interleave(cases, repeats)
    return timings["exchanged"] - timings["alone"]


def free_memory(device: str) -> int:
    """Bytes of the GPU that are free, after PyTorch has begun to work there."""
    if device == "cpu":
        return 0
    torch.zeros(1, device=device)
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def each(function: Any, told: list, device: str) -> int:
    if device == "cuda":
        torch.cuda.synchronize()
    for losses in told:
        function(losses)
    if device == "cuda":
        torch.cuda.synchronize()
    return len(told)


def copy_to_host(losses: Any) -> Any:
    """The quickest way to numbers: one copy for all losses of a GPU."""
    if torch.is_tensor(losses):
        return losses.tolist()
    if not torch.is_tensor(losses[0]):
        return losses
    return [x.item() for x in losses] if losses[0].is_cpu else torch.stack(losses).tolist()


def spread_of(timing: Timing) -> dict[str, list[float]]:
    """Median, least and most of a timing, by both clocks."""
    clocks = {"wall": timing.wall, "cpu": timing.cpu}
    return {
        name: [round(float(x), 1) for x in (np.median(one), one.min(), one.max())]
        for name, one in clocks.items()
    }


if __name__ == "__main__":
    main()
