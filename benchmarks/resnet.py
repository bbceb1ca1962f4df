"""How fast ten residual networks train side by side: plain vmap, unrolled, grouped, ours, PyTorch.

Every row does the same: one step of momentum SGD (momentum 0.9, weight decay 5e-4, a learning rate
per replica) for P replicas on the same mini-batch of made-up images. All rows live in one process;
after everything is compiled and warm they are timed in turns, back and forth, so that noise hits
them alike, and compared with `ours` round by round.

    python benchmarks/resnet.py                                  # on a GPU
    python benchmarks/resnet.py --model resnet8 --replicas 2 --batch-size 4 --steps 2
    python benchmarks/resnet.py --cpu-cnn                        # small networks on a CPU
    python benchmarks/resnet.py --check                          # are PyTorch's networks the same?

Memory is the compiled program's own account for JAX (arguments, results and temporaries) and the
allocator's peak for PyTorch. JAX cannot reset its allocator's peak; the JSON has it as well, but
where a row does not raise it, it is another row's: use --only.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

# PyTorch needs memory, too. This must be said before JAX starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
from resnet_floor import Roofline, layers_of
from resnet_rows import Builder, Case, Setup, build_jax, depth_of, plain_convolutions
from timing import describe_machine, lap

from replicax import nn
from replicax.nn.conv import layout

EPOCH = 50_000  # images
_WARM_UP = 2  # calls
_GIB, _MILLI = 2**30, 1e3


def build_torch(setup: Setup, name: str) -> Case:
    """PyTorch is asked for here only: the other rows do without."""
    import resnet_torch

    return resnet_torch.ROWS[name](setup)


def build_training(setup: Setup, method: str) -> Case:
    """The library's own training, with all that belongs to it."""
    import resnet_train

    return resnet_train.build(setup, method)


JAX_ROWS: dict[str, Builder] = {
    "vmap": partial(build_jax, context=plain_convolutions),
    "unrolled": partial(build_jax, context=plain_convolutions, unrolled=True),
    "grouped": partial(build_jax, context=partial(layout, "grouped")),
    "ours-in-vmap": partial(build_jax, context=nullcontext),
    "ours": partial(build_jax, context=nullcontext, mapping=nn.vmap),
}
TORCH_ROWS: dict[str, Builder] = {
    "torch-loop": partial(build_torch, name="torch-loop"),
    "torch-grouped": partial(build_torch, name="torch-grouped"),
}
LIBRARY_ROWS: dict[str, Builder] = {
    "train": partial(build_training, method="deo-star"),
    "train-alone": partial(build_training, method="ensemble"),
}
ROWS: dict[str, Builder] = {**JAX_ROWS, **LIBRARY_ROWS, **TORCH_ROWS}
CNN_ROWS = ("vmap", "unrolled", "ours-in-vmap", "ours")
GPU_ROWS = tuple(name for name in ROWS if name != "ours-in-vmap")  # there it is the same as ours


@dataclass
class Result:
    """One row of the table."""

    name: str
    ms: list[float] = field(default_factory=list)  # a step of all replicas, one entry per round
    compile_seconds: float | None = None
    memory_gib: float | None = None
    device_peak_gib: float | None = None  # of JAX's allocator, all rows so far
    loss: float | None = None
    cost: dict[str, float] | None = None
    note: str = ""


def epoch_seconds(ms: float, setup: Setup) -> float:
    """Seconds for one replica to see 50,000 images once."""
    return ms * math.ceil(EPOCH / setup.batch_size) / setup.replicas / _MILLI


def ratios(result: Result, reference: Result) -> np.ndarray:
    """How many times as long as the reference, round by round."""
    rounds = min(len(result.ms), len(reference.ms))
    return np.array(result.ms[:rounds]) / np.array(reference.ms[:rounds])


def device_peak() -> float | None:
    known = jax.local_devices()[0].memory_stats() or {}
    return known["peak_bytes_in_use"] / _GIB if "peak_bytes_in_use" in known else None


def prepare(name: str, builder: Builder, setup: Setup) -> tuple[Result, Case | None]:
    """Compile a row and warm it up; a row that fails says why."""
    start = time.perf_counter()
    try:
        case = builder(setup)
        loss = [case.run() for _ in range(_WARM_UP)][-1]
    except ModuleNotFoundError as problem:
        return Result(name, note=f"{problem.name} is not installed: left out."), None
    except Exception as problem:  # the other rows are still worth having
        first_line = (str(problem).strip().splitlines() or [""])[0]
        return Result(name, note=f"{type(problem).__name__}: {first_line[:200]}"), None
    seconds = case.compile_seconds
    memory = case.memory()
    return Result(
        name,
        compile_seconds=time.perf_counter() - start if seconds is None else seconds,
        memory_gib=None if memory is None else memory / _GIB,
        device_peak_gib=device_peak(),
        loss=None if loss is None else float(loss),
        cost=case.cost,
        note=case.note,
    ), case


def measure(
    rows: dict[str, Builder], setup: Setup, rounds: int, save: Callable[[list[Result]], None]
) -> list[Result]:
    """Prepare all rows, then time them in turns, back and forth."""
    results, cases = {}, {}

    def time_one(name: str) -> float:
        with lap(setup.steps) as timed:
            cases[name].run()
        return timed.wall / timed.iterations * _MILLI

    for name, builder in rows.items():
        results[name], case = prepare(name, builder, setup)
        if case is None:
            print(f"{name}: {results[name].note}", flush=True)
            continue
        cases[name] = case
        seconds, note = results[name].compile_seconds, results[name].note
        alone = f"{time_one(name):.4g} ms/step alone, compiled in {seconds:.0f} s"
        print(f"{name}: {alone}{note and f' ({note})'}", flush=True)
        save(list(results.values()))
    for turn in range(rounds):
        for name in list(cases)[:: -1 if turn % 2 else 1]:
            results[name].ms.append(time_one(name))
            print(f"round {turn + 1}: {name} {results[name].ms[-1]:.4g} ms/step", flush=True)
        save(list(results.values()))
    return list(results.values())


HEADS = ("row", "ms/step", "min .. max", "s/epoch/replica", "x ours", "min .. max", "compile s",
         "GiB", "note")  # fmt: skip


def cells_of(results: Sequence[Result], setup: Setup) -> list[tuple[str, ...]]:
    """The table as text."""
    reference = next((one for one in results if one.name == "ours" and one.ms), None)
    cells = []
    for one in results:
        shown = [one.name, *[""] * (len(HEADS) - 2), one.note]
        if one.ms:
            median = float(np.median(one.ms))
            shown[1:4] = f"{median:.3g}", _spread(one.ms), f"{epoch_seconds(median, setup):.3g}"
            if reference:
                times = ratios(one, reference)
                shown[4:6] = f"{np.median(times):.2f}", _spread(times)
        shown[6] = "" if one.compile_seconds is None else f"{one.compile_seconds:.1f}"
        shown[7] = "" if one.memory_gib is None else f"{one.memory_gib:.2f}"
        cells.append(tuple(shown))
    return cells


def _spread(values: Iterable[float]) -> str:
    values = list(values)
    return f"{min(values):.3g} .. {max(values):.3g}"


def print_table(cells: Sequence[tuple[str, ...]], title: str) -> None:
    """With rich where it is installed."""
    try:
        from rich.console import Console
        from rich.table import Table
    except ModuleNotFoundError:
        widths = [max(map(len, column)) for column in zip(HEADS, *cells)]
        lines = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in (HEADS, *cells))
        print("\n".join((title, *lines)), flush=True)
        return
    table = Table(title=title)
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="left" if place in (0, len(HEADS) - 1) else "right",
                         no_wrap=place < len(HEADS) - 1)  # fmt: skip
    for line in cells:
        table.add_row(*line)
    Console(width=140).print(table)


def roofline_lines(roofline: Roofline, results: Sequence[Result], setup: Setup) -> list[str]:
    """The floor, what ours reaches of it, and XLA's own counts."""
    floor = roofline.floor_ms
    lines = [
        f"A step: {roofline.flops / 1e12:.3g} TFLOP ({roofline.flops_ms:.3g} ms), unfused "
        f"{roofline.bytes / 1e9:.3g} GB ({roofline.bytes_ms:.3g} ms). Floor: {floor:.3g} ms/step, "
        f"{epoch_seconds(floor, setup):.3g} s/epoch/replica."
    ]
    for one in results:
        if one.name == "ours" and one.ms:
            share = floor / float(np.median(one.ms))
            lines.append(f"ours reaches {share:.2g} of the floor's speed.")
        if one.cost:
            counts = ", ".join(f"{value:.3g} {name}" for name, value in one.cost.items())
            lines.append(f"XLA counts for a step of {one.name}: {counts}.")
    return lines


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--model", default="resnet20", help="resnet20, resnet32, resnet56, ...")
    add("--replicas", type=int, default=10)
    add("--batch-size", type=int)
    add("--dtype", choices=("bf16", "f32"), help="default: bf16 on GPUs")
    add("--steps", type=int, default=20, help="in one lap")
    add("--rounds", type=int, default=5, help="laps of every row, in turns")
    add("--only", nargs="+", choices=tuple(ROWS), metavar="NAME", help=f"of {', '.join(ROWS)}")
    add("--bandwidth", type=float, default=4.8e12, help="bytes/s, for the floor")
    add("--peak-flops", type=float, default=990e12, help="operations/s, for the floor")
    # On CPUs XLA's convolutions are many times slower inside a loop than outside.
    add("--scan", action=argparse.BooleanOptionalAction,
        help="a lap in one program; default: not on CPUs")  # fmt: skip
    add("--torch-compile", action=argparse.BooleanOptionalAction, help="default: on GPUs")
    add("--json", type=Path, metavar="FILE", help="write the numbers there, too")
    add("--check", action="store_true", help="compare the networks of PyTorch with ours, and end")
    add("--cpu-cnn", action="store_true", help="small networks on a CPU instead")
    return parser.parse_args(argv)


def setup_of(arguments: argparse.Namespace) -> Setup:
    small = arguments.cpu_cnn
    on_gpu = jax.default_backend() == "gpu"
    return Setup(
        model="cnn" if small else arguments.model,
        replicas=arguments.replicas,
        batch_size=arguments.batch_size or (32 if small else 256),
        steps=arguments.steps,
        dtype=arguments.dtype or ("bf16" if on_gpu else "f32"),
        side=16 if small else 32,
        num_classes=10 if small else 100,
        scan=on_gpu if arguments.scan is None else arguments.scan,
        torch_compile=on_gpu if arguments.torch_compile is None else arguments.torch_compile,
    )


def main(argv: Sequence[str] | None = None) -> None:
    arguments = parse_arguments(argv)
    if arguments.cpu_cnn:
        jax.config.update("jax_platforms", "cpu")
    setup = setup_of(arguments)
    if arguments.check:
        import resnet_torch

        print(resnet_torch.check(setup))
        return
    names = arguments.only or (CNN_ROWS if arguments.cpu_cnn else GPU_ROWS)
    roofline = None
    if not arguments.cpu_cnn:
        layers = layers_of(depth_of(setup.model), setup.side)
        roofline = Roofline.of(layers, setup, arguments.bandwidth, arguments.peak_flops)
    content = {
        "benchmark": "resnet",
        "command": " ".join(["python", *sys.argv]),
        "machine": {**describe_machine(), "device": jax.devices()[0].device_kind},
        "setup": asdict(setup),
        "roofline": roofline and {**asdict(roofline), "floor_ms": roofline.floor_ms},
    }

    def save(results: list[Result]) -> None:
        if arguments.json is not None:
            text = json.dumps({**content, "rows": [asdict(one) for one in results]}, indent=1)
            arguments.json.write_text(text + "\n")

    results = measure({name: ROWS[name] for name in names}, setup, arguments.rounds, save)
    title = (
        f"{setup.replicas} x {setup.model}, batch {setup.batch_size}, {setup.dtype}, "
        f"{content['machine']['device']}, jax {jax.__version__}, "
        f"{arguments.rounds} rounds of {setup.steps} steps"
    )
    print_table(cells_of(results, setup), title)
    if roofline:
        print("\n".join(roofline_lines(roofline, results, setup)))
    save(results)


if __name__ == "__main__":
    main()
