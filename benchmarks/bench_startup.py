"""How long one waits: for `replicax --help`, for `import replicax`, for the first draws.

Every time is that of a fresh process, on all cores that this program may use. The bare
interpreter is timed in turns with the others.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from timing import MICRO, Check, Lap, Row, Timing, interleave, parse_arguments, report

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
    rows = [
        _row("python -c pass", timings["python"]),
        _row("import replicax", timings["import"] - timings["python"]),
        _row("import jax", timings["jax"] - timings["python"]),
        _row("replicax --help", timings["help"]),
        *(_row(f"demo: {name}", Timing.of([laps[name] for laps in demos])) for name in demos[0]),
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


def run(command: list[str]) -> str:
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


if __name__ == "__main__":
    main()
