"""The paper's studies, one module each: `replicax reproduce <name>`.

A study lists its cells, runs one cell, and says what the records of all cells show. `runner` does
the rest: it saves every finished cell, goes on where it stopped, and writes numbers, figures and
page from the saved records alone. Table 2 has run folders instead of cells, and a `reproduce` of
its own.
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
# Run only where they are named: they need scikit-learn, or data and a GPU.
ALONE = ("networks", TABLE2)


def load_study(name: str) -> Study:
    """The study called `name`; its module is imported only now."""
    module = _MODULES[choose("The study", name, STUDIES)]
    return importlib.import_module(f"replicax.experiments.{module}").STUDY


def title_of(name: str) -> str:
    """What a study shows, in a line."""
    if name != TABLE2:
        return load_study(name).title
    from replicax.experiments.table2.study import TITLE

    return f"{TITLE} (a GPU and the data; not part of all)"
