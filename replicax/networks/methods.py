"""Methods to sample networks: DEO*, its baselines, tempered SGHMC, and pretraining.

A `Method` is plain data: its replicas, how they move and exchange, and which networks are averaged.
Learning rates refer to the mean loss, temperatures to the posterior.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from replicax.algorithm import kernels
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.schedule import NoExchange
from replicax.algorithm.timed_kernels import check_factors
from replicax.errors import at_least, check_flag, check_function, choose, show
from replicax.run.options import check_rungs

MOMENTUM = 0.9  # default momentum of SGD
AVERAGES = ("coldest", "all", "gaussian", "nothing")
KERNELS = ("momentum", "sghmc", "sgld", "sgd", "preconditioned")
RATE_SCHEDULES = ("constant", "cosine", "cyclical", "stepwise")


class Clock(NamedTuple):
    """The length of a run."""

    epochs: int
    steps_per_epoch: int
    cycle_epochs: int  # epochs per cycle of cyclical methods
    warmup_epochs: float = 0.0  # warm-up of a cosine schedule


@dataclass(frozen=True)
class Method:
    """A method to sample networks; every field except the name is optional.

    Args:
        name: its name in results and messages.
        learning_rate: the default, relative to the mean loss: one number, or (cold, hot) for a
            ladder.
        temperature: the default temperature of the posterior: one number, for the coldest rung of a
            ladder or for all networks without one; (cold, hot), one per rung, or "auto" for a
            ladder.
        kernel: "momentum" and "sghmc" (with the `momentum` of `rx.train`), "sgld",
            "preconditioned", a kernel of `rx.kernels`, or an optax transform of learning rate 1.
        rate_schedule: the learning rate over time: "constant", "cosine", "cyclical", "stepwise",
            or a function of the step that returns a factor for the rates of all rungs.
        schedule, rule, swap_every: as in `rx.sample`; the schedule "none" has no ladder.
        averages: the "coldest" network of every epoch, "all" networks every tenth epoch, networks
            drawn from a "gaussian" fitted to each cycle, or "nothing".
        is_single: one network, trained for as many epochs as all replicas would have together.
        tempers_likelihood: rungs sample prior x likelihood^(1 / temperature).
        test_every: epochs between evaluations.
        about: a short description.
    """

    name: str
    learning_rate: Any = 0.005
    temperature: Any = 0.0
    kernel: Any = "momentum"
    rate_schedule: Any = "constant"
    schedule: Any = "none"
    rule: Any = "deterministic"
    swap_every: int = 1
    averages: str = "coldest"
    is_single: bool = False
    tempers_likelihood: bool = False
    test_every: int = 1
    about: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ValueError(f"name is {show(self.name)}; give the method a name, as text.")
        choose("averages", self.averages, AVERAGES)
        for name in ("is_single", "tempers_likelihood"):
            check_flag(name, getattr(self, name))
        for name in ("test_every", "swap_every"):
            at_least(name, getattr(self, name), 1)
        if isinstance(self.kernel, str):
            choose("kernel", self.kernel, KERNELS)
        check_rate_schedule(self.rate_schedule)
        if self.is_single and self.has_ladder:
            raise ValueError(
                f"schedule is {show(self.schedule)}, but is_single means one network, which has no "
                'ladder: write schedule="none".'
            )
        for name in ("learning_rate", "temperature"):
            check_rungs(name, getattr(self, name))
            if np.ndim(getattr(self, name)) and not self.has_ladder:
                raise ValueError(
                    f"{name} is {show(getattr(self, name))}, and a method without a schedule has "
                    'no ladder: give one number, or schedule="deo_star".'
                )
        if self.draws_gaussian and not self.is_cyclical:
            raise ValueError(
                'averages is "gaussian", which is fitted to the end of each cycle: write '
                'rate_schedule="cyclical".'
            )
        if self.draws_gaussian and self.test_every > 1:
            raise ValueError(
                f'test_every is {self.test_every}, and a "gaussian" is fitted to the networks of '
                "all epochs: leave out test_every."
            )

    @property
    def picks(self) -> bool:
        """Whether anything is averaged."""
        return self.averages != "nothing"

    @property
    def picks_all(self) -> bool:
        """Whether all networks are averaged every few epochs, instead of the coldest of every
        epoch."""
        return self.averages == "all"

    @property
    def draws_gaussian(self) -> bool:
        """SWAG: networks are drawn around each cycle's mean."""
        return self.averages == "gaussian"

    @property
    def is_cyclical(self) -> bool:
        return self.rate_schedule == "cyclical"

    @property
    def follows_length(self) -> bool:
        """Whether the learning rate depends on the number of epochs."""
        return self.rate_schedule in ("stepwise", "cosine")

    @property
    def has_ladder(self) -> bool:
        return has_ladder(self.schedule)

    def build_kernel(self, momentum: float, clock: Clock, clip_norm: float | None = None) -> Kernel:
        """Return the kernel with gradient clipping and the schedule of learning rates."""
        kernel = _inner_kernel(self.kernel, momentum)
        if clip_norm is not None:
            kernel = kernels.clipped(kernel, clip_norm)
        if callable(self.rate_schedule):
            check_factors("rate_schedule", self.rate_schedule, clock.epochs * clock.steps_per_epoch)
            return kernels.scheduled(kernel, self.rate_schedule)
        return _IN_TIME[self.rate_schedule](kernel, clock)

    def weights(
        self, clock: Clock, kernel: Kernel, pick_every: int, burn_in: int = 0
    ) -> Callable[[int, int], np.ndarray]:
        """Build `weights(epoch, num_replicas) -> (rung,)`, the weights of networks in the average;
        epochs count from 1."""

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


def has_ladder(schedule: Any) -> bool:
    """Return whether networks exchange rungs under a schedule."""
    return not (schedule == "none" or isinstance(schedule, NoExchange))


def check_rate_schedule(schedule: Any) -> None:
    """Raise unless this is the name of a learning-rate schedule or a function of the step."""
    if callable(schedule) and not isinstance(schedule, type):
        check_function("rate_schedule", schedule, "step")
    else:
        choose("rate_schedule", schedule, RATE_SCHEDULES)


def _inner_kernel(kernel: Any, momentum: float) -> Kernel:
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        return kernels.from_optax(kernel)
    if kernel in ("momentum", "sghmc"):
        return kernels.momentum(momentum) if momentum else kernels.sgld()
    return kernels.NAMED[kernel]()


def _cycles(kernel: Kernel, clock: Clock) -> Kernel:
    """The learning rate falls along a cosine until the last 15 % of a cycle, and stays there."""
    length = clock.cycle_epochs * clock.steps_per_epoch
    return kernels.cyclical(kernel, length, exploitation=0.15, hold=True)


def _stepwise(kernel: Kernel, clock: Clock) -> Kernel:
    """A fifth of the learning rate after 70 % of the epochs, and of that after 90 %."""
    falls = [round(share * clock.epochs) * clock.steps_per_epoch for share in (0.7, 0.9)]
    return kernels.stepwise(kernel, falls, factor=0.2)


def _cosine(kernel: Kernel, clock: Clock) -> Kernel:
    """The learning rate rises in the warm-up, and falls along half a cosine to the end."""
    warmup = round(clock.warmup_epochs * clock.steps_per_epoch)
    return kernels.cosine(kernel, clock.epochs * clock.steps_per_epoch, warmup)


_IN_TIME: dict[str, Callable[[Kernel, Clock], Kernel]] = {
    "constant": lambda kernel, clock: kernel,
    "cosine": _cosine,
    "cyclical": _cycles,
    "stepwise": _stepwise,
}
_ALL = (
    Method("deo-star", (0.005, 0.02), schedule="deo_star", about="windowed even-odd exchange"),
    Method("deo", (0.005, 0.02), schedule="deo", about="even-odd exchange"),
    Method(
        "sghmc-pt",
        0.005,
        kernel="sghmc",
        temperature="auto",
        schedule="deo",
        rule="bias_corrected",
        swap_every=10,
        tempers_likelihood=True,
        about="the posterior at temperature 1: tempered likelihoods, swaps on further mini-batches",
    ),
    Method("ensemble", averages="all", about="independent networks"),
    Method(
        "sgld",
        kernel="sgld",
        temperature=1.0,
        averages="all",
        about="independent networks with Langevin noise",
    ),
    Method(
        "cyc-sghmc",
        0.1,
        temperature=1e-3,
        is_single=True,
        rate_schedule="cyclical",
        about="one network in cycles, averaged where they are slow",
    ),
    Method(
        "cyc-swag",
        0.1,
        is_single=True,
        averages="gaussian",
        rate_schedule="cyclical",
        about="one network in cycles, a Gaussian fitted to each",
    ),
    Method(
        "pretrain",
        0.1,
        averages="nothing",
        test_every=10,
        rate_schedule="stepwise",
        about="start networks from nothing",
    ),
)
METHODS = {method.name: method for method in _ALL}
