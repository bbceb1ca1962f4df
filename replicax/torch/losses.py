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
        return _copy(losses) if isinstance(losses, torch.Tensor) else losses
    if not isinstance(losses, list | tuple):
        raise ValueError(_wrong_number(show(losses), count))
    if len(losses) != count:
        raise ValueError(_wrong_number(f"{len(losses)} numbers", count))
    if all(type(value) is float for value in losses):
        return np.array(losses)
    _check(torch, losses)
    parts = [value if isinstance(value, torch.Tensor) else None for value in losses]
    device = next((part.device for part in parts if part is not None), "cpu")
    with torch.no_grad():
        if any(part is None or part.device != device or part.ndim for part in parts):
            parts = [torch.as_tensor(x, device=device).float().reshape(()) for x in losses]
        return _copy(torch.stack(parts))


def _copy(losses: Any) -> np.ndarray:
    return losses.detach().float().cpu().numpy()


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
