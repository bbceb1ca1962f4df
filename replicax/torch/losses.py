"""The losses of a step as numbers on the host, in one copy from the device."""

from types import ModuleType
from typing import Any

import numpy as np

from replicax.errors import is_number, show

_LARGEST = float(np.finfo(np.float32).max)  # largest loss that counts as finite


def to_host(torch: ModuleType, losses: Any, count: int) -> list[float]:
    """Return the losses as numbers; raise unless there is one for each of `count` replicas."""
    if isinstance(losses, torch.Tensor | np.ndarray):
        given = f"of shape {tuple(losses.shape)}"
        losses = losses.tolist() if losses.ndim == 1 else []
    else:
        is_list = isinstance(losses, list | tuple)
        given = f"{len(losses)} numbers" if is_list else show(losses)
        losses = list(losses) if is_list else []
    if len(losses) != count:
        raise ValueError(
            f"losses are {given}, and there are {count} optimizers here: give one loss for each."
        )
    devices = {x.device if isinstance(x, torch.Tensor) else None for x in losses}
    if len(devices) == 1 and not getattr(losses[0], "is_cpu", True):
        losses = torch.stack([_scalar(*pair) for pair in enumerate(losses)]).tolist()
    return [_as_float(*pair) for pair in enumerate(losses)]


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


def _scalar(number: int, loss: Any) -> Any:
    if loss.numel() != 1:
        raise ValueError(
            f"losses[{number}] has shape {tuple(loss.shape)}; give one number, such as its mean."
        )
    return loss.detach().reshape(())


def _as_float(number: int, loss: Any) -> float:
    if type(loss) is float:
        return loss
    value = _scalar(number, loss).item() if hasattr(loss, "numel") else loss
    if not isinstance(value, float) and not is_number(value):
        raise ValueError(f"losses[{number}] is {show(value)}; give a number, or a tensor of one.")
    return float(value)
