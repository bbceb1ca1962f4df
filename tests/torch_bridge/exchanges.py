"""Optimizers, losses and comparisons that tests of `rx.torch.Exchange` share."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

NUM_REPLICAS, NUM_STEPS = 5, 600
LADDER = dict(learning_rate=(0.005, 0.02), target_swap_rate=0.1, history_every=50)


def make_optimizers(count: int = NUM_REPLICAS, make=torch.optim.SGD, **options):
    options = {"lr": 0.1, **options}
    return [make(torch.nn.Linear(2, 1).parameters(), **options) for _ in range(count)]


def watch(optimizers) -> list[list[list[float]]]:
    """Return what will hold, by optimizer and step, the learning rates of all its groups while it
    steps. Watch after an exchange was made."""
    seen: list = [[] for _ in optimizers]
    for rows, optimizer in zip(seen, optimizers):

        @torch.compiler.disable
        def look(optimizer, args, kwargs, rows=rows):
            rows.append([float(group["lr"]) for group in optimizer.param_groups])

        optimizer.register_step_pre_hook(look)
    return seen


def rates_of(optimizers) -> list[float]:
    """The learning rates of all groups in a step, without gradients."""
    seen = watch(optimizers)
    for optimizer in optimizers:
        optimizer.zero_grad()
        optimizer.step()
    return [rate for rows in seen for rate in rows[-1]]


def told_losses(num_steps: int = NUM_STEPS, num_replicas: int = NUM_REPLICAS) -> np.ndarray:
    """Losses that differ by replica for long, and have noise."""
    rng = np.random.default_rng(7)
    slow = np.cumsum(rng.normal(size=(num_steps, num_replicas)), axis=0) / 20
    return (slow + 0.3 * rng.normal(size=slow.shape)).astype(np.float32)


def assert_same_state(exchange, before) -> None:
    """The energies of the last step are NaN before the first."""
    arrays = exchange.state_dict()["arrays"]
    torch.testing.assert_close(arrays, before["arrays"], rtol=0, atol=0, equal_nan=True)
