"""The optimizers of replicas: what they must be, and what a swap sets to zero."""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from replicax.errors import show


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
        for rate in (group["lr"] for group in optimizer.param_groups):
            if torch.is_tensor(rate) and not rate.is_floating_point():
                raise ValueError(f"The lr of {name} is a tensor of {rate.dtype}: give floats.")
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


def reset_memory(torch: ModuleType, optimizer: Any) -> None:
    """Set the state of an optimizer to zero, in place: momentum, averages, counts."""
    with torch.no_grad():
        for memory in optimizer.state.values():
            for name, value in memory.items():
                if torch.is_tensor(value):
                    value.zero_()
                elif isinstance(value, int | float) and not isinstance(value, bool):
                    memory[name] = type(value)(0)
