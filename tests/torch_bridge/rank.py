"""One rank of a run of several processes: `python rank.py CASE RANK SIZE FILE FOLDER`."""

import importlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx

torch: Any = None  # imported by `main`: pytest reads this file where there is none

COUNTS = {2: (3, 1)}  # replicas of each rank


def make(count: int) -> list:
    return [torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1) for _ in range(count)]


def losses() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(200, 4)).astype(np.float32)


def run(case: str, rank: int) -> dict:
    count = COUNTS[2][rank]
    options: dict = dict(learning_rate=(0.01, 0.1), target_swap_rate=0.2, window=3)
    first, optimizers = sum(COUNTS[2][:rank]), make(count)
    if case == "options" and rank == 1:
        options["target_swap_rate"] = 0.3
    if case == "replicas" and rank == 1:
        options["learning_rate"] = [0.01, 0.02, 0.1]
    if case == "LBFGS" and rank == 1:
        optimizers[0] = torch.optim.LBFGS(optimizers[0].param_groups[0]["params"])
    exchange = rx.torch.Exchange(optimizers, **options)
    for number, row in enumerate(losses()):
        mine = row[first : first + count].tolist()
        if number == 50 and rank == 1:
            mine = {"NaN": [*mine[:-1], float("nan")], "count": mine[:-1]}.get(case, mine)
        if number == 50 and case == "scheduler":
            for optimizer in optimizers[: 1 + rank]:
                optimizer.param_groups[0]["lr"] *= 0.5
        if number == 50 and case == "halved":
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] *= 0.5
        if number == 50 and case == "killed" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        exchange.step(mine)
    return {
        "paths": exchange.index_paths.tolist(),
        "rates": importlib.import_module("exchanges").rates_of(optimizers),
        "cold": exchange.cold,
        "cold_here": exchange.cold_here,
        "summary": exchange.summary(),
    }


def main(cases: str, rank: int, size: int, file: str, folder: str) -> None:
    globals()["torch"] = importlib.import_module("torch")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{file}", rank=rank, world_size=size
    )
    told: dict = {}
    for case in cases.split(","):
        try:
            told[case] = run(case, rank)
        except (ValueError, RuntimeError) as error:
            told[case] = str(error)
        Path(folder, f"{rank}.json").write_text(json.dumps(told))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
