"""The best number of replicas of a noisy ladder: the corollary on the number of chains."""

import functools
import math
from typing import Any

import numpy as np

import replicax as rx
from replicax import theory
from replicax.results import figure_style
from studies.shared import index_process
from studies.shared.study import Cell, Finding, Results, Scale, Study, Table, Work, number

SCHEMES = ("DEO", "DEO*")
EXACT, CORRECTED, PAPER = "exact", "corrected", "paper"  # formulas of the swap rate
_COLD, _HOT = index_process.INVERSE_TEMPERATURES


def swap_rate_of_paper(gap: float, noise: Any, kind: str) -> Any:
    """Return the factor exp(-(dT sigma)^2 / c) by which noise reduces a swap rate (appendix A.3).

    The paper's c is 8, the value for a difference of variance sigma^2; its own Eq. 14 says
    2 sigma^2, hence 4. An order of magnitude only: constants are dropped.
    """
    return np.exp(-((gap * noise) ** 2) / {CORRECTED: 4.0, PAPER: 8.0}[kind])


def swap_rate(num_replicas: int, noise: float, kind: str = EXACT) -> float:
    """Return the swap rate of every pair, if energies are equal except for their noise."""
    gap = index_process.inverse_temperature_gap(num_replicas)
    if kind == EXACT:
        return float(theory.swap_probability_under_noise(0.0, gap, noise))
    return float(swap_rate_of_paper(gap, noise, kind))


def window_of(scheme: str, num_replicas: int, rate: float) -> int:
    return theory.optimal_window(num_replicas, rate) if scheme == "DEO*" else 1


@functools.cache
def round_trip_time(scheme: str, num_replicas: int, noise: float, kind: str = EXACT) -> float:
    """Return the round trip time of Lemma 1."""
    rate = swap_rate(num_replicas, noise, kind)
    window = window_of(scheme, num_replicas, rate)
    return float(theory.round_trip_time(1 - rate, window, num_replicas))


def sizes_around(noise: float) -> range:
    """Return numbers of replicas from very rare swaps to well above the optimum."""
    span = (_COLD - _HOT) * noise  # dT sigma of two replicas
    return range(max(4, math.ceil(span / 8)), math.ceil(3 * span) + 8)


@functools.cache
def best_size(scheme: str, noise: float, kind: str = EXACT) -> int:
    """Return the number of replicas with the shortest round trip time of Lemma 1."""
    return min(sizes_around(noise), key=lambda size: round_trip_time(scheme, size, noise, kind))


def corollary(noise: float, exponent: Any = CORRECTED) -> theory.ReplicaCount:
    """Return the paper's estimate and bounds, for a geometric ladder of equal dT sigma per pair."""
    hot = math.e  # log(hot / cold) = 1
    return theory.optimal_num_replicas([(_COLD - _HOT) * noise * hot], (1.0, hot), exponent)


def gain_of_window(noise: float, num_replicas: int, kind: str = EXACT) -> float:
    """Return E[T] of DEO divided by E[T] of DEO*."""
    deo, windowed = (round_trip_time(scheme, num_replicas, noise, kind) for scheme in SCHEMES)
    return deo / windowed


def barrier(noise: float) -> float:
    """Return the limit of P r for many replicas: 1 - S = dT sigma / sqrt(pi) for small dT sigma."""
    return (_COLD - _HOT) * noise / math.sqrt(math.pi)


def decay_of_swap_rate() -> float:
    """Return -d log S / d (dT sigma)^2 of the exact rate, between dT sigma = 8 and 9."""
    noise = np.array([8.0, 9.0])
    rates = np.log(theory.swap_probability_under_noise(0.0, 1.0, noise))
    return float(-np.diff(rates)[0] / np.diff(noise**2)[0])


_NOISES = (10.0, 20.0, 50.0, 100.0)  # energy_noise_std
_SIMULATED = 10.0
_KINDS = {PAPER: "exp(-(dT σ)² / 8)", CORRECTED: "exp(-(dT σ)² / 4)", EXACT: "exact"}
_TITLE = "The best number of replicas"
_ABOUT = """
Noise reduces the swap rate, and more so the further apart two rungs are; but every further replica
makes the ladder longer. So there is a best number of replicas. Corollary 1 and appendix B.3 put it
between 1.1 μ and √2 μ, with μ from the noise and the temperatures, by minimising a bound on the
round trip time. Here Lemma 1 itself is minimised, on ladders of equal energies between the
temperatures 1 and 10 whose energies are noisy: with the paper's swap rate exp(-(dT σ)² / 8), with
the exponent that its Eq. 14 implies (/ 4), and with the exact rate of the bias-corrected rule,
which the library's own step then simulates.
"""


def cells(scale: Scale) -> list[Cell]:
    sizes = scale.choose((4, 5, 6, 8, 10, 12, 16, 20, 32), (5, 10, 20))
    num_trips = scale.choose(60_000, 4_000)
    return [
        Cell(f"P={size}", {"num_replicas": size, "num_trips": num_trips})
        for size in reversed(sizes)
    ]


def run(settings: dict[str, Any], work: Work) -> dict[str, Any]:
    """Simulate the round trip times of both schemes on a noisy ladder."""
    size, program = settings["num_replicas"], index_process.build(rx.schedule.deo(), noisy=True)
    times = []
    for done, scheme in enumerate(SCHEMES):
        window = window_of(scheme, size, swap_rate(size, _SIMULATED))
        ladder = index_process.NoisyLadder(rx.schedule.windowed_deo(window), size, _SIMULATED)
        expected = round_trip_time(scheme, size, _SIMULATED)
        counted = index_process.count_trips(
            program,
            ladder,
            expected,
            settings["num_trips"],
            tick=lambda part, done=done: work.tick((done + part) / len(SCHEMES)),
        )
        times.append(counted.round_trip_time)
    return {"round_trip_time": np.array(times)}  # (scheme,)


def findings(results: Results) -> list[Finding]:
    sizes = [settings["num_replicas"] for settings, _ in results]
    times = results.column("round_trip_time")[:, SCHEMES.index("DEO*")]
    fastest, best = sizes[int(np.argmin(times))], best_size("DEO*", _SIMULATED)
    least = round_trip_time("DEO*", best, _SIMULATED)
    met = round_trip_time("DEO*", fastest, _SIMULATED) <= 1.03 * least
    finding = Finding(f"DEO*, σ = {_SIMULATED:g}: fastest P that was simulated",
                      f"{best} of all P by Lemma 1", fastest, "E[T] within 3 % of the least",
                      met)  # fmt: skip
    return [*distances(results), finding, *exact_findings()]


def distances(results: Results) -> list[Finding]:
    """Compare the simulated times with Lemma 1."""
    bound = index_process.error_bound(min(settings["num_trips"] for settings, _ in results))
    lines = []
    for scheme, times in zip(SCHEMES, results.column("round_trip_time").T, strict=True):
        closed = [round_trip_time(scheme, s["num_replicas"], _SIMULATED) for s, _ in results]
        worst = float(np.max(np.abs(times / np.array(closed) - 1)))
        what = f"{scheme}, σ = {_SIMULATED:g}: largest distance of the simulated times to Lemma 1"
        asked = f"at most {100 * bound:.1f} %"
        lines.append(Finding(what, "0", f"{100 * worst:.2f} %", asked, worst <= bound))
    return lines


def exact_findings() -> list[Finding]:
    """Compare the corollary with the minimum of Lemma 1, by closed forms."""
    lines = []
    for kind in (PAPER, CORRECTED):
        counts = [corollary(noise, kind) for noise in _NOISES]
        own = [c for c in counts if c.num_replicas >= 5]  # the paper's factor holds from there
        inside = sum(c.lower - 0.5 < c.num_replicas < c.upper + 0.5 for c in own)
        what = f"minimiser of the paper's h in its bounds, {_KINDS[kind]}"
        asked = "all with P⋆ of 5 or more, to rounding"
        lines.append(Finding(what, "inside", f"{inside} of {len(own)}", asked, inside == len(own)))
        over = [best_size("DEO*", n, kind) / c.upper for n, c in zip(_NOISES, counts, strict=True)]
        what = f"minimiser of Lemma 1 over the upper bound, {_KINDS[kind]}"
        lines.append(Finding(what, "at most 1", f"{min(over):.2f} to {max(over):.2f}"))
    over = [best_size("DEO*", n) / corollary(n).upper for n in _NOISES]
    lines.append(Finding("minimiser of Lemma 1 over the upper bound (/ 4), exact rate", "at most 1",
                         f"{min(over):.2f} to {max(over):.2f}"))  # fmt: skip
    grows = corollary(_NOISES[-1]).upper / corollary(_NOISES[-1], PAPER).upper
    decay, noise = decay_of_swap_rate(), _NOISES[1]
    return [
        *lines,
        Finding("decay of the swap rate, -d log S / d(dT σ)²", "1/8; by Eq. 14 1/4", decay,
                "0.25 to 0.28", 0.25 <= decay <= 0.28),
        Finding("bounds, exponent / 4 over / 8", "1.414", grows, "√2",
                math.isclose(grows, math.sqrt(2))),
        *cutoff_findings(noise),
    ]  # fmt: skip


def cutoff_findings(noise: float) -> list[Finding]:
    """Check that DEO* is faster up to the best P and equal to DEO far above (section 3.4)."""
    lines = []
    for kind in (PAPER, EXACT):
        best = best_size("DEO*", noise, kind)
        half, there, far = (
            gain_of_window(noise, size, kind) for size in (best // 2, best, 64 * best)
        )
        what = (
            f"DEO over DEO*, σ = {noise:g}, at 1/2, 1, 64 times the best P = {best}, {_KINDS[kind]}"
        )
        ours = f"{half:.2f}, {there:.2f}, {far:.2f}"
        if kind == PAPER:
            asked, met = "above 1, above 1, 1", min(half, there) > 1 and math.isclose(far, 1)
        else:
            asked, met = "", None
        lines.append(Finding(what, "above 1, then 1", ours, asked, met))
    return lines


def tables(results: Results) -> list[Table]:
    header = ["σ", "bounds, / 8", "minimiser of h", "of Lemma 1", "bounds, / 4", "minimiser of h",
              "of Lemma 1", "of Lemma 1, exact rate", "DEO, exact rate",
              "E[T] of DEO*, exact rate, best P", "at the minimiser of h, / 4"]  # fmt: skip
    lines = []
    for noise in _NOISES:
        line: list[Any] = [noise]
        for kind in (PAPER, CORRECTED):
            count = corollary(noise, kind)
            line += [f"{count.lower:.1f} to {count.upper:.1f}", count.num_replicas,
                     best_size("DEO*", noise, kind)]  # fmt: skip
        best = best_size("DEO*", noise)
        line += [best, best_size("DEO", noise), round_trip_time("DEO*", best, noise),
                 round_trip_time("DEO*", corollary(noise).num_replicas, noise)]  # fmt: skip
        lines.append(line)
    simulated = [
        [size, *(part for pair in zip(closed, record["round_trip_time"], strict=True)
                 for part in pair)]
        for settings, record in results
        for size in [settings["num_replicas"]]
        for closed in [[round_trip_time(scheme, size, _SIMULATED) for scheme in SCHEMES]]
    ]  # fmt: skip
    return [
        Table("The best number of replicas", header, lines),
        Table(f"Round trip time, σ = {_SIMULATED:g}",
              ["P", "DEO, Lemma 1", "simulated", "DEO*, Lemma 1", "simulated"], simulated[::-1]),
    ]  # fmt: skip


def notes(results: Results) -> list[str]:
    loud, noise = _NOISES[-1], _NOISES[1]
    count, best = corollary(loud), best_size("DEO*", loud)
    rate = swap_rate(count.num_replicas, loud, CORRECTED)
    lost = round_trip_time("DEO*", count.num_replicas, loud) / round_trip_time("DEO*", best, loud)
    far, past = 64 * best_size("DEO*", noise), 16 * best_size("DEO*", noise, PAPER)
    rejected = number(1 - swap_rate(far, noise))
    return [
        f"The bounds of the corollary hold for the bound that it minimises, not for Lemma 1: at "
        f"σ = {loud:g} they are {count.lower:.1f} to {count.upper:.1f} (with / 4), and Lemma 1 is "
        f"least at P = {best_size('DEO*', loud, CORRECTED)}. The proof replaces -1 / log r by "
        f"1 / (1 - r), which is tight for rare swaps only; at P = {count.num_replicas} the swap "
        f"rate is {rate:.2f}.",
        f"With the exact rate of the bias-corrected rule the best P is {best}; the corollary's "
        f"{count.num_replicas} would make a round trip take {lost:.2f} times as long.",
        f"The swap rate falls as exp(-(dT σ)² / 4) and not / 8 (exact decay "
        f"{decay_of_swap_rate():.3f}), so that μ and both bounds are √2 larger than printed.",
        f"The cutoff is a matter of the formula. With / 8 and σ = {noise:g} DEO catches up beyond "
        f"the best P, and at 16 times it Theorem 1's window of 2 is a loss: DEO needs only "
        f"{gain_of_window(noise, past, PAPER):.2f} of the time of DEO*. With the exact rate "
        f"rejections fall as 1 / P only, r = {rejected} at P = {far:,}, and DEO* saves ever "
        f"more: {gain_of_window(noise, far):.2f} times there, towards "
        f"{(1 + barrier(noise)) / 2:.2f}.",
    ]


def figures(results: Results) -> dict[str, Any]:
    return {"time": draw_times(results), "best": draw_best(), "cutoff": draw_cutoff()}


def draw_times(results: Results) -> Any:
    figure = figure_style.new_figure(10.5, 4.2)
    left, right = figure.subplots(1, 2)
    sizes = [settings["num_replicas"] for settings, _ in results]
    times = results.column("round_trip_time").T
    dense = range(min(sizes), max(sizes) + 1)
    for colour, scheme, simulated in zip(figure_style.CHAINS, SCHEMES, times, strict=False):
        curve = [round_trip_time(scheme, size, _SIMULATED) for size in dense]
        left.plot(dense, curve, color=colour, label=scheme)
        left.plot(sizes, simulated, "o", color=colour, ms=5)
        best = best_size(scheme, _SIMULATED)
        least = round_trip_time(scheme, best, _SIMULATED)
        left.plot(best, least, "*", color=colour, ms=14, mec="white")
    noise = _NOISES[2]
    dense = range(16, 161)
    for colour, (kind, name) in zip(figure_style.CHAINS[2:], _KINDS.items(), strict=False):
        right.plot(dense, [round_trip_time("DEO*", s, noise, kind) for s in dense], color=colour,
                   label=name)  # fmt: skip
        best = best_size("DEO*", noise, kind)
        least = round_trip_time("DEO*", best, noise, kind)
        right.plot(best, least, "*", color=colour, ms=14, mec="white")
    for axes, level, title in (
        (left, _SIMULATED, f"σ = {_SIMULATED:g}, exact rate"),
        (right, noise, f"DEO*, σ = {noise:g}, by swap rate"),
    ):
        count = corollary(level)
        axes.axvspan(count.lower, count.upper, color=figure_style.FAINT, label="corollary, / 4")
        axes.set(yscale="log")
        figure_style.label(axes, "replicas", "steps", title)
        figure_style.legend(axes)
    left.set_ylim(100, 1000)
    right.set_ylim(200, 10_000)
    figure.set_label(
        "Round trip time against the number of replicas: Lemma 1 (lines), simulated (dots), the "
        "least (stars), and the bounds of the corollary (grey)."
    )
    return figure


def draw_best() -> Any:
    figure = figure_style.new_figure(7, 4.2)
    axes = figure.add_subplot()
    noises = np.geomspace(10, 100, 12)
    counts = [corollary(noise) for noise in noises]
    axes.fill_between(noises, [c.lower for c in counts], [c.upper for c in counts],
                      color=figure_style.FAINT, label="bounds of the corollary, / 4")  # fmt: skip
    axes.plot(
        noises, [c.num_replicas for c in counts], **figure_style.DASHED, label="minimiser of h, / 4"
    )
    for colour, (kind, name) in zip(figure_style.CHAINS[2:], _KINDS.items(), strict=False):
        sizes = [best_size("DEO*", float(noise), kind) for noise in noises]
        axes.plot(noises, sizes, "o-", color=colour, ms=4, label=f"Lemma 1, {name}")
    figure_style.label(axes, "noise of an energy, σ", "replicas", "Best number of replicas, DEO*")
    figure_style.legend(axes)
    figure.set_label(
        "The number of replicas with the shortest round trip, at the window of Theorem 1, against "
        "the noise."
    )
    return figure


def draw_cutoff() -> Any:
    figure = figure_style.new_figure(10.5, 4.2)
    both = figure.subplots(1, 2, sharey=True)
    for axes, kind in zip(both, (PAPER, EXACT), strict=True):
        for colour, noise in zip(figure_style.CHAINS, _NOISES, strict=False):
            best = best_size("DEO*", noise, kind)
            sizes = np.unique(np.geomspace(max(4, best // 4), 100 * best, 80).astype(int))
            ratios = [gain_of_window(noise, int(size), kind) for size in sizes]
            axes.plot(sizes / best, ratios, color=colour, label=f"σ = {noise:g}, best P = {best}")
        axes.axhline(1, color=figure_style.SOFT, lw=0.8)
        axes.axvline(1, **figure_style.DASHED)
        axes.set(xscale="log", yscale="log")
        y = "E[T] of DEO / E[T] of DEO*" if kind == PAPER else ""
        figure_style.label(axes, "replicas / best number", y, f"swap rate {_KINDS[kind]}")
        axes.set_xticks([0.25, 1, 4, 20, 100], ["1/4", "1", "4", "20", "100"])
        axes.minorticks_off()
        figure_style.legend(axes)
    figure.set_label(
        "What the window of Theorem 1 saves, with the paper's swap rate (left) and with the exact "
        "one (right): the paper's cutoff is on the left only."
    )
    return figure


STUDY = Study("replicas", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
