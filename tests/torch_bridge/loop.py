"""A training loop in PyTorch as users write it, with an exchange in it or with rates set by hand.

Three convolutional networks on images that can be learnt. What a loop uses (AMP, channels_last,
`torch.compile`, LR schedulers) is chosen by name, and what it did is returned.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

import replicax as rx  # noqa: E402

NUM_REPLICAS, NUM_STEPS, BROKEN_STEP = 3, 24, 9
OPTIONS = dict(learning_rate=(0.02, 0.1), target_swap_rate=0.2, window=2, gain=0.05, buffer=0.0)


class Use(NamedTuple):
    """What a loop uses."""

    amp: bool = False
    channels_last: bool = False
    backend: Any = None  # of torch.compile
    scheduler: Callable[[Any], Any] | None = None


class Parts(NamedTuple):
    """All that a loop trains with, and would save."""

    models: list[Any]
    calls: list[Any]  # the models, compiled where asked for
    optimizers: list[Any]
    schedulers: list[Any]
    scaler: Any
    exchange: Any

    def state(self) -> dict[str, Any]:
        lists = {"models": self.models, "optimizers": self.optimizers}
        return {
            **{name: [one.state_dict() for one in parts] for name, parts in lists.items()},
            "scaler": self.scaler.state_dict(),
            "exchange": self.exchange.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        for name, parts in (("models", self.models), ("optimizers", self.optimizers)):
            for one, its_state in zip(parts, state[name]):
                one.load_state_dict(its_state)
        self.scaler.load_state_dict(state["scaler"])
        self.exchange.load_state_dict(state["exchange"])


def make(device: str, use: Use, exchanges: bool = True, seed: int = 1) -> Parts:
    """Return models, their weights a function of the seed, and what trains them."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.backends.cudnn.deterministic = True
    models = [_network().to(device) for _ in range(NUM_REPLICAS)]
    if use.channels_last:
        models = [model.to(memory_format=torch.channels_last) for model in models]
    compiled = use.backend is not None
    calls = [torch.compile(x, backend=use.backend) for x in models] if compiled else models
    optimizers = [torch.optim.SGD(x.parameters(), lr=0.1, momentum=0.9) for x in models]
    schedulers = [use.scheduler(x) for x in optimizers] if use.scheduler else []
    scaler = torch.amp.GradScaler(device, enabled=use.amp, init_scale=2.0**10, growth_interval=8)
    exchange = rx.torch.Exchange(optimizers, **OPTIONS) if exchanges else None
    return Parts(models, calls, optimizers, schedulers, scaler, exchange)


def _network() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)
    )


def batches(device: str, use: Use) -> list[tuple[Any, Any]]:
    """Noise, one of whose channels is lighter in the images of one class."""
    random = torch.Generator().manual_seed(2)
    labels = torch.randint(2, (NUM_STEPS, 32), generator=random)
    images = torch.randn(NUM_STEPS, 32, 3, 8, 8, generator=random)
    images[:, :, 0] += 0.3 * labels[:, :, None, None]
    layout = torch.channels_last if use.channels_last else torch.contiguous_format
    both = zip(images.to(device), labels.to(device))
    return [(one.contiguous(memory_format=layout), label) for one, label in both]


def train_step(parts: Parts, use: Use, batch: tuple[Any, Any], device: str, broken: bool) -> list:
    """Train all models on a batch, and return their losses, tensors of the device."""
    low = torch.float16 if device == "cuda" else torch.bfloat16
    losses = []
    for number, (call, optimizer) in enumerate(zip(parts.calls, parts.optimizers)):
        with torch.autocast(device, dtype=low, enabled=use.amp):
            loss = torch.nn.functional.cross_entropy(call(batch[0]), batch[1])
        optimizer.zero_grad()
        parts.scaler.scale(loss).backward()
        if broken and number == 1:  # a gradient that overflowed
            parts.models[1][0].weight.grad[0, 0, 0, 0] = torch.inf
        parts.scaler.step(optimizer)
        losses.append(loss)
    parts.scaler.update()
    for scheduler in parts.schedulers:
        scheduler.step()
    return losses


def set_rates(optimizers: list, rates: list[float]) -> None:
    for optimizer, rate in zip(optimizers, rates):
        optimizer.param_groups[0]["lr"] = rate
