"""Later calls find the programs of earlier ones, and never those of others."""

import gc
import os
import subprocess
import sys
import weakref
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import in_method

import replicax as rx
from replicax.run import compiled_once
from replicax.run.compiled_once import compiled_once as once

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
TARGET = rx.targets.modes25()
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def compilations(monkeypatch):
    """A list that grows with every program that XLA compiles for `compiled_once`."""
    made, compile = [], jax.stages.Lowered.compile
    monkeypatch.setattr(compiled_once, "_programs", OrderedDict())
    counted = lambda self, *options: made.append(None) or compile(self, *options)  # noqa: E731
    monkeypatch.setattr(jax.stages.Lowered, "compile", counted)
    return made


def run(target: Any = TARGET, **options: Any) -> rx.Posterior:
    chosen = {"num_steps": 120, "num_replicas": 3, "learning_rate": (0.003, 0.1)} | options
    start = chosen.pop("start", rx.targets.modes25_start)
    return rx.sample(target, start, progress=False, **in_method(chosen))


@pytest.mark.parametrize(
    "options",
    [
        {"seed": 3},
        {"start": lambda key: rx.targets.modes25_start(key) + 1},
        {"learning_rate": (0.001, 0.2), "seed": 2},
        {"buffer": 2.0, "buffer_gain": rx.Gain(), "seed": 5},
    ],
)
def test_a_call_that_differs_in_values_compiles_no_steps(options, compilations) -> None:
    usual = {} if "buffer" not in options else {**options, "buffer": 1.0}
    run(**usual)
    made = len(compilations)
    assert made > 0
    found = run(**options)
    assert len(compilations) == made + ("start" in options)  # the starts themselves
    compiled_once._programs.clear()
    alone = run(**options)
    np.testing.assert_array_equal(found.draws, alone.draws)
    np.testing.assert_array_equal(found.rung_of, alone.rung_of)


def test_a_call_with_other_data_of_the_same_shape_compiles_nothing(compilations) -> None:
    options = {"batch_size": 4, "start": jnp.zeros(2), "temperature": 0.0}
    low, high = (np.full((8, 2), value, np.float32) for value in (-3.0, 3.0))

    def energy(x, rows):
        return jnp.mean((x - rows) ** 2) * 10

    one = run(energy, batches=low, **options)
    made = len(compilations)
    other = run(energy, batches=high, **options)
    assert len(compilations) == made
    assert one.draws[0, -1].max() < -2 and other.draws[0, -1].min() > 2


def test_a_resumed_run_compiles_no_steps(tmp_path, compilations) -> None:
    run(run_dir=tmp_path / "run", callback=lambda progress: "stop")
    made = len(compilations)
    rx.resume(tmp_path / "run", TARGET, progress=False)
    assert len(compilations) == made


@pytest.mark.parametrize(
    "options",
    [{"window": 5}, {"target_swap_rate": 0.2}, {"kernel": "momentum"}, {"num_replicas": 4},
     {"thin": 2}, {"burn_in": 20}, {"schedule": "no_gate"}],
    ids=str,
)  # fmt: skip
def test_a_call_with_another_setting_has_a_program_of_its_own(options, compilations) -> None:
    run(window=2)
    made = len(compilations)
    found = run(**{"window": 2} | options)
    assert len(compilations) > made
    compiled_once._programs.clear()
    np.testing.assert_array_equal(found.draws, run(**{"window": 2} | options).draws)


def test_targets_that_look_alike_are_told_apart() -> None:
    """One function with other values around it, and one whose global value has changed."""

    def around(middle):
        return lambda x: jnp.sum((x - middle) ** 2) * 10

    options = {"temperature": 0.0, "learning_rate": 0.01, "start": jnp.zeros(2)}
    ends = [run(around(middle), **options).draws[0, -1] for middle in (-3.0, 3.0)]
    np.testing.assert_allclose(ends, [[-3, -3], [3, 3]], atol=0.1)
    outside = {"middle": -3.0}

    def energy(x):
        return jnp.sum((x - outside["middle"]) ** 2) * 10

    one = run(energy, **options).draws[0, -1]
    outside["middle"] = 3.0
    other = run(energy, **options).draws[0, -1]
    np.testing.assert_allclose([one, other], [[-3, -3], [3, 3]], atol=0.1)


@pytest.mark.parametrize("size", [10, compiled_once._MOST_NUMBERS + 1])
def test_constants_that_differ_in_one_number_are_told_apart(size, compilations) -> None:
    def sum_of(values):
        return once(lambda x: jnp.sum(x * values))

    values = [np.zeros(size, np.float32) for _ in range(2)]
    for value, last in zip(values, (1.0, 2.0), strict=True):
        value[-1] = last
    assert [float(sum_of(value)(1.0)) for value in values] == [1.0, 2.0]
    assert len(compilations) == 2
    assert len(compiled_once._programs) == (2 if size == 10 else 0)


def test_programs_with_a_long_text_are_not_kept(monkeypatch) -> None:
    for longest, kept in ((10_000, 1), (100, 0)):
        compiled_once._programs.clear()
        monkeypatch.setattr(compiled_once, "_LONGEST_TEXT", longest)
        assert once(lambda x: x + 1)(1.0) == 2.0
        assert len(compiled_once._programs) == kept


def test_python_functions_that_programs_call_are_told_apart() -> None:
    def calling(factor):
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        host = lambda x: np.float32(factor * x)  # noqa: E731
        return once(lambda x: jax.pure_callback(host, shape, x))

    assert [float(calling(factor)(1.0)) for factor in (2.0, 3.0)] == [2.0, 3.0]


def test_containers_of_results_are_told_apart() -> None:
    assert once(lambda x: {"a": x + 1})(1.0) == {"a": 2.0}
    assert once(lambda x: [x + 1])(1.0) == [2.0]


def test_arguments_of_another_kind_are_compiled_for(compilations) -> None:
    double = once(lambda x: x + x)
    assert double(1) == 2 and double(1.5) == 3.0 and double(2) == 4
    np.testing.assert_array_equal(double(np.ones(2)), [2.0, 2.0])
    assert len(compilations) == 3


def test_options_of_the_compiler_are_told_apart(compilations) -> None:
    before = jax.config.values["jax_disable_most_optimizations"]
    once(lambda x: x * 3)(1.0)
    try:
        jax.config.update("jax_disable_most_optimizations", not before)
        once(lambda x: x * 3)(1.0)
    finally:
        jax.config.update("jax_disable_most_optimizations", before)
    assert len(compilations) == 2
    once(lambda x: x * 3)(1.0)
    assert len(compilations) == 2


def test_the_programs_used_last_are_kept(compilations) -> None:
    def times(number):
        return once(lambda x: x * number)(1.0)

    kept = compiled_once._KEPT
    for number in range(kept):
        times(number)
    times(0)
    times(kept)  # in place of 1
    assert len(compiled_once._programs) == kept and len(compilations) == kept + 1
    times(0)
    assert len(compilations) == kept + 1
    times(1)
    assert len(compilations) == kept + 2


def test_neither_target_nor_data_stay_in_memory() -> None:
    class Energy:
        def __call__(self, x, rows):
            return jnp.mean((x - rows) ** 2)

    energy, rows = Energy(), jnp.ones((50, 2))
    run(energy, batches=rows, batch_size=5, start=jnp.zeros(2))
    seen = weakref.ref(energy), weakref.ref(rows)
    del energy, rows
    jax.clear_caches()  # JAX keeps what it traced last itself
    gc.collect()
    assert compiled_once._programs
    assert [one() for one in seen] == [None, None]


def test_threads_share_programs() -> None:
    def call(number):
        return float(once(lambda x: x * (number % 3))(2.0))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(60))) == [2.0 * (number % 3) for number in range(60)]
    assert len(compiled_once._programs) == 3


SCRIPT = """
import warnings, jax
warnings.filterwarnings("ignore", category=UserWarning, module="replicax")
seen = []
jax.monitoring.register_event_listener(lambda event, **_: seen.append(event))
import replicax as rx
method = rx.posterior(kernel="mala")
run = rx.sample(lambda x: x**2, 0.0, num_steps=200, num_replicas=2, method=method, progress=False)
found = seen.count("/jax/compilation_cache/cache_hits")
print(found, run.draws.sum(), jax.config.jax_compilation_cache_dir)
"""


def in_a_new_process(cache: Path) -> tuple[int, str, str]:
    """Sample in a new process: programs found on the disk, the draws, and the cache of JAX."""
    own = {name: x for name, x in os.environ.items() if not name.startswith("JAX_")}
    environment = {**own, "REPLICAX_CACHE": str(cache), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "compilation cache" not in done.stderr
    found, draws, chosen = done.stdout.split()
    return int(found), draws, chosen


def test_a_later_process_finds_the_programs_of_an_earlier_one(tmp_path) -> None:
    found, draws, chosen = in_a_new_process(tmp_path)
    assert (found, chosen) == (0, "None")  # what the user compiles is not kept
    kept = list(tmp_path.glob("programs-*/*-cache"))
    assert in_a_new_process(tmp_path) == (len(kept), draws, chosen)
    for path in kept:  # as a full disk leaves them
        os.truncate(path, 100)
    assert in_a_new_process(tmp_path)[:2] == (0, draws)
    assert kept and all(not path.exists() or path.stat().st_size > 100 for path in kept)


def test_programs_are_kept_where_the_user_wants_them(monkeypatch, tmp_path) -> None:
    """Nowhere, in the cache of JAX's own, and never where others can write or nobody can."""

    def folder_for(chosen: str) -> Path | None:
        monkeypatch.setenv("REPLICAX_CACHE", chosen)
        return compiled_once._cache_folder()

    folder = folder_for(str(tmp_path / "kept"))
    assert folder is not None and folder.parent == tmp_path / "kept"
    folder.chmod(0o777)
    assert folder_for(str(tmp_path / "kept")) is None
    assert folder_for("off") is None
    (tmp_path / "file").write_text("not a folder")
    assert folder_for(str(tmp_path / "file")) is None
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "usual"))
    assert folder_for("").parent == tmp_path / "usual/replicax"
    own = jax.config.jax_compilation_cache_dir
    assert own  # of these tests
    with compiled_once.on_disk():
        assert jax.config.jax_compilation_cache_dir == own


def test_the_oldest_programs_make_room(tmp_path) -> None:
    for age, name in enumerate("abc"):
        path = tmp_path / f"{name}-{64 * '0'}-cache"
        path.write_bytes(bytes(10))
        os.utime(path, (age, age))
    for name in ("mine-cache", "notes"):
        (tmp_path / name).write_bytes(bytes(100))
    compiled_once._make_room(tmp_path, 25)
    left = sorted(path.name.removesuffix(f"-{64 * '0'}-cache") for path in tmp_path.iterdir())
    assert left == ["b", "c", "mine-cache", "notes"]
