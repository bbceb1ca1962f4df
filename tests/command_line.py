"""Commands as tests run them: one that must fail, one that must succeed, one in a new process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from made_up_metadata import metadata_of

from replicax.cli.main import main
from replicax.run.trees import TreeSpec

REPOSITORY = Path(__file__).parents[1]
STAR = ("--method", "deo-star", "--learning-rate")
QUICK = (*STAR, "0.01", "0.1", "--replicas", "3", "--steps", "60")
IMPORTED = "the model is imported"  # printed by the model files of these tests


def strict_json(text):
    """Parse JSON; fail on NaN and infinity, which Python's parser accepts."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def run_failing(capsys, *args, code=2):
    """Run a command that must fail with one line on stderr; return the line."""
    assert main([str(arg) for arg in args]) == code
    line = capsys.readouterr().err.replace(f"{IMPORTED}\n", "")
    line = re.sub(r"Running .* refers\.\n", "", line)  # the user's own file
    assert line.count("\n") == 1 and line.endswith("\n") and "Traceback" not in line, line
    return line


def run_json(capsys, *args):
    """Run a command with --json, which must succeed; return its output."""
    assert main([*(str(arg) for arg in args), "--json"]) == 0
    return strict_json(capsys.readouterr().out)


def run_program(*args):
    """Start the program in a new process."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-m", "replicax", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, env=environment, text=True, **pipes)


def write_run(folder, structure, note=None):
    """Write as much of a run folder as commands read before they load the run."""
    Path(folder, "commits").mkdir(parents=True, exist_ok=True)
    Path(folder, "commits", "10.json").write_text("{}")
    params = TreeSpec(("x",), ((),), ("float32",), structure)
    metadata_of(params=params, note=note or {}).write(Path(folder))
