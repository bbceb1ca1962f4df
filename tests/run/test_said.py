"""What was silent, or told in the words of a library, is a sentence that names the mistake."""

import functools
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import QUICK
from common import chunks_of
from stopped_runs import resume

import replicax as rx
from replicax.callbacks import Progress
from replicax.cli.main import main
from replicax.run.storage import files

METHOD = rx.deo_star((0.01, 0.1))


def energy(x: Any) -> Any:
    return jnp.sum(x**2)


def sample(target: Any = energy, start: Any = None, **options: Any) -> rx.Posterior:
    chosen = {"num_steps": 20, "num_replicas": 2, "method": METHOD, "progress": False}
    start = jnp.zeros(2) if start is None else start
    return rx.sample(target, start, **chosen | options)


def loop(x: Any) -> Any:
    def step(state: Any) -> Any:
        return state[0] + 1, state[1] + jnp.sum(x**2)

    return jax.lax.while_loop(lambda state: state[0] < 3, step, (0, 0.0))[1]


def on_host(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), jnp.float32)
    return jax.pure_callback(lambda y: np.float32((y**2).sum()), shape, x)


def classes() -> Any:
    rows = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    return rx.classification(rx.nn.mlp(2, 2, hidden=(5,)), (rows, np.arange(40) % 2), batch_size=4)


def nested(depth: int) -> dict[str, Any]:
    note: dict[str, Any] = {}
    for _ in range(depth):
        note = {"again": note}
    return note


YEARS, CLASSES = np.arange(2) + 2**40, classes()
circular: dict[str, Any] = {}
circular["again"] = circular
SAID = {
    "note that is a list": (lambda: sample(note=[1]), "note must be a dict of plain data"),
    "note with a function": (lambda: sample(note={"f": energy}), "note must be a dict"),
    "note with an array": (lambda: sample(note={"f": np.ones(2)}), "note must be a dict"),
    "note that holds itself": (lambda: sample(note=circular), "note must be a dict"),
    "note of a book": (lambda: sample(note={"a": "x" * 2**25}), "note is longer than"),
    "note that is deep": (lambda: sample(note=nested(100_000)), "note must be a dict"),
    "constant energy": (lambda: sample(lambda x: 0.0), "same number for all params"),
    "constant energy, exact": (
        lambda: sample(lambda x: 0.0, method="posterior"),
        "same number for all params",
    ),
    "energy that exits": (lambda: sample(lambda x: sys.exit(3)), r"energy calls sys.exit\(3\)"),
    "in jit": (lambda: jax.jit(lambda x: sample(start=x).draws)(jnp.zeros(2)), "outside jax.jit"),
    "in jit, of nothing": (lambda: jax.jit(lambda x: sample().draws + x)(0.0), "outside jax.jit"),
    "in vmap": (
        lambda: jax.vmap(lambda x: sample(start=x).draws)(jnp.zeros((2, 2))),
        "outside jax.jit, jax.vmap",
    ),
    "while loop": (lambda: sample(loop), "no derivative.*jax.lax.scan"),
    "callback on the host": (lambda: sample(on_host), "no derivative.*jax.custom_vjp"),
    "temperatures that are equal": (
        lambda: sample(method=rx.deo(learning_rate=0.1, temperature=(1.0, 1 + 1e-9),
                                     rule="metropolis")),
        "strictly increasing",
    ),
    "number beyond int32": (lambda: sample(history_every=2**33), "from 1 to 2147483647"),
    "temperature beyond float32": (
        lambda: sample(method=rx.deo(learning_rate=0.1, temperature=(1.0, 1e50),
                                     rule="metropolis")),
        "strictly increasing",
    ),
    "learning rates that are equal": (
        lambda: sample(method=rx.deo_star((0.1, 0.1 + 1e-10))),
        "strictly increasing",
    ),
    "learning rate beyond float32": (
        lambda: sample(method=rx.deo_star((1e-60, 0.1))),
        "must be positive float32",
    ),
    "rows longer than JAX has": (
        lambda: sample(lambda x, rows: energy(x), batches=np.ones(9, np.longdouble), batch_size=3),
        "batches holds numbers of the type",
    ),
    "home of nobody": (lambda: sample(run_dir="~nobody.there/run"), "there is no such user"),
    "log at the home of nobody": (
        lambda: rx.callbacks.csv("~nobody.there/log.csv"),
        "there is no such user",
    ),
    "whole numbers that wrap": (
        lambda: sample(lambda x, rows: energy(x), batches=np.arange(60) + 2**40, batch_size=6),
        "batches holds whole numbers from 1099511627776.*beyond the int32.*jax_enable_x64",
    ),
    "whole numbers without a sign": (
        lambda: sample(lambda x, rows: energy(x), batches=np.uint64([1, 2**63]), batch_size=1),
        "beyond the uint32",
    ),
    "whole numbers that the energy holds": (
        lambda: sample(jax.jit(lambda x: energy(x - jnp.arange(2)) + jnp.sum(YEARS * x[0]))),
        "The energy holds whole numbers from 1099511627776.*beyond the int32",
    ),
    "whole numbers of a source": (
        lambda: sample(lambda x, rows: energy(x), batches=lambda step: YEARS),
        "batches holds whole numbers.*beyond the int32",
    ),
    "training in jit": (
        lambda: jax.jit(lambda x: rx.train(CLASSES, x, epochs=1))(0.0),
        "outside jax.jit",
    ),
    "init of another network": (
        lambda: rx.train(classes(), rx.nn.mlp(2, 2, hidden=(7,)).init, epochs=1),
        "other parameters than the network of the problem",
    ),
}  # fmt: skip


@pytest.mark.parametrize("call, said", SAID.values(), ids=SAID)
def test_it_is_said_before_the_run(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


LOST = {
    "julian dates": (2450000.3 + np.linspace(0, 1, 60), True),
    "seconds since 1970": (1.7e9 + 60.0 * np.arange(5000), True),
    "one column of two": (np.stack([np.arange(9.0), 1e9 + np.arange(9) / 7], 1), True),
    "complex dates": (2450000.3 + np.linspace(0, 1, 60) + 0j, True),
    "far too small": (1e-60 * np.arange(1.0, 9.0), True),
    "far too large": (1e60 * np.arange(1.0, 9.0), True),
    "years": (1900.0 + np.arange(100), False),
    "centred dates": (np.linspace(-0.5, 0.5, 60), False),
    "many uniform numbers": (np.random.default_rng(0).uniform(size=300_000), False),
    "many normal numbers": (np.random.default_rng(0).normal(3, 1, size=300_000), False),
    "one number": (np.full(9, np.pi * 1e9), False),
    "whole numbers": (np.arange(9), False),
    "float32": (np.float32([1.7e9, 1.7e9]), False),
}


@pytest.mark.parametrize(("rows", "is_lost"), LOST.values(), ids=LOST)
def test_rows_that_lose_what_they_say_are_told(rows: np.ndarray, is_lost: bool, recwarn) -> None:
    rx.bayesian(lambda x, rows: -((rows - x) ** 2), lambda x: -(x**2), rows)
    told = [str(w.message) for w in recwarn if "neighbouring ones become equal" in str(w.message)]
    assert bool(told) is is_lost
    if told:
        assert told[0].startswith("data holds numbers from") and "jax_enable_x64" in told[0]


@pytest.mark.filterwarnings("ignore:With mini-batches")
@pytest.mark.parametrize("kind", ["function", "source", "energy", "energy under jit"])
def test_rows_that_come_later_or_are_held_are_looked_at_too(kind: str) -> None:
    dates = 2450000.3 + np.linspace(0, 1, 8)

    def near(x: Any, rows: Any) -> Any:
        return jnp.mean((x - rows) ** 2)

    def of_rows(params: Any, state: Any, rows: Any, key: Any) -> Any:
        return near(params, rows), state

    def of(dates: np.ndarray) -> Any:
        if kind == "source":
            rows = rx.supervised(of_rows, [dates] * 2, batch_size=8)
            return rows.batches.first(jax.random.key(0))
        if kind.startswith("energy"):
            held = functools.partial(near, rows=dates)
            return sample(jax.jit(held) if kind.endswith("jit") else held, jnp.zeros(()))
        return sample(near, jnp.zeros(()), batches=lambda step: dates)

    with pytest.warns(UserWarning, match="holds numbers from 2450000.3 to 2450001.3, which JAX"):
        of(dates)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        of(dates - dates.mean())
    assert not [one for one in told if "which JAX rounds" in str(one.message)]


def test_inputs_of_networks_are_looked_at_too() -> None:
    inputs = 2450000.3 + np.random.default_rng(0).uniform(size=(40, 2))
    with pytest.warns(UserWarning, match="The inputs of dataset holds numbers"):
        rx.classification(rx.nn.mlp(2, 2), (inputs, np.arange(40) % 2), batch_size=4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_force_is_yes_or_no(folder: Path) -> None:
    with pytest.raises(ValueError, match="force is 'yes'; write one of True, False"):
        rx.resume(folder, energy, force="yes")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_home_is_meant_by_its_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    run = sample(run_dir="~/runs/one")
    run.save("~/runs/two")
    assert rx.load("~/runs/two").num_steps == rx.resume("~/runs/one", energy).num_steps == 20
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_callback_cannot_change_the_records() -> None:
    def writes(progress: Progress) -> None:
        for rows in progress.rows.values():
            for array in rows.values():
                with pytest.raises(ValueError, match="read-only"):
                    array[:] = 1
            rows.clear()

    with chunks_of(10):
        one, other = sample(callback=writes), sample()
    np.testing.assert_array_equal(one.rung_of, other.rung_of)
    np.testing.assert_array_equal(one.draws, other.draws)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_long_name_is_said_before_the_run(tmp_path: Path) -> None:
    name = "p" * 300
    start = {name: jnp.zeros(2)}

    def of_named(x: Any) -> Any:
        return energy(x[name])

    with pytest.raises(ValueError, match="name of 300 letters.*shorter"):
        sample(of_named, start, run_dir=tmp_path / "run")
    in_memory = sample(of_named, start)
    with pytest.raises(ValueError, match="name of 300 letters"):
        in_memory.save(tmp_path / "copy")
    assert sample(lambda x: energy(x["p" * 240]), {"p" * 240: jnp.zeros(2)}, run_dir=tmp_path / "r")
    assert rx.load(tmp_path / "r").num_steps == 20


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_folder_that_goes_away_is_said(tmp_path: Path) -> None:
    def remove(progress: Progress) -> None:
        while progress.step == 10 and (tmp_path / "run").exists():
            # The first state may be on its way into the folder.
            shutil.rmtree(tmp_path / "run", ignore_errors=True)

    with pytest.raises(OSError, match="was removed while the run went on") as caught, chunks_of(10):
        sample(run_dir=tmp_path / "run", callback=remove)
    assert "intact" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_lock_that_is_removed_is_taken_again(tmp_path: Path) -> None:
    def remove(progress: Progress) -> None:
        if progress.step == 10:
            (tmp_path / "run/lock").unlink()

    with chunks_of(10):
        sample(run_dir=tmp_path / "run", callback=remove, checkpoint_every=5)
    assert (tmp_path / "run/lock").exists()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_lock_that_another_process_took_ends_the_run(tmp_path: Path) -> None:
    other: list[Any] = []

    def replace(progress: Progress) -> None:
        if progress.step == 10:
            (tmp_path / "run/lock").unlink()
            other.append(files.Lock(tmp_path / "run"))
            other[0].__enter__()

    said = "lock was removed, and .* is in use by process"
    with pytest.raises(OSError, match=said), chunks_of(10):
        sample(run_dir=tmp_path / "run", callback=replace, checkpoint_every=5)
    other[0].__exit__(None, None, None)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_is_not_resumed_inside_jit(folder: Path) -> None:
    with pytest.raises(ValueError, match="outside jax.jit"):
        jax.jit(lambda x: resume(folder).num_steps + x)(1)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_file_whose_functions_exit_is_said(tmp_path: Path, capsys: Any) -> None:
    """Its exit code could be taken for one of replicax."""
    (tmp_path / "model.py").write_text(
        "import sys\nimport jax.numpy as jnp\nparams = jnp.zeros(2)\n"
        "def energy(x, rows):\n    return jnp.sum(x**2)\n"
        "def batches(step):\n    sys.exit(3) if step > 9 else None\n    return jnp.ones(2)\n"
    )
    command = ["sample", f"{tmp_path}/model.py:energy", "--out", str(tmp_path / "run")]
    assert main([*command, *QUICK]) == 2
    assert "calls sys.exit(3)" in capsys.readouterr().err


def test_labels_below_zero_are_said(tmp_path: Path, capsys: Any) -> None:
    np.savez(tmp_path / "rows.npz", inputs=np.ones((40, 4), "f4"), labels=np.arange(40) % 3 - 2)
    args = ["train", "--data", str(tmp_path / "rows.npz"), "--out", str(tmp_path / "run")]
    assert main(args) == 2
    assert "labels go from -2 to 0; number the classes from 0 on" in capsys.readouterr().err


def test_what_makes_no_module_is_said() -> None:
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(ValueError, match=r"make_model must take 1 argument.*make_model\(rngs\)"):
        rx.interop.from_flax(nnx.Linear)
    equinox = pytest.importorskip("equinox")
    for given in (equinox.nn.Linear(2, 2, key=jax.random.key(0)), 3):
        with pytest.raises(ValueError, match=r"from_equinox\(lambda key: "):
            rx.interop.from_equinox(given)


def test_a_module_of_flax_is_no_function() -> None:
    nnx = pytest.importorskip("flax.nnx")
    with pytest.raises(ValueError, match=r"from_flax\(lambda rngs: Linear"):
        rx.interop.from_flax(nnx.Linear(2, 2, rngs=nnx.Rngs(0)))
