"""The examples of the pages about callbacks and reports run as they stand."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["callbacks", "report"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_blocks_run(name, tmp_path, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    text = (DOCS / f"{name}.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    scope: dict = {}
    for block in blocks:
        exec(compile(block, f"docs/{name}.md", "exec"), scope)
    if name == "callbacks":
        assert scope["posterior"].result.code == "stopped"
    else:
        assert scope["path"].exists() and Path("run/report.html").exists()
