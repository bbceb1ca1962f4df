"""Import of optional packages, with the remedy where one is missing."""

import importlib
from typing import Any


def import_extra(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'from_{extra}() needs {extra}: install it with pip install "replicax[{extra}]".'
        ) from error
