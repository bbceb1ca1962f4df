"""A Griffe extension: doctests become code blocks, classes show their fields as written, options
their defaults."""

import re
import textwrap
from typing import Any

import griffe


class Docstrings(griffe.Extension):
    """Rewrites docstrings for the pages of the API; the sources stay as they are."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fence_doctests(obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        if isinstance(attr.value, griffe.ExprCall) and str(attr.value.function) == "option":
            attr.value = attr.value.arguments[0]  # the default; the rest is for checks and flags

    def on_class(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        fields = source_of_fields(cls)
        if cls.docstring is not None and fields:
            cls.docstring.value += f"\n\n```python\n{fields}\n```"


def fence_doctests(text: str) -> str:
    """Put a fence around each doctest, which Markdown would otherwise read as a quotation."""
    lines: list[str] = []
    fence = None
    for line in text.splitlines():
        if fence is None and line.lstrip().startswith(">>>"):
            fence = " " * (len(line) - len(line.lstrip())) + "```"
            lines += ["", f"{fence}pycon"]
        elif fence is not None and not line.strip():
            lines.append(fence)
            fence = None
        lines.append(line)
    return "\n".join(lines if fence is None else [*lines, fence])


def source_of_fields(cls: griffe.Class) -> str:
    """Return the lines that declare public fields, with the comments that hold their shapes.

    The signature of a dataclass shows its fields already, so without comments it has no such lines.
    """
    fields = [
        member
        for member in cls.members.values()
        if member.is_attribute and "property" not in member.labels and not member.is_private
    ]
    lines = cls.lines_collection[cls.filepath] if fields else []
    sources = ["\n".join(lines[field.lineno - 1 : field.endlineno]) for field in fields]
    text = re.sub(r"  # (type: ignore|noqa).*", "", textwrap.dedent("\n".join(sources)))
    return "" if "dataclass" in cls.labels and "#" not in text else text
