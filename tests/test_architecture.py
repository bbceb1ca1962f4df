"""The architecture: imports point one way, from what people call down to closed forms."""

import ast
import re
from pathlib import Path

import pytest

import replicax

PACKAGE = Path(replicax.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"


def read_ranks(page: str) -> dict[str, int]:
    """Return the rank of every room, from the import rule on the page about the architecture."""
    rule = page.split("## The import rule")[1].split("```")[1].removeprefix("text")
    levels = rule.replace("\n", " ").split("->")
    return {
        room.strip(): rank
        for rank, level in enumerate(reversed(levels))
        for room in level.split("|")
    }


# Every room may import those of a lower rank, and within itself.
RANKS = read_ranks(PAGE.read_text())


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(source: str) -> set[str]:
    """Return the modules that a file imports, at the top or inside functions."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "replicax":
            modules |= {f"replicax.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return {name for name in modules if name.split(".")[0] in ("replicax", "studies")}


def edges_that_point_back(room: str, source: str) -> list[str]:
    """Return the imports of a file in `room` that its rank does not allow."""
    wrong = []
    for module in sorted(imported_modules(source)):
        if module == "replicax":
            allowed = RANKS[room] > RANKS["api"]
        elif module.split(".")[0] == "studies":
            allowed = False  # studies use the library, and never the reverse
        else:
            other = module.split(".")[1]
            allowed = other == room or RANKS[other] < RANKS[room]
        if not allowed:
            wrong.append(f"{room} -> {module}")
    return wrong


FILES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_the_rule_names_every_room():
    assert {room_of(path) for path in FILES} == set(RANKS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    assert edges_that_point_back(room_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("algorithm", "from replicax.run import options"),
        ("run", "def late():\n    from replicax.results.posterior import Posterior"),
        ("networks", "from replicax import api"),
        ("nn", "import replicax.algorithm.step"),
        ("results", "import replicax as rx"),
        ("cli", "def late():\n    from studies import load_study"),
    ],
)
def test_an_edge_that_points_back_is_found(room, source):
    assert len(edges_that_point_back(room, source)) == 1


def tree_of(page: str) -> set[str]:
    """Return the files in the tree of the page, each with its folders."""
    files, folders = set(), []
    for line in page.split("```text")[1].split("```")[0].split("replicax/\n")[1].splitlines():
        depth = (len(line) - len(line.lstrip())) // 2 - 1
        names = re.findall(r"\w+(?:\.py|/)", line)
        if names and names[0].endswith("/"):
            folders = [*folders[:depth], names[0]]
        files |= {"".join([*folders[:depth], name]) for name in names if name.endswith(".py")}
    return files


def test_the_page_names_files_that_exist_and_the_tree_those_of_the_rooms():
    page = PAGE.read_text()
    for name in re.findall(r"`([a-z_]+/[\w/]+\.py)`", page):
        assert (PACKAGE / name).is_file() or (PACKAGE.parent / name).is_file(), name
    listed = tree_of(page)
    for name in listed:
        assert (PACKAGE / name).is_file(), name
    shown = ("algorithm", "run", "results", "networks")
    own = [str(path.relative_to(PACKAGE)) for path in FILES if path.name != "__init__.py"]
    assert {name for name in own if name.startswith(shown)} - listed == set()
