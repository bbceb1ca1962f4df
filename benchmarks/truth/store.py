"""`Store`: runs of samplers on targets in a JSON file that is whole after every run."""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from timing import describe_machine

Key = tuple[str, str, int]  # target, sampler, seed


class Store:
    """Runs by (target, sampler, seed); one that is there already is not made again."""

    def __init__(self, file: Path) -> None:
        empty = {"commands": [], "runs": []}
        self.file = file
        self.content: dict[str, Any] = json.loads(file.read_text()) if file.exists() else empty
        command = " ".join(["python", *sys.argv])
        others = [line for line in self.content["commands"] if line != command]
        self.content["commands"] = [*others, command]
        self.done: dict[Key, dict[str, Any]] = {
            (run["target"], run["sampler"], run["seed"]): run for run in self.content["runs"]
        }

    @property
    def runs(self) -> list[dict[str, Any]]:
        return list(self.done.values())

    @property
    def commands(self) -> list[str]:
        return self.content["commands"]

    @property
    def machine(self) -> dict[str, Any]:
        """Return the machine of the last run."""
        return self.content.get("machine") or describe_machine()

    def forget(self, keys: Iterable[Key]) -> None:
        for key in list(keys):
            self.done.pop(key, None)

    def keep(self, key: Key, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Make a run unless it is there, print a line about it, and write all runs."""
        if key not in self.done:
            try:
                entry = make()
            except Exception as error:  # a run that fails is a result, too
                entry = {"error": f"{type(error).__name__}: {error}"[:500]}
            self.done[key] = {"target": key[0], "sampler": key[1], "seed": key[2], **entry}
            print(f"{key[0]}, {key[1]}, seed {key[2]}: {describe(self.done[key])}", flush=True)
            self.write()
        return self.done[key]

    def write(self, **more: Any) -> None:
        """Write all runs, and what else is given, with the machine as it is now."""
        self.content.update(more, machine=describe_machine(), runs=self.runs)
        self.file.write_text(json.dumps(self.content, indent=1) + "\n")


def describe(entry: dict[str, Any]) -> str:
    """Return one line about a run."""
    if "error" in entry:
        return entry["error"]
    mass = "" if entry["mass_error"] is None else f", mass error {entry['mass_error']:.2f}"
    word = "passes" if entry["passes"] else "SILENT MISS" if entry["silent_miss"] else "misses"
    warned = f"; {len(entry['warnings'])} warnings" if entry["warnings"] else ""
    return (
        f"{word}: mean error {entry['mean_error']:.2f} sd, sd ratio {entry['sd_low']:.2f} to "
        f"{entry['sd_high']:.2f}{mass}, "
        f"effective {entry['ess']:.0f}, {entry['seconds']:.0f} s{warned}"
    )
