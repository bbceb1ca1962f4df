"""The summary of a run: numbers for JSON, tables for a terminal."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax import theory
from replicax.results import diagnostics, done, evidence
from replicax.results.mixture import component_rows, missed
from replicax.results.problems import kept_energies, measured
from replicax.run.progress import format_bytes, format_seconds

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


_MOST_SHOWN = 8  # components of a mixture
_MOST_PARAMETERS = 12  # that are printed
_MOST_CHAINS = 4  # whose log evidences are printed
_OF_KERNELS = ("acceptance", "redraw_rate")  # that some measure, by rung


class Table(NamedTuple):
    """Numbers as text; the first column names the row."""

    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    title: str = ""


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
        done=_done(posterior),
        round_trips=posterior.round_trips.tolist(),
        round_trips_per_1000_steps=per_1000.tolist(),
        round_trips_per_1000_steps_expected=expected_trips(posterior),
        replicas_advised=posterior.replicas_advised,
        **ladder_numbers(posterior),
        buffer=posterior.buffer.tolist(),
        window_correction=posterior.window_correction.tolist(),
        ladder_moved=diagnostics.ladder_moved(posterior),
        mean_energy=posterior.energies.mean(axis=1).tolist() if posterior.num_draws else [],
        restart_rate=posterior.restart_rate.tolist(),
        jumps=_jumps(posterior),
        decided=posterior.metadata.resolved.decided,
        sweeps=posterior.sweeps,
        log_evidence=_log_evidence(posterior),
        one_start=posterior.metadata.resolved.one_start,
        parameters=_parameters(posterior),
        problems=posterior.problems(),
    )


def _done(posterior: "Posterior") -> dict[str, Any] | None:
    """Return the numbers by which it is decided whether a run is done, and whether it is; None for
    methods that cannot decide it."""
    if posterior.metadata.kind == "train" or not posterior.metadata.method.keeps_law:
        return None
    found = done.numbers(posterior)
    rows = {
        one.name: {"value": one.value, "wanted": one.wanted, "short": one.is_short, "of": one.of}
        for one in found
    }
    is_done = not any(one.is_short for one in found) and not posterior.problems()
    return {"is_done": is_done, "numbers": rows}


def _parameters(posterior: "Posterior") -> dict[str, dict[str, float]]:
    """Return the numbers of each component of the parameters, by its name."""
    components = posterior.components()
    over_replicas = diagnostics.replica_rhat(posterior, components)
    return {
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


def ladder_numbers(posterior: "Posterior") -> dict[str, Any]:
    """Return what is known of rungs and pairs, by chain, in the unit of the user."""
    energies = kept_energies(posterior) / posterior.energy_scale
    rates = posterior.learning_rates * posterior.energy_scale
    found = {
        "verdict_rate": posterior.verdict_rate,
        "window_swap_rate": posterior.window_swap_rate,
        "learning_rates": rates,
        "temperatures": posterior.temperatures * posterior.temperature_scale,
        "mean_energy_by_rung": energies.mean(axis=1) if energies.shape[1] else np.zeros(0),
        **{name: measured(posterior, name) for name in _OF_KERNELS},
    }
    return {name: None if x is None else x.tolist() for name, x in found.items()}


def _log_evidence(posterior: "Posterior") -> dict[str, Any] | None:
    """Return the log evidence with its standard error, by chain, and by all ways that there are;
    None if unknown."""
    found = posterior._evidences
    if not found:
        return None
    by, together = evidence.reported(found)
    return {
        **together._asdict(),
        "by": by,
        "by_chain": found[by].values.tolist(),
        "errors_by_chain": found[by].errors.tolist(),
        **{f"by_{name}": way.combined()._asdict() for name, way in found.items()},
    }


def render_log_evidence(found: dict[str, Any]) -> str:
    """Return a log evidence of a summary in words."""
    if not np.isfinite(found["standard_error"]):
        return "not known: neighbouring rungs share too few energies, more replicas would"
    ways = [name for name in ("ladder", "bridge") if f"by_{name}" in found]
    details = [f"by the {name} {_in_words(found[f'by_{name}'])}"
               for name in ways if name != found["by"]]  # fmt: skip
    together = _in_words(found) + (f" by the {found['by']}" if details else "")
    if len(found["by_chain"]) > 1:
        by_chain = ", ".join(f"{value:.2f}" for value in found["by_chain"][:_MOST_CHAINS])
        details.append(f"by chain {by_chain}")
    return f"{together} ({'; '.join(details)})" if details else together


def _in_words(found: dict[str, Any]) -> str:
    error = found["standard_error"]
    if not np.isfinite(error):
        return "not known"
    digits = int(np.clip(-np.floor(np.log10(max(error, 1e-9))), 2, 6))
    return f"{found['value']:.{digits}f} ± {error:.2g}"


def _jumps(posterior: "Posterior") -> dict[str, Any] | None:
    """Return how the coldest replica jumped as plain data."""
    jumps = posterior.jumps
    if jumps is None:
        return None
    plain = {name: np.asarray(jumps[name]).tolist() for name in ("accepted", "longest")}
    covered = missed(posterior)
    covers = None if covered is None else {"share": 1 - covered.mass, "error": covered.error}
    return {**jumps, **plain, "covers": covers, "mixture": component_rows(posterior)}


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


def render_summary(summary: dict[str, Any]) -> Any:
    """Return the summary as rich tables."""
    from rich.console import Group

    tables = [
        run_table(summary),
        done_table(summary),
        None if summary["sweeps"] else ladder_table(summary),
        mixture_table(summary, _MOST_SHOWN),
        parameter_table(summary, _MOST_PARAMETERS) if summary["parameters"] else None,
    ]
    omitted = len(summary["parameters"]) - _MOST_PARAMETERS
    more = [f"... and {omitted} more parameters (see --json)"] if omitted > 0 else []
    shown = [as_rich(table) for table in tables if table is not None]
    return Group(*shown, *more, *map(as_warning, summary["problems"]))


def as_rich(table: Table) -> Any:
    """Return a table as one of rich, for a terminal."""
    from rich.table import Table as RichTable

    shown = RichTable(
        *table.head, title=table.title, title_justify="left", show_header=any(table.head)
    )
    for row in table.rows:
        shown.add_row(*row)
    return shown


def as_warning(sentence: str) -> Any:
    """Return a problem in colour, for a terminal; what it quotes of a folder is no markup."""
    from rich.text import Text

    return Text.assemble(("Warning:", "yellow"), f" {sentence}")


def run_table(summary: dict[str, Any]) -> Table:
    """Return the facts of a run."""
    sweeps = summary["sweeps"]
    rows = [
        ("ended", summary["result"]["sentence"]),
        ("time, machine, peak memory", render_machine_use(summary)),
        *(_sweep_rows(sweeps) if sweeps else _step_rows(summary)),
        ("draws of the coldest rung, per chain", f"{summary['num_draws']:,}"),
    ]
    if summary["decided"]:
        rows.append(("rows", summary["decided"]))
    if summary["log_evidence"] is not None:
        rows.append(("log evidence", render_log_evidence(summary["log_evidence"])))
    if summary["jumps"]:
        rows += _jump_rows(summary["jumps"], "in each sweep" if sweeps else "after each step")
    if summary["done"] is None:  # else in a table of their own
        sizes = _known_of(summary, "effective_size")
        rows += [
            ("R-hat over chains, largest", _largest(_known_of(summary, "rhat"))),
            ("effective size, smallest", f"{min(sizes):,.0f}" if sizes else "-"),
        ]
    return Table(("", "value"), rows, "The run")


def _step_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what a run of steps did, and how its replicas moved."""
    sizes = f"{summary['num_steps']:,} x {summary['num_replicas']} x {summary['num_chains']}"
    rule = f"{summary['schedule']}, window {summary['window']}; {summary['rule']}"
    rows = [
        ("steps x replicas x chains", sizes),
        ("schedule, rule", rule),
        ("round trips per 1,000 steps", _join(summary["round_trips_per_1000_steps"])),
    ]
    if summary["round_trips_per_1000_steps_expected"]:
        expected = _join(summary["round_trips_per_1000_steps_expected"])
        rows.append(("  Lemma 1 at the measured swap rates", expected))
    if summary["rule"] == "deterministic":
        rows.append(("buffer", _join(summary["buffer"])))
    over = _largest(_known_of(summary, "replica_rhat"))
    blind = "; all started at one point, so unseen modes are not detected"
    rows.append(
        ("R-hat over replicas, largest", over + blind * (summary["one_start"] and over != "-"))
    )
    return rows


def _jump_rows(jumps: dict[str, Any], when: str) -> list[tuple[str, str]]:
    """Return how the coldest replica jumped, and what energies were evaluated for."""
    words = "none: no mixture was found whose proposals are accepted"
    if jumps["components"]:
        accepted = _join([100 * rate for rate in jumps["accepted"]])
        words = f"{jumps['proposals']} proposals of {jumps['components']} components, of which "
        words += f"{accepted} % are accepted"
    rows = [(f"jumps {when}", words)]
    if jumps["covers"]:
        words = "{share:.1%} ± {error:.1%} of the draws".format(**jumps["covers"])
        rows.append(("the mixture covers", words))
    if jumps["spared"]:
        words = f"{jumps['spared']:,} steps sooner than planned: nothing was left to learn"
        rows.append(("the burn-in ended", words))
    spent = ", ".join(f"{name} {count:,}" for name, count in jumps["evaluations"].items())
    return [*rows, ("energies evaluated", spent)]


def _sweep_rows(sweeps: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what sweeps took, and how far the finder's draws are from what the mixture covers."""
    seconds = sweeps["seconds"]
    kinds = {"minima": "to the minima", "learning": "to learn the mixture", "kept": "kept"}
    parts = [f"{sweeps[name]} {words} ({seconds[name]:.1f} s)" for name, words in kinds.items()]
    found = f"on {sweeps['finder_rows']:,} rows, {seconds['finder']:.1f} s"
    rows = [
        (f"sweeps over {sweeps['rows']:,} rows", ", ".join(parts)),
        ("  speed", f"{sweeps['rows_per_second']:,.0f} rows/s"),
        ("finder of the modes", found),
    ]
    if sweeps["estimated_from"] and sweeps["noise"]:
        words = f"from {sweeps['estimated_from']:,} rows, to ± {sweeps['noise'][-1]:.2g}"
        rows.append(("energies", f"{words}; by all rows ± {sweeps['error']:.2g}"))
    if sweeps["excess"]:
        heaviest = sweeps["excess"][-1]
        words = f"e^{heaviest:.1f} of all proposals of the last sweep"
        rows.append(("  its heaviest draw weighs", words))
    return rows


def done_table(summary: dict[str, Any]) -> Table | None:
    """Return the numbers by which a run is done, now and as they are wanted."""
    if summary["done"] is None:
        return None
    rows = []
    for name, row in summary["done"]["numbers"].items():
        number = done.Number(name, row["value"], row["wanted"], row["short"], of=row["of"])
        asked = row["short"] or not np.isnan(row["value"])
        shown = (number.shown, f"{row['wanted']:g}") if asked else ("-", "not asked for")
        rows.append((name, *shown, "short" if row["short"] else "", row["of"]))
    title = "Done" if summary["done"]["is_done"] else "Not done yet"
    return Table(("number", "now", "wanted", "", "of"), rows, title)


def _known_of(summary: dict[str, Any], name: str) -> list[float]:
    """Return a number of all parameters, where it is known."""
    return [row[name] for row in summary["parameters"].values() if not np.isnan(row[name])]


def _largest(rhats: list[float]) -> str:
    return f"{max(rhats):.3f}" if rhats else "-"


def ladder_table(summary: dict[str, Any]) -> Table:
    """Return the rungs of the first chain, from `ladder_numbers`."""
    more = {
        "mean energy": summary["mean_energy_by_rung"],
        "accepts": summary["acceptance"],
        "redrawn": summary["redraw_rate"],
    }
    more = {name: values[0] for name, values in more.items() if values}
    heads = ("rung", "learning rate", "temperature", "rule accepts", "swaps in a window", *more)
    rates = [summary[name][0] for name in ("verdict_rate", "window_swap_rate")]
    rows = []
    for rung, rate in enumerate(summary["learning_rates"][0]):
        pair = [f"{rates[rung]:.3f}" for rates in rates] if rung < len(rates[0]) else ["", ""]
        others = [f"{values[rung]:.4g}" for values in more.values()]
        temperature = f"{summary['temperatures'][0][rung]:.4g}"
        rows.append((str(rung), f"{rate:.4g}", temperature, *pair, *others))
    title = "The ladder (first chain; rates of the pair with the next rung)"
    return Table(heads, rows, title)


def mixture_table(summary: dict[str, Any], most: int) -> Table | None:
    """Return where the components of the mixture lie that proposes jumps, the heaviest ones; None
    where there is none."""
    rows = summary["jumps"]["mixture"] if summary["jumps"] else []
    if not rows:
        return None
    heads = ("component", "weight", "share of the draws", *rows[0]["at"])
    shown = []
    for number, row in enumerate(rows[:most]):
        places = [f"{mean:.4g} ± {std:.2g}" for mean, std in row["at"].values()]
        weight, share = f"{row['weight']:.3f}", _known(row["share"], ".3f")
        shown.append((str(number), weight, share, *places))
    more = f", {most} of {len(rows)}" if len(rows) > most else ""
    return Table(heads, shown, f"The mixture that proposes jumps{more}")


def parameter_table(summary: dict[str, Any], most: int) -> Table:
    """Return the first parameters."""
    heads = ("parameter", "mean", "std", "R-hat", "over replicas", "effective size", "in the tails")
    rows = []
    for name, row in list(summary["parameters"].items())[:most]:
        numbers = [f"{row[key]:.4g}" for key in ("mean", "std")]
        numbers += [_known(row[key], ".3f") for key in ("rhat", "replica_rhat")]
        numbers += [_known(row[key], ",.0f") for key in ("effective_size", "tail_size")]
        rows.append((name, *numbers))
    return Table(heads, rows, "The posterior")


def _known(value: float, form: str) -> str:
    return "-" if np.isnan(value) else format(value, form)


def _join(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
