"""What the rows of `resnet.py` train, and the rows that are bare JAX."""

import functools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from replicax.nn import network as layers_of_networks
from replicax.nn import resnet, small_cnn
from replicax.nn.network import Network

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
_NUM_BATCHES = 8  # so that nothing about one batch can be hoisted out of the loop


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
            return small_cnn(self.num_classes, num_channels=3, dtype=dtype)
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


def build_jax(
    setup: Setup,
    context: Callable[[], AbstractContextManager],
    unrolled: bool = False,
    mapping: Callable = jax.vmap,
) -> Case:
    """The step, or a scan over the steps of a lap, in one program whose state is donated.

    `unrolled`: replicas are written out, their states apart; otherwise `mapping` makes them.
    """
    one, data = partial(train_one, setup.network), jax.device_put(setup.data())
    state = init_replicas(setup)
    state = jax.device_put(unstack(state, setup.replicas) if unrolled else state)

    def train_all(state, images: Array, labels: Array):
        if not unrolled:
            state, losses = mapping(one, in_axes=(0, None, None))(state, images, labels)
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
