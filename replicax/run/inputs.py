"""What users pass as a target and its data: a `Target` and its mini-batches, in one unit."""

from dataclasses import replace
from typing import Any

from replicax.algorithm.target import Target, as_target
from replicax.run.batch_source import Batches, NoBatches
from replicax.run.batches import as_batches
from replicax.run.bayesian import Bayesian
from replicax.run.options import Options


def _is_supervised(target: Any) -> bool:
    """Return whether this is an `rx.supervised` problem, without an import of networks."""
    return isinstance(getattr(target, "batches", None), Batches)


def in_unit_of(target: Any, options: Options) -> Options:
    """Return the options with rates and temperatures in the unit of the target's energies.

    Only once, when a run starts: a run folder stores the converted ones.
    """
    if not _is_supervised(target):
        return options
    try:
        rates = target.learning_rate(options.learning_rate)
        temperatures = target.temperature(options.temperature)
    except (TypeError, ValueError):  # not numbers, which the settings of the run refuse
        return options
    return replace(options, learning_rate=rates, temperature=temperatures)


def target_and_batches(
    target: Any, batches: Any, batch_size: int | None, swap_energy: Any = None
) -> tuple[Target, Batches]:
    """Return a target and its mini-batches; posteriors and networks bring their own."""
    if _is_supervised(target):
        if batches is not None or (isinstance(target, Bayesian) and batch_size is not None):
            raise ValueError(
                "The posterior has its own data: give no batches (and rx.bayesian its batch_size)."
            )
        if isinstance(target, Bayesian):
            target = target.judged_on(swap_energy)
        return target.target, target.batches
    has_data = batches is not None or batch_size is not None
    return as_target(target), as_batches(batches, batch_size) if has_data else NoBatches()
