"""A run is continued with its own rows, energy and precision, or the difference is said."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import assert_same_run, chunks_of
from frozen import folders

import replicax as rx
from replicax.callbacks import Progress
from replicax.run import fingerprint
from replicax.run.storage import files
from replicax.run.storage.metadata import FORMAT_VERSION, read_metadata

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
ROWS = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
SWAPPED = ROWS.copy()
SWAPPED[[17, 4321]] = ROWS[[4321, 17]]
CHANGED = ROWS.copy()
CHANGED[7] = 500.0


def stop(progress: Progress) -> str | None:
    return "stop" if progress.step >= 20 else None


def log_likelihood(mean: Any, rows: Any) -> Any:
    return -((rows - mean) ** 2) / 2


def log_prior(mean: Any) -> Any:
    return -(mean**2) / 200


def in_batches(x: Any, rows: Any) -> Any:
    return jnp.mean((x - rows) ** 2)


def holding(rows: Any) -> Any:
    held = jnp.asarray(rows)
    return lambda x: jnp.mean((x - held) ** 2)


def twice(part: Any) -> Any:
    return lambda x: 2 * part(x)


# How a run comes to its rows: target and further arguments.
WAYS: dict[str, Any] = {
    "batches": lambda rows: (in_batches, {"batches": rows, "batch_size": 100}),
    "posterior": lambda rows: (rx.bayesian(log_likelihood, log_prior, rows), {}),
    "posterior in batches": lambda rows: (
        rx.bayesian(log_likelihood, log_prior, rows, batch_size=100),
        {},
    ),
    "in the energy": lambda rows: (holding(rows), {}),
    "in an energy under jit": lambda rows: (jax.jit(holding(rows)), {}),
    "in a part of the energy": lambda rows: (twice(jax.checkpoint(jax.jit(holding(rows)))), {}),
}


@pytest.mark.parametrize("rows", [SWAPPED, CHANGED], ids=["two swapped", "one changed"])
@pytest.mark.parametrize("way", WAYS)
def test_every_row_counts(way: str, rows: np.ndarray, tmp_path: Path) -> None:
    target, more = WAYS[way](ROWS)
    with chunks_of(20):
        rx.sample(target, 0.0, num_steps=40, num_replicas=2, callback=stop, progress=False,
                  run_dir=tmp_path / "run", method=rx.deo_star((1e-6, 2e-6)), **more)  # fmt: skip
    other, again = WAYS[way](rows)
    with pytest.raises(ValueError, match="does not fit the run.*force=True"):
        rx.resume(tmp_path / "run", other, progress=False, **again)
    same, again = WAYS[way](ROWS.copy())
    assert rx.resume(tmp_path / "run", same, progress=False, **again).num_steps == 40


@pytest.mark.parametrize("part", ["inputs", "outcomes"])
def test_the_data_of_the_test_count(part: str, tmp_path: Path) -> None:
    """Predictions for them are averaged over the run."""
    inputs = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    network = rx.nn.mlp(2, 2, hidden=(3,))

    def problem(tested: np.ndarray, labels: np.ndarray) -> Any:
        train = inputs, np.arange(40) % 2
        return rx.classification(network, train, test=(tested, labels), batch_size=10)

    labels = np.arange(6) % 2
    rx.train(problem(inputs[:6], labels), network.init, epochs=1, num_replicas=2, progress=False,
             method="deo-star", run_dir=tmp_path / "run")  # fmt: skip
    others = (inputs[1:7], labels) if part == "inputs" else (inputs[:6], 1 - labels)
    with pytest.raises(ValueError, match="the data of the test are not those"):
        rx.resume(tmp_path / "run", problem(*others), epochs=2, progress=False)
    rx.resume(tmp_path / "run", problem(inputs[:6], labels), epochs=2, progress=False)


@pytest.mark.parametrize("shape", [(0,), (), (3,), (1000, 7), (2**21, 3)])
@pytest.mark.parametrize("dtype", ["float32", "uint8", "bool", "bfloat16"])
def test_a_digest_is_of_all_bytes(shape: tuple, dtype: str) -> None:
    rows = np.random.default_rng(0).integers(0, 2, shape).astype(jnp.dtype(dtype))
    digest = fingerprint._digest_rows(rows)
    assert fingerprint._digest_rows(jnp.asarray(rows)) == digest
    for place in np.unique(np.linspace(0, rows.size - 1, 5).astype(int)) if rows.size else ():
        other = rows.copy().reshape(-1)
        other[place] = 1 - other[place]
        assert fingerprint._digest_rows(other.reshape(shape)) != digest


def test_parts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = files.digest_values([ROWS])
    assert files.digest_values([ROWS, ROWS[:0]]) == whole
    assert files.digest_values([ROWS[::-1]]) != whole


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("jax_enable_x64", True),
        ("jax_default_matmul_precision", "float32"),
        ("jax_random_seed_offset", 5),
    ],
)
def test_the_precision_is_part_of_the_run(name: str, other: object, tmp_path: Path) -> None:
    target, more = WAYS["batches"](ROWS)
    with chunks_of(20):
        rx.sample(target, jnp.zeros(()), num_steps=40, num_replicas=2, callback=stop,
                  progress=False, run_dir=tmp_path / "run", method=rx.deo_star((1e-6, 2e-6)),
                  **more)  # fmt: skip
    before = getattr(jax.config, name)
    jax.config.update(name, other)
    try:
        with pytest.raises(ValueError, match=f"{name} at {before}.*jax.config.update"):
            rx.resume(tmp_path / "run", target, progress=False, **more)
    finally:
        jax.config.update(name, before)
    assert rx.resume(tmp_path / "run", target, progress=False, **more).num_steps == 40


def test_folders_of_version_02_keep_their_own_digest(tmp_path: Path) -> None:
    stored, folder = folders.FOLDERS["deo-star"], folders.unpack("deo-star", tmp_path)
    before = read_metadata(folder).fingerprint
    assert before is not None and not before.all_rows
    other = folders.ROWS[::-1].copy()
    target, again = stored.target(), stored.again | {"batches": other}
    with pytest.raises(ValueError, match="the data are not those"):
        rx.resume(folder, target, progress=False, **again)
    rx.resume(folder, stored.target(), progress=False, **stored.again)
    assert read_metadata(folder).fingerprint == before
    assert json.loads((folder / "run.json").read_text())["format_version"] == FORMAT_VERSION


def test_a_folder_of_format_6_resumes(folder: Path, whole: rx.Posterior) -> None:
    """As version 0.3 wrote them before its release: without sizes, and a digest of some rows."""
    from stopped_runs import ROWS, resume

    for path in (folder / "run.json", *folder.glob("commits/*.json")):
        content = json.loads(path.read_text())
        content.pop("digest")
        content.pop("num_bytes", None)
        if path.name == "run.json":
            content["format_version"] = 6
            for entry in ("all_rows", "held", "precision"):
                del content["fingerprint"][entry]
            digest = fingerprint._digest_some(ROWS)
            content["fingerprint"]["data"] = files.digest(digest.encode())
        files.write_json(path, content)
    assert_same_run(resume(folder), whole)
