"""Do runs warn that should, and no others? 25 runs whose mixture is right, and 25 whose mixture is
made wrong on purpose and frozen.

`python benchmarks/missed.py` runs them and prints a table of what they warn of; `--only 3 28` runs
those of these numbers, `--seed` other ones, `--json FILE` writes rows, which `--join FILE ...`
prints together. The table is in the README.
"""

import argparse
import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).parent / "truth"))

import densities
import kinds
from target import Target

import replicax as rx
from replicax.algorithm import fitting
from replicax.algorithm.mixture import Mixture, make_mixture
from replicax.results.mixture import missed
from replicax.run import learning

CHAINS = 4
Wrong = Callable[[], contextlib.AbstractContextManager]


@dataclass(frozen=True)
class Case:
    """A run: its target, and what is done to the mixture."""

    target: Target
    jumps: int = 64
    num_steps: int = 1_000
    wrong: Wrong | None = None
    about: str = ""


@contextlib.contextmanager
def withheld(covers: Callable[[np.ndarray], np.ndarray]) -> Iterator[None]:
    """Let the mixture be learned of points (n, d) alone for which `covers` is true."""
    choose, search = fitting.choose, learning.search

    def choose_of_some(old: Any, draws: np.ndarray, energies: np.ndarray, *rest: Any) -> Any:
        kept = covers(draws.reshape(-1, draws.shape[-1]))
        if kept.sum() < 100:
            return fitting.Chosen(old, 1.0, "old", 0)
        flat = draws.reshape(-1, draws.shape[-1])[kept]
        chosen = choose(old, flat[None], energies.reshape(-1)[kept][None], *rest)
        return chosen._replace(mixture=_without_wide(chosen.mixture))

    def search_for_some(*args: Any) -> Any:
        found = search(*args)
        kept = covers(found.minima) if len(found.minima) else np.zeros(0, bool)
        return found._replace(
            minima=found.minima[kept],
            energies=found.energies[kept],
            covariances=found.covariances[kept],
        )

    with (
        mock.patch.object(fitting, "choose", choose_of_some),
        mock.patch.object(learning, "search", search_for_some),
    ):
        yield


@contextlib.contextmanager
def narrow(factor: float) -> Iterator[None]:
    """Make the components of each mixture narrower, and leave out the wide one."""
    choose = fitting.choose

    def choose_narrow(old: Any, *rest: Any) -> Any:
        chosen = choose(None, *rest)
        return chosen._replace(mixture=_without_wide(chosen.mixture, factor), acceptance=1.0)

    with mock.patch.object(fitting, "choose", choose_narrow):
        yield


def _without_wide(mixture: Mixture | None, factor: float = 1.0) -> Mixture | None:
    if mixture is None:
        return None
    used = fitting.in_use(mixture)
    kept = np.isinf(used.freedom) if np.isinf(used.freedom).any() else used.freedom > 0
    return make_mixture(used.log_weight[kept], used.mean[kept], factor * used.root[kept])


def student(size: int, freedom: float) -> Target:
    def energy(x):
        return (freedom + size) / 2 * jnp.log1p(jnp.sum(x**2) / freedom)

    def draw(rng, n):
        return rng.standard_normal((n, size)) / np.sqrt(rng.chisquare(freedom, (n, 1)) / freedom)

    return kinds._bare(f"student-{size}", f"Student law, {size}-d", size, energy, draw)


def apart(size: int, share: float, distance: float) -> Target:
    """Return two normal modes in the first of some dimensions."""
    logits = jnp.log(jnp.array([1 - share, share]))

    def energy(x):
        first = -0.5 * (x[0] - jnp.array([0.0, distance])) ** 2
        return -jax.nn.logsumexp(first + logits) + jnp.sum(x[1:] ** 2) / 2

    def draw(rng, n):
        x = rng.standard_normal((n, size))
        x[:, 0] += distance * (rng.random(n) < share)
        return x

    mode = lambda x: jnp.where(x[0] > distance / 2, 1, 0)  # noqa: E731
    name = f"apart-{size}-{share}-{distance}"
    target = kinds._bare(
        name, f"masses {1 - share:.2g}, {share}, {size}-d", size, energy, draw, mode=mode
    )
    return replace(target, start=lambda key: distance * jax.random.normal(key, (size,)))


RIGHT = [
    *(Case(target) for target in (
        kinds.poisson_far(1_000, 4), kinds.negative_binomial(1_000, 3),
        kinds.heteroscedastic(1_000, 3), kinds.unscaled(2_000), kinds.correlated(1_000, 6),
        kinds.rare(3_000, 4), kinds.softmax(1_000, 3, 3), kinds.hierarchical_logit(800, 6, 2),
        kinds.zero_inflated(2_000, 4),
        kinds.horseshoe(300, 3), kinds.mixture_of(2, 300), kinds.mixture_of(3, 300),
        kinds.mixture_of_regressions(500), kinds.group_means(1_000, 8), kinds.schools(False),
        kinds.banana(), kinds.cauchy(), kinds.lotka_volterra(), kinds.two_modes(5),
        kinds.two_modes(20), kinds.gaussian(30), densities.chain(16), densities.modes_25(),
    )),
    Case(student(5, 4.0), jumps=16), Case(densities.unequal_modes(), jumps=256),
]  # fmt: skip


def _first(bound: float) -> Wrong:
    return lambda: withheld(lambda x: x[:, 0] < bound)


def _mean(bound: float) -> Wrong:
    return lambda: withheld(lambda x: x.mean(axis=1) < bound)


_MISSED = "a mode is withheld"
_NARROW = "too narrow"
WRONG = [
    *(Case(apart(size, share, distance), jumps, steps, _first(distance / 2), _MISSED)
      for size, share, distance, jumps, steps in (
          (2, 0.5, 8.0, 64, 1_000), (2, 0.2, 8.0, 64, 1_000), (2, 0.8, 12.0, 64, 1_000),
          (5, 0.5, 8.0, 64, 1_000), (5, 0.2, 10.0, 16, 1_000), (10, 0.5, 8.0, 64, 1_000),
          (10, 0.3, 12.0, 256, 1_000), (20, 0.5, 10.0, 64, 1_000), (20, 0.7, 10.0, 64, 2_000),
          (2, 0.5, 20.0, 64, 1_000),
      )),
    *(Case(kinds.two_modes(size), jumps, wrong=_mean(0.0), about=_MISSED)
      for size, jumps in ((2, 64), (5, 16), (5, 64), (10, 64), (20, 64), (20, 256))),
    Case(densities.unequal_modes(), wrong=_mean(2.5), about=_MISSED),
    Case(densities.modes_25(), wrong=_first(0.5), about="modes are withheld"),
    Case(densities.chain(16), wrong=_mean(0.0), about=_MISSED),
    *(Case(kinds.gaussian(size), wrong=lambda: narrow(0.3), about=_NARROW) for size in (5, 20)),
    *(Case(student(size, 2.0), wrong=lambda: narrow(0.4), about=f"{_NARROW}, heavy tails")
      for size in (2, 5, 10)),
    Case(kinds.schools(False), wrong=lambda: narrow(0.3), about=_NARROW),
]  # fmt: skip


def run(case: Case, seed: int = 0) -> rx.Posterior:
    """Return the run of a case."""
    with case.wrong() if case.wrong else contextlib.nullcontext(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rx.sample(
            case.target.for_replicax,
            case.target.start,
            num_steps=case.num_steps,
            num_chains=CHAINS,
            seed=seed,
            method=rx.posterior(jumps=case.jumps),
            progress=False,
        )


def row_of(case: Case, posterior: rx.Posterior) -> list[str]:
    """Return the cells of a run: acceptance of jumps, mass of what is missed with its standard
    error, the longest stay there, the true error of the masses of modes, what it warns of, and what
    it is short of to be done."""
    found, jumps = missed(posterior), posterior.jumps
    told, short = posterior.problems(), posterior.shortcomings()
    said = ["; ".join(" ".join(one.split()[:5]) for one in told) or "-", str(len(short))]
    if found is None or jumps is None:
        return [case.target.title, case.about, str(case.jumps), *5 * ["no mixture"], *said]
    error = "-"
    if case.target.exact is not None and case.target.mode is not None:
        _, true = case.target.evaluate(case.target.exact(np.random.default_rng(9), 20_000))
        _, mine = case.target.evaluate(posterior.draws)
        error = f"{max(abs(np.mean(mine == m) - np.mean(true == m)) for m in np.unique(true)):.2f}"
    return [
        case.target.title,
        case.about,
        str(case.jumps),
        f"{jumps['accepted'].mean():.2f}",
        f"{found.mass:.3f}",
        f"{found.error:.3f}",
        str(found.longest),
        error,
        *said,
    ]


HEAD = ["target", "mixture", "n", "accepted", "missed", "±", "longest", "error of masses"]
HEAD += ["warns of", "short of"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of runs, from 0 to 49")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE")
    options = parser.parse_args()
    print("|".join(["", *HEAD, ""]), "|".join(["", *len(HEAD) * ["---"], ""]), sep="\n")
    rows = []
    for file in options.join or ():
        rows += json.loads(file.read_text())
    for row in sorted(rows, key=lambda row: row["number"]):
        print("|".join(["", *row["cells"], ""]))
    for number, case in enumerate([] if options.join else [*RIGHT, *WRONG]):
        if options.only is None or number in options.only:
            posterior = run(case, options.seed)
            kind, told = "wrong" if case.wrong else "right", list(posterior.problems())
            row = {"number": number, "kind": kind, "cells": row_of(case, posterior)}
            rows.append(row | {"problems": told, "short": posterior.shortcomings()})
            print("|".join(["", *row["cells"], ""]), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(rows, indent=1) + "\n")
    for kind in ("right", "wrong"):
        own = [row for row in rows if row["kind"] == kind]
        warn, done = sum(bool(row["problems"]) for row in own), sum(not row["short"] for row in own)
        print(f"{len(own)} {kind} runs: {warn} warn, {done} are done")


if __name__ == "__main__":
    main()
