"""Run folders with arbitrary damage: the numbers as before, or a sentence; and no code is run."""

import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from stopped_runs import resume

import replicax as rx
from replicax.cli.main import main

pytestmark = pytest.mark.filterwarnings("ignore")
MARK = Path(tempfile.gettempdir()) / f"replicax-code-was-run-{os.getpid()}"


class Code:
    """Pickled, it leaves a file where it is loaded."""

    def __reduce__(self) -> Any:
        return Path.touch, (MARK,)


CONTENTS = st.one_of(
    st.binary(max_size=80),
    st.sampled_from(
        [
            b"",
            b"{}",
            b"[]",
            b"null",
            b'{"digest": "", "step": 1e999}',
            b"[" * 5_000,
            b"\x93NUMPY" + b"\xff" * 60,
            b"PK\x05\x06" + bytes(18),
            pickle.dumps(Code()),
        ]
    ),
)
PLACE = st.floats(0, 1, exclude_max=True)


class Damage(NamedTuple):
    """One change of a folder; `where` chooses the file, `at` the place in it."""

    kind: str
    where: float
    at: float = 0.5
    content: bytes = b""

    def __call__(self, folder: Path) -> None:
        paths = sorted(path for path in folder.rglob("*") if not path.is_symlink())
        found = [path for path in paths if path.is_file()]
        if self.kind == "delete a folder":
            chosen = [path for path in paths if path.is_dir()]
            if chosen:
                shutil.rmtree(chosen[int(self.where * len(chosen))])
            return
        if not found:
            return
        path = found[int(self.where * len(found))]
        content = path.read_bytes()
        place = int(self.at * len(content))
        if self.kind == "flip" and content:
            changed = content[place] ^ (1 + int(self.at * 1e6) % 255)
            path.write_bytes(content[:place] + bytes([changed]) + content[place + 1 :])
        elif self.kind == "cut":
            path.write_bytes(content[:place])
        elif self.kind == "insert":
            path.write_bytes(content[:place] + self.content + content[place:])
        elif self.kind == "replace":
            path.write_bytes(self.content)
        elif self.kind == "copy another":
            path.write_bytes(found[int(self.at * len(found))].read_bytes())
        else:
            path.unlink()
            if self.kind == "make a folder":
                path.mkdir()
            elif self.kind == "link":
                path.symlink_to("/dev/null" if self.at < 0.5 else path)


KINDS = (
    "flip", "cut", "insert", "replace", "copy another", "delete", "delete a folder",
    "make a folder", "link",
)  # fmt: skip
DAMAGES = st.lists(
    st.builds(Damage, st.sampled_from(KINDS), PLACE, PLACE, CONTENTS), min_size=1, max_size=3
)


def answer_of(posterior: rx.Posterior) -> list[np.ndarray]:
    parts = posterior.draws, posterior.energies, posterior.rung_of, posterior.history
    finals = [posterior.learning_rates, posterior.buffer, posterior.round_trips]
    posterior.summary()
    return [np.asarray(leaf) for leaf in jax.tree.leaves((parts, finals))]


def refused(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """What the call returns, None where it refuses with a sentence; and its warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            value = call()
        except ValueError as error:
            message = str(error)
            assert message.endswith((".", "?", ")")) and " " in message, message
            assert "\n" not in message and len(message) < 600, message
            value = None
    return value, [str(warning.message) for warning in said]


def assert_equal(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def answers(stopped: Path, tmp_path_factory: Any) -> dict[int, list[np.ndarray]]:
    """What the commits of steps 40 and 20 say."""
    folder = Path(shutil.copytree(stopped, tmp_path_factory.mktemp("answers") / "run"))
    found = {40: answer_of(rx.load(folder))}
    (folder / "commits/40.json").unlink()
    return found | {20: answer_of(rx.load(folder))}


def check_load(stopped: Path, answers: Any, damages: list[Callable[[Path], None]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(stopped, Path(parent) / "run"))
        for damage in damages:
            damage(folder)
        found, said = refused(lambda: answer_of(rx.load(folder)))
        if found is not None:
            went_back = any("goes back to step 20" in message for message in said)
            assert_equal(found, answers[20 if went_back else 40])
        assert main(["summary", str(folder), "--json"]) == (2 if found is None else 0)
    assert not MARK.exists()


def check_resume(stopped: Path, answers: Any, damages: list[Callable[[Path], None]]) -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(shutil.copytree(stopped, Path(parent) / "run"))
        for damage in damages:
            damage(folder)
        found, _ = refused(lambda: answer_of(resume(folder, num_steps=40)))
        if found is not None:
            assert_equal(found, answers[40])
            assert_equal(answer_of(rx.load(folder)), answers[40])
    assert not MARK.exists()


def times(number: int) -> settings:
    kept = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=number, suppress_health_check=kept)


def delete_newest(folder: Path) -> None:
    (folder / "commits/40.json").unlink()


def exchange_chunks(folder: Path) -> None:
    """Each is whole, and belongs to another variable of the same type and size."""
    chunks = [folder / f"records.zarr/history/{name}/c.0.0.0" for name in ("energy", "temperature")]
    contents = [path.read_bytes() for path in chunks]
    for path, content in zip(chunks, reversed(contents), strict=True):
        path.write_bytes(content)


def lock_with_a_folder(folder: Path) -> None:
    (folder / "lock").unlink()
    (folder / "lock").mkdir()


def forget_a_group(folder: Path) -> None:
    (folder / "records.zarr/draws/zarr.json").unlink()


@times(12)
@given(damages=DAMAGES)
@example(damages=[delete_newest])
@example(damages=[exchange_chunks])
def test_a_damaged_folder_is_loaded_as_it_was_or_refused(stopped, answers, damages, capsys):
    check_load(stopped, answers, damages)


@times(3)
@given(damages=DAMAGES)
@example(damages=[lock_with_a_folder])
@example(damages=[forget_a_group])
def test_a_damaged_folder_is_resumed_as_it_was_or_refused(stopped, answers, damages):
    check_resume(stopped, answers, damages)


@pytest.mark.slow
@times(600)
@given(damages=DAMAGES)
def test_600_damaged_folders_are_loaded_as_they_were_or_refused(stopped, answers, damages, capsys):
    check_load(stopped, answers, damages)


@pytest.mark.slow
@times(80)
@given(damages=DAMAGES)
def test_80_damaged_folders_are_resumed_as_they_were_or_refused(stopped, answers, damages):
    check_resume(stopped, answers, damages)
