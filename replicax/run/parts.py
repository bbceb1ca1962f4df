"""From a method and its plan to the parts of the algorithm: schedule, rule, kernel, ladder and
tuning."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from replicax.algorithm import kernels, swap
from replicax.algorithm import schedule as schedules
from replicax.algorithm.jumps import Jumping
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder, as_kept, geometric, per_rung, temperatures
from replicax.algorithm.rounds import BarrierTuning, StepSizeTuning
from replicax.algorithm.schedule import AllPairs, Schedule
from replicax.algorithm.swap import Rule, WindowCorrected
from replicax.algorithm.tuning import Tuning, as_gain
from replicax.algorithm.window_correction import check_stages
from replicax.algorithm.wrapped_kernels import check_factors
from replicax.errors import choose, is_number, show
from replicax.run.methods import Method
from replicax.run.options import AUTO, Run
from replicax.run.plan import Clock, Plan
from replicax.run.task import Task, Unit
from replicax.theory import optimal_window

_MEASURE_STEPS = 100  # steps that measure the unit of energy for buffer="auto"
_LONGEST_WINDOW = 2**31 - 1  # as long as any run
_SCHEDULE_NAMES = ("deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none")


def num_replicas(run: Run, method: Method) -> int | None:
    """Return the number of replicas, by default one per learning rate or temperature; None if
    nothing tells it."""
    if run.num_replicas is not None:
        return int(run.num_replicas)
    for value in (method.learning_rate, method.temperature):
        if np.size(value) > 2:
            return np.size(value)
    return None


def schedule(method: Method, plan: Plan) -> Schedule:
    """Return the schedule, from its name or as given; DEO* takes its window from Theorem 1."""
    chosen, window = method.schedule, method.window
    if isinstance(chosen, Schedule):
        if window is not None and window != chosen.window:
            raise ValueError(
                f"window is {window} but the schedule has window {chosen.window}; say it once."
            )
        _check_window(chosen.window, plan)
        return chosen
    name = choose("schedule", _plain_name(chosen), _SCHEDULE_NAMES)
    _check_window(window or 1, plan)
    windowed = {"deo_star": "at_most_one", "exactly_one": "exactly_one", "no_gate": "no_gate"}
    if name in windowed:
        if window is None and plan.num_replicas >= 2:
            assert method.target_swap_rate is not None
            window = optimal_window(plan.num_replicas, method.target_swap_rate)
            window = min(window, _LONGEST_WINDOW)
        return schedules.windowed_deo(window or 1, windowed[name])
    if window not in (None, 1):
        raise ValueError(
            f'window is {window}, but schedule "{name}" has none; write schedule="deo_star" for '
            "the windowed scheme."
        )
    return getattr(schedules, name)()


def _plain_name(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return value.lower().replace("-", "_").replace("*", "_star")


def _check_window(window: int, plan: Plan) -> None:
    """Raise if a window that the user chose does not fit into the run."""
    if window > plan.num_steps:
        raise ValueError(
            f"window is {window}, and the run has {plan.num_steps} steps: not one window would "
            "end. Write a shorter window, or leave it out."
        )


def rule(method: Method, plan: Plan, schedule: Schedule) -> Rule:
    """Return the rule, from its name or as given, checked against ladder and schedule."""
    rule = method.rule
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
    if per_pair and (np.size(std) != plan.num_replicas - 1 or isinstance(schedule, AllPairs)):
        raise ValueError(
            f"energy_noise_std has {np.size(std)} values; {plan.num_replicas} replicas have "
            f"{plan.num_replicas - 1} adjacent pairs (and ape meets others too): give one number."
        )
    if isinstance(rule, WindowCorrected) and rule.tunes_correction:
        return check_stages(rule, schedule, plan.burn_in, plan.num_steps)
    return rule


def build_kernel(method: Method, num_steps: int, clock: Clock | None, clip: Any) -> Kernel:
    """Return the kernel of a method, with gradients cut at a norm of `clip` and with its schedule
    of learning rates."""
    kernel = plain_kernel(method)
    if clip is not None:
        kernel = kernels.clipped(kernel, clip)
    if callable(method.rate_schedule):
        check_factors("rate_schedule", method.rate_schedule, num_steps)
        return kernels.scheduled(kernel, method.rate_schedule)
    if method.rate_schedule == "constant" or clock is None:
        return kernel
    if method.sample_from is not None:
        return _cosine_then_sampled(kernel, clock, method.sample_from)
    return _IN_TIME[method.rate_schedule](kernel, clock)


def plain_kernel(method: Method) -> Kernel:
    """Return the kernel of a method, without its schedule of learning rates."""
    kernel = method.kernel
    if isinstance(kernel, Kernel):
        return kernel
    if hasattr(kernel, "init") and hasattr(kernel, "update"):
        return kernels.from_optax(kernel)
    name = choose("kernel", kernel, kernels.NAMED)
    if name in ("momentum", "sghmc"):
        return kernels.momentum(method.momentum) if method.momentum else kernels.sgld()
    return kernels.NAMED[name]()


def _cycles(kernel: Kernel, clock: Clock) -> Kernel:
    """The learning rate falls along a cosine until the last 15 % of a cycle, and stays there."""
    length = clock.cycle_epochs * clock.steps_per_epoch
    return kernels.cyclical(kernel, length, exploitation=0.15, hold=True)


def _stepwise(kernel: Kernel, clock: Clock) -> Kernel:
    """A fifth of the learning rate after 70 % of the epochs, and of that after 90 %."""
    epochs = clock.epochs - clock.pretrain_epochs
    falls = [round(share * epochs) * clock.steps_per_epoch for share in (0.7, 0.9)]
    return kernels.stepwise(kernel, falls, factor=0.2)


def _cosine(kernel: Kernel, clock: Clock) -> Kernel:
    """The learning rate rises in the warm-up, and falls along half a cosine to the end."""
    epochs = clock.epochs - clock.pretrain_epochs
    if clock.warmup_epochs >= epochs:
        raise ValueError(
            f"warmup_epochs is {clock.warmup_epochs}, and a network takes {epochs} epochs: "
            "write fewer."
        )
    warmup = round(clock.warmup_epochs * clock.steps_per_epoch)
    return kernels.cosine(kernel, epochs * clock.steps_per_epoch, warmup)


def _cosine_then_sampled(kernel: Kernel, clock: Clock, sample_from: Any) -> Kernel:
    """The learning rate falls along half a cosine, as long as networks have no temperature."""
    share = 1.0 if isinstance(sample_from, str) else sample_from
    epochs = max(1, round(share * clock.epochs))
    warmup = min(round(clock.warmup_epochs * clock.steps_per_epoch), clock.steps_per_epoch - 1)
    steps = epochs * clock.steps_per_epoch
    return kernels.cosine(kernel, steps, warmup, while_cold=True)


_IN_TIME: dict[str, Callable[[Kernel, Clock], Kernel]] = {
    "cosine": _cosine,
    "cyclical": _cycles,
    "stepwise": _stepwise,
}


def frozen_in_burn_in(kernel: Kernel, rule: Rule, plan: Plan) -> Kernel:
    """Return the kernel; under rules that use temperatures its preconditioner, if it has one, is
    frozen after half of the burn-in."""
    if not rule.uses_temperature or kernel.traits.spec is None:
        return kernel
    frozen = _freeze(kernel.traits.spec, plan.burn_in, rule)
    return kernel if frozen == kernel.traits.spec else kernels.from_spec(frozen)


def after_training(kernel: Kernel, method: Method, plan: Plan, unit: Unit) -> Kernel:
    """Return the kernel, which trains new networks before it samples them."""
    if not plan.pretrain_steps:
        return kernel
    if method.pretrain_rate is None:
        raise ValueError(
            f"pretrain is {method.pretrain}, and no rate was found for it: write "
            "pretrain_rate=..., the peak learning rate of this training."
        )
    rate = float(unit.learning_rate(method.pretrain_rate))
    return kernels.pretrained(kernel, plan.pretrain_steps, rate)


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
    method: Method,
    plan: Plan,
    rule: Rule,
    adapts: bool,
    unit: Unit = Unit(),  # noqa: B008
    first_rate: float | None = 0.01,
    hottest: float = 100.0,
) -> Ladder:
    """Return the ladder that the run starts with, in the unit of the energies.

    Automatic rates begin at `first_rate`, and an automatic ladder may reach the temperature
    `hottest`. The temperature of networks without a ladder is that of all.
    """
    count, rate, temperature = plan.num_replicas, method.learning_rate, method.temperature
    if is_auto(rate):
        rates = np.full(count, first_rate)
    else:
        rates = per_rung("learning_rate", unit.learning_rate(rate), count)
    kept = as_kept(rates)
    if not np.all(np.isfinite(kept)) or np.any(kept <= 0):
        raise ValueError(f"learning_rate is {rate}; rates must be positive {kept.dtype}.")
    if not rule.uses_temperature and np.any(np.diff(rates) < 0):
        raise ValueError(
            f"learning_rate is {rate}; rates must not decrease: the first belongs to the coldest "
            "rung, the last to the hottest."
        )
    ties = np.any(np.diff(kept) == 0)
    if adapts and not rule.uses_temperature and ties and np.ndim(rate) > 0:
        raise ValueError(
            f"learning_rate is {rate}; adapted rates must be strictly increasing. Change them, or "
            "write adapt=False."
        )
    if not is_auto(temperature):
        by_rung = unit.temperatures(temperature)
        if plan.clock is not None and not (method.has_ladder or method.is_single):
            by_rung = np.broadcast_to(by_rung, count).copy()
        return Ladder(rates, temperatures(by_rung, count, rule))
    if not np.isinf(hottest) or count == 2:
        return Ladder(rates, geometric(1.0, min(hottest, 100.0), count))
    return Ladder(rates, per_rung("temperature", (1.0, np.inf), count))


def is_auto(value: Any) -> bool:
    """Return whether a choice is left to the run."""
    return isinstance(value, str) and value == AUTO


def tuning(
    method: Method,
    plan: Plan,
    rule: Rule,
    adaptation: tuple[bool, int | None],
    unit: Unit = Unit(),  # noqa: B008
    hottest: float = 100.0,
) -> Tuning:
    """Return which parts of the ladder adapt, and how; `adaptation` is that of `adapts_until`."""
    adapts, until = adaptation
    fixed = rule.uses_temperature or not adapts
    buffer_auto = _is_left_open("buffer", method.buffer)
    gain_auto = _is_left_open("buffer_gain", method.buffer_gain)
    if not buffer_auto and not is_number(method.buffer):
        raise ValueError(f'buffer is {show(method.buffer)}; give a finite number or "auto".')
    measures_buffer = buffer_auto and not rule.uses_temperature
    measures = measures_buffer or (gain_auto and not fixed)
    buffer_gain = None if gain_auto else as_gain("buffer_gain", method.buffer_gain)
    assert method.target_swap_rate is not None
    return Tuning(
        target_swap_rate=method.target_swap_rate,
        gain=as_gain("gain", method.gain),
        buffer_gain=unit.energy(buffer_gain),
        adapts=_adapted_rungs(method, plan, rule) if adapts else None,
        adapts_buffer=not fixed,
        until=until,
        measure_steps=plan.pretrain_steps + (_MEASURE_STEPS if measures else 0),
        measure_buffer=measures_buffer,
        barrier=_barrier(method, until, hottest, plan.pretrain_steps),
        step_sizes=_step_sizes(method, plan),
    )


def _is_left_open(name: str, value: Any) -> bool:
    """Return whether a choice is "auto"; raise if it is any other word."""
    return isinstance(value, str) and choose(name, value, (AUTO,)) == AUTO


def _adapted_rungs(method: Method, plan: Plan, rule: Rule) -> str | None:
    """Return which hyper-parameter of the rungs adapts, None if only fixed ends exist."""
    free_end = is_auto(method.temperature) and plan.num_replicas == 2
    if plan.num_replicas <= 2 and not free_end:
        return None
    if rule.uses_temperature:
        return "temperature"
    return "learning_rate" if np.ndim(method.learning_rate) > 0 else None


def _barrier(method: Method, until: int | None, hottest: float, begins: int = 0) -> BarrierTuning:
    if until is None:
        return BarrierTuning()
    length = max(until - begins, 1)
    ends = tuple(begins + end for end in _round_ends(length)[-4:])
    if not is_auto(method.temperature):
        return BarrierTuning(ends, begins + length // 16)
    return BarrierTuning(ends, begins + length // 16, hottest, free_until=begins + length // 2 + 1)


def _step_sizes(method: Method, plan: Plan) -> StepSizeTuning | None:
    if not is_auto(method.learning_rate):
        return None
    return StepSizeTuning(learning_ends(plan), max(plan.burn_in, 1), dense=bool(method.jumps))


def learning_ends(plan: Plan) -> tuple[int, ...]:
    """Return the steps at which rounds of the burn-in end, after which what is learned is
    renewed."""
    return _round_ends(max(plan.burn_in, 1))


def jumping(method: Method, plan: Plan, num_chains: int) -> Jumping | None:
    """Return how the coldest replica jumps, None if it does not."""
    if not method.jumps:
        return None
    draws, ends = method.draws_per_step or 1, learning_ends(plan)
    return Jumping(method.jumps, draws, num_chains, ends, ends[-1])


def can_redraw(task: Task, method: Method) -> bool:
    """Return whether replicas can move to draws from the prior: with exact energies, and a kernel
    of ours that accepts or rejects."""
    is_adjusted = method.kernel in ("hmc", "mala")
    if isinstance(method.kernel, Kernel):
        is_adjusted = method.kernel.traits.prepare is not None
    return is_adjusted and task.has_exact_energies and task.target.redraw is not None


def _round_ends(until: int) -> tuple[int, ...]:
    """Return where rounds of tuning end: each twice as long as the one before, and the rest."""
    ends = {round(until * share) for share in (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 0.8)}
    return tuple(sorted(end for end in ends if end >= 1))


def adapts_until(
    method: Method, plan: Plan, rule: Rule, schedule: Schedule
) -> tuple[bool, int | None]:
    """Return whether anything adapts, and the step from which it is frozen.

    Temperatures of targets are the user's own unless adaptation is asked for; those of networks
    adapt. Rules that claim a target draw from a ladder that stands still.
    """
    adapt = method.adapt
    if adapt is None:
        adapt = schedule.exchanges and (not rule.uses_temperature or plan.clock is not None)
    if isinstance(adapt, bool):
        until = plan.tuned_until if adapt and rule.uses_temperature else None
        return adapt and until != 0, until
    return adapt > 0, int(adapt)


def draw_rungs(chosen: Any, num_replicas: int) -> tuple[int, ...]:
    """Return the rungs whose draws are kept, the target first."""
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
