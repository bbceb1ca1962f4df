"""Learning rates and noise of rungs, in force while the optimizers of their models step.

    rate of a group = rate of the rung * rate in the `param_groups` / first rate of the optimizer

Between two steps the `param_groups` have the rates of the user and of LR schedulers, as in a loop
without exchange. So schedulers follow their own course, whether they multiply rates or set them,
and groups keep their ratios. The first rate is that of the first group: its `max_lr` or
`initial_lr` where a scheduler gave it one, otherwise the rate that it had when the exchange was
made.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

_SAME = 1e-6  # relative difference of courses that rounding explains
_HOOKS: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()  # by optimizer


class Held(NamedTuple):
    """The rate of a group while its optimizer steps."""

    group: dict[str, Any]
    before: Any
    during: Any


class Stepping:
    """What the step of one optimizer is given: the rate of its rung, and noise."""

    def __init__(self, torch: ModuleType, optimizer: Any, name: str) -> None:
        self._torch, self._optimizer, self._name = torch, optimizer, name
        self._read: dict[str, tuple[Any, int, float]] = {}  # tensors, their versions and values
        self.first = float(optimizer.param_groups[0]["lr"])  # where no scheduler names another
        self.first = self._first_rate()
        self.has_stepped = False
        self._rung, self._rate = 0, 0.0
        self._rate_on: dict[Any, Any] = {}  # the rate of the rung, on devices with rates in tensors
        self._during: dict[int, Any] = {}  # their rates of groups, by the place of the group
        self._held: list[Held] = []

    def attach(self, noise: "Noise | None") -> None:
        """Take part in the steps of the optimizer, in place of an earlier exchange."""
        for hook in _HOOKS.get(self._optimizer, []):
            hook.remove()
        self._noise = noise
        before, after = map(self._torch.compiler.disable, (self._before, self._after))
        _HOOKS[self._optimizer] = [
            self._optimizer.register_step_pre_hook(before),
            self._optimizer.register_step_post_hook(after),
        ]

    def set_rung(self, rung: int, rate: float) -> None:
        """Set the rung of the model, and its learning rate."""
        self._rung, self._rate = rung, rate
        for on_device in self._rate_on.values():
            on_device.fill_(rate)

    def course(self) -> float:
        """Return the factor by which schedulers have multiplied the first rate."""
        self._restore()
        rate = self._value("lr", self._optimizer.param_groups[0]["lr"])
        if not 0 <= rate < np.inf:
            raise ValueError(
                f"The learning rate of {self._name} is {rate:g}: use an LR scheduler that keeps "
                "rates finite, and not below 0."
            )
        return rate / self._first_rate()

    def _value(self, name: str, rate: Any) -> float:
        """Return a rate as a number. To copy a tensor to the host one waits for its device, so this
        is done once for every version of it."""
        if not self._torch.is_tensor(rate):
            return float(rate)
        tensor, version, value = self._read.get(name, (None, 0, 0.0))
        if tensor is not rate or version != rate._version:
            value = float(rate)
            self._read[name] = rate, rate._version, value
        return value

    def _first_rate(self) -> float:
        group = self._optimizer.param_groups[0]
        first = group.get("max_lr", group.get("initial_lr", self.first))
        first = self._value("first", first)
        if not 0 < first < np.inf:
            raise ValueError(
                f"The first parameter group of {self._name} has the learning rate {first:g}, to "
                "which the ladder refers: give it one above 0, and put groups that stand still "
                "behind it."
            )
        return first

    def _before(self, optimizer: Any, args: Any, kwargs: Any) -> Any:
        """Set rates, and add noise to the gradients, with a closure once it has computed them."""
        self._restore()
        self.has_stepped = True
        first = self._first_rate()
        for place, group in enumerate(optimizer.param_groups):
            rate = group["lr"]
            if self._torch.is_tensor(rate):
                group["lr"] = self._rate_in_tensor(place, rate, first)
            else:
                group["lr"] = rate / first * self._rate
            self._held.append(Held(group, rate, group["lr"]))
        noise, closure = self._noise, args[1] if len(args) > 1 else kwargs.get("closure")
        if noise is None or closure is None:
            return noise and noise.add(optimizer, self._rung)

        def with_noise() -> Any:
            loss = closure()
            noise.add(optimizer, self._rung)
            return loss

        return args[:1], {**kwargs, "closure": with_noise}

    def _rate_in_tensor(self, place: int, rate: Any, first: float) -> Any:
        """Return the tensor that a group's rate is in while its optimizer steps, the same one in
        every step: nothing is compiled again, and a captured graph finds it."""
        torch = self._torch
        if rate.device not in self._rate_on:
            self._rate_on[rate.device] = torch.full((), self._rate, device=rate.device)
        if place not in self._during or self._during[place].dtype != rate.dtype:
            self._during[place] = torch.empty_like(rate)
        with torch.no_grad():
            torch.div(rate, first, out=self._during[place])
            return self._during[place].mul_(self._rate_on[rate.device])

    def _after(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._restore()

    def _restore(self) -> None:
        """Give the groups their own rates again, also after a step that was cut off by an error."""
        for group, before, during in self._held:
            if group["lr"] is during:
                group["lr"] = before
        self._held = []


def common_course(courses: Sequence[float], first: int = 0) -> float:
    """Return the factor by which the rates of all models were multiplied; raise unless there is
    one."""
    course = courses[0]
    if any(other != course for other in courses):
        course = float(np.median(courses))
        off = np.abs(np.asarray(courses) - course)
        if np.any(off > _SAME * course):
            worst = int(np.argmax(off))
            raise ValueError(
                f"LR schedulers have multiplied the learning rate of replica {first + worst} by "
                f"{courses[worst]:.4g}, and those of others by {course:.4g}: give all optimizers "
                "the same schedule, and step all schedulers equally often and with the same values."
            )
    return course


class Noise:
    """Noise in the gradients of a model, added when its optimizer steps, on rungs with a
    temperature.

        g <- g + sqrt(2 (1 - momentum) tau / eta) xi

    The noise of a step depends only on (seed, step, replica), so that a run resumes exactly.
    """

    def __init__(self, torch: ModuleType, exchange: Any, seed: int, replica: int) -> None:
        self._torch, self._exchange = torch, exchange
        self._seed, self._replica = seed % 2**64, replica
        self._temperature = exchange._decisions.read(".state.ladder.temperature")
        self._last, self._times = -1, 0  # the last step of the exchange, and the steps in it

    def add(self, optimizer: Any, rung: int) -> None:
        """Add the noise of a step on a rung to the gradients."""
        temperature = float(self._temperature[rung])
        if temperature == 0:
            return
        number = self._seed_of_step()
        generators: dict[Any, Any] = {}
        scale = getattr(optimizer, "grad_scale", None)  # of AMP: gradients are still scaled
        for group in optimizer.param_groups:
            rate = float(group["lr"])
            std = np.sqrt(2 * (1 - group["momentum"]) * temperature / rate) if rate else 0.0
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.device not in generators:
                    generator = self._torch.Generator(param.device)
                    generators[param.device] = generator.manual_seed(number)
                noise = self._torch.randn(
                    param.shape,
                    generator=generators[param.device],
                    device=param.device,
                    dtype=param.dtype,
                )
                noise = noise if scale is None else noise * scale.to(noise.dtype)
                param.grad.add_(noise, alpha=float(std))

    def _seed_of_step(self) -> int:
        """Return another seed at every call; there may be several before the exchange steps."""
        step = self._exchange.num_steps
        self._times = self._times + 1 if self._last == step else 0
        self._last = step
        words = np.random.SeedSequence([self._seed, step, self._replica, self._times])
        return int(words.generate_state(1, np.uint64)[0]) % 2**63
