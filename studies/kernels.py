"""DEO* with SGD, momentum and preconditioned kernels on a badly scaled posterior."""

from typing import Any, NamedTuple

import numpy as np

import replicax as rx
from replicax.demo import draw_density
from replicax.results import figure_style
from studies.shared import toy
from studies.shared.study import (
    Cell,
    Finding,
    Measured,
    Results,
    Scale,
    Study,
    Table,
    Work,
    number,
    stack,
)

_STRETCH = (1.0, 10.0)


def stretched(target: rx.Target) -> rx.Target:
    """Return the target with stretched coordinates: positions divided by the stretch have the law
    of the plain one, and gradients and their noise are divided by it, as with mini-batches."""
    unit, gradient = np.asarray(_STRETCH, np.float32), target.gradient
    assert gradient is not None
    return rx.Target(
        lambda position, batch, noise: target.energy(position / unit, batch, noise),
        lambda position, batch, noise: gradient(position / unit, batch, noise) / unit,
        target.noise,
    )


_TARGET = stretched(rx.targets.modes25())
_KERNELS = {
    "sgld": "DEO*-SGD",
    "momentum": "DEO*-mSGD",
    "preconditioned": "DEO*-pSGD",
}
_RATES = {  # coldest and hottest rates to choose from, scaled so that x moves as in the toy
    "sgld": ((0.003, 0.01), (0.6, 0.8, 1.2)),
    "momentum": ((0.0003, 0.001), (0.12, 0.25, 0.5)),
    "preconditioned": ((0.03, 0.1), (6.0, 12.0, 24.0)),
}
_TITLE = "Kernels on a badly scaled posterior"
_ABOUT = """
The 25 modes of section 5.1 with the second coordinate ten times as long: a rate that suits the
first is a hundred times too small for the second. Energies and gradients are noisy as in the toy
(the gradient's noise shrinks with the gradient, as that of mini-batches would), 16 replicas, W = 8,
swap rate 0.4, Langevin noise of temperature 1 on the cold rung. Each kernel takes the same steps
at the best of six pairs of rates (cold and hot end): chosen on some seeds, by the mode TV, and
judged on others. Draws are mapped back, so that the truth is that of the plain 25 modes.
"""


def cells(scale: Scale) -> list[Cell]:
    settings = {
        "seeds": scale.num_seeds(16, 8),  # for the results
        "choosing": scale.choose(8, 4),  # further seeds, for the choice of rates
        "num_steps": scale.choose(20_000, 5_000),
        "pairs": scale.choose(6, 2),
    }
    return [Cell(kernel, {"kernel": kernel, **settings}) for kernel in _KERNELS]


def rate_pairs(settings: dict[str, Any]) -> list[tuple[float, float]]:
    colds, hots = _RATES[settings["kernel"]]
    return [(cold, hot) for cold in colds for hot in hots][-settings["pairs"] :]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    return stack([_measure(settings, rates, work) for rates in rate_pairs(settings)])


def _start(key: Any) -> Any:
    return rx.targets.modes25_start(key) * np.asarray(_STRETCH, np.float32)


def _measure(settings: dict[str, Any], rates: tuple[float, float], work: Work) -> dict[str, Any]:
    posterior = work.sample(
        _TARGET,
        _start,
        method=rx.deo_star(
            rates, window=8, kernel=settings["kernel"], buffer=4.0, buffer_gain=rx.Gain()
        ),
        num_chains=settings["choosing"] + settings["seeds"],
        num_steps=settings["num_steps"],
        num_replicas=16,
        burn_in=settings["num_steps"] // 10,
        thin=10,
        history_every=1000,
        on_nonfinite="ignore",
        seed=1,
    )
    draws = posterior.draws / np.asarray(_STRETCH)  # (seed, draw, 2)
    return {
        "trips": toy.trips_per_1000(posterior),
        "distance": np.array([rx.targets.mode_distance(chain) for chain in draws]),
        "masses": np.stack([rx.targets.mode_masses(chain) for chain in draws]),
        "learning_rates": posterior.learning_rates,  # (seed, rung)
        "verdict_rate": posterior.verdict_rate,
        "draws": draws[settings["choosing"] :, ::5].astype(np.float32),  # for the map
    }


class Outcome(NamedTuple):
    """A kernel at its chosen rates, on the seeds that were not used for the choice."""

    name: str
    rates: tuple[float, float]
    trips: Measured
    distance: Measured
    masses: np.ndarray  # (26,)
    verdict_rate: np.ndarray  # (pair,)
    learning_rates: np.ndarray  # (seed, rung)
    draws: np.ndarray  # (seed, draw, 2)
    mean_distance: list[float]  # of every pair of rates, on the choosing seeds


def outcomes(results: Results) -> dict[str, Outcome]:
    by_kernel = {}
    for settings, record in results:
        choosing = settings["choosing"]
        mean_distance = record["distance"][:, :choosing].mean(axis=1)
        best = int(np.argmin(mean_distance))
        chosen = {name: record[name][best, choosing:] for name in record if name != "draws"}
        by_kernel[settings["kernel"]] = Outcome(
            _KERNELS[settings["kernel"]],
            rate_pairs(settings)[best],
            Measured.of(chosen["trips"]),
            Measured.of(chosen["distance"]),
            chosen["masses"].mean(axis=0),
            chosen["verdict_rate"].mean(axis=0),
            chosen["learning_rates"],
            record["draws"][best],
            mean_distance.tolist(),
        )
    return by_kernel


def far_mass(masses: np.ndarray) -> float:
    """Return the mass of the modes at y = -2 and 2, far from all initial replicas."""
    return float(masses[:25].reshape(5, 5)[:, [0, 4]].sum() / masses[:25].sum())


def findings(results: Results) -> list[Finding]:
    kernels = outcomes(results)
    rows = []
    for kernel in kernels.values():
        rows.append(Finding(f"trips per 1,000 steps, {kernel.name}", "", kernel.trips))
        rows.append(Finding(f"mode TV, {kernel.name}", "0", kernel.distance))
    rates = [kernel.verdict_rate.mean() for kernel in kernels.values()]
    worst = max(rates, key=lambda rate: abs(rate - 0.4))
    met = bool(abs(worst - 0.4) <= 0.02)
    rows.append(Finding("verdicts per step, farthest from the target", "0.4", worst, "± 0.02", met))
    ratio = kernels["preconditioned"].distance.mean / kernels["sgld"].distance.mean
    rows.append(Finding("mode TV, pSGD over SGD", "", ratio, "below 1", bool(ratio < 1)))
    return rows


def notes(results: Results) -> list[str]:
    kernels = outcomes(results)
    far = ", ".join(f"{kernel.name} {far_mass(kernel.masses):.3f}" for kernel in kernels.values())
    truth = far_mass(rx.targets.modes25_truth())
    trips = [kernel.trips.mean for kernel in kernels.values()]
    distances = [kernel.distance.mean for kernel in kernels.values()]
    names = [kernel.name for kernel in kernels.values()]
    edge = [one.name for key, one in kernels.items() if one.rates[1] == max(_RATES[key][1])]
    return [
        f"Most round trips: {names[int(np.argmax(trips))]} ({max(trips):.1f} per 1,000 steps); "
        f"lowest mode TV: {names[int(np.argmin(distances))]} ({min(distances):.3f}). Trips count "
        "how often replicas climb the ladder, not how far they get in the long coordinate "
        "meanwhile.",
        f"Mass of the modes at the two ends of the long coordinate, truth {truth:.3f}: {far}.",
        "At the largest hot rate to choose from, where a larger one might do better still: "
        f"{', '.join(edge) or 'none'}.",
    ]


def tables(results: Results) -> list[Table]:
    kernels = outcomes(results)
    rows = [
        [kernel.name, " to ".join(map(number, kernel.rates)), kernel.trips, kernel.distance,
         far_mass(kernel.masses), kernel.verdict_rate.min(), kernel.verdict_rate.max()]
        for kernel in kernels.values()
    ]  # fmt: skip
    header = ["", "rates chosen", "trips per 1,000 steps", "mode TV", "mass at both ends of y",
              "least verdict rate", "most"]  # fmt: skip
    choices = [
        [_KERNELS[settings["kernel"]], " to ".join(map(number, rates)), distance]
        for settings, _ in results
        for rates, distance in zip(
            rate_pairs(settings), kernels[settings["kernel"]].mean_distance, strict=True
        )
    ]
    ladders = [
        [kernel.name, *(number(rate) for rate in kernel.learning_rates.mean(axis=0))]
        for kernel in kernels.values()
    ]
    return [
        Table("By kernel", header, rows),
        Table("Final ladders (mean over seeds)", ["", *map(str, range(16))], ladders),
        Table("Rates to choose from", ["", "rates", "mode TV on the choosing seeds"], choices),
    ]


def figures(results: Results) -> dict[str, Any]:
    kernels = outcomes(results)
    return {"densities": _densities(kernels), "bars": _bars(kernels)}


def _densities(kernels: dict[str, Outcome]) -> Any:
    figure = figure_style.new_figure(3.1 * (len(kernels) + 1), 3.5)
    first, *others = figure.subplots(1, len(kernels) + 1, sharey=True)
    draw_density(first, None, "truth")
    for axes, kernel in zip(others, kernels.values(), strict=True):
        title = f"{kernel.name}, TV {kernel.distance.mean:.2f}"
        draw_density(axes, kernel.draws, title)
        axes.set_ylabel("")
    first.set_ylabel(f"y / {number(_STRETCH[1])}")
    figure.set_label("Draws of all seeds, mapped back to the plain 25 modes, beside the truth.")
    return figure


def _bars(kernels: dict[str, Outcome]) -> Any:
    figure = figure_style.new_figure(10.5, 3.8)
    trips, distance, ladder = figure.subplots(1, 3)
    names = [kernel.name for kernel in kernels.values()]
    shades = figure_style.CHAINS[: len(kernels)]
    for axes, part, title in (
        (trips, "trips", "round trips / 1,000 steps"),
        (distance, "distance", "mode TV"),
    ):
        values = [getattr(kernel, part) for kernel in kernels.values()]
        axes.bar(names, [v.mean for v in values], yerr=[v.std for v in values], color=shades,
                 width=0.6, capsize=4, ecolor=figure_style.INK)  # fmt: skip
        figure_style.label(axes, "", title, f"± sd of {values[0].n} seeds")
    for kernel, shade in zip(kernels.values(), shades, strict=True):
        rates = kernel.learning_rates.mean(axis=0)
        ladder.plot(np.arange(len(rates)), rates, "o-", ms=3, color=shade, label=kernel.name)
    ladder.set_yscale("log")
    figure_style.label(ladder, "rung", "learning rate", "final ladders")
    figure_style.legend(ladder)
    figure.set_label("Round trips, distance from the truth and final ladder of each kernel.")
    return figure


STUDY = Study("kernels", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
