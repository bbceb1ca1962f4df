"""The least that a training step of residual networks can take.

Operations: two for every product of the convolutions and the dense layer, three times
for training (images forward, gradients towards images and filters). Bytes: what a step moves when
every operation reads its arrays from memory and writes its result there, in the precision of the
convolutions. In units of the arrays in and out of a convolution with its normalisation:

    forward    convolution in + out, statistics out, normalise 2 out, relu 2 out
    backward   relu 3 out, sums for the normalisation 2 out, its gradient 3 out,
               filter gradient in + out, image gradient in + out (none for the first layer)
    a block    the sum of both branches 3 out, its relu 2 + 3 out, the sum of their gradients 3 in
    the rest   the pooled mean and its gradient; 5 float32 numbers a parameter for momentum SGD

Fusing operations goes below this count, and XLA does: it is a yardstick, not a law.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from resnet_rows import Setup

from replicax.nn.networks import plan_blocks

_MILLI = 1e3


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
    plan = list(plan_blocks((depth - 2) // 6, kind))
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
