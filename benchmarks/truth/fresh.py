"""The kinds of posteriors as a user meets them: new data, new seeds, and no number but the steps.

    python benchmarks/truth/fresh.py --data 5000 --seed 11 --rows 5000 [KIND ...]
    python benchmarks/truth/fresh.py --num-steps 0 ...     # no number at all: until it is done
    python benchmarks/truth/fresh.py --table FILE ...      # of --json, also of gym.py and others

Each line says whether the answer is right, and what the run warns of. References are found before
each run: a kind whose posterior was never seen has none that is stored.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
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
    "weibull": kinds.weibull,
    "horseshoe": kinds.horseshoe,
    "normals-2": lambda rows: kinds.mixture_of(2, rows),
    "normals-3": lambda rows: kinds.mixture_of(3, rows),
    "normals-4": lambda rows: kinds.mixture_of(4, rows),
    "regressions-2": kinds.mixture_of_regressions,
    "group-means": kinds.group_means,
}
_WARMUP, _TRANSITIONS = 600, 1_500  # of NUTS, where it is the reference
_LONGEST = 1_200.0  # seconds of a run that decides itself how long it is


def made(name: str, rows: int, data: int) -> Target:
    """Return a kind with so many rows, its data drawn with other seeds."""
    default_rng = np.random.default_rng
    with mock.patch.object(np.random, "default_rng", lambda seed: default_rng(seed + data)):
        return OF_ROWS[name](rows) if name in OF_ROWS else kinds.KINDS[name]


def truth_of(target: Target) -> dict[str, Any]:
    """Return the reference of a target."""
    with (
        mock.patch.multiple(references, _WARMUP=_WARMUP, _TRANSITIONS=_TRANSITIONS),
        jax.enable_x64(True),
    ):
        return references.find_reference(target)


def run(
    target: Target, truth: dict[str, Any], seed: int, num_steps: int | None = kinds.STEPS
) -> dict[str, Any]:
    """Return the verdict on one call that knows nothing but `num_steps`, or not even that."""
    limits: dict[str, Any] = {"max_seconds": _LONGEST} if num_steps is None else {}
    began = time.process_time()
    with mock.patch.object(judge, "reference", lambda name: truth):
        found = run_replicax(
            replace(target, num_steps=num_steps), seed, num_replicas=None, **limits
        )
    whole = time.process_time() - began
    return {
        "target": target.name, "title": target.title, "seed": seed, "given": num_steps,
        "whole_seconds": whole, "reference": truth["method"], **found,
    }  # fmt: skip


def in_words(found: dict[str, Any]) -> str:
    """Return what a run found, and what it warned of."""
    if "error" in found:
        return f"{found['target']}: {found['error']}"
    word = "right" if found["passes"] else "SILENT MISS" if found["silent_miss"] else "misses"
    mass = "" if found["mass_error"] is None else f", masses {found['mass_error']:.2f}"
    lines = [
        f"{found['target']}: {word}; means {found['mean_error']:.2f} sd, sd {found['sd_low']:.2f} "
        f"to {found['sd_high']:.2f}{mass}; {found['ess']:,.0f} effective of "
        f"{4 * found['draws']:,}, {found['whole_seconds']:.0f} s with compiling",
        *(f"    {sentence}" for sentence in found["warnings"]),
    ]
    return "\n".join(lines)


def row_of(found: dict[str, Any]) -> str:
    """Return a run as a row of a table."""
    if "error" in found:
        return f"| {found['target']} | {found['error']} |"
    mass = "" if found["mass_error"] is None else f"{found['mass_error']:.3f}"
    word = "yes" if found["passes"] else "no, **in silence**" if found["silent_miss"] else "no"
    cells = (
        found["title"], word, f"{found['mean_error']:.2f}",
        f"{found['sd_low']:.2f} to {found['sd_high']:.2f}", mass, f"{found['ess']:,.0f}",
        "yes" if found["warnings"] else "no",
        f"{found['seconds']:.0f}", f"{found['compile_seconds']:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def tell(found: dict, every: list[dict], file: Path | None) -> None:
    """Say what a run found, and add it to all that is in the file."""
    print(in_words(found), flush=True)
    every.append(found)
    if file is not None:
        file.write_text(json.dumps(every, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("kinds", nargs="*", metavar="KIND", help=f"by default {list(OF_ROWS)}")
    add("--data", type=int, nargs="+", default=[5_000], help="added to the seeds of the data")
    add("--seed", type=int, default=11, help="of the run")
    add("--rows", type=int, default=5_000)
    add("--num-steps", type=int, nargs="+", default=[kinds.STEPS], help="0: until it is done")
    add("--json", type=Path, metavar="FILE", help="write what was found there, too")
    add("--table", type=Path, nargs="+", metavar="FILE", help="print what is in files, run nothing")
    options = parser.parse_args()
    if options.table:
        print(*(row_of(one) for file in options.table for one in json.loads(file.read_text())),
              sep="\n")  # fmt: skip
        return
    warnings.simplefilter("ignore")
    every: list[dict] = []
    for name in options.kinds or OF_ROWS:
        for data in options.data:
            target = made(name, options.rows, data)
            truth = truth_of(target)
            for num_steps in options.num_steps:
                found = {"data": data, "rows": options.rows}
                found |= run(target, truth, options.seed, num_steps or None)
                tell(found, every, options.json)


if __name__ == "__main__":
    main()
