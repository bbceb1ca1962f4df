"""What the conversions share: optional packages, and random keys in the state of a network."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jax import Array


def import_extra(module: str, extra: str, caller: str) -> Any:
    """Import `module`, or raise an error that says which extra `caller` needs."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'{caller}() needs {extra}: install it with pip install "replicax[{extra}]".'
        ) from error


def draw_key(state: dict[str, Any]) -> "tuple[Array, dict[str, Any]]":
    """Return a random key, and the entry of the state from which the next one is drawn."""
    import jax

    key, use = jax.random.split(jax.random.wrap_key_data(state["key"]))
    return use, {"key": jax.random.key_data(key)}
