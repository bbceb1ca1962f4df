"""Options as plain data, so that a run folder can be opened without the code that made it."""

from collections.abc import Callable
from dataclasses import asdict, fields, is_dataclass
from typing import Any, TypeVar

import jax
import numpy as np

from replicax.algorithm import kernels, schedule, swap
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.run.storage.files import Damaged

Kind = TypeVar("Kind")
CUSTOM = "custom"  # stands in a run folder for an object that only the user can give again
_CLASSES = {
    made.__name__: made
    for made in (
        schedule.WindowedDEO,
        schedule.StochasticEvenOdd,
        schedule.Adjacent,
        schedule.AllPairs,
        schedule.NoExchange,
        swap.Deterministic,
        swap.Metropolis,
        swap.BiasCorrected,
        swap.WindowCorrected,
        Gain,
        ConstantGain,
    )
}


def to_plain(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of options as plain data."""
    return {entry.name: _plain(getattr(options, entry.name)) for entry in fields(options)}


def from_plain(kind: type[Kind], data: Any) -> Kind:
    """Return the dataclass of options that `to_plain` wrote, as it was: it was checked then.

    Objects that only the user can give again stay marked.
    """
    if not isinstance(data, dict):
        raise Damaged("The options of the run are missing: its run.json is damaged.")
    options = object.__new__(kind)
    for entry in fields(kind):  # type: ignore[arg-type]
        if entry.name not in data:
            raise Damaged(f"The options of the run lack {entry.name}: its run.json is damaged.")
        object.__setattr__(options, entry.name, _stored(entry.name, data[entry.name]))
    return options


def given_again(stored: Kind, again: dict[str, Any], call: Callable[[str], str]) -> Kind:
    """Return the stored options, with those that may change and with the objects that no folder
    holds, as they are given `again`; None keeps what is stored.

    `call` says how to give one; what else the folder holds cannot be changed by giving another.
    """
    values = {}
    for entry in fields(stored):  # type: ignore[arg-type]
        name, value = entry.name, getattr(stored, entry.name)
        offered, about = again.get(name), entry.metadata.get("option")
        if about is not None and about.on_resume in ("may change", "may grow"):
            value = value if offered is None else offered
        elif isinstance(value, str) and value == CUSTOM:
            if offered is None:
                raise ValueError(
                    f"This run was started with a {name} of your own, which a folder cannot "
                    f"hold; give it again: {call(name)}."
                )
            value = offered
        elif _plain(offered) not in (None, _plain(entry.default), _plain(value)):
            started = "continues with the one it was started with, which its folder stores"
            started = "was started without one" if value is None else started
            raise ValueError(f"{name} is given, but the run {started}: leave out {name}.")
        values[name] = value
    return type(stored)(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": value.spec} if value.spec is not None else CUSTOM
    if is_dataclass(value):
        name = type(value).__name__
        if _CLASSES.get(name) is not type(value):
            return CUSTOM
        return {name: {key: _plain(part) for key, part in asdict(value).items()}}  # type: ignore
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return np.asarray(value).tolist()
    if hasattr(value, "_fields"):  # a named tuple, such as a transform of optax
        return CUSTOM
    if isinstance(value, tuple | list | range):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else CUSTOM


def _stored(name: str, value: Any) -> Any:
    """Return the value of a stored option; raise if it is damaged."""
    if not isinstance(value, dict):
        return value
    try:
        ((kind, content),) = value.items()
        return kernels.from_spec(content) if kind == "kernel" else _CLASSES[kind](**content)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise Damaged(
            f"The option {name} of the run is none of replicax: its run.json is damaged."
        ) from None
