"""The page truth.md and its figure, from the runs in truth.json."""

from pathlib import Path
from typing import Any

import numpy as np
from judge import MASS_BOUND, MEAN_BOUND, SD_BOUNDS
from targets import SHOWN, TARGETS, reference

_COLOURS = ("#0b6e99", "#d1782f", "#5b8c3a", "#8a4f9e")
_INTRO = """# The right answer, or a warning

This page tests one call of `rx.sample` on posteriors with known answers. {given}

<!-- not run: the form of a call, with dots for its numbers -->
```python
rx.sample(target, start, {numbers}num_chains=4, seed=...)
```

Starts are dispersed. A run passes if, for all functions of the parameters that are compared, means
are within {mean:g} sd, standard deviations within {low:g} to {high:g} of the truth, and masses of
modes within {mass:g}, over the four chains together. A *silent miss* is a run that does not pass
although `posterior.problems()` is empty. If labels can be exchanged, the functions are those of
ordered labels.

Other samplers get the processor time that replicax took (without compilation, which is listed
separately) and see all rows in every step. Their warnings are R-hat above 1.01, divergent
transitions, and a temperature that did not reach 1.

{commands}, {machine}. References: `python benchmarks/truth/references.py`. This page is written by
the first command.

Targets with a batch were measured with version 0.2, whose moves saw mini-batches; today sweeps over
all rows sample them.
"""


def write_page(
    runs: list[dict[str, Any]], commands: list[str], out: Path, machine: dict[str, Any]
) -> None:
    """Write truth.md and truth-errors.png into a folder."""
    if not runs:
        return
    samplers = list(dict.fromkeys(run["sampler"] for run in runs))
    decide = any("batch_size" in run for run in runs)  # themselves how long they are
    given = "Nothing is tuned except\nthe number of steps and replicas:"
    if decide:
        given = "Nothing is given\nbut the target (on mini-batches: the number of steps, too):"
    text = _INTRO.format(
        given=given, numbers="" if decide else "num_steps=..., num_replicas=..., ",
        commands=", ".join(f"`{command}`" for command in commands),
        mean=MEAN_BOUND, low=SD_BOUNDS[0], high=SD_BOUNDS[1], mass=MASS_BOUND,
        machine=f"{machine['cpu']}, {machine['cores_used']} cores, jax {machine.get('jax')}, "
        f"Python {machine['python']}",
    )  # fmt: skip
    parts = [text, "## Silent misses\n", _count_table(runs, samplers), "![](truth-errors.png)\n"]
    extra = tuple(name for name in TARGETS if name not in SHOWN)
    for title, names in (("Targets", SHOWN), ("More targets", extra)):
        if any(run["target"] in names for run in runs):
            parts += [f"## {title}\n", _table(runs, samplers, names)]
            parts += [_not_run(runs, samplers)] if names == SHOWN else []
    parts += ["## How the truth is known\n", _references()]
    warned = [run for run in runs if run["sampler"] == samplers[0] and run.get("warnings")]
    if warned:
        parts += [f"## Warnings of {samplers[0]}\n", _warnings(warned)]
    (out / "truth.md").write_text("\n".join(parts))
    _draw(runs, samplers, out / "truth-errors.png")


def _not_run(runs: list[dict[str, Any]], samplers: list[str]) -> str:
    """Return a sentence about targets where other samplers were not run."""
    lacking = []
    for name in SHOWN:
        there = {run["sampler"] for run in runs if run["target"] == name}
        others = [sampler for sampler in samplers[1:] if sampler not in there]
        if there and others:
            lacking.append(f"{name} ({', '.join(others)})")
    return f"Not run so far: {'; '.join(lacking)}.\n" if lacking else ""


def _rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _count_table(runs: list[dict[str, Any]], samplers: list[str]) -> str:
    rows = []
    for sampler in samplers:
        own = [run for run in runs if run["sampler"] == sampler and "error" not in run]
        misses = [run for run in own if not run["passes"]]
        silent = sum(run["silent_miss"] for run in own)
        failed = sum(run["sampler"] == sampler and "error" in run for run in runs)
        quiet = sum(run["passes"] and not run["warnings"] for run in own)
        rows.append((sampler, str(len(own)), str(len(own) - len(misses)), str(quiet),
                     str(len(misses) - silent), f"**{silent}**", str(failed)))  # fmt: skip
    head = ("sampler", "runs", "pass", "of these without a warning", "miss with a warning",
            "silent misses", "ended by an error")  # fmt: skip
    return _rows(head, rows)


def _table(runs: list[dict[str, Any]], samplers: list[str], names: tuple[str, ...]) -> str:
    head = ("target", "sampler", "pass", "mean error (sd)", "sd ratio", "mode mass error",
            "effective draws", "warned", "silent misses", "seconds", "+ compiling")  # fmt: skip
    rows = []
    for name in names:
        for sampler in samplers:
            mine = [run for run in runs if (run["target"], run["sampler"]) == (name, sampler)]
            own = [run for run in mine if "error" not in run]
            if not mine:
                continue
            first = TARGETS[name].title if sampler == samplers[0] else ""
            batch_size = mine[0].get("batch_size", TARGETS[name].batch_size)
            if batch_size and first:
                first += f", batch {batch_size}"
            if not own:
                rows.append((first, sampler, mine[0]["error"][:80], *[""] * 8))
                continue
            of = lambda key, own=own: [run[key] for run in own]  # noqa: E731
            mass = "" if own[0]["mass_error"] is None else f"{max(of('mass_error')):.2f}"
            warned = sum(bool(run["warnings"]) for run in own)
            rows.append((
                first, sampler, f"{sum(of('passes'))} of {len(own)}",
                f"{max(of('mean_error')):.2f}",
                f"{min(of('sd_low')):.2f} to {max(of('sd_high')):.2f}", mass,
                f"{np.median(of('ess')):.0f}", str(warned), str(sum(of("silent_miss"))),
                f"{np.median(of('seconds')):.0f}", f"{np.median(of('compile_seconds')):.0f}",
            ))  # fmt: skip
    return "Errors are the worst over all seeds; other numbers are medians.\n\n" + _rows(head, rows)


def _references() -> str:
    rows = [
        (target.title, reference(target.name)["method"],
         f"{max(f['error'] for f in reference(target.name)['functions'].values()):.4f}")
        for target in TARGETS.values() if not target.name.endswith("-batch")
    ]  # fmt: skip
    return _rows(("target", "reference", "standard error of a mean (sd)"), rows)


def _warnings(runs: list[dict[str, Any]]) -> str:
    lines = []
    for run in runs:
        verdict = "passes" if run["passes"] else "misses"
        lines.append(f"- {run['target']}, seed {run['seed']} ({verdict}): "
                     + " ".join(line.split(":")[0] + "." for line in run["warnings"]))  # fmt: skip
    return "\n".join(lines) + "\n"


def _draw(runs: list[dict[str, Any]], samplers: list[str], file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in TARGETS if any(run["target"] == name for run in runs)]
    panels = (("mean error (sd)", (0, MEAN_BOUND), (0, 1.0)),
              ("sd ratio", SD_BOUNDS, (0.3, 1.7)),
              ("mode mass error", (0, MASS_BOUND), (0, 0.55)))  # fmt: skip
    size = (11, 1.2 + 0.42 * len(names))
    figure, axes = plt.subplots(1, 3, figsize=size, sharey=True, constrained_layout=True)
    for axis, (title, bounds, limits) in zip(axes, panels):
        axis.axvspan(*bounds, color="#dfeee0")
        axis.set(title=title, xlim=(limits[0] - 0.02, limits[1] + 0.02))
        axis.set_yticks(range(len(names)), names)
    for run in runs:
        if "error" in run:
            continue
        which = samplers.index(run["sampler"])
        place = names.index(run["target"]) + 0.17 * (which - (len(samplers) - 1) / 2)
        values = ((run["mean_error"],), (run["sd_low"], run["sd_high"]), (run["mass_error"],))
        for axis, (_, _, limits), value in zip(axes, panels, values):
            shown = [np.clip(one, *limits) for one in value if one is not None]
            axis.plot(shown, [place] * len(shown), "-" if len(shown) > 1 else "", lw=1,
                      marker="o", ms=4, mfc="none" if run["warnings"] else _COLOURS[which],
                      color=_COLOURS[which])  # fmt: skip
    axes[0].invert_yaxis()
    for which, sampler in enumerate(samplers):
        axes[2].plot([], [], "o", ms=4, color=_COLOURS[which], label=sampler)
    axes[2].plot([], [], "o", ms=4, mfc="none", color="grey", label="open: with a warning")
    axes[2].legend(fontsize=7, loc="lower right")
    figure.savefig(file, dpi=130)
    plt.close(figure)
