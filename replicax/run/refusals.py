"""Refusals: combinations that cannot work, each a function that returns a sentence or None.

What an option or a part of the algorithm cannot be by itself is refused where it is made.
"""

from typing import TYPE_CHECKING

import numpy as np

from replicax.algorithm.kernel import has_memory
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.target import takes_batch
from replicax.errors import is_whole, show
from replicax.run.batch_source import NoBatches
from replicax.run.methods import METHODS, is_several, written
from replicax.run.options import Training
from replicax.run.source_batches import SourceBatches

if TYPE_CHECKING:
    from replicax.run.resolve import Choice

_LONGEST_CYCLE = 1_000_000  # steps in which a draw is looked for


def _kind_of_run(choice: "Choice") -> str | None:
    method, name = choice.method, choice.method.name
    if isinstance(choice.run, Training):
        if method.keeps_law:
            return (
                f'The method "{name}" samples models of few parameters exactly, by rx.sample: for '
                'networks write method="sghmc-pt", which samples their posterior, or "deo-star".'
            )
        if is_whole(method.adapt):
            return f"adapt is {method.adapt}: for networks write True or False."
        return None
    if method.is_single or method.draws_gaussian:
        return f'The method "{name}" trains networks: write rx.train(problem, start, epochs=...).'
    if isinstance(method.rate_schedule, str) and method.rate_schedule != "constant":
        return (
            f'rate_schedule is "{method.rate_schedule}", which counts epochs, for rx.train: give a '
            "function of the step, or a kernel such as rx.kernels.cosine(...)."
        )
    if method.tempers_likelihood and not choice.task.target.tempers_likelihood:
        return (
            f'The method "{name}" tempers the likelihood of networks: write rx.train(...), or '
            "rx.bayesian(log_likelihood, log_prior, data) as the target."
        )
    return None


def _law_of_noisy_energies(choice: "Choice") -> str | None:
    task = choice.task
    if not choice.method.keeps_law or task.has_exact_energies or task.target.tempers_likelihood:
        return None
    return (
        "The energy is noisy (mini-batches or noise of its own), from which no exact draws can be "
        "made. For a posterior whose rows are known write rx.bayesian(log_likelihood, log_prior, "
        "data, batch_size=...); otherwise write method=rx.deo_star(learning_rate=(cold, hot)) for "
        "the paper's ladder of SGD rungs."
    )


def _no_rates(choice: "Choice") -> str | None:
    if choice.method.learning_rate is not None:
        return None
    name = choice.method.name
    return (
        f'The method "{name}" needs learning rates: write '
        f"method={written(name, 'learning_rate=(cold, hot)')}, or one rate for all rungs; or leave "
        "out the method for exact draws of the target."
    )


def _no_number_of_replicas(choice: "Choice") -> str | None:
    if choice.run.num_replicas is not None:
        return None
    return "num_replicas is not given; write num_replicas=16, say, or one learning rate per rung."


def _leaves_no_draws(choice: "Choice") -> str | None:
    run, plan = choice.run, choice.plan
    if isinstance(run, Training):
        assert plan.clock is not None
        if not choice.method.picks or run.burn_in < plan.clock.epochs:
            return None
        return (
            f"burn_in is {run.burn_in}, and a network takes {plan.clock.epochs} epochs "
            f"(epochs={run.epochs}), so no network would be averaged: write a smaller burn_in, or "
            "more epochs."
        )
    if plan.burn_in >= plan.num_steps:
        return (
            f"burn_in is {plan.burn_in} and num_steps {plan.num_steps}, which leaves no draw: "
            "write a burn_in below num_steps."
        )
    if plan.thin > plan.num_steps:
        return (
            f"thin is {plan.thin} and num_steps {plan.num_steps}: draws would be further apart "
            "than the run is long. Write a smaller thin."
        )
    return None


def _no_draw_in_a_cycle(choice: "Choice") -> str | None:
    plan, exploits = choice.plan, choice.kernel.exploits
    if isinstance(choice.run, Training) or exploits is None:
        return None
    last = min(plan.num_steps, plan.burn_in + _LONGEST_CYCLE)
    steps = np.arange(plan.burn_in, last, plan.thin)
    if np.asarray(exploits(steps), bool).any():
        return None
    return (
        f"No draw would be taken in num_steps={plan.num_steps}: the kernel takes draws at the end "
        "of its cycles only. Write a longer run, a shorter cycle_length or a thin of 1."
    )


def _unused_batches(choice: "Choice") -> str | None:
    task = choice.task
    if takes_batch(task.target) or isinstance(task.batches, NoBatches):
        return None
    return (
        "batches are given, but the energy takes (params) alone: write it as energy(params, "
        "batch), or leave batches out."
    )


def _energy_before(choice: "Choice") -> str | None:
    if choice.method.energy_at != "before":
        return None
    if choice.rule.uses_temperature:
        return (
            f'energy_at="before" does not go with the rule "{choice.rule.name}": it must judge '
            'the states that swap. Write energy_at="moved".'
        )
    if choice.task.target.gradient is not None:
        return (
            'energy_at="before" takes the energy from the gradient\'s own pass, but this '
            'target has a separate gradient. Write energy_at="moved".'
        )
    return None


def _energy_of_all_rows(choice: "Choice") -> str | None:
    if choice.method.energy_at != "all_rows" or choice.task.target.whole_energy is not None:
        return None
    if isinstance(choice.run, Training):
        if choice.task.target.tempers_likelihood:
            return (
                'energy_at is "all_rows", and the data are a source, of which there is one batch '
                "at a time: leave it out, or give all rows as arrays."
            )
        return (
            f'energy_at is "all_rows"; the method "{choice.method.name}" decides swaps on '
            'mini-batches: leave it out, or write method="sghmc-pt".'
        )
    if isinstance(choice.task.batches, SourceBatches):
        return (
            'energy_at is "all_rows", and the data are a source, of which there is one batch at a '
            'time: write energy_at="moved", which judges swaps on a further batch, or give all '
            "rows as arrays."
        )
    return (
        'energy_at="all_rows" needs an rx.bayesian posterior of arrays, which has all rows in '
        "memory."
    )


def _no_law(choice: "Choice") -> str | None:
    """Kernels under which no rung has the law exp(-U / tau) that the rule compares."""
    rule, kernel = choice.rule, choice.kernel
    if not rule.uses_temperature:
        return None
    if kernel.caveat is not None:
        return (
            f'The rule "{rule.name}" needs a kernel that preserves exp(-energy / temperature), and '
            f'this kernel does not. {kernel.caveat} Or write rule="deterministic".'
        )
    if choice.method.on_swap == "reset" and has_memory(kernel.init):
        return (
            f'on_swap="reset" does not go with the rule "{rule.name}": momentum that is reset at '
            "every swap makes the coldest rung too cold, and a preconditioner that is reset adapts "
            'again. Write on_swap="keep", which gives the momentum the law of the new rung.'
        )
    return None


def _reset_clock(choice: "Choice") -> str | None:
    if choice.method.on_swap != "reset" or not choice.kernel.keeps_time:
        return None
    return (
        'on_swap="reset" would set back the clock of a kernel that changes with time; '
        'write on_swap="keep".'
    )


def _unseen_prior(choice: "Choice") -> str | None:
    target = choice.task.target
    unseen = target.prior is not None and not target.tempers_likelihood
    if not choice.rule.uses_temperature or not (choice.kernel.has_own_prior or unseen):
        return None
    return (
        f'There is a weight decay or prior that the rule "{choice.rule.name}" would not see; put '
        "it into the energy instead (of rx.supervised: prior_in_energy=True)."
    )


def _no_fresh_batches(choice: "Choice") -> str | None:
    """Batches that cannot give further ones, on which the rule judges swaps."""
    if not choice.rule.judges_afresh:
        return None
    if not choice.task.batches.can_refresh:
        return (
            f'The rule "{choice.rule.name}" judges swaps on other mini-batches than those that '
            "moved the replicas, which a function of the step, an iterable or a source of "
            "rx.supervised cannot give: pass arrays with batch_size."
        )
    schedule = choice.schedule
    if isinstance(schedule, Sequential) and isinstance(choice.task.batches, SourceBatches):
        return (
            f'The schedule "{schedule.name}" judges one pair after another, each on a mini-batch '
            'of its own, and a source gives one for all: write schedule="deo" or "seo".'
        )
    return None


def _inexact_target(choice: "Choice") -> str | None:
    """Kernels that need more than this target and these batches can provide."""
    target, batches, kernel = choice.task.target, choice.task.batches, choice.kernel
    if kernel.adjusted and (target.has_state or target.gradient is not None or target.noise):
        return (
            "An adjusted kernel (mala, hmc) needs an exact energy that JAX can differentiate, "
            "without a model state, gradient or noise of its own."
        )
    if kernel.adjusted and not (batches.is_whole and batches.can_refresh):
        return (
            "An adjusted kernel (mala, hmc) needs exact energies, and mini-batches make them "
            "noisy: let every batch be all the data (batch_size), or write rx.bayesian(..., "
            'batch_size=...) with method=rx.posterior("langevin").'
        )
    if kernel.needs == "halves" and (target.has_state or getattr(batches, "batch_size", 0) < 2):
        return (
            'The kernel "langevin" compares the halves of a mini-batch: it needs arrays with a '
            "batch_size of at least 2 and no model state."
        )
    return None


def _prior_out_of_reach(choice: "Choice") -> str | None:
    temperature = choice.method.temperature
    if isinstance(temperature, str) or not np.any(np.isinf(np.asarray(temperature, float))):
        return None
    if choice.task.target.tempers_likelihood and choice.kernel.adjusted:
        return None
    return (
        "An infinite temperature is the prior alone: it needs an rx.bayesian posterior of all "
        "rows (no batch_size)."
    )


def _noisy_energies(choice: "Choice") -> str | None:
    exact = choice.task.batches.is_whole or choice.method.energy_at == "all_rows"
    if exact or not choice.rule.assumes_exact_energies:
        return None
    return (
        f'The rule "{choice.rule.name}" takes energies as exact, but mini-batches make them noisy: '
        'write rule="bias_corrected", or batch_size=all rows.'
    )


def _kernel_of_networks(choice: "Choice") -> str | None:
    if not isinstance(choice.run, Training) or not choice.kernel.observes:
        return None
    return (
        'kernel is one of "hmc", "mala" and "langevin", which tune their own steps and are for '
        'rx.sample with rx.bayesian: networks take kernel="sghmc", "sgld", "preconditioned", '
        "or an optax transform."
    )


def _second_momentum(choice: "Choice") -> str | None:
    method = choice.method
    if isinstance(method.kernel, str) or method.momentum == 0.9:
        return None
    return (
        f"momentum is {method.momentum}, but the kernel is an object with its own momentum: leave "
        'out one of them, or write kernel="momentum".'
    )


def _unused_warmup(choice: "Choice") -> str | None:
    method = choice.method
    if not method.warmup_epochs:
        return None
    if not isinstance(choice.run, Training):
        return (
            f"warmup_epochs is {method.warmup_epochs}, which counts epochs, for rx.train: give "
            "rate_schedule=..., a function of the step with a warm-up, such as an optax schedule."
        )
    if method.rate_schedule != "cosine":
        return (
            f"warmup_epochs is {method.warmup_epochs}, and the rate_schedule is "
            f'{show(method.rate_schedule)}: only "cosine" has a warm-up. Write "cosine", or a '
            "function of the step with a warm-up, such as an optax schedule."
        )
    return None


def _nothing_to_exchange(choice: "Choice") -> str | None:
    method, count = choice.method, choice.run.num_replicas
    if not isinstance(choice.run, Training):
        return None
    if method.has_ladder and isinstance(count, int) and count < 2:
        return (
            f'num_replicas is {count}; the method "{method.name}" exchanges networks, and needs at '
            'least 2: write more, or method="ensemble".'
        )
    if method.has_ladder:
        return None
    for name, usual in (("rule", "deterministic"), ("adapt", None), ("swap_every", 1)):
        value = getattr(method, name)
        if value != usual:
            return (
                f'{name} is {show(value)}; the method "{method.name}" has no ladder, and nothing '
                'to exchange: leave it out, or write method="deo-star".'
            )
    return None


def _other_schedule(choice: "Choice") -> str | None:
    """Methods with a name that are given a ladder, or robbed of theirs."""
    method, known = choice.method, METHODS.get(choice.method.name)
    if not isinstance(choice.run, Training) or known is None:
        return None
    if method.has_ladder and not known().has_ladder:
        return (
            f'schedule is {show(method.schedule)}; the method "{method.name}" has no ladder, and '
            'nothing to exchange: leave it out, or write method="deo-star".'
        )
    if known().has_ladder and not method.has_ladder:
        return (
            f'schedule is {show(method.schedule)}, without exchange: write method="ensemble" for '
            "independent networks."
        )
    return None


def _values_without_ladder(choice: "Choice") -> str | None:
    method = choice.method
    if not isinstance(choice.run, Training) or method.has_ladder:
        return None
    for name in ("learning_rate", "temperature"):
        value = getattr(method, name)
        if is_several(value):
            ladder = "" if method.name in METHODS else ', or schedule="deo_star"'
            return (
                f'{name} is {show(value)}; the method "{method.name}" has no ladder: give one '
                f"number{ladder}."
            )
    return None


def _words_for_rates(choice: "Choice") -> str | None:
    rate = choice.method.learning_rate
    if not isinstance(choice.run, Training) or not isinstance(rate, str):
        return None
    return (
        f"learning_rate is {show(rate)}; give numbers, (cold, hot) or one, or leave it out for "
        "those of the method."
    )


def _decreasing(choice: "Choice") -> str | None:
    if not isinstance(choice.run, Training):
        return None
    for name in ("learning_rate", "temperature"):
        value = getattr(choice.method, name)
        if is_several(value) and np.any(np.diff(np.asarray(value, float)) < 0):
            return (
                f"{name} is {show(value)}; it must not decrease: the first belongs to the coldest "
                "rung, the last to the hottest."
            )
    return None


def _temperature_of_networks(choice: "Choice") -> str | None:
    """Temperatures that method and rule cannot use."""
    if not isinstance(choice.run, Training):
        return None
    method, compares = choice.method, choice.rule.uses_temperature and choice.method.has_ladder
    value, tempers = method.temperature, method.tempers_likelihood
    if isinstance(value, str):
        if not (tempers and compares):
            return (
                'temperature is "auto", which adapts temperatures to the swap rates; the method '
                f'"{method.name}" with the rule {show(method.rule)} does not: give numbers, such '
                "as (1.0, 2.0)."
            )
        if choice.run.burn_in == 0 or method.adapt is False:
            return (
                'temperature is "auto", which adapts during the burn-in: write burn_in=..., for '
                "example a third of the epochs, without adapt=False; or temperature=(1.0, hot)."
            )
        return None
    numbers = np.asarray(value, float)
    if not np.all((numbers >= 0) & (numbers < np.inf)):  # NaN fails too
        return (
            f"temperature is {show(value)}; give one number of at least 0, for the coldest rung, "
            "or (cold, hot)."
        )
    if compares and not numbers.ndim:
        return (
            f"temperature is {show(value)}, and the rule {show(method.rule)} compares the "
            "temperatures of all rungs: give (cold, hot), such as (1.0, 2.0)."
        )
    if tempers and (not numbers.ndim or not numbers.all()):
        return (
            f'temperature is {show(value)}, and the method "{method.name}" tempers the likelihood '
            "on every rung: give (cold, hot), both above 0, such as (1.0, 2.0)."
        )
    return None


def _nothing_averaged(choice: "Choice") -> str | None:
    """Trainings of which no network would be averaged."""
    method, run, clock = choice.method, choice.run, choice.plan.clock
    if clock is None or not isinstance(run, Training) or not method.picks:
        return None
    exploits, steps = choice.kernel.exploits, clock.steps_per_epoch
    epochs = np.arange(clock.test_every, clock.epochs + 1, clock.test_every)
    epochs = epochs[epochs > run.burn_in]
    if method.draws_gaussian:  # of whole cycles
        epochs = epochs[epochs <= clock.epochs // clock.cycle_epochs * clock.cycle_epochs]
    if method.picks_all:
        epochs = epochs[epochs % clock.pick_every == 0]
    elif exploits is not None:
        epochs = epochs[np.asarray(exploits(epochs * steps - 1), bool)]
    if len(epochs):
        return None
    when = f"every {clock.pick_every} epochs" if method.picks_all else "at cycles' ends"
    rarely = clock.test_every > 1
    every = f"tests networks every {clock.test_every} epochs and " if rarely else ""
    return (
        f"burn_in is {run.burn_in} of {clock.epochs} epochs; the method "
        f'"{method.name}" {every}averages networks {when}, so none would be averaged: '
        "write a smaller burn_in, or more epochs."
    )


def _rows_of_a_source(choice: "Choice") -> str | None:
    if not choice.method.draws_gaussian or choice.task.batches.data is not None:
        return None
    return (
        f'The method "{choice.method.name}" recomputes batch statistics from rows in memory, '
        "but the data are a source: give arrays, or another method."
    )


REFUSALS = (
    _kind_of_run,
    _law_of_noisy_energies,
    _no_rates,
    _no_number_of_replicas,
    _other_schedule,
    _nothing_to_exchange,
    _words_for_rates,
    _values_without_ladder,
    _kernel_of_networks,
    _second_momentum,
    _unused_warmup,
    _temperature_of_networks,
    _decreasing,
    _leaves_no_draws,
    _nothing_averaged,
    _rows_of_a_source,
    _unused_batches,
    _energy_before,
    _no_law,
    _reset_clock,
    _unseen_prior,
    _no_fresh_batches,
    _inexact_target,
    _energy_of_all_rows,
    _prior_out_of_reach,
    _noisy_energies,
    _no_draw_in_a_cycle,
)
