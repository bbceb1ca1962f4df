"""The report of a run: one HTML page of warnings, tables and figures, which holds all it shows and
runs no script."""

import base64
import html
import importlib.resources
import io
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.errors import check_path, show
from replicax.results import done, mixture, plots
from replicax.results.summary import (
    Table,
    done_table,
    ladder_numbers,
    ladder_table,
    mixture_table,
    parameter_table,
    run_table,
)
from replicax.run.storage.files import check_shown, write_shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from replicax.results.posterior import Posterior

FILE = "report.html"  # in a run folder
_RESOLUTION = 150  # pixels in an inch of a figure
_COLOURS = 64  # of a figure
_MOST_COMPONENTS = 8  # with figures
_MOST_ROWS = 200  # rows of a table
_MAPPED = 3  # parameters, each with each
_RUNNING = "No check has found a problem so far; the run continues."
_NO_PROBLEM = "No check found a reason not to trust this run. Checked: {}."
_CHECKED = {
    "sample": "its distribution, ladder, swap rates and round trips, R-hat over chains and "
    "replicas, and effective sizes",
    "train": "its losses, ladder, swap rates and round trips",
}
_EXCHANGE = {  # what there is to see
    "ladder": "The ladder over time and at the end, from the coldest rung (dark) to the hottest.",
    "rates": "How often the rule accepts for each pair of neighbours, over time and in all, and "
    "how often the pair swaps.",
    "buffer": "The buffer of the deterministic rule, by chain.",
    "paths": "The rungs of replicas over the last steps: one in colour, with a dot at the end of "
    "each round trip.",
    "trips": "Round trips so far, by chain; dashed: as many as Lemma 1 expects.",
}


class Picture(NamedTuple):
    """A figure, and what there is to see, also for readers who do not see it."""

    figure: "Figure"
    words: str


class Warnings(NamedTuple):
    """The problems of a run, and the sentence to show if there are none."""

    sentences: list[str]
    if_none: str


Part = Table | Picture | Warnings | str


class Section(NamedTuple):
    """A heading and its content."""

    title: str
    parts: list[Part]


def sections_of(posterior: "Posterior") -> list[Section]:
    """Return the report of a run that samples; see `Posterior.report`."""
    summary = posterior.summary()
    resolved = posterior.metadata.resolved
    more = [
        ("burn-in, thinning", f"{resolved.burn_in:,}, {resolved.thin:,}"),
        ("seed", str(posterior.metadata.run.seed)),
        ("version", posterior.metadata.version),
    ]
    facts = Table(("", ""), [*run_table(summary).rows, *more])
    found = [
        Section("At a glance", [warnings_of(posterior, summary["problems"]), facts]),
        _done(posterior, summary),
        _draws(posterior, summary),
        _mixture(posterior, summary),
        exchange_section(posterior, plots.plot_exchange(posterior, narrow=True)),
    ]
    return [section for section in found if section.parts]


def warnings_of(posterior: "Posterior", problems: list[str]) -> Warnings:
    """Return the problems of a run, with the sentence to show if there are none."""
    if posterior.result.code == "running":
        return Warnings(problems, _RUNNING)
    return Warnings(problems, _NO_PROBLEM.format(_CHECKED[posterior.metadata.kind]))


def _done(posterior: "Posterior", summary: dict[str, Any]) -> Section:
    """Return the numbers by which a run is done, over time; nothing for methods that cannot decide
    it."""
    table, parts = done_table(summary), []
    if table is not None and posterior.num_draws:
        steps, course = done.course(posterior)
        if course:
            words = "The numbers by which a run is done, over time; dashed: what is wanted."
            parts.append(Picture(plots.plot_course(steps, course), words))
        parts.append(table)
    return Section("Is it done?", parts)


def _draws(posterior: "Posterior", summary: dict[str, Any]) -> Section:
    """Return figures and numbers of the draws, of many parameters those with the smallest effective
    sizes."""
    if posterior.num_draws < 2:
        return Section("Draws", [])
    components = posterior.components()
    sizes = {name: summary["parameters"][name]["effective_size"] for name in components}
    worst = sorted(sizes, key=lambda name: np.nan_to_num(sizes[name], nan=-1.0))
    chosen = {name: components[name] for name in worst[:_MOST_COMPONENTS]}
    words = "Draws of {} in their order, their marginal and the ranks, by chain; dashed: by chance."
    pictures: list[Part] = [
        Picture(plots.plot_component(name, values), words.format(name))
        for name, values in {"energy": posterior.energies, **chosen}.items()
    ]
    said = f"Draws of the coldest rung: {posterior.num_draws:,} of each chain."
    if not chosen:
        said = "The parameters of draws were not kept, only their energies."
    elif len(chosen) < posterior.metadata.params.num_elements:
        said += f" Figures show the {len(chosen)} parameters with the smallest effective sizes."
    maps = _maps({name: components[name] for name in components if name in chosen})
    return Section("Draws", [said, *pictures, *maps, parameter_table(summary, _MOST_ROWS)])


def _maps(components: dict[str, np.ndarray]) -> list[Part]:
    """Return maps of all pairs of the first parameters."""
    pairs = itertools.combinations(list(components.items())[:_MAPPED], 2)
    return [
        Picture(plots.plot_pair([one, other]), f"Joint density of {one[0]} and {other[0]}.")
        for one, other in pairs
    ]


def _mixture(posterior: "Posterior", summary: dict[str, Any]) -> Section:
    """Return the components of the mixture that proposes jumps, over the draws."""
    learned, table = mixture.of_run(posterior), mixture_table(summary, _MOST_ROWS)
    parts: list[Part] = [] if table is None else [table]
    if learned is not None:
        words = "Draws, and the components of the mixture, at two standard deviations, in the two "
        words += "parameters in which they lie furthest apart."
        parts.insert(0, Picture(plots.plot_mixture(posterior, learned), words))
    return Section("Mixture", parts)


def exchange_section(posterior: "Posterior", figures: "dict[str, Figure]") -> Section:
    """Return the ladder and the replicas on it, of these figures; nothing without exchange."""
    known = [name for name in _EXCHANGE if name in figures]
    parts: list[Part] = [Picture(figures[name], _EXCHANGE[name]) for name in known]
    if parts:
        parts.append(ladder_table(ladder_numbers(posterior)))
    return Section("Exchange", parts)


def write_report(
    posterior: "Posterior", sections: list[Section], out: str | Path | None, every: float | None
) -> Path:
    """Write a page to the file `out`, or into the folder `out` or that of the run; while the run
    goes on a browser loads it again, `every` so many seconds if given."""
    path = check_out(posterior, out)
    again = every if posterior.result.code == "running" else None
    page = render(posterior, sections, again)
    write_shown(path, page.encode(), named=out is not None)
    return path


def check_out(posterior: "Posterior", out: object) -> Path:
    """Return the file of a report; raise if it cannot be one."""
    if out is None and posterior.run_dir is None:
        raise ValueError("The run has no folder; say where the report goes: out='report.html'.")
    path = posterior.run_dir if out is None else check_path("out", out, "an HTML file")
    assert path is not None
    if out is None or path.is_dir():
        check_shown(path / FILE)
        return path / FILE
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out is {show(str(out))}; give a file that ends in .html, or a folder.")
    return path


# Nothing is fetched: not by the page, and not by what somebody wrote into a name.
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="generator" content="replicax">{again}
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header><h1>{title}</h1><p>{subtitle}</p></header>
<nav aria-label="Sections">{links}</nav>
<main>{body}</main>
</body>
</html>
"""  # noqa: E501


def render(posterior: "Posterior", sections: list[Section], again: float | None = None) -> str:
    """Return a page as HTML, which a browser loads `again` after so many seconds."""
    folder = posterior.run_dir
    named = [(f"section-{number}", section) for number, section in enumerate(sections)]
    return _PAGE.format(
        again="" if again is None else f'\n<meta http-equiv="refresh" content="{again:g}">',
        title=_text("A run in memory" if folder is None else Path(folder).resolve().name),
        style=importlib.resources.files("replicax.results").joinpath("report.css").read_text(),
        subtitle=_text(_subtitle(posterior)),
        links="".join(f'<a href="#{name}">{_text(section.title)}</a>' for name, section in named),
        body="".join(
            f'<section id="{name}"><h2>{_text(section.title)}</h2>{_parts(section.parts)}</section>'
            for name, section in named
        ),
    )


def _subtitle(posterior: "Posterior") -> str:
    """Return a one-line description of the run."""
    note = posterior.metadata.note
    named = note.get("target") or note.get("task") or {}
    names = [named[key] for key in ("target", "model", "data") if isinstance(named, dict)
             and isinstance(named.get(key), str)]  # fmt: skip
    what = f"{' on '.join(names)}; " if names else ""
    steps = f"{posterior.num_steps:,} of {posterior.metadata.resolved.num_steps:,} steps"
    return f"{what}{steps}, {posterior.num_replicas} replicas. {posterior.result.sentence}"


def _text(text: object) -> str:
    return html.escape(str(text), quote=True)


def _parts(parts: list[Part]) -> str:
    """Return parts as HTML, pictures that follow each other beside each other."""
    grouped = itertools.groupby(parts, key=lambda part: isinstance(part, Picture))
    return "".join(
        f'<div class="pictures">{shown}</div>' if pictures else shown
        for pictures, group in grouped
        for shown in ["".join(map(_part, group))]
    )


def _part(part: Part) -> str:
    if isinstance(part, Table):
        return _table(part)
    if isinstance(part, Picture):
        return _picture(part)
    if isinstance(part, Warnings):
        return _warnings(part)
    return f"<p>{_text(part)}</p>"


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in table.head)
    rows = "".join(
        f'<tr><th scope="row">{_text(first)}</th>'
        + "".join(f"<td>{_text(value)}</td>" for value in rest)
        + "</tr>"
        for first, *rest in table.rows
    )
    if not any(table.head):
        return f'<table class="facts"><tbody>{rows}</tbody></table>'
    title = f"<caption>{_text(table.title)}</caption>" if table.title else ""
    label = _text(table.title or ", ".join(name for name in table.head if name))
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0">'
        f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _picture(picture: Picture) -> str:
    image = base64.b64encode(_png(picture.figure)).decode()
    words = _text(picture.words)
    return (
        f'<figure><img src="data:image/png;base64,{image}" alt="{words}">'
        f"<figcaption>{words}</figcaption></figure>"
    )


def _png(figure: "Figure") -> bytes:
    """Return a figure as PNG of few colours, which takes a third of the bytes."""
    from PIL import Image

    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=_RESOLUTION, format="png")
    Image.open(drawn).convert("RGB").quantize(_COLOURS).save(packed, format="png")
    return packed.getvalue()


def _warnings(warnings: Warnings) -> str:
    if not warnings.sentences:
        return f'<p class="verdict good">{_text(warnings.if_none)}</p>'
    items = "".join(f"<li>{_warning(sentence)}</li>" for sentence in warnings.sentences)
    count = len(warnings.sentences)
    title = "One warning" if count == 1 else f"{count} warnings"
    return f'<div class="verdict bad" role="note"><p>{title}</p><ul>{items}</ul></div>'


def _warning(sentence: str) -> str:
    """Return a problem with its first sentence, which says what is wrong, in bold."""
    what, stop, remedy = sentence.partition(". ")
    return f"<strong>{_text(what + stop)}</strong>{_text(remedy)}"
