"""The summary of a run: numbers for JSON, tables for a terminal."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax import theory
from replicax.results import diagnostics
from replicax.results.energy_problems import kept_energies, measured
from replicax.run.progress import format_bytes, format_seconds

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


class Summary(dict):
    """The numbers of a run as a dict for JSON, which prints as tables."""

    def __rich__(self) -> Any:
        return render_summary(self)

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=100)
        with console.capture() as capture:
            console.print(self)
        return capture.get()


def summarise(posterior: "Posterior") -> Summary:
    """Return the numbers of `Posterior.summary()`."""
    num_steps = posterior.num_steps
    per_1000 = posterior.round_trips / posterior.counted_steps * 1000
    components = posterior.components()
    over_replicas = diagnostics.replica_rhat(posterior, components)
    parameters = {
        name: {
            "mean": float(values.mean()),
            "std": float(values.std()),
            "rhat": diagnostics.rhat(values),
            "replica_rhat": over_replicas[name],
            "effective_size": diagnostics.bulk_size(values),
            "tail_size": diagnostics.tail_size(values),
        }
        for name, values in components.items()
    }
    return Summary(
        result=posterior.result._asdict(),
        **machine_use(posterior),
        num_steps=num_steps,
        num_replicas=posterior.num_replicas,
        num_chains=posterior.num_chains,
        num_draws=posterior.num_draws,
        schedule=posterior.metadata.resolved.schedule,
        rule=posterior.metadata.resolved.rule,
        window=posterior.window,
        round_trips=posterior.round_trips.tolist(),
        round_trips_per_1000_steps=per_1000.tolist(),
        round_trips_per_1000_steps_expected=expected_trips(posterior),
        replicas_advised=posterior.replicas_advised,
        verdict_rate=posterior.verdict_rate.tolist(),
        window_swap_rate=posterior.window_swap_rate.tolist(),
        learning_rates=posterior.learning_rates.tolist(),
        temperatures=posterior.temperatures.tolist(),
        buffer=posterior.buffer.tolist(),
        window_correction=posterior.window_correction.tolist(),
        ladder_moved=diagnostics.ladder_moved(posterior),
        mean_energy=posterior.energies.mean(axis=1).tolist() if posterior.num_draws else [],
        mean_energy_by_rung=_mean_energies(posterior),
        restart_rate=posterior.restart_rate.tolist(),
        acceptance=_by_rung(posterior, "acceptance"),
        excess_temperature=_by_rung(posterior, "excess_temperature"),
        one_start=posterior.metadata.resolved.one_start,
        parameters=parameters,
        problems=posterior.problems(),
    )


def machine_use(posterior: "Posterior") -> dict[str, Any]:
    """Return the devices of a run, its wall time in all processes and its peak memory in bytes."""
    return {
        "machine": posterior.metadata.machine,
        "seconds": float(posterior._final("seconds")),
        "peak_bytes": int(posterior._final("peak_bytes")),
    }


def render_machine_use(summary: dict[str, Any]) -> str:
    """Return the result of `machine_use` in words."""
    time, memory = format_seconds(summary["seconds"]), format_bytes(summary["peak_bytes"])
    return f"{time} on {summary['machine']}, {memory}"


def _mean_energies(posterior: "Posterior") -> list[list[float]]:
    """Return the mean energies after burn-in by chain and rung, from the history."""
    energies = kept_energies(posterior)
    return energies.mean(axis=1).tolist() if energies.shape[1] else []


def _by_rung(posterior: "Posterior", name: str) -> list[list[float]] | None:
    values = measured(posterior, name)
    return None if values is None else values.tolist()


def expected_trips(posterior: "Posterior") -> list[float] | None:
    """Return round trips per 1,000 steps by Lemma 1 at the measured swap rates per window.

    None if the lemma does not apply: other schedules, no gate, no alternation of parities.
    """
    resolved = posterior.metadata.resolved
    gated = resolved.swaps != "no_gate" and resolved.alternate
    if resolved.schedule != "windowed_deo" or not gated:
        return None
    steps = posterior.window * resolved.swap_every  # steps per window
    trips = []
    for rate in posterior.window_swap_rate:
        if np.all(rate > 0):
            trips.append(1000 * theory.round_trip_rate(1 - rate) / steps)
        else:  # nothing passes a pair that never swaps
            trips.append(0.0)
    return trips


def render_summary(summary: dict[str, Any], most_parameters: int = 12) -> Any:
    """Return the summary as rich tables."""
    from rich.console import Group

    parts: list[Any] = [_run_table(summary), _ladder_table(summary)]
    if summary["parameters"]:
        parts.append(_parameter_table(summary, most_parameters))
        omitted = len(summary["parameters"]) - most_parameters
        if omitted > 0:
            parts.append(f"... and {omitted} more parameters (see --json)")
    parts += [f"[yellow]Warning:[/yellow] {sentence}" for sentence in summary["problems"]]
    return Group(*parts)


def _run_table(summary: dict[str, Any]) -> Any:
    from rich.table import Table

    sizes = f"{summary['num_steps']:,} x {summary['num_replicas']} x {summary['num_chains']}"
    schedule = f"{summary['schedule']}, window {summary['window']}; {summary['rule']}"
    expected = summary["round_trips_per_1000_steps_expected"]
    table = Table("", "value", title="The run", title_justify="left")
    table.add_row("ended", summary["result"]["sentence"])
    table.add_row("time, machine, peak memory", render_machine_use(summary))
    table.add_row("steps x replicas x chains", sizes)
    table.add_row("draws of the coldest rung, per chain", f"{summary['num_draws']:,}")
    table.add_row("schedule, rule", schedule)
    table.add_row("round trips per 1,000 steps", _join(summary["round_trips_per_1000_steps"]))
    if expected:
        table.add_row("  Lemma 1 at the measured swap rates", _join(expected))
    if summary["replicas_advised"] is not None:
        table.add_row("replicas recommended by the barrier", str(summary["replicas_advised"]))
    table.add_row("buffer", _join(summary["buffer"]))
    table.add_row("ladder moved while draws were kept", _movement(summary["ladder_moved"]))
    table.add_row("R-hat over replicas, largest", _over_replicas(summary))
    if any(summary["window_correction"]):
        table.add_row("window correction", _join(summary["window_correction"]))
    return table


def _movement(moved: float) -> str:
    """Return a movement of the ladder in words: a percentage, or a factor if it is large."""
    return f"{moved:.1%}" if moved < 1 else f"by a factor of {1 + moved:.1f}"


def _over_replicas(summary: dict[str, Any]) -> str:
    rhats = [row["replica_rhat"] for row in summary["parameters"].values()]
    known = [rhat for rhat in rhats if not np.isnan(rhat)]
    if not known:
        exchanges = summary["num_replicas"] > 1 and summary["schedule"] != "none"
        return (
            ("not known: replicas reached the coldest rung too rarely")
            if rhats and exchanges
            else "-"
        )
    blind = "; all started at one point, so unseen modes are not detected"
    return f"{max(known):.3f}{blind if summary['one_start'] else ''}"


def _ladder_table(summary: dict[str, Any]) -> Any:
    from rich.table import Table

    more = {
        "mean energy": summary["mean_energy_by_rung"],
        "accepts": summary["acceptance"],
        "excess temperature": summary["excess_temperature"],
    }
    more = {name: values[0] for name, values in more.items() if values}
    heads = ("rung", "learning rate", "temperature", "rule accepts", "swaps in a window", *more)
    title = "The ladder (first chain; rates of the pair with the next rung)"
    table = Table(*heads, title=title, title_justify="left")
    for rung, rate in enumerate(summary["learning_rates"][0]):
        has_pair = rung < summary["num_replicas"] - 1
        table.add_row(
            str(rung),
            f"{rate:.4g}",
            f"{summary['temperatures'][0][rung]:.4g}",
            f"{summary['verdict_rate'][0][rung]:.3f}" if has_pair else "",
            f"{summary['window_swap_rate'][0][rung]:.3f}" if has_pair else "",
            *(f"{values[rung]:.4g}" for values in more.values()),
        )
    return table


def _parameter_table(summary: dict[str, Any], most: int) -> Any:
    from rich.table import Table

    heads = ("parameter", "mean", "std", "R-hat", "effective size", "in the tails")
    table = Table(*heads, title="The posterior", title_justify="left")
    for name, row in list(summary["parameters"].items())[:most]:
        mean, std = f"{row['mean']:.4g}", f"{row['std']:.4g}"
        sizes = (f"{row[size]:.0f}" for size in ("effective_size", "tail_size"))
        table.add_row(name, mean, std, f"{row['rhat']:.3f}", *sizes)
    return table


def _join(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
