"""Where the time of a training step goes on a GPU: a trace of ten networks, summed by kernel.

    python benchmarks/resnet_profile.py --model resnet56

The step is that of the row `ours` of `resnet.py`. Kernels are named by XLA; numbers in their names
are left out where times are summed.
"""

import argparse
import glob
import gzip
import json
import os
import re
import tempfile
from collections import Counter

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
from resnet import ROWS
from resnet_rows import Case, Setup
from timing import lap

_WARM_UP = 2  # calls


def kernel_times(case: Case) -> Counter[str]:
    """Return the microseconds of every kernel in one call of the case."""
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            case.run()
        (path,) = glob.glob(f"{folder}/**/*.trace.json.gz", recursive=True)
        with gzip.open(path) as file:
            events = json.load(file)["traceEvents"]
    processes = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    times: Counter[str] = Counter()
    for event in events:
        on_gpu = "GPU" in processes.get(event.get("pid"), "")
        if event.get("ph") == "X" and on_gpu and "hlo_op" in event.get("args", {}):
            times[event["name"]] += event["dur"]
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--replicas", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10, help="in one lap")
    parser.add_argument("--lines", type=int, default=20)
    arguments = parser.parse_args()
    if jax.default_backend() != "gpu":
        raise SystemExit("There is no GPU: this reads the kernels of a GPU from a trace.")
    sizes = arguments.model, arguments.replicas, arguments.batch_size, arguments.steps
    setup = Setup(*sizes, scan=True)
    case = ROWS["ours"](setup)
    for _ in range(_WARM_UP):
        case.run()
    with lap() as timed:
        case.run()
    print(f"{jax.devices()[0].device_kind}: {1e3 * timed.wall / setup.steps:.2f} ms a step")
    times, by_kind = kernel_times(case), Counter[str]()
    for name, time in times.items():
        by_kind[re.sub(r"[\d_.]+", "#", name)] += time
    for title, counted in (("by kind", by_kind), ("single kernels", times)):
        print(f"\n{title}: us a step, share")
        for name, time in counted.most_common(arguments.lines):
            share = time / sum(times.values())
            print(f"{time / setup.steps:9.0f} {share:6.1%}  {name[:100]}")


if __name__ == "__main__":
    main()
