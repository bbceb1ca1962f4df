"""Import of optional packages."""

import importlib
from typing import Any


def import_extra(module: str, extra: str, caller: str) -> Any:
    """Import `module`, or raise an error that says which extra `caller` needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{caller}() needs {extra}: install it with pip install "replicax[{extra}]".'
        ) from error
