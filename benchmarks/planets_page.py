"""The page planets.md, from the cells in planets.json; `planets.py` writes it."""

from pathlib import Path
from typing import Any

import numpy as np

from studies.shared.page import markdown_table

TITLES = {"simulated": "A simulated star", "HD164922": "HD 164922", "TOI141": "TOI-141"}
ABOUT = {
    "simulated": "Two planets of 23.7 and 310 days, 59 nights, two instruments.",
    "HD164922": "Two planets, of 75.8 and 1,201 days, are known in 240 nights of three "
    "instruments.",
    "TOI141": "Two planets, of 1.008 and 4.785 days, are known in 238 observations of three "
    "instruments.",
}
CLOSE = 0.01  # of a period, and the median of each chain is right
PERIODS = {"simulated": (23.7, 310.0), "HD164922": (75.8, 1201.0), "TOI141": (1.008, 4.785)}
NAMES = {
    "replicax": "`rx.sample(posterior)`",
    "dynesty": "dynesty",
    "NUTS": "NumPyro NUTS",
    "importance": "importance sampling",
}
_INTRO = """# Planets, and phases that wrap

Problems that people have, as they have them: `rx.bayesian` with bounds and angles, and one call of
`rx.sample` without an option. Times are processor time of one thread, compilation included; medians
with the smallest and the largest of the seeds.

## The model of a star

`python examples/planets.py STAR --planets N`. Velocities of HD 164922 and TOI-141 come from the
package radvel, and nothing of them is shipped; a third star is simulated. Orbits are Keplerian.

| | prior |
|---|---|
| period | log-uniform from 1.1 days (TOI-141: .5) to 3,000 |
| eccentricity, mean anomaly in the middle of the observations | e uniform up to .9 and a uniform angle, together a point of the disk: `rx.priors.disk` |
| jitter of each instrument | half-normal, 5 m/s |
| offset of each instrument, K cos ω and K sin ω | normal, 100 and 10 m/s; integrated out, since velocities are linear in them: the likelihood is one number for all rows |

Planets can be exchanged (`exchangeable=`), and draws show them by period (`order_by="period"`).
All samplers have this likelihood, compiled. dynesty has 500 live points and random walks; NUTS a
dense metric and four chains, from draws of the prior, of 500 steps of warm-up and 500 draws.

`python benchmarks/planets.py run --jobs 16` makes the runs below, and this page. Ours with a planet or more are of a 16-core Intel
Xeon (13 runs at once, jax 0.11.2), a run at most 480 s of its clock; all others of two shared cores of an AMD EPYC with much other
work, jax 0.10.2. Processor times of the two are not to be compared to better than a factor of two.
"""  # noqa: E501
_SAYS = """
## What this says

- **What comes out is right**: in every run of ours that ended, all four chains agree on the periods, and seeds on the evidence to
  .01. Importance sampling around the deepest minimum (`cell '["simulated", 2, "importance", 0]'`), which looks for nothing, gives
  -154.752 ± .004 for the simulated star with two planets, ours -154.75 in three seeds; dynesty with 500 live points and random walks
  is 2.9 too low there, ten of its standard errors.
- **With two planets it is dear, and not done**: the evidence is there after the first 600 steps, but ten round trips of every chain
  are not: a round trip is a blind search for both planets. Runs on the simulated star end by saying that replicas hardly make round
  trips; those on HD 164922 were at their limit of 480 s with 2 of 10 (on two shared cores seed 0 was done after 598 s of processor
  time). dynesty takes 50 to 63 s.
- **TOI-141 with two planets is not met**: three runs had no result in the 520 s that a process got (R-hat 1.04 for the periods when
  the limit came), and dynesty misses the planet of 1.008 days, too. With one planet in the model all chains have 4.74 days, a
  hundredth from the period beside a second planet, which is the bound of the column.
- For none or one planet nested sampling is cheaper, by three to ten times, and as right.
- Not run: other seeds of dynesty and NUTS, ours without planets on the real stars, three and four planets.
"""  # noqa: E501
_PHASES = """
## Phases that wrap

`python examples/phases.py`: the model of [issue 643 of NumPyro](https://github.com/pyro-ppl/numpyro/issues/643), a delay and a
constant seen as noisy cosines and sines at 24 frequencies, with a random key of our own for the noise. The posterior is a ridge that
goes on at the other side of the period, and islands.

![Draws of a delay and a constant phase, and the density of the delay in four chains](../images/phases.png)

| | CPU s | log evidence | R-hat of the delay | mean of the delay by chain |
|---|---|---|---|---|
| `rx.sample(posterior)`, with a uniform prior and `rx.priors.angle` | 27 | -43.266 ± .008 (by the ladder -43.33 ± .05) | 1.000 | all chains alike; 11,946 effective draws |
| grid of 4,000 x 400 points | | -43.274 | | |
| NumPyro NUTS, 4 chains of 1,000 + 5,000 | 9 | | 1.73 | -25.2, -25.2, 54.0, 55.1: stuck |

Proposals of the learned mixture are accepted in 56 % of the cases. One seed.
"""  # noqa: E501


def write_page(found: dict[str, Any], path: Path) -> None:
    """Write the page of all cells."""
    parts = [_INTRO]
    for star, title in TITLES.items():
        of_star = {name: x for name, x in found.items() if name.split()[0] == star}
        if of_star:
            parts += [f"\n## {title}\n\n{ABOUT[star]}\n\n{table(star, of_star)}\n"]
    path.write_text("".join([*parts, _SAYS, _PHASES]))


def table(star: str, found: dict[str, Any]) -> str:
    """Return the table of a star: a row for each number of planets and sampler."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in sorted(found):
        _, planets, sampler, _ = name.split()
        groups.setdefault((planets, sampler), []).append(found[name])
    order = list(NAMES)
    rows = [
        [planets, NAMES[sampler], *_row(star, int(planets), runs)]
        for (planets, sampler), runs in sorted(
            groups.items(), key=lambda item: (item[0][0], order.index(item[0][1]))
        )
    ]
    head = ["planets", "sampler", "CPU s", "log evidence, by seed", "largest error",
            "periods, days", "ended"]  # fmt: skip
    return "\n".join(markdown_table(head, rows))


def _row(star: str, planets: int, runs: list[dict[str, Any]]) -> list[str]:
    whole = [run for run in runs if "cpu" in run and "failed" not in run]
    lost = [f"over {run['over']:.0f} s" if "over" in run else "failed"
            for run in runs if run not in whole]  # fmt: skip
    if not whole:
        return ["", "", "", "", ", ".join(lost)]
    cpu = sorted(run["cpu"] for run in whole)
    seconds = f"{np.median(cpu):.0f} ({cpu[0]:.0f} to {cpu[-1]:.0f})"
    values = ", ".join(f"{run['log_evidence']:.2f}" for run in whole if "log_evidence" in run)
    errors = [run["error"] for run in whole if "error" in run]
    largest = f"{max(errors):.2g}" if errors else ""
    return [
        seconds,
        values,
        largest,
        _periods(star, planets, whole),
        "; ".join(_ends(whole) + lost),
    ]


def _ends(runs: list[dict[str, Any]]) -> list[str]:
    """Return how runs of ours ended, and how far the chains of NUTS are apart."""
    ended = [run for run in runs if "ended" in run]
    done = sum(run["ended"].startswith("Done") for run in ended)
    words = [f"{done} of {len(ended)} done"] if ended else []
    rhats = [run["rhat"] for run in runs if "rhat" in run and "ended" not in run]
    return words + ([f"R-hat {min(rhats):.2f} to {max(rhats):.2f}"] if rhats else [])


def _periods(star: str, planets: int, runs: list[dict[str, Any]]) -> str:
    """Return the periods that were found, or how many chains have found them."""
    if not planets:
        return ""
    chains = np.concatenate(
        [np.asarray(run["periods"]) for run in runs]
    )  # (chain, planet, quantile)
    middle = chains[..., 1]
    if planets == len(PERIODS[star]):
        right = np.all(np.abs(middle / np.array(PERIODS[star]) - 1) < CLOSE, axis=1)
        words = f"{right.sum()} of {len(right)} chains find both"
    else:
        near = np.abs(middle / np.array(PERIODS[star]) - 1) < CLOSE
        words = f"{near.any(axis=1).sum()} of {len(near)} chains find one of both"
    low, high = chains[..., 0].min(axis=0), chains[..., 2].max(axis=0)
    ranges = [f"{a:,.4g} to {b:,.4g}" for a, b in zip(low, high)]
    return f"{words}: {' and '.join(ranges)}"
