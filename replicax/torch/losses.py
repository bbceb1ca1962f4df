"""The losses of a step as numbers on the host, in one copy from the device."""

from types import ModuleType
from typing import Any

import numpy as np

from replicax.errors import is_number, show

_LARGEST = float(np.finfo(np.float32).max)  # largest loss that counts as finite


def to_host(torch: ModuleType, losses: Any, count: int) -> list[float]:
    """Return the losses as numbers; raise unless there is one for each of `count` replicas."""
    if isinstance(losses, list | tuple):
        if len(losses) != count:
            raise ValueError(_wrong_number(f"{len(losses)} numbers", count))
        values = list(losses)
        if not _are_floats(values):
            values = _of_each(torch, values)
    elif isinstance(losses, torch.Tensor | np.ndarray):
        if losses.shape != (count,):
            raise ValueError(_wrong_number(f"of shape {tuple(losses.shape)}", count))
        values = losses.tolist()
        if not _are_floats(values):
            values = [_as_float(number, value) for number, value in enumerate(values)]
    else:
        raise ValueError(_wrong_number(show(losses), count))
    return values


def check_finite(losses: list[float]) -> None:
    """Raise if a loss is not finite."""
    if sum(map(abs, losses)) < _LARGEST:
        return
    for number, loss in enumerate(losses):
        if not abs(loss) < _LARGEST:
            raise ValueError(
                f"losses[{number}] is {loss}: that model has diverged, or its batch is broken. "
                "Lower the hot learning rate, or load an earlier checkpoint; with "
                'on_nonfinite="ignore" training continues, and such a model does not swap.'
            )


def _are_floats(values: list[Any]) -> bool:
    return {float}.issuperset(map(type, values))


def _of_each(torch: ModuleType, losses: list[Any]) -> list[float]:
    """Return one number for each loss, with one copy for all that are on a device."""
    try:
        if all([loss.is_cpu for loss in losses]):  # no program of PyTorch needs to run
            values = [loss.item() for loss in losses]
        else:
            values = torch.stack(losses).reshape(-1).tolist()
        if len(values) == len(losses) and _are_floats(values):
            return values
    except (AttributeError, TypeError, RuntimeError):
        pass  # numbers among them, tensors of several numbers, or of several devices
    for number, loss in enumerate(losses):
        if isinstance(loss, torch.Tensor) and loss.numel() != 1:
            raise ValueError(
                f"losses[{number}] has shape {tuple(loss.shape)}; give one number, such as its "
                "mean."
            )
    tensors = [loss.detach().reshape(()) for loss in losses if isinstance(loss, torch.Tensor)]
    if tensors:
        device = next((x.device for x in tensors if not x.is_cpu), tensors[0].device)
        copied = iter(torch.stack([x.to(device) for x in tensors]).tolist())
        losses = [next(copied) if isinstance(x, torch.Tensor) else x for x in losses]
    return [_as_float(number, value) for number, value in enumerate(losses)]


def _as_float(number: int, value: Any) -> float:
    if not isinstance(value, float) and not is_number(value):
        raise ValueError(f"losses[{number}] is {show(value)}; give a number, or a tensor of one.")
    return float(value)


def _wrong_number(given: str, count: int) -> str:
    return f"losses are {given}, and there are {count} optimizers here: give one loss for each."
