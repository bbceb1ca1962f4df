"""Replica exchange for posteriors that only mini-batches can see.

`sample` is the one call most people make; the rooms (`kernels`, `schedule`, `swap`, `ladder`,
`targets`, `theory`, ...) hold the parts for people who build.
"""

import importlib
from typing import TYPE_CHECKING

from replicax.version import __version__ as __version__

if TYPE_CHECKING:
    from replicax import adapters as adapters
    from replicax import batches as batches
    from replicax import data as data
    from replicax import diagnostics as diagnostics
    from replicax import kernels as kernels
    from replicax import ladder as ladder
    from replicax import nn as nn
    from replicax import plots as plots
    from replicax import predict as predict
    from replicax import presets as presets
    from replicax import schedule as schedule
    from replicax import swag as swag
    from replicax import swap as swap
    from replicax import targets as targets
    from replicax import theory as theory
    from replicax.algorithm import Info as Info
    from replicax.algorithm import Settings as Settings
    from replicax.algorithm import State as State
    from replicax.algorithm import build_step as build_step
    from replicax.algorithm import init as init
    from replicax.kernels import Kernel as Kernel
    from replicax.kernels import Replica as Replica
    from replicax.ladder import Gain as Gain
    from replicax.ladder import Ladder as Ladder
    from replicax.ladder import Tuning as Tuning
    from replicax.posterior import Posterior as Posterior
    from replicax.posterior import load as load
    from replicax.problems import Supervised as Supervised
    from replicax.problems import Test as Test
    from replicax.problems import classification as classification
    from replicax.problems import supervised as supervised
    from replicax.program import Programs as Programs
    from replicax.run import Progress as Progress
    from replicax.run import Result as Result
    from replicax.sampling import resume as resume
    from replicax.sampling import sample as sample
    from replicax.starts import per_replica as per_replica
    from replicax.targets import Target as Target
    from replicax.trained import Trained as Trained
    from replicax.training import networks_of as networks_of
    from replicax.training import resume_training as resume_training
    from replicax.training import train as train

_ROOMS = (
    "adapters",
    "batches",
    "data",
    "diagnostics",
    "kernels",
    "ladder",
    "nn",
    "plots",
    "predict",
    "presets",
    "schedule",
    "swag",
    "swap",
    "targets",
    "theory",
)
_NAMES = {
    "algorithm": "Info Settings State build_step init",
    "kernels": "Kernel Replica",
    "ladder": "Gain Ladder Tuning",
    "posterior": "Posterior load",
    "program": "Programs",
    "run": "Progress Result",
    "sampling": "resume sample",
    "starts": "per_replica",
    "problems": "Supervised Test classification supervised",
    "targets": "Target",
    "trained": "Trained",
    "training": "networks_of resume_training train",
}
_ROOM_OF = {name: room for room, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str):
    """Import a room when it is first asked for: `import replicax` alone loads no JAX."""
    if name in _ROOM_OF:
        value = getattr(importlib.import_module(f"replicax.{_ROOM_OF[name]}"), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"replicax.{name}")
    else:
        raise AttributeError(f"module 'replicax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*_ROOM_OF, *_ROOMS, "__version__"])
