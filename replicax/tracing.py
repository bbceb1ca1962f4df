"""Sentences for what goes wrong while JAX traces a function of the user's own.

JAX calls an energy with arrays that have no values yet. Python's `if`, NumPy and `float` need
values; the messages of JAX explain tracing, ours name the line and what to write there.
"""

import re
import traceback
from pathlib import Path

import jax

_PACKAGE = Path(__file__).parent
_LIBRARIES = ("site-packages", "dist-packages", "<frozen", "<string>")
_LONGEST = 60  # letters of a line of code that are shown
_KEEP_ARRAYS = "keep arrays of jnp: no float(), int(), .item() or math functions"
_CURES: tuple[tuple[type[Exception], str], ...] = (  # the first that fits; subclasses come first
    (jax.errors.NonConcreteBooleanIndexError, "write jnp.where(mask, x, 0) in place of x[mask]"),
    (jax.errors.TracerArrayConversionError, "write jax.numpy (jnp) in place of NumPy"),
    (jax.errors.TracerIntegerConversionError, "let sizes, ranges and places be constants"),
    (jax.errors.TracerBoolConversionError, "write jnp.where(condition, a, b) in place of if"),
    (jax.errors.ConcretizationTypeError, _KEEP_ARRAYS),
)


_NO_DERIVATIVE = {  # in the words of JAX
    "Reverse-mode differentiation does not work": "a loop needs a number of steps that is known "
    "before: write jax.lax.scan, or jax.lax.fori_loop with constant bounds",
    "callbacks do not support J": "give it one with jax.custom_vjp, or rx.Target(energy, gradient)",
    "pure_callback primitive when vmap_method": "write vmap_method='sequential' in pure_callback, "
    "and give it a derivative with jax.custom_vjp, or rx.Target(energy, gradient)",
}


def explain(what: str, error: Exception, hint: str, if_none: str) -> str | None:
    """Return the sentence of `errors.explained`; None for an error that this package raised."""
    if _is_ours(error):
        return None
    place, code = _users_line(error)
    cure = _cure(error, code)
    if cure:
        return f"{what} cannot be compiled: {place or 'it'} needs the value of an array; {cure}."
    for said, remedy in _NO_DERIVATIVE.items():
        if said in str(error):
            return f"{what} has no derivative{f' at {place}' if place else ''}: {remedy}."
    words = f"{_first_line(error)}{f' {hint}' if hint else ''}"
    if if_none and "None" in str(error):
        words = if_none
    return f"{what} fails{f' at {place}' if place else ''}: {words}"


def _cure(error: Exception, code: str) -> str:
    for kind, cure in _CURES:
        if isinstance(error, kind):
            if cure.endswith("in place of if"):
                if re.match(r"\s*while\b", code):
                    return "write jax.lax.while_loop in place of while"
                if re.match(r"\s*assert\b", code):
                    return "leave out the assertion"
            return cure
    if "immutable" in str(error):
        return "write x = x.at[place].set(value) in place of x[place] = value"
    return ""


def _first_line(error: Exception) -> str:
    """Return the error in its own words, as one sentence without the names of Python classes."""
    kind = type(error).__name__
    line = " ".join((str(error).splitlines() or [""])[0].split())
    returned = re.search(
        r"(?:returned a value|with|value) (?:of )?type <class '(?:\w+\.)*(\w+)'>", line
    )
    if returned:
        line = f"it returns or takes a value of type {returned.group(1)}, which is no array"
    elif isinstance(error, KeyError | AttributeError) or not line:
        line = f"{kind} {line}".strip()
    line = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", line).replace("NoneType", "None")
    return f"{line[:150].rstrip('.')}."


def _users_line(error: Exception) -> tuple[str, str]:
    """Return the last line of the user's own that led to the error, in words and as code."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not _is_library(f.filename)]
    if not own or own[-1].lineno is None:
        return "", ""
    code = (own[-1].line or "").strip()
    shown = f" `{code[:_LONGEST]}`" if code else ""
    return f"line {own[-1].lineno} of {Path(own[-1].filename).name}{shown}", code


def _is_library(filename: str) -> bool:
    inside = _PACKAGE in Path(filename).parents
    return inside or any(part in filename for part in _LIBRARIES) or "/lib/python" in filename


def _is_ours(error: Exception) -> bool:
    """Return whether a `raise` of this package made the error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or _PACKAGE not in Path(frames[-1].filename).parents:
        return False
    return (frames[-1].line or "").startswith("raise ")
