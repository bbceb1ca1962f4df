"""Commands as tests run them: one that must fail, one that must succeed, and strict JSON."""

import json
import re

import pytest

from replicax.cli.main import main

IMPORTED = "the model is imported"  # printed by the model files of these tests


def strict_json(text):
    """Parse JSON; fail on NaN and infinity, which Python's parser accepts."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def run_failing(capsys, *args, code=2):
    """Run a command that must fail with one line on stderr; return the line."""
    assert main([str(arg) for arg in args]) == code
    line = capsys.readouterr().err.replace(f"{IMPORTED}\n", "")
    line = re.sub(r"Running .* asks for\.\n", "", line)  # the user's own file
    assert line.count("\n") == 1 and line.endswith("\n") and "Traceback" not in line, line
    return line


def run_json(capsys, *args):
    """Run a command with --json, which must succeed; return its output."""
    assert main([*(str(arg) for arg in args), "--json"]) == 0
    return strict_json(capsys.readouterr().out)
