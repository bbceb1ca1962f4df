"""The paper's studies, one module or folder each: `python -m studies NAME`.

A study lists its cells, runs one cell, and turns the records of all cells into findings, tables and
figures. `shared.runner` saves every finished cell, continues an interrupted study, and writes
numbers, figures and page from the saved records. Table 2 consists of run folders instead of cells
and has its own `reproduce`.
"""

import importlib

from replicax.errors import choose
from studies.shared.study import Study

STUDIES = (
    "round-trips",
    "window",
    "modes25",
    "swap-rate",
    "mixture",
    "buffer",
    "replicas",
    "optimise",
    "kernels",
    "tempered",
    "networks",
    "recipes",
)
TABLE2 = "table2"
NAMES = (*STUDIES, TABLE2)
NOT_IN_ALL = ("networks", "recipes", TABLE2)  # they need scikit-learn, or CIFAR-100 and a GPU


def load_study(name: str) -> Study:
    """Import the module of a study and return the study."""
    module = choose("The study", name, STUDIES).replace("-", "_")
    return importlib.import_module(f"studies.{module}").STUDY


def title_of(name: str) -> str:
    """Return the title of a study."""
    if name != TABLE2:
        return load_study(name).title
    from studies.table2.trainings import TITLE

    return f"{TITLE} (needs a GPU and the data; not part of all)"
