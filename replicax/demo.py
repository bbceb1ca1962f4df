"""The runs of `replicax demo`: the posterior with 25 modes of the paper's section 5.1.

Also targets for the command line: `replicax sample replicax.demo:energy`, and with noise
`replicax sample replicax.demo:target`.
"""

from pathlib import Path
from typing import Any

import numpy as np

import replicax as rx
from replicax.results.diagnostics import effective_size
from replicax.results.posterior import Posterior
from replicax.run.storage.folder import remove
from replicax.run.storage.metadata import read_metadata
from replicax.user_code import TargetSpec

energy = rx.targets.modes25_energy
target = rx.targets.modes25()  # energies and gradients with noise
params = rx.targets.modes25_start

# Those of the paper.
METHOD = rx.deo_star((0.003, 0.6), target_swap_rate=0.4)
SETTINGS: dict[str, Any] = {"num_replicas": 16, "burn_in": 100, "thin": 10}
PAPER_STEPS = 20_000
TARGET_SPEC = TargetSpec("replicax.demo:energy", params="params")

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

    def add(name: str, true: str, cell: Any) -> None:
        table.add_row(name, true, *(cell(found) for found in columns))

    add("energies seen", "", lambda found: "exact" if found is first else "noisy")
    add("modes found", "25", lambda found: f"{found['modes_found']}")
    add("total variation of the mode masses", "0", lambda found: f"{found['mode_distance']:.3f}")
    for i, name in enumerate("xy"):
        add(f"standard deviation of {name}", f"{first['std_true']:.3f}",
            lambda found, i=i: f"{found['std'][i]:.3f} ± {found['std_error'][i]:.3f}")  # fmt: skip
    add("mass outside the 25 cells", f"{first['mass_outside_true']:.4f}",
        lambda found: f"{found['mass_outside']:.4f}")  # fmt: skip
    add("draws", "", lambda found: f"{found['num_draws']:,}")
    add("warnings", "", lambda found: f"{found['warnings']}")
    add("round trips per 1,000 steps", "",
        lambda found: f"{found['round_trips_per_1000_steps']:.0f}")  # fmt: skip
    return table


def plot_demo(runs: dict[str, Posterior], folder: Path) -> list[Path]:
    """Draw the figures of the default call and both runs beside the truth; return their paths."""
    from replicax.results import plots

    runs[DEFAULT].plot(folder)
    if all(run.num_draws for run in runs.values()):
        plots.plot_modes25(runs, folder / "modes25.png")
    return sorted(folder.glob("*.png"))
