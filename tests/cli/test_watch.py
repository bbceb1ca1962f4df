"""`replicax watch` beside a run that goes on, in a real browser; and pages in other shapes."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from chromium import Browser, needs_chromium
from recorded_progress import record

import replicax as rx

pytest.importorskip("plotly")
pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.filterwarnings("ignore::UserWarning"),
]

TESTS = str(Path(__file__).parents[1])
RUN = """
import sys, time
sys.path.insert(0, {tests!r})
import chunks, replicax as rx
chunks.sample(rx.targets.modes25(), rx.targets.modes25_start, num_steps=200, num_replicas=4, seed=1,
          method=rx.deo_star((0.003, 0.6)), run_dir={folder!r}, chunk_steps=10,
          checkpoint_every=40, progress=False, callback=lambda progress: time.sleep({pause}))
"""


@contextmanager
def watching(folder: Path) -> Iterator[str]:
    """The address at which a folder is watched; the process must end with Ctrl-C and code 0."""
    command = [sys.executable, "-m", "replicax", "watch", str(folder), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
        text = ""
        while not text.rstrip().endswith("}"):
            text += p.stdout.readline()
        yield json.loads(text)["address"]
        p.send_signal(signal.SIGINT)
        _, errors = p.communicate(timeout=30)
        assert p.returncode == 0 and errors == ""


def test_a_watched_run_ends_as_one_that_is_not(tmp_path):
    folder, alone = tmp_path / "run", tmp_path / "alone"
    folder.mkdir()
    with watching(folder) as address, Browser() as browser:
        tab = browser.open(address)
        assert "not saved its first checkpoint" in tab.value("document.body.innerText")
        program = RUN.format(tests=TESTS, folder=str(folder), pause=0.6)
        with subprocess.Popen([sys.executable, "-c", program]) as run:
            tab.wait("document.getElementById('paths-replica') !== null", 120)
            tab.value("document.getElementById('paths-replica').value = '2'")
            first = tab.value("document.documentElement.dataset.version")
            tab.wait(f"document.documentElement.dataset.version !== {first!r}", 60)
            kept = tab.value("document.getElementById('paths-words').textContent")
            assert "replica 2" in kept, "what the reader chose stays"
            assert run.wait(timeout=120) == 0
        tab.wait("document.body.innerText.includes('200 of 200 steps')", 60)
        assert tab.problems() == []
        assert {url.removeprefix(address) for url in tab.requests()} == {
            "", "version", "plotly.min.js"
        }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", RUN.format(tests=TESTS, folder=str(alone), pause=0)], check=True
    )
    one, other = rx.load(folder), rx.load(alone)
    assert one.draws.tobytes() == other.draws.tobytes()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> str:
    return record()[0].report(tmp_path_factory.mktemp("report")).as_uri()


@pytest.mark.parametrize("width", [320, 390, 768, 1600])
def test_pages_fit_their_width(report, width):
    with Browser() as browser:
        tab = browser.open(report, width)
        assert tab.value("document.documentElement.scrollWidth") == width
        assert tab.problems() == []


def test_charts_follow_the_theme_and_the_chosen_parameter(report):
    with Browser() as browser:
        tab = browser.open(report)
        ink = "getComputedStyle(document.querySelector('#trips .xtick text')).fill"
        light = tab.value(ink)
        scheme = {"name": "prefers-color-scheme", "value": "dark"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.wait(f"{ink} !== {light!r}", 10)
        title = "document.querySelector('#marginals .xtitle').textContent"
        assert tab.value(title) == "a[0]"
        tab.press("ArrowDown", 40, "draws-choice")
        tab.wait(f"{title} === 'a[1]'", 10)
        trace = "document.querySelector('#traces .ytitle').textContent"
        assert tab.value(trace) == "a[1]", "all charts of the section follow"


def test_everything_has_an_accessible_name(report):
    with Browser() as browser:
        tab = browser.open(report)
        nodes = tab.call("Accessibility.getFullAXTree")["nodes"]
        wanted = {"combobox", "slider", "image", "img", "figure", "region", "navigation"}
        named = [node for node in nodes if node.get("role", {}).get("value") in wanted]
        assert len(named) > 15
        nameless = [node for node in named if not node.get("name", {}).get("value")]
        assert nameless == []
        slider = next(node for node in named if node["role"]["value"] == "slider")
        assert slider["name"]["value"].startswith("Up to step")
        time.sleep(0.1)
        assert tab.problems() == []
