"""A whole run, one that stopped at step 40 of 60, and a copy of its folder."""

import shutil
import warnings
from pathlib import Path

import pytest
from stopped_runs import run

import replicax as rx


@pytest.fixture(scope="session")
def whole() -> rx.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run()


@pytest.fixture(scope="session")
def stopped(tmp_path_factory) -> Path:
    """A run with commits at steps 20 and 40, of 60."""
    folder = tmp_path_factory.mktemp("stopped") / "run"

    def stop(progress: rx.callbacks.Progress) -> str | None:
        return "stop" if progress.step == 40 else None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(run_dir=folder, chunk_steps=20, checkpoint_every=20, callback=stop)
    return folder


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped, tmp_path / "run"))
