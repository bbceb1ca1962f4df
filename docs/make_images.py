"""Draw the figures of the README and the documentation: `python docs/make_images.py`, a minute."""

import io
from pathlib import Path

from PIL import Image

import replicax as rx
from replicax.results.figure_style import draw_density, new_figure
from replicax.results.plots import draw_paths

IMAGES = Path(__file__).parent / "images"
SHOWN_STEPS = 2000  # of the index process


def sample(window: int | None) -> rx.Posterior:
    """Sample the 25 modes with the settings of the paper's section 5.1, four chains."""
    return rx.sample(
        rx.targets.modes25(),
        rx.targets.modes25_start,
        num_steps=20_000,
        num_replicas=16,
        num_chains=4,
        method=rx.deo_star((0.003, 0.6), target_swap_rate=0.4, window=window),
        burn_in=100,
        thin=10,
        seed=0,
    )


def draw_comparison(runs: dict[str, rx.Posterior]):
    """Draw the truth and the densities in a row, and below them the index process of each run."""
    figure = new_figure(10.7, 7.6)
    grid = figure.add_gridspec(3, 1 + len(runs), height_ratios=(2.2, 1, 1))
    truth = rx.targets.modes25_truth()
    axes = figure.add_subplot(grid[0, 0])
    draw_density(axes, None, "Truth")
    for place, (name, run) in enumerate(runs.items(), start=1):
        distance = rx.targets.mode_distance(run.draws, truth)
        panel = figure.add_subplot(grid[0, place], sharey=axes)
        image = draw_density(panel, run.draws, f"{name}: mode TV {distance:.2f}")
        panel.set_ylabel("")
        panel.tick_params(labelleft=False)
        if place == len(runs):
            figure.colorbar(image, ax=panel, label="density", extend="max", pad=0.03, aspect=30)
        trips = run.round_trips.mean() / run.num_steps * 1000
        title = f"{name}, window {run.window}: {trips:.0f} round trips per 1,000 steps"
        below = figure.add_subplot(grid[place, :])
        draw_paths(below, run.rung_of[0], title, SHOWN_STEPS)
        if place < len(runs):
            below.set_xlabel("")
    return figure


def save(figure, name: str) -> None:
    """Write a PNG of 256 colours, which has a third of the size."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=150)
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    image = Image.open(buffer).convert("RGB")
    image.quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main() -> None:
    runs = {"DEO": sample(window=1), "DEO*": sample(window=None)}
    save(draw_comparison(runs), "modes25")
    figures = runs["DEO*"].plot()
    for name in ("ladder", "rates"):
        save(figures[name], name)


if __name__ == "__main__":
    main()
