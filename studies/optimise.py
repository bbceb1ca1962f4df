"""Exactly one swap per window, for non-convex optimisation (appendix A.4)."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax.results import figure_style
from studies.shared.study import (
    Cell,
    Finding,
    Results,
    Scale,
    Study,
    Table,
    Work,
    number,
    split_options,
    stack,
)

REPLICAS = 16
DIMENSIONS = 10
AMPLITUDE = 1.5
_HISTORY_EVERY = 500
_METHODS = {
    "exactly_one": "exactly one swap",
    "deo_star": "at most one (DEO*)",
    "restarts": "SGD restarts",
    "annealing_p": f"annealing x P{REPLICAS}",
    "annealing_t": f"annealing x T{REPLICAS}",
}
_TITLE = "Exactly one swap, for optimisation"
_ABOUT = f"""
Appendix A.4 says that the scheme with exactly one swap in each window has a better chance to hit
global optima. Here it is compared, at equal budget ({REPLICAS} gradients a step), with at most one
swap, SGD restarts and simulated annealing: {REPLICAS} annealers side by side (x P{REPLICAS}), or
one that takes {REPLICAS} times the steps (x T{REPLICAS}). A run is a hit when it has visited a
point, on any rung, with an exact energy below that of every other minimum. On the 25 modes,
gradients and energies are noisy (standard deviation 2) and all rungs are SGD;
Rastrigin's function (d = {DIMENSIONS}, amplitude {AMPLITUDE} so that small budgets suffice) is
exact, with Langevin temperatures and Metropolis swaps. Each method has four settings to choose
from: they are chosen on some seeds, by the mean probability over the budgets, and judged on others.
"""


def rastrigin_energy(position: jax.Array, amplitude: float = 10.0) -> jax.Array:
    """Return U = sum_i x_i^2 + A (1 - cos 2 pi x_i): a minimum near every integer point.

    The barrier between neighbours is about 2 A. The global minimum is 0, at 0; the next lowest,
    with one coordinate near 1 or -1, are slightly below 1.
    """
    return jnp.sum(position**2 + amplitude * (1 - jnp.cos(2 * jnp.pi * position)), axis=-1)


def rastrigin(amplitude: float = 10.0) -> rx.Target:
    """Return the target of `rastrigin_energy`, without noise, in any number of dimensions.

    >>> float(rastrigin().energy(jnp.zeros(10), None, None))
    0.0
    """
    return rx.Target(lambda position, batch, key: rastrigin_energy(position, amplitude))


class Problem(NamedTuple):
    """An energy to minimise; its global minimiser is 0."""

    name: str
    target: rx.Target
    energy: Callable  # exact
    start: Callable
    dimensions: int
    steps: tuple[int, ...]  # budgets
    thin: int  # steps between recorded points
    restart_steps: int
    grids: dict[str, list[dict[str, Any]]]  # settings to choose from, by method
    options: dict[str, Any]  # of the exchange
    cooled: dict[str, float]  # fractions at the end of annealing


def _uniform(half_width: float, dimensions: int) -> Callable:
    def start(key: jax.Array) -> jax.Array:
        return jax.random.uniform(key, (dimensions,), minval=-half_width, maxval=half_width)

    return start


def _rates(*rates: float) -> list[dict[str, Any]]:
    return [{"learning_rate": rate} for rate in rates]


def _starting_at(rate: float, *temperatures: float) -> list[dict[str, Any]]:
    return [{"learning_rate": rate, "temperature": t} for t in temperatures]


EXCHANGES = ("exactly_one", "deo_star")
_SGD_LADDERS = [
    {"learning_rate": (0.003, hot), "window": window} for hot in (0.1, 0.6) for window in (2, 8)
]
_LANGEVIN_LADDERS = [
    {"learning_rate": 0.016, "temperature": (0.05, hot), "window": window}
    for hot in (0.7, 1.2)
    for window in (4, 16)
]
PROBLEMS = {
    "modes25": Problem(
        name="25 modes, noisy",
        target=rx.targets.modes25(),
        energy=rx.targets.modes25_energy,
        start=_uniform(3.0, 2),
        dimensions=2,
        steps=(50, 100, 200, 400),
        thin=1,
        restart_steps=50,
        grids={
            **dict.fromkeys(EXCHANGES, _SGD_LADDERS),
            "restarts": _rates(0.003, 0.01, 0.03, 0.1),
            **dict.fromkeys(("annealing_p", "annealing_t"), _rates(0.05, 0.1, 0.3, 0.6)),
        },
        options={"temperature": 0.0, "buffer": 1.0, "buffer_gain": rx.Gain()},
        cooled={"learning_rate": 0.03},
    ),
    "rastrigin": Problem(
        name=f"Rastrigin, d = {DIMENSIONS}, exact",
        target=rastrigin(AMPLITUDE),
        energy=lambda x: rastrigin_energy(x, AMPLITUDE),
        start=_uniform(5.12, DIMENSIONS),
        dimensions=DIMENSIONS,
        steps=(500, 1000, 2000, 4000),
        thin=4,
        restart_steps=100,
        grids={
            **dict.fromkeys(EXCHANGES, _LANGEVIN_LADDERS),
            "restarts": _rates(0.016, 0.032, 0.048, 0.064),
            **dict.fromkeys(
                ("annealing_p", "annealing_t"), _starting_at(0.016, 0.7, 1.0, 1.5, 2.5)
            ),
        },
        options={"rule": "metropolis"},
        cooled={"temperature": 0.05},
    ),
}


def search(problem: Problem, method: str, budgets: tuple[int, ...], work: Work, **options: Any):
    """Run `method` and return the result of `_lowest`; for an exchange, also its swap rates."""
    if method in EXCHANGES:
        return _exchange(problem, budgets, work, schedule=method, **options)
    return _ALONE[method](problem, budgets, work, schedule="none", **options)


def _exchange(problem: Problem, budgets: tuple[int, ...], work: Work, **options: Any):
    options = {**problem.options, **options}
    posterior = _sample(problem, work, REPLICAS, num_steps=budgets[-1], **options)
    cold = np.asarray(problem.energy(posterior.draws))
    return {
        **_lowest(problem, *_visited(posterior), budgets),
        "window_swap_rate": posterior.window_swap_rate,  # (chain, pair)
        "cold_energy": cold[:, cold.shape[1] // 2 :].mean(axis=1),  # exact, of the second half
    }


def _restart(problem: Problem, budgets: tuple[int, ...], work: Work, **options: Any):
    """Run SGD from many starts; they are independent, so all run at once, as further chains."""
    num_starts = -(-budgets[-1] // problem.restart_steps)
    num_chains = options.pop("num_chains")
    options |= {"num_steps": problem.restart_steps, "temperature": 0.0, **_NO_TUNING}
    posterior = _sample(problem, work, REPLICAS, num_chains=num_chains * num_starts, **options)
    # One start after another.
    points, energies = (part.reshape(num_chains, -1, *part.shape[2:])
                        for part in _visited(posterior))  # fmt: skip
    return _lowest(problem, points, energies, budgets)


def _anneal(problem: Problem, budgets: tuple[int, ...], work: Work, stretch: int = 1, **options):
    """Run once for every budget, because the cooling rate depends on the number of steps."""
    records = []
    num_replicas = REPLICAS // stretch
    # A single number would be the temperature of the cold rung alone.
    options |= {"temperature": [options.get("temperature", 0.0)] * num_replicas, **_NO_TUNING}
    for budget in budgets:
        num_steps = stretch * budget
        kernel = rx.kernels.annealed(rx.kernels.sgld(), num_steps, **problem.cooled)
        posterior = _sample(
            problem, work, num_replicas, kernel=kernel, num_steps=num_steps, **options
        )
        records.append(_lowest(problem, *_visited(posterior), (budget,)))
    energy = np.concatenate([record["energy"] for record in records])
    return {"energy": energy, "picked": records[-1]["picked"]}


_ALONE = {
    "restarts": _restart,
    "annealing_p": _anneal,
    "annealing_t": functools.partial(_anneal, stretch=REPLICAS),
}
_NO_TUNING = {"adapt": False, "buffer": 0.0}  # without exchange there is nothing to adapt


def _sample(problem: Problem, work: Work, num_replicas: int, **options: Any) -> rx.Posterior:
    of_method, of_run = split_options(options)
    return work.sample(
        problem.target,
        problem.start,
        method=rx.Method("search", **of_method),
        num_replicas=num_replicas,
        draw_rungs="all",
        thin=problem.thin,
        burn_in=problem.thin - 1,  # so that the last step is recorded
        history_every=_HISTORY_EVERY,
        seed=1,
        **of_run,
    )


def _visited(posterior: rx.Posterior) -> tuple[np.ndarray, np.ndarray]:
    """Return the recorded points of all rungs, (chain, record, rung, dimension), and the energies
    that the run saw there, (chain, record, rung)."""
    rungs = range(posterior.num_replicas)
    points = np.stack([posterior.draws_at(rung) for rung in rungs], axis=2)
    return points, np.stack([posterior.energies_at(rung) for rung in rungs], axis=2)


def _lowest(
    problem: Problem, points: np.ndarray, energies: np.ndarray, budgets: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the lowest exact energy within each budget, and whether the best point is right.

    `energy` (budget, chain) is exact; `picked` (chain,) says whether the recorded point with the
    lowest noisy energy is in the basin of the global minimiser.
    """
    lowest = np.minimum.accumulate(np.asarray(problem.energy(points)).min(axis=2), axis=1)
    last = [lowest.shape[1] * budget // budgets[-1] - 1 for budget in budgets]
    seen = np.where(np.isfinite(energies), energies, np.inf).reshape(len(points), -1)
    candidates = points.reshape(*seen.shape, -1)
    picked = candidates[np.arange(len(points)), np.argmin(seen, axis=1)]
    return {"energy": lowest[:, last].T, "picked": np.all(np.abs(picked) < 0.5, axis=-1)}


def next_lowest(problem: Problem) -> float:
    """Return the energy of the second lowest minimum: one coordinate is near 1."""
    line = np.zeros((2001, problem.dimensions))
    line[:, 0] = np.linspace(0.5, 1.5, 2001)
    return float(np.asarray(problem.energy(line)).min())


def cells(scale: Scale) -> list[Cell]:
    common = {
        "seeds": scale.num_seeds(48, 24),  # for the results
        "choosing": scale.choose(16, 2),  # further seeds, for the choice of settings
        "settings": scale.choose(4, 1),
    }
    few = scale.choose(0, -2)
    # Annealing compiles a program for every budget: too long for a quick version.
    methods = [name for name in _METHODS if not (scale.quick and "annealing" in name)]
    return [
        Cell(
            f"{key}-{method}",
            {"problem": key, "method": method, "budgets": problem.steps[few:], **common},
        )
        for key, problem in PROBLEMS.items()
        for method in methods
    ]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    problem, method = PROBLEMS[settings["problem"]], settings["method"]
    num_chains = settings["choosing"] + settings["seeds"]
    return stack(
        [
            search(problem, method, settings["budgets"], work, num_chains=num_chains, **chosen)
            for chosen in problem.grids[method][: settings["settings"]]
        ]
    )


class Outcome(NamedTuple):
    """The result of a method on a problem, at its chosen setting."""

    problem: Problem
    method: str
    budgets: tuple[int, ...]
    chosen: dict[str, Any]
    probability: np.ndarray  # (budget,)
    picked: float  # how often the point of lowest noisy energy is in the right basin
    cold_energy: float  # exact mean on the cold rung, of an exchange
    n: int

    @property
    def error(self) -> np.ndarray:
        """Return the binomial standard error, with one more hit and one more miss."""
        smoothed = (self.probability * self.n + 1) / (self.n + 2)
        return np.sqrt(smoothed * (1 - smoothed) / self.n)

    def __str__(self) -> str:
        return f"{self.probability[-1]:.2f} ± {self.error[-1]:.2f} (n = {self.n})"


def outcome(settings: dict[str, Any], record: Any) -> Outcome:
    """Choose a setting on the first seeds and evaluate it on the others."""
    problem, choosing = PROBLEMS[settings["problem"]], settings["choosing"]
    hit = record["energy"] < next_lowest(problem)  # (setting, budget, seed)
    best = int(np.argmax(hit[:, :, :choosing].mean(axis=(1, 2))))
    return Outcome(
        problem,
        settings["method"],
        settings["budgets"],
        problem.grids[settings["method"]][best],
        hit[best, :, choosing:].mean(axis=1),
        float(record["picked"][best, choosing:].mean()),
        float(np.mean(record.get("cold_energy", np.full((best + 1, 1), np.nan))[best])),
        settings["seeds"],
    )


def _by_problem(results: Results) -> dict[str, dict[str, Outcome]]:
    outcomes: dict[str, dict[str, Outcome]] = {}
    for settings, record in results:
        by_method = outcomes.setdefault(settings["problem"], {})
        by_method[settings["method"]] = outcome(settings, record)
    return outcomes


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
    """Return exactly one minus at most one, for each setting that both could choose."""
    level, hits = next_lowest(PROBLEMS[key]), []
    for method in ("exactly_one", "deo_star"):
        ((settings, record),) = results.where(problem=key, method=method)
        hits.append((record["energy"][:, -1, settings["choosing"] :] < level).mean(axis=1))
    grid = PROBLEMS[key].grids["exactly_one"]
    return "; ".join(f"{_describe(a)}: {one - b:+.2f}" for a, one, b in zip(grid, *hits))


def notes(results: Results) -> list[str]:
    sentences = []
    for key, outcomes in _by_problem(results).items():
        one, other = outcomes["exactly_one"], outcomes["deo_star"]
        difference = one.probability[-1] - other.probability[-1]
        error = np.hypot(one.error[-1], other.error[-1])
        best = max(outcomes.values(), key=lambda outcome: outcome.probability.mean())
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


def _describe(chosen: dict[str, Any]) -> str:
    def value(x: Any) -> str:
        return " to ".join(map(number, x)) if isinstance(x, tuple) else number(x)

    return ", ".join(f"{name.replace('_', ' ')} {value(x)}" for name, x in chosen.items())


def tables(results: Results) -> list[Table]:
    tables = []
    for outcomes in _by_problem(results).values():
        first = next(iter(outcomes.values()))
        rows = [
            [_METHODS[method], *(f"{p:.2f} ± {e:.2f}" for p, e in zip(one.probability, one.error)),
             _describe(one.chosen), "; ".join(map(_describe, one.problem.grids[method]))]
            for method, one in outcomes.items()
        ]  # fmt: skip
        header = ["", *(f"{steps:,} steps" for steps in first.budgets), "chosen", "of"]
        title = f"Probability to hit, {first.problem.name} (n = {first.n})"
        tables.append(Table(title, header, rows))
    return tables


def figures(results: Results) -> dict[str, Any]:
    problems = _by_problem(results)
    figure = figure_style.new_figure(10.5, 4.2)
    for axes, outcomes in zip(figure.subplots(1, len(problems)), problems.values(), strict=True):
        for place, (method, one) in enumerate(outcomes.items()):
            shifted = np.array(one.budgets) * 1.025 ** (
                place - 2
            )  # so that error bars do not overlap
            axes.errorbar(shifted, one.probability, one.error, fmt="o-", ms=4, capsize=3,
                          color=figure_style.CHAINS[place], label=_METHODS[method])  # fmt: skip
        first = next(iter(outcomes.values()))
        axes.set_xscale("log", base=2)
        axes.set_xticks(first.budgets, [f"{steps:,}" for steps in first.budgets])
        axes.set_ylim(-0.04, 1.04)
        x = f"steps (of {REPLICAS} gradients each)"
        figure_style.label(axes, x, "probability of a hit", first.problem.name)
    figure_style.legend_below(axes)
    figure.set_label(
        "How often the global minimum was hit, against the budget (± binomial standard error)."
    )
    return {"hits": figure}


STUDY = Study("optimise", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
