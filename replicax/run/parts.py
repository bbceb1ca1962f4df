"""From options and a method to a run in steps, its plan, and to the parts of the algorithm:
schedule, rule, kernel, ladder and tuning."""

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from replicax.algorithm import kernels, swap
from replicax.algorithm import schedule as schedules
from replicax.algorithm.jumps import Jumping
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder, as_kept, geometric, per_rung, temperatures
from replicax.algorithm.schedule import AllPairs, Schedule
from replicax.algorithm.swap import Rule
from replicax.algorithm.tuning import BarrierTuning, StepSizeTuning, Tuning, as_gain
from replicax.algorithm.wrapped_kernels import check_factors
from replicax.errors import at_least, choose, is_number, show
from replicax.run.methods import Method, written
from replicax.run.options import AUTO, Run, Sampling, Training
from replicax.run.task import Task, Unit
from replicax.theory import optimal_window

_MEASURE_STEPS = 100  # steps that measure the unit of energy for buffer="auto"
_LONGEST_WINDOW = 2**31 - 1  # as long as any run
_SCHEDULE_NAMES = ("deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none")
_UNKNOWN_RATE = 1e-12  # until it is measured
PICK_EVERY = 10  # epochs between two averages of all networks of an ensemble


class Clock(NamedTuple):
    """The length of a training and of its parts, in epochs."""

    epochs: int  # of each network
    steps_per_epoch: int
    cycle_epochs: int  # of cyclical methods
    warmup_epochs: float = 0.0  # of a cosine schedule
    pick_every: int = PICK_EVERY  # between averages of all networks
    test_every: int = 1  # between evaluations
    pretrain_epochs: int = 0  # before networks are sampled


def clock_of(run: Training, method: Method, steps_per_epoch: int) -> Clock:
    """Return the clock of a training; its parts are at most as long as the run.

    A single network takes the epochs of all replicas.
    """
    epochs = run.epochs * run.num_replicas if method.is_single else run.epochs
    before = pretrain_epochs(run, method)
    return Clock(
        epochs,
        steps_per_epoch,
        min(method.cycle_epochs, epochs - before),
        epochs / 20 if method.warmup_epochs is None else method.warmup_epochs,
        min(PICK_EVERY, epochs),
        min(method.test_every, epochs),
        before,
    )


def pretrain_epochs(run: Training, method: Method) -> int:
    """Return the epochs in which networks are trained before they are sampled."""
    share = method.pretrain or 0.0
    return min(max(1, round(share * run.epochs)), run.epochs - 1) if share else 0


class Plan(NamedTuple):
    """A run in steps."""

    num_steps: int
    num_replicas: int
    burn_in: int  # steps before the first draw
    thin: int  # steps between draws
    history_every: int
    tuned_until: int | None  # where temperatures stop adapting; None: they go on
    clock: Clock | None = None  # of a training
    num_chains: int = 1
    draw_rungs: tuple[int, ...] = (0,)
    keep_draws: bool = True

    @property
    def pretrain_steps(self) -> int:
        """Steps in which networks are trained before they are sampled."""
        return 0 if self.clock is None else self.clock.pretrain_epochs * self.clock.steps_per_epoch

    @property
    def evaluate_every(self) -> int | None:
        """Steps between two evaluations of networks."""
        return None if self.clock is None else self.clock.test_every * self.clock.steps_per_epoch


def plan_of(task: Task, run: Run, method: Method) -> Plan:
    """Return a run in steps, from options that leave nothing open."""
    if isinstance(run, Sampling):
        assert run.burn_in is not None and run.thin is not None and run.history_every is not None
        count, until = run.num_replicas or 1, run.burn_in or None  # no number is refused
        return Plan(
            *(run.num_steps, count, run.burn_in, run.thin, run.history_every, until),
            num_chains=run.num_chains,
            draw_rungs=draw_rungs(run.draw_rungs, count),
            keep_draws=run.keep_draws,
        )
    assert isinstance(run, Training) and task.steps_per_epoch is not None
    steps, clock = task.steps_per_epoch, clock_of(run, method, task.steps_per_epoch)
    return Plan(
        clock.epochs * steps,
        1 if method.is_single else run.num_replicas,
        burn_in=steps - 1,  # draws are taken at the end of an epoch
        thin=steps,
        history_every=steps,
        tuned_until=(run.burn_in or 0) * steps,
        clock=clock,
        keep_draws=run.keep_networks,
    )


def check_extends(run: Run, method: Method, epochs: int | None) -> None:
    """Raise unless a training of `epochs` epochs begins like the one that was made.

    What depends on the length of a run cannot change after it has begun.
    """
    if epochs is None or not isinstance(run, Training) or run.epochs == epochs:
        return
    at_least("epochs", epochs, 1)
    if epochs < run.epochs:
        raise ValueError(f"epochs is {epochs}, but the run was made for {run.epochs}.")
    shorter, longer = clock_of(run, method, 1), clock_of(replace(run, epochs=epochs), method, 1)
    cycle = f"cycle_epochs={shorter.epochs}"
    depends = {
        "how long new networks are trained before they are sampled": method.pretrain,
        f'the learning rate with rate_schedule="{method.rate_schedule}"': method.follows_length,
        f"its only cycle, shortened to {shorter.epochs} epochs (method="
        f"{written(method.name, cycle)} could go on)": method.is_cyclical
        and longer.cycle_epochs != shorter.cycle_epochs,
        f"the average, which is made every {PICK_EVERY} epochs or at the end": method.picks_all
        and longer.pick_every != shorter.pick_every,
    }
    for what, does in depends.items():
        if does:
            raise ValueError(
                f"A run of {epochs} epochs would begin otherwise than this one of {run.epochs}: "
                f"{what} depends on the length. Start a new run, from the networks of this one."
            )


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
        if window not in (None, chosen.window):
            raise ValueError(
                f"window is {window} but the schedule has window {chosen.window}; say it once."
            )
        window = chosen.window
    if (window or 1) > plan.num_steps:
        raise ValueError(
            f"window is {window}, and the run has {plan.num_steps} steps: not one window would "
            "end. Write a shorter window, or leave it out."
        )
    if isinstance(chosen, Schedule):
        return chosen
    name = choose("schedule", chosen, _SCHEDULE_NAMES)
    windowed = {"deo_star": "at_most_one", "exactly_one": "exactly_one", "no_gate": "no_gate"}
    if name not in windowed:
        if window not in (None, 1):
            raise ValueError(
                f'window is {window}, but schedule "{name}" has none; write schedule="deo_star" '
                "for the windowed scheme."
            )
        return getattr(schedules, name)()
    if window is None and plan.num_replicas >= 2:
        assert method.target_swap_rate is not None
        window = optimal_window(plan.num_replicas, method.target_swap_rate)
        window = min(window, _LONGEST_WINDOW)
    return schedules.windowed_deo(window or 1, windowed[name])


def rule(method: Method, plan: Plan, schedule: Schedule) -> Rule:
    """Return the rule, from its name or as given, checked against ladder and schedule."""
    rule = method.rule
    if not isinstance(rule, Rule):
        name = choose("rule", rule, swap.RULES)
        if name == "window_corrected":
            raise ValueError(
                'rule="window_corrected" needs its lambda_W: write '
                "rule=rx.swap.window_corrected(window_correction), a number."
            )
        rule = getattr(swap, name)()
    std = rule.energy_noise_std
    per_pair = not rule.estimates_noise and np.size(std) > 1
    if per_pair and (np.size(std) != plan.num_replicas - 1 or isinstance(schedule, AllPairs)):
        raise ValueError(
            f"energy_noise_std has {np.size(std)} values; {plan.num_replicas} replicas have "
            f"{plan.num_replicas - 1} adjacent pairs (and ape meets others too): give one number."
        )
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
    return _in_time(kernel, method, clock)


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
    if name == "underdamped":
        return kernels.underdamped(num_batches=method.steps_per_move or 1)
    return kernels.NAMED[name]()


def _in_time(kernel: Kernel, method: Method, clock: Clock) -> Kernel:
    """Return the kernel with the learning rates of a training over its epochs."""
    steps, epochs = clock.steps_per_epoch, clock.epochs - clock.pretrain_epochs
    if method.rate_schedule == "cyclical":  # slow, and averaged, in the last 15 % of a cycle
        return kernels.cyclical(kernel, clock.cycle_epochs * steps, exploitation=0.15, hold=True)
    if method.rate_schedule == "stepwise":
        falls = [round(share * epochs) * steps for share in (0.7, 0.9)]
        return kernels.stepwise(kernel, falls, factor=0.2)
    warmup = round(clock.warmup_epochs * steps)
    if method.sample_from is not None:  # a cosine as long as networks have no temperature
        share = 1.0 if isinstance(method.sample_from, str) else method.sample_from
        length = max(1, round(share * clock.epochs)) * steps
        return kernels.cosine(kernel, length, min(warmup, steps - 1), while_cold=True)
    if clock.warmup_epochs >= epochs:
        raise ValueError(
            f"warmup_epochs is {clock.warmup_epochs}, and a network takes {epochs} epochs: "
            "write fewer."
        )
    return kernels.cosine(kernel, epochs * steps, warmup)


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
        rates = np.full(count, _UNKNOWN_RATE if first_rate is None else first_rate)
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
        if plan.clock is not None and not (method.has_ladder or method.is_single):
            temperature = np.full(count, float(temperature))
        temperatures(temperature, count, rule)  # is refused as it was written
        return Ladder(rates, temperatures(unit.temperatures(temperature), count, rule))
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
        barrier=_barrier(method, plan, until, hottest),
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


def _barrier(method: Method, plan: Plan, until: int | None, hottest: float) -> BarrierTuning:
    if until is None:
        return BarrierTuning()
    begins = plan.pretrain_steps
    length = max(until - begins, 1)
    ends = tuple(begins + end for end in _round_ends(length)[-4:])
    # Where the host renews what is learned anyway, it pools the verdicts of the chains.
    on_host = bool(method.jumps) and set(ends) <= set(learning_ends(plan))
    first = begins + length // 16
    if not is_auto(method.temperature):
        return BarrierTuning(ends, first, on_host=on_host)
    return BarrierTuning(ends, first, hottest, begins + length // 2 + 1, on_host)


def _step_sizes(method: Method, plan: Plan) -> StepSizeTuning | None:
    if not is_auto(method.learning_rate) or plan.clock is not None:
        return None
    return StepSizeTuning(learning_ends(plan), max(plan.burn_in, 1), dense=bool(method.jumps))


def learning_ends(plan: Plan) -> tuple[int, ...]:
    """Return the steps at which rounds of the burn-in end, after which what is learned is
    renewed."""
    return _round_ends(max(plan.burn_in, 1))


def jumping(method: Method, plan: Plan) -> Jumping | None:
    """Return how the coldest replica jumps, None if it does not."""
    if not method.jumps:
        return None
    draws, ends = method.draws_per_step or 1, learning_ends(plan)
    return Jumping(method.jumps, draws, plan.num_chains, ends, ends[-1])


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
    rungs = tuple(map(int, range(num_replicas) if isinstance(chosen, str) else chosen))
    if not rungs or rungs[0] != 0 or len(set(rungs)) < len(rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; it must start with 0, the target, and name each rung once."
        )
    if any(not 0 <= rung < num_replicas for rung in rungs):
        raise ValueError(
            f"draw_rungs is {rungs}; {num_replicas} replicas have rungs 0 to {num_replicas - 1}."
        )
    return rungs
