"""Short runs on several layouts of devices, for tests: `python layouts.py FOLDER CASE LAYOUT ...`.

A layout is a number of devices, "1" to "4"; "2x2", two parts of the chains by two parts of the
replicas; or "rows" or "rows4", where two or four devices share each replica; these also leave what
crossed between devices. Each run leaves FOLDER/CASE-LAYOUT.npz. Under `replicax launch` the layout
is "all", and every process leaves FOLDER/CASE-all-NUMBER.npz.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from layout_cases import CASES

DEVICES = "--xla_force_host_platform_device_count={}"
_SECONDS = 900  # on a machine that others use, too
# Without fused multiply-add, programs for other shapes round alike: see docs/scaling.md.
SAME_ROUNDING = "--xla_cpu_max_isa=AVX"
NAMES = ("draws", "energies", "rung_of", "learning_rates", "temperatures", "buffer", "round_trips")


def environment(*flags: str) -> dict[str, str]:
    """Return the environment of a process that imports the same package, with flags of XLA."""
    import replicax

    package = str(Path(replicax.__file__).parents[1])
    return os.environ | {"XLA_FLAGS": " ".join(flags), "PYTHONPATH": package}


def optimised(devices: int) -> dict[str, str]:
    """Return the environment of a process whose programs are optimised as those of users are:
    that is where rounding could differ."""
    chosen = environment(DEVICES.format(devices), SAME_ROUNDING)
    return chosen | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "False"}


def run_layouts(folder: Path, case: str, *layouts: str, devices: int = 4) -> list[dict]:
    """Run a case in a process of its own, and return what each layout left."""
    command = [sys.executable, __file__, str(folder), case, *layouts]
    done = subprocess.run(
        command, env=optimised(devices), capture_output=True, text=True, timeout=_SECONDS
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [load(folder, case, layout) for layout in layouts]


def launch(
    folder: Path, case: str, processes: int = 2, devices: int = 2, layout: str = "all"
) -> list[dict]:
    """Run a case in several processes, and return what each has."""
    command = [sys.executable, "-m", "replicax", "launch", "--processes", str(processes), "--"]
    done = subprocess.run(
        [*command, sys.executable, __file__, str(folder), case, layout],
        env=optimised(devices),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [load(folder, case, f"{layout}-{number}") for number in range(processes)]


def load(folder: Path, case: str, layout: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{case}-{layout}.npz") as arrays:
        return dict(arrays)


def numbers(posterior: Any) -> dict[str, np.ndarray]:
    """Return what must be the same however a run is laid out."""
    import jax

    found = {}
    for name in NAMES:
        for i, leaf in enumerate(jax.tree.leaves(getattr(posterior, name))):
            found[f"{name}.{i}"] = np.asarray(leaf)
    final = posterior._records.final
    kept = [name for name in final if name.startswith("best") or name == "restarts"]
    return found | {f"final.{name}": final[name] for name in kept}


def devices_of(layout: str) -> Any:
    import jax

    if layout == "2x2":
        return jax.make_mesh((2, 2), ("chain", "replica"))
    if layout == "rows":
        return jax.make_mesh((2, 2), ("data", "replica"))
    if layout == "rows4":
        return jax.make_mesh((4,), ("data",))
    return layout if layout == "all" else int(layout)


def main() -> None:
    import jax
    from crossings import recorded

    import replicax as rx

    folder, case, *layouts = sys.argv[1:]
    shared = rx.connect()
    for layout in layouts:
        shares_rows = layout.startswith("rows")
        crossed = recorded(Path(folder) / f"{case}-{layout}.json")
        with crossed if shares_rows else contextlib.nullcontext():
            found = numbers(CASES[case](devices_of(layout)))
        name = f"{layout}-{jax.process_index()}" if shared else layout
        np.savez(Path(folder) / f"{case}-{name}.npz", **found)


if __name__ == "__main__":
    main()
