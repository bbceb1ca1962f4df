"""The losses of a step on the host, in one copy from the device."""

from typing import Any

import numpy as np

from replicax.errors import is_number, show


def to_host(torch: Any, losses: Any, count: int) -> np.ndarray:
    """Return the losses as an array (replica,); raise unless there is one number for each of
    `count` replicas."""
    if torch.is_tensor(losses) or isinstance(losses, np.ndarray):
        if losses.shape != (count,):
            raise ValueError(_wrong_number(f"of shape {tuple(losses.shape)}", count))
        return losses.detach().float().cpu().numpy() if torch.is_tensor(losses) else losses
    if not isinstance(losses, list | tuple):
        raise ValueError(_wrong_number(show(losses), count))
    if len(losses) != count:
        raise ValueError(_wrong_number(f"{len(losses)} numbers", count))
    if all(type(value) is float for value in losses):
        return np.array(losses)
    on_device = False
    for number, value in enumerate(losses):
        if isinstance(value, torch.Tensor):
            if value.numel() != 1:
                raise ValueError(
                    f"losses[{number}] has shape {tuple(value.shape)}; give one number, such as "
                    "its mean."
                )
            on_device = on_device or value.device.type != "cpu"
        elif not isinstance(value, float) and not is_number(value):
            raise ValueError(
                f"losses[{number}] is {show(value)}; give a number, or a tensor of one."
            )
    if on_device:
        device = next(value.device for value in losses if torch.is_tensor(value))
        parts = [torch.as_tensor(value).detach().reshape(()) for value in losses]
        return torch.stack([part.to(device, torch.float32) for part in parts]).cpu().numpy()
    return np.array([x.item() if isinstance(x, torch.Tensor) else x for x in losses], np.float64)


def _wrong_number(given: str, count: int) -> str:
    return f"losses are {given}, and there are {count} optimizers here: give one loss for each."
