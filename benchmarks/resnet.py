"""How fast ten residual networks train side by side: plain vmap, unrolled, grouped, ours, PyTorch.

Every row does the same: one step of momentum SGD (momentum 0.9, weight decay 5e-4, a learning rate
per replica) for P replicas on the same mini-batch of made-up images. All rows live in one process;
after everything is compiled and warm they are timed in turns, back and forth, so that noise hits
them alike, and compared with `ours` round by round.

    python benchmarks/resnet.py                                  # on a GPU
    python benchmarks/resnet.py --model resnet8 --replicas 2 --batch-size 4 --steps 2
    python benchmarks/resnet.py --cpu-cnn                        # small networks on a CPU
    python benchmarks/resnet.py --check                          # are PyTorch's networks the same?

The floor. Operations: two for every product of the convolutions and the dense layer, three times
for training (images forward, gradients towards images and filters). Bytes: what a step moves when
every operation reads its arrays from memory and writes its result there, in the precision of the
convolutions. In units of the arrays in and out of a convolution with its normalisation:

    forward    convolution in + out, statistics out, normalise 2 out, relu 2 out
    backward   relu 3 out, sums for the normalisation 2 out, its gradient 3 out,
               filter gradient in + out, image gradient in + out (none for the first layer)
    a block    the sum of both branches 3 out, its relu 2 + 3 out, the sum of their gradients 3 in
    the rest   the pooled mean and its gradient; 5 float32 numbers a parameter for momentum SGD

Fusing operations goes below this count, and XLA does: it is a yardstick, not a law.

Memory is the compiled program's own account for JAX (arguments, results and temporaries) and the
allocator's peak for PyTorch. JAX cannot reset its allocator's peak; the JSON has it as well, but
where a row does not raise it, it is another row's: use --only.
"""

import argparse
import functools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

# PyTorch needs memory, too. This must be said before JAX starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from timing import describe_machine, lap

from replicax.nn import network as layers_of_networks
from replicax.nn.conv import layout
from replicax.nn.network import (
    Network,
    apply_conv,
    apply_dense,
    batch_norm,
    init_conv,
    init_dense,
)
from replicax.nn.resnet import _plan, resnet

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
EPOCH = 50_000  # images
_WARM_UP = 2  # calls
_NUM_BATCHES = 8  # so that nothing about one batch can be hoisted out of the loop
_GIB, _MILLI = 2**30, 1e3


@dataclass(frozen=True)
class Setup:
    """What all rows train."""

    model: str
    replicas: int
    batch_size: int
    steps: int  # in one lap
    dtype: str = "bf16"
    side: int = 32  # of an image
    num_classes: int = 100
    scan: bool = False  # over the steps of a lap, in one program
    torch_compile: bool = False

    @property
    def network(self) -> Network:
        dtype = {"bf16": jnp.bfloat16, "f32": jnp.float32}[self.dtype]
        if self.model == "cnn":
            return small_cnn(self.num_classes, dtype)
        return resnet(depth_of(self.model), self.num_classes, dtype=dtype)

    @property
    def learning_rates(self) -> np.ndarray:
        return np.geomspace(0.01, 0.05, self.replicas, dtype=np.float32)

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images (batch, image, height, width, channel) and labels (batch, image), at random."""
        rng = np.random.default_rng(0)
        shape = (_NUM_BATCHES, self.batch_size)
        images = rng.standard_normal((*shape, self.side, self.side, 3), dtype=np.float32)
        return images, rng.integers(self.num_classes, size=shape, dtype=np.int32)


class Case(NamedTuple):
    """A row that is ready to run; `run` alone is enough."""

    run: Callable[[], Any]  # `setup.steps` steps of all replicas, waits for them, returns the loss
    compile_seconds: float | None = None
    memory: Callable[[], int | None] = lambda: None  # bytes, asked after the first runs
    cost: dict[str, float] | None = None  # of one step, as XLA counts
    note: str = ""


Builder = Callable[[Setup], Case]


def depth_of(model: str) -> int:
    found = re.fullmatch(r"resnet(\d+)", model)
    if not found:
        raise ValueError(f"model is {model!r}; write resnet20, resnet32, resnet56, ...")
    return int(found[1])


def small_cnn(num_classes: int, dtype: Any) -> Network:
    """Three convolutions with batch normalisation, the second one strided, and a dense layer."""
    sizes, strides, norm = ((3, 16), (16, 32), (32, 32)), (1, 2, 1), batch_norm()

    def init(key: Array):
        last, *keys = jax.random.split(key, len(sizes) + 1)
        norms = [norm.init(num_out) for _, num_out in sizes]
        params = {
            "convs": [init_conv(k, 3, *size) for k, size in zip(keys, sizes)],
            "norms": [params for params, _ in norms],
            "dense": init_dense(last, sizes[-1][1], num_classes),
        }
        return params, {"norms": [state for _, state in norms]}

    def apply(params, state, images: Array, train: bool):
        x, after = images.astype(dtype), []
        parts = zip(params["convs"], params["norms"], state["norms"], strides)
        for filters, norm_params, norm_state, stride in parts:
            x = apply_conv(filters, x, stride)
            x, norm_state = norm.apply(norm_params, norm_state, x, train)
            after.append(norm_state)
        x = jnp.mean(x.astype(jnp.float32), axis=(1, 2))
        return apply_dense(params["dense"], x), {"norms": after}

    return Network(init, apply)


class Replica(NamedTuple):
    params: Any
    velocity: Any
    statistics: Any
    learning_rate: Any


@functools.cache
def init_replicas(setup: Setup) -> Replica:
    """All replicas, stacked, on the host: rows donate their own copies."""
    keys = jax.random.split(jax.random.key(0), setup.replicas)
    params, statistics = jax.jit(jax.vmap(setup.network.init))(keys)
    velocity = jax.tree.map(jnp.zeros_like, params)
    return jax.device_get(Replica(params, velocity, statistics, setup.learning_rates))


def train_one(network: Network, replica: Replica, images: Array, labels: Array):
    """One step of one replica: v <- m v + g + w theta, theta <- theta - eta v."""

    def loss_of(params):
        logits, statistics = network.apply(params, replica.statistics, images, True)
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
        return -jnp.mean(picked), statistics

    (loss, statistics), gradient = jax.value_and_grad(loss_of, has_aux=True)(replica.params)
    velocity = jax.tree.map(
        lambda v, g, theta: MOMENTUM * v + g + WEIGHT_DECAY * theta,
        replica.velocity,
        gradient,
        replica.params,
    )
    params = jax.tree.map(lambda p, v: p - replica.learning_rate * v, replica.params, velocity)
    return Replica(params, velocity, statistics, replica.learning_rate), loss


@contextmanager
def plain_convolutions() -> Iterator[None]:
    """Networks traced inside call JAX's own convolution."""
    before = layers_of_networks.conv
    layers_of_networks.conv = lax.conv_general_dilated  # pyright: ignore
    try:
        yield
    finally:
        layers_of_networks.conv = before


def unstack(replicas: Replica, num_replicas: int) -> tuple[Replica, ...]:
    places = range(num_replicas)
    return tuple(jax.tree.map(lambda leaf, place=place: leaf[place], replicas) for place in places)


def build_jax(setup: Setup, context: Callable[[], AbstractContextManager], unrolled: bool) -> Case:
    """The step, or a scan over the steps of a lap, in one program whose state is donated."""
    one, data = partial(train_one, setup.network), jax.device_put(setup.data())
    state = init_replicas(setup)
    state = jax.device_put(unstack(state, setup.replicas) if unrolled else state)

    def train_all(state, images: Array, labels: Array):
        if not unrolled:
            state, losses = jax.vmap(one, in_axes=(0, None, None))(state, images, labels)
            return state, jnp.mean(losses)
        state, losses = zip(*(one(replica, images, labels) for replica in state))
        return state, jnp.mean(jnp.stack(losses))

    def steps_of(state, images: Array, labels: Array, first: Array):
        def body(state, step: Array):
            place = step % _NUM_BATCHES
            return train_all(state, images[place], labels[place])

        if per_call == 1:
            return body(state, first)
        state, losses = lax.scan(body, state, first + jnp.arange(per_call))
        return state, losses[-1]

    per_call = setup.steps if setup.scan else 1
    start = time.perf_counter()
    with context():
        lowered = jax.jit(steps_of, donate_argnums=0).lower(state, *data, np.int32(0))
    compiled = lowered.compile()
    seconds = time.perf_counter() - start

    def run() -> float:
        nonlocal state
        for first in range(0, setup.steps, per_call):
            state, loss = compiled(state, *data, np.int32(first))
        jax.block_until_ready(state)
        return float(loss)

    return Case(run, seconds, lambda: program_memory(compiled), step_cost(compiled, per_call))


def program_memory(compiled: Any) -> int | None:
    """Bytes of arguments, results and temporaries, what is donated counted once."""
    account = compiled.memory_analysis()
    if account is None:
        return None
    sizes = account.argument_size_in_bytes + account.output_size_in_bytes
    return sizes + account.temp_size_in_bytes - account.alias_size_in_bytes


def step_cost(compiled: Any, steps: int) -> dict[str, float] | None:
    """Operations and bytes of one step by XLA's count, which does not know library kernels."""
    try:
        found = compiled.cost_analysis()
    except (NotImplementedError, jax.errors.JaxRuntimeError):
        return None
    found = found[0] if isinstance(found, list) else found
    names = {"flops": "flops", "bytes": "bytes accessed"}
    times = steps if loops_are_multiplied() else 1
    return {name: found[key] / times for name, key in names.items() if key in (found or {})}


@functools.cache
def loops_are_multiplied() -> bool:
    """Whether XLA counts the body of a loop as often as it runs, or once."""

    def bytes_of(steps: int) -> float:
        def body(x, step):
            return jnp.sin(x + step), None

        loop = jax.jit(lambda x: lax.scan(body, x, jnp.arange(float(steps)))[0])
        found = loop.lower(jnp.ones(10_000)).compile().cost_analysis()
        return (found[0] if isinstance(found, list) else found)["bytes accessed"]

    return bytes_of(400) > 1.5 * bytes_of(200)


def build_torch(setup: Setup, name: str) -> Case:
    """PyTorch is asked for here only: the other rows do without."""
    import resnet_torch

    return resnet_torch.ROWS[name](setup)


def build_training(setup: Setup, method: str) -> Case:
    """The library's own training, with all that belongs to it."""
    import resnet_train

    return resnet_train.build(setup, method)


JAX_ROWS: dict[str, Builder] = {
    "vmap": partial(build_jax, context=plain_convolutions, unrolled=False),
    "unrolled": partial(build_jax, context=plain_convolutions, unrolled=True),
    "grouped": partial(build_jax, context=partial(layout, "grouped"), unrolled=False),
    "ours": partial(build_jax, context=nullcontext, unrolled=False),
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
CNN_ROWS = ("vmap", "unrolled", "ours")


class Layer(NamedTuple):
    """A convolution of square images and what follows it."""

    size: int  # of the filters
    num_in: int
    num_out: int
    side_in: int
    side_out: int
    activate: bool = True
    is_first: bool = False
    ends_block: bool = False  # its result is added to the block's shortcut
    starts_block: bool = False  # its image gradient is added to the shortcut's

    @property
    def products(self) -> int:
        """Of one image."""
        return self.side_out**2 * self.size**2 * self.num_in * self.num_out

    @property
    def traffic(self) -> int:
        """Numbers that one image moves through memory in a step (see the head of this file)."""
        into, out = self.side_in**2 * self.num_in, self.side_out**2 * self.num_out
        forward = (into + out) + out + 2 * out + 2 * out * self.activate
        backward = 3 * out * self.activate + 2 * out + 3 * out + (into + out)
        backward += 0 if self.is_first else into + out
        return forward + backward + 8 * out * self.ends_block + 3 * into * self.starts_block


def layers_of(depth: int, side: int = 32) -> list[Layer]:
    """The convolutions of a residual network, shortcuts included."""
    kind = "bottleneck" if depth >= 44 else "basic"
    plan = _plan((depth - 2) // 6, kind)
    layers = [Layer(3, 3, plan[0][0], side, side, is_first=True)]
    for num_in, convs, stride in plan:
        channels, before, side_after = num_in, side, side // stride
        for place, (size, num_out) in enumerate(convs):
            after = side_after if size == 3 else before
            last = place == len(convs) - 1
            after = side_after if last else after
            layers.append(
                Layer(size, channels, num_out, before, after, activate=not last, ends_block=last,
                      starts_block=place == 0)
            )  # fmt: skip
            channels, before = num_out, after
        if stride != 1 or num_in != channels:
            layers.append(Layer(1, num_in, channels, side, side_after, activate=False))
        side = side_after
    return layers


def num_parameters(layers: Sequence[Layer], num_classes: int) -> int:
    convs = sum(one.size**2 * one.num_in * one.num_out + 2 * one.num_out for one in layers)
    return convs + (_last_width(layers) + 1) * num_classes


def _last_width(layers: Sequence[Layer]) -> int:
    return max(one.num_out for one in layers)


@dataclass(frozen=True)
class Roofline:
    """What one step of all replicas must do."""

    flops: float
    bytes: float
    flops_ms: float
    bytes_ms: float

    @classmethod
    def of(cls, layers: Sequence[Layer], setup: Setup, bandwidth: float, peak: float):
        """At `bandwidth` bytes and `peak` operations a second."""
        images, width = setup.replicas * setup.batch_size, _last_width(layers)
        products = sum(one.products for one in layers) + width * setup.num_classes
        pooled = 2 * width * min(one.side_out for one in layers) ** 2
        numbers = sum(one.traffic for one in layers) + pooled
        parameters = setup.replicas * num_parameters(layers, setup.num_classes)
        flops = 3 * 2 * products * images
        moved = numbers * images * {"bf16": 2, "f32": 4}[setup.dtype] + 5 * 4 * parameters
        return cls(flops, moved, flops / peak * _MILLI, moved / bandwidth * _MILLI)

    @property
    def floor_ms(self) -> float:
        return max(self.flops_ms, self.bytes_ms)


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
    names = arguments.only or (CNN_ROWS if arguments.cpu_cnn else ROWS)
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
    sys.modules["resnet"] = sys.modules["__main__"]  # the others import this very module
    main()
