"""The 25-mode posterior of the paper's section 5.1, as `replicax demo` samples it.

Also an example of a target for the command line: `replicax sample replicax.demo:target`.
"""

import shutil
from pathlib import Path
from typing import Any

import replicax as rx
from replicax import presets
from replicax.results.posterior import Posterior
from replicax.user_code import Naming

target = rx.targets.modes25()
params = rx.targets.modes25_start

SETTINGS = presets.get("modes25")  # the paper's
NAMING = Naming("replicax.demo:target", params="params")
_LEFT_BY_A_RUN = ("run.json", "target.json", "summary.json", "final.npz", "records.zarr",
                  "records", "checkpoints", "figures")  # fmt: skip


def run_demo(folder: Path, num_steps: int, num_chains: int, seed: int,
             progress: bool = True, preset: str = "modes25") -> Posterior:  # fmt: skip
    """Sample into `folder`; an earlier demo in it makes room."""
    settings = presets.get(preset)
    clear(folder)
    folder.mkdir(parents=True, exist_ok=True)
    NAMING.write(folder)
    return rx.sample(target, params, num_steps=num_steps, num_chains=num_chains, seed=seed,
                     run_dir=folder, progress=progress, **settings)  # fmt: skip


def clear(folder: Path) -> None:
    """Remove an earlier demo's own files; refuse where there is anything else than a demo."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; name another folder with --out.")
    if Naming.read(folder) != NAMING:
        if any(folder.iterdir()):
            what = "a run of another target" if (folder / "run.json").exists() else "other files"
            raise ValueError(
                f"{folder} holds {what}, which the demo will not touch; name another folder "
                "with --out."
            )
        return
    for path in (folder / name for name in _LEFT_BY_A_RUN):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def judge(posterior: Posterior) -> dict[str, Any]:
    """How far the draws are from the truth, which is known here."""
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


def render(judged: dict[str, Any]) -> Any:
    """What `judge` found, as a table for a terminal."""
    from rich.table import Table

    table = Table("", "value", title="Against the truth", title_justify="left")
    if judged["mode_distance"] is None:
        table.add_row("draws", "none yet")
        return table
    by_chain = ", ".join(f"{value:.3f}" for value in judged["mode_distance_by_chain"])
    table.add_row("modes found", f"{judged['modes_found']} of 25")
    table.add_row("total variation of the mode masses", f"{judged['mode_distance']:.3f}")
    table.add_row("  of each chain alone", by_chain)
    table.add_row("mass outside the 25 cells (truth)",
                  f"{judged['mass_outside']:.4f} ({judged['mass_outside_true']:.4f})")  # fmt: skip
    return table


def plot_demo(posterior: Posterior, folder: Path) -> list[Path]:
    """All figures of the run, and the draws over the modes."""
    from replicax.results import plots

    posterior.plot(folder)
    if posterior.num_draws:
        plots.plot_modes25(posterior.draws, folder / "modes25.png", title="16 replicas")
    return sorted(folder.glob("*.png"))
