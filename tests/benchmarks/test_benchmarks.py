"""The benchmarks still run and say what their readers look for; how fast is not judged here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import timing  # noqa: E402

WITHOUT_TFP = """
import runpy, sys
sys.modules["tensorflow_probability"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_quick(name, tmp_path, *before):
    """The JSON of a quick run in a process of its own, compiled with little effort."""
    script, found = BENCHMARKS / f"{name}.py", tmp_path / "found.json"
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{BENCHMARKS}",
        "XLA_FLAGS": "--xla_backend_optimization_level=0",
    }
    command = [sys.executable, *before, str(script), "--quick", "--json", str(found)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    content = json.loads(found.read_text())
    assert content["benchmark"] == name
    assert (
        content["machine"]["cpu"] and content["machine"]["jax"] and "--quick" in content["command"]
    )
    for row in content["rows"]:
        assert {"name", "unit", "n", "median", "low", "high", "cpu_median"} <= row.keys()
        assert row["name"].strip() in done.stdout
    for check in content["checks"]:
        assert {"name", "value", "bound", "goal", "met"} <= check.keys()
    return content


def test_every_script_finds_what_it_imports():
    """In a process of its own: scripts set flags of XLA."""
    needs_torch = ("resnet_torch", "last_layer")
    scripts = sorted(x.stem for x in BENCHMARKS.glob("*.py") if x.stem not in needs_torch)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{BENCHMARKS}"}
    command = [sys.executable, "-c", f"import {', '.join(scripts)}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert len(scripts) > 10 and done.returncode == 0, done.stderr


def names(content):
    return [row["name"].strip() for row in content["rows"]]


@pytest.mark.slow
def test_toy_runs_without_its_peer(tmp_path):
    content = run_quick("bench_toy", tmp_path, "-c", WITHOUT_TFP)
    assert "replicax, compiled loop" in names(content)
    assert "replicax, rx.sample after compiling" in names(content)
    peer = next(row for row in content["rows"] if row["name"] == "TFP ReplicaExchangeMC")
    assert peer["note"] == "not installed" and peer["median"] is None
    assert content["checks"] == []


@pytest.mark.slow
def test_toy_is_compared_with_its_peer(tmp_path):
    pytest.importorskip("tensorflow_probability.substrates.jax")
    content = run_quick("bench_toy", tmp_path)
    assert [check["name"] for check in content["checks"]] == ["loop / TFP"]


@pytest.mark.slow
def test_overhead_runs(tmp_path):
    content = run_quick("bench_overhead", tmp_path)
    assert "exchange, adaptation, records" in names(content)
    assert [check["bound"] for check in content["checks"]] == [1.5, 5.0]


@pytest.mark.slow
def test_scaling_runs(tmp_path):
    content = run_quick("bench_scaling", tmp_path)
    assert names(content)[-1] == "deo_star, slope from 64 replicas on"


@pytest.mark.slow
def test_devices_runs(tmp_path):
    content = run_quick("bench_devices", tmp_path)
    assert "  the exchange between 2 devices" in [row["name"] for row in content["rows"]]


@pytest.mark.slow
def test_startup_runs(tmp_path):
    content = run_quick("bench_startup", tmp_path)
    assert {"import replicax", "replicax --help", "demo: imports"} <= set(names(content))


def test_cases_are_timed_in_turns():
    order = []
    cases = {"a": lambda: order.append("a") or 10, "b": lambda: order.append("b") or 10}
    timings = timing.interleave(cases, repeats=2)
    assert order == ["a", "b", "b", "a", "a", "b"]  # the first two are not timed
    assert timings["a"].wall.shape == (2,) and np.all(timings["a"].wall > 0)


def test_a_case_may_time_itself():
    lap = timing.Lap(iterations=4, wall=2.0, cpu=1.0)
    timed = timing.interleave({"own": lambda: lap}, repeats=3)["own"]
    row = timing.Row.of("own", "us", timed)
    assert (row.median, row.cpu_median, row.n) == (0.5e6, 0.25e6, 3)


def test_operations_of_a_loop_body_are_counted():
    import jax
    from loop import count_body_ops

    def double_each(values):
        step = lambda i, values: values.at[i].multiply(2.0)  # noqa: E731
        return jax.lax.fori_loop(0, 5, step, values)

    hlo = jax.jit(double_each).lower(np.ones(1000, np.float32)).compile().as_text()
    assert sum(count_body_ops(hlo).values()) >= 1
    assert count_body_ops("") == {}


@pytest.mark.slow
def test_torch_runs(tmp_path):
    pytest.importorskip("torch")
    content = run_quick("bench_torch", tmp_path)
    assert "added by the exchange of 4, floats" in names(content)
    assert {check["bound"] for check in content["checks"]} == {100.0}
