"""The kinds of posteriors as a user meets them: new data, new seeds, and no number but the steps.

    python benchmarks/truth/fresh.py --data 5000 --seed 11 --rows 5000 [KIND ...]

Each line says whether the answer is right, and what the run warns of. References are found before
each run: a kind whose posterior was never seen has none that is stored.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from unittest import mock

import jax
import judge
import kinds
import numpy as np
import references
from ours import run_replicax
from target import Target

OF_ROWS: dict[str, Callable[[int], Target]] = {
    "poisson-far": kinds.poisson_far,
    "negative-binomial": kinds.negative_binomial,
    "heteroscedastic": kinds.heteroscedastic,
    "student-regression": kinds.student_regression,
    "unscaled": kinds.unscaled,
    "correlated": kinds.correlated,
    "softmax": kinds.softmax,
    "rare": kinds.rare,
    "hierarchical-logit": kinds.hierarchical_logit,
    "zero-inflated": kinds.zero_inflated,
    "horseshoe": kinds.horseshoe,
    "normals-2": lambda rows: kinds.mixture_of(2, rows),
    "normals-3": lambda rows: kinds.mixture_of(3, rows),
    "normals-4": lambda rows: kinds.mixture_of(4, rows),
    "regressions-2": kinds.mixture_of_regressions,
    "group-means": kinds.group_means,
}
_WARMUP, _TRANSITIONS = 600, 1_500  # of NUTS, where it is the reference


def made(name: str, rows: int, data: int) -> Target:
    """Return a kind with so many rows, its data drawn with other seeds."""
    default_rng = np.random.default_rng
    with mock.patch.object(np.random, "default_rng", lambda seed: default_rng(seed + data)):
        return OF_ROWS[name](rows) if name in OF_ROWS else kinds.KINDS[name]


def run(target: Target, seed: int) -> str:
    """Return what one call found, in words."""
    with (
        mock.patch.multiple(references, _WARMUP=_WARMUP, _TRANSITIONS=_TRANSITIONS),
        jax.enable_x64(True),
    ):
        truth = references.find_reference(target)
    began = time.process_time()
    with mock.patch.object(judge, "reference", lambda name: truth):
        found = run_replicax(target, seed, num_replicas=None)
    seconds = time.process_time() - began
    word = "right" if found["passes"] else "SILENT MISS" if found["silent_miss"] else "misses"
    mass = "" if found["mass_error"] is None else f", masses {found['mass_error']:.2f}"
    lines = [
        f"{target.name}: {word}; means {found['mean_error']:.2f} sd, sd {found['sd_low']:.2f} to "
        f"{found['sd_high']:.2f}{mass}; {found['ess']:,.0f} effective of "
        f"{4 * found['draws']:,}, {seconds:.0f} s with compiling",
        *(f"    {sentence}" for sentence in found["warnings"]),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"by default {list(OF_ROWS)}")
    parser.add_argument("--data", type=int, default=5_000, help="added to the seeds of the data")
    parser.add_argument("--seed", type=int, default=11, help="of the run")
    parser.add_argument("--rows", type=int, default=5_000)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.kinds or OF_ROWS:
        print(run(made(name, options.rows, options.data), options.seed), flush=True)


if __name__ == "__main__":
    main()
