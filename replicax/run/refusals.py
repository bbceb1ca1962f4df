"""Refusals: combinations that cannot work, functions by subject that yield sentences.

What an option or a part of the algorithm cannot be by itself is refused where it is made.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from replicax.algorithm.kernel import Kernel, has_memory
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.target import takes_batch
from replicax.errors import is_whole, show
from replicax.run.batches import NoBatches
from replicax.run.methods import Method, is_several, written
from replicax.run.options import AUTO, Training
from replicax.run.sources import SourceBatches
from replicax.run.task import Task

if TYPE_CHECKING:
    from replicax.run.resolve import Choice

_LONGEST_CYCLE = 1_000_000  # steps in which a draw is looked for
_FEWEST_TO_LEARN = 50  # steps of burn-in, for a mixture that proposes jumps


def _of_networks_alone(choice: "Choice") -> Iterator[str]:
    """What is for `rx.train`, in a run of `rx.sample`."""
    method, name = choice.method, choice.method.name
    if choice.trains:
        return
    if method.is_single or method.draws_gaussian:
        yield f'The method "{name}" trains networks: write rx.train(problem, start, epochs=...).'
    by_epochs = isinstance(method.rate_schedule, str) and method.rate_schedule != "constant"
    if by_epochs or method.warmup_epochs:
        yield (
            f"rate_schedule is {show(method.rate_schedule)} and warmup_epochs "
            f"{method.warmup_epochs}, which count epochs, for rx.train: give a function of the "
            "step as rate_schedule, or a kernel such as rx.kernels.cosine(...)."
        )
    if method.tempers_likelihood and not choice.task.target.tempers_likelihood:
        yield (
            f'The method "{name}" tempers the likelihood of networks: write rx.train(...), or '
            "rx.bayesian(log_likelihood, log_prior, data) as the target."
        )


def _of_targets_alone(choice: "Choice") -> Iterator[str]:
    """What is for `rx.sample`, in a training."""
    method = choice.method
    if not choice.trains:
        return
    if method.keeps_law:
        yield (
            f'The method "{method.name}" samples models of few parameters exactly, by rx.sample: '
            'for networks write method="sghmc-pt", which samples their posterior, or "deo-star".'
        )
    if is_whole(method.adapt):
        yield f"adapt is {method.adapt}: for networks write True or False."
    if choice.kernel.traits.observes:
        yield (
            'kernel is "hmc" or "mala", which tune their own steps and are for rx.sample: networks '
            'take kernel="sghmc", "sgld", "preconditioned", or an optax transform.'
        )


def _law_of_noisy_energies(choice: "Choice") -> Iterator[str]:
    task = choice.task
    if not choice.method.keeps_law or task.has_exact_energies:
        return
    if task.target.tempers_likelihood:
        yield (
            'method="posterior" with a kernel or options of its own is a ladder, which needs all '
            "rows in every step: leave out batch_size; or leave out the options for sweeps over "
            "all rows, or write method=rx.deo(learning_rate=..., kernel=..., temperature=(1.0, "
            '10.0), rule="bias_corrected") for moves on mini-batches.'
        )
    yield (
        "The energy is noisy (mini-batches or noise of its own), from which no exact draws can be "
        "made. For a posterior whose rows are known write rx.bayesian(log_likelihood, log_prior, "
        "data); otherwise write method=rx.deo_star(learning_rate=(cold, hot)) for the paper's "
        "ladder of SGD rungs."
    )


def _not_given(choice: "Choice") -> Iterator[str]:
    name = choice.method.name
    is_measured = choice.method.measures_rates and not choice.trains  # of networks alone
    if choice.method.learning_rate is None or is_measured:
        yield (
            f'The method "{name}" needs learning rates: write '
            f"method={written(name, 'learning_rate=(cold, hot)')}, or one rate for all rungs; or "
            "leave out the method for exact draws of the target."
        )
    if choice.run.num_replicas is None:
        yield (
            "num_replicas is not given; write num_replicas=16, say, or one learning rate per rung."
        )


def _no_ladder(choice: "Choice") -> Iterator[str]:
    """Networks without a ladder, and what only a ladder has."""
    method, count = choice.method, choice.run.num_replicas
    if not choice.trains:
        return
    if method.has_ladder:
        if isinstance(count, int) and count < 2:
            yield (
                f'num_replicas is {count}; the method "{method.name}" exchanges networks, and '
                'needs at least 2: write more, or method="ensemble".'
            )
        return
    usual = {"rule": "deterministic", "adapt": None, "swap_every": 1}
    given = [name for name, value in usual.items() if getattr(method, name) != value]
    given += [x for x in ("learning_rate", "temperature") if is_several(getattr(method, x))]
    for name in given:
        yield (
            f'{name} is {show(getattr(method, name))}; the method "{method.name}" has no ladder: '
            'give one number for all networks, or none; or write schedule="deo_star".'
        )


def _temperature_of_networks(choice: "Choice") -> Iterator[str]:
    """Temperatures that the method of a training cannot use."""
    method, value = choice.method, choice.method.temperature
    if not choice.trains:
        return
    tempers = method.tempers_likelihood and method.has_ladder
    if isinstance(value, str):
        adapts = choice.rule.uses_temperature and choice.run.burn_in and method.adapt is not False
        if not (tempers and adapts):
            yield (
                'temperature is "auto", which adapts in the burn-in to the swaps of a tempered '
                "likelihood: give numbers, such as (1.0, 2.0), or write "
                "method=rx.sghmc_pt() and burn_in=..., for example a third of the epochs."
            )
    elif tempers and (not np.ndim(value) or not np.all(value)):
        yield (
            f'temperature is {show(value)}, and the method "{method.name}" tempers the likelihood '
            "on every rung: give (cold, hot), both above 0, such as (1.0, 2.0)."
        )


def _ignored(choice: "Choice") -> Iterator[str]:
    """Options that nothing would look at."""
    method, task = choice.method, choice.task
    if not isinstance(method.kernel, str) and method.momentum != 0.9:
        yield (
            f"momentum is {method.momentum}, but the kernel is an object with its own momentum: "
            'leave out one of them, or write kernel="momentum".'
        )
    if method.warmup_epochs and method.rate_schedule != "cosine":
        yield (
            f"warmup_epochs is {method.warmup_epochs}, and the rate_schedule is "
            f'{show(method.rate_schedule)}: only "cosine" has a warm-up. Write "cosine", or a '
            "function of the step with a warm-up, such as an optax schedule."
        )
    if not takes_batch(task.target) and not isinstance(task.batches, NoBatches):
        yield (
            "batches are given, but the energy takes (params) alone: write it as energy(params, "
            "batch), or leave batches out."
        )


def _no_draws(choice: "Choice") -> Iterator[str]:
    """Runs of targets that would leave no draw."""
    plan, exploits = choice.plan, choice.kernel.traits.exploits
    if choice.trains:
        return
    for name in ("burn_in", "thin"):
        if getattr(plan, name) >= plan.num_steps + (name == "thin"):
            yield (
                f"{name} is {getattr(plan, name)} and num_steps {plan.num_steps}, which leaves no "
                f"draw: write a smaller {name}."
            )
    first = int(plan.burn_in)
    steps = np.arange(first, min(plan.num_steps, first + _LONGEST_CYCLE), plan.thin)
    if exploits is not None and not np.asarray(exploits(steps), bool).any():
        yield (
            f"No draw would be taken in num_steps={plan.num_steps}: the kernel takes draws at the "
            "end of its cycles only. Write a longer run, a shorter cycle_length or a thin of 1."
        )


def _nothing_averaged(choice: "Choice") -> Iterator[str]:
    """Trainings of which no network would be averaged."""
    method, run, clock = choice.method, choice.run, choice.plan.clock
    if clock is None or not isinstance(run, Training) or not method.picks:
        return
    exploits, begins = choice.kernel.traits.exploits, clock.pretrain_epochs
    epochs = np.arange(clock.test_every, clock.epochs + 1, clock.test_every)
    epochs = epochs[epochs > max(run.burn_in or 0, begins)]
    when = "at cycles' ends"
    if method.draws_gaussian:  # of whole cycles
        whole = (clock.epochs - begins) // clock.cycle_epochs
        epochs = epochs[epochs <= begins + whole * clock.cycle_epochs]
    if method.averages == "last":
        epochs = epochs[epochs == clock.epochs]
    elif method.picks_all:
        when = f"every {clock.pick_every} epochs"
        epochs = epochs[epochs % clock.pick_every == 0]
    elif exploits is not None:
        epochs = epochs[np.asarray(exploits(epochs * clock.steps_per_epoch - 1), bool)]
    if not len(epochs):
        yield (
            f"burn_in is {run.burn_in} of {clock.epochs} epochs (epochs={run.epochs}); the method "
            f'"{method.name}" tests networks every {clock.test_every} epochs and averages them '
            f"{when}, so none would be averaged: write a smaller burn_in, or more epochs."
        )


def _held_out_rows(choice: "Choice") -> Iterator[str]:
    method, run = choice.method, choice.run
    early = isinstance(run, Training) and run.early_stop
    if early and (method.averages != "last" or method.sample_from is not None):
        yield (
            f"early_stop is {early}, which averages the networks of the best epoch; the "
            f'method "{method.name}" averages those of other epochs: leave it out, or write '
            'method="deep-ensemble".'
        )
    if method.draws_gaussian and choice.task.batches.data is None:
        yield (
            f'The method "{method.name}" recomputes batch statistics from rows in memory, '
            "but the data are a source: give arrays, or another method."
        )


def _energy_of_swaps(choice: "Choice") -> Iterator[str]:
    """Energies that swaps cannot be judged by."""
    task, method, rule = choice.task, choice.method, choice.rule
    if method.energy_at == "before" and (rule.uses_temperature or task.target.gradient is not None):
        yield (
            'energy_at="before" takes the energy from the gradient\'s own pass, before the move: '
            f'the rule "{rule.name}" may not judge by it, or the target has a separate gradient. '
            'Write energy_at="moved".'
        )
    if method.energy_at == "all_rows" and task.target.whole_energy is None:
        if choice.trains and not task.target.tempers_likelihood:
            yield (
                f'energy_at is "all_rows"; the method "{method.name}" decides swaps on '
                'mini-batches: leave it out, or write method="sghmc-pt".'
            )
        yield (
            'energy_at="all_rows" needs an rx.bayesian posterior of arrays, which has all rows in '
            'memory: write energy_at="moved", which judges swaps on a further mini-batch.'
        )
    exact = task.batches.has_all_rows or method.energy_at == "all_rows"
    if rule.assumes_exact_energies and not exact:
        yield (
            f'The rule "{rule.name}" takes energies as exact, but mini-batches make them '
            'noisy: write rule="bias_corrected", or batch_size=all rows.'
        )


def _no_law(choice: "Choice") -> Iterator[str]:
    """Rungs without the law exp(-U / tau) that the rule compares."""
    rule, traits, target = choice.rule, choice.kernel.traits, choice.task.target
    if not rule.uses_temperature:
        return
    if traits.caveat is not None:
        yield (
            f'The rule "{rule.name}" needs a kernel that preserves exp(-energy / temperature), and '
            f'this kernel does not. {traits.caveat} Or write rule="deterministic".'
        )
    if choice.method.on_swap == "reset" and has_memory(choice.kernel.init):
        yield (
            f'on_swap="reset" does not go with the rule "{rule.name}": momentum that is reset at '
            "every swap makes the coldest rung too cold, and a preconditioner that is reset adapts "
            'again. Write on_swap="keep", which gives the momentum the law of the new rung.'
        )
    unseen = target.prior is not None and not target.tempers_likelihood
    if traits.has_own_prior or unseen:
        yield (
            f'There is a weight decay or prior that the rule "{rule.name}" would not see; '
            "put it into the energy instead (of rx.supervised: prior_in_energy=True)."
        )


def _lost_memory(choice: "Choice") -> Iterator[str]:
    traits = choice.kernel.traits
    if choice.method.on_swap == "reset" and (traits.keeps_time or traits.prepare is not None):
        yield (
            'on_swap="reset" would forget the clock of a kernel that changes with time, or the '
            'energy that an adjusted kernel compares its moves with; write on_swap="keep".'
        )


def _no_fresh_batches(choice: "Choice") -> Iterator[str]:
    """Batches that cannot give further ones, on which the rule judges swaps."""
    schedule, batches = choice.schedule, choice.task.batches
    if not choice.rule.judges_afresh:
        return
    if not batches.can_refresh:
        yield (
            f'The rule "{choice.rule.name}" judges swaps on other mini-batches than those that '
            "moved the replicas, which a function of the step or a source of rx.supervised "
            "cannot give: pass arrays with batch_size."
        )
    if isinstance(schedule, Sequential) and isinstance(batches, SourceBatches):
        yield (
            f'The schedule "{schedule.name}" judges one pair after another, each on a mini-batch '
            'of its own, and a source gives one for all: write schedule="deo" or "seo".'
        )


def _inexact_target(choice: "Choice") -> Iterator[str]:
    """Kernels that need more than this target and these batches can provide."""
    target, batches, traits = choice.task.target, choice.task.batches, choice.kernel.traits
    if traits.adjusted and (target.has_state or target.gradient is not None or target.noise):
        yield (
            "An adjusted kernel (mala, hmc) needs an exact energy that JAX can differentiate, "
            "without a model state, gradient or noise of its own."
        )
    if traits.adjusted and not (batches.has_all_rows and batches.can_refresh):
        yield (
            "An adjusted kernel (mala, hmc) needs exact energies, and mini-batches make them "
            'noisy: leave out batch_size, or write kernel="sgld", which follows gradients alone.'
        )
    temperature = choice.method.temperature
    infinite = not isinstance(temperature, str) and np.isinf(np.asarray(temperature, float)).any()
    if infinite and not (target.tempers_likelihood and traits.adjusted):
        yield (
            "An infinite temperature is the prior alone: it needs an rx.bayesian posterior of all "
            "rows (no batch_size)."
        )


def can_jump(task: Task, method: Method, kernel: Kernel) -> bool:
    """Return whether a mixture that proposes jumps can be learned: by a kernel of ours that accepts
    or rejects, and whose step sizes are tuned."""
    tunes = isinstance(method.learning_rate, str) and method.learning_rate == AUTO
    exact = task.has_exact_energies and not task.target.has_state
    return method.keeps_law and tunes and exact and kernel.traits.prepare is not None


def _nothing_to_learn_from(choice: "Choice") -> Iterator[str]:
    """Step sizes, jumps and redraws that this kernel and these energies do not allow."""
    task, method, traits = choice.task, choice.method, choice.kernel.traits
    rate, jumps, redraws = method.learning_rate, method.jumps, method.redraws
    if isinstance(rate, str) and rate == AUTO and not (traits.observes or method.measures_rates):
        yield (
            'learning_rate="auto" needs a kernel that measures its own error: kernel="hmc" or '
            '"mala", for exact energies; or give learning_rate.'
        )
    if jumps and not can_jump(task, method, choice.kernel):
        yield (
            f"jumps is {jumps}, whose mixture is learned by moves that are accepted or "
            "rejected: write method=rx.posterior(jumps=...), with all rows, the kernel hmc or "
            "mala, and without learning_rate."
        )
    if jumps and choice.plan.burn_in < _FEWEST_TO_LEARN:
        yield (
            f"jumps is {jumps} and burn_in {choice.plan.burn_in}, too few steps to learn a "
            f"mixture: write burn_in={_FEWEST_TO_LEARN} or more, or a longer run."
        )
    exact = task.has_exact_energies and traits.prepare is not None
    if redraws and (task.target.redraw is None or not exact):
        yield (
            f"redraws is {redraws}; draws from the prior are accepted or rejected by exact "
            "energies: write rx.bayesian(..., draw_prior=...) of all rows, with the kernel hmc or "
            "mala, or redraws=0."
        )


# In this order: the first sentence is the one that a user reads.
REFUSALS = (
    _of_targets_alone,
    _of_networks_alone,
    _law_of_noisy_energies,
    _not_given,
    _no_ladder,
    _temperature_of_networks,
    _ignored,
    _nothing_averaged,
    _held_out_rows,
    _no_law,
    _lost_memory,
    _no_fresh_batches,
    _inexact_target,
    _energy_of_swaps,
    _no_draws,
    _nothing_to_learn_from,
)


def refuse(choice: "Choice") -> None:
    """Raise the first sentence that there is about a choice."""
    for refusal in REFUSALS:
        for sentence in refusal(choice):
            raise ValueError(sentence)
