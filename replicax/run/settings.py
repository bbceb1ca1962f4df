"""From options to the parts of the algorithm: schedule, rule, kernel, ladder and tuning."""

import math
from typing import Any

import numpy as np

from replicax.algorithm import kernels, swap
from replicax.algorithm import schedule as schedules
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder, geometric, per_rung, temperatures
from replicax.algorithm.rounds import BarrierTuning, StepSizeTuning
from replicax.algorithm.schedule import AllPairs, Schedule
from replicax.algorithm.swap import Rule, WindowCorrected
from replicax.algorithm.tuning import Tuning, as_gain
from replicax.algorithm.window_correction import check_stages
from replicax.errors import at_least, choose, is_number, show
from replicax.run.options import AUTO, Options
from replicax.theory import optimal_window

_MEASURE_STEPS = 100  # steps that measure the unit of energy for buffer="auto"
_LONGEST_WINDOW = 2**31 - 1  # as long as any run
_SCHEDULE_NAMES = ("deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none")


def num_replicas(options: Options) -> int:
    """Return the number of replicas, by default one per learning rate or temperature."""
    if options.num_replicas is not None:
        return int(options.num_replicas)
    for value in (options.learning_rate, options.temperature):
        if np.size(value) > 2:
            return np.size(value)
    raise ValueError(
        "num_replicas is not given; write num_replicas=16, say, or one learning rate per rung."
    )


def schedule(options: Options, num_replicas: int) -> Schedule:
    """Return the schedule, from its name or as given; DEO* takes its window from Theorem 1."""
    chosen, window = options.schedule, options.window
    if isinstance(chosen, Schedule):
        if window is not None and window != chosen.window:
            raise ValueError(
                f"window is {window} but the schedule has window {chosen.window}; say it once."
            )
        _check_window(chosen.window, options)
        chosen.check(num_replicas)
        return chosen
    name = choose("schedule", _plain_name(chosen), _SCHEDULE_NAMES)
    _check_window(window or 1, options)
    windowed = {"deo_star": "at_most_one", "exactly_one": "exactly_one", "no_gate": "no_gate"}
    if name in windowed:
        if window is None and num_replicas >= 2:
            window = optimal_window(num_replicas, options.target_swap_rate)
            window = min(window, _LONGEST_WINDOW)
        resolved = schedules.windowed_deo(window or 1, windowed[name])
    else:
        if window not in (None, 1):
            raise ValueError(
                f'window is {window}, but schedule "{name}" has none; write schedule="deo_star" '
                "for the windowed scheme."
            )
        resolved = getattr(schedules, name)()
    resolved.check(num_replicas)
    return resolved


def _plain_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.lower().replace("-", "_").replace("*", "_star")


def _check_window(window: int, options: Options) -> None:
    """Raise if a window that the user chose does not fit into the run."""
    if window > options.num_steps:
        raise ValueError(
            f"window is {window}, and the run has {options.num_steps} steps: not one window would "
            "end. Write a shorter window, or leave it out."
        )


def rule(options: Options, num_replicas: int, schedule: Schedule) -> Rule:
    """Return the rule, from its name or as given, checked against ladder and schedule."""
    rule = options.rule
    if not isinstance(rule, Rule):
        name = choose("rule", _plain_name(rule), swap.RULES)
        if name == "window_corrected":
            raise ValueError(
                'rule="window_corrected" needs its lambda_W: write '
                'rule=rx.swap.window_corrected(window_correction=...), a number or "auto".'
            )
        rule = getattr(swap, name)()
    std = rule.energy_noise_std
    per_pair = not rule.estimates_noise and np.size(std) > 1
    if per_pair and (np.size(std) != num_replicas - 1 or isinstance(schedule, AllPairs)):
        raise ValueError(
            f"energy_noise_std has {np.size(std)} values; {num_replicas} replicas have "
            f"{num_replicas - 1} adjacent pairs (and ape meets others too): give one number."
        )
    if isinstance(rule, WindowCorrected) and rule.tunes_correction:
        return check_stages(rule, schedule, options.burn_in, options.num_steps)
    return rule


def kernel(options: Options, rule: Rule) -> Kernel:
    """Return the kernel, from its name or an optax transform, or as given.

    Under rules that use temperatures a preconditioner is frozen after half of the burn-in.
    """
    kernel = options.kernel
    if hasattr(kernel, "init") and hasattr(kernel, "update"):
        kernel = kernels.from_optax(kernel)
    elif not isinstance(kernel, Kernel):
        kernel = kernels.NAMED[choose("kernel", kernel, kernels.NAMED)]()
    if not rule.uses_temperature or kernel.spec is None:
        return kernel
    frozen = _freeze(kernel.spec, options.burn_in, rule)
    return kernel if frozen == kernel.spec else kernels.from_spec(frozen)


def _freeze(spec: dict, burn_in: int, rule: Rule) -> dict:
    """Return the spec of a kernel whose preconditioner, if it has one, is frozen in the burn-in."""
    if "kernel" in spec:
        return {**spec, "kernel": _freeze(spec["kernel"], burn_in, rule)}
    if spec["name"] != "preconditioned":
        return spec
    freeze_after = spec.get("freeze_after")
    if freeze_after is not None:
        if freeze_after > burn_in:
            raise ValueError(
                f"freeze_after is {freeze_after} and burn_in is {burn_in}, but no draw may be "
                f"taken while the preconditioner adapts: write burn_in={2 * freeze_after}, say."
            )
        return spec
    averaged = math.ceil(round(1 / (1 - spec["decay"]), 6))  # steps that nu averages over
    if burn_in < 2 * averaged:
        raise ValueError(
            f'burn_in is {burn_in}. Under the rule "{rule.name}" the preconditioner adapts in the '
            f"first half of the burn-in and is frozen then; it averages over {averaged} steps: "
            f"write burn_in={2 * averaged} or more."
        )
    return {**spec, "freeze_after": burn_in // 2}


def ladder(
    options: Options,
    num_replicas: int,
    rule: Rule,
    adapts: bool,
    first_rate: float = 0.01,
    hottest: float = 100.0,
) -> Ladder:
    """Return the ladder that the run starts with; automatic rates begin at `first_rate`, and an
    automatic ladder may reach the temperature `hottest`."""
    if _is_auto(options.learning_rate):
        rates = np.full(num_replicas, first_rate)
    else:
        rates = per_rung("learning_rate", options.learning_rate, num_replicas)
    if not np.all(np.isfinite(rates)) or np.any(rates <= 0):
        raise ValueError(f"learning_rate is {options.learning_rate}; rates must be positive.")
    if not rule.uses_temperature and np.any(np.diff(rates) < 0):
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
    if not _is_auto(options.temperature):
        return Ladder(rates, temperatures(options.temperature, num_replicas, rule))
    if not np.isinf(hottest) or num_replicas == 2:
        return Ladder(rates, geometric(1.0, min(hottest, 100.0), num_replicas))
    return Ladder(rates, per_rung("temperature", (1.0, np.inf), num_replicas))


def _is_auto(value: Any) -> bool:
    """Return whether a choice is left to the run."""
    return isinstance(value, str) and value == AUTO


def tuning(
    options: Options,
    num_replicas: int,
    rule: Rule,
    schedule: Schedule,
    kernel: Kernel,
    hottest: float = 100.0,
) -> Tuning:
    """Return which parts of the ladder adapt, and how."""
    adapts, until = adapts_until(options, rule, schedule)
    fixed = rule.uses_temperature or not adapts
    buffer_auto = _is_left_open("buffer", options.buffer)
    gain_auto = _is_left_open("buffer_gain", options.buffer_gain)
    if not buffer_auto and not is_number(options.buffer):
        raise ValueError(f'buffer is {show(options.buffer)}; give a finite number or "auto".')
    measures_buffer = buffer_auto and not rule.uses_temperature
    measures = measures_buffer or (gain_auto and not fixed)
    return Tuning(
        target_swap_rate=options.target_swap_rate,
        gain=as_gain("gain", options.gain),
        buffer_gain=None if gain_auto else as_gain("buffer_gain", options.buffer_gain),
        adapts=_adapted_rungs(options, num_replicas, rule) if adapts else None,
        adapts_buffer=not fixed,
        until=until,
        measure_steps=_MEASURE_STEPS if measures else 0,
        measure_buffer=measures_buffer,
        barrier=_barrier(options, until, hottest),
        step_sizes=_step_sizes(options, kernel),
    )


def _is_left_open(name: str, value: Any) -> bool:
    """Return whether a choice is "auto"; raise if it is any other word."""
    return isinstance(value, str) and choose(name, value, (AUTO,)) == AUTO


def _adapted_rungs(options: Options, num_replicas: int, rule: Rule) -> str | None:
    """Return which hyper-parameter of the rungs adapts, None if only fixed ends exist."""
    free_end = _is_auto(options.temperature) and num_replicas == 2
    if num_replicas <= 2 and not free_end:
        return None
    if rule.uses_temperature:
        return "temperature"
    return "learning_rate" if np.ndim(options.learning_rate) > 0 else None


def _barrier(options: Options, until: int | None, hottest: float) -> BarrierTuning:
    if until is None:
        return BarrierTuning()
    ends = _round_ends(until)[-4:]
    if not _is_auto(options.temperature):
        return BarrierTuning(ends, until // 16)
    return BarrierTuning(ends, until // 16, hottest, free_until=until // 2 + 1)


def _step_sizes(options: Options, kernel: Kernel) -> StepSizeTuning | None:
    if not _is_auto(options.learning_rate):
        return None
    if not kernel.observes:
        raise ValueError(
            'learning_rate="auto" needs a kernel that measures its own error: kernel="hmc" or '
            '"mala" for exact energies, "langevin" for mini-batches; or give learning_rate.'
        )
    until = max(options.burn_in, 1)
    return StepSizeTuning(_round_ends(until), until)


def _round_ends(until: int) -> tuple[int, ...]:
    """Return where rounds of tuning end: each twice as long as the one before, and the rest."""
    ends = {round(until * share) for share in (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.8)}
    return tuple(sorted(end for end in ends if end >= 1))


def adapts_until(options: Options, rule: Rule, schedule: Schedule) -> tuple[bool, int | None]:
    """Return whether anything adapts, and the step from which it is frozen."""
    adapt = options.adapt
    if adapt is None:  # temperatures are the user's own unless adaptation is asked for
        return schedule.exchanges and not rule.uses_temperature, None
    if isinstance(adapt, bool):  # rules that claim a target draw from a ladder that stands still
        freezes = adapt and rule.uses_temperature and options.burn_in > 0
        return adapt, options.burn_in if freezes else None
    at_least("adapt", adapt, 0)
    return adapt > 0, int(adapt)


def draw_rungs(options: Options, num_replicas: int) -> tuple[int, ...]:
    """Return the rungs whose draws are kept, the target first."""
    chosen = options.draw_rungs
    rungs = tuple(range(num_replicas) if isinstance(chosen, str) else chosen)
    if not rungs or rungs[0] != 0 or len(set(rungs)) < len(rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; it must start with 0, the target, and name each rung once."
        )
    if any(not 0 <= rung < num_replicas for rung in rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; {num_replicas} replicas have rungs 0 to {num_replicas - 1}."
        )
    return rungs
