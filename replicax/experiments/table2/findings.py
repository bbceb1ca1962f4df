"""Sentences about the runs of Table 2, made from their numbers: what differs from the paper, what
one seed can tell, and what round trips to expect."""

from typing import Any

from replicax.experiments.table2 import numbers
from replicax.experiments.table2.numbers import COMPARED, NAMES, PAPER

_STARTS = "starts"
_PAPER_CYCLES = 50


def sentences(
    model: str, seen: dict[str, Any], full: dict[str, int], printed_trips: dict[str, str]
) -> list[str]:
    """All of them; none about what was not run, except that it was not."""
    runs = {name: run for name, run in seen["runs"].items() if run["state"] != "not run"}
    if not runs:
        return [f"No run of {model} is there: **not run**."]
    missing = [NAMES[name] for name in seen["runs"] if name not in runs]
    found = [f"Not run: {', '.join(missing)}."] if missing else []
    if model in PAPER:
        found += _what_differs(runs, full)
    return [*found, *_what_one_seed_tells(model, seen, runs), *_trips(model, runs, printed_trips)]


def _what_differs(runs: dict[str, Any], full: dict[str, int]) -> list[str]:
    parts = []
    lengths: dict[tuple[int, int], list[str]] = {}
    for name, run in runs.items():
        lengths.setdefault((run["epochs"], full.get(name, 500)), []).append(NAMES[name])
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
            f"{_PAPER_CYCLES}"
        )
    parts.append("there is one seed, where the paper gives a mean and a spread over several")
    parts.append("numbers are of the last epoch, the paper's of the best one on the test set")
    return [f"What differs from the paper: {'; '.join(parts)}."]


def _what_one_seed_tells(model: str, seen: dict[str, Any], runs: dict[str, Any]) -> list[str]:
    judged = {name: run for name, run in runs.items() if run["averages"]}
    if not judged:
        return []
    name, run = next(iter(judged.items()))
    accuracy, num = numbers.pick(run["averages"])["accuracy"], run["num_images"]
    error = 100 * numbers.accuracy_error(accuracy, num)
    text = (
        f"On {num:,} test images an accuracy of {100 * accuracy:.1f} % ({NAMES[name]}) has a "
        f"binomial standard error of {error:.2f} points."
    )
    told = []
    for pair in COMPARED:
        held = seen["compared"].get(" - ".join(pair))
        if held:
            gain, wide = 100 * held["accuracy"], 100 * held["accuracy_error"]
            verdict = "within" if abs(gain) <= 2 * wide else "beyond"
            told.append(
                f"{NAMES[pair[0]]} minus {NAMES[pair[1]]} is {gain:+.2f} ± {wide:.2f} points, "
                f"{verdict} two standard errors, and {held['nll_sum']:+.0f} ± "
                f"{held['nll_sum_error']:.0f} in the summed NLL"
            )
    if told:
        text += (
            " Methods share the images, so their differences are known better: "
            f"{'; '.join(told)} (by logits, without the start networks). Another seed would move "
            f"these numbers, too, by an amount that one seed cannot tell{_spreads(model)}: "
            "differences of a few tenths of a point are within the uncertainty of one seed."
        )
    return [text]


def _length(epochs: float | None) -> str:
    """A pair that never agrees makes a trip endless, which JSON holds as null."""
    return f"{epochs:.0f} epochs" if epochs is not None else "forever"


def _spreads(model: str) -> str:
    if model not in PAPER:
        return ""
    points = [printed[3] for printed in PAPER[model].values()]
    nats = [printed[1] for printed in PAPER[model].values()]
    return (
        f" (the paper's own spreads are {min(points):g} to {max(points):g} points and "
        f"{min(nats):.0f} to {max(nats):.0f} in NLL)"
    )


def _trips(model: str, runs: dict[str, Any], printed: dict[str, str]) -> list[str]:
    told = []
    for name, run in runs.items():
        held = run.get("round_trips")
        if held is None:
            continue
        paper = f" (paper, ResNet20: {printed[name]} per 100 epochs)" if model in PAPER else ""
        told.append(
            f"{NAMES[name]} with a window of {run['window']} made {held['counted']} in "
            f"{run['epochs']} epochs. Coins with its own verdict rates make "
            f"{held['simulated_mean']:.1f} ± {held['simulated_std']:.1f} from the same start, "
            f"though Lemma 1's long-run rate is {held['long_run']:.1f}{paper}: one replica's trip "
            f"takes {_length(held['round_trip_epochs'])} on average"
        )
    if not told:
        return []
    pair = [runs.get(name, {}).get("round_trips") for name in ("deo", "deo-star")]
    fewer = all(pair) and pair[1]["counted"] <= pair[0]["counted"]
    remark = " In these runs the window brought no more trips than DEO." if fewer else ""
    return [
        f"Round trips: {'; '.join(told)}.{remark} A run of about one round-trip time begins with "
        "each replica on its own rung and ends before most have come back, so the long-run rate "
        "does not apply to it yet."
    ]
