"""The residual networks of `resnet.py` in PyTorch: a loop over networks, and all of them in one.

One class serves both: with several replicas their channels stand side by side, convolutions are
grouped by replica, batch normalisation of all channels is that of every replica, and the dense
layers are one batched product. Every parameter has the replicas first, so that the parameters of
many networks are those of single ones, concatenated.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import jax
import numpy as np
import torch
from resnet_floor import layers_of, num_parameters
from resnet_rows import MOMENTUM, WEIGHT_DECAY, Case, Setup, depth_of, init_replicas
from torch import Tensor, nn
from torch.nn import functional

from replicax.nn.networks import plan_blocks

_WIDTH = 16  # channels of the first convolution


class ConvNorm(nn.Module):
    """A convolution per replica and its batch normalisation."""

    def __init__(self, size: int, num_in: int, num_out: int, stride: int, replicas: int,
                 groups: int) -> None:  # fmt: skip
        super().__init__()
        # Images are shared by all replicas; a convolution of them needs no groups.
        inputs = num_in * groups
        self.conv = nn.Conv2d(inputs, num_out * replicas, size, stride, (size - 1) // 2,
                              groups=groups, bias=False)  # fmt: skip
        self.norm = nn.BatchNorm2d(num_out * replicas)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class Block(nn.Module):
    """relu(shortcut(x) + convolutions(x)); the stride is that of the first 3 x 3 convolution."""

    def __init__(self, num_in: int, convs: Sequence[tuple[int, int]], stride: int, replicas: int):
        super().__init__()
        strided = next(place for place, (size, _) in enumerate(convs) if size == 3)
        channels, made = num_in, []
        for place, (size, num_out) in enumerate(convs):
            by = stride if place == strided else 1
            made.append(ConvNorm(size, channels, num_out, by, replicas, replicas))
            channels = num_out
        self.convs = nn.ModuleList(made)
        needs_shortcut = stride != 1 or num_in != channels
        self.shortcut = (
            ConvNorm(1, num_in, channels, stride, replicas, replicas) if needs_shortcut else None
        )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.shortcut is None else self.shortcut(x)
        for conv in self.convs[:-1]:
            x = functional.relu(conv(x))
        return functional.relu(shortcut + self.convs[-1](x))


class ResNet(nn.Module):
    """Images (image, channel, height, width) -> logits (replica, image, class)."""

    def __init__(self, depth: int, num_classes: int, replicas: int = 1) -> None:
        super().__init__()
        plan = list(plan_blocks((depth - 2) // 6, "bottleneck" if depth >= 44 else "basic"))
        self.replicas = replicas
        self.first = ConvNorm(3, 3, _WIDTH, 1, replicas, groups=1)
        self.blocks = nn.Sequential(*(Block(*step, replicas) for step in plan))
        width = plan[-1][1][-1][1]
        self.weight = nn.Parameter(torch.randn(replicas, width, num_classes) * width**-0.5)
        self.bias = nn.Parameter(torch.zeros(replicas, 1, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.first(images))).mean((2, 3))
        x = x.view(len(x), self.replicas, -1).transpose(0, 1)
        return torch.baddbmm(self.bias, x, self.weight)


def load_jax(net: ResNet, params: dict) -> None:
    """Give a network of one replica the parameters of one of ours."""

    def fill(target: Tensor, value: np.ndarray) -> None:
        target.copy_(torch.tensor(np.asarray(value)).view(target.shape))

    def fill_conv(module: ConvNorm, filters: np.ndarray, norm: dict) -> None:
        fill(module.conv.weight, np.ascontiguousarray(np.transpose(filters, (3, 2, 0, 1))))
        fill(module.norm.weight, norm["scale"])
        fill(module.norm.bias, norm["shift"])

    with torch.no_grad():
        fill_conv(net.first, params["conv"], params["norm"])
        for block, given in zip(net.blocks, params["blocks"], strict=True):
            for module, filters, norm in zip(block.convs, given["convs"], given["norms"]):
                fill_conv(module, filters, norm)
            if block.shortcut is not None:
                fill_conv(block.shortcut, given["shortcut"], given["norms"][-1])
        fill(net.weight, params["dense"]["weight"])
        fill(net.bias, params["dense"]["bias"])


def load_many(net: ResNet, singles: Iterable[ResNet]) -> None:
    """Give the network of all replicas the parameters of networks of one replica each."""
    with torch.no_grad():
        for target, *given in zip(net.parameters(), *(one.parameters() for one in singles)):
            target.copy_(torch.cat(given))


def device_name() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def make_singles(setup: Setup) -> list[ResNet]:
    """The networks with which the rows of JAX start, too."""
    nets, params = [], init_replicas(setup).params
    for place in range(setup.replicas):
        net = ResNet(depth_of(setup.model), setup.num_classes)
        load_jax(net, jax.tree.map(lambda leaf, place=place: leaf[place], params))
        nets.append(net.to(device_name(), memory_format=torch.channels_last))
    return nets


def make_grouped(setup: Setup, singles: Sequence[ResNet]) -> ResNet:
    net = ResNet(depth_of(setup.model), setup.num_classes, setup.replicas)
    load_many(net, singles)
    return net.to(device_name(), memory_format=torch.channels_last)


def autocast(setup: Setup) -> torch.autocast:
    return torch.autocast(device_name(), torch.bfloat16, enabled=setup.dtype == "bf16")


def batches_of(setup: Setup) -> list[tuple[Tensor, Tensor]]:
    images, labels = (torch.from_numpy(array).to(device_name()) for array in setup.data())
    images = images.permute(0, 1, 4, 2, 3)
    return [
        (some.contiguous(memory_format=torch.channels_last), theirs.long())
        for some, theirs in zip(images, labels)
    ]


def losses_of(net: ResNet, setup: Setup, images: Tensor, labels: Tensor) -> Tensor:
    """The mean loss of every replica."""
    with autocast(setup):
        logits = net(images)
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
    each = functional.cross_entropy(logits, labels.repeat(net.replicas), reduction="none")
    return each.view(net.replicas, -1).mean(1)


Step = Callable[[Tensor, Tensor], Tensor]  # images, labels -> the mean loss over replicas


def loop_step(setup: Setup, nets: Sequence[ResNet]) -> Step:
    """One network after the other, each with an optimizer of its own."""
    optimizers = [
        torch.optim.SGD(net.parameters(), float(rate), MOMENTUM, weight_decay=WEIGHT_DECAY)
        for net, rate in zip(nets, setup.learning_rates)
    ]

    def step(images: Tensor, labels: Tensor) -> Tensor:
        total = 0.0
        for net, optimizer in zip(nets, optimizers):
            optimizer.zero_grad(set_to_none=True)
            loss = losses_of(net, setup, images, labels).sum()
            loss.backward()
            optimizer.step()
            total = total + loss.detach()
        return total / len(nets)

    return step


def grouped_step(setup: Setup, net: ResNet, compiled: bool) -> Step:
    """All replicas at once; a learning rate per replica stands beside every parameter."""
    params = list(net.parameters())
    velocities = [torch.zeros_like(param) for param in params]
    per_replica = torch.tensor(setup.learning_rates, device=params[0].device)
    rates = [
        per_replica.repeat_interleave(len(param) // setup.replicas).view(
            -1, *[1] * (param.ndim - 1)
        )
        for param in params
    ]

    def forward(images: Tensor, labels: Tensor) -> Tensor:
        return losses_of(net, setup, images, labels)

    @torch.no_grad()
    def update(gradients: list[Tensor]) -> None:
        parts = zip(params, velocities, rates, gradients, strict=True)
        for param, velocity, rate, gradient in parts:
            velocity.mul_(MOMENTUM).add_(gradient).add_(param, alpha=WEIGHT_DECAY)
            param.sub_(rate * velocity)

    if compiled:
        forward, update = torch.compile(forward), torch.compile(update)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        losses = forward(images, labels)
        update(list(torch.autograd.grad(losses.sum(), params)))
        return losses.detach().mean()

    return step


def case_of(setup: Setup, step: Step, note: str = "") -> Case:
    batches = batches_of(setup)
    is_cuda = device_name() == "cuda"
    wait = torch.cuda.synchronize if is_cuda else lambda: None
    note = f"torch {torch.__version__} on {device_name()}, {note}"

    def run() -> float:
        wait()
        for place in range(setup.steps):
            loss = step(*batches[place % len(batches)])
        wait()
        return float(loss)

    start = time.perf_counter()
    step(*batches[0])
    wait()
    seconds = time.perf_counter() - start
    if not is_cuda:
        return Case(run, seconds, note=note)
    # What choosing kernels took at the first step is not what training takes.
    torch.cuda.reset_peak_memory_stats()
    return Case(run, seconds, torch.cuda.max_memory_allocated, note=note)


def build_loop(setup: Setup) -> Case:
    torch.backends.cudnn.benchmark = True  # XLA, too, tries what is fastest
    return case_of(setup, loop_step(setup, make_singles(setup)), "eager")


def build_grouped(setup: Setup) -> Case:
    """With torch.compile where it works; where not, the row is eager and says why."""
    torch.backends.cudnn.benchmark = True
    singles, why = make_singles(setup), ""
    if setup.torch_compile:
        try:
            step = grouped_step(setup, make_grouped(setup, singles), compiled=True)
            return case_of(setup, step, "torch.compile")
        except Exception as problem:  # whatever a compiler may say
            first_line = (str(problem).strip().splitlines() or [""])[0]
            why = f": torch.compile failed ({type(problem).__name__}: {first_line[:150]})"
    step = grouped_step(setup, make_grouped(setup, singles), compiled=False)
    return case_of(setup, step, f"eager{why}")


ROWS = {"torch-loop": build_loop, "torch-grouped": build_grouped}


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative, in the Euclidean norm."""
    difference = found.double() - expected.double()
    return float(difference.norm() / expected.double().norm())


def check(setup: Setup) -> str:
    """Same parameters and logits as our network; loop and grouped train alike.

    PyTorch computes in float64 here: steps of a deep network amplify rounding a thousandfold.
    """
    setup = replace(setup, dtype="f32")
    singles = [net.double() for net in make_singles(setup)]
    grouped = make_grouped(setup, singles).double()
    counts = parameter_counts(setup, singles[0])
    images, labels = batches_of(setup)[0]
    images = images.double()
    with torch.no_grad():
        looped = torch.cat([net(images) for net in singles])
        found = {"logits, grouped and loop": distance(grouped(images), looped)}
    found["logits, loop and ours"] = distance(looped.cpu(), our_logits(setup))
    for step in loop_step(setup, singles), grouped_step(setup, grouped, compiled=False):
        for _ in range(2):
            step(images, labels)
    merged = [torch.cat(params) for params in zip(*(net.parameters() for net in singles))]
    found["parameters after two steps, grouped and loop"] = distance(
        flat(grouped.parameters()), flat(merged)
    )
    lines = [f"parameters of a replica: {counts}"]
    lines += [f"{name}: relative distance {value:.2g}" for name, value in found.items()]
    bounds = (1e-9, 1e-3, 1e-9)
    agree = all(value < bound for value, bound in zip(found.values(), bounds, strict=True))
    if len(set(counts.values())) > 1 or not agree:
        raise SystemExit("\n".join([*lines, "These are not the same networks."]))
    return "\n".join(lines)


def parameter_counts(setup: Setup, net: ResNet) -> dict[str, int]:
    leaves = jax.tree.leaves(init_replicas(setup).params)
    plan = layers_of(depth_of(setup.model), setup.side)
    return {
        "torch": sum(param.numel() for param in net.parameters()),
        "ours": sum(leaf.size for leaf in leaves) // setup.replicas,
        "plan": num_parameters(plan, setup.num_classes),
    }


def our_logits(setup: Setup) -> Tensor:
    """Of the first batch in training, by the network of this library."""
    replicas, (images, _) = init_replicas(setup), setup.data()
    apply = jax.vmap(setup.network.apply, in_axes=(0, 0, None, None))
    with jax.default_matmul_precision("highest"):
        compiled = jax.jit(apply, static_argnums=3)
        logits, _ = compiled(replicas.params, replicas.statistics, images[0], True)
    return torch.tensor(np.asarray(logits))


def flat(arrays: Iterable[Tensor]) -> Tensor:
    return torch.cat([array.detach().flatten() for array in arrays])
