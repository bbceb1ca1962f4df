"""Run folders that are damaged, full, in use or of another target: a sentence, and nothing lost."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from common import assert_same_run
from stopped_runs import resume

import replicax as rx
from replicax.run.storage import arrays, files
from replicax.run.storage.folder import open_records, read_commit

pytestmark = pytest.mark.filterwarnings("ignore:.*(R-hat|effective|round trip|chain|trips|start)")


def flip(path: Path, place: float = 0.5) -> None:
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[int(place * (len(content) - 1))] ^= 0x40
    path.write_bytes(bytes(content))


def newest_array(folder: Path) -> Path:
    return max((folder / "checkpoints/40").rglob("d/*"), key=lambda path: path.stat().st_size)


NEWEST = {
    "a commit that is missing a half": lambda f: (f / "commits/40.json").write_text("{"),
    "a commit with a flipped byte": lambda f: flip(f / "commits/40.json"),
    "values that are missing": lambda f: (f / "commits/40.npz").unlink(),
    "values with a flipped byte": lambda f: flip(f / "commits/40.npz"),
    "values of another step": lambda f: shutil.copy(f / "commits/20.npz", f / "commits/40.npz"),
    "no checkpoint": lambda f: shutil.rmtree(f / "checkpoints/40"),
    "a file of the checkpoint with a flipped byte": lambda f: flip(newest_array(f)),
    "a file of the checkpoint that is missing": lambda f: newest_array(f).unlink(),
    "a checkpoint that is a file": lambda f: (
        shutil.rmtree(f / "checkpoints/40"),
        (f / "checkpoints/40").write_text(""),
    ),
}


@pytest.mark.parametrize("damage", NEWEST.values(), ids=NEWEST)
def test_a_damaged_newest_state_goes_back_to_the_last_good_one(
    damage: Any, folder: Path, whole: rx.Posterior
) -> None:
    damage(folder)
    with pytest.warns(UserWarning, match="goes back to step 20"):
        assert_same_run(resume(folder), whole)


def test_where_no_state_is_left_there_is_one_sentence(folder: Path) -> None:
    for path in (folder / "commits").glob("*.json"):
        flip(path)
    for call in (rx.load, resume):
        with pytest.raises(ValueError, match="Nothing in .* is left to go back to"):
            call(folder)


def chunk(folder: Path, name: str) -> Path:
    return next((folder / "records.zarr" / name).glob("c.*"))


RECORDS = {
    "a group is missing": (lambda f: shutil.rmtree(f / "records.zarr/draws"), "draws"),
    "an array is missing": (lambda f: shutil.rmtree(f / "records.zarr/draws/energy"), "energy"),
    "a chunk is missing": (lambda f: chunk(f, "draws/params.a").unlink(), "missing"),
    "a chunk has a flipped byte": (lambda f: flip(chunk(f, "draws/params.a"), 0.9), "damaged"),
    "a chunk is cut": (lambda f: chunk(f, "steps/rung_of").write_bytes(b"12345"), "damaged"),
    "a chunk is empty": (lambda f: chunk(f, "steps/rung_of").write_bytes(b""), "damaged"),
    "the shape is another": (lambda f: reshape(f / "records.zarr/draws/energy"), "damaged"),
    "no metadata": (lambda f: (f / "records.zarr/draws/energy/zarr.json").unlink(), "energy"),
    "broken metadata": (
        lambda f: (f / "records.zarr/draws/energy/zarr.json").write_text("{"),
        "energy",
    ),
}


def reshape(array: Path) -> None:
    content = json.loads((array / "zarr.json").read_text())
    content["shape"] = [3, *content["shape"][1:]]
    (array / "zarr.json").write_text(json.dumps(content))


def read_all(folder: Path) -> None:
    posterior = rx.load(folder)
    _ = posterior.draws, posterior.energies, posterior.rung_of, posterior.history


@pytest.mark.parametrize(("damage", "word"), RECORDS.values(), ids=RECORDS)
def test_damaged_records_are_said(damage: Any, word: str, folder: Path) -> None:
    damage(folder)
    for call in (read_all, resume):
        with pytest.raises(ValueError, match=word) as caught:
            call(folder)
        assert len(str(caught.value)) < 600


def test_every_flipped_byte_of_a_chunk_is_seen(folder: Path) -> None:
    path = chunk(folder, "draws/params.a")
    content, records = path.read_bytes(), open_records(folder)
    for place in np.linspace(0, 1, 30):
        path.write_bytes(content)
        flip(path, place)
        with pytest.raises(ValueError, match="damaged"):
            records.read("draws", "params.a")


def test_rows_without_a_checksum_are_checked_by_chunks_and_number(
    folder: Path,
) -> None:
    """As in folders that were written before there were checksums of rows."""
    path, store = chunk(folder, "draws/params.a"), folder / "records.zarr"
    group = open_records(folder).commit.groups["draws"]
    length, column = group.length, group.columns["params.a"]._replace(checksum=None)
    assert len(arrays.read(store, "draws", "params.a", length, column)) == length
    with pytest.raises(ValueError, match=f"has {length} rows .* the run has {length + 1}"):
        arrays.read(store, "draws", "params.a", length + 1, column)
    content = path.read_bytes()
    for place in np.linspace(0, 1, 30):
        path.write_bytes(content)
        flip(path, place)
        with pytest.raises(ValueError, match="damaged"):
            arrays.read(store, "draws", "params.a", length, column)


def numbers_of(folder: Path) -> list[np.ndarray]:
    posterior = rx.load(folder)
    parts = posterior.draws, posterior.energies, posterior.rung_of, posterior.history
    finals = [posterior.learning_rates, posterior.buffer, posterior.round_trips]
    return [np.asarray(leaf) for leaf in jax.tree.leaves((parts, finals))]


def test_every_flipped_byte_of_a_folder_is_seen(folder: Path) -> None:
    """An error, a warning that the run went back, or the very numbers as before."""
    before = numbers_of(folder)
    places = np.random.default_rng(0)
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    paths = [path for path in paths if "checkpoints" not in path.parts]
    seen = 0
    for path in paths:
        content = path.read_bytes()
        flip(path, places.uniform())
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                after = numbers_of(folder)
            except ValueError:
                seen += 1
            else:
                went_back = any("goes back" in str(warning.message) for warning in said)
                seen += went_back
                for one, other in zip(before, after, strict=True) if not went_back else ():
                    np.testing.assert_array_equal(one, other, err_msg=str(path))
        path.write_bytes(content)
    assert seen > 15, f"of {len(paths)} files"


def test_metadata_with_a_flipped_number_are_refused(folder: Path) -> None:
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"seed": 2', '"seed": 3'))
    for call in (rx.load, resume):
        with pytest.raises(ValueError, match="run.json is damaged"):
            call(folder)


# hostile files


def test_a_chunk_that_would_fill_the_memory_is_refused(folder: Path) -> None:
    path = chunk(folder, "draws/params.a")
    content = bytearray(path.read_bytes())
    content[4:8] = (2**31 - 1).to_bytes(4, "little")  # what Blosc says that it holds
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="does not hold"):
        read_all(folder)


def test_values_that_are_compressed_or_pickled_are_refused(tmp_path: Path) -> None:
    for name, write in (
        ("bomb", lambda path: np.savez_compressed(path, zeros=np.zeros(10**7))),
        ("pickle", lambda path: np.savez(path, code=np.array([print], object))),
        ("nothing", lambda path: path.write_bytes(b"PK\x03\x04")),
    ):
        path = tmp_path / f"{name}.npz"
        write(path)
        with pytest.raises(ValueError, match="holds no arrays"):
            files.read_arrays(path, files.digest(path.read_bytes()))


@pytest.mark.parametrize("name", ["../../elsewhere", "..", "/etc/passwd", "a/b", ".hidden"])
def test_names_that_lead_out_of_the_folder_are_refused(folder: Path, name: str) -> None:
    path = folder / "commits/40.json"
    content = json.loads(path.read_text())
    del content["digest"]
    columns = content["groups"]["draws"]["columns"]
    columns[name] = columns["energy"]
    files.write_json(path, content)
    with pytest.raises(ValueError, match="not those of a commit"):
        read_commit(folder, 40)


def test_a_file_of_a_million_entries_is_refused(folder: Path) -> None:
    (folder / "run.json").write_text("[" + "1," * (2**23) + "1]")
    with pytest.raises(ValueError, match="larger than 16 MiB"):
        rx.load(folder)


@pytest.mark.parametrize(
    "change", [{"dtype": "object"}, {"dtype": "O8"}, {"shape": [-1]}, {"checksum": "1"}]
)
def test_columns_of_other_types_are_refused(folder: Path, change: dict) -> None:
    path = folder / "commits/40.json"
    content = json.loads(path.read_text())
    del content["digest"]
    dtype, shape, _ = content["groups"]["draws"]["columns"]["energy"]
    column = [change.get("dtype", dtype), change.get("shape", shape), change.get("checksum")]
    content["groups"]["draws"]["columns"]["energy"] = column
    files.write_json(path, content)
    with pytest.raises(ValueError, match="not those of a commit"):
        read_commit(folder, 40)
