"""Plotly figures as plain data: lines, steps, bars, points and maps, in colours for light and dark
themes."""

import html
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from replicax.interop.extras import import_extra

# Replaced in the page, by `page.js`, by colours of its theme.
INK, SOFT, ACCENT = "#010203", "#010204", "#010205"
CHAINS = ("#3a7bd5", "#c8612f", "#2b9468", "#a855b8", "#9a8420", "#d6478a", "#3f8fa5", "#8a7a6d")
_COLD_TO_HOT = ("#3f73d8", "#7f5fd0", "#b04fae", "#cc4a72", "#cf5a2c")
MOST_LINES = 12  # in one figure
_LONGEST_TITLE = {"x": 45, "y": 30}
_DASHED = {"color": INK, "width": 1.5, "dash": "dash"}


def figure(traces: list[dict[str, Any]], x: str, y: str, **layout: Any) -> dict[str, Any]:
    """Return a checked figure with titled axes; `layout` may say more about them."""
    graphs = import_extra("plotly.graph_objects", "report", "report")
    both = {
        f"{side}axis": {
            "title": {"text": _plain(title, _LONGEST_TITLE[side]), "standoff": 8},
            **layout.pop(f"{side}axis", {}),
        }
        for side, title in (("x", x), ("y", y))
    }
    layout.setdefault("showlegend", any("name" in trace for trace in traces))
    plain = graphs.Figure(traces, {**both, **layout}).to_dict()
    plain["layout"].pop("template", None)
    return plain


def _plain(text: str, longest: int) -> str:
    """Return a text with the HTML tags escaped that Plotly would interpret; only the end of a long
    text."""
    short = text if len(text) <= longest else f"…{text[1 - longest :]}"
    return html.escape(short, quote=False)


def line(
    x: ArrayLike, y: ArrayLike, colour: str, name: str = "", width: float = 1.6, **more: Any
) -> dict:
    """Return a line; without a name it is not in the legend."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": small(x),
        "y": small(y),
        "line": {"color": colour, "width": width, **more.pop("line", {})},
        **_named(name),
        **more,
    }


def dashed(x: ArrayLike, y: ArrayLike, name: str = "") -> dict:
    """Return a dashed line, for a reference."""
    return line(x, y, INK, name, line=_DASHED, hoverinfo="skip")


def points(
    x: ArrayLike, y: ArrayLike, colour: str, name: str = "", size: float = 4, **more: Any
) -> dict:
    """Return points."""
    marker = {"color": colour, "size": size, **more.pop("marker", {})}
    place = {"type": "scatter", "mode": "markers", "x": small(x), "y": small(y)}
    return {**place, "marker": marker, **_named(name), **more}


def stairs(
    edges: np.ndarray, heights: np.ndarray, colour: str, name: str = "", **more: Any
) -> dict:
    """Return the outline of a histogram."""
    x, y = np.repeat(edges, 2), np.concatenate([[0], np.repeat(heights, 2), [0]])
    return line(x, y, colour, name, **more)


def bars(
    x: ArrayLike,
    y: ArrayLike,
    colour: str,
    name: str = "",
    interval: np.ndarray | None = None,
    **more: Any,
) -> dict:
    """Return bars; an interval (bar, 2) is a line on each."""
    if interval is not None:
        below, above = np.abs(np.transpose(interval) - y)
        more["error_y"] = {"type": "data", "symmetric": False, "array": small(above),
                           "arrayminus": small(below), "color": INK, "thickness": 1.2,
                           "width": 0}  # fmt: skip
    return {
        "type": "bar",
        "x": small(x),
        "y": small(y),
        "marker": {"color": colour, "line": {"width": 0}},
        **_named(name),
        **more,
    }


def density_map(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> dict:
    """Return a map of densities (x, y) at the middles of their cells."""
    return {
        "type": "heatmap",
        "x": small(x),
        "y": small(y),
        "z": small(values.T),
        "zmin": 0,
        "zmax": float(values.max()),
        "colorscale": "Magma",
        "showscale": False,
        "hovertemplate": "%{x:.3g}, %{y:.3g}: density %{z:.3g}<extra></extra>",
    }


def _named(name: str) -> dict[str, Any]:
    return {"name": name, "showlegend": True} if name else {"showlegend": False}


def log_axis(values: np.ndarray) -> dict[str, Any]:
    """Return a logarithmic axis with marks at 1, 2, 5, 10, ...; over a wide range at powers of
    ten alone.

    >>> log_axis(np.array([0.02, 0.3]))["tickvals"]
    [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    """
    known = values[np.isfinite(values) & (values > 0)]
    if not known.size or known.max() > 300 * known.min():
        return {"type": "log", "dtick": 1}
    first, last = np.floor(np.log10([known.min(), known.max()])).astype(int)
    tens = range(first, last + 2)
    marks = [float(f"{digit}e{ten}") for ten in tens for digit in (1, 2, 5)][:-2]
    return {"type": "log", "tickvals": marks, "ticktext": [f"{mark:g}" for mark in marks]}


def small(values: ArrayLike) -> Any:
    """Return numbers rounded to few bytes, texts unchanged."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    if values.dtype.kind in "iu" and values.size and np.abs(values).max() < 2**31:
        return values.astype(np.int32)
    return values.tolist() if values.dtype.kind not in "iub" else values


def chain_styles(num_chains: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield chains with their colour and style; many chains share one colour."""
    few = num_chains <= len(CHAINS)
    for chain in range(num_chains):
        name = {"name": f"chain {chain}"} if few and num_chains > 1 else {}
        yield chain, CHAINS[chain if few else 0], {**name, "opacity": 0.9 if few else 0.35}


def cold_to_hot(count: int) -> list[str]:
    """Return colours from cold to hot.

    >>> cold_to_hot(2)
    ['#3f73d8', '#cf5a2c']
    """
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in _COLD_TO_HOT])
    places = np.linspace(0, len(stops) - 1, count) if count > 1 else np.zeros(count)
    mixed = [np.interp(places, range(len(stops)), stops[:, channel]) for channel in range(3)]
    return ["#" + "".join(f"{round(part):02x}" for part in rgb) for rgb in zip(*mixed)]
