"""Trainings in run folders of version 0.2: their options, and what the first of them lack."""

import json
from pathlib import Path
from typing import Any

import pytest
from frozen import folders

import replicax as rx
from replicax.run.storage import files
from replicax.run.storage.metadata import Metadata, read_metadata

LATER = (  # options that the first folders of format 5 lack
    "average_rungs",
    "settle_epochs",
    "keep_averaged",
    "kernel",
    "rate_schedule",
    "warmup_epochs",
    "clip_norm",
    "schedule",
    "rule",
    "adapt",
    "swap_every",
    "swap_energy",
    "evaluate",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folders.unpack("training", tmp_path)


def read(folder: Path, without: tuple[str, ...] = (), **training: Any) -> Metadata:
    """The metadata of the folder with other options of the training."""
    path = folder / "run.json"
    content = json.loads(path.read_text())
    del content["digest"]
    content["training"] |= training
    for name in without:
        del content["training"][name]
    files.write_json(path, content)
    return read_metadata(folder)


def test_a_training_without_later_options_has_their_usual_values(folder: Path) -> None:
    before = read(folder)
    assert before.method.name == "deo-star" and before.method.learning_rate == (0.02, 0.1)
    after = read(folder, without=LATER)
    assert (after.run, after.method, after.gone) == (before.run, before.method, {})


def test_a_method_of_ones_own_comes_back_from_its_fields(folder: Path) -> None:
    own = {"name": "two", "schedule": "deo", "learning_rate": [0.1, 0.2], "temperature": 0.5}
    metadata = read(folder, method=own, learning_rate=None)
    method = metadata.method
    assert (method.name, method.schedule, method.learning_rate) == ("two", "deo", (0.1, 0.2))
    assert (method.temperature, method.averages, method.momentum) == (0.5, "coldest", 0.9)
    trained = rx.load(folder)
    assert isinstance(trained, rx.Trained) and trained.method == "two"
