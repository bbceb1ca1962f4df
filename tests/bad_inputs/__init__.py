"""The table of bad inputs: a file of rows for each room, and what a row is.

A row that is refused must raise a sentence with the given words, normally the name of the argument
as the user wrote it. A row that is meant has a sensible meaning, which is checked.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from common import in_method

import replicax as rx


class Refused(NamedTuple):
    """A call that must raise a short sentence with all of the words."""

    name: str
    call: Callable[[], Any]
    words: tuple[str, ...]


class Meant(NamedTuple):
    """A call that looks odd and has a meaning: `holds` checks what it returns."""

    name: str
    call: Callable[[], Any]
    meaning: str
    holds: Callable[[Any], Any]


class Thing:
    """An object that is nothing the library knows."""

    def __repr__(self) -> str:
        return "Thing()"


NAN, INF = float("nan"), float("inf")
NOT_WHOLE: dict[str, Any] = {
    "half": 2.5,
    "nan": NAN,
    "inf": INF,
    "text": "3",
    "bool": True,
    "complex": 2j,
    "list": [3],
    "object": Thing(),
}
NOT_NUMBERS: dict[str, Any] = {
    "nan": NAN,
    "text": "fast",
    "complex": 2j,
    "object": Thing(),
    "bool": True,
    "dict": {"a": 1.0},
}
NOT_NAMES: dict[str, Any] = {
    "number": 3,
    "list": ["a"],
    "array": np.arange(3),
    "object": Thing(),
    "misspelt": "kepe",
    "empty": "",
}
NOT_FLAGS: dict[str, Any] = {"text": "no", "number": 2, "list": [], "array": np.arange(3)}


def crossed(
    room: str, call: Callable[..., Any], names: tuple[str, ...], values: Mapping[str, Any]
) -> list[Refused]:
    """Every value for every argument: the message must contain the name of the argument."""
    return [
        Refused(f"{room}: {name} {kind}", lambda n=name, v=value: call(**{n: v}), (name,))
        for name in names
        for kind, value in values.items()
    ]


def listed(
    room: str, call: Callable[..., Any], rows: Mapping[str, tuple[dict[str, Any], str]]
) -> list[Refused]:
    """Rows of keyword arguments, each with the words (separated by blanks) of its message."""
    return [
        Refused(f"{room}: {name}", lambda o=options: call(**o), tuple(words.split()))
        for name, (options, words) in rows.items()
    ]


def bowl(x: Any) -> jax.Array:
    return jnp.sum(x**2)


def with_batch(x: Any, rows: Any) -> jax.Array:
    return jnp.sum((x - jnp.mean(rows)) ** 2)


def sample(target: Any = bowl, **options: Any) -> rx.Posterior:
    """A call of `rx.sample` that is fine but for what is given; options of its method, the paper's,
    stand beside the others."""
    options = {"start": jnp.zeros(2), "num_steps": 40, "num_replicas": 3, **options}
    if "method" not in options:
        options = in_method({"learning_rate": (0.01, 0.1)} | options)
    return rx.sample(target, options.pop("start"), **{"progress": False} | options)
