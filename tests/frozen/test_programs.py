"""Compiled programs and draws stay what they were: `programs.json` and `programs.npz` are those of
version 0.2.0.

`WRITE_FROZEN=1 pytest -n 0 tests/frozen/test_programs.py` writes them anew, after a change that is
meant to change numbers.
"""

import json
import os

import jax
import numpy as np
import pytest

from frozen import programs

WRITE = bool(os.environ.get("WRITE_FROZEN"))


@pytest.fixture
def dumped(tmp_path):
    """A folder into which JAX writes every program that it lowers."""
    folder = tmp_path / "ir"
    folder.mkdir()
    jax.config.update("jax_include_debug_info_in_dumps", False)
    jax.config.update("jax_dump_ir_to", str(folder))
    yield folder
    jax.config.update("jax_dump_ir_to", "")


@pytest.mark.parametrize("name", programs.CASES)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_programs_and_draws_are_those_of_version_02(name, dumped):
    seen = programs.observed(programs.CASES[name](), dumped)
    if WRITE:
        return write(name, seen)
    arrays = np.load(programs.HERE / "programs.npz")
    expected = programs.stored()[name]
    if expected["jax"] == jax.__version__:
        assert seen["program"] == expected["program"], "the lowered program is another one"
    if expected["machine"] == programs.machine():
        assert seen["draws"] == expected["draws"], "draws differ in their last bits"
    steps = programs.ROUNDED_AFTER.get(name)
    paths = arrays[f"{name}/rung_of"]
    np.testing.assert_array_equal(seen["rung_of"][:, :steps], paths[:, :steps])
    if steps is None:
        np.testing.assert_allclose(seen["floats"], arrays[f"{name}/floats"], rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_stopped_and_resumed_run_has_the_draws_of_one_without_a_stop(tmp_path):
    whole, resumed = programs.CASES["deo_star"](), programs.resumed(tmp_path / "run")
    np.testing.assert_array_equal(resumed.rung_of, whole.rung_of)
    np.testing.assert_array_equal(resumed.draws, whole.draws)


def write(name, seen):
    path = programs.HERE / "programs.npz"
    arrays = dict(np.load(path)) if path.exists() else {}
    arrays |= {f"{name}/{key}": seen[key] for key in ("rung_of", "floats")}
    np.savez_compressed(path, **arrays)
    entries = programs.stored()
    entries[name] = {key: seen[key] for key in ("program", "draws")}
    entries[name] |= {"machine": programs.machine(), "jax": jax.__version__}
    (programs.HERE / "programs.json").write_text(
        json.dumps(entries, indent=1, sort_keys=True) + "\n"
    )
