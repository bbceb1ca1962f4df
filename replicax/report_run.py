"""`report`: a run as an HTML page; and the live pages of `replicax watch`."""

import threading
import warnings
from pathlib import Path
from typing import Any

from replicax.api import load
from replicax.errors import show
from replicax.networks.report import build_page as build_training_page
from replicax.networks.trained import Trained
from replicax.page.content import Page, Section
from replicax.page.render import render
from replicax.results.posterior import Posterior
from replicax.results.report.build import build_page, check_out, write_page
from replicax.run.storage import commits
from replicax.run.storage.metadata import FILE


def report(
    run: Posterior | str | Path,
    out: str | Path | None = None,
    *,
    truth: Any = None,
    images: Any = None,
) -> Path:
    """Write a run as one HTML page and return its path (needs the extra `report`).

    Args:
        run: a posterior, or a run folder.
        out: an HTML file, or a folder; by default `report.html` in the run folder.
        truth: what is known about the target, as in `Posterior.report`.
        images: the test images of networks, as in `Trained.report`.
    """
    if not isinstance(run, Posterior):
        if not isinstance(run, str | Path):
            raise ValueError(f"run is {show(run)}; give a posterior, or the path of a run folder.")
        run = load(run)
    check_out(run, out)
    return write_page(run, out, page_of(run, truth, images))


def page_of(posterior: Posterior, truth: Any = None, images: Any = None) -> Page:
    """Return the page of a run."""
    if isinstance(posterior, Trained):
        if truth is not None:
            raise ValueError("truth is given, but of networks none is known; leave it out.")
        return build_training_page(posterior, images)
    if images is not None:
        raise ValueError("images are given, but the run has no networks; leave them out.")
    return build_page(posterior, truth)


class LivePages:
    """Pages of a run folder as of its newest commit; the folder is read and never locked."""

    def __init__(self, folder: Path, truth: Any = None, images: Any = None) -> None:
        self._folder, self._given = folder, (truth, images)
        self._building = threading.Lock()
        self._version, self._page = "", ""

    def version(self) -> str:
        """Return a text that changes when there is something new to see."""
        steps = commits.steps(self._folder)
        try:
            changed = (self._folder / FILE).stat().st_mtime_ns  # the result is written there
        except OSError:
            changed = 0
        return f"{max(steps, default=-1)}-{changed}"

    def page(self) -> str:
        """Return the newest page; while the run rewrites its files, the one before."""
        with self._building:
            version = self.version()
            if version != self._version:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        page = self._build()
                except (ValueError, OSError) as error:  # half a second later all may be well
                    if not self._page:
                        page, version = _waiting(self._folder, f"{error}"), f"{version}?"
                    else:
                        return self._page
                self._page, self._version = render(page, version), version
            return self._page

    def _build(self) -> Page:
        if max(commits.steps(self._folder), default=0) == 0:
            return _waiting(self._folder, "The run has not saved its first checkpoint yet.")
        return page_of(load(self._folder), *self._given)


def _waiting(folder: Path, sentence: str) -> Page:
    words = f"{sentence} This page checks again every few seconds."
    return Page(folder.resolve().name, "", [Section("glance", "Waiting", [words])])
