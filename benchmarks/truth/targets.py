"""All targets of the study by name, and the stored references.

>>> from targets import TARGETS, reference
>>> reference(TARGETS["funnel"].name)["functions"]["v"]["sd"]
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from densities import (
    chain,
    funnel,
    modes_25,
    scales,
    student,
    ten_modes,
    twenty_modes,
    unequal_modes,
)
from kinds import KINDS
from mixtures import hierarchical_mixture, mixture
from regressions import change_point, eight_schools, linear, logistic, poisson, survival
from target import Target

FILE = Path(__file__).with_name("references.json")
_TARGETS = (
    mixture(2),
    hierarchical_mixture(),
    logistic(batch=500),
    logistic(),
    funnel(),
    eight_schools(),
    twenty_modes(),
    chain(),
    linear(batch=50),
    linear(),
    poisson(),
    mixture(3),
    unequal_modes(),
    student(),
    scales(),
    modes_25(),
    survival(),
    change_point(),
    change_point(batch=20),
    ten_modes(),
)
TARGETS: dict[str, Target] = {target.name: target for target in _TARGETS}
ALL = {**KINDS, **TARGETS}
SHOWN = tuple(TARGETS)[:8]  # those that the project promises; the others were added as a check


@cache
def _stored() -> dict[str, Any]:
    return json.loads(FILE.read_text())["references"]


def reference(name: str) -> dict[str, Any]:
    """Return mean and sd of each judged function, masses of modes, and how they were found."""
    return _stored()[name.removesuffix("-batch")]
