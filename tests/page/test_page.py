"""Pages: texts are escaped, nothing is fetched, colours can be seen, the server is local."""

import base64
import gzip
import json
import re
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import numpy as np
import pytest

from replicax.page import charts, render, server
from replicax.page.render import Chart, Page, Paths, Section, Table, Warnings

plotly = pytest.importorskip("plotly")
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"
RUNG_OF = np.array([[[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]]])
PATHS = Paths(RUNG_OF, 5, [[np.array([10]), np.array([], int), np.array([15, 20])]], 2, EVIL)


def evil_page() -> Page:
    """A page that has a hostile text wherever a text can be."""
    figure = charts.figure([charts.line([0, 1], [0, 1], charts.INK, EVIL)], EVIL, EVIL)
    chart = Chart("chart", EVIL, EVIL, {EVIL: figure, "b": figure}, Table((EVIL,), [(EVIL,)]), EVIL)
    parts = [EVIL, chart, PATHS, Table((EVIL, EVIL), [(EVIL, EVIL)], EVIL)]
    warnings = Warnings([(EVIL, EVIL)], EVIL), Warnings([], EVIL)
    return Page(EVIL, EVIL, [Section("one", EVIL, [*parts, *warnings], EVIL, (EVIL, "b"))])


def data_of(text: str) -> dict:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)
    return json.loads(data)


def test_no_text_becomes_html():
    text = render.render(evil_page(), "1")  # without Plotly's own script
    assert "alert(1)" in text and "<img src=x" not in text and "</script><script>alert" not in text
    assert text.count("<script") == 3 and text.count("</script>") == 3
    assert data_of(text)["charts"]["chart"][EVIL]["layout"]["xaxis"]["title"]["text"]


def test_a_page_holds_all_that_it_needs():
    text = render.render(evil_page())
    (packed,) = re.findall(r'id="plotly">(.*?)</script>', text)
    assert gzip.decompress(base64.b64decode(packed)).decode() == render.plotly_script()
    assert len(text) < 2_500_000
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None and "default-src 'none'" in policy.group(1)
    assert "self" not in policy.group(1) and "http" not in policy.group(1)


def test_index_paths_are_in_the_page_as_they_are():
    (stored,) = data_of(render.render(evil_page(), "1"))["paths"]
    rungs = np.frombuffer(base64.b64decode(stored["rung_of"]), np.uint8).reshape(stored["shape"])
    np.testing.assert_array_equal(rungs, RUNG_OF)
    assert stored["every"] == 5 and stored["ends"] == [[[10], [], [15, 20]]]
    wide = PATHS._replace(rung_of=np.array([[[300, 2]]]), trip_ends=[])
    stored = render._path_data(wide)
    assert stored["bytes"] == 2
    assert np.frombuffer(base64.b64decode(stored["rung_of"]), "<u2").tolist() == [300, 2]


def luminance(colour: str) -> float:
    shares = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_of_lines_can_be_seen_on_light_and_dark_paper():
    """WCAG asks for 3 of graphics and for 4.5 of text."""
    css = render._resource("page.css")
    light, dark = (dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in css.split("@media")[:2])
    for theme in (light, dark):
        for colour in (*charts.CHAINS, *charts.cold_to_hot(9)):
            assert contrast(colour, theme["card"]) >= 3, (colour, theme["card"])
        for name in ("ink", "soft", "link", "good", "bad"):
            assert contrast(theme[name], theme["card"]) >= 4.5, (name, theme)
        assert contrast(theme["accent"], theme["card"]) >= 3
        assert contrast(theme["paper"], theme["accent"]) >= 4.5  # the chosen replica


def test_script_and_charts_agree_on_the_colours_of_the_theme():
    for colour in (charts.INK, charts.SOFT, charts.ACCENT):
        assert f'"{colour}"' in render._resource("page.js")


@contextmanager
def serving(page=lambda: "the page", version=lambda: "7"):
    with server.open_server(page, version, 0) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.address(running)
        finally:
            running.shutdown()
            thread.join()


def fetch(address: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(address, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, ""


def test_the_server_shows_the_page_and_nothing_else():
    with serving() as address:
        assert address.startswith("http://127.0.0.1:")
        assert fetch(address) == (200, "the page")
        assert fetch(f"{address}version") == (200, "7")
        assert fetch(f"{address}plotly.min.js") == (200, render.plotly_script())
        assert fetch(f"{address}../../etc/passwd")[0] == fetch(f"{address}run.json")[0] == 404
        assert fetch(address, Host="evil.example")[0] == 403
        assert fetch(address, Host="evil.example:80")[0] == 403
        with pytest.raises(ValueError, match="port is .* in use; write port=0"):
            server.open_server(lambda: "", lambda: "", int(address.rsplit(":")[-1].strip("/")))
