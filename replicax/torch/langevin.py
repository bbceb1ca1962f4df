"""Langevin noise for PyTorch optimizers, added to the gradient as in `rx.kernels.momentum`."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

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

    def __init__(self, torch: Any, exchange: Any, seed: int) -> None:
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
