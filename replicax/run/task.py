"""`Task`: what is sampled: a target, its mini-batches, and the unit that its user speaks in."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from replicax.algorithm.target import Target, as_target
from replicax.algorithm.tuning import ConstantGain, Gain
from replicax.errors import is_number
from replicax.run.batches import Batches, NoBatches, as_batches


class Unit(NamedTuple):
    """The unit of a target's energies, in the words of its user.

    Of networks learning rates, buffers and norms of gradients refer to a mean loss, and
    temperatures to the posterior of all rows; of other targets all refer to the energy itself.
    """

    loss: float = 1.0  # energy for each unit of loss
    num_rows: int = 1  # energy of the posterior for each unit of loss

    def learning_rate(self, rate: Any) -> Any:
        """Return learning rates for the gradients of the energy."""
        return np.asarray(rate, float) / self.loss

    def temperatures(self, temperature: Any) -> Any:
        """Return temperatures of the energy."""
        return np.asarray(temperature, float) * self.loss / self.num_rows

    def energy(self, loss: Any) -> Any:
        """Return an energy, or the gain of one; words pass."""
        if self.loss == 1.0:
            return loss
        if isinstance(loss, Gain):
            return replace(loss, scale=loss.scale * self.loss, cap=loss.cap * self.loss)
        if isinstance(loss, ConstantGain):
            return ConstantGain(loss.value * self.loss)
        if callable(loss):
            return lambda step: self.loss * loss(step)  # type: ignore[operator]
        return self.loss * loss if is_number(loss) else loss


@dataclass(frozen=True)
class Task:
    """What is sampled. Posteriors of rows (`Bayesian`) and networks (`Supervised`) add to it."""

    target: Target
    batches: Batches

    @property
    def unit(self) -> Unit:
        return Unit()

    @property
    def steps_per_epoch(self) -> int | None:
        """Steps of an epoch, where the rows are taken epoch by epoch."""
        return None

    def start_from(self, start: Any) -> Any:
        """Return where replicas start, given what the user gave, or None."""
        return start

    @property
    def usual_replicas(self) -> int | None:
        """How many rungs this target needs, where it knows."""
        return None

    @property
    def tested_on(self) -> Any:
        """Arrays beside the rows on which results depend, None if there are none."""
        return None

    @property
    def has_exact_energies(self) -> bool:
        """Whether every step sees the energy itself, and not an estimate of it."""
        return self.batches.has_all_rows and self.target.noise is None and self.batches.can_refresh


def as_task(target: Any, batches: Any = None, batch_size: int | None = None) -> Task:
    """Return the task of a call: posteriors and networks bring their own rows."""
    if isinstance(target, Task):
        if batches is not None or batch_size is not None:
            raise ValueError(
                "The posterior has its own data: give no batches (and rx.bayesian its batch_size)."
            )
        return target
    has_data = batches is not None or batch_size is not None
    return Task(as_target(target), as_batches(batches, batch_size) if has_data else NoBatches())
