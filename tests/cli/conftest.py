"""A file with targets, in the working directory of tests of the command line."""

from pathlib import Path

import pytest
from targets_model import MODEL


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A target file in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
