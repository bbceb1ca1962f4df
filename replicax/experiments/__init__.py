"""The paper's studies, one module or folder each: `replicax reproduce <name>`.

A study lists its cells, runs one cell, and turns the records of all cells into findings, tables and
figures. `shared.runner` saves every finished cell, continues an interrupted study, and writes
numbers, figures and page from the saved records. Table 2 consists of run folders instead of cells
and has its own `reproduce`.
"""

import importlib

from replicax.errors import choose
from replicax.experiments.shared.study import Study

_MODULES = {
    "round-trips": "round_trips",
    "window": "window",
    "modes25": "modes25",
    "swap-rate": "swap_rate",
    "mixture": "mixture",
    "buffer": "buffer",
    "replicas": "replicas",
    "optimise": "optimise",
    "kernels": "kernels",
    "preset": "preset",
    "networks": "networks",
}
STUDIES, TABLE2 = tuple(_MODULES), "table2"
NAMES = (*STUDIES, TABLE2)
NOT_IN_ALL = ("networks", TABLE2)  # they need scikit-learn, or CIFAR-100 and a GPU


def load_study(name: str) -> Study:
    """Import the module of a study and return the study."""
    module = _MODULES[choose("The study", name, STUDIES)]
    return importlib.import_module(f"replicax.experiments.{module}").STUDY


def title_of(name: str) -> str:
    """Return the title of a study."""
    if name != TABLE2:
        return load_study(name).title
    from replicax.experiments.table2.study import TITLE

    return f"{TITLE} (needs a GPU and the data; not part of all)"
