"""`replicax launch`: processes that start, end and start again together."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replicax.cli import launch as module
from replicax.cli.launch import _resuming

SCRIPT = "import os, sys, time; number = os.environ['JAX_PROCESS_ID']; "


def launch(code: str, *options: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "replicax", "launch", *options, "--"]
    return subprocess.run(
        [*command, sys.executable, "-c", SCRIPT + code], capture_output=True, text=True, timeout=60
    )


def test_only_the_first_process_prints():
    done = launch("print('process', number, 'of', os.environ['JAX_NUM_PROCESSES'])")
    assert (done.returncode, done.stdout, done.stderr) == (0, "process 0 of 2\n", "")


@pytest.mark.parametrize("dies", ["0", "1"])
def test_a_process_that_dies_ends_the_others(dies):
    began = time.monotonic()
    done = launch(f"number == '{dies}' and sys.exit('broke'); time.sleep(100)")
    assert time.monotonic() - began < 40
    assert done.returncode == 1
    assert f"Process {dies} of 2 ended with exit code 1; the others were stopped." in done.stderr
    assert "broke" in done.stderr


def test_a_signal_is_named():
    done = launch("number == '1' and os.kill(os.getpid(), 9); time.sleep(100)")
    assert "Process 1 of 2 ended with signal 9" in done.stderr
    assert done.returncode == 137


def test_sigterm_ends_all():
    code = SCRIPT + "print('ready', flush=True); time.sleep(100)"
    command = [sys.executable, "-m", "replicax", "launch", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None and launcher.stdout.readline() == "ready\n"
        launcher.terminate()
        assert launcher.wait(timeout=30) == 128 + 15


def test_a_signal_that_comes_while_a_process_is_started_reaches_it(monkeypatch):
    started = module._start

    def interrupted(command, number, *rest):
        child = started(command, number, *rest)
        number == 1 and signal.raise_signal(signal.SIGTERM)
        return child

    monkeypatch.setattr(module, "_start", interrupted)
    began = time.monotonic()
    assert module._run_once(["sleep", "100"], 2) == (128 + 15, None)
    assert time.monotonic() - began < 20


def test_processes_are_started_again(tmp_path):
    code = f"p = {str(tmp_path / 'tried')!r} + number; tried = os.path.exists(p); open(p, 'w'); "
    code += "number == '1' and not tried and sys.exit(1); tried or time.sleep(100); print('done')"
    done = launch(code, "--restarts", "2")
    assert done.returncode == 0
    assert done.stdout == "done\n"
    assert "Restart 1 of 2." in done.stderr and "Restart 2" not in done.stderr


def test_a_command_that_cannot_start_is_one_sentence():
    command = [sys.executable, "-m", "replicax", "launch", "--", "no-such-program"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr.startswith("no-such-program cannot be started")


def test_a_restart_continues_the_run(tmp_path, monkeypatch):
    command = ["replicax", "train", "--out", str(tmp_path), "--devices", "4", "--epochs", "3"]
    command += ["--data-parallel=2"]
    assert _resuming(command) == command  # nothing there yet
    (tmp_path / "run.json").touch()
    assert _resuming(command) == command, "nothing was saved yet"
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0.json").touch()
    layout = ["--devices", "4", "--data-parallel", "2"]
    assert _resuming(command) == ["replicax", "resume", str(tmp_path), *layout]
    assert _resuming(["python", "train.py"]) == ["python", "train.py"]
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert "resume" in _resuming(["replicax", "train", f"--out=~/{tmp_path.name}"])


def test_a_job_script_starts_an_empty_run_again(tmp_path):
    """The example for SLURM, with programs that only say how they were called."""
    for name in ("srun", "replicax"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$@"\n')
        (tmp_path / name).chmod(0o755)
    script = Path(__file__).parents[2] / "examples/slurm.sh"
    run = tmp_path / "run"

    def said() -> str:
        path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUN_DIR": str(run)}
        return subprocess.run(["bash", script], env=path, capture_output=True, text=True).stdout

    run.mkdir()
    (run / "run.json").touch()
    assert "replicax train" in said()
    (run / "commits").mkdir()
    (run / "commits/0.json").touch()
    assert f"replicax resume {run}" in said()
