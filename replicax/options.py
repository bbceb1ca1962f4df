"""What users write in `sample(...)`, understood and checked; as plain data for a run folder."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax import kernels, schedule, swap
from replicax.errors import choose
from replicax.kernels import Kernel
from replicax.ladder import ConstantGain, Gain, Ladder, Tuning, geometric
from replicax.schedule import Schedule
from replicax.swap import Rule
from replicax.theory import optimal_window

_MEASURE_STEPS = 100  # steps that measure the unit of energy for buffer="auto"
_TUNING_WINDOWS = 10  # the least in which lambda_W may be tuned
_SCHEDULE_NAMES = ("deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none")
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
    burn_in: int
    thin: int
    seed: int
    draw_rungs: tuple[int, ...]
    history_every: int | None
    track_best: bool | None
    on_nonfinite: str
    chunk_steps: int | None
    checkpoint_every: int | None

    def __post_init__(self) -> None:
        for name in ("num_steps", "num_chains", "thin"):
            _at_least(name, getattr(self, name), 1)
        _at_least("burn_in", self.burn_in, 0)
        for name in ("window", "history_every", "chunk_steps", "checkpoint_every"):
            if getattr(self, name) is not None:
                _at_least(name, getattr(self, name), 1)
        _at_least("seed", self.seed, -(2**63))
        if self.num_replicas is not None:
            _at_least("num_replicas", self.num_replicas, -(2**63))
        if not _is_number(self.target_swap_rate) or not 0 < self.target_swap_rate < 1:
            raise ValueError(
                f"target_swap_rate is {self.target_swap_rate!r}; it is the rate at which the rule "
                "says yes and must lie in (0, 1), such as 0.4."
            )
        choose("energy_at", self.energy_at, ("moved", "before"))
        choose("on_nonfinite", self.on_nonfinite, ("stop", "ignore"))

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


def _is_number(value: Any) -> bool:
    real = isinstance(value, int | float | np.integer | np.floating)
    return real and not isinstance(value, bool) and bool(np.isfinite(value))


def _at_least(name: str, value: Any, lowest: int) -> None:
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


def resolve_num_replicas(options: Options) -> int:
    """As given, or as many as there are learning rates or temperatures."""
    lengths = {
        name: np.size(value)
        for name, value in (
            ("learning_rate", options.learning_rate),
            ("temperature", options.temperature),
        )
        if np.size(value) > 2
    }
    if options.num_replicas is not None:
        return int(options.num_replicas)
    if not lengths:
        raise ValueError(
            "num_replicas is not given; write num_replicas=16, say, or one learning rate per rung."
        )
    return next(iter(lengths.values()))


def resolve_schedule(options: Options, num_replicas: int) -> Schedule:
    """A schedule from its name or itself; DEO* takes its window from Theorem 1."""
    given, window = options.schedule, options.window
    if isinstance(given, Schedule):
        if window is not None and window != given.window:
            raise ValueError(
                f"window is {window} but the schedule has window {given.window}; say it once."
            )
        given.check(num_replicas)
        return given
    name = str(given).lower().replace("-", "_").replace("*", "_star")
    choose("schedule", name, _SCHEDULE_NAMES)
    windowed = {"deo_star": "at_most_one", "exactly_one": "exactly_one", "no_gate": "no_gate"}
    if name in windowed:
        if window is None and num_replicas >= 2:
            window = optimal_window(num_replicas, options.target_swap_rate)
        made = schedule.windowed_deo(window or 1, windowed[name])
    else:
        if window not in (None, 1):
            raise ValueError(
                f'window is {window}, but schedule "{name}" has none; write schedule="deo_star" '
                "for the windowed scheme."
            )
        made = getattr(schedule, name)()
    made.check(num_replicas)
    return made


def resolve_rule(options: Options, num_replicas: int, made: Schedule) -> Rule:
    rule = options.rule
    if not isinstance(rule, Rule):
        name = choose("rule", str(rule).lower().replace("-", "_"), swap.RULES)
        if name == "window_corrected":
            raise ValueError(
                'rule="window_corrected" needs its lambda_W: write '
                'rule=rx.swap.window_corrected(window_correction=...), a number or "auto".'
            )
        rule = getattr(swap, name)()
    std = rule.energy_noise_std
    per_pair = not rule.estimates_noise and np.size(std) > 1
    if per_pair and (np.size(std) != num_replicas - 1 or made.name == "ape"):
        raise ValueError(
            f"energy_noise_std has {np.size(std)} values; {num_replicas} replicas have "
            f"{num_replicas - 1} adjacent pairs (and ape meets others too): give one number."
        )
    return _resolve_correction(rule, options, made) if rule.tunes_correction else rule


def _resolve_correction(rule: Rule, options: Options, made: Schedule) -> Rule:
    if made.window == 1 or made.swaps == "no_gate":  # no gate that stays closed: no bias
        return replace(rule, window_correction=0.0, reference_steps=None, tuning_steps=None)
    if made.forces:
        raise ValueError(
            'window_correction="auto" compares with windows of one step, in which "exactly_one" '
            'swaps at every step; write schedule="deo_star", or give a number.'
        )
    if rule.tuning_steps < _TUNING_WINDOWS * made.window:
        raise ValueError(
            f'window_correction="auto" tunes for {rule.tuning_steps} steps (a third of num_steps '
            f"unless tuning_steps is given); windows of {made.window} steps need at least "
            f"{_TUNING_WINDOWS} of them, and hundreds to be precise."
        )
    frozen = rule.reference_steps + rule.tuning_steps
    if not frozen <= options.burn_in < options.num_steps:
        raise ValueError(
            f'window_correction="auto" measures and tunes until step {frozen}, and draws must '
            f"begin there or later: write burn_in={frozen} and num_steps above it "
            f"(they are {options.burn_in} and {options.num_steps})."
        )
    return rule


def resolve_kernel(kernel: Any) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if hasattr(kernel, "init") and hasattr(kernel, "update"):
        return kernels.from_optax(kernel)
    return kernels.NAMED[choose("kernel", kernel, kernels.NAMED)]()


def resolve_ladder(options: Options, num_replicas: int, rule: Rule, adapts: bool) -> Ladder:
    rates = _per_rung("learning_rate", options.learning_rate, num_replicas)
    if not np.all(np.isfinite(rates)) or np.any(rates <= 0):
        raise ValueError(f"learning_rate is {options.learning_rate}; rates must be positive.")
    if np.any(np.diff(rates) < 0):
        raise ValueError(
            f"learning_rate is {options.learning_rate}; rates must not decrease: the first belongs "
            "to the coldest rung, the last to the hottest."
        )
    ties = np.any(np.diff(rates) == 0)
    if adapts and not rule.uses_temperature and ties and np.ndim(options.learning_rate) > 0:
        raise ValueError(
            f"learning_rate is {options.learning_rate}; adapted rates must be strictly "
            "increasing. Change them, or write adapt=False."
        )
    return Ladder(rates, _temperatures(options.temperature, num_replicas, rule))


def _per_rung(name: str, value: Any, num_replicas: int) -> np.ndarray:
    try:
        values = np.asarray(value, float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is {value!r}; give one number, a pair (cold, hot), or one per rung."
        ) from None
    if values.ndim == 0:
        return np.full(num_replicas, float(values))
    if values.shape == (num_replicas,):
        return values
    if values.shape == (2,):
        if np.any(values <= 0):
            raise ValueError(f"{name} is {value}; the two ends of a ladder must be positive.")
        return geometric(values[0], values[1], num_replicas)
    raise ValueError(
        f"{name} has shape {values.shape}; with {num_replicas} replicas give one number, a pair "
        f"(cold, hot), or {num_replicas} values."
    )


def _temperatures(value: Any, num_replicas: int, rule: Rule) -> np.ndarray:
    temperatures = _per_rung("temperature", value, num_replicas)
    if np.ndim(value) == 0:  # the cold rung's; SGD above
        temperatures[1:] = 0
    if not np.all(np.isfinite(temperatures)) or np.any(temperatures < 0):
        raise ValueError(f"temperature is {value}; temperatures must be at least 0.")
    increasing = np.all(temperatures > 0) and np.all(np.diff(temperatures) > 0)
    if rule.uses_temperature and not increasing:
        raise ValueError(
            f'The rule "{rule.name}" compares temperatures, but temperature is {value}: give '
            "strictly increasing positive ones, a pair (cold, hot) or one per rung."
        )
    return temperatures


def resolve_tuning(options: Options, rule: Rule, num_replicas: int) -> Tuning:
    adapts, until = adapts_until(options, rule)
    fixed = rule.uses_temperature or not adapts
    buffer_auto = isinstance(options.buffer, str)
    gain_auto = isinstance(options.buffer_gain, str)
    for name, auto in (("buffer", buffer_auto), ("buffer_gain", gain_auto)):
        if auto:
            choose(name, getattr(options, name), ("auto",))
    if not buffer_auto and not _is_number(options.buffer):
        raise ValueError(f'buffer is {options.buffer!r}; give a finite number or "auto".')
    measures_buffer = buffer_auto and not rule.uses_temperature
    measures = measures_buffer or (gain_auto and not fixed)
    ladder_is_scalar = np.ndim(options.learning_rate) == 0
    adapts_rungs = None
    if adapts and num_replicas > 2:
        adapts_rungs = "temperature" if rule.uses_temperature else "learning_rate"
        if adapts_rungs == "learning_rate" and ladder_is_scalar:
            adapts_rungs = None
    return Tuning(
        target_swap_rate=options.target_swap_rate,
        gain=_gain("gain", options.gain),
        buffer_gain=None if gain_auto else _gain("buffer_gain", options.buffer_gain),
        adapts=adapts_rungs,
        adapts_buffer=not fixed,
        until=until,
        measure_steps=_MEASURE_STEPS if measures else 0,
        measure_buffer=measures_buffer,
    )


def adapts_until(options: Options, rule: Rule) -> tuple[bool, int | None]:
    """Whether anything adapts, and the step from which it is frozen."""
    adapt = options.adapt
    if adapt is None:  # temperatures are the user's own unless adaptation is asked for
        return not rule.uses_temperature, None
    if isinstance(adapt, bool):
        return adapt, None
    _at_least("adapt", adapt, 0)
    return adapt > 0, int(adapt)


def _gain(name: str, gain: Any) -> Callable:
    if callable(gain):
        return gain
    if not _is_number(gain) or gain < 0:
        raise ValueError(
            f"{name} is {gain!r}; give a number, a function of the step, or rx.Gain(...)."
        )
    return ConstantGain(float(gain))


def resolve_draw_rungs(options: Options, num_replicas: int) -> tuple[int, ...]:
    rungs = tuple(range(num_replicas)) if options.draw_rungs == ("all",) else options.draw_rungs
    if not rungs or rungs[0] != 0 or len(set(rungs)) < len(rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; it must start with 0, the target, and name each rung once."
        )
    if any(not 0 <= rung < num_replicas for rung in rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; {num_replicas} replicas have rungs 0 to {num_replicas - 1}."
        )
    return rungs


def device_ladder(ladder: Ladder, dtype: Any) -> Ladder:
    return Ladder(*(jnp.asarray(values, dtype) for values in ladder))
