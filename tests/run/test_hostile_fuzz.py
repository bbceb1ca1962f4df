"""Run folders that somebody made to do harm, by chance: names, links, types and sizes."""

import contextlib
import json
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from stopped_runs import resume
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx
from replicax.networks.trained import Trained
from replicax.run.storage import files

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and pipes are those of POSIX")

SECONDS = 120  # for one case, on a machine that may be very busy
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 7, 2**31, 2**63, 2**70, -(2**70), 0.5, -0.0, 1e300, float("inf"),
    float("nan"), "", ".", "..", "../../victim", "/", "/dev/zero", "~", "a\0b", "\x1b[2J",
    "x" * 300, "\ud800", "float64", "object", "O", "V8", "datetime64[s]", "U9", "custom",
    [], [[]], {}, [0], [-1], [2**40], [2**40, 2**40], ["../../victim"], {"": 0}, {"a": {}},
    {"kernel": {}}, {"kernel": {"name": "hmc"}}, {"Gain": {}}, {"Gain": {"scale": "x"}},
    {"leaf": 99}, {"dict": 3},
)  # fmt: skip
NAMES = (
    "../../victim",
    "..",
    "/victim",
    "a/b",
    "x" * 300,
    "",
    "a\0b",
    "steps",
    "draws",
    "-rf",
    ".x",
)
PLACES = (
    "/dev/zero",
    "/dev/full",
    "../victim",
    "../victim/0.json",
    ".",
    "..",
    "/",
    "lock",
    "nowhere",
)


def paths_in(value: Any, path: tuple = ()) -> list[tuple]:
    """All places in a JSON value."""
    entries: Any = value.items() if isinstance(value, dict) else ()
    entries = enumerate(value) if isinstance(value, list) else entries
    return [path, *(place for key, part in entries for place in paths_in(part, (*path, key)))]


def at(value: Any, path: tuple) -> Any:
    for key in path:
        value = value[key]
    return value


def choose(random: np.random.Generator, options: Any) -> Any:
    return options[int(random.integers(len(options)))]


def change_json(folder: Path, random: np.random.Generator) -> None:
    """Change one place of a JSON file, or the name of it, and make the digest again."""
    path = choose(random, sorted(folder.rglob("*.json")))
    content = json.loads(path.read_text())
    has_digest = content.pop("digest", None) is not None
    place = choose(random, paths_in(content)[1:])
    above, key = at(content, place[:-1]), place[-1]
    if random.uniform() < 0.25 and isinstance(above, dict):
        above[choose(random, NAMES)] = above.pop(key)
    elif random.uniform() < 0.15:
        above.pop(key)
    else:
        above[key] = choose(random, VALUES)
    try:
        if has_digest:
            files.write_json(path, content)
        else:
            path.write_text(json.dumps(content))
    except UnicodeEncodeError:
        pass


def change_values(folder: Path, random: np.random.Generator) -> None:
    """Change the arrays of a commit, and the digests of all that holds them."""
    path = choose(random, sorted(folder.glob("commits/*.npz")))
    with np.load(path) as stored:
        values = dict(stored)
    name = choose(random, sorted(values))
    other = values.pop(name)
    kind = random.integers(6)
    if kind == 1:
        values[name] = other[..., None]
    elif kind == 2:
        values[name] = np.array([name, "x"])
    elif kind == 3:
        values[name] = np.full(other.shape, 2**62)
    elif kind == 4:
        values[name] = np.full(other.shape, np.nan)
    elif kind == 5:
        values[choose(random, NAMES[:5])] = other
    with path.open("wb") as file:
        np.savez(file, **values)
    commit = path.with_suffix(".json")
    content = json.loads(commit.read_text())
    content.pop("digest")
    content["values"] = files.digest(path.read_bytes())
    content["num_bytes"] = None
    files.write_json(commit, content)


def change_place(folder: Path, random: np.random.Generator) -> None:
    """Put a link, a pipe, a folder or a very large file where something else is, or was not."""
    there = [path for path in sorted(folder.rglob("*")) if not path.is_symlink()]
    new = (
        "report.html",
        "summary.json",
        "figures",
        "checkpoints/9",
        "commits/41.json",
        "lock",
        "records.zarr/more",
        ".run.json.replicax",
        "commits/.60.npz.replicax",
        "checkpoints/" + "9" * 18,
    )
    path = choose(random, there) if random.uniform() < 0.7 else folder / choose(random, new)
    if not path.parent.is_dir():
        return
    kind = choose(random, ("link", "pipe", "folder", "large", "hard"))
    if kind != "large" or path.is_dir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(True)
    if kind == "link":
        path.symlink_to(choose(random, PLACES))
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir(exist_ok=True)
    elif kind == "hard":
        os.link(folder.parent / "victim/0.json", path)
    else:
        with path.open("ab") as file:
            file.truncate(40 * 2**30)


CHANGES: tuple[Callable, ...] = (change_json, change_json, change_values, change_place)


def look(folder: Path) -> None:
    posterior = rx.load(folder)
    posterior.summary()
    jax.tree.map(np.asarray, (posterior.draws, posterior.energies, posterior.history))
    if isinstance(posterior, Trained):
        rx.load(folder, NETWORK).predict(tiny_problem().test.inputs)


def show(folder: Path) -> None:
    posterior = rx.load(folder)
    posterior.report()
    posterior.plot(folder / "figures")


def go_on(folder: Path) -> None:
    if isinstance(rx.load(folder), Trained):
        rx.resume(folder, tiny_problem(), epochs=8, progress=False)
    else:
        resume(folder, num_steps=60)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rx.train(tiny_problem(), NETWORK.init, run_dir=folder, keep_networks=True, **EXCHANGING)
    return folder


def expired(*_: Any) -> None:
    raise AssertionError("it hangs")


def check(call: Callable[[Path], Any], folder: Path) -> None:
    """The call ends soon, with an answer or with a sentence."""
    before = signal.signal(signal.SIGALRM, expired)
    signal.alarm(SECONDS)
    try:
        call(folder)
    except (ValueError, OSError) as error:
        said = str(error)
        assert " " in said and "\n" not in said and len(said) < 900, said
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 100),
        *(pytest.param(first, 200, marks=pytest.mark.slow) for first in range(100, 1100, 200)),
    ],
)
def test_nothing_escapes_and_nothing_hangs(
    first: int, count: int, stopped: Path, trained: Path, tmp_path: Path
) -> None:
    """Of every four folders one is of networks; some are resumed, some shown."""
    victim = tmp_path / "victim"
    for seed in range(first, first + count):
        random = np.random.default_rng(seed)
        (victim / "draws").mkdir(parents=True)
        for name in ("0.json", "draws/zarr.json", "draws/c.0"):
            (victim / name).write_text(f"the user's {name}")
        source = trained if seed % 4 == 0 else stopped
        folder = Path(shutil.copytree(source, tmp_path / "run"))
        changes = random.choice(len(CHANGES), size=int(random.integers(1, 4)))
        for number in sorted(changes):  # what cannot be read comes last
            with contextlib.suppress(LookupError, TypeError, OSError):
                CHANGES[number](folder, random)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                check(look, folder)
                if seed % 10 == 0:
                    check(go_on, folder)
                if seed % 40 in (8, 13):
                    check(show, folder)
            except BaseException as error:
                raise AssertionError(f"case {seed}: {type(error).__name__}: {error}") from error
        kept = {path.name: path.read_text() for path in victim.rglob("*") if path.is_file()}
        assert len(kept) == 3 and all(x.startswith("the user's") for x in kept.values()), seed
        shutil.rmtree(victim)
        shutil.rmtree(folder)
    assert [path.name for path in tmp_path.iterdir()] == []
