"""The examples of docs/numpyro.md run as they stand."""

import re
from pathlib import Path

import pytest

pytest.importorskip("numpyro")
pytest.importorskip("blackjax")
pytest.importorskip("arviz")

PAGE = Path(__file__).parents[2] / "docs/numpyro.md"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_blocks_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE):
        exec(compile(block, str(PAGE), "exec"), scope)
    assert 0.25 < float((scope["draws"][2_000:] < 0).mean()) < 0.55
    assert set(scope["data"]["posterior"].data_vars) == {"weight", "sigma", "precision"}
