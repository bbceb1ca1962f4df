"""Methods to sample networks: DEO*, its baselines, and the training of start networks.

A method says which replicas there are, how they move and exchange, and which networks are
averaged. Learning rates are per mean loss, temperatures those of the posterior.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from replicax.algorithm import kernels
from replicax.algorithm.kernels import Kernel


class Clock(NamedTuple):
    """The length of a run."""

    epochs: int
    steps_per_epoch: int
    cycle_epochs: int  # of methods that go in cycles


class Method(NamedTuple):
    """One method to sample networks."""

    about: str
    learning_rate: Any  # by default: one, or (cold, hot)
    schedule: str = "none"
    temperature: float = 0.0
    momentum: float | None = None  # None: the user's
    is_single: bool = False  # one network, for as many epochs as all replicas would have together
    picks_all: bool = False  # average all networks now and then, not the coldest every epoch
    picks: bool = True  # False: nothing is averaged
    test_every: int = 1  # epochs
    draws_gaussian: bool = False  # SWAG: networks are drawn around each cycle's mean
    around: Callable[[Kernel, Clock], Kernel] = lambda kernel, clock: kernel

    @property
    def is_cyclical(self) -> bool:
        return self.around is _cycles

    @property
    def follows_length(self) -> bool:
        """Whether the learning rate depends on the number of epochs."""
        return self.around is _stepwise

    @property
    def has_ladder(self) -> bool:
        return self.schedule != "none"

    def kernel(self, momentum: float, clock: Clock) -> Kernel:
        decay = momentum if self.momentum is None else self.momentum
        inner = kernels.momentum(decay) if decay else kernels.sgld()
        return self.around(inner, clock)

    def weights(
        self, clock: Clock, kernel: Kernel, pick_every: int, burn_in: int = 0
    ) -> Callable[[int, int], np.ndarray]:
        """Build `weights(epoch, num_replicas) -> (rung,)`, of networks in the average; epochs
        count from 1."""

        def weights(epoch: int, num_replicas: int) -> np.ndarray:
            none, coldest = np.zeros(num_replicas), np.eye(num_replicas)[0]
            if not self.picks or self.draws_gaussian or epoch <= burn_in:
                return none
            if self.picks_all:
                return none if epoch % pick_every else np.ones(num_replicas)
            last_step = epoch * clock.steps_per_epoch - 1
            exploits = kernel.exploits is None or bool(kernel.exploits(last_step))
            return coldest if exploits else none

        return weights


def _cycles(kernel: Kernel, clock: Clock) -> Kernel:
    """The learning rate falls along a cosine until the last 15 % of a cycle, and stays there."""
    length = clock.cycle_epochs * clock.steps_per_epoch
    return kernels.cyclical(kernel, length, exploitation=0.15, hold=True)


def _stepwise(kernel: Kernel, clock: Clock) -> Kernel:
    """A fifth of the learning rate after 70 % of the epochs, and of that after 90 %."""
    falls = [round(share * clock.epochs) * clock.steps_per_epoch for share in (0.7, 0.9)]
    return kernels.stepwise(kernel, falls, factor=0.2)


METHODS = {
    "deo-star": Method("windowed even-odd exchange", (0.005, 0.02), schedule="deo_star"),
    "deo": Method("even-odd exchange", (0.005, 0.02), schedule="deo"),
    "ensemble": Method("independent networks", 0.005, picks_all=True),
    "sgld": Method(
        "independent networks with Langevin noise",
        0.005,
        temperature=1.0,
        momentum=0.0,
        picks_all=True,
    ),
    "cyc-sghmc": Method(
        "one network in cycles, averaged where they are slow",
        0.1,
        temperature=1e-3,
        is_single=True,
        around=_cycles,
    ),
    "cyc-swag": Method(
        "one network in cycles, a Gaussian fitted to each",
        0.1,
        is_single=True,
        draws_gaussian=True,
        around=_cycles,
    ),
    "pretrain": Method(
        "start networks from nothing", 0.1, picks=False, test_every=10, around=_stepwise
    ),
}
