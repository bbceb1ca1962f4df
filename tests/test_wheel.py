"""The wheel, installed into an empty environment, runs the demo without an optional package."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
IMPORTED_AS = {"scikit-learn": "sklearn", "tfp-nightly": "tensorflow_probability"}
DEMO = """
import json, sys
from replicax.cli.main import main
code = main(["demo", "--out", "demo-run", "--json"])
print(json.dumps({"code": code, "modules": sorted({m.partition(".")[0] for m in sys.modules})}))
"""


def optional_packages() -> set[str]:
    """The names under which the packages of users' extras are imported."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = {"test", "test-torch", "lint", "docs", "dev", "bench"}
    wanted = [line for extra, lines in extras.items() if extra not in ours for line in lines]
    names = {re.split(r"[\[<>=]", line)[0] for line in wanted} - {"jax", "replicax"}
    return {IMPORTED_AS.get(name, name) for name in names}


def run(*command: object, cwd: Path) -> str:
    # Of this test's own Python, nothing: neither its path nor its settings of JAX.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "JAX_", "XLA_"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_runs_the_demo_in_an_empty_environment(tmp_path):
    pip = ("-m", "pip", "--disable-pip-version-check", "-q")
    run(sys.executable, *pip, "wheel", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("replicax-*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty/bin/python"
    run(python, *pip, "install", "-c", ROOT / "constraints.txt", wheel, cwd=tmp_path)

    *shown, last = run(python, "-c", DEMO, cwd=tmp_path).splitlines()
    found = json.loads(last)
    assert found["code"] == 0
    assert json.loads("\n".join(shown))["num_chains"] == 4
    assert (tmp_path / "demo-run/figures/modes25.png").is_file()
    assert {"arviz", "sklearn", "torch", "flax"} <= optional_packages()
    assert optional_packages() & set(found["modules"]) == set()
    version = run(tmp_path / "empty/bin/replicax", "--version", cwd=tmp_path)
    assert version.strip() == "replicax " + wheel.name.split("-")[1]
