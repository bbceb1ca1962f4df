"""Draw the figures of the README and the documentation: `python docs/make_images.py`, a minute."""

import io
import runpy
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import replicax as rx
from replicax import demo
from replicax.results import figure_style
from replicax.results.plots import density

IMAGES = Path(__file__).parent / "images"


def example(name: str) -> dict:
    """Return what a script in examples/ defines."""
    return runpy.run_path(str(IMAGES.parents[1] / "examples" / f"{name}.py"))


def save(figure, name: str) -> None:
    """Write a PNG of 256 colours, which has a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    image = Image.open(buffer).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def draw_phases(draws):
    """Draw the plane of `examples/phases.py`: draws of each chain, and the density of the delay."""
    figure = figure_style.new_figure(9, 3.6)
    plane, delay = figure.subplots(1, 2, width_ratios=(1.3, 1))
    edges = np.linspace(-100, 100, 81)
    for chain, style in figure_style.chain_styles(len(draws["delay"])):
        x, y = draws["delay"][chain], draws["constant"][chain]
        plane.plot(x[::4], y[::4], ".", ms=2, mew=0, color=style["color"])
        delay.stairs(density(x, edges), edges, lw=1.2, **style)
    figure_style.label(plane, "delay", "constant phase", "Draws: a ridge that wraps, and islands")
    figure_style.label(delay, "delay", "density", "Four chains agree")
    figure_style.legend(delay)
    return figure


def main() -> None:
    save(draw_phases(rx.sample(example("phases")["posterior"]).draws), "phases")
    with tempfile.TemporaryDirectory() as folder:
        runs = demo.run_demo(Path(folder), seed=0)
        for name, run in runs.items():
            print(name, demo.compare_with_truth(run))
        save(demo.plot_modes25(runs), "modes25")
        figures = runs[demo.PAPER].plot()
    for name in ("ladder", "rates"):
        save(figures[name], name)


if __name__ == "__main__":
    main()
