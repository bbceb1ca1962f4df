"""The right answer, or a warning: replicax and other samplers on targets with known answers.

    python benchmarks/truth/run.py --seeds 5 --peers --out docs/results

Every target gets the one call `rx.sample(target, start, num_steps=..., num_replicas=...,
num_chains=4, seed=...)`. Results go to truth.json after every run; a run that is there already is
not repeated, so that a long study may be done in parts, unless --targets names it without --peers.
"""

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

from ours import run_replicax, verdict_of
from page import write_page
from samplers import PEERS
from target import Target
from targets import TARGETS

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import describe_machine

OURS = "replicax"


def run_peer(name: str, target: Target, seed: int, ours: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict on another sampler that had the processor time of our run."""
    run = PEERS[name].run(target, ours["seconds"], seed=seed, hottest=ours["hottest"])
    return verdict_of(run, target)


def describe(entry: dict[str, Any]) -> str:
    """Return one line about a run."""
    if "error" in entry:
        return entry["error"]
    mass = "" if entry["mass_error"] is None else f", mass error {entry['mass_error']:.2f}"
    word = "passes" if entry["passes"] else "SILENT MISS" if entry["silent_miss"] else "misses"
    said = f"; {len(entry['warnings'])} warnings" if entry["warnings"] else ""
    return (
        f"{word}: mean error {entry['mean_error']:.2f} sd, sd ratio {entry['sd_low']:.2f} to "
        f"{entry['sd_high']:.2f}{mass}, "
        f"effective {entry['ess']:.0f}, {entry['seconds']:.0f} s{said}"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="*", choices=list(TARGETS), help="repeat these")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each target (default: 5)")
    parser.add_argument("--peers", nargs="*", choices=list(PEERS), metavar="SAMPLER",
                        help="other samplers too, all unless named")  # fmt: skip
    parser.add_argument("--peer-seeds", type=int, default=1, help="runs of those (default: 1)")
    parser.add_argument("--json", type=Path, help="default: truth.json in the folder of --out")
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    warnings.simplefilter("ignore")
    file = arguments.json or arguments.out / "truth.json"
    stored = json.loads(file.read_text()) if file.exists() else {"commands": [], "runs": []}
    runs, command = stored["runs"], " ".join(["python", *sys.argv])
    commands = [*(line for line in stored["commands"] if line != command), command]
    done = {(run["target"], run["sampler"], run["seed"]): run for run in runs}
    if arguments.targets:
        stale = [key for key in done if key[0] in arguments.targets and key[2] < arguments.seeds]
        for key in stale if arguments.peers is None else ():
            del done[key]

    def keep(key: tuple[str, str, int], make: Any) -> dict[str, Any]:
        """Make an entry unless it is there, and write all entries."""
        if key not in done:
            try:
                entry = make()
            except Exception as error:  # a run that fails is a result, too
                entry = {"error": f"{type(error).__name__}: {error}"[:500]}
            done[key] = {"target": key[0], "sampler": key[1], "seed": key[2], **entry}
            print(f"{key[0]}, {key[1]}, seed {key[2]}: {describe(done[key])}", flush=True)
            content = {
                "commands": commands,
                "machine": describe_machine(),
                "runs": list(done.values()),
            }
            file.write_text(json.dumps(content, indent=1) + "\n")
        return done[key]

    for seed in range(arguments.seeds):
        for name in arguments.targets or TARGETS:
            target = TARGETS[name]
            ours = keep((name, OURS, seed), lambda t=target, s=seed: run_replicax(t, s))
            if arguments.peers is None or seed >= arguments.peer_seeds or "error" in ours:
                continue
            for peer in arguments.peers or PEERS:
                arguments_of = (peer, target, seed, ours)
                keep((name, peer, seed), lambda given=arguments_of: run_peer(*given))
    write_page(list(done.values()), commands, arguments.out, describe_machine())


if __name__ == "__main__":
    main()
