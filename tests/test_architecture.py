"""The architecture: imports point one way, from what people call down to closed forms."""

import ast
from pathlib import Path

import pytest

import replicax

PACKAGE = Path(replicax.__file__).parent
# Every room may import those of a lower rank, and within itself.
RANKS = {
    "version": 0,
    "tracing": 0,
    "errors": 0.5,
    "theory": 1,
    "nn": 1,
    "data": 1,
    "algorithm": 2,
    "targets": 3,
    "run": 4,
    "interop": 5,
    "page": 5.5,
    "results": 6,
    "user_code": 6,
    "networks": 7,
    "callbacks": 7,
    "api": 8,
    "resume_run": 8,
    "report_run": 9,
    "torch": 8,
    "demo": 9,
    "cli": 10,
    "__main__": 11,
}


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
