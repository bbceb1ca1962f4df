"""Two problems with many minima, and methods to search for the lowest at equal budget."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import replicax as rx
from replicax.experiments.shared.study import Work

REPLICAS = 16
DIMENSIONS = 10
AMPLITUDE = 1.5
_HISTORY_STEPS = 500


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
        target=rx.targets.rastrigin(AMPLITUDE),
        energy=lambda x: rx.targets.rastrigin_energy(x, AMPLITUDE),
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
        **_lowest(problem, posterior, _points(posterior), budgets),
        "window_swap_rate": posterior.window_swap_rate,  # (chain, pair)
        "cold_energy": cold[:, cold.shape[1] // 2 :].mean(axis=1),  # exact, of the second half
    }


def _restart(problem: Problem, budgets: tuple[int, ...], work: Work, **options: Any):
    """Run SGD from many starts; they are independent, so all run at once, as further chains."""
    num_starts = -(-budgets[-1] // problem.restart_steps)
    num_chains = options.pop("num_chains")
    options |= {"num_steps": problem.restart_steps, "temperature": 0.0, **_NO_TUNING}
    posterior = _sample(problem, work, REPLICAS, num_chains=num_chains * num_starts, **options)
    points = _points(posterior)
    points = points.reshape(num_chains, -1, *points.shape[2:])  # one start after another
    return _lowest(problem, posterior, points, budgets)


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
        records.append(_lowest(problem, posterior, _points(posterior), (budget,)))
    energy = np.concatenate([record["energy"] for record in records])
    return {"energy": energy, "picked": records[-1]["picked"]}


_ALONE = {
    "restarts": _restart,
    "annealing_p": _anneal,
    "annealing_t": functools.partial(_anneal, stretch=REPLICAS),
}
_NO_TUNING = {"adapt": False, "buffer": 0.0}  # without exchange there is nothing to adapt


def _sample(problem: Problem, work: Work, num_replicas: int, **options: Any) -> rx.Posterior:
    return work.sample(
        problem.target,
        problem.start,
        num_replicas=num_replicas,
        draw_rungs="all",
        thin=problem.thin,
        burn_in=problem.thin - 1,  # so that the last step is recorded
        track_best=True,
        history_every=_HISTORY_STEPS,
        seed=1,
        **options,
    )


def _points(posterior: rx.Posterior) -> np.ndarray:
    """Return the recorded points of all replicas  (chain, record, replica, dimension)."""
    rungs = range(posterior.num_replicas)
    return np.stack([posterior.draws_at(rung) for rung in rungs], axis=2)


def _lowest(
    problem: Problem, posterior: rx.Posterior, points: np.ndarray, budgets: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return the lowest exact energy within each budget, and whether the best point is right.

    `energy` (budget, chain) is exact; `picked` (chain,) says whether the point with the lowest
    noisy energy is in the basin of the global minimiser.
    """
    lowest = np.minimum.accumulate(np.asarray(problem.energy(points)).min(axis=2), axis=1)
    last = [lowest.shape[1] * budget // budgets[-1] - 1 for budget in budgets]
    candidates, energies = (part.reshape(len(points), -1, *part.shape[1:])
                            for part in posterior.best_by_chain)  # fmt: skip
    picked = candidates[np.arange(len(points)), np.argmin(energies, axis=1)]
    return {"energy": lowest[:, last].T, "picked": np.all(np.abs(picked) < 0.5, axis=-1)}


def next_lowest(problem: Problem) -> float:
    """Return the energy of the second lowest minimum: one coordinate is near 1."""
    line = np.zeros((2001, problem.dimensions))
    line[:, 0] = np.linspace(0.5, 1.5, 2001)
    return float(np.asarray(problem.energy(line)).min())
