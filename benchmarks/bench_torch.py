"""What `rx.torch.Exchange.step` adds to a training step in PyTorch, in microseconds.

    python benchmarks/bench_torch.py

Losses come as floats, as scalar tensors of the CPU, and, where there is one, as scalar tensors of a GPU;
beside each the time of the copy to the host alone, which any loop that prints its losses pays.
"""

import os
import platform
import time

import numpy as np
import torch

import replicax as rx

REPEATS, STEPS = 7, 2000


def copy_to_host(losses: list) -> list:
    """The copy alone: one for all losses."""
    if not torch.is_tensor(losses[0]):
        return losses
    return torch.stack(losses).tolist()


def time_calls(function, rows: list) -> np.ndarray:
    """Median microseconds of a call, for each of the repeats."""
    medians = []
    for _ in range(REPEATS):
        seconds = []
        for row in rows:
            if torch.is_tensor(row[0]) and row[0].is_cuda:
                torch.cuda.synchronize()
            began = time.perf_counter()
            function(row)
            seconds.append(time.perf_counter() - began)
        medians.append(1e6 * np.median(seconds))
    return np.array(medians)


def main() -> None:
    devices = ["floats", "cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, load "
          f"{os.getloadavg()[0]:.1f}; torch {torch.__version__}; {REPEATS} x {STEPS} steps; "
          "median of a step, mean +- std over repeats")  # fmt: skip
    print(f"{'losses':8} {'replicas':>8} {'step':>16} {'copy alone':>16} {'added':>8}")
    for num_replicas in (4, 10, 32):
        made = [torch.nn.Linear(2, 2) for _ in range(num_replicas)]
        optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in made]
        exchange = rx.torch.Exchange(optimizers, learning_rate=(0.005, 0.02))
        values = np.random.default_rng(0).normal(size=(STEPS, num_replicas)).astype(np.float32)
        for device in devices:
            rows = values.tolist()
            if device != "floats":
                rows = [list(torch.tensor(row, device=device)) for row in values]
            steps = time_calls(exchange.step, rows)
            copies = time_calls(copy_to_host, rows)
            print(
                f"{device:8} {num_replicas:8} {steps.mean():9.1f} +- {steps.std():3.1f} "
                f"{copies.mean():9.1f} +- {copies.std():3.1f} {steps.mean() - copies.mean():8.1f}"
            )


if __name__ == "__main__":
    main()
