"""Findings, tables and notes of the study of small networks."""

import numpy as np

from replicax.experiments.networks.numbers import (
    BEST,
    COLD_TEMPERATURES,
    NUM_BATCHES,
    NUM_ROWS,
    RATE,
    best_window,
    coins,
    lemma,
    noise_of,
    replica_counts,
    sweep,
    trips,
    windows,
)
from replicax.experiments.shared.measured import Measured, number
from replicax.experiments.shared.study import Finding, Results, Table


def findings(results: Results) -> list[Finding]:
    return [*window_findings(results), *rate_findings(results), *noise_findings(results)]


def is_long(results: Results) -> bool:
    """Return whether runs are long enough for round trips; the quick version is not judged."""
    return all(settings["epochs"] >= 50 for settings, _ in results)


def window_findings(results: Results) -> list[Finding]:
    optimal, one = trips(results, BEST), trips(results, 1)
    ratio = optimal.mean / max(one.mean, 1e-9)
    closed = lemma(best_window(RATE)) / lemma(1)
    lines = [
        Finding(f"round trips per 100 epochs, W = 1, S = {RATE:g}", number(lemma(1)), one),
        Finding(f"round trips per 100 epochs, W = {best_window(RATE)}",
                number(lemma(best_window(RATE))), optimal),
        Finding(f"trips at W = {best_window(RATE)} over trips at W = 1", number(closed),
                number(ratio), "above 1", ratio > 1 if is_long(results) else None),
    ]  # fmt: skip
    far = [w for w in windows(results) if w > best_window(RATE)]
    if far:
        share = trips(results, far[0]).mean / max(optimal.mean, 1e-9)
        lines.append(
            Finding(f"trips at W = {far[0]} over trips at W = {best_window(RATE)}",
                    number(lemma(far[0]) / lemma(best_window(RATE))), number(share), "below 1",
                    share < 1 if is_long(results) else None)
        )  # fmt: skip
    return lines


def rate_findings(results: Results) -> list[Finding]:
    """Compare verdict rates with their targets, and find the target with the best average."""
    off = [abs(m["verdict_rate"].mean() / rate - 1) for rate, m in sweep(results)]
    lines = [Finding("mean verdict rate, largest distance to its target", "0",
                     f"{100 * max(off):.0f} %", "at most 25 %",
                     max(off) <= 0.25 if is_long(results) else None)]  # fmt: skip
    for name, what in (("nll", "lowest NLL"), ("accuracy", "highest accuracy")):
        sign = 1 if name == "nll" else -1
        best = min(sweep(results), key=lambda pair: sign * pair[1][name].mean())
        lines.append(Finding(f"S with the {what} of the average", "0.005 on CIFAR-100",
                             f"{best[0]:g}: {Measured.of(best[1][name])}"))  # fmt: skip
    return lines


def noise_findings(results: Results) -> list[Finding]:
    noise = noise_of(results)
    ratio = float(noise.alone[-1] / noise.alone[0])
    shared = float(np.max(noise.pair / np.hypot(noise.alone[1:], noise.alone[:-1]) * np.sqrt(2)))
    low, high = noise.rate[0], noise.rate[-1]
    by_seed = results["noise"]["std"][:, -1] / results["noise"]["std"][:, 0]
    seeds = f"{number(ratio)} (seeds: {', '.join(number(one) for one in by_seed)})"
    return [
        Finding(f"energy noise at learning rate {high:g} over that at {low:g}", "grows",
                seeds, "above 1", ratio > 1),
        Finding("σ_p of neighbours on the same mini-batch, over that of independent ones (largest)",
                "1", number(shared), "below 1: shared noise cancels", shared < 1),
    ]  # fmt: skip


def tables(results: Results) -> list[Table]:
    header = ["W", "trips per 100 epochs", "Lemma 1 at r = 1 - S", "Lemma 1, measured rates",
              "coins of the measured rates", "mean verdict rate", "swaps per window"]  # fmt: skip
    rows = []
    for window in windows(results):
        record = results.only(rate=RATE, window=window)
        rows.append([window, trips(results, window), lemma(window),
                     lemma(window, record["verdict_rate"].mean(axis=0)),
                     coins(results, window), record["verdict_rate"].mean(),
                     record["window_swap_rate"].mean()])  # fmt: skip
    sweep_head = ["S", "W", "mean verdict rate", "buffer", "accuracy of the average, %",
                  "NLL of the average", "accuracy of the last network, %"]  # fmt: skip
    sweep_rows = [
        [f"{rate:g}", best_window(rate), Measured.of(record["verdict_rate"].mean(axis=1)),
         Measured.of(record["buffer"]), Measured.of(100 * record["accuracy"]),
         Measured.of(record["nll"]), Measured.of(100 * record["single_accuracy"])]
        for rate, record in sweep(results)
    ]  # fmt: skip
    noise = noise_of(results)
    noise_rows = [
        [f"{rate:.3g}", f"{energy:.3f}", f"{alone:.4f}", f"{pair:.4f}" if pair else "–"]
        for rate, energy, alone, pair in zip(
            noise.rate, noise.energy, noise.alone, [*noise.pair, None], strict=True
        )
    ]
    noise_head = ["learning rate", "mean loss", "sd over mini-batches, mean loss",
                  "σ_p with the next rate, same mini-batches"]  # fmt: skip
    count_head = ["τ of the coldest rung", "noise alone: P⋆", "same mini-batches: P⋆"]
    return [
        Table("Windows", header, rows),
        Table("The target swap rate", sweep_head, sweep_rows),
        Table("Energy noise by learning rate", noise_head, noise_rows),
        Table("Number of replicas for that noise", count_head, replica_counts(results)),
    ]


def notes(results: Results) -> list[str]:
    noise = noise_of(results)
    return [
        *_trip_notes(results),
        *_settling(results),
        *_growth(results),
        f"Energy noise: standard deviation over {NUM_BATCHES} mini-batches of 64 of the mean loss "
        "of a fixed network, as swaps see it (batch statistics of the mini-batch), "
        f"times N = {NUM_ROWS} for energies in total loss. σ_p is that of Eq. 14: the difference "
        "of two energies has variance 2 σ_p²; on the same mini-batch it is the deviation of the "
        "differences over √2. As in the paper one trained network went on with all rates, so that "
        "neighbours are relatives: replicas that began apart share less of the noise.",
        "How many replicas (appendix B.4): `theory.optimal_num_replicas` wants temperatures, which "
        "rungs of SGD do not have. The reading taken here is the paper's, that temperature is "
        f"proportional to the learning rate: τ_p = τ_0 η_p / η_0 over η = {noise.rate[0]:g} to "
        f"{noise.rate[-1]:g}. τ_0, the temperature of the coldest rung, is not determined by that; "
        f"{', '.join(f'{t:g}' for t in COLD_TEMPERATURES)} are shown, and P⋆ is proportional to "
        "1 / τ_0: the paper's thousands rest on a cold posterior's τ_0 far below 1.",
    ]


def _trip_notes(results: Results) -> list[str]:
    """Compare networks with coins of the same rates."""
    if not is_long(results):
        return ["Too short for round trips: the quick version shows the numbers without a verdict."]
    best = best_window(RATE)
    record = results.only(rate=RATE, window=best)
    expected = 1 - (1 - record["verdict_rate"]) ** best
    return [
        "Lemma 1 treats verdicts as coins that are tossed anew at every step, whoever meets, in a "
        f"run without beginning. With W = {best} a pair swapped in "
        f"{100 * record['window_swap_rate'].mean():.0f} % of its windows, coins of its verdict "
        f"rate would in {100 * expected.mean():.0f} %, and {trips(results, best)} trips per 100 "
        f"epochs compare with {coins(results, best)} of such coins in runs as long from the same "
        f"start; with W = 1 {trips(results, 1)} compare with {coins(results, 1)}.",
    ]


def _settling(results: Results) -> list[str]:
    noise = noise_of(results)
    if noise.energy[0] < 1.2 * noise.energy[1]:
        return []
    return [
        f"At the learning rate {noise.rate[0]:g} the mean loss, {noise.energy[0]:.3f}, is above "
        f"that at {noise.rate[1]:g}, {noise.energy[1]:.3f}: those networks have not settled in the "
        "epochs they had, and their noise is that of a network on its way.",
    ]


def _growth(results: Results) -> list[str]:
    """Say if some seeds do not show that single energies become noisier."""
    std = results["noise"]["std"]
    against = int(np.sum(std[:, -1] <= std[:, 0]))
    if against == 0:
        return []
    return [
        f"The growth of the noise of single energies is weak: {against} of {len(std)} seeds do not "
        "show it. What swaps see, the difference of neighbours, grows with the learning rate far "
        "more, from relatives that have hardly parted to such that have.",
    ]
