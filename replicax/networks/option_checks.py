"""Checks of the options of `rx.train` against each other, before anything is built.

`options` is a `TrainOptions`: `options.base` is its method, `options.parts` the method as changed.
"""

from typing import Any

import numpy as np

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.swap import RULES
from replicax.errors import at_least, check_flag, check_number, choose, not_negative, show
from replicax.networks.methods import KERNELS, MOMENTUM, check_rate_schedule, has_ladder
from replicax.run.options import check_rungs


def check_moves(options: Any) -> None:
    """Raise unless kernel, momentum, clipping and learning-rate schedule fit together."""
    kernel, warmup = options.kernel, options.warmup_epochs
    if isinstance(kernel, str):
        choose("kernel", kernel, KERNELS)
    elif isinstance(kernel, Kernel) and (kernel.adjusted or kernel.observes):
        raise ValueError(
            'kernel is one of "hmc", "mala" and "langevin", which tune their own steps and are for '
            'rx.sample with rx.bayesian: networks take kernel="sghmc", "sgld", "preconditioned", '
            "or an optax transform."
        )
    elif kernel is not None and options.momentum != MOMENTUM:
        raise ValueError(
            f"momentum is {options.momentum}, but the kernel is an object with its own momentum: "
            'leave out one of them, or write kernel="momentum".'
        )
    if options.rate_schedule is not None:
        check_rate_schedule(options.rate_schedule)
    if options.clip_norm is not None:
        positive = (lambda x: x > 0), "it must be a number above 0, or None"
        check_number("clip_norm", options.clip_norm, *positive)
    not_negative("warmup_epochs", warmup)
    if warmup and options.parts.rate_schedule != "cosine":
        raise ValueError(
            f"warmup_epochs is {warmup}, and the rate_schedule is "
            f'{show(options.parts.rate_schedule)}: only "cosine" has a warm-up. Write "cosine", or '
            "a function of the step with a warm-up, such as an optax schedule."
        )
    if warmup >= options.run_epochs:
        raise ValueError(
            f"warmup_epochs is {warmup}, and a network takes {options.run_epochs} epochs: write "
            "fewer."
        )


def check_exchange(options: Any) -> None:
    """Raise if options of the exchange are given to a method without exchange."""
    method = options.method_name
    for name in ("schedule", "rule", "adapt", "swap_every"):
        value = getattr(options, name)
        if value is not None and not options.base.has_ladder:
            raise ValueError(
                f'{name} is {show(value)}; the method "{method}" has no ladder, and nothing to '
                'exchange: leave it out, or write method="deo-star".'
            )
    if options.schedule is not None and not has_ladder(options.schedule):
        raise ValueError(
            f'schedule is {show(options.schedule)}, without exchange: write method="ensemble" for '
            "independent networks."
        )
    if options.base.has_ladder and options.num_replicas < 2:
        raise ValueError(
            f'num_replicas is {options.num_replicas}; the method "{method}" exchanges networks, '
            'and needs at least 2: write more, or method="ensemble".'
        )
    if isinstance(options.rule, str):
        choose("rule", options.rule.lower().replace("-", "_"), RULES)
    check_flag("adapt", options.adapt, None)
    if options.swap_every is not None:
        at_least("swap_every", options.swap_every, 1)
    choose("swap_energy", options.swap_energy, ("batch", "full"))
    if options.swap_energy == "full" and not options.base.tempers_likelihood:
        raise ValueError(
            f'swap_energy is "full"; the method "{method}" decides swaps on mini-batches: leave it '
            'out, or write method="sghmc-pt".'
        )


def check_rates(options: Any) -> None:
    """Raise unless the learning rate is one number, or several for a method with a ladder."""
    rate = options.learning_rate
    if rate is None:
        return
    if callable(rate):
        raise ValueError(
            "learning_rate is a function; give the rate itself, and pass its schedule as "
            "rate_schedule, a function of the step that begins at 1.0, such as "
            "optax.cosine_decay_schedule(1.0, num_steps)."
        )
    if isinstance(rate, str):
        raise ValueError(
            f"learning_rate is {show(rate)}; give numbers, (cold, hot) or one, or None for those "
            "of the method."
        )
    check_rungs("learning_rate", rate)
    _check_order("learning_rate", rate)
    if np.ndim(rate) and not options.base.has_ladder:
        raise ValueError(
            f'learning_rate is {rate}; the method "{options.method_name}" has no ladder: give one.'
        )


def _check_order(name: str, value: Any) -> None:
    if np.ndim(value) == 1 and np.any(np.diff(np.asarray(value, float)) < 0):
        raise ValueError(
            f"{name} is {show(value)}; it must not decrease: the first belongs to the coldest "
            "rung, the last to the hottest."
        )


def check_temperature(options: Any) -> None:
    """Raise unless method and rule can use the temperatures."""
    temperature, method, rule = options.temperature, options.method_name, options.parts.rule
    value = options.base.temperature if temperature is None else temperature
    if isinstance(value, str):
        choose("temperature", value, ("auto",))
        if not (options.base.tempers_likelihood and options.uses_temperature):
            raise ValueError(
                'temperature is "auto", which adapts temperatures to the swap rates; the method '
                f'"{method}" with the rule {show(rule)} does not: give numbers, such as (1.0, 2.0).'
            )
        if options.burn_in == 0 or options.adapt is False:
            raise ValueError(
                'temperature is "auto", which adapts during the burn-in: write burn_in=..., for '
                "example a third of the epochs, without adapt=False; or temperature=(1.0, hot)."
            )
        return
    if np.ndim(value) and not options.base.has_ladder:
        raise ValueError(
            f'temperature is {show(value)}; the method "{method}" has no ladder: give one number.'
        )
    check_rungs("temperature", value)
    numbers = np.asarray(value, float)
    if not np.all((numbers >= 0) & (numbers < np.inf)):  # NaN fails too
        raise ValueError(
            f"temperature is {show(value)}; give one number of at least 0, for the coldest rung, "
            "or (cold, hot)."
        )
    _check_order("temperature", value)
    if options.uses_temperature and not numbers.ndim:
        raise ValueError(
            f"temperature is {show(value)}, and the rule {show(rule)} compares the temperatures of "
            "all rungs: give (cold, hot), such as (1.0, 2.0)."
        )
    if options.base.tempers_likelihood and (not numbers.ndim or not numbers.all()):
        raise ValueError(
            f'temperature is {show(value)}, and the method "{method}" tempers the likelihood on '
            "every rung: give (cold, hot), both above 0, such as (1.0, 2.0)."
        )
