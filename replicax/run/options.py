"""What users write in `sample(...)`, checked, and as plain data for a run folder."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import jax
import numpy as np

from replicax.algorithm import kernels
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.schedule import Schedule
from replicax.algorithm.swap import Rule
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import choose

_CUSTOM = "custom"  # stands in a run folder for what only the user can give again


@dataclass(frozen=True)
class Options:
    """Every choice of a run but the target, the starts and the batches."""

    num_steps: int
    num_replicas: int | None
    num_chains: int
    learning_rate: Any
    temperature: Any
    target_swap_rate: float
    window: int | None
    schedule: Any
    rule: Any
    kernel: Any
    gain: Any
    buffer: Any
    buffer_gain: Any
    adapt: Any
    energy_at: str
    on_swap: str
    burn_in: int
    thin: int
    seed: int
    draw_rungs: tuple[int, ...]
    keep_draws: bool
    history_every: int | None
    track_best: bool | None
    on_nonfinite: str
    chunk_steps: int | None
    checkpoint_every: int | None

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_chains", "thin"):
            at_least(name, getattr(self, name), 1)
        at_least("burn_in", self.burn_in, 0)
        for name in ("window", "history_every", "chunk_steps", "checkpoint_every"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, -(2**63))
        if self.num_replicas is not None:
            at_least("num_replicas", self.num_replicas, -(2**63))
        if not is_number(self.target_swap_rate) or not 0 < self.target_swap_rate < 1:
            raise ValueError(
                f"target_swap_rate is {self.target_swap_rate!r}; it is the rate at which the rule "
                "says yes and must lie in (0, 1), such as 0.4."
            )
        choose("energy_at", self.energy_at, ("moved", "before"))
        choose("on_swap", self.on_swap, ("keep", "reset"))
        choose("on_nonfinite", self.on_nonfinite, ("stop", "ignore", "restart"))

    def with_history(self) -> "Options":
        """About 500 points of history, unless the user said how many steps lie between two.

        Never less than 100 steps by default: blocks of chance end at each point.
        """
        every = self.history_every or max(100, self.num_steps // 500)
        return replace(self, history_every=every)

    def with_stages(self) -> "Options":
        """Lengths for the stages of a window correction that tunes itself: a third of the run."""
        rule, third = self.rule, self.num_steps // 3
        if not isinstance(rule, Rule) or not rule.tunes_correction:
            return self
        reference, tuning = rule.reference_steps or third, rule.tuning_steps or third
        return replace(self, rule=replace(rule, reference_steps=reference, tuning_steps=tuning))

    def to_json(self) -> dict[str, Any]:
        """Plain data; what cannot be written down is marked, to be given again on resume."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any], given: dict[str, Any]) -> "Options":
        """Options of a run folder; `given` replaces what was marked as the user's own."""
        values = {}
        for field in fields(cls):
            value = given.get(field.name)
            if value is None:
                value = _from_plain(data[field.name])
            if value == _CUSTOM:
                raise ValueError(
                    f"This run was started with a {field.name} of your own, which a folder cannot "
                    f"hold; give it again: rx.resume(run_dir, target, {field.name}=...)."
                )
            values[field.name] = value
        values["draw_rungs"] = tuple(values["draw_rungs"])
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": value.spec} if value.spec is not None else _CUSTOM
    if isinstance(value, Schedule | Rule | Gain | ConstantGain):
        return {type(value).__name__: {k: _plain(v) for k, v in asdict(value).items()}}
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return np.asarray(value).tolist()
    if isinstance(value, tuple | list):
        return [_plain(x) for x in value]
    return value if value is None or isinstance(value, bool | int | float | str) else _CUSTOM


def _from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        ((name, content),) = value.items()
        if name == "kernel":
            return kernels.from_spec(content)
        makers = {c.__name__: c for c in (Schedule, Rule, Gain, ConstantGain)}
        return makers[name](**content)
    return value


def is_number(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and bool(np.isfinite(value))


def at_least(name: str, value: Any, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < lowest:
        bound = f" of at least {lowest}" if lowest >= 0 else ""
        raise ValueError(f"{name} is {value!r}; it must be a whole number{bound}.")


def as_rungs(draw_rungs: Any) -> tuple:
    """Rungs to keep draws of, as given by the user: a list of them, or "all"."""
    if draw_rungs == "all":
        return ("all",)
    if not isinstance(draw_rungs, tuple | list | range):
        raise ValueError(f'draw_rungs is {draw_rungs!r}; give a list such as (0, 3), or "all".')
    return tuple(draw_rungs)
