"""Predictions for a ladder before it runs, printed by `replicax plan`."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from replicax.theory import noise, round_trips
from replicax.theory.inputs import (
    check_non_negative,
    check_num_replicas,
    check_swap_rate,
    check_temperatures,
)

SCHEMES = {"adj": "ADJ", "seo": "SEO", "deo": "DEO", "deo_star": "DEO*"}
_STEPS = (
    "SEO, DEO, DEO*: one step = one set of attempts, all in parallel",
    "ADJ: one step = one sweep of P-1 attempts in sequence",
)


def plan(
    num_replicas: int,
    target_swap_rate: float,
    *,
    energy_noise_std: ArrayLike | None = None,
    temperatures: ArrayLike | None = None,
) -> dict[str, Any]:
    """Return predictions for P replicas whose pairs all swap at rate S, as data for JSON.

    Times are steps of one replica, coldest to hottest rung and back; round trips are those of all
    replicas together. `energy_noise_std` and `temperatures` go together and are those of
    `theory.optimal_num_replicas`.

    >>> answer = plan(16, 0.4)
    >>> answer["window"], answer["window_exact"]
    (8, 7)
    >>> {scheme: round(trips, 1) for scheme, trips in answer["round_trips_per_1000_steps"].items()}
    {'adj': 42.6, 'seo': 13.3, 'deo': 21.3, 'deo_star': 49.8}
    """
    num_replicas, swap_rate = check_num_replicas(num_replicas), check_swap_rate(target_swap_rate)
    rejection_rate = 1 - swap_rate
    window = round_trips.optimal_window(num_replicas, swap_rate)
    exact = round_trips.optimal_window(num_replicas, swap_rate, exact=True)
    deo, deo_star, fastest = (
        float(round_trips.round_trip_time(rejection_rate, steps, num_replicas))
        for steps in (1, window, exact)
    )
    times = {
        "adj": round_trips.round_trip_time_adj(rejection_rate, num_replicas),
        "seo": round_trips.round_trip_time_seo(rejection_rate, num_replicas),
        "deo": deo,
        "deo_star": deo_star,
    }
    answer = {
        "num_replicas": num_replicas,
        "target_swap_rate": swap_rate,
        "window": window,
        "window_exact": exact,
        "extra_time": deo_star / fastest - 1,  # of the window, beside the exact one
        "round_trip_time": times,
        "round_trips_per_1000_steps": {
            scheme: 1000 * num_replicas / time for scheme, time in times.items()
        },
        "attempts_per_step": _attempts(num_replicas, swap_rate, window),
        "num_replicas_worth_having": _worth_having(num_replicas, energy_noise_std, temperatures),
    }
    return answer | {"notes": _notes(answer)}


def render(answer: dict[str, Any]) -> Any:
    """Return the plan as rich tables: `rich.print(render(plan(16, 0.4)))`."""
    from rich.console import Group
    from rich.table import Table

    head = Table(title="Plan", show_header=False)
    head.add_row("replicas", f"{answer['num_replicas']:,}")
    head.add_row("target swap rate", f"{answer['target_swap_rate']:g}")
    head.add_row("window (Theorem 1)", f"{answer['window']:,}")
    head.add_row("window (exact minimiser)", f"{answer['window_exact']:,}")
    for exponent, count in (answer["num_replicas_worth_having"] or {}).items():
        bounds = f"bounds {count['lower']:.1f} to {count['upper']:.1f}"
        head.add_row(f"worth having ({exponent})", f"{count['num_replicas']:,}, {bounds}")
    trips = Table("scheme", title="Round trips")
    for column in ("round-trip time", "trips / 1000 steps", "attempts / step"):
        trips.add_column(column, justify="right")
    for scheme, title in SCHEMES.items():
        trips.add_row(
            title,
            f"{answer['round_trip_time'][scheme]:,.1f}",
            f"{answer['round_trips_per_1000_steps'][scheme]:,.4g}",
            f"{answer['attempts_per_step'][scheme]:,.3g}",
        )
    return Group(head, trips, *(f"- {line}" for line in [*_STEPS, *answer["notes"]]))


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
    levels = check_non_negative("energy_noise_std", energy_noise_std)
    if num_temperatures not in (2, num_replicas) or levels.size not in (1, num_replicas - 1):
        raise ValueError(
            f"{num_replicas} replicas have {num_replicas} temperatures, given as (cold, hot) or "
            f"one per rung, and {num_replicas - 1} pairs, with one energy_noise_std or one per "
            "pair."
        )
    return {
        exponent: noise.optimal_num_replicas(levels, temperatures, exponent)._asdict()
        for exponent in ("corrected", "paper")
    }


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
        notes.append(
            f"Theorem 1's window {answer['window']} costs {answer['extra_time']:.1%} more time "
            f"than the exact minimiser {answer['window_exact']}."
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
