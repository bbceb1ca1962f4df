"""The first section of a report: warnings, and the main numbers of the run and its draws."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.page.content import Section, Table, Warnings
from replicax.results.summary import Summary, render_machine_use

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_NO_PROBLEM = (
    "No check found a reason not to trust this run. Checked: its distribution, ladder, swap rates "
    "and round trips, R-hat over chains and replicas, and effective sizes."
)
_NO_PROBLEM_OF_NETWORKS = (
    "No check found a reason not to trust this run. Checked: its losses, ladder, swap rates and "
    "round trips."
)
_RUNNING = "No check has found a problem so far; the run continues."


def glance_section(posterior: "Posterior", summary: Summary) -> Section:
    """Return the first section of a page."""
    return Section(
        "glance", "At a glance", [warnings_of(posterior, summary), _numbers(posterior, summary)]
    )


def warnings_of(posterior: "Posterior", summary: dict[str, Any]) -> Warnings:
    """Return the problems of a run, with the sentence to show if there are none."""
    sentences = [split_remedy(sentence) for sentence in summary["problems"]]
    if posterior.result.code == "running":
        return Warnings(sentences, _RUNNING)
    trains = posterior.metadata.kind == "train"
    return Warnings(sentences, _NO_PROBLEM_OF_NETWORKS if trains else _NO_PROBLEM)


def split_remedy(sentence: str) -> tuple[str, str]:
    """Split a problem into its description and its remedy: the sentences after the first, or what
    follows the colon.

    >>> split_remedy("R-hat is 1.2: chains differ. Run longer.")
    ('R-hat is 1.2: chains differ.', 'Run longer.')
    >>> split_remedy("Its law is not known: write temperature=1.")
    ('Its law is not known.', 'Write temperature=1.')
    """
    what, stop, remedy = sentence.partition(". ")
    if stop:
        return f"{what}.", remedy
    what, colon, remedy = sentence.partition(": ")
    return (f"{what}.", remedy[:1].upper() + remedy[1:]) if colon else (sentence, "")


def subtitle(posterior: "Posterior") -> str:
    """Return a one-line description of the run."""
    note = posterior.metadata.note
    named = note.get("target") or note.get("task") or {}
    names = [named[key] for key in ("target", "model", "data") if isinstance(named, dict)
             and isinstance(named.get(key), str)]  # fmt: skip
    what = f"{' on '.join(names)}; " if names else ""
    done = f"{posterior.num_steps:,} of {posterior.metadata.resolved.num_steps:,} steps"
    return f"{what}{done}, {posterior.num_replicas} replicas. {posterior.result.sentence}"


def _numbers(posterior: "Posterior", summary: Summary) -> Table:
    metadata, resolved = posterior.metadata, posterior.metadata.resolved
    trips, expected = summary["round_trips_per_1000_steps"], expected_words(summary)
    parameters = summary["parameters"].values()
    rows = [
        ("Result", posterior.result.sentence),
        ("Chains, replicas", f"{posterior.num_chains}, {posterior.num_replicas}"),
        ("Steps; draws of each chain", f"{posterior.num_steps:,}; {posterior.num_draws:,}"),
        ("Burn-in, thinning", f"{metadata.resolved.burn_in:,}, {metadata.resolved.thin:,}"),
        (
            "Schedule, rule, window",
            f"{resolved.schedule}, {resolved.rule}, {resolved.window}",
        ),
        ("Round trips of all chains", f"{sum(summary['round_trips']):,}"),
        ("Round trips per 1,000 steps", f"{np.mean(trips):.3g}{expected}"),
        ("Largest R-hat over chains", _extreme(max, parameters, "rhat", ".3f")),
        ("Largest R-hat over replicas", _extreme(max, parameters, "replica_rhat", ".3f")),
        (
            "Smallest effective size, all chains",
            _extreme(min, parameters, "effective_size", ",.0f"),
        ),
        ("Seed", str(metadata.run.seed)),
        ("Time and machine", render_machine_use(summary)),
        ("Version", metadata.version),
    ]
    return Table(("", ""), rows)


def expected_words(summary: dict[str, Any]) -> str:
    """Return the round trips that Lemma 1 predicts in words, empty if it does not apply."""
    expected = summary["round_trips_per_1000_steps_expected"]
    return "" if expected is None else f" (Lemma 1: {np.mean(expected):.3g})"


def _extreme(choose: Any, parameters: Any, name: str, form: str) -> str:
    known = [row[name] for row in parameters if not np.isnan(row[name])]
    return format(choose(known), form) if known else "not known"
