"""The options of `rx.train`: their defaults and checks, and the options of the sampler they imply.

Learning rates, buffer and gains are per mean loss, temperatures those of the posterior.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import at_least, check_flag, check_number, choose, is_number
from replicax.networks.methods import METHODS, Clock, Method
from replicax.networks.problem import Supervised
from replicax.run.options import Options, check_rungs, from_plain, to_plain

_PICK_EVERY = 10  # epochs between two averages of all networks of an ensemble


@dataclass(frozen=True)
class TrainOptions:
    """Every choice of a training but the problem and the start networks; see `rx.train`."""

    epochs: int
    method: str = "deo-star"
    num_replicas: int = 10
    learning_rate: Any = None
    momentum: float = 0.9
    temperature: float | None = None
    target_swap_rate: float = 0.005
    window: int | None = None
    gain: Any = Gain(600.0, 1000.0)
    buffer: float = 0.1
    buffer_gain: Any = Gain(60.0, 1000.0, cap=0.05)
    on_swap: str = "keep"
    on_nonfinite: str | None = None
    keep_networks: bool = False
    keep_averaged: int = 100
    burn_in: int = 0
    cycle_epochs: int = 100
    seed: int = 0
    checkpoint_every: int | str | None = None
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        for name in ("epochs", "num_replicas", "cycle_epochs"):
            at_least(name, getattr(self, name), 1)
        at_least("burn_in", self.burn_in, 0)
        at_least("keep_averaged", self.keep_averaged, 0)
        choose("method", self.method, METHODS)
        one = (lambda x: 0 <= x < 1), "it must be a number of at least 0 and below 1"
        check_number("momentum", self.momentum, *one)
        if self.temperature is not None:
            needed = "give one number of at least 0, for the coldest rung"
            check_number("temperature", self.temperature, lambda x: x >= 0, needed)
        self._check_rates()
        check_flag("keep_networks", self.keep_networks)
        if self.parts.picks and self.burn_in >= self.run_epochs:
            raise ValueError(
                f"burn_in is {self.burn_in}, and a network takes {self.run_epochs} epochs "
                f"(epochs={self.epochs}), so that no "
                "network would be averaged: write a smaller burn_in, or more epochs."
            )

    def _check_rates(self) -> None:
        if self.learning_rate is None:
            return
        check_rungs("learning_rate", self.learning_rate)
        if isinstance(self.learning_rate, str):
            raise ValueError(
                'learning_rate is "auto", which networks do not have: give (cold, hot), or None '
                "for those of the method."
            )
        if np.ndim(self.learning_rate) and not self.parts.has_ladder:
            raise ValueError(
                f'learning_rate is {self.learning_rate}; the method "{self.method}" has no ladder: '
                "give one."
            )

    def to_json(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_json(cls, data: dict[str, Any], given: dict[str, Any]) -> "TrainOptions":
        return from_plain(cls, data, given, call="rx.resume_training(run_dir, problem, {}=...)")

    @property
    def parts(self) -> Method:
        return METHODS[self.method]

    @property
    def run_epochs(self) -> int:
        """Epochs that each network of the run takes; a single one takes those of all replicas."""
        return self.epochs * self.num_replicas if self.parts.is_single else self.epochs

    @property
    def run_cycle_epochs(self) -> int:
        """Epochs of a cycle; in a run that is shorter than one, all of them."""
        return min(self.cycle_epochs, self.run_epochs)

    @property
    def pick_every(self) -> int:
        """Epochs between two averages of all networks; in a shorter run, all of them."""
        return min(_PICK_EVERY, self.run_epochs)

    @property
    def test_every(self) -> int:
        """Epochs between two tests."""
        return min(self.parts.test_every, self.run_epochs)

    def check_extends(self, epochs: int) -> None:
        """Raise unless a run of these options begins like one of `epochs` epochs.

        What follows the length of a run cannot be changed once the run has begun.
        """
        if self.epochs == epochs:
            return
        if self.epochs < epochs:
            raise ValueError(f"epochs is {self.epochs}, but the run was made for {epochs}.")
        shorter, method = replace(self, epochs=epochs), self.parts
        if method.follows_length:
            raise ValueError("The learning rate of a pretraining follows its length: start anew.")
        if method.is_cyclical and self.run_cycle_epochs != shorter.run_cycle_epochs:
            raise ValueError(
                f"The run was made for {shorter.run_epochs} epochs of its network, less than a "
                f"cycle of {self.cycle_epochs}, and its one cycle was cut to that length: start "
                f"anew, or train with cycle_epochs={shorter.run_epochs} to add cycles later."
            )
        if method.picks_all and self.pick_every != shorter.pick_every:
            raise ValueError(
                f"The networks of a run are averaged every {_PICK_EVERY} epochs, and at the end of "
                f"a shorter one, such as this of {epochs}: start anew, with at least "
                f"{_PICK_EVERY} epochs."
            )

    def clock(self, problem: Supervised) -> Clock:
        return Clock(self.run_epochs, problem.steps_per_epoch, self.run_cycle_epochs)

    def kernel(self, problem: Supervised) -> Kernel:
        return self.parts.kernel(self.momentum, self.clock(problem))

    def sampler(self, problem: Supervised) -> Options:
        """Return the options of the sampler, in the unit of the problem's energies."""
        method, steps, scale = self.parts, problem.steps_per_epoch, problem.scale
        rate = method.learning_rate if self.learning_rate is None else self.learning_rate
        restart = "restart" if method.has_ladder else "stop"
        return Options(
            num_steps=self.run_epochs * steps,
            num_replicas=1 if method.is_single else self.num_replicas,
            learning_rate=problem.learning_rate(rate),
            temperature=self._temperature(problem),
            target_swap_rate=self.target_swap_rate,
            window=self.window,
            schedule=method.schedule,
            kernel=self.kernel(problem),
            gain=self.gain,
            buffer=_scaled(self.buffer, scale),
            buffer_gain=_scaled(self.buffer_gain, scale),
            adapt=method.has_ladder,
            energy_at="before",
            on_swap=self.on_swap,
            burn_in=steps - 1,  # draws are taken at the end of an epoch
            thin=steps,
            seed=self.seed,
            keep_draws=self.keep_networks,
            history_every=steps,
            on_nonfinite=restart if self.on_nonfinite is None else self.on_nonfinite,
            checkpoint_every=self.checkpoint_every,
            keep_checkpoints=self.keep_checkpoints,
        )

    def _temperature(self, problem: Supervised) -> Any:
        """On the coldest rung of a ladder; on every rung of replicas that do not exchange."""
        method = self.parts
        value = method.temperature if self.temperature is None else self.temperature
        temperature = float(problem.temperature(value))
        alone = method.has_ladder or method.is_single
        return temperature if alone else np.full(self.num_replicas, temperature)


def _scaled(gain: Any, scale: float) -> Any:
    """Return a buffer or its gain in the unit of the energies."""
    if isinstance(gain, Gain):
        return replace(gain, scale=gain.scale * scale, cap=gain.cap * scale)
    if isinstance(gain, ConstantGain):
        return ConstantGain(gain.value * scale)
    if callable(gain):
        return lambda step: scale * gain(step)  # type: ignore[operator]
    return scale * gain if is_number(gain) else gain  # "auto", or what the settings refuse
