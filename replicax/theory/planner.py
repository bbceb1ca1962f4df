"""Predictions for a ladder before it runs, printed by `replicax plan`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from replicax.errors import at_least
from replicax.theory import noise, round_trips
from replicax.theory.inputs import (
    check_non_negative,
    check_num_replicas,
    check_swap_rate,
    check_temperatures,
)

SCHEMES = {"adj": "ADJ", "seo": "SEO", "deo": "DEO", "deo_star": "DEO*"}

UNITS = {
    "step": "SEO, DEO, DEO*: one step = one set of attempts, all in parallel",
    "sweep": "ADJ: one step = one sweep of P-1 attempts in sequence",
    "round_trip_time": "expected steps of one replica, coldest to hottest rung and back",
    "round_trips_per_1000_steps": "all replicas together",
    "attempts_per_step": "mean number of pairs that may swap; a closed gate does not count",
    "sequential_attempts_per_step": "attempts that wait for each other",
    "memory_bytes": "replicas x copies x parameters x bytes; activations and draws come on top",
}


def plan(
    num_replicas: int,
    target_swap_rate: float,
    *,
    energy_noise_std: ArrayLike | None = None,
    temperatures: ArrayLike | None = None,
    num_params: int | None = None,
) -> dict[str, Any]:
    """Return predictions for P replicas whose pairs all swap at rate S, as data for JSON.

    `energy_noise_std` and `temperatures` go together and are those of
    `theory.optimal_num_replicas`; the memory is that of parameters, momentum and gradient.

    >>> answer = plan(16, 0.4, num_params=278_324)
    >>> answer["window"], answer["window_exact"], answer["memory_bytes"]
    (8, 7, 53438208)
    >>> {scheme: round(trips, 1) for scheme, trips in answer["round_trips_per_1000_steps"].items()}
    {'adj': 42.6, 'seo': 13.3, 'deo': 21.3, 'deo_star': 49.8}
    """
    num_replicas, swap_rate = check_num_replicas(num_replicas), check_swap_rate(target_swap_rate)
    window = round_trips.optimal_window(num_replicas, swap_rate)
    exact = round_trips.optimal_window(num_replicas, swap_rate, exact=True)
    times = _round_trip_times(num_replicas, 1 - swap_rate, window)
    exact_time = float(round_trips.round_trip_time(1 - swap_rate, exact, num_replicas))
    answer = {
        "num_replicas": num_replicas,
        "target_swap_rate": swap_rate,
        "window": window,
        "window_exact": exact,
        "window_comparison": {
            "window": {"window": window, "round_trip_time": times["deo_star"]},
            "window_exact": {"window": exact, "round_trip_time": exact_time},
            "extra_time": times["deo_star"] / exact_time - 1,
        },
        "round_trip_time": times,
        "round_trips_per_1000_steps": {
            scheme: 1000 * num_replicas / time for scheme, time in times.items()
        },
        "attempts_per_step": _attempts(num_replicas, swap_rate, window),
        "sequential_attempts_per_step": {
            scheme: num_replicas - 1 if scheme == "adj" else 1 for scheme in SCHEMES
        },
        "num_replicas_worth_having": _worth_having(num_replicas, energy_noise_std, temperatures),
        "memory_bytes": _memory(num_replicas, num_params),
        "units": dict(UNITS),
    }
    return answer | {"notes": _notes(answer)}


def render(answer: dict[str, Any]) -> Any:
    """Return the plan as rich tables: `rich.print(render(plan(16, 0.4)))`."""
    from rich.console import Group
    from rich.table import Table

    head = Table(title="Plan", show_header=False)
    for name, value in _headlines(answer):
        head.add_row(name, value)
    trips = Table("scheme", title="Round trips")
    for column in ("round-trip time", "trips / 1000 steps", "attempts / step", "in sequence"):
        trips.add_column(column, justify="right")
    for scheme, title in SCHEMES.items():
        trips.add_row(
            title,
            f"{answer['round_trip_time'][scheme]:,.1f}",
            f"{answer['round_trips_per_1000_steps'][scheme]:,.4g}",
            f"{answer['attempts_per_step'][scheme]:,.3g}",
            f"{answer['sequential_attempts_per_step'][scheme]:,}",
        )
    units = [UNITS["step"], UNITS["sweep"]]
    return Group(head, trips, *(f"- {line}" for line in [*units, *answer["notes"]]))


def _round_trip_times(num_replicas: int, rejection_rate: float, window: int) -> dict[str, float]:
    return {
        "adj": round_trips.round_trip_time_adj(rejection_rate, num_replicas),
        "seo": round_trips.round_trip_time_seo(rejection_rate, num_replicas),
        "deo": float(round_trips.round_trip_time(rejection_rate, 1, num_replicas)),
        "deo_star": float(round_trips.round_trip_time(rejection_rate, window, num_replicas)),
    }


def _attempts(num_replicas: int, swap_rate: float, window: int) -> dict[str, float]:
    """A pair attempts swaps (1 - r^W) / (1 - r) times per window of DEO*, until it has swapped."""
    half = (num_replicas - 1) / 2
    per_window = -np.expm1(window * np.log1p(-swap_rate)) / swap_rate
    deo_star = half * float(per_window) / window
    return {"adj": num_replicas - 1.0, "seo": half, "deo": half, "deo_star": deo_star}


def _worth_having(
    num_replicas: int, energy_noise_std: ArrayLike | None, temperatures: ArrayLike | None
) -> dict[str, Any] | None:
    if energy_noise_std is None and temperatures is None:
        return None
    if energy_noise_std is None or temperatures is None:
        raise ValueError(
            "Give energy_noise_std=... and temperatures=... together, or neither: the optimal "
            "number of replicas depends on both."
        )
    num_temperatures = check_temperatures(temperatures).size
    levels = check_non_negative(energy_noise_std, "energy_noise_std")
    if num_temperatures not in (2, num_replicas):
        raise ValueError(
            f"{num_temperatures} temperatures for {num_replicas} replicas; give (cold, hot) or one "
            "per rung."
        )
    if levels.shape not in ((), (num_replicas - 1,)):
        raise ValueError(
            f"energy_noise_std has shape {levels.shape} but {num_replicas} replicas make "
            f"{num_replicas - 1} pairs; give one number, or one per pair."
        )
    return {
        exponent: noise.optimal_num_replicas(levels, temperatures, exponent)._asdict()
        for exponent in ("corrected", "paper")
    }


def _memory(num_replicas: int, num_params: int | None) -> int | None:
    if num_params is None:
        return None
    at_least("num_params", num_params, 1)
    return num_replicas * 3 * int(num_params) * 4  # copies, and bytes of a float


def _notes(answer: dict[str, Any]) -> list[str]:
    notes, times = [], answer["round_trip_time"]
    if answer["num_replicas"] <= 3:
        notes.append("Up to 3 replicas window 1 is best: DEO* is DEO here (Theorem 1).")
    elif times["deo_star"] > times["deo"]:
        notes.append(
            f"Theorem 1's window {answer['window']} is slower than window 1 here (it holds for "
            f"more replicas or fewer swaps); use window {answer['window_exact']}."
        )
    elif answer["window"] != answer["window_exact"]:
        extra = answer["window_comparison"]["extra_time"]
        notes.append(
            f"Theorem 1's window {answer['window']} costs {extra:.1%} more time than the exact "
            f"minimiser {answer['window_exact']}."
        )
    worth = answer["num_replicas_worth_having"]
    if worth is not None:
        few = answer["num_replicas"] < worth["corrected"]["num_replicas"]
        notes.append(
            f"Bias-corrected swaps under this noise are worth {worth['corrected']['num_replicas']} "
            f"replicas ({worth['paper']['num_replicas']} with the paper's exponent)"
            + ("; below that, aim for a swap rate and let a window help." if few else ".")
        )
    return notes


def _headlines(answer: dict[str, Any]) -> list[tuple[str, str]]:
    lines = [
        ("replicas", f"{answer['num_replicas']:,}"),
        ("target swap rate", f"{answer['target_swap_rate']:g}"),
        ("window (Theorem 1)", f"{answer['window']:,}"),
        ("window (exact minimiser)", f"{answer['window_exact']:,}"),
    ]
    for exponent, count in (answer["num_replicas_worth_having"] or {}).items():
        bounds = f"bounds {count['lower']:.1f} to {count['upper']:.1f}"
        lines.append((f"worth having ({exponent})", f"{count['num_replicas']:,}, {bounds}"))
    if answer["memory_bytes"] is not None:
        lines.append(("memory", f"{answer['memory_bytes'] / 2**20:,.1f} MiB, activations apart"))
    return lines
