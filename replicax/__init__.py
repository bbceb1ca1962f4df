"""Replica exchange for posteriors that only mini-batches can see."""

import importlib

from replicax.version import __version__

_ROOMS = (
    "batches",
    "diagnostics",
    "kernels",
    "ladder",
    "plots",
    "schedule",
    "swap",
    "targets",
    "theory",
)
_NAMES = {
    "sample": "sample",
    "resume": "sample",
    "load": "posterior",
    "Posterior": "posterior",
    "per_replica": "starts",
    "Target": "targets",
    "Kernel": "kernels",
    "Replica": "kernels",
    "Ladder": "ladder",
    "Gain": "ladder",
    "Tuning": "ladder",
    "State": "algorithm",
    "Info": "algorithm",
    "Settings": "algorithm",
    "init": "algorithm",
    "build_step": "algorithm",
    "Progress": "run",
    "Result": "run",
}
__all__ = [*_NAMES, *_ROOMS, "__version__"]


def __getattr__(name: str):
    """Import a room when it is first asked for: `import replicax` alone loads nothing."""
    if name in _NAMES:
        value = getattr(importlib.import_module(f"replicax.{_NAMES[name]}"), name)
    elif name in _ROOMS:
        value = importlib.import_module(f"replicax.{name}")
    else:
        raise AttributeError(f"module 'replicax' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
