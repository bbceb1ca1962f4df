"""The runs of `replicax demo`: the posterior with 25 modes of the paper's section 5.1.

Also targets for the command line: `replicax sample replicax.demo:energy`, and with noise
`replicax sample replicax.demo:target`.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import replicax as rx
from replicax.results import figure_style
from replicax.results.diagnostics import effective_size
from replicax.results.plots import draw_paths
from replicax.results.posterior import Posterior
from replicax.run.storage.folder import remove
from replicax.run.storage.metadata import read_metadata
from replicax.user_code import TargetSpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

energy = rx.targets.modes25_energy
target = rx.targets.modes25()  # energies and gradients with noise
params = rx.targets.modes25_start

# Those of the paper.
METHOD = rx.deo_star((0.003, 0.6), target_swap_rate=0.4)
SETTINGS: dict[str, Any] = {"num_replicas": 16, "burn_in": 100, "thin": 10}
PAPER_STEPS = 20_000
TARGET_SPEC = TargetSpec("replicax.demo:energy", params="params")

_SQUARE, _BINS = 2.9, 116  # shown is [-2.9, 2.9]^2, in bins of width 0.05
DEFAULT, PAPER = "Default call", "DEO* of the paper"


def run_demo(folder: Path, seed: int) -> dict[str, Posterior]:
    """Sample the 25 modes by the default call into `folder`, where an earlier demo is replaced, and
    by the paper's method; return the runs by name."""
    clear(folder)
    by_default = rx.sample(energy, params, seed=seed, run_dir=folder, progress=True,
                           note=TARGET_SPEC.to_note())  # fmt: skip
    by_paper = rx.sample(target, params, num_steps=PAPER_STEPS, method=METHOD, num_chains=4,
                         seed=seed, progress=True, **SETTINGS)  # fmt: skip
    return {DEFAULT: by_default, PAPER: by_paper}


def clear(folder: Path) -> None:
    """Remove the files of an earlier demo; refuse a folder that is not empty and not a demo."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another folder with --out.")
    is_run = (folder / "run.json").exists()
    spec = TargetSpec.from_note(read_metadata(folder).note) if is_run else None
    if spec is None or not spec.is_demo:
        if any(folder.iterdir()):
            what = "a run of another target" if is_run else "other files"
            raise ValueError(
                f"{folder} contains {what}, which the demo does not overwrite; choose another "
                "folder with --out."
            )
        return
    remove(folder)


def compare_with_truth(posterior: Posterior) -> dict[str, Any]:
    """Return masses of the modes and standard deviations of the draws, and how far they are from
    the true ones; and round trips."""
    truth, draws = rx.targets.modes25_truth(), posterior.draws
    found: dict[str, Any] = {
        "num_draws": int(np.prod(draws.shape[:2])),
        "warnings": len(posterior.problems()),
        "round_trips_per_1000_steps": posterior.round_trips.mean() / posterior.counted_steps * 1000,
    }
    if not found["num_draws"]:
        return found
    masses = rx.targets.mode_masses(draws)
    squares = np.moveaxis(draws.astype(float) ** 2, -1, 0)  # (coordinate, chain, draw)
    std = np.sqrt(squares.mean(axis=(1, 2)))
    sizes = np.array([effective_size(values) for values in squares])
    return found | {
        "modes_found": int((masses[:25] > 0).sum()),
        "mode_distance": rx.targets.mode_distance(draws, truth),
        "mode_distance_by_chain": [rx.targets.mode_distance(chain, truth) for chain in draws],
        "mass_outside": float(masses[25]),
        "mass_outside_true": float(truth[25]),
        "std": std.tolist(),
        "std_error": (squares.std(axis=(1, 2)) / np.sqrt(sizes) / (2 * std)).tolist(),
        "std_true": rx.targets.modes25_std(),
    }


def render(runs: dict[str, dict[str, Any]]) -> Any:
    """Return the results of `compare_with_truth` by name as a table for a terminal."""
    from rich.table import Table

    columns = list(runs.values())
    table = Table("", "truth", *runs, title="Compared with the truth", title_justify="left")
    if any("std" not in found for found in columns):
        table.add_row("draws", "", *(f"{found['num_draws']:,}" for found in columns))
        return table
    first = columns[0]
    rows = {
        "modes found": ("25", "{modes_found}"),
        "total variation of the mode masses": ("0", "{mode_distance:.3f}"),
        "standard deviation of x": (
            f"{first['std_true']:.3f}",
            "{std[0]:.3f} ± {std_error[0]:.3f}",
        ),
        "standard deviation of y": (
            f"{first['std_true']:.3f}",
            "{std[1]:.3f} ± {std_error[1]:.3f}",
        ),
        "mass outside the 25 cells": (f"{first['mass_outside_true']:.4f}", "{mass_outside:.4f}"),
        "draws": ("", "{num_draws:,}"),
        "warnings": ("", "{warnings}"),
        "round trips per 1,000 steps": ("", "{round_trips_per_1000_steps:.0f}"),
    }
    table.add_row("energies seen", "", *("exact", "noisy")[: len(columns)])
    for name, (true, form) in rows.items():
        table.add_row(name, true, *(form.format(**found) for found in columns))
    return table


def plot_demo(runs: dict[str, Posterior], folder: Path) -> list[Path]:
    """Draw the figures of the default call and both runs beside the truth; return their paths."""
    runs[DEFAULT].plot(folder)
    if all(run.num_draws for run in runs.values()):
        figure_style.save(plot_modes25(runs), folder / "modes25.png", named=True)
    return sorted(folder.glob("*.png"))


def plot_modes25(runs: dict[str, Posterior]) -> "Figure":
    """Plot runs on the 25 modes, by their names, beside the truth: densities, masses of the modes,
    and the path of one replica of each."""
    truth = rx.targets.modes25_truth()
    figure = figure_style.new_figure(1 + 4 * (1 + len(runs)), 9.6)
    grid = figure.add_gridspec(3, 1, height_ratios=(2.1, 1, 1))
    maps: Any = grid[0].subgridspec(1, 1 + len(runs)).subplots(sharey=True)
    image = draw_density(maps[0], None, "Truth")
    for axes, (name, run) in zip(maps[1:], runs.items(), strict=True):
        distance = rx.targets.mode_distance(run.draws, truth)
        draw_density(axes, run.draws, f"{name}: mode TV {distance:.3f}")
        axes.set_ylabel("")
    figure.colorbar(image, ax=list(maps), label="density", extend="max", pad=0.01, aspect=30)
    _draw_masses(figure.add_subplot(grid[1]), runs, truth)
    below = grid[2].subgridspec(1, len(runs)).subplots(squeeze=False)[0]
    for axes, (name, run) in zip(below, runs.items(), strict=True):
        rate = run.round_trips.mean() / run.counted_steps * 1000
        draw_paths(axes, run.rung_of[0], f"{name}: {rate:.0f} round trips per 1,000 steps")
        axes.legend_ = None  # the title is as wide as the panel
    return figure


def _draw_masses(axes: "Axes", runs: dict[str, Posterior], truth: np.ndarray) -> None:
    """Draw bars of the masses of the 25 modes, the heaviest first, those of each run beside each
    other."""
    order = np.lexsort((np.arange(25), -truth[:25].round(6)))
    width, outside = 0.8 / len(runs), [f"truth {truth[25]:.1%}"]
    for number, (name, run) in enumerate(runs.items()):
        masses = rx.targets.mode_masses(run.draws)
        left = np.arange(25) + (number - (len(runs) - 1) / 2) * width
        axes.bar(left, masses[order], width, color=figure_style.CHAINS[number], label=name)
        outside.append(f"{name} {masses[25]:.1%}")
    axes.plot(truth[order], "_", ms=18, mew=1.8, color=figure_style.INK, label="truth")
    names = ["{:.0f}, {:.0f}".format(*rx.targets.MODES[mode]) for mode in order]
    axes.set_xticks(range(25), [name.replace("-", "−") for name in names])
    axes.set_xlim(-0.6, 24.6)
    title = f"Masses of the modes (outside of all: {', '.join(outside)})"
    figure_style.label(axes, "mode x, y (heaviest first)", "mass", title)
    axes.tick_params(axis="x", labelsize=8)
    figure_style.legend(axes, ncols=len(runs) + 1)


def draw_density(axes: "Axes", draws: Any, title: str = "") -> Any:
    """Draw a heat map of draws (..., 2) of the 25 modes, or of the truth if None, on the scale of
    the truth."""
    span = (-_SQUARE, _SQUARE)
    middle = (np.arange(_BINS) + 0.5) * (2 * _SQUARE / _BINS) - _SQUARE
    grid = np.stack(np.meshgrid(middle, middle, indexing="ij"), axis=-1)
    density = true = _density(np.exp(-np.asarray(energy(grid), float)))  # pyright: ignore
    if draws is not None:
        positions = np.asarray(draws, float).reshape(-1, 2)
        density = _density(np.histogram2d(*positions.T, bins=_BINS, range=(span, span))[0])
    image = axes.imshow(density.T, origin="lower", extent=(*span, *span), cmap="magma", vmin=0,
                        vmax=true.max(), interpolation="bilinear")  # fmt: skip
    figure_style.label(axes, "x", "y", title)
    axes.grid(False)
    axes.set_xticks(range(-2, 3))
    axes.set_yticks(range(-2, 3))
    return image


def _density(weights: np.ndarray) -> np.ndarray:
    """Smooth by half the width of a mode, and normalise to a density on the square."""
    from scipy.ndimage import gaussian_filter

    blurred = gaussian_filter(weights, 1.2, mode="constant")
    return blurred / max(blurred.sum(), 1e-30) * (_BINS / (2 * _SQUARE)) ** 2
