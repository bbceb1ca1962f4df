"""How long one waits: for `replicax --help`, for `import replicax`, for the first draws.

Every time is that of a fresh process, on all cores that this program may use. The bare
interpreter is timed in turns with the others. Of a model, two modes in two dimensions, the first
start compiles, and the second one finds the programs of the first on the disk;
`REPLICAX_AGAINST=FOLDER` names another copy of the repository that is timed in turns with this one.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import MICRO, Check, Lap, Row, Timing, interleave, parse_arguments, report

_ROOT = str(Path(__file__).parents[1])
_HELP = "import sys; sys.argv = ['replicax', '--help']; from replicax.cli.main import main; main()"
_DEMO = """
import json, time
seen = []
look = lambda _=None: seen.append((time.perf_counter(), time.process_time()))
look()
import replicax as rx
from replicax.demo import METHOD, SETTINGS, params, target
look()
rx.sample(target, params, num_steps={num_steps}, num_chains=4, progress=False, callback=look,
          method=METHOD, **SETTINGS)
look()
print(json.dumps(seen))
"""


_MODEL = """
import json, sys, time
import jax, jax.numpy as jnp
import replicax as rx

def energy(x):
    return -jnp.logaddexp(-jnp.sum((x - 2) ** 2), -jnp.sum((x + 2) ** 2) / 2)

def look(progress):
    if len(progress.rows["draws"]["energy"]):
        print(json.dumps([time.time(), time.process_time()]), flush=True)
        return "stop"

rx.sample(energy, lambda key: 2 * jax.random.normal(key, (2,)), num_steps={num_steps},
          num_replicas={replicas}, num_chains=4, progress=False, callback=look)
"""


def main() -> None:
    arguments = parse_arguments(__doc__, repeats=7)
    num_steps = 300 if arguments.quick else 20_000
    timings = interleave(
        {
            "python": lambda: run_python("-c", "pass"),
            "import": lambda: run_python("-c", "import replicax"),
            "jax": lambda: run_python("-c", "import jax"),
            "help": run_help,
        },
        arguments.repeats,
    )
    demos = [demo(num_steps) for _ in range(max(1, arguments.repeats // 2))]
    kept = [starts(arguments.quick) for _ in range(len(demos))]
    rows = [
        _row("python -c pass", timings["python"]),
        _row("import replicax", timings["import"] - timings["python"]),
        _row("import jax", timings["jax"] - timings["python"]),
        _row("replicax --help", timings["help"]),
        *(_row(f"demo: {name}", Timing.of([laps[name] for laps in demos])) for name in demos[0]),
        *(_row(f"model: {name}", Timing.of([laps[name] for laps in kept])) for name in kept[0]),
    ]
    best = next(row for row in rows if row.name == "replicax --help").min
    checks = [Check("replicax --help, best of its repeats (s)", best or 0.0, bound=0.5)]
    report(rows, checks, arguments)


def _row(name: str, timing: Timing) -> Row:
    return Row.of(name, "s", timing * (1 / MICRO))


def run_python(*arguments: str) -> int:
    run([sys.executable, *arguments])
    return 1


def run_help() -> int:
    """The installed program, or what it calls where the library is only on the path."""
    program = shutil.which("replicax", path=str(Path(sys.executable).parent))
    run([program, "--help"] if program else [sys.executable, "-c", _HELP])
    return 1


def demo(num_steps: int) -> dict[str, Lap]:
    """The parts of one run of the demo's sampling."""
    script = _DEMO.format(num_steps=num_steps)
    seen = json.loads(run([sys.executable, "-W", "ignore", "-c", script]).splitlines()[-1])

    def between(first: int, last: int) -> Lap:
        wall, cpu = (end - begin for begin, end in zip(seen[first], seen[last]))
        return Lap(1, wall, cpu)

    return {
        "imports": between(0, 1),
        "from there to the first draws": between(1, 2),
        f"all of {num_steps:,} steps x 4 chains": between(0, -1),
    }


def starts(quick: bool) -> dict[str, Lap]:
    """Time from the start of a process to the first draws, twice, of this copy and of others."""
    script = _MODEL.format(num_steps=90 if quick else 600, replicas=3 if quick else 8)
    other, found = os.environ.get("REPLICAX_AGAINST"), {}
    copies = {"": _ROOT} if other is None else {"": _ROOT, f"{Path(other).name}, ": other}
    for name, root in copies.items():
        with tempfile.TemporaryDirectory() as cache:
            for order in ("first", "second"):
                began = time.time()
                command = [sys.executable, "-W", "ignore", "-c", script]
                said = run(command, root, REPLICAX_CACHE=cache).splitlines()
                wall, cpu = json.loads(next(line for line in said if line.startswith("[")))
                found[f"{name}{order} start"] = Lap(1, wall - began, cpu)
    return found


def run(command: list[str], root: str = _ROOT, **variables: str) -> str:
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


if __name__ == "__main__":
    main()
