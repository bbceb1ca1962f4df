"""Exactly one swap per window, for non-convex optimisation (appendix A.4)."""

from typing import Any, NamedTuple

import numpy as np

from replicax.experiments.optimise.searches import (
    AMPLITUDE,
    DIMENSIONS,
    PROBLEMS,
    REPLICAS,
    Problem,
    next_lowest,
    search,
)
from replicax.experiments.shared.study import (
    Cell,
    Finding,
    Results,
    Scale,
    Study,
    Table,
    Work,
    number,
)
from replicax.results import figure_style as panels

_METHODS = {
    "exactly_one": "exactly one swap",
    "deo_star": "at most one (DEO*)",
    "restarts": "SGD restarts",
    "annealing_p": f"annealing x P{REPLICAS}",
    "annealing_t": f"annealing x T{REPLICAS}",
}
_ABOUT = f"""
Appendix A.4 says that the scheme with exactly one swap in each window has a better chance to hit
global optima. Here it is compared, at equal budget ({REPLICAS} gradients a step), with at most one
swap, SGD restarts and simulated annealing: {REPLICAS} annealers side by side (x P{REPLICAS}), or
one that takes {REPLICAS} times the steps (x T{REPLICAS}). A run has hit once it has seen a point,
on any rung, whose exact energy is lower than that of every minimum but the global one. The 25 modes
are seen through noise (standard deviation 2 on gradients and energies) and all rungs are SGD;
Rastrigin's function (d = {DIMENSIONS}, amplitude {AMPLITUDE} so that small budgets suffice) is
exact, with Langevin temperatures and Metropolis swaps. Each method has four settings to choose
from: they are chosen on some seeds, by the mean probability over the budgets, and judged on others.
"""


def cells(scale: Scale) -> list[Cell]:
    shared = {
        "seeds": scale.num_seeds(48, 24),  # reported
        "choosing": scale.choose(16, 2),  # further seeds, on which settings are chosen
        "settings": scale.choose(4, 1),
    }
    few = scale.choose(0, -2)
    # Every budget of annealing is a program to compile: too long for a quick version.
    methods = [name for name in _METHODS if not (scale.quick and "annealing" in name)]
    return [
        Cell(
            f"{key}-{method}",
            {"problem": key, "method": method, "budgets": problem.steps[few:], **shared},
        )
        for key, problem in PROBLEMS.items()
        for method in methods
    ]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    problem, method = PROBLEMS[settings["problem"]], settings["method"]
    num_chains = settings["choosing"] + settings["seeds"]
    found = [
        search(problem, method, settings["budgets"], work, num_chains=num_chains, **chosen)
        for chosen in problem.grids[method][: settings["settings"]]
    ]
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


class Outcome(NamedTuple):
    """A method on a problem, at the setting that was chosen for it."""

    problem: Problem
    method: str
    budgets: tuple[int, ...]
    chosen: dict[str, Any]
    probability: np.ndarray  # (budget,)
    picked: float  # how often the point of lowest energy as it was seen is in the right basin
    cold_energy: float  # exact mean on the cold rung, of an exchange
    n: int

    @property
    def error(self) -> np.ndarray:
        """The binomial standard error, for one hit and one miss more than were seen."""
        smoothed = (self.probability * self.n + 1) / (self.n + 2)
        return np.sqrt(smoothed * (1 - smoothed) / self.n)

    def __str__(self) -> str:
        return f"{self.probability[-1]:.2f} ± {self.error[-1]:.2f} (n = {self.n})"


def outcome(settings: dict[str, Any], record: Any) -> Outcome:
    """Choose a setting on the first seeds, judge it on the others."""
    problem, choosing = PROBLEMS[settings["problem"]], settings["choosing"]
    hit = record["energy"] < next_lowest(problem)  # (setting, budget, seed)
    place = int(np.argmax(hit[:, :, :choosing].mean(axis=(1, 2))))
    return Outcome(
        problem,
        settings["method"],
        settings["budgets"],
        problem.grids[settings["method"]][place],
        hit[place, :, choosing:].mean(axis=1),
        float(record["picked"][place, choosing:].mean()),
        float(np.mean(record.get("cold_energy", np.full((place + 1, 1), np.nan))[place])),
        settings["seeds"],
    )


def _by_problem(results: Results) -> dict[str, dict[str, Outcome]]:
    found: dict[str, dict[str, Outcome]] = {}
    for settings, record in results:
        made = outcome(settings, record)
        found.setdefault(settings["problem"], {})[settings["method"]] = made
    return found


def findings(results: Results) -> list[Finding]:
    rows = []
    for key, outcomes in _by_problem(results).items():
        for method, one in outcomes.items():
            what = f"{one.problem.name}: hits within {one.budgets[-1]:,} steps, {_METHODS[method]}"
            rows.append(Finding(what, "", str(one)))
        rate = results.only(problem=key, method="exactly_one")["window_swap_rate"]
        what = f"{PROBLEMS[key].name}: swaps per window, exactly one"
        met = bool(np.all(rate == 1))
        rows.append(Finding(what, "1", float(rate.min()), "1 for every pair and seed", met))
    return rows


def at_same_settings(results: Results, key: str) -> str:
    """Exactly one minus at most one, for each ladder and window that both could choose."""
    level, found = next_lowest(PROBLEMS[key]), []
    for method in ("exactly_one", "deo_star"):
        ((settings, record),) = results.where(problem=key, method=method)
        found.append((record["energy"][:, -1, settings["choosing"] :] < level).mean(axis=1))
    grid = PROBLEMS[key].grids["exactly_one"]
    return "; ".join(f"{_told(a)}: {one - b:+.2f}" for a, one, b in zip(grid, *found))


def notes(results: Results) -> list[str]:
    sentences = []
    for key, outcomes in _by_problem(results).items():
        one, other = outcomes["exactly_one"], outcomes["deo_star"]
        difference = one.probability[-1] - other.probability[-1]
        error = np.hypot(one.error[-1], other.error[-1])
        best = max(outcomes.values(), key=lambda made: made.probability.mean())
        sentences.append(
            f"{one.problem.name}: exactly one minus at most one at {one.budgets[-1]:,} steps is "
            f"{difference:+.2f} ± {error:.2f}; over all budgets {_METHODS[best.method]} hits most "
            f"often ({best.probability.mean():.2f} on average, exactly one "
            f"{one.probability.mean():.2f}, at most one {other.probability.mean():.2f}). At the "
            f"same settings the difference is {at_same_settings(results, key)}. A forced "
            f"swap takes its toll on the cold rung: its mean energy is {one.cold_energy:.2f} with "
            f"exactly one swap and {other.cold_energy:.2f} with at most one."
        )
    noisy = next(iter(_by_problem(results).values()))
    shares = ", ".join(f"{_METHODS[m]} {one.picked:.2f}" for m, one in noisy.items())
    sentences.append(
        "Of noisy energies the lowest belongs to the luckiest draw, so the point that it picks is "
        f"not judged above. On the 25 modes it lies in the right basin this often: {shares}."
    )
    return sentences


def _told(chosen: dict[str, Any]) -> str:
    def value(x: Any) -> str:
        return " to ".join(map(number, x)) if isinstance(x, tuple) else number(x)

    return ", ".join(f"{name.replace('_', ' ')} {value(x)}" for name, x in chosen.items())


def tables(results: Results) -> list[Table]:
    made = []
    for outcomes in _by_problem(results).values():
        first = next(iter(outcomes.values()))
        rows = [
            [_METHODS[method], *(f"{p:.2f} ± {e:.2f}" for p, e in zip(one.probability, one.error)),
             _told(one.chosen), "; ".join(map(_told, one.problem.grids[method]))]
            for method, one in outcomes.items()
        ]  # fmt: skip
        header = ["", *(f"{steps:,} steps" for steps in first.budgets), "chosen", "of"]
        title = f"Probability to hit, {first.problem.name} (n = {first.n})"
        made.append(Table(title, header, rows))
    return made


def figures(results: Results) -> dict[str, Any]:
    found = _by_problem(results)
    figure = panels.new_figure(10.5, 4.2)
    for axes, outcomes in zip(figure.subplots(1, len(found)), found.values(), strict=True):
        for place, (method, one) in enumerate(outcomes.items()):
            shifted = np.array(one.budgets) * 1.025 ** (place - 2)  # so that bars stay apart
            axes.errorbar(shifted, one.probability, one.error, fmt="o-", ms=4, capsize=3,
                          color=panels.CHAINS[place], label=_METHODS[method])  # fmt: skip
        first = next(iter(outcomes.values()))
        axes.set_xscale("log", base=2)
        axes.set_xticks(first.budgets, [f"{steps:,}" for steps in first.budgets])
        axes.set_ylim(-0.04, 1.04)
        x = f"steps (of {REPLICAS} gradients each)"
        panels.label(axes, x, "probability of a hit", first.problem.name)
    panels.legend_below(axes)
    figure.set_label(
        "How often the global minimum was hit, against the budget (± binomial standard error)."
    )
    return {"hits": figure}


STUDY = Study(
    name="optimise",
    title="Exactly one swap, for optimisation",
    about=_ABOUT,
    cells=cells,
    run=run,
    findings=findings,
    figures=figures,
    tables=tables,
    notes=notes,
)
