"""Findings of Table 2, and sentences about differences from the paper, uncertainty and trips."""

from typing import Any

import numpy as np

from studies.shared.study import Finding
from studies.table2 import numbers, paper
from studies.table2.numbers import Trips
from studies.table2.paper import COMPARED, NAMES

_STARTS = "starts"


def claims(
    model: str, compared: dict[str, dict[str, float]], runs: dict[str, dict[str, Any]]
) -> list[Finding]:
    """Compare methods in the paper's order; a gain of the paper must exceed 2 standard errors."""

    def label(name: str) -> str:
        is_finished = runs[name]["state"] == "finished"
        return NAMES[name] if is_finished else f"{NAMES[name]} (unfinished)"

    findings = []
    for pair in COMPARED:
        difference, printed = compared.get(" - ".join(pair)), paper.RESULTS.get(model)
        if difference is None or printed is None:
            continue
        one, other = (printed[name] for name in pair)
        for what, theirs, ours, error, digits, better in (
            ("accuracy, points", one[2] - other[2], 100 * difference["accuracy"],
             100 * difference["accuracy_error"], 2, 1),
            ("NLL, sum", one[0] - other[0], difference["nll_sum"], difference["nll_sum_error"],
             0, -1),
        ):  # fmt: skip
            claimed = better * theirs > 0
            asked = "more than 2 standard errors better" if claimed else ""
            met = better * ours > 2 * error if claimed else None
            name = f"{model}, {label(pair[0])} minus {label(pair[1])}: {what}"
            value = f"{ours:+.{digits}f} ± {error:.{digits}f}"
            findings.append(Finding(name, f"{theirs:+.{digits}f}", value, asked, met))
    return findings


def does_exchange_win(models: dict[str, dict[str, Any]]) -> str:
    """Return the first sentences of the page: whether windowed exchange beats the ensemble."""
    answers = []
    for model, described in models.items():
        difference = described["compared"].get("deo-star - ensemble")
        if difference:
            gains = (100 * difference["accuracy"], -difference["nll_sum"])
            errors = (100 * difference["accuracy_error"], difference["nll_sum_error"])
            signs = {int(np.sign(gain)) * (abs(gain) > 2 * error)
                     for gain, error in zip(gains, errors, strict=True)}  # fmt: skip
            word = {1: "better", -1: "worse"}.get(sum(signs - {0}), "a tie")
            lengths = [described["runs"][name]["epochs"] for name in ("deo-star", "ensemble")]
            epochs = " against ".join(map(str, dict.fromkeys(lengths)))
            answers.append(
                f"{model}, {epochs} epochs: {word} ({gains[0]:+.2f} ± {errors[0]:.2f} points, "
                f"{-gains[1]:+.0f} ± {errors[1]:.0f} in the summed NLL)"
            )
    if not answers:
        return ""
    return (
        f"**Does windowed exchange beat the paper's ensemble at an equal budget?** Here, "
        f"{'; '.join(answers)}. Neither is what a network owner should train: ten ResNet20 with a "
        "cosine over all of 110 epochs, start networks included, reach 74.9 % and an NLL of .858, "
        "where 40 epochs of start networks and 70 of DEO⋆ reach 71.7 to 72.0 % and .955 to .960 "
        "(one NVIDIA H200); the page `exchange` of the documentation has the table."
    )


def trip_findings(model: str, trips: dict[str, Trips]) -> list[Finding]:
    """Compare the round trips of runs with those of coins of the same rates."""
    findings = []
    for name, count in trips.items():
        low, high = np.quantile(count.simulated, (0.005, 0.995))
        what = f"{model}, {NAMES[name]}: round trips in the whole run"
        expected = f"coins {count.mean:.1f} ± {count.std:.1f}; long run {count.long_run:.1f}"
        asked = f"{low:.0f} to {high:.0f} (99 % of the coins)"
        met = bool(low <= count.counted <= high)
        findings.append(Finding(what, expected, str(count.counted), asked, met))
    return findings


def sentences(model: str, described: dict[str, Any]) -> list[str]:
    """Return sentences about the runs of a model, and about those that are missing."""
    runs = {name: run for name, run in described["runs"].items() if run["state"] != "not run"}
    if not runs:
        return [f"No run of {model} is there: **not run**."]
    missing = [NAMES[name] for name in described["runs"] if name not in runs]
    return [
        *([f"Not run: {', '.join(missing)}."] if missing else []),
        *_earlier_runs(runs),
        *(_differences_from_paper(runs) if model in paper.RESULTS else []),
        *_uncertainty(model, described["compared"], runs),
        *_trips(model, runs),
    ]


def _earlier_runs(runs: dict[str, Any]) -> list[str]:
    """Tell which runs were made before the others, and are shown beside them only."""
    starts: dict[int | None, list[str]] = {}
    for name, run in runs.items():
        if "starts_of" in run:
            starts.setdefault(run["starts_of"], []).append(NAMES[name])
    return [
        f"Of earlier runs, from other start networks{f' of {epochs} epochs' if epochs else ''}, "
        f"and not compared with the rest: {', '.join(names)}."
        for epochs, names in starts.items()
    ]


def _paper_epochs(name: str) -> int:
    if name == _STARTS:
        return paper.START_EPOCHS
    return paper.CYCLICAL_EPOCHS if name.startswith("cyc") else paper.EPOCHS


def _differences_from_paper(runs: dict[str, Any]) -> list[str]:
    parts = []
    lengths: dict[tuple[int, int], list[str]] = {}
    for name, run in runs.items():
        lengths.setdefault((run["epochs"], _paper_epochs(name)), []).append(NAMES[name])
    for (ours, papers), names in lengths.items():
        if ours != papers:
            parts.append(f"{', '.join(names)} had {ours} epochs where the paper has {papers}")
    if _STARTS in runs:
        parts.append(
            f"all methods start from the same {runs[_STARTS]['networks']} distinct networks, where "
            "the authors draw theirs from a pool with replacement (six distinct ones in the "
            "published DEO run)"
        )
    cycles = {name: run["cycles"] for name, run in runs.items() if run.get("cycles") is not None}
    if cycles:
        whole = ", ".join(f"{count} of {NAMES[name]}" for name, count in cycles.items())
        parts.append(
            f"methods with one network start from the first of these alone, which is all that "
            f"their rows with starts count; whole cycles: {whole}, where the paper has "
            f"{paper.CYCLES}"
        )
    parts.append("there is one seed, where the paper gives a mean and a spread over several")
    parts.append("numbers are of the last epoch, the paper's of the best one on the test set")
    return [f"What differs from the paper: {'; '.join(parts)}."]


def _uncertainty(model: str, compared: dict[str, Any], runs: dict[str, Any]) -> list[str]:
    averaged = {name: run for name, run in runs.items() if run["averages"]}
    if not averaged:
        return []
    name, run = next(iter(averaged.items()))
    accuracy, num = numbers.pick(run["averages"])["accuracy"], run["num_images"]
    error = 100 * numbers.accuracy_error(accuracy, num)
    text = (
        f"On {num:,} test images an accuracy of {100 * accuracy:.1f} % ({NAMES[name]}) has a "
        f"binomial standard error of {error:.2f} points."
    )
    gains = []
    for pair in COMPARED:
        difference = compared.get(" - ".join(pair))
        if difference:
            gain, error = 100 * difference["accuracy"], 100 * difference["accuracy_error"]
            verdict = "within" if abs(gain) <= 2 * error else "beyond"
            gains.append(
                f"{NAMES[pair[0]]} minus {NAMES[pair[1]]} is {gain:+.2f} ± {error:.2f} points, "
                f"{verdict} two standard errors, and {difference['nll_sum']:+.0f} ± "
                f"{difference['nll_sum_error']:.0f} in the summed NLL"
            )
    if gains:
        text += (
            " Methods share the images, so their differences are known better: "
            f"{'; '.join(gains)} (by logits, without the start networks). Another seed would move "
            f"these numbers, too, by an amount that one seed cannot tell{_spreads(model)}: "
            "differences of a few tenths of a point are within the uncertainty of one seed."
        )
    return [text]


def _length(epochs: float | None) -> str:
    """Format a round trip time; it is null in JSON, infinite, if a pair never swaps."""
    return f"{epochs:.0f} epochs" if epochs is not None else "forever"


def _spreads(model: str) -> str:
    if model not in paper.RESULTS:
        return ""
    points = [printed[3] for printed in paper.RESULTS[model].values()]
    nats = [printed[1] for printed in paper.RESULTS[model].values()]
    return (
        f" (the paper's own spreads are {min(points):g} to {max(points):g} points and "
        f"{min(nats):.0f} to {max(nats):.0f} in NLL)"
    )


def _trips(model: str, runs: dict[str, Any]) -> list[str]:
    parts = []
    for name, run in runs.items():
        trips = run.get("round_trips")
        if trips is None:
            continue
        printed = f" (paper, ResNet20: {paper.ROUND_TRIPS[name]} per 100 epochs)"
        printed = printed if model in paper.RESULTS else ""
        parts.append(
            f"{NAMES[name]} with a window of {run['window']} made {trips['counted']} in "
            f"{run['epochs']} epochs. Coins with its own verdict rates make "
            f"{trips['simulated_mean']:.1f} ± {trips['simulated_std']:.1f} from the same start, "
            f"though Lemma 1's long-run rate is {trips['long_run']:.1f}{printed}: one replica's "
            f"trip takes {_length(trips['round_trip_epochs'])} on average"
        )
    if not parts:
        return []
    pair = [runs.get(name, {}).get("round_trips") for name in ("deo", "deo-star")]
    fewer = all(pair) and pair[1]["counted"] <= pair[0]["counted"]
    remark = " In these runs the window brought no more trips than DEO." if fewer else ""
    return [
        f"Round trips: {'; '.join(parts)}.{remark} A run of about one round-trip time begins with "
        "each replica on its own rung and ends before most have come back, so the long-run rate "
        "does not apply to it yet."
    ]
