"""Table 2 in small: the paper's protocol in proportion, with which two cores are done in hours.

Six networks instead of ten, 5,000 images of 16 x 16 pixels in 20 classes, 30 epochs of start
networks by the stepwise schedule and 50 of sampling instead of 300 and 500, cycles of 10 instead of
100, on three depths and with two seeds; and a deep ensemble of all 80 epochs as a sixth row. The
runs of seed K are the folders `RUNS/seed-K/MODEL/METHOD`; the page is written from their summaries,
`RUNS/MODEL-METHOD-K.json`, which are small enough to be copied.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replicax import __version__
from studies.shared.page import findings_section, markdown_table, to_plain, write_json
from studies.shared.study import Finding
from studies.table2 import numbers, starts, trainings
from studies.table2.paper import NAMES
from studies.table2.seeds import spread
from studies.table2.trainings import DEEP, FEWER, MADE, PAPER_MODELS, STARTS, Settings

NAME = "small-table2"
TITLE = "Table 2 in small: the paper's methods and a deep ensemble"
SETTINGS = Settings(
    data="studies.shared.small_images:small_images",
    epochs=50,
    start_epochs=30,
    num_replicas=6,
    batch_size=100,
    cycle_epochs=10,
    # In the 2,500 steps of a run Lemma 1 then expects 27 round trips of DEO and 37 of DEO*, about
    # as many as the paper's runs had in 98,000 (30 and 56).
    target_swap_rate=0.1,
)
NUM_SEEDS = 2


def run_all(
    settings: Settings,
    runs: Path,
    models: Sequence[str] = PAPER_MODELS,
    methods: Sequence[str] = tuple(MADE),
    num_seeds: int = NUM_SEEDS,
    report: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Start or resume all runs without a summary, and write their summaries."""
    for model in models:
        for method in methods:  # seeds one after the other: they share compiled programs
            for seed in range(num_seeds):
                summary = runs / f"{model}-{method}-{seed}.json"
                if summary.exists():
                    continue
                one = replace(settings, model=model, methods=(method,), seed=seed)
                of_seed = runs / f"seed-{seed}"
                trainings.run_all(one, of_seed, progress=False, report=report)
                write_json(summary, to_plain(_describe(one, of_seed, method)))


def _describe(settings: Settings, runs: Path, method: str) -> dict[str, Any]:
    """Return a finished run as plain data."""
    folder = trainings.folder_of(runs, settings.model, method)
    run = trainings.open_run(folder)
    assert run is not None
    start = trainings.folder_of(runs, settings.model, STARTS)
    described: dict[str, Any] = {
        "model": settings.model,
        "method": method,
        "seed": settings.seed,
        "epochs": run.num_epochs,
        "networks": run.num_replicas,
        "machine": run.metadata.machine,
        "seconds": trainings.wall_seconds(folder, run.num_steps),
        "one_network": float(run.epochs["accuracy"][-1].mean()),
        "coldest": float(run.epochs["accuracy"][-1][0]),
    }
    if method == STARTS:
        problem, _ = settings.task().problem()
        starts.write(start, problem)
        alone = starts.read(start, run.num_replicas)
        assert alone is not None
        return described | {"averages": numbers.starts_alone(alone, run.labels)}
    at_start = None if trainings.is_from_new(method) else starts.read(start, run.num_replicas)
    described |= {"averages": numbers.averages(run, at_start)}
    described |= {"averaged": float(run.average.weight)}
    if method in ("deo", "deo-star"):
        described |= {"window": run.window, "trips": int(run.round_trips.sum())}
        described |= {"verdict_rate": run.verdict_rate[0].tolist()}
    return described


def read(runs: Path) -> list[dict[str, Any]]:
    """Return the summaries of all runs."""
    return [json.loads(path.read_text()) for path in sorted(runs.glob("*-*-*.json"))]


def reproduce(
    settings: Settings,
    out: Path,
    runs: Path | None = None,
    models: Sequence[str] = PAPER_MODELS,
    methods: Sequence[str] | None = None,
    num_seeds: int = NUM_SEEDS,
    *,
    assemble: bool = False,
    command: str = "",
    **display: Any,
) -> dict[str, Any] | None:
    """Finish all runs, unless `assemble`, and write the page and its JSON; with `methods`, only
    these and no page."""
    runs = out / "records" / NAME if runs is None else runs
    if not assemble:
        run_all(settings, runs, models, methods or tuple(MADE), num_seeds, **display)
    return write_page(read(runs), out, command) if methods is None else None


def write_page(found: list[dict[str, Any]], out: Path, command: str) -> dict[str, Any]:
    """Write `small-table2.md` and `small-table2.json`; return the JSON as a dict."""
    summary = {
        "study": NAME,
        "title": TITLE,
        "command": command,
        "version": __version__,
        "machine": "; ".join(dict.fromkeys(run["machine"] for run in found)),
        "findings": [finding._asdict() for finding in findings(found)],
        "runs": found,
    }
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{NAME}.json", summary)
    (out / f"{NAME}.md").write_text("\n".join(_page(summary)))
    return summary


_TOTAL = (SETTINGS.num_replicas or 0) * (SETTINGS.start_epochs + SETTINGS.epochs)
_ABOUT = f"""
The paper's five methods with its protocol in proportion, on three depths: {SETTINGS.num_replicas}
networks, {SETTINGS.start_epochs} epochs of start networks by the stepwise schedule, the same for
every method, and {SETTINGS.epochs} of sampling (one network for {SETTINGS.num_replicas} x
{SETTINGS.epochs} epochs, in cycles of {SETTINGS.cycle_epochs}); 5,000 images of 16 x 16 pixels in
20 classes (from CIFAR-100), 2,000 test images, batches of {SETTINGS.batch_size}, augmentation as in
the paper. The target swap rate is {SETTINGS.target_swap_rate:g}, with which Lemma 1 expects 27
round trips of DEO in a run and 37 of DEO⋆ (the paper's longer runs made 30 and 56). And, which the
paper does not have, a deep ensemble: as many networks, a cosine from .1 to 0 over all
{SETTINGS.start_epochs + SETTINGS.epochs} epochs, the last ones averaged; and fewer networks, each
trained for longer: one for all {_TOTAL} epochs, two for half of them each. What was not run is left
out.

All numbers are those of the last epoch, on the test images; averages are of probabilities, and of
logits as the authors do, without the start networks. Spreads are over seeds.
"""
_HEAD = ["method", "networks averaged", "accuracy, %", "NLL", "NLL by seed", "by logits: NLL",
         "one network: accuracy, %", "round trips"]  # fmt: skip
_ORDER = (DEEP, *FEWER, "ensemble", "deo", "deo-star", "cyc-sghmc", "cyc-swag", STARTS)
_NAMES = {
    DEEP: "deep ensemble",
    **{name: f"deep ensemble of {count}, as many epochs in all" for name, count in FEWER.items()},
    STARTS: "start networks alone",
}


def _page(summary: dict[str, Any]) -> list[str]:
    lines = [f"# {summary['title']}", "", _ABOUT.strip(), ""]
    lines += [f"`{summary['command']}`, replicax {summary['version']}; the networks ran on: "
              f"{summary['machine']}. This page is written by the command.", ""]  # fmt: skip
    for model in dict.fromkeys(run["model"] for run in summary["runs"]):
        of_model = [run for run in summary["runs"] if run["model"] == model]
        lines += [f"## {model}", "", *markdown_table(_HEAD, _rows(of_model)), ""]
    return [*lines, *findings_section([Finding(**one) for one in summary["findings"]]), ""]


def _rows(runs: list[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for method in _ORDER:
        seeds = [run for run in runs if run["method"] == method]
        if not seeds:
            continue
        weight = 1.0 if method == STARTS else 0.0
        ways = {by: [numbers.pick(run["averages"], by, weight) for run in seeds]
                for by in ("probabilities", "logits")}  # fmt: skip
        column = lambda by, name: [way[name] for way in ways[by]]  # noqa: B023, E731
        trips = [str(run["trips"]) for run in seeds if "trips" in run]
        rows.append([
            _name(method),
            ", ".join(f"{run['averaged']:g}" for run in seeds if "averaged" in run)
            or f"{seeds[0]['networks']}",
            spread([100 * one for one in column("probabilities", "accuracy")], 2),
            spread(column("probabilities", "nll"), 3),
            ", ".join(f"{one:.3f}" for one in column("probabilities", "nll")),
            spread(column("logits", "nll"), 3),
            spread([100 * run["one_network"] for run in seeds], 2),
            ", ".join(trips) or "–",
        ])  # fmt: skip
    return rows


def findings(runs: list[dict[str, Any]]) -> list[Finding]:
    """Return differences by seed: of every method and the deep ensemble, and of windowed exchange
    and what the paper compares it with."""
    lines = []
    for model in dict.fromkeys(run["model"] for run in runs):
        of_model = [run for run in runs if run["model"] == model]
        of_seed = {(run["method"], run["seed"]): numbers.pick(run["averages"], "probabilities")
                   for run in of_model if run["method"] != STARTS}  # fmt: skip
        pairs = [(method, DEEP) for method in _ORDER[1:-1]]
        pairs += [("deo-star", "deo"), ("deo-star", "ensemble")]
        lines += [Finding(*line) for pair in pairs if (line := _difference(model, of_seed, *pair))]
    return lines


def _difference(
    model: str, of_seed: dict[tuple[str, int], dict[str, Any]], one: str, other: str
) -> tuple[str, str, str] | None:
    """Return what is compared, nothing of the paper, and the differences by seed."""
    both = [seed for name, seed in of_seed if name == one and (other, seed) in of_seed]
    if not both:
        return None
    pairs = [(of_seed[one, seed], of_seed[other, seed]) for seed in both]
    nats = ", ".join(f"{a['nll'] - b['nll']:+.3f}" for a, b in pairs)
    points = ", ".join(f"{100 * (a['accuracy'] - b['accuracy']):+.2f}" for a, b in pairs)
    what = f"{model}: {_name(one)} minus {_name(other)}, by seed: NLL"
    return what, "", f"{nats}; accuracy {points} points"


def _name(method: str) -> str:
    return _NAMES.get(method) or NAMES[method].partition("×")[0]
