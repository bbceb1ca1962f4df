"""Figures of the study of small networks."""

from typing import Any

import numpy as np

from replicax.experiments.networks.numbers import (
    RATE,
    Noise,
    best_window,
    coins,
    lemma,
    noise_of,
    sweep,
    windows,
)
from replicax.experiments.shared.study import Results
from replicax.results import figure_style as panels


def draw_windows(results: Results) -> Any:
    figure = panels.new_figure(7.6, 4.4)
    axes = figure.add_subplot()
    chosen = windows(results)
    closed = np.geomspace(min(chosen), max(chosen), 60)
    axes.set_xscale("log")
    axes.plot(closed, [lemma(w) for w in closed], **panels.DASHED, label="Lemma 1 at r = 1 - S")
    expected = [coins(results, window) for window in chosen]
    axes.errorbar(chosen, [e.mean for e in expected], [e.std for e in expected], fmt="s",
                  mfc="white", color=panels.SOFT, capsize=3,
                  label="coins of the measured rates, mean ± sd")  # fmt: skip
    for window in chosen:
        seen = results.only(rate=RATE, window=window)["trips"]
        axes.plot([window] * len(seen), seen, "o", color=panels.CHAINS[0], ms=4, alpha=0.5,
                  label="one seed" if window == chosen[0] else None)  # fmt: skip
    means = [results.only(rate=RATE, window=w)["trips"].mean() for w in chosen]
    axes.plot(chosen, means, "-", color=panels.CHAINS[0], lw=1.6, label="mean")
    axes.set_ylim(bottom=0)
    panels.label(axes, "window W", "round trips per 100 epochs", f"target swap rate {RATE:g}")
    axes.set_xticks(chosen, [str(w) for w in chosen])
    axes.set_xticks([], minor=True)
    panels.legend_below(axes)
    figure.set_label(
        f"Round trips of small networks by window; Theorem 1's best one is {best_window(RATE)}. "
        "Coins toss the measured verdict rates in a run of the same length from the same start."
    )
    return figure


def draw_rates(results: Results) -> Any:
    figure = panels.new_figure(10.5, 3.8)
    row = figure.subplots(1, 2)
    found = list(sweep(results))
    rates = [rate for rate, _ in found]
    kinds = (("accuracy", 100, "accuracy, %"), ("nll", 1, "NLL per image, nats"))
    for axes, (name, scale, y) in zip(row, kinds, strict=True):
        axes.set_xscale("log")
        for prefix, colour, what in (
            ("", panels.CHAINS[0], "average of cold networks"),
            ("single_", panels.CHAINS[1], "the last cold network"),
        ):
            values = [scale * record[prefix + name] for _, record in found]
            for rate, seen in zip(rates, values, strict=True):
                axes.plot([rate] * len(seen), seen, "o", color=colour, ms=4, alpha=0.5)
            axes.plot(rates, [seen.mean() for seen in values], color=colour, lw=1.6, label=what)
        panels.label(axes, "target swap rate S", y)
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)
    panels.legend_below(row[0])
    figure.set_label(
        "Test accuracy and NLL of the cold rung by target swap rate, each at Theorem 1's window; "
        "dots are seeds."
    )
    return figure


def draw_noise(results: Results) -> Any:
    figure = panels.new_figure(7, 4)
    axes = figure.add_subplot()
    noise: Noise = noise_of(results)
    record = results["noise"]
    middle = np.sqrt(noise.rate[1:] * noise.rate[:-1])
    axes.set_xscale("log")
    axes.set_yscale("log")
    for seed in range(len(record["std"])):
        axes.plot(noise.rate, record["std"][seed], "o", color=panels.CHAINS[0], ms=4, alpha=0.4)
        axes.plot(middle, record["difference_std"][seed] / np.sqrt(2), "s", color=panels.CHAINS[1],
                  ms=4, alpha=0.4)  # fmt: skip
    axes.plot(noise.rate, noise.alone, color=panels.CHAINS[0], label="one network")
    axes.plot(middle, noise.pair, color=panels.CHAINS[1],
              label="neighbours on the same mini-batch: σ of Eq. 14")  # fmt: skip
    panels.label(axes, "learning rate", "sd of the mean loss over mini-batches", "Energy noise")
    axes.set_xticks(noise.rate, [f"{rate:.3g}" for rate in noise.rate])
    axes.set_xticks([], minor=True)
    panels.legend(axes)
    figure.set_label(
        "How much the mini-batch moves the energy of a network that stands still, by the learning "
        "rate that it was trained with; dots are seeds."
    )
    return figure
