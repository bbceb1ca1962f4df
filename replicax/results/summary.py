"""Words and numbers for people: progress on long runs, and the summary of a finished one."""

from typing import Any

import numpy as np

from replicax import theory
from replicax.results import diagnostics

_RHAT_FINE = 1.01
_HARDLY_EVER = 0.01  # of windows
_FEW_WINDOWS = 10  # too few to judge a pair by


class Summary(dict):
    """Numbers about a run, ready for JSON; printed, they are tables."""

    def __rich__(self) -> Any:
        return render_summary(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100)
        with console.capture() as capture:
            console.print(self)
        return capture.get()


def summarise(posterior: Any) -> Summary:
    """The numbers of `Posterior.summary()`."""
    steps, num_replicas = posterior.num_steps, posterior.num_replicas
    per_1000 = posterior.round_trips / max(steps, 1) * 1000
    parameters = {
        name: {
            "mean": float(values.mean()),
            "std": float(values.std()),
            "rhat": diagnostics.split_rhat(values),
            "effective_size": diagnostics.effective_size(values),
        }
        for name, values in posterior.components().items()
    }
    numbers = {
        "result": posterior.result._asdict(),
        "num_steps": steps,
        "num_replicas": num_replicas,
        "num_chains": posterior.num_chains,
        "num_draws": posterior.num_draws,
        "schedule": posterior.options["schedule"],
        "rule": posterior.options["rule"],
        "window": posterior.window,
        "round_trips": posterior.round_trips.tolist(),
        "round_trips_per_1000_steps": per_1000.tolist(),
        "round_trips_per_1000_steps_expected": expected_trips(posterior),
        "verdict_rate": posterior.verdict_rate.tolist(),
        "window_swap_rate": posterior.window_swap_rate.tolist(),
        "learning_rates": posterior.learning_rates.tolist(),
        "temperatures": posterior.temperatures.tolist(),
        "buffer": posterior.buffer.tolist(),
        "window_correction": posterior.window_correction.tolist(),
        "mean_energy": posterior.energies.mean(axis=1).tolist() if posterior.num_draws else [],
        "parameters": parameters,
        "problems": posterior.problems(),
    }
    return Summary(numbers)


def expected_trips(posterior: Any) -> list[float] | None:
    """Round trips per 1,000 steps by Lemma 1, from the measured per-window swap rates.

    None where the lemma does not apply: other schedules, no gate, windows that do not alternate.
    """
    options = posterior.options
    gated = options["swaps"] != "no_gate" and options["alternate"]
    if options["schedule"] != "windowed_deo" or not gated:
        return None
    trips = []
    for rate in posterior.window_swap_rate:
        if np.all(rate > 0):
            trips.append(1000 * theory.round_trip_rate(1 - rate) / posterior.window)
        else:  # a pair that never swaps lets nobody through
            trips.append(0.0)
    return trips


def find_problems(posterior: Any) -> list[str]:
    """Reasons not to trust a run, as sentences with what to do."""
    checks = (_no_round_trip, _negative_buffer, _window_bias, _broken_ladder)
    found = [check(posterior) for check in checks]
    if posterior.result.code in ("nonfinite", "batches_ended"):
        found.append(posterior.result.sentence)
    return [sentence for sentence in found if sentence is not None]


def _exchanges(posterior: Any) -> bool:
    return posterior.options["schedule"] != "none" and posterior.num_replicas > 1


def _no_round_trip(posterior: Any) -> str | None:
    lonely = np.flatnonzero(posterior.round_trips == 0)
    if not _exchanges(posterior) or lonely.size == 0 or posterior.num_draws < 4:
        return None
    seen = [diagnostics.split_rhat(x) for x in posterior.components().values()]
    worst = max(seen, default=np.inf)
    if not worst < _RHAT_FINE:
        return None
    return (
        f"R-hat looks fine ({worst:.3f}), but chain {lonely[0]} made no round trip: nothing from "
        "the hottest rung reached the target, and modes may be missing."
    )


def _negative_buffer(posterior: Any) -> str | None:
    if posterior.options["rule"] != "deterministic" or np.all(posterior.buffer >= 0):
        return None
    return (
        f"The buffer ended below zero ({posterior.buffer.min():.3g}): swaps send higher energies "
        "to the cold rung. Lower target_swap_rate, or narrow the ladder."
    )


def _window_bias(posterior: Any) -> str | None:
    options = posterior.options
    exact = options["rule"] in ("metropolis", "bias_corrected")
    if not exact or options["window"] == 1 or options["swaps"] == "no_gate":
        return None
    return (
        f'The rule "{options["rule"]}" is exact for window=1 only: at most one swap in a window '
        f"of {options['window']} steps favours what hot rungs send. Write window=1, or correct "
        "for it with rule=rx.swap.window_corrected(...)."
    )


def _broken_ladder(posterior: Any) -> str | None:
    rate = posterior.window_swap_rate
    if not _exchanges(posterior) or posterior.num_windows.min() < _FEW_WINDOWS:
        return None
    # Where swaps are meant to be rare, rare ones are no fault.
    if rate.min() >= min(_HARDLY_EVER, posterior.options["target_swap_rate"] / 5):
        return None
    chain, pair = np.unravel_index(int(np.argmin(rate)), rate.shape)
    return (
        f"Pair {pair} of chain {chain} hardly ever swaps ({rate.min():.2%} of its windows): the "
        "ladder is broken there. Add replicas or narrow the ladder."
    )


def render_summary(summary: dict[str, Any], most_parameters: int = 12) -> Any:
    """The summary as tables for a terminal."""
    from rich.console import Group
    from rich.table import Table

    run = Table("", "value", title="The run", title_justify="left")
    run.add_row("ended", summary["result"]["sentence"])
    run.add_row(
        "steps x replicas x chains",
        f"{summary['num_steps']:,} x {summary['num_replicas']} x {summary['num_chains']}",
    )
    run.add_row("draws of the coldest rung, per chain", f"{summary['num_draws']:,}")
    run.add_row(
        "schedule, rule", f"{summary['schedule']}, window {summary['window']}; {summary['rule']}"
    )
    run.add_row("round trips per 1,000 steps", _numbers(summary["round_trips_per_1000_steps"]))
    if summary["round_trips_per_1000_steps_expected"]:
        run.add_row(
            "  Lemma 1 at the measured swap rates",
            _numbers(summary["round_trips_per_1000_steps_expected"]),
        )
    run.add_row("buffer", _numbers(summary["buffer"]))
    if any(summary["window_correction"]):
        run.add_row("window correction", _numbers(summary["window_correction"]))
    ladder = Table(
        "rung",
        "learning rate",
        "temperature",
        "says yes",
        "swaps in a window",
        title="The ladder (first chain; rates of the pair with the next rung)",
        title_justify="left",
    )
    for rung, rate in enumerate(summary["learning_rates"][0]):
        pair = rung < summary["num_replicas"] - 1
        ladder.add_row(
            str(rung),
            f"{rate:.4g}",
            f"{summary['temperatures'][0][rung]:.4g}",
            f"{summary['verdict_rate'][0][rung]:.3f}" if pair else "",
            f"{summary['window_swap_rate'][0][rung]:.3f}" if pair else "",
        )
    parts: list[Any] = [run, ladder]
    if summary["parameters"]:
        table = Table(
            "parameter",
            "mean",
            "std",
            "R-hat",
            "effective size",
            title="The posterior",
            title_justify="left",
        )
        for name, row in list(summary["parameters"].items())[:most_parameters]:
            table.add_row(
                name,
                f"{row['mean']:.4g}",
                f"{row['std']:.4g}",
                f"{row['rhat']:.3f}",
                f"{row['effective_size']:.0f}",
            )
        parts.append(table)
        left = len(summary["parameters"]) - most_parameters
        if left > 0:
            parts.append(f"... and {left} more parameters (see --json)")
    parts += [f"[yellow]Warning:[/yellow] {sentence}" for sentence in summary["problems"]]
    return Group(*parts)


def _numbers(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
