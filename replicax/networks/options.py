"""The options of `rx.train`: their defaults and checks, and the options of the sampler they imply.

Learning rates, buffer and gains are per mean loss, temperatures those of the posterior.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.swap import Rule
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import at_least, check_flag, check_function, check_number, choose, is_number
from replicax.networks import option_checks
from replicax.networks.cold_part import ColdPart
from replicax.networks.methods import METHODS, MOMENTUM, Clock, Method
from replicax.networks.problem import Supervised
from replicax.networks.tempered import tempered
from replicax.run.options import Options
from replicax.run.plain import CUSTOM, from_plain, to_plain

_PICK_EVERY = 10  # epochs between two averages of all networks of an ensemble
_CHANGES = ("kernel", "rate_schedule", "schedule", "rule", "swap_every")  # parts of the method
_CHECKS = (
    option_checks.check_exchange,
    option_checks.check_rates,
    option_checks.check_moves,
    option_checks.check_temperature,
    option_checks.check_cold_part,
)


@dataclass(frozen=True)
class TrainOptions:
    """Every choice of a training but the problem and the start networks; see `rx.train`."""

    epochs: int
    method: Any = "deo-star"
    num_replicas: int = 10
    learning_rate: Any = None
    momentum: float = MOMENTUM
    temperature: Any = None
    target_swap_rate: float = 0.005
    window: int | None = None
    gain: Any = Gain(600.0, 1000.0)
    buffer: float = 0.1
    buffer_gain: Any = Gain(60.0, 1000.0, cap=0.05)
    on_swap: str = "keep"
    on_nonfinite: str | None = None
    keep_networks: bool = False
    burn_in: int = 0
    cycle_epochs: int = 100
    seed: int = 0
    checkpoint_every: int | str | None = None
    keep_checkpoints: int = 2
    average_rungs: int = 1
    settle_epochs: float = 0.0
    keep_averaged: int = 100
    kernel: Any = None
    rate_schedule: Any = None
    warmup_epochs: float = 0.0
    clip_norm: float | None = None
    schedule: Any = None
    rule: Any = None
    adapt: bool | None = None
    swap_every: int | None = None
    swap_energy: str = "batch"
    evaluate: Any = None

    def __post_init__(self) -> None:
        for name in ("epochs", "num_replicas", "cycle_epochs"):
            at_least(name, getattr(self, name), 1)
        at_least("burn_in", self.burn_in, 0)
        at_least("keep_averaged", self.keep_averaged, 0)
        if not isinstance(self.method, Method):
            choose("method", self.method, METHODS)
        one = (lambda x: 0 <= x < 1), "it must be a number of at least 0 and below 1"
        check_number("momentum", self.momentum, *one)
        for check in _CHECKS:
            check(self)
        check_flag("keep_networks", self.keep_networks)
        if self.on_nonfinite is not None:
            choose("on_nonfinite", self.on_nonfinite, ("restart", "stop"))
        if self.evaluate is not None:
            check_function("evaluate", self.evaluate, "epoch")
        if self.parts.picks and self.burn_in >= self.run_epochs:
            raise ValueError(
                f"burn_in is {self.burn_in}, and a network takes {self.run_epochs} epochs "
                f"(epochs={self.epochs}), so that no "
                "network would be averaged: write a smaller burn_in, or more epochs."
            )

    def to_json(self) -> dict[str, Any]:
        method = to_plain(self.method) if isinstance(self.method, Method) else self.method
        return {**to_plain(self), "method": method}

    @classmethod
    def from_json(cls, data: dict[str, Any], given: dict[str, Any]) -> "TrainOptions":
        if not isinstance(data, dict):
            return from_plain(cls, data, given)
        data = {**_added(cls), **data}
        method = data.get("method")
        if isinstance(method, dict):
            data["method"] = CUSTOM
            if CUSTOM not in method.values():
                given = {**given, "method": given.get("method") or _stored_method(method)}
        return from_plain(cls, data, given, call="rx.resume_training(run_dir, problem, {}=...)")

    @classmethod
    def recorded(cls, data: dict[str, Any]) -> "TrainOptions":
        """Return the options that `to_json` wrote, to read them: objects are not made again."""
        method = data["method"]
        if isinstance(method, dict):
            method = _unchecked(Method, method)
        return _unchecked(cls, {**_added(cls), **data, "method": method})

    @property
    def method_name(self) -> str:
        return self.base.name

    @property
    def base(self) -> Method:
        """The method, as it was chosen."""
        return self.method if isinstance(self.method, Method) else METHODS[self.method]

    @property
    def parts(self) -> Method:
        """The method, changed by the options that are parts of it."""
        given = {name: getattr(self, name) for name in _CHANGES}
        return replace(self.base, **{name: x for name, x in given.items() if x is not None})

    @property
    def uses_temperature(self) -> bool:
        """Whether the rule compares the temperatures of the rungs."""
        rule = self.parts.rule
        if isinstance(rule, Rule):
            return self.base.has_ladder and rule.uses_temperature
        return self.base.has_ladder and str(rule).lower() != "deterministic"

    @property
    def run_epochs(self) -> int:
        """Epochs that each network of the run takes; a single one takes those of all replicas."""
        return self.epochs * self.num_replicas if self.base.is_single else self.epochs

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
        return min(self.base.test_every, self.run_epochs)

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
            raise ValueError(
                f'The learning rate of a run with rate_schedule="{method.rate_schedule}" follows '
                "its length: start anew."
            )
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
        cold, steps = np.min(self.posed(problem).learning_rate(self.rates)), problem.steps_per_epoch
        epochs = self.run_cycle_epochs, self.warmup_epochs, self.settle_epochs
        return Clock(self.run_epochs, steps, *epochs, float(cold))

    @property
    def rates(self) -> Any:
        """Learning rates per mean loss, as they are given or the method's."""
        return self.base.learning_rate if self.learning_rate is None else self.learning_rate

    def cold_part(self, problem: Supervised) -> ColdPart | None:
        """Return the rungs that are averaged, unless that is the coldest alone and at once."""
        if self.average_rungs == 1 and not self.settle_epochs:
            return None
        return ColdPart(self.average_rungs, round(self.settle_epochs * problem.steps_per_epoch))

    def posed(self, problem: Supervised) -> Supervised:
        """Return the problem as the method samples it, with its likelihood tempered or not."""
        return tempered(problem) if self.base.tempers_likelihood else problem

    def kernel_of(self, problem: Supervised) -> Kernel:
        clip = None if self.clip_norm is None else self.clip_norm * self.posed(problem).scale
        return self.parts.build_kernel(self.momentum, self.clock(problem), clip)

    def sampler(self, problem: Supervised) -> Options:
        """Return the options of the sampler, in the unit of the energies that it sees."""
        problem = self.posed(problem)
        method, steps, scale = self.parts, problem.steps_per_epoch, problem.scale
        restart = "restart" if method.has_ladder else "stop"
        return Options(
            num_steps=self.run_epochs * steps,
            num_replicas=1 if method.is_single else self.num_replicas,
            learning_rate=problem.learning_rate(self.rates),
            temperature=self._temperature(problem),
            target_swap_rate=self.target_swap_rate,
            window=self.window,
            schedule=method.schedule,
            rule=method.rule,
            kernel=self.kernel_of(problem),
            gain=self.gain,
            buffer=_scaled(self.buffer, scale),
            buffer_gain=_scaled(self.buffer_gain, scale),
            adapt=self._adapt(steps),
            energy_at="moved" if self.uses_temperature else "before",
            on_swap=self.on_swap,
            burn_in=steps - 1,  # draws are taken at the end of an epoch
            thin=steps,
            seed=self.seed,
            keep_draws=self.keep_networks,
            history_every=steps,
            on_nonfinite=restart if self.on_nonfinite is None else self.on_nonfinite,
            checkpoint_every=self.checkpoint_every,
            keep_checkpoints=self.keep_checkpoints,
            swap_every=method.swap_every,
            swap_energy=self.swap_energy,
        )

    def _adapt(self, steps_per_epoch: int) -> Any:
        """Rates and buffer adapt all the time, temperatures that are compared in the burn-in."""
        if not self.base.has_ladder or self.adapt is False:
            return False
        return self.burn_in * steps_per_epoch if self.uses_temperature else True

    def _temperature(self, problem: Supervised) -> Any:
        """On the coldest rung of a ladder; on every rung of replicas that do not exchange."""
        method = self.parts
        value = method.temperature if self.temperature is None else self.temperature
        if isinstance(value, str):
            return value
        temperature = problem.temperature(value)
        if temperature.ndim:
            return temperature
        alone = method.has_ladder or method.is_single
        return float(temperature) if alone else np.full(self.num_replicas, float(temperature))


def _stored_method(data: dict[str, Any]) -> Method:
    try:
        return Method(**data)
    except (TypeError, ValueError):
        raise ValueError(
            "The option method of the run is none of replicax: its run.json is damaged."
        ) from None


def _added(kind: type) -> dict[str, Any]:
    """Return options that folders of this format may lack, as they were made before these."""
    names = [entry.name for entry in fields(kind)]
    first = names.index("average_rungs")
    return {entry.name: entry.default for entry in fields(kind)[first:]}


def _unchecked(kind: type, values: dict[str, Any]) -> Any:
    """Return a dataclass of recorded values, which were checked when they were written."""
    made = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _scaled(gain: Any, scale: float) -> Any:
    """Return a buffer or its gain in the unit of the energies."""
    if isinstance(gain, Gain):
        return replace(gain, scale=gain.scale * scale, cap=gain.cap * scale)
    if isinstance(gain, ConstantGain):
        return ConstantGain(gain.value * scale)
    if callable(gain):
        return lambda step: scale * gain(step)  # type: ignore[operator]
    return scale * gain if is_number(gain) else gain  # "auto", or what the settings refuse
