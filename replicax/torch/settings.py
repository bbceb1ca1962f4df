"""The settings of an exchange of PyTorch models, from the options of `rx.sample` that apply."""

from typing import Any

import numpy as np

from replicax.algorithm import kernels
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.state import Settings
from replicax.errors import show
from replicax.run import settings as resolve
from replicax.run.options import Options

_LONGEST = 2**31 - 1  # steps; a loop of the user's own does not tell how many it will take


def build_options(num_replicas: int, learning_rate: Any, **choices: Any) -> Options:
    """Return the options of an exchange of `num_replicas` replicas."""
    if learning_rate is None or isinstance(learning_rate, str):
        raise ValueError(
            f"learning_rate is {show(learning_rate)}; give (cold, hot), or one for each rung."
        )
    return Options(
        num_steps=_LONGEST,
        learning_rate=learning_rate,
        num_replicas=num_replicas,
        energy_at="before",
        on_nonfinite=choices.pop("on_nonfinite", "stop"),
        **choices,
    )


def build_settings(options: Options) -> tuple[Settings, Ladder]:
    """Return the parts of the algorithm and the ladder; raise if they need more than the losses of
    a step."""
    num_replicas = resolve.num_replicas(options)
    schedule = resolve.schedule(options, num_replicas)
    rule = resolve.rule(options, num_replicas, schedule)
    if rule.uses_temperature:
        raise ValueError(
            f'rule is "{rule.name}", which needs energies on mini-batches other than those of the '
            "training step: leave it out, or use rx.train."
        )
    if isinstance(schedule, Sequential):
        raise ValueError(
            f'schedule is "{schedule.name}", which tries one pair after another, each on its own '
            'mini-batch: write "deo_star", "deo", "seo", "exactly_one" or "no_gate".'
        )
    adapts, _ = resolve.adapts_until(options, rule, schedule)
    ladder = resolve.ladder(options, num_replicas, rule, adapts)
    settings = Settings(
        schedule=schedule,
        rule=rule,
        tuning=resolve.tuning(options, num_replicas, rule, schedule, kernels.sgld()),
        energy_at="before",
        on_swap=options.on_swap,
        langevin=bool(np.any(ladder.temperature > 0)),
    )
    return settings, ladder
