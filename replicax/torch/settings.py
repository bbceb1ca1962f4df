"""The settings of an exchange of PyTorch models: a method, and the ladder of so many models."""

from typing import Any

import numpy as np

from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.state import Settings
from replicax.errors import show
from replicax.run import parts
from replicax.run.methods import Method
from replicax.run.plan import Plan
from replicax.run.resolve import with_usual

_LONGEST = 2**31 - 1  # steps; a loop of the user's own does not tell how many it will take


def build_method(learning_rate: Any, schedule: Any, **choices: Any) -> Method:
    """Return the method of an exchange, with the usual values of networks where it is open."""
    if learning_rate is None or isinstance(learning_rate, str):
        raise ValueError(
            f"learning_rate is {show(learning_rate)}; give (cold, hot), or one for each rung."
        )
    method = Method("exchange", learning_rate=learning_rate, schedule=schedule, **choices)
    return with_usual(method, of_networks=True)


def build_settings(method: Method, num_replicas: int) -> tuple[Settings, Ladder]:
    """Return the parts of the algorithm and the ladder; raise if they need more than the losses of
    a step."""
    plan = Plan(_LONGEST, num_replicas, burn_in=0, thin=1, history_every=1, tuned_until=None)
    schedule = parts.schedule(method, plan)
    schedule.check(num_replicas)
    rule = parts.rule(method, plan, schedule)
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
    adaptation = parts.adapts_until(method, plan, rule, schedule)
    ladder = parts.ladder(method, plan, rule, adaptation[0])
    settings = Settings(
        schedule=schedule,
        rule=rule,
        tuning=parts.tuning(method, plan, rule, adaptation),
        energy_at="before",
        on_swap=method.on_swap,
        langevin=bool(np.any(ladder.temperature > 0)),
    )
    return settings, ladder
