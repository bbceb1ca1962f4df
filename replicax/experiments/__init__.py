"""The paper's studies, one module each: `replicax reproduce <name>`.

A study lists its cells, runs one cell, and says what the records of all cells show. `runner` does
the rest: it saves every finished cell, goes on where it stopped, and writes numbers, figures and
page from the saved records alone.
"""

import importlib

from replicax.errors import choose
from replicax.experiments.study import Study

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
    "table2": "table2",
}
NAMES = tuple(_MODULES)
# Run only where they are named: they need scikit-learn, or data and a GPU.
ALONE = ("networks", "table2")


def load_study(name: str) -> Study:
    """The study called `name`; its module is imported only now."""
    module = _MODULES[choose("The study", name, NAMES)]
    return importlib.import_module(f"replicax.experiments.{module}").STUDY
