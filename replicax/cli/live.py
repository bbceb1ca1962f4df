"""Pages of a run for `replicax report` and, while it goes on, for `replicax watch`."""

import threading
import warnings
from pathlib import Path

from replicax.api import load
from replicax.page.render import Page, Section, render
from replicax.run.storage.folder import steps_of
from replicax.run.storage.metadata import FILE


class LivePages:
    """Pages of a run folder as of its newest commit; the folder is read and never locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._building = threading.Lock()
        self._version, self._page = "", ""

    def version(self) -> str:
        """Return a text that changes when there is something new to see."""
        steps = steps_of(self._folder)
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
        if max(steps_of(self._folder), default=0) == 0:
            return _waiting(self._folder, "The run has not saved its first checkpoint yet.")
        return load(self._folder)._page()


def _waiting(folder: Path, sentence: str) -> Page:
    words = f"{sentence} This page checks again every few seconds."
    return Page(folder.resolve().name, "", [Section("glance", "Waiting", [words])])
