"""The table of the race: runs of several seeds, summed up by target and sampler."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).with_name("truth")))
from judge import MASS_BOUND, SD_BOUNDS

OURS = "replicax"
FEW, MANY = 1_000, 10_000  # effective draws
OF_ONE_MODE = ("logistic", "gaussian-100", "schools-non-centred", "hierarchical-logit")
TITLES = {
    "modes-25": "25 modes, 2-d",
    "twenty-modes": "20 modes, 2-d",
    "chain-32": "2 modes, 32-d",
    "mixture-2": "2 modes, 1,000 rows",
    "logistic": "Logistic regression, 10,000 rows",
    "gaussian-100": "Gaussian, 100-d, correlation .99",
    "schools-non-centred": "Eight schools, non-centred",
    "hierarchical-logit": "50 groups, 10,000 rows",
}


@dataclass(frozen=True)
class Spread:
    """The median of several runs, and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        return cls(float(np.median(values)), float(np.min(values)), float(np.max(values)))

    def __str__(self) -> str:
        median, low, high = short(self.median), short(self.low), short(self.high)
        return median if low == high else f"{median} ({low} .. {high})"


@dataclass(frozen=True)
class Summary:
    """All runs of one sampler on one target; `error` says why there are none."""

    target: str
    sampler: str
    n: int = 0
    right: int = 0
    micros: Spread | None = None  # of an iteration
    rate: Spread | None = None  # effective draws per second after tuning
    soon: Spread | None = None  # seconds to few effective draws, tuning among them
    needed: Spread | None = None  # to many
    slower: Spread | None = None  # replicax's rate over this one, seed by seed
    modes_found: int = 0  # of the worst run
    num_modes: int = 0
    distance: Spread | None = None  # TV of the masses
    mass_error: float = 0.0  # of the worst run, as are the others
    mean_error: float = 0.0
    sd_ratios: tuple[float, float] = (1.0, 1.0)
    warned: int = 0
    seconds: float = 0.0
    compile_seconds: float | None = None  # of the first run; the others find it done
    evidence: tuple[float, float] | None = None  # worst error of the log, largest standard error
    error: str = ""
    missing: bool = False

    @property
    def is_right(self) -> bool:
        return self.n > 0 and self.right == self.n

    @property
    def fault(self) -> str:
        """Return what is wrong in the worst run."""
        if self.modes_found < self.num_modes:
            return f"{self.modes_found} of {self.num_modes} modes"
        if self.mass_error > MASS_BOUND:
            return f"masses off by {self.mass_error:.2f}"
        low, high = self.sd_ratios
        if low < SD_BOUNDS[0] or high > SD_BOUNDS[1]:
            if high > 2:
                return f"{high:.0f} times too wide"
            narrow = 1 - low > high - 1
            return f"{100 * max(1 - low, high - 1):.0f} % too {'narrow' if narrow else 'wide'}"
        return f"means off by {self.mean_error:.2f} sd"


def short(value: float) -> str:
    """Format with about two digits; what a rate of 0 is divided into is infinite."""
    if abs(value) > 1e8:
        return "∞"
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"


def effective_rate(run: dict[str, Any]) -> float:
    """Return effective draws per second after tuning."""
    sizes = [run[name] for name in ("ess", "mode_ess") if run.get(name) is not None]
    return min(sizes) / (run["seconds"] - run.get("tuning_seconds", 0.0))


def seconds_needed(run: dict[str, Any], count: int) -> float:
    """Return the seconds to so many effective draws, at the rate of the run."""
    return run.get("tuning_seconds", 0.0) + count / max(effective_rate(run), 1e-9)


def summaries(runs: Sequence[dict[str, Any]]) -> list[Summary]:
    """Return one summary for each target and sampler, in the order of the runs."""
    found, order = [], [OURS, *dict.fromkeys(run["sampler"] for run in runs)]
    ours = {
        (run["target"], run["seed"]): effective_rate(run)
        for run in runs if run["sampler"] == OURS and "error" not in run
    }  # fmt: skip
    for target in [name for name in TITLES if any(run["target"] == name for run in runs)]:
        for sampler in dict.fromkeys(order):
            every = [run for run in runs if (run["target"], run["sampler"]) == (target, sampler)]
            own = [run for run in every if "error" not in run]
            if not every:
                continue
            if not own:
                missing = bool(every[0].get("missing"))
                found.append(Summary(target, sampler, error=every[0]["error"], missing=missing))
                continue
            rates = [effective_rate(run) for run in own]
            slower = [ours[target, run["seed"]] / max(rate, 1e-9) for run, rate in zip(own, rates)]
            found.append(Summary(
                target, sampler, len(own), sum(run["passes"] for run in own),
                Spread.of([1e6 * run["seconds"] / run["iterations"] for run in own]),
                Spread.of(rates),
                *(Spread.of([seconds_needed(run, n) for run in own]) for n in (FEW, MANY)),
                Spread.of(slower),
                min(run["modes_found"] or 0 for run in own), own[0]["num_modes"] or 0,
                Spread.of([run["mass_distance"] or 0.0 for run in own]),
                max(run["mass_error"] or 0.0 for run in own), max(run["mean_error"] for run in own),
                (min(run["sd_low"] for run in own), max(run["sd_high"] for run in own)),
                sum(bool(run["warnings"]) for run in own),
                float(np.median([run["seconds"] for run in own])),
                max((run["compile_seconds"] for run in own if run["compile_seconds"] is not None),
                    default=None),
                _evidence(own),
            ))  # fmt: skip
    return found


def _evidence(runs: Sequence[dict[str, Any]]) -> tuple[float, float] | None:
    """Return the worst error of the log evidence, and the largest standard error."""
    known = [run for run in runs if run.get("evidence_error") is not None]
    if not known:
        return None
    worst = max((run["evidence_error"] for run in known), key=abs)
    return worst, max(run["log_evidence"][1] for run in known)


HEAD = ("sampler", "right", "modes found", "TV", "mean error (sd)", "sd ratio",
        "effective draws / s", "replicax's, times", f"s to {FEW:,}", f"s to {MANY:,}",
        "log evidence: error (± its own)", "µs / iteration", "warned", "seconds",
        "+ compiling")  # fmt: skip


def cells(one: Summary) -> list[str]:
    """Return the row of a table."""
    if one.n == 0:
        why = f"not installed: {one.error}" if one.missing else one.error
        return [one.sampler, why.replace("\n", " ")[:160], *[""] * (len(HEAD) - 2)]
    low, high = one.sd_ratios
    times = "1" if one.sampler == OURS else str(one.slower)
    of_modes = [f"{one.modes_found} of {one.num_modes}", str(one.distance)]
    of_modes = of_modes if one.num_modes else ["", ""]
    return [
        one.sampler, f"{one.right} of {one.n}", *of_modes, f"{one.mean_error:.2f}",
        f"{low:.2f} to {high:.2f}", str(one.rate), times, str(one.soon), str(one.needed),
        "" if one.evidence is None else "{:+.3f} (± {:.3f})".format(*one.evidence),
        str(one.micros), f"{one.warned} of {one.n}", short(one.seconds),
        "" if one.compile_seconds is None else f"{one.compile_seconds:.0f}",
    ]  # fmt: skip


def format_table(found: Sequence[Summary]) -> str:
    """Return all rows as text."""
    lines = []
    for target in dict.fromkeys(one.target for one in found):
        rows = [list(HEAD), *(cells(one) for one in found if one.target == target)]
        widths = [max(len(row[i]) for row in rows if row[2]) for i in range(len(HEAD))]
        lines += ["", f"{TITLES[target]} ({target})"]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def findings(found: Sequence[Summary]) -> list[str]:
    """Return a sentence for each target: who is right, and who is fastest of these."""
    lines = []
    for target in dict.fromkeys(one.target for one in found):
        every = [one for one in found if one.target == target and one.n]
        right = sorted((one for one in every if one.is_right), key=lambda one: -one.rate.median)
        wrong = [one for one in every if not one.is_right]
        line = f"- **{TITLES[target]}**: "
        if not right:
            lines.append(line + "nobody is right in every run.")
            continue
        count, seconds = (FEW, "soon") if target in OF_ONE_MODE else (MANY, "needed")
        when = {one.sampler: getattr(one, seconds).median for one in right}
        best, first = right[0], min(right, key=lambda one: when[one.sampler])
        line += f"{best.sampler} is fastest, {short(best.rate.median)} effective draws per second"
        others = [f"{one.sampler} {short(one.rate.median)}" for one in right[1:]]
        alone = "nobody else is right" if wrong else "nobody else was run"
        line += f"; also right: {', '.join(others)}." if others else f"; {alone}."
        line += f" {first.sampler} has {count:,} first, after {short(when[first.sampler])} s"
        later = [one for one in right if one is not first and one.sampler == OURS]
        line += f" ({OURS}: {short(when[OURS])} s)." if later else "."
        if wrong:
            said = [f"{one.sampler} ({one.right} of {one.n} right; {one.fault})" for one in wrong]
            line += f" Wrong: {', '.join(said)}."
        lines.append(line)
    return lines
