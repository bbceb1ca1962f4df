"""Draw the figures of the README and the documentation: `python docs/make_images.py`, a minute."""

import io
import tempfile
from pathlib import Path

from PIL import Image

from replicax import demo
from replicax.results.plots import plot_modes25

IMAGES = Path(__file__).parent / "images"


def save(figure, name: str) -> None:
    """Write a PNG of 256 colours, which has a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    image = Image.open(buffer).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = demo.run_demo(Path(folder), seed=0)
        for name, run in runs.items():
            print(name, demo.compare_with_truth(run))
        save(plot_modes25(runs), "modes25")
        figures = runs[demo.PAPER].plot()
    for name in ("ladder", "rates"):
        save(figures[name], name)


if __name__ == "__main__":
    main()
