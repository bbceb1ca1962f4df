"""A loop without round trips is told so, with what makes some."""

import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import make_optimizers  # noqa: E402

import replicax as rx  # noqa: E402
from replicax.errors import RunProblem  # noqa: E402


def train(num_steps: int, num_replicas: int = 4, **options):
    """Losses that grow with the learning rate of the rung, and have noise."""
    optimizers = make_optimizers(num_replicas)
    for optimizer in optimizers:
        optimizer.step()
    exchange, random = (
        rx.torch.Exchange(optimizers, (0.02, 0.2), **options),
        np.random.default_rng(3),
    )
    for optimizer in optimizers:
        optimizer.step()
    for _ in range(num_steps):
        rates = exchange.learning_rates[exchange.rung_of]
        exchange.step((1 + 5 * rates + 0.1 * random.normal(size=num_replicas)).tolist())
    return exchange


@pytest.mark.parametrize(
    ("num_steps", "options", "said"),
    [
        (400, {}, "With target_swap_rate 0.005"),
        (400, {"target_swap_rate": 0.1, "buffer": 9.0}, "A pair swaps in 0 % of the steps"),
        (600, {"target_swap_rate": 0.05, "window": 200}, "write window=None"),
        (300, {"target_swap_rate": 0.1, "buffer": 3.0, "adapt": False}, "adapt=True"),
        (20, {"target_swap_rate": 0.4, "num_replicas": 6}, "train .* times as long"),
    ],
)
def test_what_a_loop_without_round_trips_is_told_makes_some(num_steps, options, said) -> None:
    with pytest.warns(RunProblem, match=f"No round trip in .* steps.*{said}"):
        exchange = train(num_steps, **options)
        summary = exchange.summary()
    [problem] = summary["problems"]
    assert summary["round_trips"] == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exchange.summary()  # it is told once
        write = problem.rpartition(": ")[2]
        given = re.findall(r'(\w+)=("\w+"|[\d.]+\d|\w+)', write)
        times = int((re.findall(r"train (\d+) times", write) or [1])[0])
        changed = {name: eval(value) for name, value in given}
        followed = train(times * num_steps, **{**options, **changed})
        assert followed.summary()["round_trips"] > 0 and followed.summary()["problems"] == []


def test_a_long_loop_is_told_without_its_summary() -> None:
    with pytest.warns(RunProblem, match="No round trip in 557 steps"):
        train(570, target_swap_rate=0.05, buffer=30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(300, target_swap_rate=0.1)


def test_models_apart_are_told_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert train(300, schedule="none").summary()["problems"] == []


def test_optimizers_that_never_step_are_told() -> None:
    exchange = rx.torch.Exchange(make_optimizers(2), (0.02, 0.2))
    with pytest.warns(RunProblem, match=r"optimizers\[0\] has not stepped in 50 steps"):
        for _ in range(50):
            exchange.step([1.0, 2.0])
