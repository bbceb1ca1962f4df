"""The page of a run, and its file."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicax.errors import show
from replicax.page.content import Page, Section
from replicax.page.render import render
from replicax.results.report.draws import draw_sections
from replicax.results.report.exchange import exchange_section
from replicax.results.report.glance import glance_section, subtitle
from replicax.results.report.truth import as_truth, truth_section

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

FILE = "report.html"  # in a run folder


def build_page(posterior: "Posterior", truth: Any = None) -> Page:
    """Return the page of a run that samples; see `Posterior.report`."""
    summary = posterior.summary()
    known = as_truth(posterior, truth)
    sections = [
        glance_section(posterior, summary),
        truth_section(posterior, truth, known),
        *draw_sections(posterior, summary, known),
        exchange_section(posterior),
    ]
    return page_of(posterior, [section for section in sections if section is not None])


def page_of(posterior: "Posterior", sections: list[Section]) -> Page:
    """Return a page with the name of the run."""
    folder = posterior.run_dir
    name = "A run in memory" if folder is None else Path(folder).resolve().name
    return Page(name, subtitle(posterior), sections)


def write_page(posterior: "Posterior", out: str | Path | None, page: Page) -> Path:
    """Write a page to the file `out`, or into the folder `out` or that of the run."""
    path = check_out(posterior, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(page), encoding="utf-8")
    return path


def check_out(posterior: "Posterior", out: Any) -> Path:
    """Return the file of a report; raise if it cannot be one."""
    if out is None:
        if posterior.run_dir is None:
            raise ValueError("The run has no folder; say where the report goes: out='report.html'.")
        return posterior.run_dir / FILE
    if not isinstance(out, str | Path) or not str(out).strip() or "\0" in str(out):
        raise ValueError(f"out is {show(out)}; give the path of an HTML file.")
    path = Path(out)
    if path.is_dir():
        return path / FILE
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"out is {show(str(out))}; give a file that ends in .html, or a folder.")
    return path
