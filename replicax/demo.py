"""The run of `replicax demo`: the posterior with 25 modes of the paper's section 5.1.

Also a target for the command line: `replicax sample replicax.demo:target`.
"""

from pathlib import Path
from typing import Any

import replicax as rx
from replicax.results.posterior import Posterior
from replicax.run.storage.folder import remove
from replicax.run.storage.metadata import read_metadata
from replicax.user_code import TargetSpec

target = rx.targets.modes25()
params = rx.targets.modes25_start

# Those of the paper.
METHOD = rx.deo_star((0.003, 0.6), target_swap_rate=0.4)
SETTINGS: dict[str, Any] = {"num_replicas": 16, "burn_in": 100, "thin": 10}
TARGET_SPEC = TargetSpec("replicax.demo:target", params="params")


def run_demo(folder: Path, num_steps: int, num_chains: int, seed: int) -> Posterior:
    """Sample the 25 modes into `folder`, and replace an earlier demo there."""
    clear(folder)
    return rx.sample(target, params, num_steps=num_steps, method=METHOD, num_chains=num_chains,
                     seed=seed, run_dir=folder, progress=True, note=TARGET_SPEC.to_note(),
                     **SETTINGS)  # fmt: skip


def clear(folder: Path) -> None:
    """Remove the files of an earlier demo; refuse a folder that is not empty and not a demo."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another folder with --out.")
    is_run = (folder / "run.json").exists()
    if not is_run or TargetSpec.from_note(read_metadata(folder).note) != TARGET_SPEC:
        if any(folder.iterdir()):
            what = "a run of another target" if is_run else "other files"
            raise ValueError(
                f"{folder} contains {what}, which the demo does not overwrite; choose another "
                "folder with --out."
            )
        return
    remove(folder)


def compare_with_truth(posterior: Posterior) -> dict[str, Any]:
    """Return how far the mode masses of the draws are from the true ones."""
    truth = rx.targets.modes25_truth()
    draws = posterior.draws  # shape (chain, draw, 2)
    if draws.shape[1] == 0:
        return {"mode_distance": None, "mode_distance_by_chain": [], "modes_found": 0,
                "mass_outside": None, "mass_outside_true": float(truth[25])}  # fmt: skip
    masses = rx.targets.mode_masses(draws)
    return {
        "mode_distance": rx.targets.mode_distance(draws, truth),
        "mode_distance_by_chain": [rx.targets.mode_distance(chain, truth) for chain in draws],
        "modes_found": int((masses[:25] > 0).sum()),
        "mass_outside": float(masses[25]),
        "mass_outside_true": float(truth[25]),
    }


def render(accuracy: dict[str, Any]) -> Any:
    """Return the result of `compare_with_truth` as a table for a terminal."""
    from rich.table import Table

    table = Table("", "value", title="Compared with the truth", title_justify="left")
    if accuracy["mode_distance"] is None:
        table.add_row("draws", "none yet")
        return table
    by_chain = ", ".join(f"{value:.3f}" for value in accuracy["mode_distance_by_chain"])
    table.add_row("modes found", f"{accuracy['modes_found']} of 25")
    table.add_row("total variation of the mode masses", f"{accuracy['mode_distance']:.3f}")
    table.add_row("  of each chain alone", by_chain)
    outside, true = accuracy["mass_outside"], accuracy["mass_outside_true"]
    table.add_row("mass outside the 25 cells (truth)", f"{outside:.4f} ({true:.4f})")
    return table


def plot_demo(posterior: Posterior, folder: Path) -> list[Path]:
    """Draw all figures of the run and a map of the draws; return their paths."""
    from replicax.results import plots

    posterior.plot(folder)
    if posterior.num_draws:
        plots.plot_modes25(posterior.draws, folder / "modes25.png", title="16 replicas")
    return sorted(folder.glob("*.png"))
