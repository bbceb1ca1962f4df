"""The right answer, or a warning: replicax and other samplers on targets with known answers.

    python benchmarks/truth/run.py --seeds 3 --peers --out docs/results
    python benchmarks/truth/run.py --targets funnel --seeds 3 --peers --json part.json  # no page
    python benchmarks/truth/run.py --join part.json ... --out docs/results

Every target gets the one call `rx.sample(target, start, num_chains=4, seed=...)`, which decides
itself how long it is. Results go to truth.json after every run; a run that is there already is not
repeated, so that a long study may be done in parts, unless --targets names it without --peers.
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ours import run_replicax, verdict_of
from page import write_page
from samplers import PEERS
from store import Store
from target import Target
from targets import TARGETS

OURS = "replicax"
_LONGEST = 60.0  # seconds of a run


def run_peer(name: str, target: Target, seed: int, ours: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on another sampler that had the processor time of our run."""
    run = PEERS[name].run(target, ours["seconds"], seed=seed, hottest=ours["hottest"])
    return verdict_of(run, target)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="*", choices=list(TARGETS), help="repeat these")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each target (default: 5)")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), metavar="SAMPLER",
                        help="other samplers too, all unless named")  # fmt: skip
    parser.add_argument("--peer-seeds", type=int, default=1, help="runs of those (default: 1)")
    parser.add_argument("--json", type=Path, help="default: truth.json in the folder of --out")
    parser.add_argument("--join", type=Path, nargs="+", metavar="FILE", help="take these runs")
    parser.add_argument("--out", type=Path, help="write the page there")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    warnings.simplefilter("ignore")
    store = Store(arguments.json or (arguments.out or Path()) / "truth.json")
    if arguments.join:
        join(store, arguments.join)
    else:
        run_all(store, arguments)
    if arguments.out is not None:
        write_page(store.runs, store.commands, arguments.out, store.machine)


def join(store: Store, files: Sequence[Path]) -> None:
    """Replace the runs of a store by those of other files."""
    parts = [json.loads(file.read_text()) for file in files]
    runs = sorted(
        (run for part in parts for run in part["runs"]),
        key=lambda run: (run["sampler"] != OURS, list(TARGETS).index(run["target"]), run["seed"]),
    )
    store.done = {(run["target"], run["sampler"], run["seed"]): run for run in runs}
    commands = ["python benchmarks/truth/run.py --seeds 3 --peers --out docs/results"]
    store.content.update(commands=commands, runs=store.runs, machine=parts[0]["machine"])
    store.file.write_text(json.dumps(store.content, indent=1) + "\n")


def run_all(store: Store, arguments: argparse.Namespace) -> None:
    """Run what is missing in the store."""
    if arguments.targets and arguments.peers is None:
        named = lambda key: key[0] in arguments.targets and key[2] < arguments.seeds  # noqa: E731
        store.forget(filter(named, store.done))
    for seed in range(arguments.seeds):
        for name in arguments.targets or TARGETS:
            target = replace(TARGETS[name], num_steps=None)  # it decides how long it is
            if not name.endswith("-batch"):
                target = replace(target, batch_size=None)
            limits = {"max_seconds": _LONGEST} if target.num_steps is None else {}
            ours = store.keep(
                (name, OURS, seed),
                lambda t=target, s=seed, limits=limits: run_replicax(t, s, **limits),
            )
            if arguments.peers is None or seed >= arguments.peer_seeds or "error" in ours:
                continue
            for peer in arguments.peers or PEERS:
                arguments_of = (peer, target, seed, ours)
                store.keep((name, peer, seed), lambda given=arguments_of: run_peer(*given))


if __name__ == "__main__":
    main()
