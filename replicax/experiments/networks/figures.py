"""Figures of the study of small networks."""

from typing import Any

import numpy as np

from replicax.experiments.networks.numbers import (
    RATE,
    best_window,
    coins,
    lemma,
    noise_of,
    sweep,
    windows,
)
from replicax.experiments.shared.study import Results
from replicax.results import figure_style


def draw_windows(results: Results) -> Any:
    figure = figure_style.new_figure(7.6, 4.4)
    axes = figure.add_subplot()
    chosen = windows(results)
    closed = np.geomspace(min(chosen), max(chosen), 60)
    axes.set_xscale("log")
    axes.plot(
        closed, [lemma(w) for w in closed], **figure_style.DASHED, label="Lemma 1 at r = 1 - S"
    )
    expected = [coins(results, window) for window in chosen]
    axes.errorbar(chosen, [e.mean for e in expected], [e.std for e in expected], fmt="s",
                  mfc="white", color=figure_style.SOFT, capsize=3,
                  label="coins of the measured rates, mean ± sd")  # fmt: skip
    for window in chosen:
        by_seed = results.only(rate=RATE, window=window)["trips"]
        label = "one seed" if window == chosen[0] else None
        axes.plot([window] * len(by_seed), by_seed, "o", color=figure_style.CHAINS[0], ms=4,
                  alpha=0.5, label=label)  # fmt: skip
    means = [results.only(rate=RATE, window=w)["trips"].mean() for w in chosen]
    axes.plot(chosen, means, "-", color=figure_style.CHAINS[0], lw=1.6, label="mean")
    axes.set_ylim(bottom=0)
    figure_style.label(axes, "window W", "round trips per 100 epochs", f"target swap rate {RATE:g}")
    axes.set_xticks(chosen, [str(w) for w in chosen])
    axes.set_xticks([], minor=True)
    figure_style.legend_below(axes)
    figure.set_label(
        f"Round trips of small networks by window; Theorem 1's best one is {best_window(RATE)}. "
        "Coins toss the measured verdict rates in a run of the same length from the same start."
    )
    return figure


def draw_rates(results: Results) -> Any:
    figure = figure_style.new_figure(10.5, 3.8)
    row = figure.subplots(1, 2)
    records = list(sweep(results))
    rates = [rate for rate, _ in records]
    kinds = (("accuracy", 100, "accuracy, %"), ("nll", 1, "NLL per image, nats"))
    for axes, (name, scale, y) in zip(row, kinds, strict=True):
        axes.set_xscale("log")
        for prefix, colour, what in (
            ("", figure_style.CHAINS[0], "average of cold networks"),
            ("single_", figure_style.CHAINS[1], "the last cold network"),
        ):
            values = [scale * record[prefix + name] for _, record in records]
            for rate, by_seed in zip(rates, values, strict=True):
                axes.plot([rate] * len(by_seed), by_seed, "o", color=colour, ms=4, alpha=0.5)
            axes.plot(rates, [v.mean() for v in values], color=colour, lw=1.6, label=what)
        figure_style.label(axes, "target swap rate S", y)
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)
    figure_style.legend_below(row[0])
    figure.set_label(
        "Test accuracy and NLL of the cold rung by target swap rate, each at Theorem 1's window; "
        "dots are seeds."
    )
    return figure


def draw_noise(results: Results) -> Any:
    figure = figure_style.new_figure(7, 4)
    axes = figure.add_subplot()
    noise = noise_of(results)
    record = results["noise"]
    middle = np.sqrt(noise.rate[1:] * noise.rate[:-1])
    axes.set_xscale("log")
    axes.set_yscale("log")
    for seed in range(len(record["std"])):
        alone = record["std"][seed]
        axes.plot(noise.rate, alone, "o", color=figure_style.CHAINS[0], ms=4, alpha=0.4)
        pair = record["difference_std"][seed] / np.sqrt(2)
        axes.plot(middle, pair, "s", color=figure_style.CHAINS[1], ms=4, alpha=0.4)
    axes.plot(noise.rate, noise.alone, color=figure_style.CHAINS[0], label="one network")
    axes.plot(middle, noise.pair, color=figure_style.CHAINS[1],
              label="neighbours on the same mini-batch: σ of Eq. 14")  # fmt: skip
    figure_style.label(
        axes, "learning rate", "sd of the mean loss over mini-batches", "Energy noise"
    )
    axes.set_xticks(noise.rate, [f"{rate:.3g}" for rate in noise.rate])
    axes.set_xticks([], minor=True)
    figure_style.legend(axes)
    figure.set_label(
        "How much the mini-batch moves the energy of a fixed network, by the learning "
        "rate that it was trained with; dots are seeds."
    )
    return figure
