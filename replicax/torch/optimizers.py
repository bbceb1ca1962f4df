"""The optimizers of replicas: checks, and learning rates read and set in place."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from replicax.errors import show

_SAME = 1e-6  # relative difference of factors that rounding explains


def check_optimizers(torch: ModuleType, optimizers: Any) -> list[Any]:
    """Return the optimizers as a list; raise unless each can belong to one replica."""
    if not isinstance(optimizers, Sequence) or not len(optimizers):
        raise ValueError(f"optimizers is {show(optimizers)}; give a list, one for each replica.")
    owner: dict[Any, int] = {}
    for number, optimizer in enumerate(optimizers):
        name = f"optimizers[{number}]"
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise ValueError(f"{name} is {show(optimizer)}; give an optimizer of torch.optim.")
        if isinstance(optimizer, torch.optim.LBFGS | torch.optim.Rprop):
            raise ValueError(
                f"{name} is {type(optimizer).__name__}, which chooses its own step lengths, so a "
                "rung cannot set its learning rate: use SGD or Adam."
            )
        common_rate(optimizer, name)
        for rate in (group["lr"] for group in optimizer.param_groups):
            if not torch.is_tensor(rate):
                continue
            if not rate.is_floating_point():
                raise ValueError(f"The lr of {name} is a tensor of {rate.dtype}: give floats.")
            first = owner.setdefault(("lr", rate.data_ptr()), number)
            if first != number:
                raise ValueError(
                    f"{name} and optimizers[{first}] share one tensor as lr, which can only hold "
                    "the rate of one rung: give each its own torch.tensor(...)."
                )
        for param in params_of(optimizer):
            if owner.setdefault(id(param), number) != number:
                raise ValueError(
                    f"{name} and optimizers[{owner[id(param)]}] share a parameter; replicas must "
                    "be separate models, each with its own optimizer."
                )
    return list(optimizers)


def check_langevin(torch: ModuleType, optimizers: Sequence[Any]) -> None:
    """Raise unless noise in the gradient gives Langevin dynamics with these optimizers."""
    for number, optimizer in enumerate(optimizers):
        plain = isinstance(optimizer, torch.optim.SGD) and not any(
            group["nesterov"] or group["dampening"] or group["maximize"]
            for group in optimizer.param_groups
        )
        if not plain:
            raise ValueError(
                f"temperature is above 0, and optimizers[{number}] is {type(optimizer).__name__}: "
                "Langevin noise needs torch.optim.SGD, with momentum or without, and no nesterov, "
                "dampening or maximize. Use it, or write temperature=0."
            )


def params_of(optimizer: Any) -> list[Any]:
    """Return all parameters of an optimizer."""
    return [param for group in optimizer.param_groups for param in group["params"]]


def common_rate(optimizer: Any, name: str) -> float:
    """Return the learning rate of all groups; raise if they differ."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise ValueError(
            f"The parameter groups of {name} have the learning rates {sorted(rates)}; a rung has "
            'one rate for all parameters: give all groups the same, and groups added later "lr": '
            'optimizer.param_groups[0]["lr"].'
        )
    return rates.pop()


def scheduled_factor(optimizers: Sequence[Any]) -> float:
    """Return the factor by which LR schedulers have multiplied the rates since they were
    created."""
    factors = []
    for number, optimizer in enumerate(optimizers):
        now = common_rate(optimizer, f"optimizers[{number}]")
        first = float(optimizer.param_groups[0].get("initial_lr", now))
        factors.append(now / first if first else 1.0)
    return check_factors(factors)


class Rates:
    """The learning rates of the optimizers of this process, set in place, and the factor by which
    LR schedulers multiplied all of them."""

    def __init__(self, torch: ModuleType, optimizers: list[Any], first: int) -> None:
        self._torch, self._optimizers, self._first = torch, optimizers, first
        self._rates: list[float] = []  # as written, by optimizer
        self._written: list[Any] = []  # by group, where it is a tensor itself
        self._versions: list[tuple[Any, int]] = []  # versions of the tensors that were filled
        self.factor = 1.0

    def changed(self) -> float:
        """Return the factor by which all rates were multiplied since they were written; raise if
        they were changed in another way."""
        rates = [group["lr"] for one in self._optimizers for group in one.param_groups]
        if rates == self._written and all([x._version == at for x, at in self._versions]):
            return 1.0
        names = [f"optimizers[{number}]" for number in range(len(self._optimizers))]
        rates = map(common_rate, self._optimizers, names)
        return check_factors([now / old for now, old in zip(rates, self._rates)], self._first)

    def write(self, rates: list[float]) -> None:
        """Set the learning rates of the replicas of this process, times the factor."""
        self._rates = [rate * self.factor for rate in rates]
        self._written, self._versions = [], []
        for optimizer, rate in zip(self._optimizers, self._rates):
            for group in optimizer.param_groups:
                if type(group["lr"]) is not float and self._torch.is_tensor(group["lr"]):
                    self._fill(group["lr"], rate)
                else:
                    group["lr"] = rate
                self._written.append(group["lr"])

    def _fill(self, tensor: Any, rate: float) -> None:
        with self._torch.no_grad():
            tensor.fill_(rate)
        self._versions.append((tensor, tensor._version))


def check_factors(factors: Sequence[float], first: int = 0) -> float:
    """Return the factor that all learning rates were multiplied by; raise unless there is one.

    The factor of a replica is the current rate of its optimizer divided by the one that was
    written.
    """
    factor = factors[0]
    if any(other != factor for other in factors):  # NaN, too
        factor = float(np.exp(np.mean(np.log(np.maximum(factors, 1e-300)))))
        off = np.abs(np.asarray(factors) / factor - 1)
        if not np.all(off < _SAME):
            worst = int(np.argmax(np.nan_to_num(off, nan=np.inf)))
            raise ValueError(
                f"The learning rate of replica {first + worst} was multiplied by "
                f"{factors[worst]:.4g} since the last step, and those of others by other factors. "
                "The exchange sets learning rates: use LR schedulers that multiply them (StepLR, "
                "ExponentialLR, MultiplicativeLR), the same for all, or set exchange.factor."
            )
    if not 0 < factor < np.inf:
        raise ValueError(
            f"The learning rates were multiplied by {factor:g}, which cannot be undone: use an LR "
            "scheduler that keeps them finite and above 0."
        )
    return factor


def reset_memory(torch: ModuleType, optimizer: Any) -> None:
    """Set the state of an optimizer to zero, in place: momentum, averages, counts."""
    with torch.no_grad():
        for memory in optimizer.state.values():
            for name, value in memory.items():
                if torch.is_tensor(value):
                    value.zero_()
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    memory[name] = type(value)(0)


_HOOKS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()  # by optimizer


def silence(optimizers: list[Any]) -> None:
    """Remove the noise of an earlier exchange from optimizers that are passed to another."""
    for optimizer in optimizers:
        if optimizer in _HOOKS:
            _HOOKS.pop(optimizer).remove()


class Langevin:
    """Noise in the gradients of models on rungs with a temperature, added when optimizers step.

        g <- g + sqrt(2 (1 - momentum) tau / eta) xi

    The noise of a step depends only on (seed, step, replica), so that a run resumes exactly.
    """

    def __init__(self, torch: ModuleType, exchange: Any, seed: int) -> None:
        self._torch, self._exchange, self._seed = torch, exchange, seed
        self._temperature = exchange._decisions.read(".state.ladder.temperature")
        self._stepped: dict[int, tuple[int, int]] = {}  # by replica: its step, how often in it
        for place, optimizer in enumerate(exchange._optimizers):
            replica = exchange._ranks.first + place
            _HOOKS[optimizer] = optimizer.register_step_pre_hook(
                lambda optimizer, args, kwargs, replica=replica: self._before(
                    optimizer, args, kwargs, replica
                )
            )

    def _before(self, optimizer: Any, args: Any, kwargs: Any, replica: int) -> Any:
        """Add noise to the gradients, or, with a closure, after the closure has computed them."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            return self._add(optimizer, replica)

        def with_noise() -> Any:
            loss = closure()
            self._add(optimizer, replica)
            return loss

        return args[:1], {**kwargs, "closure": with_noise}

    def _add(self, optimizer: Any, replica: int) -> None:
        temperature = float(self._temperature[self._exchange.rung_of[replica]])
        if temperature == 0:
            return
        step = self._exchange.num_steps
        last, times = self._stepped.get(replica, (-1, 0))
        times = times + 1 if last == step else 0
        self._stepped[replica] = step, times
        words = np.random.SeedSequence([self._seed % 2**64, step, replica, times])
        number = int(words.generate_state(1, np.uint64)[0])
        generators: dict[Any, Any] = {}
        scale = getattr(optimizer, "grad_scale", None)  # of AMP: gradients are still scaled
        for group in optimizer.param_groups:
            std = np.sqrt(2 * (1 - group["momentum"]) * temperature / float(group["lr"]))
            for param in group["params"]:
                if param.grad is None:
                    continue
                if param.device not in generators:
                    generator = self._torch.Generator(param.device)
                    generators[param.device] = generator.manual_seed(number % 2**63)
                noise = self._torch.randn(
                    param.shape,
                    generator=generators[param.device],
                    device=param.device,
                    dtype=param.dtype,
                )
                noise = noise if scale is None else noise * scale.to(noise.dtype)
                param.grad.add_(noise, alpha=float(std))
