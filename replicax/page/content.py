"""The content of a page: sections of sentences, numbers, charts, index paths and images.

All of it is data; `render.py` converts it to HTML and escapes every text.
"""

from typing import Any, NamedTuple

import numpy as np


class Table(NamedTuple):
    """Numbers as text; the first column names the row."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    title: str = ""


class Chart(NamedTuple):
    """A Plotly figure, or several of which the reader chooses one."""

    name: str  # id of its element in the page
    title: str
    words: str  # what is to be seen, for readers who do not see it
    figures: dict[str, Any]  # by choice of the section; a single one is always shown
    table: Table | None = None  # the numbers that it shows
    note: str = ""  # below the chart
    height: int = 300  # pixels
    wide: bool = False  # over the full width


class Paths(NamedTuple):
    """Index paths with a slider, with one replica in colour."""

    rung_of: np.ndarray  # shape (chain, point, replica)
    every: int  # steps from one point to the next
    trip_ends: list[list[np.ndarray]]  # by chain and replica: steps that end a round trip
    width: int  # points that are seen at first
    note: str = ""


class Picture(NamedTuple):
    """An image with its caption."""

    pixels: np.ndarray  # uint8, shape (row, column, channel)
    caption: str


class Warnings(NamedTuple):
    """Problems, each with a remedy, and the sentence to show if there are none."""

    sentences: list[tuple[str, str]]  # what, and what to do
    if_none: str


Part = Table | Chart | Paths | Warnings | list[Picture] | str


class Section(NamedTuple):
    """A heading and its content."""

    name: str
    title: str
    parts: list[Part]
    choose: str = ""  # what the reader may choose, as "parameter"
    choices: tuple[str, ...] = ()


class Page(NamedTuple):
    """A page."""

    title: str
    subtitle: str
    sections: list[Section]
