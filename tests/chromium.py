"""A headless Chromium, driven by the DevTools protocol over a pipe: no package is needed.

with Browser() as browser:
    page = browser.open(path.as_uri(), width=390, dark=True)
    page.value("document.title")
"""

import base64
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAM = next((p for p in map(shutil.which, ("chromium", "google-chrome", "chrome")) if p), None)
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")


# Chromium reads from 3 and writes to 4: arranged in a process of its own, JAX's threads not forked.
_START = """
import os, sys
read, write = os.dup(int(sys.argv[1])), os.dup(int(sys.argv[2]))
while min(read, write) <= 4:
    read, write = os.dup(read), os.dup(write)
os.dup2(read, 3), os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A browser process; use it in a `with`."""

    def __enter__(self) -> "Browser":
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [sys.executable, "-SEc", _START, str(to_read), str(to_write), PROGRAM, "--headless",
             "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             f"--user-data-dir={self._folder.name}", "--no-first-run", "--hide-scrollbars",
             "--disable-dev-shm-usage"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest, self.events = 0, b"", []
        return self

    def __exit__(self, *error: Any) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._read)
        os.close(self._write)
        self._folder.cleanup()

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 30
        while True:
            answer = self._receive(until)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def _receive(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(until - time.monotonic(), 0))
            assert ready, "Chromium does not answer"
            self._rest += os.read(self._read, 2**20)
        text, _, self._rest = self._rest.partition(b"\0")
        return json.loads(text)

    def open(self, address: str, width: int = 1200, height: int = 900, dark: bool = False) -> "Tab":
        """Open a page and wait until it is there."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Runtime", "Log", "Page", "Network"):
            tab.call(f"{domain}.enable")
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=width < 600)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call("Page.navigate", url=address)
        tab.wait("document.readyState === 'complete' && location.href !== 'about:blank'")
        return tab


class Tab:
    """An open page."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def value(self, expression: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < until, f"{expression} never; {self.problems()}"
            time.sleep(0.1)

    def _events(self, method: str) -> list[dict[str, Any]]:
        self.value("1")  # all that came before its answer has arrived
        events = [e for e in self.browser.events if e.get("sessionId") == self.session]
        return [event["params"] for event in events if event.get("method") == method]

    def problems(self) -> list[Any]:
        """Return errors and warnings of the console, and exceptions."""
        calls = self._events("Runtime.consoleAPICalled")
        entries = self._events("Log.entryAdded")
        return [
            *[call["args"] for call in calls if call["type"] in ("error", "warning", "assert")],
            *[e["entry"] for e in entries if e["entry"]["level"] in ("error", "warning")],
            *self._events("Runtime.exceptionThrown"),
        ]

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        events = self._events("Network.requestWillBeSent")
        addresses = [event["request"]["url"] for event in events]
        return [address for address in addresses if not address.startswith("data:")]

    def screenshot(self, path: Path, whole: bool = True) -> None:
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                            **({"clip": self._whole()} if whole else {}))  # fmt: skip
        path.write_bytes(base64.b64decode(picture["data"]))

    def _whole(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
