"""Write references.json: moments of the judged functions and masses of the modes.

    python benchmarks/truth/references.py [TARGET ...]

Independent draws where the law allows them (closed form, conjugacy, a grid); otherwise a long run of
NumPyro's NUTS in the mode that made the data, all modes being mirror images of it.
"""

import json
import sys
import time
from typing import Any

import jax
import numpy as np
from judge import effective_size
from peers import nuts
from target import Target
from targets import FILE, TARGETS

_NUM_EXACT, _NUM_NUTS = 200_000, 4_000  # draws; of each of four chains


def find_reference(target: Target) -> dict[str, Any]:
    """Return moments, masses, their standard errors, and the method."""
    if target.exact is not None:
        draws = target.exact(np.random.default_rng(1), _NUM_EXACT)
        method, lead = f"{_NUM_EXACT:,} independent draws", (1,)
        draws = jax.tree.map(lambda leaf: np.asarray(leaf)[None], draws)
    else:
        draws = nuts(target, num_warmup=1_000, num_draws=_NUM_NUTS, starts=target.truth)
        method, lead = f"NUTS in one mode, 4 x {_NUM_NUTS:,} draws", (4,)
    values, modes = target.evaluate(draws)
    functions = {}
    for name, value in values.items():
        value = np.asarray(value, float).reshape(*lead, -1)
        size = value.size if target.exact is not None else effective_size(value)
        functions[name] = {"mean": float(value.mean()), "sd": float(value.std()),
                           "error": float(1 / np.sqrt(size))}  # fmt: skip
    found: dict[str, Any] = {"method": method, "functions": functions}
    if target.masses is not None:
        found["masses"] = list(target.masses)
    elif modes is not None:
        found["masses"] = [float(n) for n in np.bincount(modes.ravel()) / modes.size]
    return found


def main() -> None:
    stored = json.loads(FILE.read_text())["references"] if FILE.exists() else {}
    for name in sys.argv[1:] or TARGETS:
        if name.endswith("-batch"):  # the same posterior as without
            continue
        began = time.monotonic()
        stored[name] = find_reference(TARGETS[name])
        print(f"{name}: {stored[name]['method']}, {time.monotonic() - began:.0f} s", flush=True)
        content = {
            "command": "python benchmarks/truth/references.py",
            "note": "error: Monte Carlo standard error of the mean, in sd",
            "references": {name: stored[name] for name in TARGETS if name in stored},
        }
        FILE.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
