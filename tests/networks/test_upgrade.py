"""Trainings of earlier versions: what is gone is read, and not continued."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx
from replicax.run.storage.metadata import read_metadata

PROBLEM = tiny_problem()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    rx.train(PROBLEM, NETWORK.init, **EXCHANGING | {"epochs": 2}, run_dir=folder)
    return folder


ARRIVAL = rx.Method("own", 0.01, schedule="deo").__dict__ | {"rate_schedule": "arrival"}


@pytest.mark.parametrize(
    ("stored", "gone"),
    [
        ({"rate_schedule": "arrival"}, "rate_schedule='arrival'"),
        ({"method": ARRIVAL}, "rate_schedule='arrival'"),
        ({"average_rungs": 2}, "average_rungs=2"),
        ({"settle_epochs": 0.5}, "settle_epochs=0.5"),
    ],
)
def test_options_that_are_gone_are_read_and_not_continued(
    stored: dict[str, Any], gone: str, folder: Path
) -> None:
    metadata = read_metadata(folder)
    training = {**(metadata.training or {}), **stored}
    try:
        replace(metadata, training=training).write(folder)
        loaded: Any = rx.load(folder, PROBLEM)  # type: ignore[arg-type]
        assert loaded.summary()["averaged"] == 2
        assert len(loaded.predict(PROBLEM.test.inputs)) == 12  # type: ignore[union-attr]
        with pytest.raises(ValueError, match=f"started with {gone}, which is gone .* start a new"):
            rx.resume(folder, PROBLEM)
    finally:
        metadata.write(folder)
