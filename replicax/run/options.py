"""The options of `rx.sample`: their defaults and checks, and their form in a run folder."""

import re
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any

import jax
import numpy as np

from replicax.algorithm import kernels, schedule, swap
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import at_least, check_flag, check_function, choose, is_number, is_whole, show
from replicax.run.inputs import AUTO, PAPER

_CHECKPOINT_SECONDS = 30.0
_MOST_STEPS = 2**31 - 1  # steps are counted in 32 bits
_SEEDS = -(2**31), 2**32 - 1  # others would equal one of these: JAX takes the last 32 bits
_NUMERIC = "iufV"  # kinds of NumPy's types; V: bfloat16 and its kin
CUSTOM = "custom"  # stands in a run folder for an object that only the user can give again
_CLASSES = {
    made.__name__: made
    for made in (
        schedule.WindowedDEO,
        schedule.StochasticEvenOdd,
        schedule.Adjacent,
        schedule.AllPairs,
        schedule.NoExchange,
        swap.Deterministic,
        swap.Metropolis,
        swap.BiasCorrected,
        swap.WindowCorrected,
        Gain,
        ConstantGain,
    )
}


@dataclass(frozen=True)
class Options:
    """Every choice of a run but the target, the start and the batches; see `rx.sample`."""

    num_steps: int
    learning_rate: Any = AUTO
    num_replicas: int | None = None
    num_chains: int = 1
    temperature: Any = None
    target_swap_rate: float = 0.4
    window: int | None = None
    schedule: Any = None
    rule: Any = None
    kernel: Any = None
    gain: Any = Gain()
    buffer: Any = "auto"
    buffer_gain: Any = "auto"
    adapt: Any = None
    energy_at: str = "moved"
    on_swap: str = "keep"
    burn_in: Any = None  # a whole number once filled in, as the next
    thin: Any = None
    seed: int = 0
    draw_rungs: Any = (0,)
    keep_draws: bool = True
    history_every: int | None = None
    track_best: bool | None = None
    on_nonfinite: Any = None
    chunk_steps: int | None = None
    checkpoint_every: int | str | None = None
    keep_checkpoints: int = 2
    swap_every: Any = None
    swap_energy: Any = None

    def __post_init__(self) -> None:
        defaults = dict(PAPER)
        named = isinstance(self.schedule, str) and self.schedule.lower() == "none"
        if named or isinstance(self.schedule, schedule.NoExchange):
            defaults["on_nonfinite"] = "stop"  # there is no ladder: replicas would become twins
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        at_least("num_steps", self.num_steps, 1, _MOST_STEPS)
        for name in ("num_chains", "thin", "swap_every", "keep_checkpoints"):
            at_least(name, getattr(self, name), 1)
        at_least("burn_in", self.burn_in, 0)
        checkpoint_interval(self.checkpoint_every)
        for name in ("window", "history_every", "chunk_steps"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, *_SEEDS)
        few = is_whole(self.num_replicas) and self.num_replicas < 1  # the schedule tells more
        if self.num_replicas is not None and not few:
            at_least("num_replicas", self.num_replicas, 1)
        for name in ("learning_rate", "temperature"):
            check_rungs(name, getattr(self, name))
        _check_leaves_draws(self)
        check_flag("keep_draws", self.keep_draws)
        check_flag("track_best", self.track_best, None)
        if not is_number(self.target_swap_rate) or not 0 < self.target_swap_rate < 1:
            raise ValueError(
                f"target_swap_rate is {show(self.target_swap_rate)}; it is the rate at which the "
                "rule says yes and must lie in (0, 1), such as 0.4."
            )
        rungs = self.draw_rungs
        is_all = isinstance(rungs, str) and rungs == "all"
        if not is_all and not (
            isinstance(rungs, tuple | list | range) and all(map(is_whole, rungs))
        ):
            raise ValueError(f'draw_rungs is {show(rungs)}; give a list such as (0, 3), or "all".')
        choose("energy_at", self.energy_at, ("moved", "before"))
        choose("on_swap", self.on_swap, ("keep", "reset"))
        choose("on_nonfinite", self.on_nonfinite, ("stop", "ignore", "restart"))
        if isinstance(self.swap_energy, str):
            choose("swap_energy", self.swap_energy, ("batch", "full"))
        else:
            at_least("swap_energy", self.swap_energy, 1)

    def complete(self) -> "Options":
        """Fill in what depends on the length of the run when it starts, and not when it resumes.

        About 500 points of history, at least 100 steps apart: draws of randomness end at each. The
        stages of a window correction that tunes itself take a third of the run each.
        """
        every = self.history_every or max(100, self.num_steps // 500)
        rule, third = self.rule, self.num_steps // 3
        if isinstance(rule, swap.WindowCorrected) and rule.tunes_correction:
            reference, tuning = rule.reference_steps or third, rule.tuning_steps or third
            rule = replace(rule, reference_steps=reference, tuning_steps=tuning)
        return replace(self, history_every=every, rule=rule)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; objects of the user's own are marked, to be given again on resume."""
        return to_plain(self)

    @classmethod
    def from_json(cls, data: dict[str, Any], given: dict[str, Any]) -> "Options":
        """Return the options of a run folder; entries of `given` that are not None replace them."""
        return from_plain(cls, data, given)


def to_plain(options: Any) -> dict[str, Any]:
    """Return the fields of a dataclass of options as plain data."""
    return {entry.name: _plain(getattr(options, entry.name)) for entry in fields(options)}


def from_plain(
    kind: Any,
    data: dict[str, Any],
    given: dict[str, Any],
    call: str = "rx.resume(run_dir, target, {}=...)",
) -> Any:
    """Return the dataclass of options that `to_plain` wrote; entries of `given` replace its own.

    `call` tells the user how to give an object of their own again.
    """
    values = {}
    for entry in fields(kind):
        value = given.get(entry.name)
        if value is None:
            value = _stored(entry.name, data)
        if isinstance(value, str) and value == CUSTOM:
            raise ValueError(
                f"This run was started with a {entry.name} of your own, which a folder cannot "
                f"hold; give it again: {call.format(entry.name)}."
            )
        values[entry.name] = value
    return kind(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Kernel):
        return {"kernel": value.spec} if value.spec is not None else CUSTOM
    if is_dataclass(value):
        name = type(value).__name__
        if _CLASSES.get(name) is not type(value):
            return CUSTOM
        return {name: {key: _plain(part) for key, part in asdict(value).items()}}  # type: ignore
    if isinstance(value, np.ndarray | jax.Array | np.generic):
        return np.asarray(value).tolist()
    if hasattr(value, "_fields"):  # a named tuple, such as a transform of optax
        return CUSTOM
    if isinstance(value, tuple | list | range):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else CUSTOM


def _stored(name: str, data: Any) -> Any:
    """Return the option `name` of a run folder; raise where it is missing or damaged."""
    if not isinstance(data, dict) or name not in data:
        raise ValueError(f"The options of the run lack {name}: its run.json is damaged.")
    value = data[name]
    if not isinstance(value, dict):
        return value
    try:
        ((kind, content),) = value.items()
        return kernels.from_spec(content) if kind == "kernel" else _CLASSES[kind](**content)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise ValueError(
            f"The option {name} of the run is none of replicax: its run.json is damaged."
        ) from None


def checkpoint_interval(every: Any) -> tuple[int | None, float]:
    """Return steps and seconds between two checkpoints; the seconds count where steps is None.

    >>> checkpoint_interval(500), checkpoint_interval("90s"), checkpoint_interval("2h")
    ((500, 0.0), (None, 90.0), (None, 7200.0))
    """
    if every is None:
        return None, _CHECKPOINT_SECONDS
    if isinstance(every, str):
        number, unit = every[:-1], every[-1:]
        seconds = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(unit, 0.0)
        if seconds and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
            return None, float(number) * seconds
    elif is_whole(every) and every >= 1:
        return int(every), 0.0
    raise ValueError(
        f'checkpoint_every is {show(every)}; give a number of steps, or a time such as "30s", '
        '"10m" or "2h".'
    )


def check_watchers(progress: Any, callback: Any) -> None:
    """Raise unless `progress` and `callback` can watch a run."""
    check_flag("progress", progress, None)
    several = isinstance(callback, list | tuple)
    for function in callback if several else [callback]:
        if several or function is not None:
            check_function("callback", function, "progress")


def check_rungs(name: str, value: Any) -> None:
    """Raise unless `value` is "auto", a number, or several: how many is the ladder's affair."""
    if isinstance(value, str) and value == AUTO:
        return
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        values = np.asarray(None)
    if values.dtype.kind not in _NUMERIC or values.dtype.names:
        raise ValueError(
            f"{name} is {show(value)}; give one number, a pair (cold, hot), one per rung, or "
            '"auto".'
        )


def _check_leaves_draws(options: Options) -> None:
    """Raise unless at least one draw is left after burn-in and thinning."""
    num_steps = options.num_steps
    if options.burn_in >= num_steps:
        raise ValueError(
            f"burn_in is {options.burn_in} and num_steps {num_steps}, which leaves no draw: write "
            "a burn_in below num_steps."
        )
    if options.thin > num_steps:
        raise ValueError(
            f"thin is {options.thin} and num_steps {num_steps}: draws would be further apart than "
            "the run is long. Write a smaller thin."
        )
