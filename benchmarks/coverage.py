"""Are runs that decide themselves how long they are as precise as they say?

    python benchmarks/coverage.py --runs 200 --out docs/results/coverage.json
    python benchmarks/coverage.py --runs 50 --first 100 --out part.json      # seeds from 100 on
    python benchmarks/coverage.py --join part.json ... --out docs/results/coverage.json

The same target is sampled by `rx.sample(target, start)` with many seeds. A run claims a mean with a
standard error, sd / sqrt(effective size), and a 90 % interval from it should cover the true mean in
90 % of the runs; so for the mass of a mode.
"""

import argparse
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from timing import use_one_core

import replicax as rx
from replicax.run import chunk
from replicax.run.compiled_once import compiled_once

sys.path.insert(0, str(Path(__file__).with_name("truth")))
from kinds import two_modes

_WIDTH = 1.6449  # standard errors of a 90 % interval
_MASS = 0.3


def claims(posterior: rx.Posterior) -> dict[str, tuple[float, float, float]]:
    """Return estimate, standard error and truth of the mean of a parameter and of a mode's mass."""
    x = np.asarray(posterior.draws, float)
    in_second = (x.mean(axis=2) > 0).astype(float)
    mean = 0.7 * -2.0 + _MASS * 2.0
    estimates = {}
    for name, values, truth in (("mean", x[:, :, 0], mean), ("mass", in_second, _MASS)):
        size = rx.diagnostics.effective_size(values)
        estimates[name] = (values.mean(), values.std() / np.sqrt(size), truth)
    return estimates


def measure(runs: int, size: int, chains: int, first: int = 0) -> dict[str, Any]:
    """Return for each run whether intervals cover the truth, and how long it was."""
    target, built = two_modes(size), {}

    def build_once(program: Any, keys: Any, capacity: int) -> Any:
        """Return the chunk of an earlier seed: it differs in its keys alone."""
        kind = capacity, program.num_steps, program.run.burn_in, program.draws_per_step
        if kind not in built:
            built[kind] = compiled_once(chunk._build_steps(program, capacity), donate_argnums=0)
        return lambda carry, *rest: built[kind](carry, keys, *rest)

    covered: dict[str, list[bool]] = {"mean": [], "mass": []}
    steps, warned, seconds = [], 0, []
    for seed in range(first, first + runs):
        began = time.process_time()
        with (
            warnings.catch_warnings(record=True) as said,
            mock.patch.object(chunk, "build_chunk", build_once),
        ):
            warnings.simplefilter("always")
            run = rx.sample(
                target.for_replicax, target.start, num_chains=chains, seed=seed, progress=False
            )
        warned += any(issubclass(one.category, rx.errors.RunProblem) for one in said)
        seconds.append(time.process_time() - began)
        steps.append(run.num_steps)
        for name, (value, error, truth) in claims(run).items():
            covered[name].append(bool(abs(value - truth) < _WIDTH * error))
        so_far = {name: f"{sum(found)} of {len(found)}" for name, found in covered.items()}
        print(so_far, f"{seconds[-1]:.1f} s", file=sys.stderr, flush=True)
    return {
        "target": target.title,
        "chains": chains,
        "covered": covered,
        "warned": warned,
        "steps": steps,
        "seconds": seconds,
        "machine": f"one core, jax {jax.__version__}",
    }


def summed_up(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how often intervals cover the truth, and how long the runs were, of all parts."""
    steps, seconds = ([one for part in parts for one in part[key]] for key in ("steps", "seconds"))
    covered = {
        name: [one for part in parts for one in part["covered"][name]]
        for name in parts[0]["covered"]
    }
    return {
        "target": parts[0]["target"],
        "runs": len(steps),
        "chains": parts[0]["chains"],
        "coverage of 90 % intervals": {name: float(np.mean(of)) for name, of in covered.items()},
        "standard error of that": float(np.sqrt(0.09 / len(steps))),
        "warned": sum(part["warned"] for part in parts),
        "steps": {"median": float(np.median(steps)), "most": int(np.max(steps))},
        "seconds of a run": float(np.median(seconds)),
        "machine": parts[0]["machine"],
        "command": f"python benchmarks/coverage.py --runs {len(steps)}",
        "parts": parts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--size", type=int, default=2, help="dimensions of the target")
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="parts of the runs")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.join:
        parts = [part for file in arguments.join for part in json.loads(file.read_text())["parts"]]
    else:
        use_one_core()
        given = arguments.runs, arguments.size, arguments.chains, arguments.first
        parts = [measure(*given)]
    found = summed_up(parts)
    print(json.dumps({key: value for key, value in found.items() if key != "parts"}, indent=1))
    if arguments.out:
        arguments.out.write_text(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
