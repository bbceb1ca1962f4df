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


@pytest.mark.parametrize("place", rx._ELSEWHERE)
def test_a_name_that_moved_says_where_it_is(place):
    for name in rx._ELSEWHERE[place].split():
        with pytest.raises(AttributeError, match=f"from {place} import {name}") as refused:
            getattr(rx, name)
        line = re.search(r"write (from .*)\.$", str(refused.value))
        assert line is not None
        exec(line[1], {})


def test_names_that_are_gone_or_unknown():
    with pytest.raises(AttributeError, match=r"rx\.load\(folder\)\.report\(\)"):
        rx.report  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'$"):
        rx.nothing  # noqa: B018
