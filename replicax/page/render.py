"""HTML of a page: escaped texts, charts as JSON, styles, scripts and Plotly inside."""

import base64
import functools
import gzip
import html
import importlib.resources
from typing import Any, NamedTuple

import numpy as np

from replicax.interop.extras import import_extra


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


class Warnings(NamedTuple):
    """Problems, each with a remedy, and the sentence to show if there are none."""

    sentences: list[tuple[str, str]]  # what, and what to do
    if_none: str


Part = Table | Chart | Paths | Warnings | str


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


PLOTLY = "plotly.min.js"  # path from which a served page loads it
# Nothing is fetched: not by the page, and not by what somebody wrote into a name.
_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
_SERVED = "default-src 'none'; script-src 'unsafe-inline' 'self'; style-src 'unsafe-inline'; "
_SERVED += "img-src data:; connect-src 'self'"


def render(page: Page, version: str | None = None) -> str:
    """Return the page as HTML; a served page has a `version`, refreshes itself, and loads Plotly
    from the server."""
    library = f'<script src="{PLOTLY}"></script>'
    if version is None:
        library = f'<script type="application/gzip" id="plotly">{_packed_plotly()}</script>'
    policy = _POLICY if version is None else _SERVED
    charts = [part for section in page.sections for part in section.parts]
    data = {part.name: part.figures for part in charts if isinstance(part, Chart)}
    names = [*(section.name for section in page.sections), *data]
    assert len(set(names)) == len(names), f"two elements of a page have the same name: {names}"
    paths = [_path_data(part) for part in charts if isinstance(part, Paths)]
    return f"""<!doctype html>
<html lang="en"{"" if version is None else f' data-version="{_text(version)}"'}>
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="replicax">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_text(page.title)}</title>
<link rel="icon" href="data:,">
<style>{_resource("page.css")}</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header><h1>{_text(page.title)}</h1><p>{_text(page.subtitle)}</p></header>
<nav aria-label="Sections">{_links(page)}</nav>
<main id="content" tabindex="-1">
{"".join(_section(section) for section in page.sections)}
</main>
<script type="application/json" id="data">{_json({"charts": data, "paths": paths})}</script>
{library}
<script>{_resource("page.js")}</script>
</body>
</html>
"""


@functools.cache
def plotly_script() -> str:
    """Return the Plotly script of the installed package."""
    offline = import_extra("plotly.offline", "report", "report")
    return offline.get_plotlyjs()


@functools.cache
def _packed_plotly() -> str:
    """Return the script compressed, as text: two fifths of its size."""
    return base64.b64encode(gzip.compress(plotly_script().encode(), mtime=0)).decode()


def _resource(name: str) -> str:
    return (importlib.resources.files("replicax.page") / name).read_text(encoding="utf-8")


def _text(text: object) -> str:
    return html.escape(str(text), quote=True)


def _json(value: object) -> str:
    """Return JSON that is safe inside a script element: no tag and no comment can begin in it."""
    plotly_json = import_extra("plotly.io.json", "report", "report")
    text = plotly_json.to_json_plotly(value)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _links(page: Page) -> str:
    named = [section for section in page.sections if section.title]
    return "".join(f'<a href="#{_text(s.name)}">{_text(s.title)}</a>' for s in named)


def _section(section: Section) -> str:
    name = _text(section.name)
    chooser = ""
    if len(section.choices) > 1:
        options = "".join(f"<option>{_text(choice)}</option>" for choice in section.choices)
        chooser = (
            f'<p class="controls"><label for="{name}-choice">{_text(section.choose)}</label> '
            f'<select id="{name}-choice" data-section="{name}">{options}</select></p>'
        )
    parts = "".join(_part(part) for part in section.parts)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{_text(section.title)}</h2>{chooser}'
        f'<div class="parts">{parts}</div></section>\n'
    )


def _part(part: Part) -> str:
    if isinstance(part, str):
        return f'<p class="wide">{_text(part)}</p>'
    if isinstance(part, Table):
        return f'<div class="wide">{_table(part)}</div>'
    if isinstance(part, Chart):
        return _chart(part)
    if isinstance(part, Paths):
        return _paths(part)
    return _warnings(part)


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.head)
    rows = "".join(
        f'<tr><th scope="row">{_text(first)}</th>'
        + "".join(f"<td>{_text(value)}</td>" for value in rest)
        + "</tr>"
        for first, *rest in table.rows
    )
    title = f"<caption>{_text(table.title)}</caption>" if table.title else ""
    label = _text(table.title or ", ".join(name for name in table.head if name))
    if not any(table.head):
        return f'<table class="facts"><tbody>{rows}</tbody></table>'
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
        f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _chart(chart: Chart) -> str:
    name = _text(chart.name)
    numbers = ""
    if chart.table is not None:
        numbers = f"<details><summary>Numbers</summary>{_table(chart.table)}</details>"
    note = f"<p>{_text(chart.note)}</p>" if chart.note else ""
    return (
        f'<figure class="chart{" wide" if chart.wide else ""}" aria-labelledby="{name}-title">'
        f'<h3 id="{name}-title">{_text(chart.title)}</h3>'
        f'<div class="plot" id="{name}" role="img" aria-label="{_text(chart.words)}" '
        f'style="height:{chart.height}px"></div><figcaption>{note}{numbers}</figcaption></figure>'
    )


def _warnings(warnings: Warnings) -> str:
    if not warnings.sentences:
        return f'<p class="wide verdict good">{_text(warnings.if_none)}</p>'
    items = "".join(
        f"<li><strong>{_text(what)}</strong>"
        + (f"<span><em>What to do:</em> {_text(remedy)}</span>" if remedy else "")
        + "</li>"
        for what, remedy in warnings.sentences
    )
    count = len(warnings.sentences)
    title = "One warning" if count == 1 else f"{count} warnings"
    return f'<div class="wide verdict bad" role="note"><p>{title}</p><ul>{items}</ul></div>'


def _paths(paths: Paths) -> str:
    num_chains, num_points, num_replicas = paths.rung_of.shape
    chains = "".join(f"<option>{chain}</option>" for chain in range(num_chains))
    replicas = "".join(f"<option>{replica}</option>" for replica in range(num_replicas))
    widths = sorted({min(paths.width * factor, num_points) for factor in (1, 4, 16)})
    shown = "".join(
        f'<option value="{width}">{width * paths.every:,} steps</option>' for width in widths
    )
    rungs = "".join("<li></li>" for _ in range(num_replicas))
    label = "Rung of every replica over the steps before the chosen one, one replica in colour"
    return f"""<figure class="wide paths" aria-labelledby="paths-title">
<h3 id="paths-title">Rung of every replica</h3>
<div class="controls">
<label>Chain <select id="paths-chain">{chains}</select></label>
<label>Replica <select id="paths-replica">{replicas}</select></label>
<label>Show <select id="paths-width">{shown}</select></label>
</div>
<div class="controls"><label class="grow" for="paths-step">Up to step
<input type="range" id="paths-step" min="1" max="{num_points}" value="{num_points}"></label>
</div>
<output id="paths-words" for="paths-step paths-replica" aria-live="polite"></output>
<div class="plot" id="paths" role="img" aria-label="{label}" style="height:340px"></div>
<p>Replica on every rung, the coldest first:</p>
<ol class="rungs" id="paths-rungs" start="0" aria-label="Replica on every rung">{rungs}</ol>
<figcaption><p>{_text(paths.note)}</p></figcaption></figure>"""


def _path_data(paths: Paths) -> dict[str, Any]:
    rung_of = paths.rung_of.astype(np.uint8 if paths.rung_of.max() < 256 else np.uint16)
    little_endian = rung_of.astype(rung_of.dtype.newbyteorder("<"))
    ends = [[replica.tolist() for replica in chain] for chain in paths.trip_ends]
    return {
        "shape": list(rung_of.shape),
        "bytes": rung_of.dtype.itemsize,
        "rung_of": base64.b64encode(little_endian.tobytes()).decode(),
        "every": paths.every,
        "ends": ends,
    }
