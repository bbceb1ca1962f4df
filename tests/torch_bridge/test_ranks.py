"""Two gloo processes that share four replicas decide as one process does."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import rates_of  # noqa: E402

import replicax as rx  # noqa: E402

RANK = Path(__file__).with_name("rank.py")
CASES = ("good", "halved", "options", "replicas", "LBFGS", "NaN", "count", "scheduler", "killed")


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    arguments = [str(folder / "rendezvous"), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(Path(rx.__file__).parents[1])}
    command = [sys.executable, RANK, ",".join(CASES)]
    processes = [
        subprocess.Popen([*command, str(rank), "2", *arguments], env=environment)
        for rank in range(2)
    ]
    try:
        assert [process.wait(timeout=240) for process in processes] == [0, -signal.SIGKILL]
    finally:
        for process in processes:
            process.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize(("case", "factor"), [("good", 1.0), ("halved", 0.5)])
def test_two_ranks_decide_as_one_process(told, case, factor) -> None:
    optimizers = [torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), lr=0.1) for _ in range(4)]
    exchange = rx.torch.Exchange(
        optimizers, learning_rate=(0.01, 0.1), target_swap_rate=0.2, window=3
    )
    for number, row in enumerate(np.random.default_rng(3).normal(size=(200, 4))):
        if number == 50:
            for optimizer in optimizers:
                optimizer.param_groups[0]["lr"] *= factor
        exchange.step(row.astype(np.float32).tolist())
    ranks = [ranked[case] for ranked in told]
    assert ranks[0]["paths"] == ranks[1]["paths"] == exchange.index_paths.tolist()
    assert len(set(map(tuple, ranks[0]["paths"]))) > 5, "nothing swapped"
    rates = ranks[0]["rates"] + ranks[1]["rates"]
    assert rates == rates_of(optimizers)
    assert ranks[0]["summary"] == ranks[1]["summary"] == exchange.summary()
    assert [one["cold"] for one in ranks] == [exchange.cold] * 2
    here = [exchange.cold - first if exchange.cold in mine else None for first, mine in HERE]
    assert [one["cold_here"] for one in ranks] == here


HERE = ((0, [0, 1, 2]), (3, [3]))  # first replica and replicas of each rank


@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        ("options", "Ranks 0 and 1 disagree", "Ranks 0 and 1 disagree"),
        ("replicas", "Ranks 0 and 1 disagree", "Ranks 0 and 1 disagree"),
        ("LBFGS", "Rank 1 failed: optimizers[0] is LBFGS", "optimizers[0] is LBFGS"),
        ("NaN", "Rank 1 failed in this step", "losses[0] is nan"),
        ("count", "Rank 1 failed in this step", "losses are 0 numbers"),
        ("scheduler", "LR schedulers have multiplied the", "Rank 0 failed in this step"),
    ],
)
def test_what_one_rank_does_wrong_is_told_on_both(told, case, first, second) -> None:
    assert told[0][case].startswith(first), told[0][case]
    assert told[1][case].startswith(second), told[1][case]


def test_a_rank_that_was_killed_is_told_on_the_other(told) -> None:
    assert told[0]["killed"].startswith("The losses of step 50 could not be gathered")
    assert "load the last state_dict" in told[0]["killed"]
