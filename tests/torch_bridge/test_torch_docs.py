"""The examples of docs/pytorch.md run as they stand."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs/pytorch.md"


@pytest.mark.filterwarnings("ignore")
def test_blocks_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), scope)
    assert scope["averaged"].metrics().accuracy > 0.8
    assert scope["exchange"].num_steps == 240
