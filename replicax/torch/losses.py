"""The losses of a step on the host, in one copy from the device."""

from typing import Any

import numpy as np

from replicax.errors import is_number, show


def to_host(torch: Any, losses: Any, count: int) -> np.ndarray:
    """Return the losses as an array (replica,); raise unless there is one number for each of
    `count` replicas."""
    if isinstance(losses, torch.Tensor | np.ndarray):
        if losses.shape != (count,):
            raise ValueError(_wrong_number(f"of shape {tuple(losses.shape)}", count))
        return np.array(losses.tolist())
    if not isinstance(losses, list | tuple):
        raise ValueError(_wrong_number(show(losses), count))
    if len(losses) != count:
        raise ValueError(_wrong_number(f"{len(losses)} numbers", count))
    if all(type(value) is float for value in losses):
        return np.array(losses)
    try:
        stacked = torch.stack(losses)
    except (TypeError, RuntimeError):  # numbers among them, or tensors of several devices
        _check(torch, losses)
        device = next((x.device for x in losses if isinstance(x, torch.Tensor)), "cpu")
        stacked = torch.stack([torch.as_tensor(x, device=device).reshape(()) for x in losses])
    if stacked.ndim > 1:
        _check(torch, losses)
    return np.array(stacked.flatten().tolist())  # one copy


def _check(torch: Any, losses: Any) -> None:
    for number, value in enumerate(losses):
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"losses[{number}] has shape {tuple(value.shape)}; give one number, such as "
                    "its mean."
                )
        elif not isinstance(value, float) and not is_number(value):
            raise ValueError(
                f"losses[{number}] is {show(value)}; give a number, or a tensor of one."
            )


def _wrong_number(given: str, count: int) -> str:
    return f"losses are {given}, and there are {count} optimizers here: give one loss for each."
