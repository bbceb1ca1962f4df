"""Runs of another target, full disks, folders in use, kills and signals: nothing is lost."""

import errno
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import pytest
from common import assert_same_run, slow
from stopped_runs import ROWS, STEPS, energy, resume, run

import replicax as rx
from replicax.run.storage import checkpoint
from replicax.run.storage.files import Lock

pytestmark = pytest.mark.filterwarnings("ignore:.*(R-hat|effective|round trip|chain|trips|start)")

# another target


def other(x, rows):
    return energy(x, rows) + jnp.sum(x["a"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": other}, "energies near its start"),
        ({"rows": ROWS[::-1]}, "the data are not those"),
        ({"rows": ROWS.at[39].add(1.0)}, "the data are not those"),
        ({"rows": ROWS.astype(jnp.float16)}, "the data are not those"),
    ],
)
def test_another_target_or_other_data_are_refused(folder: Path, change: dict, said: str) -> None:
    with pytest.raises(ValueError, match=f"{said}.*force=True"):
        resume(folder, **change)


def test_force_goes_on_with_another_target(folder: Path) -> None:
    assert resume(folder, other, force=True).num_steps == STEPS


# a full disk


FULL = {
    "disk": OSError(errno.ENOSPC, "No space left on device"),
    "orbax": ValueError("RESOURCE_EXHAUSTED: Error writing file: No space left on device\n" * 40),
}


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
def test_a_full_disk_keeps_the_last_state(
    tmp_path: Path, whole: rx.Posterior, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    save, folder = checkpoint.save, tmp_path / "run"

    def fills_up(folder: Path, step: int, arrays: Any) -> str:
        if step > 20:
            raise error
        return save(folder, step, arrays)

    monkeypatch.setattr(checkpoint, "save", fills_up)
    said = "step 40 could not be saved.*no space is left on the disk.*step 20 is intact"
    with pytest.raises(OSError, match=said) as caught:
        run(run_dir=folder, chunk_steps=20, checkpoint_every=20)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    assert_same_run(resume(folder), whole)


def test_a_disk_without_room_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="step 0 could not be saved.*no space is left on the disk"):
        run(run_dir=tmp_path / "run")
    assert not (tmp_path / "run/commits").exists()


# one process at a time


def test_a_folder_in_use_names_the_process(folder: Path) -> None:
    with Lock(folder):
        who = f"in use by process {os.getpid()} on {socket.gethostname()}"
        with pytest.raises(ValueError, match=who):
            resume(folder)
        with pytest.raises(ValueError, match=who):
            run(run_dir=folder)
        rx.load(folder)  # which only reads
    assert resume(folder).num_steps == STEPS


def _hold(folder: Path, ready: Any) -> None:
    with Lock(folder):
        ready.set()
        signal.pause()


def test_a_dead_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    process = spawn.Process(target=_hold, args=(tmp_path, ready))
    process.start()
    assert ready.wait(120)
    with pytest.raises(ValueError, match=f"process {process.pid}"), Lock(tmp_path):
        pass
    process.kill()
    process.join()
    with Lock(tmp_path):
        pass


# a folder is never blocked


def test_a_run_that_was_killed_before_its_first_step_starts_anew_or_resumes(
    tmp_path: Path, whole: rx.Posterior
) -> None:
    def die(progress: rx.callbacks.Progress) -> None:
        raise MemoryError

    folder = tmp_path / "run"
    with pytest.raises(MemoryError):
        run(run_dir=folder, chunk_steps=20, callback=die)
    (folder / "commits/20.json").unlink()
    with pytest.raises(ValueError, match="before its first step"):
        rx.load(folder)
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    assert_same_run(resume(copy), whole)
    assert_same_run(run(run_dir=folder), whole)
    with pytest.raises(ValueError, match="already holds a run"):
        run(run_dir=folder)


# a run that is extended


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_extended_run_is_a_longer_one_with_its_burn_in(tmp_path: Path) -> None:
    def well(x: Any) -> Any:
        return jnp.sum((x**2 - 1) ** 2) * 2 + 0.3 * jnp.sum(x)

    options: dict[str, Any] = {"num_replicas": 3, "progress": False, "history_every": 50}
    short = rx.sample(well, jnp.zeros(2), num_steps=400, run_dir=tmp_path / "run", **options)
    burn_in = short.metadata.resolved.burn_in
    extended = rx.resume(tmp_path / "run", well, num_steps=600, progress=False)
    assert extended.metadata.resolved.burn_in == burn_in == 133
    straight = rx.sample(well, jnp.zeros(2), num_steps=600, burn_in=burn_in, **options)
    assert_same_run(extended, straight)
    other = rx.sample(well, jnp.zeros(2), num_steps=600, **options)
    assert other.metadata.resolved.burn_in == 200


# signals

SIGNALLED = """
    import os, sys, time
    sys.path[:0] = {paths!r}
    import stopped_runs

    def send(progress):
        if progress.step == 20:
            os.kill(os.getpid(), {number})
            time.sleep(0.05)

    posterior = stopped_runs.run(run_dir={folder!r}, chunk_steps=20, callback=send)
    print("went on")
"""


@pytest.mark.parametrize("name", ["SIGTERM", slow("SIGUSR1")])
def test_a_signal_saves_and_ends_the_process(name: str, tmp_path: Path, whole) -> None:
    number, folder = getattr(signal, name), tmp_path / "run"
    paths = [str(path) for path in (Path(__file__).parents[2], *Path(__file__).parents[:2])]
    program = SIGNALLED.format(paths=paths, number=int(number), folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 128 + number and "went on" not in done.stdout, done.stderr
    assert f"interrupted by {name} at step" in done.stderr
    assert f"replicax resume {folder}" in done.stderr and "Traceback" not in done.stderr
    assert rx.load(folder).result.code == "interrupted"
    assert_same_run(resume(folder), whole)


def test_a_handler_of_the_users_own_stays() -> None:
    seen: list[int] = []

    def send(progress: rx.callbacks.Progress) -> None:
        if progress.step == 10:
            os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        assert run(20, chunk_steps=10, callback=send).result.code == "finished"
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == [signal.SIGUSR1]
