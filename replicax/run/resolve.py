"""`resolve`: from what was said to what runs.

Read `resolve` from top to bottom: each line closes what is still open. A program resolved again is
the same, so that a run folder stores resolved options, in the words of the user.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Schedule
from replicax.algorithm.state import Settings
from replicax.algorithm.swap import Rule
from replicax.algorithm.target import Target
from replicax.algorithm.tuning import Gain
from replicax.run import parts
from replicax.run.initial import check_memory
from replicax.run.methods import Method, as_method
from replicax.run.options import AUTO, Run, Sampling, Training
from replicax.run.parts import Plan, plan_of, pretrain_epochs
from replicax.run.program import Program
from replicax.run.refusals import can_jump, refuse
from replicax.run.task import Task

_NUM_REPLICAS = 8
_ENOUGH_TO_LEARN = 200  # steps of burn-in with which jumps are the default
_PROPOSALS_PER_RUNG, _MOST_PROPOSALS = 16, 512  # of jumps
_DRAWS_PER_STEP, _APART, _MOST_DRAWS = 16, 4, 2**16  # of each step or so far apart; of a chain
_REDRAWS = 4  # of every replica after its move, where the prior can be drawn from
_HOTTEST = 1e3  # the highest temperature that an automatic ladder gives a rung of finite energy

# What a method leaves open: the values for targets, and those of the paper for networks.
_FOR_TARGETS: dict[str, Any] = {
    "kernel": "sgld",
    "temperature": 1.0,
    "target_swap_rate": 0.4,
    "gain": Gain(),
    "buffer": AUTO,
    "buffer_gain": AUTO,
}
_FOR_NETWORKS: dict[str, Any] = {
    "kernel": "momentum",
    "temperature": 0.0,
    "target_swap_rate": 0.005,
    "gain": Gain(600.0, 1000.0),
    "buffer": 0.1,
    "buffer_gain": Gain(60.0, 1000.0, cap=0.05),
}
_NETWORK_RATE, _NETWORK_LADDER, _CYCLIC_RATE = 0.005, (0.005, 0.02), 0.1


class Choice(NamedTuple):
    """What was chosen, before it is built: what refusals look at."""

    task: Task
    run: Run
    method: Method
    plan: Plan
    schedule: Schedule
    rule: Rule
    kernel: Kernel

    @property
    def trains(self) -> bool:
        """Whether networks are trained."""
        return isinstance(self.run, Training)


def resolve(task: Task, run: Run, method: Any) -> Program:
    """Return the program of a run; raise where its parts do not go together."""
    method = with_usual(as_method(method), isinstance(run, Training))
    if isinstance(run, Sampling):
        if run.num_steps is None:
            raise ValueError("num_steps is missing: write num_steps=..., such as 10_000.")
        run = _filled(run, {"num_chains": 1})
    if method.keeps_law and isinstance(run, Sampling):
        run, method = _for_law(task, run, method)
    run = _closed(run, method)
    check_memory(None, run.num_chains if isinstance(run, Sampling) else 1, run.num_replicas or 1)
    plan = plan_of(task, run, method)
    schedule = parts.schedule(method, plan)
    method = replace(method, window=int(schedule.window))
    rule = parts.rule(method, plan, schedule)
    clip = None if method.clip_norm is None else task.unit.energy(method.clip_norm)
    kernel = parts.build_kernel(method, plan.num_steps, plan.clock, clip)
    kernel = parts.frozen_in_burn_in(kernel, rule, plan)
    kernel = parts.after_training(kernel, method, plan, task.unit)
    # Of networks the mini-batch's own energy decides swaps, where a rule allows.
    before = isinstance(run, Training) and not rule.uses_temperature
    method = _filled(method, {"energy_at": "before" if before else "moved"})
    choice = Choice(task, run, method, plan, schedule, rule, kernel)
    refuse(choice)
    schedule.check(plan.num_replicas)
    return _build(choice)


def with_usual(method: Method, of_networks: bool) -> Method:
    """Return the method with what it leaves open as is usual for targets, or for networks."""
    usual = dict(_FOR_NETWORKS if of_networks else _FOR_TARGETS)
    if of_networks:
        by_rate = method.has_ladder and method.rule is None
        usual["learning_rate"] = _NETWORK_LADDER if by_rate else _NETWORK_RATE
        if method.is_cyclical:
            usual["learning_rate"] = _CYCLIC_RATE
    if method.keeps_law and not of_networks:
        del usual["kernel"], usual["temperature"]
    else:
        usual |= {"schedule": "none", "rule": "deterministic", "swap_every": 1}
    return _filled(method, usual)


def _filled(options: Any, values: dict[str, Any]) -> Any:
    """Return the options with those that are None replaced."""
    return replace(
        options, **{name: x for name, x in values.items() if getattr(options, name) is None}
    )


def _for_law(task: Task, run: Sampling, method: Method) -> tuple[Sampling, Method]:
    """Close what is open so that draws have the law of the target."""
    adjusts = method.kernel is None
    ladder_given = any(np.size(x) > 2 for x in (method.learning_rate, method.temperature))
    if run.num_replicas is None and not ladder_given:
        run = replace(run, num_replicas=task.usual_replicas or _NUM_REPLICAS)
    if run.num_replicas == 1:
        alone = {"schedule": "none", "adapt": False}
        method = _filled(method, alone)
        if isinstance(method.temperature, str):
            method = replace(method, temperature=1.0)
    if method.energy_at == "all_rows":  # every step sees them
        method = replace(method, energy_at="moved")
    usual = {"kernel": "hmc", "rule": "metropolis", "adapt": True, "swap_every": 1}
    method = _filled(method, usual)
    every = method.swap_every or 1
    method = _filled(method, {"schedule": "deo" if method.window in (None, 1) else "no_gate"})
    method = _jumping(task, run, method)
    method = _filled(method, {"redraws": _REDRAWS if parts.can_redraw(task, method) else 0})
    # Draws are taken where swaps are attempted.
    usual = {
        "burn_in": run.num_steps // 3 // every * every,
        "thin": min(every, run.num_steps),
        "on_nonfinite": "stop" if adjusts else "restart",
    }
    return _filled(run, usual), method


def _jumping(task: Task, run: Sampling, method: Method) -> Method:
    """Close whether the coldest replica jumps, and how many draws jumps leave of each step."""
    burn_in = run.num_steps // 3 if run.burn_in is None else run.burn_in
    kernel, num_rungs = parts.plain_kernel(method), parts.num_replicas(run, method) or 1
    learns = can_jump(task, method, kernel) and burn_in >= _ENOUGH_TO_LEARN
    # A gradient costs about two energies: as many proposals as cost what the ladder's move costs.
    usual = 2 ** round(np.log2(_PROPOSALS_PER_RUNG * num_rungs)) if learns else 0
    method = _filled(method, {"jumps": min(usual, _MOST_PROPOSALS)})
    # Of a long run one draw of each step is enough; other rungs do not jump.
    jumps = method.jumps or 0
    several = jumps and run.thin in (None, 1) and tuple(run.draw_rungs) == (0,)
    room = _MOST_DRAWS // max(run.num_steps - burn_in, 1)
    most = 2 ** int(np.log2(np.clip(room, 1, max(_DRAWS_PER_STEP, jumps // _APART))))
    return _filled(method, {"draws_per_step": most if several else 1})


def _closed(run: Run, method: Method) -> Run:
    """Close what is open in the options of the run."""
    # Without a ladder restarted replicas would become twins.
    run = _filled(run, {"on_nonfinite": "restart" if method.has_ladder else "stop"})
    if isinstance(run, Training):
        return replace(run, burn_in=max(run.burn_in or 0, pretrain_epochs(run, method)))
    assert isinstance(run, Sampling)
    every = max(100, run.num_steps // 500)  # draws of randomness end at each point of the history
    run = _filled(run, {"burn_in": 0, "thin": 1, "history_every": every})
    return replace(run, num_replicas=parts.num_replicas(run, method))


def _build(choice: Choice) -> Program:
    """Build the program of what was chosen, in the unit of the target's energies."""
    task, run, method, plan, _, rule, kernel = choice
    settings, ladder = _settings_and_ladder(choice)
    step_sizes = settings.tuning.step_sizes
    learns = settings.jumps is not None or (step_sizes is not None and step_sizes.dense)
    return Program(
        task.target,
        kernel,
        settings,
        task.batches.for_run(settings.swap_every if rule.judges_afresh else None),
        ladder=ladder,
        buffer=0.0 if isinstance(method.buffer, str) else float(task.unit.energy(method.buffer)),
        seed=run.seed,
        **{name: x for name, x in plan._asdict().items() if name not in ("tuned_until", "clock")},
        track_best=choice.schedule.swaps == "exactly_one",
        stop_on_nonfinite=run.on_nonfinite != "ignore",
        evaluate_every=plan.evaluate_every,
        draws_per_step=method.draws_per_step or 1,
        round_ends=parts.learning_ends(plan) if learns else (),
        task=task,
        run=run,
        method=method,
    )


def _settings_and_ladder(choice: Choice) -> tuple[Settings, Ladder]:
    """Return what is fixed of a step, and the ladder that the run starts with."""
    task, run, method, plan, schedule, rule, kernel = choice
    traits = kernel.traits
    adapts, until = parts.adapts_until(method, plan, rule, schedule)
    hottest = np.inf if task.target.tempers_likelihood and traits.adjusted else _HOTTEST
    ladder = parts.ladder(method, plan, rule, adapts, task.unit, traits.first_rate, hottest)
    settings = Settings(
        schedule,
        rule,
        parts.tuning(method, plan, rule, (adapts, until), task.unit, hottest),
        energy_at=str(method.energy_at),
        swap_every=method.swap_every or 1,
        jumps=parts.jumping(method, plan),
        redraws=method.redraws or 0,
        on_swap=method.on_swap,
        restarts=run.on_nonfinite == "restart",
        langevin=bool(np.any(ladder.temperature > 0)),
        map_replicas=_map_replicas(task.target),
    )
    return settings, ladder


def _map_replicas(target: Target) -> Any:
    """Return `jax.vmap`, or the faster one of `replicax.nn` for targets with a model state."""
    if not target.has_state:
        return jax.vmap
    from replicax import nn

    return nn.vmap
