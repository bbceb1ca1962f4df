"""Refusals: combinations that cannot work, each a function that yields a sentence.

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
from replicax.run.methods import METHODS, Method, is_several, written
from replicax.run.options import AUTO, Training
from replicax.run.sources import SourceBatches
from replicax.run.task import Task

if TYPE_CHECKING:
    from replicax.run.resolve import Choice

_LONGEST_CYCLE = 1_000_000  # steps in which a draw is looked for

_FEWEST_TO_LEARN = 50  # steps of burn-in, for a mixture that proposes jumps


def _kind_of_run(choice: "Choice") -> Iterator[str]:
    method, name = choice.method, choice.method.name
    if choice.trains:
        if method.keeps_law:
            yield (
                f'The method "{name}" samples models of few parameters exactly, by rx.sample: for '
                'networks write method="sghmc-pt", which samples their posterior, or "deo-star".'
            )
        if is_whole(method.adapt):
            yield f"adapt is {method.adapt}: for networks write True or False."
        return
    if method.is_single or method.draws_gaussian:
        yield f'The method "{name}" trains networks: write rx.train(problem, start, epochs=...).'
    if isinstance(method.rate_schedule, str) and method.rate_schedule != "constant":
        yield (
            f'rate_schedule is "{method.rate_schedule}", which counts epochs, for rx.train: give a '
            "function of the step, or a kernel such as rx.kernels.cosine(...)."
        )
    if method.tempers_likelihood and not choice.task.target.tempers_likelihood:
        yield (
            f'The method "{name}" tempers the likelihood of networks: write rx.train(...), or '
            "rx.bayesian(log_likelihood, log_prior, data) as the target."
        )


def _law_of_noisy_energies(choice: "Choice") -> Iterator[str]:
    task = choice.task
    exact = task.has_exact_energies or task.target.tempers_likelihood
    if choice.method.keeps_law and not exact:
        yield (
            "The energy is noisy (mini-batches or noise of its own), from which no exact draws "
            "can be made. For a posterior whose rows are known write rx.bayesian(log_likelihood, "
            "log_prior, data, batch_size=...); otherwise write "
            "method=rx.deo_star(learning_rate=(cold, hot)) for the paper's ladder of SGD rungs."
        )


def _no_rates(choice: "Choice") -> Iterator[str]:
    name = choice.method.name
    if choice.method.learning_rate is None:
        yield (
            f'The method "{name}" needs learning rates: write '
            f"method={written(name, 'learning_rate=(cold, hot)')}, or one rate for all rungs; or "
            "leave out the method for exact draws of the target."
        )


def _no_number_of_replicas(choice: "Choice") -> Iterator[str]:
    if choice.run.num_replicas is None:
        yield (
            "num_replicas is not given; write num_replicas=16, say, or one learning rate per rung."
        )


def _other_schedule(choice: "Choice") -> Iterator[str]:
    """Methods with a name that are given a ladder, or robbed of theirs."""
    method, known = choice.method, METHODS.get(choice.method.name)
    if not choice.trains or known is None:
        return
    if method.has_ladder and not known().has_ladder:
        yield (
            f'schedule is {show(method.schedule)}; the method "{method.name}" has no ladder, and '
            'nothing to exchange: leave it out, or write method="deo-star".'
        )
    if known().has_ladder and not method.has_ladder:
        yield (
            f'schedule is {show(method.schedule)}, without exchange: write method="ensemble" for '
            "independent networks."
        )


def _nothing_to_exchange(choice: "Choice") -> Iterator[str]:
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
    for name, usual in (("rule", "deterministic"), ("adapt", None), ("swap_every", 1)):
        value = getattr(method, name)
        if value != usual:
            yield (
                f'{name} is {show(value)}; the method "{method.name}" has no ladder, and nothing '
                'to exchange: leave it out, or write method="deo-star".'
            )


def _words_for_rates(choice: "Choice") -> Iterator[str]:
    rate = choice.method.learning_rate
    if choice.trains and isinstance(rate, str):
        yield (
            f"learning_rate is {show(rate)}; give numbers, (cold, hot) or one, or leave it out for "
            'those of the method. "auto" finds one rate, for networks without a ladder.'
        )


def _several_values(choice: "Choice") -> Iterator[str]:
    """Values by rung of networks that have no ladder, or in the wrong order."""
    method = choice.method
    for name in ("learning_rate", "temperature") if choice.trains else ():
        value = getattr(method, name)
        if not is_several(value):
            continue
        if not method.has_ladder:
            ladder = "" if method.name in METHODS else ', or schedule="deo_star"'
            yield (
                f'{name} is {show(value)}; the method "{method.name}" has no ladder: give one '
                f"number{ladder}."
            )
        if np.any(np.diff(np.asarray(value, float)) < 0):
            yield (
                f"{name} is {show(value)}; it must not decrease: the first belongs to the coldest "
                "rung, the last to the hottest."
            )


def _kernel_of_networks(choice: "Choice") -> Iterator[str]:
    if choice.trains and choice.kernel.traits.observes:
        yield (
            'kernel is one of "hmc", "mala" and "langevin", which tune their own steps and are for '
            'rx.sample with rx.bayesian: networks take kernel="sghmc", "sgld", "preconditioned", '
            "or an optax transform."
        )


def _second_momentum(choice: "Choice") -> Iterator[str]:
    method = choice.method
    if not isinstance(method.kernel, str) and method.momentum != 0.9:
        yield (
            f"momentum is {method.momentum}, but the kernel is an object with its own momentum: "
            'leave out one of them, or write kernel="momentum".'
        )


def _unused_warmup(choice: "Choice") -> Iterator[str]:
    method = choice.method
    if not method.warmup_epochs:
        return
    if not choice.trains:
        yield (
            f"warmup_epochs is {method.warmup_epochs}, which counts epochs, for rx.train: give "
            "rate_schedule=..., a function of the step with a warm-up, such as an optax schedule."
        )
    if method.rate_schedule != "cosine":
        yield (
            f"warmup_epochs is {method.warmup_epochs}, and the rate_schedule is "
            f'{show(method.rate_schedule)}: only "cosine" has a warm-up. Write "cosine", or a '
            "function of the step with a warm-up, such as an optax schedule."
        )


def _temperature_of_networks(choice: "Choice") -> Iterator[str]:
    """Temperatures that method and rule cannot use."""
    method, compares = choice.method, choice.rule.uses_temperature and choice.method.has_ladder
    value, tempers = method.temperature, method.tempers_likelihood
    if not choice.trains:
        return
    if isinstance(value, str):
        if not (tempers and compares):
            yield (
                'temperature is "auto", which adapts temperatures to the swap rates; the method '
                f'"{method.name}" with the rule {show(method.rule)} does not: give numbers, such '
                "as (1.0, 2.0)."
            )
        if not choice.run.burn_in or method.adapt is False:
            yield (
                'temperature is "auto", which adapts during the burn-in: write burn_in=..., for '
                "example a third of the epochs, without adapt=False; or temperature=(1.0, hot)."
            )
        return
    numbers = np.asarray(value, float)
    if not np.all((numbers >= 0) & (numbers < np.inf)):  # NaN fails too
        yield (
            f"temperature is {show(value)}; give one number of at least 0, for the coldest rung, "
            "or (cold, hot)."
        )
    if compares and not numbers.ndim:
        yield (
            f"temperature is {show(value)}, and the rule {show(method.rule)} compares the "
            "temperatures of all rungs: give (cold, hot), such as (1.0, 2.0)."
        )
    if tempers and (not numbers.ndim or not numbers.all()):
        yield (
            f'temperature is {show(value)}, and the method "{method.name}" tempers the likelihood '
            "on every rung: give (cold, hot), both above 0, such as (1.0, 2.0)."
        )


def _leaves_no_draws(choice: "Choice") -> Iterator[str]:
    run, plan, clock = choice.run, choice.plan, choice.plan.clock
    if clock is not None:
        assert isinstance(run, Training)
        if choice.method.picks and (run.burn_in or 0) >= clock.epochs:
            yield (
                f"burn_in is {run.burn_in}, and a network takes {clock.epochs} epochs "
                f"(epochs={run.epochs}), so no network would be averaged: write a smaller burn_in, "
                "or more epochs."
            )
        return
    if plan.burn_in >= plan.num_steps:
        yield (
            f"burn_in is {plan.burn_in} and num_steps {plan.num_steps}, which leaves no draw: "
            "write a burn_in below num_steps."
        )
    if plan.thin > plan.num_steps:
        yield (
            f"thin is {plan.thin} and num_steps {plan.num_steps}: draws would be further apart "
            "than the run is long. Write a smaller thin."
        )


def _nothing_averaged(choice: "Choice") -> Iterator[str]:
    """Trainings of which no network would be averaged."""
    method, run, clock = choice.method, choice.run, choice.plan.clock
    if clock is None or not isinstance(run, Training) or not method.picks:
        return
    exploits, steps = choice.kernel.traits.exploits, clock.steps_per_epoch
    epochs = np.arange(clock.test_every, clock.epochs + 1, clock.test_every)
    begins = clock.pretrain_epochs
    epochs = epochs[epochs > max(run.burn_in or 0, begins)]
    if method.draws_gaussian:  # of whole cycles
        whole = (clock.epochs - begins) // clock.cycle_epochs
        epochs = epochs[epochs <= begins + whole * clock.cycle_epochs]
    if method.averages == "last":
        epochs = epochs[epochs == clock.epochs]
    elif method.picks_all:
        epochs = epochs[epochs % clock.pick_every == 0]
    elif exploits is not None:
        epochs = epochs[np.asarray(exploits(epochs * steps - 1), bool)]
    if not len(epochs):
        when = f"every {clock.pick_every} epochs" if method.picks_all else "at cycles' ends"
        rarely = clock.test_every > 1
        every = f"tests networks every {clock.test_every} epochs and " if rarely else ""
        yield (
            f"burn_in is {run.burn_in} of {clock.epochs} epochs; the method "
            f'"{method.name}" {every}averages networks {when}, so none would be averaged: '
            "write a smaller burn_in, or more epochs."
        )


def _early_stop(choice: "Choice") -> Iterator[str]:
    method, run = choice.method, choice.run
    if not isinstance(run, Training) or run.early_stop is None:
        return
    if method.averages != "last" or method.sample_from is not None:
        yield (
            f"early_stop is {run.early_stop}, which averages the networks of the best epoch; the "
            f'method "{method.name}" averages those of other epochs: leave it out, or write '
            'method="deep-ensemble".'
        )


def _rows_of_a_source(choice: "Choice") -> Iterator[str]:
    if choice.method.draws_gaussian and choice.task.batches.data is None:
        yield (
            f'The method "{choice.method.name}" recomputes batch statistics from rows in memory, '
            "but the data are a source: give arrays, or another method."
        )


def _unused_batches(choice: "Choice") -> Iterator[str]:
    task = choice.task
    if not takes_batch(task.target) and not isinstance(task.batches, NoBatches):
        yield (
            "batches are given, but the energy takes (params) alone: write it as energy(params, "
            "batch), or leave batches out."
        )


def _energy_before(choice: "Choice") -> Iterator[str]:
    if choice.method.energy_at != "before":
        return
    if choice.rule.uses_temperature:
        yield (
            f'energy_at="before" does not go with the rule "{choice.rule.name}": it must judge '
            'the states that swap. Write energy_at="moved".'
        )
    if choice.task.target.gradient is not None:
        yield (
            'energy_at="before" takes the energy from the gradient\'s own pass, but this '
            'target has a separate gradient. Write energy_at="moved".'
        )


def _no_law(choice: "Choice") -> Iterator[str]:
    """Kernels under which no rung has the law exp(-U / tau) that the rule compares."""
    rule, kernel = choice.rule, choice.kernel
    if not rule.uses_temperature:
        return
    if kernel.traits.caveat is not None:
        yield (
            f'The rule "{rule.name}" needs a kernel that preserves exp(-energy / temperature), and '
            f'this kernel does not. {kernel.traits.caveat} Or write rule="deterministic".'
        )
    if choice.method.on_swap == "reset" and has_memory(kernel.init):
        yield (
            f'on_swap="reset" does not go with the rule "{rule.name}": momentum that is reset at '
            "every swap makes the coldest rung too cold, and a preconditioner that is reset adapts "
            'again. Write on_swap="keep", which gives the momentum the law of the new rung.'
        )


def _lost_memory(choice: "Choice") -> Iterator[str]:
    if choice.method.on_swap != "reset":
        return
    if choice.kernel.traits.keeps_time:
        yield (
            'on_swap="reset" would set back the clock of a kernel that changes with time; '
            'write on_swap="keep".'
        )
    if choice.kernel.traits.prepare is not None:
        yield (
            'on_swap="reset" would forget the energy of its point, which an adjusted kernel '
            'compares its moves with; write on_swap="keep".'
        )


def _unseen_prior(choice: "Choice") -> Iterator[str]:
    target = choice.task.target
    unseen = target.prior is not None and not target.tempers_likelihood
    if choice.rule.uses_temperature and (choice.kernel.traits.has_own_prior or unseen):
        yield (
            f'There is a weight decay or prior that the rule "{choice.rule.name}" would not see; '
            "put it into the energy instead (of rx.supervised: prior_in_energy=True)."
        )


def _no_fresh_batches(choice: "Choice") -> Iterator[str]:
    """Batches that cannot give further ones, on which the rule judges swaps."""
    schedule, batches = choice.schedule, choice.task.batches
    if not choice.rule.judges_afresh:
        return
    if not batches.can_refresh:
        yield (
            f'The rule "{choice.rule.name}" judges swaps on other mini-batches than those that '
            "moved the replicas, which a function of the step, an iterable or a source of "
            "rx.supervised cannot give: pass arrays with batch_size."
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
            "noisy: let every batch be all the data (batch_size), or write rx.bayesian(..., "
            'batch_size=...) with method=rx.posterior("langevin").'
        )
    in_halves = not target.has_state and getattr(batches, "batch_size", 0) >= 2
    if traits.halves_batches and not in_halves:
        yield (
            'The kernel "langevin" compares the halves of a mini-batch: it needs arrays with a '
            "batch_size of at least 2 and no model state."
        )


def _energy_of_all_rows(choice: "Choice") -> Iterator[str]:
    target = choice.task.target
    if choice.method.energy_at != "all_rows" or target.whole_energy is not None:
        return
    if choice.trains and not target.tempers_likelihood:
        yield (
            f'energy_at is "all_rows"; the method "{choice.method.name}" decides swaps on '
            'mini-batches: leave it out, or write method="sghmc-pt".'
        )
    if isinstance(choice.task.batches, SourceBatches):
        yield (
            'energy_at is "all_rows", and the data are a source, of which there is one batch at a '
            'time: write energy_at="moved", which judges swaps on a further batch, or give all '
            "rows as arrays."
        )
    yield (
        'energy_at="all_rows" needs an rx.bayesian posterior of arrays, which has all rows in '
        "memory."
    )


def _prior_out_of_reach(choice: "Choice") -> Iterator[str]:
    temperature = choice.method.temperature
    infinite = not isinstance(temperature, str) and np.isinf(np.asarray(temperature, float)).any()
    reaches = choice.task.target.tempers_likelihood and choice.kernel.traits.adjusted
    if infinite and not reaches:
        yield (
            "An infinite temperature is the prior alone: it needs an rx.bayesian posterior of all "
            "rows (no batch_size)."
        )


def _noisy_energies(choice: "Choice") -> Iterator[str]:
    exact = choice.task.batches.has_all_rows or choice.method.energy_at == "all_rows"
    if choice.rule.assumes_exact_energies and not exact:
        yield (
            f'The rule "{choice.rule.name}" takes energies as exact, but mini-batches make them '
            'noisy: write rule="bias_corrected", or batch_size=all rows.'
        )


def _no_draw_in_a_cycle(choice: "Choice") -> Iterator[str]:
    plan, exploits = choice.plan, choice.kernel.traits.exploits
    if choice.trains or exploits is None:
        return
    last = min(plan.num_steps, plan.burn_in + _LONGEST_CYCLE)
    steps = np.arange(plan.burn_in, last, plan.thin)
    if not np.asarray(exploits(steps), bool).any():
        yield (
            f"No draw would be taken in num_steps={plan.num_steps}: the kernel takes draws at the "
            "end of its cycles only. Write a longer run, a shorter cycle_length or a thin of 1."
        )


def _nothing_to_tune_by(choice: "Choice") -> Iterator[str]:
    rate = choice.method.learning_rate
    if isinstance(rate, str) and rate == AUTO and not choice.kernel.traits.observes:
        yield (
            'learning_rate="auto" needs a kernel that measures its own error: kernel="hmc" or '
            '"mala" for exact energies, "langevin" for mini-batches; or give learning_rate.'
        )


def can_jump(task: Task, method: Method, kernel: Kernel) -> bool:
    """Return whether a mixture that proposes jumps can be learned: by a kernel of ours that accepts
    or rejects, and whose step sizes are tuned."""
    tunes = isinstance(method.learning_rate, str) and method.learning_rate == AUTO
    exact = task.has_exact_energies and not task.target.has_state
    return method.keeps_law and tunes and exact and kernel.traits.prepare is not None


def _nothing_to_jump_with(choice: "Choice") -> Iterator[str]:
    method = choice.method
    if not method.jumps:
        return
    if not can_jump(choice.task, method, choice.kernel):
        yield (
            f"jumps is {method.jumps}, whose mixture is learned by moves that are accepted or "
            "rejected: write method=rx.posterior(jumps=...), with all rows, the kernel hmc or "
            "mala, and without learning_rate."
        )
    if choice.plan.burn_in < _FEWEST_TO_LEARN:
        yield (
            f"jumps is {method.jumps} and burn_in {choice.plan.burn_in}, too few steps to learn a "
            f"mixture: write burn_in={_FEWEST_TO_LEARN} or more, or a longer run."
        )


def _nothing_to_redraw(choice: "Choice") -> Iterator[str]:
    task, redraws = choice.task, choice.method.redraws
    if not redraws:
        return
    if task.target.redraw is None:
        yield (
            f"redraws is {redraws}, and nothing draws from the prior: write rx.bayesian(..., "
            "draw_prior=...), or redraws=0."
        )
    if not task.has_exact_energies or choice.kernel.traits.prepare is None:
        yield (
            f"redraws is {redraws}; draws from the prior are accepted or rejected by exact "
            "energies: let every batch be all the data, with the kernel hmc or mala, or write "
            "redraws=0."
        )


# In this order: the first sentence is the one that a user reads.
REFUSALS = (
    _kind_of_run,
    _law_of_noisy_energies,
    _no_rates,
    _no_number_of_replicas,
    _other_schedule,
    _nothing_to_exchange,
    _words_for_rates,
    _kernel_of_networks,
    _second_momentum,
    _unused_warmup,
    _temperature_of_networks,
    _several_values,
    _leaves_no_draws,
    _nothing_averaged,
    _early_stop,
    _rows_of_a_source,
    _unused_batches,
    _energy_before,
    _no_law,
    _lost_memory,
    _unseen_prior,
    _no_fresh_batches,
    _inexact_target,
    _energy_of_all_rows,
    _prior_out_of_reach,
    _noisy_energies,
    _no_draw_in_a_cycle,
    _nothing_to_tune_by,
    _nothing_to_jump_with,
    _nothing_to_redraw,
)


def refuse(choice: "Choice") -> None:
    """Raise the first sentence that there is about a choice."""
    for refusal in REFUSALS:
        for sentence in refusal(choice):
            raise ValueError(sentence)
