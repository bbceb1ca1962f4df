"""The names of `import replicax as rx`: each is in the table of the API, with its reason."""

import re
from pathlib import Path

import pytest

import replicax as rx

TABLE = Path(__file__).parents[1] / "docs" / "api" / "index.md"


def test_the_table_of_the_api_has_every_public_name_once():
    named = re.findall(r"`rx\.(\w+)`", TABLE.read_text())
    assert sorted(named) == sorted(set(dir(rx)) - {"__version__"})
    assert f"gives {len(named)} names" in TABLE.read_text()
    for name in named:
        assert getattr(rx, name) is not None


def test_names_that_are_unknown():
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        rx.nothing  # noqa: B018
