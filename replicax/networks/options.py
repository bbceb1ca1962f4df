"""The options of `rx.train`: defaults, checks, and conversion to options of the sampler.

Learning rates, buffer and gains refer to the mean loss, temperatures to the posterior.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.swap import Rule
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import at_least, check_flag, check_function, check_number, choose, is_number
from replicax.networks import option_checks
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
)


@dataclass(frozen=True)
class TrainOptions:
    """All options of a training except the problem and the start networks; see `rx.train`."""

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
                f"(epochs={self.epochs}), so no network would be averaged: write a smaller "
                "burn_in, or more epochs."
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
        return from_plain(cls, data, given, call="rx.resume(run_dir, problem, {}=...)")

    @classmethod
    def recorded(cls, data: dict[str, Any]) -> "TrainOptions":
        """Return the options written by `to_json`, for reading; objects are not restored."""
        method = data["method"]
        if isinstance(method, dict):
            method = _unchecked(Method, method)
        return _unchecked(cls, {**_added(cls), **data, "method": method})

    @property
    def method_name(self) -> str:
        return self.base.name

    @property
    def base(self) -> Method:
        """The chosen method."""
        return self.method if isinstance(self.method, Method) else METHODS[self.method]

    @property
    def parts(self) -> Method:
        """The method, with the parts that options replace."""
        changes = {name: getattr(self, name) for name in _CHANGES}
        return replace(self.base, **{name: x for name, x in changes.items() if x is not None})

    @property
    def uses_temperature(self) -> bool:
        """Whether the rule compares the temperatures of the rungs."""
        rule = self.parts.rule
        if isinstance(rule, Rule):
            return self.base.has_ladder and rule.uses_temperature
        return self.base.has_ladder and str(rule).lower() != "deterministic"

    @property
    def run_epochs(self) -> int:
        """Epochs of each network of the run; a single network takes those of all replicas."""
        return self.epochs * self.num_replicas if self.base.is_single else self.epochs

    @property
    def run_cycle_epochs(self) -> int:
        """Epochs of a cycle, at most those of the run."""
        return min(self.cycle_epochs, self.run_epochs)

    @property
    def pick_every(self) -> int:
        """Epochs between averages of all networks, at most those of the run."""
        return min(_PICK_EVERY, self.run_epochs)

    @property
    def test_every(self) -> int:
        """Epochs between evaluations."""
        return min(self.base.test_every, self.run_epochs)

    def check_extends(self, epochs: int) -> None:
        """Raise unless a run of these options begins like one of `epochs` epochs.

        Options that depend on the length of a run cannot change after it has begun.
        """
        if self.epochs == epochs:
            return
        if self.epochs < epochs:
            raise ValueError(f"epochs is {self.epochs}, but the run was made for {epochs}.")
        shorter, method = replace(self, epochs=epochs), self.parts
        if method.follows_length:
            raise ValueError(
                f'The learning rate of a run with rate_schedule="{method.rate_schedule}" depends '
                "on its length: start a new run."
            )
        if method.is_cyclical and self.run_cycle_epochs != shorter.run_cycle_epochs:
            raise ValueError(
                f"The run was made for {shorter.run_epochs} epochs of its network, less than a "
                f"cycle of {self.cycle_epochs}, and its only cycle was shortened to that length: "
                f"start a new run, or train with cycle_epochs={shorter.run_epochs} to add cycles "
                "later."
            )
        if method.picks_all and self.pick_every != shorter.pick_every:
            raise ValueError(
                f"The networks of a run are averaged every {_PICK_EVERY} epochs, or at the end of "
                f"a shorter run, such as this one of {epochs}: start a new run, with at least "
                f"{_PICK_EVERY} epochs."
            )

    def clock(self, problem: Supervised) -> Clock:
        return Clock(
            self.run_epochs, problem.steps_per_epoch, self.run_cycle_epochs, self.warmup_epochs
        )

    @property
    def rates(self) -> Any:
        """Learning rates relative to the mean loss, as given or the method's."""
        return self.base.learning_rate if self.learning_rate is None else self.learning_rate

    def posed(self, problem: Supervised) -> Supervised:
        """Return the problem that the method samples, with a tempered likelihood if it uses one."""
        return tempered(problem) if self.base.tempers_likelihood else problem

    def kernel_of(self, problem: Supervised) -> Kernel:
        clip = None if self.clip_norm is None else self.clip_norm * self.posed(problem).scale
        return self.parts.build_kernel(self.momentum, self.clock(problem), clip)

    def sampler(self, problem: Supervised) -> Options:
        """Return the options of the sampler, in the unit of its energies."""
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
        """Rates and buffer adapt throughout the run, temperatures of a tempered rule during the
        burn-in."""
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
            "The stored method of the run is not a method of replicax: its run.json is damaged."
        ) from None


def _added(kind: type) -> dict[str, Any]:
    """Return options that older folders of this format lack, with their defaults."""
    names = [entry.name for entry in fields(kind)]
    first = names.index("keep_averaged")
    return {entry.name: entry.default for entry in fields(kind)[first:]}


def _unchecked(kind: type, values: dict[str, Any]) -> Any:
    """Return a dataclass of recorded values without checks: they were checked when written."""
    instance = object.__new__(kind)
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    return instance


def _scaled(gain: Any, scale: float) -> Any:
    """Return a buffer or its gain in the unit of the energies."""
    if isinstance(gain, Gain):
        return replace(gain, scale=gain.scale * scale, cap=gain.cap * scale)
    if isinstance(gain, ConstantGain):
        return ConstantGain(gain.value * scale)
    if callable(gain):
        return lambda step: scale * gain(step)  # type: ignore[operator]
    return scale * gain if is_number(gain) else gain  # "auto", or what the settings refuse
