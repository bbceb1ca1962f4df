"""run.json: what is written is read, typed; what is damaged gets a sentence."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from made_up_metadata import changed, metadata_of

from replicax.run.options import Training
from replicax.run.storage import files, upgrade
from replicax.run.storage.metadata import (
    FILE,
    BatchSpec,
    Ending,
    Fingerprint,
    Metadata,
    Predicts,
    TreeSpec,
    read_metadata,
)

SPEC = TreeSpec(
    ("a", "b"), ((2, 3), ()), ("float32", "int32"), {"list": [{"leaf": 0}, {"leaf": 1}]}
)
FULL = metadata_of(
    kind="train",
    params=SPEC,
    batches=BatchSpec("epochs", 50_000, 128),
    run=Training(epochs=3, burn_in=2),
    steps_per_epoch=9,
    num_rows=50_000,
    note={"mine": [1, {"two": None}]},
    fingerprint=Fingerprint((1.5, float("inf")), "abc", "def", "cpu"),
    result=Ending("finished", "All steps are done.", 100),
    gone={"average_rungs": 2},
    draw_rungs=(0, 2),
    adapts=None,
    one_start=False,
    likelihood={"kind": "categorical", "num_classes": 3},
    predicts=Predicts({"kind": "categorical", "num_classes": 3}, SPEC, probe=(0.5, -1.0)),
)


@pytest.mark.parametrize("metadata", [FULL, metadata_of()], ids=["full", "small"])
def test_what_is_written_is_read(metadata: Metadata, tmp_path: Path) -> None:
    metadata.write(tmp_path)
    assert read_metadata(tmp_path) == metadata


def write(folder: Path, content: dict[str, Any]) -> Path:
    files.write_json(folder / FILE, content)
    return folder


def content_of(metadata: Metadata) -> dict[str, Any]:
    metadata.write(folder := Path(tempfile.mkdtemp()))
    return {name: x for name, x in files.read_json(folder / FILE).items() if name != "digest"}


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("params", []),
        ("params", {"names": ["x"], "shapes": [[2]], "dtypes": ["float32"]}),
        ("params", {"names": "x", "shapes": [[2]], "dtypes": ["float32"], "structure": None}),
        ("params", {"names": ["x"], "shapes": [[2.5]], "dtypes": ["float32"], "structure": None}),
        *(
            ("params", {"names": ["x"], "shapes": [[2]], "dtypes": ["float32"], "structure": odd})
            for odd in (
                {"tuple": 5},
                {"leaf": 1},
                {"dict": []},
                {"list": [3]},
                {"leaf": 0, "none": 0},
            )
        ),
        ("batches", 3),
        ("batches", "arrays of 40 rows, 8 a batch"),
        ("kind", "dream"),
        ("note", None),
        ("steps_per_epoch", "9"),
        ("steps_per_epoch", True),
        ("fingerprint", {"start": "abc"}),
        ("result", "finished"),
        ("result", {"code": "finished"}),
        ("resolved", {}),
        ("resolved", None),
        ("of another program", 1),
    ],
)
def test_entries_of_other_types_are_damage(entry: str, value: Any, tmp_path: Path) -> None:
    write(tmp_path, {**content_of(FULL), entry: value})
    with pytest.raises(ValueError, match=r"run.json is damaged: its entries are not those of a ru"):
        read_metadata(tmp_path)


@pytest.mark.parametrize("name", [*asdict(FULL.resolved)])
def test_choices_have_their_types(name: str, tmp_path: Path) -> None:
    """An object is none of them, except where one belongs; and a choice may be unknown."""
    broken = {**asdict(FULL.resolved), name: {"no": "such value"}}
    write(tmp_path, {**content_of(FULL), "resolved": broken})
    if name in ("likelihood", "range_test"):  # plain data, which are shown
        assert getattr(read_metadata(tmp_path).resolved, name) == {"no": "such value"}
        return
    with pytest.raises(ValueError, match="its entries are not those of a run"):
        read_metadata(tmp_path)


def test_choices_of_other_versions_are_left_out(tmp_path: Path) -> None:
    resolved = {**asdict(FULL.resolved), "of another version": 1}
    del resolved["one_start"], resolved["draws_per_step"]
    write(tmp_path, {**content_of(FULL), "resolved": resolved})
    found = read_metadata(tmp_path)
    assert found == changed(FULL, one_start=None)
    assert found.resolved.draws_per_step == 1, "jumps left no more draws than that"


@pytest.mark.parametrize(
    ("text", "counted", "partial"),
    [
        ("arrays of 1000 rows, 10 a batch", True, True),
        ("bayesian, arrays of 100 rows, 100 a batch", True, False),
        ("epochs of 50 rows, 7 a batch", True, True),
        ("an iterable", False, True),
        ("a function of the step", False, True),
        ("none", True, False),
    ],
)
def test_mini_batches_are_known_by_their_description(
    text: str, counted: bool, partial: bool
) -> None:
    batches = BatchSpec(**upgrade._batches(text))
    assert str(batches) == text  # so that sources of older folders are known again
    assert (batches.is_counted, batches.may_be_partial) == (counted, partial)


def test_burn_in_is_counted_in_steps_or_in_epochs() -> None:
    assert metadata_of(burn_in=40).settled_from == 40
    assert FULL.settled_from == 2 * 9
    assert changed(FULL, burn_in=40).settled_from == 40


@pytest.mark.parametrize("entry", ["run", "method"])
def test_options_that_are_missing_are_damage(entry: str, tmp_path: Path) -> None:
    content = content_of(FULL)
    write(tmp_path, {**content, entry: [1]})
    with pytest.raises(ValueError, match=r"The options of the run are missing: its run.json is d"):
        read_metadata(tmp_path)
    del content[entry]["epochs" if entry == "run" else "window"]
    write(tmp_path, content)
    with pytest.raises(ValueError, match=r"options of the run lack \w+: its run.json is damaged"):
        read_metadata(tmp_path)


def test_a_run_is_finished_once_it_did_all_its_steps() -> None:
    assert FULL.is_finished and not metadata_of().is_finished
    assert not changed(FULL, result=Ending("stopped", "The callback stopped it.")).is_finished
