"""A rung owns a rate, a scheduler its course: a loop with both trains the same weights as one
without an exchange in which the rates are computed by hand."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_bridge.exchanges import make_optimizers, told_losses, watch  # noqa: E402

import replicax as rx  # noqa: E402

LR = torch.optim.lr_scheduler
FIRST, SECOND = 0.1, 0.02  # rates of the two parameter groups of every optimizer
NUM_STEPS, NUM_REPLICAS = 24, 3
LADDER = dict(learning_rate=(0.01, 0.05), target_swap_rate=0.2, window=1, gain=0.05, buffer=0.0)


class Case(NamedTuple):
    """A scheduler, and what it should do to the rates of both groups, by hand: the course of the
    first relative to its rate, which is that of the rung, and of the second relative to it."""

    make: Callable[[Any], Any]
    courses: Callable[[int], tuple[float, float]]
    momentum: Callable[[int], float] = lambda step: 0.9


def between(start: float, end: float, share: float) -> float:
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


def both(course: Callable[[int], float]) -> Callable[[int], tuple[float, float]]:
    return lambda step: (course(step), course(step) * SECOND / FIRST)


def one_cycle(start: float, peak: float, end: float, step: int) -> float:
    """Up in the first quarter of 24 steps, of which the first is number 0, then down."""
    return between(start, peak, step / 5) if step <= 5 else between(peak, end, (step - 5) / 18)


def warmed_up(step: int, base: float) -> float:
    """Linear from a quarter in 4 steps, then a cosine of 20 to a floor of .005."""
    if step < 4:
        return base * (0.25 + 0.75 * step / 4)
    return between(base, 0.005, (step - 4) / 20)


def warm_up_and_cosine(optimizer):
    warm_up = LR.LinearLR(optimizer, start_factor=0.25, total_iters=4)
    cosine = LR.CosineAnnealingLR(optimizer, T_max=20, eta_min=0.005)
    return LR.SequentialLR(optimizer, [warm_up, cosine], milestones=[4])


def plateau(optimizer):
    scheduler = LR.ReduceLROnPlateau(optimizer, factor=0.5, patience=4, min_lr=0.03)
    step = scheduler.step
    scheduler.step = lambda: step(1.0)
    return scheduler


def halved(step: int) -> int:
    return 0 if step < 6 else 1 + (step - 6) // 5


CASES = {
    "LambdaLR": Case(lambda x: LR.LambdaLR(x, lambda n: 0.9**n), both(lambda n: 0.9**n)),
    "LambdaLR from 0": Case(
        lambda x: LR.LambdaLR(x, lambda n: min(1.0, n / 5)), both(lambda n: min(1.0, n / 5))
    ),
    "LambdaLR by group": Case(
        lambda x: LR.LambdaLR(x, [lambda n: 0.9**n, lambda n: 1 / (1 + n)]),
        lambda n: (0.9**n, SECOND / FIRST / (1 + n)),
    ),
    "OneCycleLR": Case(
        lambda x: LR.OneCycleLR(x, max_lr=[0.4, 0.2], total_steps=24, pct_start=0.25),
        lambda n: (one_cycle(1 / 25, 1.0, 4e-6, n), one_cycle(1 / 50, 0.5, 2e-6, n)),
        lambda n: one_cycle(0.95, 0.85, 0.95, n),
    ),
    "warm-up, then cosine": Case(
        warm_up_and_cosine, lambda n: (warmed_up(n, FIRST) / FIRST, warmed_up(n, SECOND) / FIRST)
    ),
    "StepLR": Case(lambda x: LR.StepLR(x, step_size=6, gamma=0.1), both(lambda n: 0.1 ** (n // 6))),
    "MultiplicativeLR": Case(
        lambda x: LR.MultiplicativeLR(x, lambda n: 0.95), both(lambda n: 0.95**n)
    ),
    "CosineAnnealingWarmRestarts": Case(
        lambda x: LR.CosineAnnealingWarmRestarts(x, T_0=8), both(lambda n: between(1, 0, n % 8 / 8))
    ),
    "ReduceLROnPlateau": Case(
        plateau,
        lambda n: (
            max(FIRST * 0.5 ** halved(n), 0.03) / FIRST,
            SECOND / FIRST,
        ),
    ),
    "by hand": Case(lambda x: ByHand(x), both(lambda n: 0.8**n)),
}


class ByHand:
    """Rates in a loop of the user's own."""

    def __init__(self, optimizer) -> None:
        self._optimizer = optimizer

    def step(self) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] *= 0.8

    def state_dict(self) -> dict:
        return {}

    def load_state_dict(self, state) -> None:
        pass


class Loop:
    """Models in double precision, whose two layers are groups with rates of their own."""

    def __init__(self, make=None, made: str = "before", seed: int = 0, exchanges=True) -> None:
        torch.manual_seed(seed)
        self.models = [torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(),
                       torch.nn.Linear(4, 1)).double() for _ in range(NUM_REPLICAS)]  # fmt: skip
        self.optimizers = [
            torch.optim.SGD(
                [
                    {"params": model[0].parameters()},
                    {"params": model[2].parameters(), "lr": SECOND},
                ],
                lr=FIRST,
                momentum=0.9,
            )
            for model in self.models
        ]
        self.schedulers, self.exchange = [], None
        if made == "before" and make:
            self.schedulers = list(map(make, self.optimizers))
        if exchanges:
            self.exchange = rx.torch.Exchange(self.optimizers, **LADDER)
        if made == "after" and make:
            self.schedulers = list(map(make, self.optimizers))

    def train(self, number: int) -> None:
        """One step of all models, and of their schedulers."""
        inputs = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3) * (1 + number % 3)
        for model, optimizer in zip(self.models, self.optimizers):
            optimizer.zero_grad()
            (model(inputs) - inputs[:, :1].sin()).square().mean().backward()
            optimizer.step()
        for scheduler in self.schedulers:
            scheduler.step()

    def weights(self) -> list:
        return [model.state_dict() for model in self.models]

    def parts(self) -> list:
        return [*self.models, *self.optimizers, *self.schedulers, self.exchange]


def decided() -> tuple[list, list]:
    """The ladder and the rungs in every step, of an exchange without schedulers."""
    exchange = rx.torch.Exchange(make_optimizers(NUM_REPLICAS), **LADDER)
    ladders, rungs = [], []
    for row in told_losses(NUM_STEPS, NUM_REPLICAS):
        ladders.append(exchange.learning_rates.tolist())
        rungs.append(exchange.rung_of)
        exchange.step(row)
    assert len(set(map(tuple, rungs))) > 2 and ladders[0] != ladders[-1], "hardly a swap"
    return ladders, rungs


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("made", ["before", "after"])
@pytest.mark.parametrize("name", CASES)
def test_weights_are_those_of_rates_computed_by_hand(name, made) -> None:
    case, (ladders, rungs) = CASES[name], decided()
    loop, told = Loop(case.make, made), told_losses(NUM_STEPS, NUM_REPLICAS)
    seen = watch(loop.optimizers)
    plain = Loop(exchanges=False)
    for number in range(NUM_STEPS):
        loop.train(number)
        loop.exchange.step(told[number])
        course = case.courses(number + 1)[0]
        assert loop.exchange.factor == pytest.approx(course, rel=1e-9, abs=1e-12)
        for replica, optimizer in enumerate(plain.optimizers):
            rate = ladders[number][rungs[number][replica]]
            rates = [rate * course for course in case.courses(number)]
            for group, group_rate in zip(optimizer.param_groups, rates):
                group["lr"], group["momentum"] = group_rate, case.momentum(number)
            assert seen[replica][-1] == pytest.approx(rates, rel=1e-9, abs=1e-15)
        plain.train(number)
    torch.testing.assert_close(loop.weights(), plain.weights(), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(loop.exchange.index_paths[:-1], rungs[1:])


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
@pytest.mark.parametrize("name", ["OneCycleLR", "warm-up, then cosine", "by hand"])
def test_a_schedule_that_was_saved_goes_on_bit_for_bit(name, tmp_path) -> None:
    told, make = told_losses(NUM_STEPS, NUM_REPLICAS), CASES[name].make
    whole, resumed = Loop(make), Loop(make, seed=1)
    for number in range(NUM_STEPS):
        if number == 10:
            states = [part.state_dict() for part in whole.parts()]
            torch.save(states, tmp_path / "last.pt")
            states = torch.load(tmp_path / "last.pt", weights_only=False)
            for part, state in zip(resumed.parts(), states):
                part.load_state_dict(state)
        for loop in (whole, resumed)[: 1 + (number >= 10)]:
            loop.train(number)
            loop.exchange.step(told[number])
    torch.testing.assert_close(resumed.weights(), whole.weights(), rtol=0, atol=0)
    assert resumed.exchange.summary() == whole.exchange.summary()


def test_schedules_that_differ_are_refused_and_nothing_swaps() -> None:
    loop = Loop(lambda x: LR.LambdaLR(x, lambda n: 0.5**n))
    loop.schedulers.pop(1)  # it is forgotten
    loop.train(0)
    for losses in ([3.0, 2.0, 1.0],) * 2:
        with pytest.raises(ValueError, match="replica 1 by 1, and those of others by 0.5"):
            loop.exchange.step(losses)
    assert loop.exchange.num_steps == 0 and loop.exchange.rung_of == [0, 1, 2]


@pytest.mark.parametrize(("rate", "said"), [(math.nan, "is nan"), (-0.1, "is -0.1")])
def test_a_rate_that_is_none_is_refused(rate, said) -> None:
    loop = Loop()
    loop.optimizers[1].param_groups[0]["lr"] = rate
    with pytest.raises(ValueError, match=rf"optimizers\[1\] {said}: use an LR scheduler"):
        loop.exchange.step([3.0, 2.0, 1.0])


def test_a_first_group_without_a_rate_is_refused() -> None:
    optimizers = make_optimizers(2)
    optimizers[1].param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match=r"first parameter group of optimizers\[1\] has .* rate 0"):
        rx.torch.Exchange(optimizers, (0.1, 0.2))


def test_a_group_that_stands_still_goes_on_doing_so() -> None:
    loop = Loop()
    for optimizer in loop.optimizers:
        optimizer.param_groups[1]["lr"] = 0.0
    before = loop.models[0][2].weight.clone()
    loop.train(0)
    assert torch.equal(loop.models[0][2].weight, before)


def test_an_error_in_a_step_leaves_rates_as_they_were() -> None:
    loop = Loop()
    rates = watch(loop.optimizers)[0]

    def closure():
        raise RuntimeError("no batch")

    for _ in range(2):
        with pytest.raises(RuntimeError, match="no batch"):
            loop.optimizers[0].step(closure)
    loop.train(0)
    assert rates[0] == rates[1] == rates[2]
    assert [group["lr"] for group in loop.optimizers[0].param_groups] == [FIRST, SECOND]


def test_a_tensor_that_groups_and_optimizers_share_is_left_as_it_was() -> None:
    rate = torch.tensor(0.1)
    params = [[torch.zeros(2, requires_grad=True)] for _ in range(4)]
    optimizers = [
        torch.optim.Adam([{"params": params[x]}, {"params": params[x + 1]}], lr=rate)
        for x in (0, 2)
    ]
    exchange, seen = rx.torch.Exchange(optimizers, (0.02, 0.2)), watch(optimizers)
    for _ in range(2):
        for optimizer in optimizers:
            optimizer.step()
        rate.mul_(0.5)
        exchange.step([1.0, 1.0])
    assert float(rate) == pytest.approx(0.025)
    assert all(group["lr"] is rate for one in optimizers for group in one.param_groups)
    for rung, rows in enumerate(seen):
        first = exchange.learning_rates[rung]
        assert rows[0] == [pytest.approx(first, rel=0.05)] * 2
        assert rows[1] == [pytest.approx(first / 2, rel=0.05)] * 2
