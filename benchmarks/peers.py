"""A race with other samplers: who finds the modes, how exactly, and how fast.

    python benchmarks/peers.py --out docs/results        # runs what is missing there, and the page
    python benchmarks/peers.py --json found.json         # only the numbers and the table
    python benchmarks/peers.py --targets modes-25 --seeds 0 --no-networks --json part.json
    python benchmarks/peers.py --join part.json ... --out docs/results       # and the page

On each target `rx.sample` runs with its defaults, until it is done; the others get the processor
time that it took, in the same process and in turns, seed by seed. A peer that is not installed is
said to be missing. Networks are trained beside a loop in PyTorch. All on one core.
"""

import argparse
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache
from peers_page import write_page
from peers_table import OF_ONE_MODE, OURS, format_table, summaries
from resnet import ROWS as NETWORK_ROWS
from resnet import Setup, prepare
from timing import Row, interleave, use_one_core

sys.path.insert(0, str(Path(__file__).with_name("truth")))
from ours import deo_star, run_replicax, verdict_of
from peer import Missing
from peer_numpyro import best_nuts
from samplers import MORE_PEERS, PEERS, Peer
from store import Store
from target import Target
from targets import ALL

RACERS: dict[str, Peer] = {
    "replicax, DEO⋆": Peer(
        deo_star, "noisy gradients", "a step of 16 replicas, and swaps", only=("modes-25",)
    ),
    **PEERS,
    **MORE_PEERS,
}
OF_SEVERAL = ("modes-25", "twenty-modes", "chain-32", "mixture-2")
RACE_TARGETS: dict[str, Target] = {
    name: replace(ALL[name], num_steps=None) for name in (*OF_SEVERAL, *OF_ONE_MODE)
}
NETWORKS = Setup("resnet8", replicas=4, batch_size=32, steps=4, dtype="f32")
ITERATIONS = {  # of one chain
    OURS: "a move of every replica by HMC, swaps, and jumps of the coldest one",
    **{name: racer.iteration for name, racer in RACERS.items()},
}
ROWS_OF_NETWORKS = ("train", "ours", "torch-loop")


def run_racer(name: str, target: Target, seed: int, ours: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on a sampler that had the processor time of `rx.sample`."""
    # Beside NUTS alone, which is made for them, each target of one mode has its best layout.
    sample = best_nuts if target.name in OF_ONE_MODE else RACERS[name].run
    try:
        run = sample(target, ours["seconds"], seed=seed, hottest=ours["hottest"])
    except Missing as error:
        return {"error": str(error), "missing": True}
    return verdict_of(run, target)


def race(
    store: Store, targets: Mapping[str, Target], names: Sequence[str], seeds: Sequence[int]
) -> None:
    """Run everybody on every target, in turns, and back and forth."""
    for seed in seeds:
        for key, target in targets.items():
            whole = replace(target, batch_size=None)  # SGLD alone sees mini-batches
            ours = store.keep(
                (key, OURS, seed), lambda t=whole, s=seed: run_replicax(t, s, compiles_first=True)
            )
            if "error" in ours:
                continue
            for name in names[:: -1 if seed % 2 else 1]:
                if key in (RACERS[name].only or targets) and (
                    key not in OF_ONE_MODE or name == "NumPyro NUTS"
                ):
                    given = (name, target, seed, ours)
                    store.keep((key, name, seed), lambda given=given: run_racer(*given))


@contextmanager
def programs_kept() -> Iterator[None]:
    """What one seed has compiled the next one finds."""
    name = "jax_compilation_cache_dir"
    before = getattr(jax.config, name)
    with tempfile.TemporaryDirectory() as folder:
        jax.config.update(name, folder)
        reset_cache()
        try:
            yield
        finally:
            jax.config.update(name, before)
            reset_cache()


def train_networks(setup: Setup, repeats: int) -> dict[str, Any]:
    """Time a step of several networks: the library's training, its bare step, a PyTorch loop."""
    cases: dict[str, Callable[[], int]] = {}
    notes, compiling = {}, {}
    for name in ROWS_OF_NETWORKS:
        began = time.process_time()
        result, case = prepare(name, NETWORK_ROWS[name], setup)
        notes[name], compiling[name] = result.note, time.process_time() - began
        print(f"networks, {name}: {result.note or 'ready'}", flush=True)
        if case is not None:
            cases[name] = lambda run=case.run: (run(), setup.steps)[1]
    timings = interleave(cases, repeats)
    rows = []
    for name in ROWS_OF_NETWORKS:
        row = Row(name, "ms/step", note=notes[name])
        if name in timings:
            row = Row.of(name, "ms/step", timings[name] * 1e-3, notes[name])
        spread = (timings[name].cpu * 1e-3).tolist() if name in timings else None
        rows.append(asdict(row) | {"cpu": spread, "compile_seconds": compiling[name]})
    return {"setup": asdict(setup), "rows": rows}


def small(target: Target) -> Target:
    """Return a target that is over at once, to see that the script runs."""
    return replace(target, num_steps=120, num_replicas=3)


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--targets", nargs="*", choices=tuple(RACE_TARGETS), default=tuple(RACE_TARGETS))
    add("--samplers", nargs="+", choices=tuple(RACERS), default=tuple(RACERS), metavar="NAME",
        help=f"beside replicax: {', '.join(RACERS)}")  # fmt: skip
    add("--repeats", type=int, default=3, help="seeds (default: 3)")
    add("--seeds", type=int, nargs="+", help="these seeds")
    add("--join", type=Path, nargs="+", metavar="FILE", help="run nothing: take these runs")
    add("--networks", action=argparse.BooleanOptionalAction, default=True)
    add("--json", type=Path, metavar="FILE", help="default: peers.json in the folder of --out")
    add("--out", type=Path, metavar="FOLDER", help="write the page and its pictures there")
    add("--quick", action="store_true", help="only see that it runs")
    return parser.parse_args(argv)


def join(store: Store, files: Sequence[Path]) -> None:
    """Replace the runs of a store by those of other files, one for each process."""
    parts = [json.loads(file.read_text()) for file in files]
    runs = [run for part in parts for run in part["runs"]]
    place = list(RACE_TARGETS).index
    store.done = {
        (run["target"], run["sampler"], run["seed"]): run
        for run in sorted(runs, key=lambda run: (place(run["target"]), run["seed"]))
    }
    if "networks" in store.content:  # measured before, where the machine was that of all runs
        store.content["networks"].setdefault("machine", store.machine)
    store.content.update(joined=len(files), iterations=ITERATIONS, runs=store.runs)
    store.content["machine"] = parts[0]["machine"]
    store.file.write_text(json.dumps(store.content, indent=1) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    warnings.simplefilter("ignore")
    if argv is None:
        use_one_core()
    file = arguments.json or (arguments.out or Path()) / "peers.json"
    store = Store(file)
    if arguments.join:
        join(store, arguments.join)
        if arguments.out is not None:
            write_page(store.content, arguments.out)
        return
    targets = {name: RACE_TARGETS[name] for name in arguments.targets}
    if arguments.quick:
        targets = {name: small(target) for name, target in targets.items()}
    store.content["iterations"] = ITERATIONS
    with programs_kept():
        seeds = arguments.seeds or range(arguments.repeats)
        race(store, targets, arguments.samplers, seeds)
    if arguments.networks and "networks" not in store.content:
        setup = (
            replace(NETWORKS, replicas=2, batch_size=2, steps=1) if arguments.quick else NETWORKS
        )
        store.write(networks=train_networks(setup, max(arguments.repeats, 3)))
    print(format_table(summaries(store.runs)))
    if arguments.out is not None:
        write_page(store.content, arguments.out)


if __name__ == "__main__":
    main()
