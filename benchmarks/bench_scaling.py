"""Time per iteration for 4 to 1,024 replicas on the 25 modes, one core.

It must grow no faster than linearly: the slope of log time over log replicas is at most 1, over
all and from 64 replicas on, where the fixed cost of a step no longer hides it. A step of ADJ is a
sweep of P-1 attempts, one after another, each with freshly drawn energies.
"""

import numpy as np
from loop import TOY, Loop, toy_method
from timing import Check, Row, Timing, interleave, parse_arguments, report, use_one_core

import replicax as rx

_REPLICAS = {
    "deo_star": (4, 8, 16, 32, 64, 128, 256, 512, 1024),
    "seo": (4, 16, 64, 256, 1024),
    "adj": (4, 16, 64, 256, 1024),
}
_LARGE = 64  # replicas from which the fixed cost of a step no longer counts
_NOISE = 0.05  # of a slope, on a machine that others use too


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=7)
    use_one_core()
    start = rx.targets.modes25_start
    rows, checks = [], []
    for schedule, replicas in _REPLICAS.items():
        if arguments.quick and schedule != "deo_star":
            continue
        if arguments.quick:
            replicas = (64, 128)
        cases = {}
        for count in replicas:
            steps = 40 if arguments.quick else max(100, 40_000 // count)
            method = toy_method(schedule=schedule)
            settings = {**TOY, "num_replicas": count, "method": method}
            cases[count] = Loop(rx.targets.modes25(), start, steps, **settings)
        timings = interleave(cases, arguments.repeats)
        for count, timing in timings.items():
            note = f"{np.median(timing.cpu) / count:.3g} a replica (cpu)"
            rows.append(Row.of(f"{schedule}, {count} replicas", "us/iteration", timing, note))
        for least in sorted({min(replicas), _LARGE}):
            name = f"{schedule}, slope from {least} replicas on"
            chosen = [count for count in replicas if count >= least]
            rows.append(Row.of(name, "slope", slope(timings, chosen)))
            checks.append(Check.of(rows[-1], bound=1.0 + _NOISE))
    report(rows, checks, arguments)


def slope(timings: dict[int, Timing], replicas: list[int]) -> Timing:
    """Of log time over log replicas, repeat by repeat."""
    x = np.log(replicas)

    def fit(clock: str) -> np.ndarray:
        y = np.log([getattr(timings[count], clock) for count in replicas])
        return np.polyfit(x, y, deg=1)[0]

    return Timing(fit("wall"), fit("cpu"))


if __name__ == "__main__":
    main()
