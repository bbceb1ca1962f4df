"""The page peers.md and its pictures, from the runs in peers.json.

python benchmarks/peers_page.py docs/results
"""

import json
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from peers_table import (
    FEW,
    HEAD,
    MANY,
    OURS,
    TITLES,
    Spread,
    Summary,
    cells,
    findings,
    short,
    summaries,
)

from replicax.results import figure_style

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).with_name("truth")))
from judge import FOUND, MASS_BOUND, MEAN_BOUND, SD_BOUNDS

from studies.shared.page import markdown_table

ABOUT = {
    "modes-25": "The paper's 25 modes (section 5.1), started in a square of side 6. Those with "
    "noisy gradients see energies and gradients with noise of standard deviation 2.",
    "twenty-modes": "Twenty equal modes of width .1 in a square of side 10 (Liang and Wong).",
    "chain-32": "A chain of 32 coupled double wells in a weak field: all up or all down.",
    "mixture-2": "The posterior of a mixture of two normals given 1,000 rows, with two mirror "
    "modes. SGLD sees mini-batches of 100 rows; the others see all rows in every step.",
    "logistic": "Ten coefficients, correlated predictors.",
    "gaussian-100": "All pairs of parameters are correlated.",
    "schools-non-centred": "Ten parameters, tau half-Cauchy.",
    "hierarchical-logit": "A logistic regression with an offset for each group, 56 parameters.",
}
_INTRO = """# A race with other samplers

Which samplers find the modes, how accurately, and how fast? On targets with known answers,
`rx.sample(target, start, num_chains=4)` is called once, which decides itself how long it is. Every
other sampler then gets the processor time that it took (without tracing and compiling), in the same
process, on the same core, in turns. A sampler is *right* on a target if every run has means within
{mean:g} sd, standard deviations within {low:g} to {high:g} of the truth and masses of modes within
{mass:g}, as in [The right answer, or a warning](truth.md).

![Effective draws per second of all samplers on all targets](peers-race.png)

*{caption}*

{findings}

{machine}.
Up to {n} seeds, as *right* says; medians with the smallest and the largest in brackets. Times are
processor time of one core (a load of {load:.0f} on {cores} cores).{lacking}
One process for each target and seed, and then the page:

    python benchmarks/peers.py --targets TARGET --seeds SEED --no-networks --json PART
    python benchmarks/peers.py --join PART ... --out docs/results

`python benchmarks/peers_page.py docs/results` writes this page from peers.json; every run with
`--out docs/results` does so at its end.
"""
_HOW = """## How to read it

- *Effective draws / s* are those of each second after tuning: after the burn-in of replicax and
  NUTS, and after the half of the time in which `ReplicaExchangeMC` tunes its step sizes. The
  seconds to {few:,} and {many:,} of them have tuning in them, and of replicax search and renewals
  of what is learned: all but tracing and compiling, of all samplers alike. A call of another seed
  came before.
- *Effective draws* are the smallest effective size over all compared functions and all indicators
  of modes, over all chains (Geyer's sum, with the variance between chains; for SMC along the order
  of its particles, where siblings are neighbours). Chains that never leave their modes have only a
  few. If the answer is wrong, they count draws from a wrong distribution.
- A *mode is found* if it has {found:g} of its true mass or more. *TV* is the total variation
  between found and true masses of all modes.
- One *iteration* is that of one chain:
{iterations}
- *Log evidence*: the worst error over the seeds, and the largest standard error that was claimed:
  of replicax its own, of others the spread over four runs. It is known in closed form, by a grid, a
  transfer matrix or importance sampling. replicax gives it where prior and likelihood are known
  apart, which a bare energy does not tell.
- Settings of the samplers. NUTS, beside others: a dense metric and its own warm-up for half of the
  time, four chains one after another, with dispersed starts, the same as for all. On targets of one
  mode, which are run beside NUTS alone: its best layout, four chains one after another or side by
  side, with 150, 300 or 600 transitions of warm-up; of these six the one that has {few:,} effective
  draws first, which its user would have to know. `ReplicaExchangeMC`: HMC on 8 rungs (the chain:
  12), up to the hottest temperature that replicax found, with step sizes tuned in the first half.
  Tempered SMC: an initial Gaussian with the spread of the starts, HMC moves whose step size is
  tuned by stage, 200 to 20,000 particles; if even 200 need more than the given time, it took more.
  Nested slices: `blackjax.nss` from the same Gaussian, with twice as many slices as dimensions for
  each new point (at least 5), a tenth of the live points replaced at once, until the live ones have
  less than exp(-3) of the evidence; effective draws as Kish counts them, in each of four runs; what
  it takes to weight its points is not counted. SGLD: the best of eight learning rates, chosen by
  the known answer, and as many particles as replicax has replicas. The NumPy loop: the paper's
  algorithm and settings, one chain. replicax, DEO⋆: the same settings, four chains.
"""


def draw_race(found: Sequence[Summary]) -> Any:
    """Plot effective draws per second, a panel for each target, a line for each sampler."""
    names = list(dict.fromkeys(one.sampler for one in found if one.n))
    targets = list(dict.fromkeys(one.target for one in found if one.sampler != OURS and one.n))
    targets = targets or list(dict.fromkeys(one.target for one in found))
    figure = figure_style.new_figure(2.0 + 2.3 * len(targets), 1.6 + 0.34 * len(names))
    panels = figure.subplots(1, len(targets), sharey=True, sharex=True, squeeze=False)[0]
    for axes, target in zip(panels, targets):
        axes.set_xscale("log")
        for one in found:
            if one.target == target and one.n:
                _draw_line(axes, one, names.index(one.sampler))
        figure_style.label(axes, "", "", textwrap.fill(TITLES[target], 22))
        axes.grid(axis="y", visible=False)
        axes.grid(axis="x", color=figure_style.FAINT, lw=0.8)
        axes.tick_params(left=False)
        axes.set_xlim(_START, _END)
        axes.set_xticks([1, 100, 10_000], ["1", "100", "10,000"])
        axes.minorticks_off()
    panels[0].set_yticks(range(len(names)), names)
    panels[0].get_yticklabels()[0].set_fontweight("bold")
    panels[0].set_ylim(len(names) - 0.4, -0.6)
    figure.suptitle("Known answers, the same processor time: who is right, and how fast",
                    x=0.01, ha="left", fontsize=11.5, color=figure_style.INK)  # fmt: skip
    figure.supxlabel("effective draws per second after tuning; hollow: the answer is wrong",
                     fontsize=10, color=figure_style.INK)  # fmt: skip
    return figure


_START, _END = 0.3, 2e7  # of the axis; what is said of a bar needs room at its right


def _draw_line(axes: Any, one: Summary, place: int) -> None:
    """Draw a bar, its range over seeds, and its number or what is wrong with it."""
    rate = one.rate
    assert rate is not None
    colour = figure_style.CHAINS[0] if one.sampler.startswith(OURS) else _OTHERS
    face = colour if one.is_right else "white"
    length = max(rate.median, _START * 1.3) - _START
    axes.barh(place, length, left=_START, height=0.6, color=face, edgecolor=colour, lw=1.1,
              ls="-" if one.is_right else (0, (3, 2)))  # fmt: skip
    if rate.high > rate.low:
        axes.plot([max(rate.low, _START), rate.high], [place] * 2, color=figure_style.INK, lw=1.1)
    said = short(rate.median) if one.is_right else one.fault
    text = axes.annotate(
        said, (max(rate.high, _START * 1.3), place), (4, 0), textcoords="offset points",
        va="center", fontsize=8.5, color=figure_style.INK if one.is_right else figure_style.ACCENT,
    )  # fmt: skip
    text.set_in_layout(False)


_OTHERS = "#9aa5b1"


NETWORK_NAMES = {
    "train": "`rx.train`: DEO⋆ with augmentation, swaps, adaptation, records",
    "ours": "the same networks, momentum SGD alone, in JAX",
    "torch-loop": "PyTorch, one network after the other, momentum SGD alone",
}


def network_section(networks: dict[str, Any]) -> list[str]:
    """Return the table of networks, and what it says."""
    setup, rows, of = networks["setup"], networks["rows"], networks.get("machine")
    by_name = {row["name"]: row for row in rows}
    reference = by_name["torch-loop"]["cpu"]
    lines = [
        "## Networks, compared with a PyTorch loop",
        "",
        f"{setup['replicas']} networks ({setup['model']}, images of side {setup['side']}, batches "
        f"of {setup['batch_size']}, float32) on one core, laps of {setup['steps']} steps in turns; "
        "milliseconds of processor time for a step of all of them."
        + (f" {of['cpu']}, jax {of['jax']}, load {of['load'][0]:.0f}." if of else ""),
        "",
    ]
    table = []
    for row in rows:
        name = NETWORK_NAMES[row["name"]]
        if row["cpu"] is None:
            table.append([name, row["note"], "", "", ""])
            continue
        ratio = "" if reference is None else str(Spread.of(np.divide(row["cpu"], reference)))
        times = str(Spread.of(row["cpu"]))
        table.append([name, times, ratio, str(len(row["cpu"])), f"{row['compile_seconds']:.0f}"])
    head = ["", "ms / step", "times the loop's", "n", "+ compiling, s"]
    lines += markdown_table(head, table)
    if reference is not None and by_name["train"]["cpu"] is not None:
        ratio = float(np.median(np.divide(by_name["train"]["cpu"], reference)))
        word = "slower" if ratio > 1 else "faster"
        lines += ["", f"On a CPU `rx.train` is {word} than the loop: {ratio:.2g} times its time."]
    lines += [
        "",
        "On a GPU the networks share one program: ten ResNet20 on an NVIDIA H200 take a tenth of "
        "the time of a PyTorch loop ([benchmarks](../benchmarks.md)). "
        "`rx.torch` exchanges replicas inside a loop of PyTorch ([PyTorch](../pytorch.md)).",
    ]
    return lines


def _lacking(found: Sequence[Summary]) -> str:
    """Return a sentence about what was not run."""
    run = {target: [one for one in found if one.target == target] for target in TITLES}
    lines = [f"{TITLES[target]} (at all)" for target, own in run.items() if not own]
    lines += [
        f"{TITLES[target]} (others)"
        for target, own in run.items()
        if own and all(one.sampler == OURS for one in own)
    ]
    return f" Not run: {'; '.join(lines)}." if lines else ""


def page_text(content: dict[str, Any], found: Sequence[Summary]) -> str:
    """Return the page as Markdown."""
    machine, n = content["machine"], max((one.n for one in found), default=0)
    cpu = f"{machine['cpu']}, {machine['cores_used']} of {machine['cores']} cores, jax "
    cpu += f"{machine.get('jax')}, Python {machine['python']}"
    text = _INTRO.format(
        mean=MEAN_BOUND, low=SD_BOUNDS[0], high=SD_BOUNDS[1], mass=MASS_BOUND, n=n, machine=cpu,
        findings="\n".join(findings(found)), lacking=_lacking(found),
        load=machine["load"][0], cores=machine["cores"],
        caption="Filled bars are right in every run; a hollow one gives a wrong answer in some or "
        "all of them, however long it is. Thin lines: the range over seeds.",
    )  # fmt: skip
    lines = [text]
    for target in dict.fromkeys(one.target for one in found):
        rows = [cells(one) for one in found if one.target == target]
        lines += [f"## {TITLES[target]}", "", ABOUT[target], ""]
        lines += [*markdown_table(list(HEAD), rows), ""]
    if "networks" in content:
        lines += [*network_section(content["networks"]), ""]
    said = [f"    - {name}: {what}" for name, what in content["iterations"].items()]
    lines.append(_HOW.format(found=FOUND, few=FEW, many=MANY, iterations="\n".join(said)))
    return "\n".join(lines)


def write_page(content: dict[str, Any], out: Path) -> None:
    """Write peers.md and peers-race.png into a folder."""
    found = summaries(content["runs"])
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers.md").write_text(page_text(content, found))
    figure_style.save(draw_race(found), out / "peers-race.png", named=True)


def main(folder: Path) -> None:
    write_page(json.loads((folder / "peers.json").read_text()), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
