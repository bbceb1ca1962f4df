"""Runs in processes of their own that are killed at random moments and begun again.

Each process starts the run, or resumes what is in the folder. Checkpoints follow each other so
closely that it writes nearly all of the time.
"""

import multiprocessing
import random
import signal
import time
import warnings
from pathlib import Path
from typing import Any

EVERY = 4  # steps from one checkpoint to the next
# Every process is forked from one that has imported these, which takes most of its time.
PRELOADED = ["jax", "optax", "scipy.stats", "xarray", "zarr", "orbax.checkpoint"]
PROCESSES = multiprocessing.get_context("forkserver")


def sample(folder: Path | None) -> Any:
    """Sample a mixture into `folder`, or continue there."""
    import jax.numpy as jnp
    from common import chunks_of

    import replicax as rx

    def energy(x):
        one, other = jnp.sum((x["a"] - 2) ** 2), jnp.sum((x["a"] + 2) ** 2)
        return x["b"] ** 2 - jnp.logaddexp(-one, -other)

    if folder is not None and (folder / "run.json").exists() and any(folder.glob("commits/*.json")):
        with chunks_of(EVERY):
            return rx.resume(folder, energy, progress=False)
    with chunks_of(EVERY):
        return rx.sample(
            energy, {"a": jnp.zeros(3), "b": jnp.array(0.5)}, num_steps=140, num_replicas=4,
            num_chains=2, method=rx.deo_star((0.01, 0.1)), history_every=7, thin=3, burn_in=5,
            run_dir=folder, checkpoint_every=EVERY, progress=False, seed=5,
        )  # fmt: skip


def train(folder: Path | None) -> Any:
    """Train tiny networks into `folder`, or continue there."""
    from tiny_networks import EXCHANGING, NETWORK, tiny_problem

    import replicax as rx

    problem = tiny_problem()
    if folder is not None and (folder / "run.json").exists() and any(folder.glob("commits/*.json")):
        return rx.resume(folder, problem, progress=False)
    return rx.train(
        problem, NETWORK.init, run_dir=folder, checkpoint_every=EVERY, keep_networks=True,
        **EXCHANGING | {"epochs": 30},
    )  # fmt: skip


KINDS = {"sample": sample, "train": train}


def run_with_kills(kind: str, folder: Path, num_kills: int, seed: int) -> int:
    """Run to the end through `num_kills` kills; return the number of kills that hit the run."""
    PROCESSES.set_forkserver_preload(PRELOADED)
    moments = random.Random(seed)
    hits = 0
    for _ in range(num_kills):
        newest = _newest(folder)
        process = PROCESSES.Process(target=_start_or_resume, args=(kind, folder))
        process.start()
        while process.is_alive() and _newest(folder) == newest:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.15))
        if process.is_alive():
            process.kill()
            hits += 1
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), "its traceback is above"
    process = PROCESSES.Process(target=_start_or_resume, args=(kind, folder))
    process.start()
    process.join()
    assert process.exitcode == 0
    return hits


def _start_or_resume(kind: str, folder: Path) -> None:
    warnings.simplefilter("ignore")
    KINDS[kind](folder)


def _newest(folder: Path) -> int:
    return max((int(path.stem) for path in folder.glob("commits/*.json")), default=-1)


def evaluated(folder: Path | None) -> Any:
    """Train, with an evaluation that a process outside can find at work: it waits for its death
    where the file `at work` asks for that."""
    from tiny_networks import EXCHANGING, NETWORK, tiny_problem

    import replicax as rx

    waits = None if folder is None else folder.parent / "wait"

    def evaluate(epoch: Any) -> dict[str, float]:
        if waits is not None and waits.exists() and epoch.number == int(waits.read_text()):
            (waits.parent / "at work").touch()
            time.sleep(600)
        return {"twice": 2.0 * epoch.number}

    problem = tiny_problem()
    if folder is not None and any(folder.glob("commits/*.json")):
        return rx.resume(folder, problem, evaluate=evaluate, progress=False)
    return rx.train(
        problem, NETWORK.init, run_dir=folder, checkpoint_every=EVERY, evaluate=evaluate,
        keep_networks=True,
        **EXCHANGING | {"epochs": 8},
    )  # fmt: skip


def show(folder: Path) -> None:
    """Write all that is shown of a run, again and again, until the process is killed."""
    import replicax as rx
    from replicax.cli.main import main

    warnings.simplefilter("ignore")
    while True:
        rx.load(folder).report()
        main(["plot", str(folder)])


def kill_while(target: Any, args: tuple, begun: Any, seconds: float = 0.0) -> None:
    """Start a process, and kill it a time after `begun()`."""
    PROCESSES.set_forkserver_preload(PRELOADED)
    process = PROCESSES.Process(target=target, args=args)
    process.start()
    while not begun():
        assert process.is_alive(), "its traceback is above"
        time.sleep(0.01)
    time.sleep(seconds)
    process.kill()
    process.join()
