"""`Plan`: a run in steps, from options that its user gave in steps or in epochs."""

from dataclasses import replace
from typing import NamedTuple

from replicax.errors import at_least
from replicax.run.methods import Method, written
from replicax.run.options import Run, Sampling, Training
from replicax.run.task import Task

PICK_EVERY = 10  # epochs between two averages of all networks of an ensemble


class Clock(NamedTuple):
    """The length of a training and of its parts, in epochs."""

    epochs: int  # of each network
    steps_per_epoch: int
    cycle_epochs: int  # of cyclical methods
    warmup_epochs: float = 0.0  # of a cosine schedule
    pick_every: int = PICK_EVERY  # between averages of all networks
    test_every: int = 1  # between evaluations
    pretrain_epochs: int = 0  # before networks are sampled


def clock_of(run: Training, method: Method, steps_per_epoch: int) -> Clock:
    """Return the clock of a training; its parts are at most as long as the run.

    A single network takes the epochs of all replicas.
    """
    epochs = run.epochs * run.num_replicas if method.is_single else run.epochs
    before = pretrain_epochs(run, method)
    return Clock(
        epochs,
        steps_per_epoch,
        min(method.cycle_epochs, epochs - before),
        epochs / 20 if method.warmup_epochs is None else method.warmup_epochs,
        min(PICK_EVERY, epochs),
        min(method.test_every, epochs),
        before,
    )


def pretrain_epochs(run: Training, method: Method) -> int:
    """Return the epochs in which networks are trained before they are sampled."""
    share = method.pretrain or 0.0
    return min(max(1, round(share * run.epochs)), run.epochs - 1) if share else 0


class Plan(NamedTuple):
    """A run in steps."""

    num_steps: int
    num_replicas: int
    burn_in: int  # steps before the first draw
    thin: int  # steps between draws
    history_every: int
    tuned_until: int | None  # where temperatures stop adapting; None: they go on
    clock: Clock | None = None  # of a training

    @property
    def pretrain_steps(self) -> int:
        """Steps in which networks are trained before they are sampled."""
        return 0 if self.clock is None else self.clock.pretrain_epochs * self.clock.steps_per_epoch

    @property
    def evaluate_every(self) -> int | None:
        """Steps between two evaluations of networks."""
        return None if self.clock is None else self.clock.test_every * self.clock.steps_per_epoch


def plan_of(task: Task, run: Run, method: Method) -> Plan:
    """Return a run in steps, from options that leave nothing open."""
    if isinstance(run, Sampling):
        assert run.burn_in is not None and run.thin is not None and run.history_every is not None
        return Plan(
            run.num_steps,
            1 if run.num_replicas is None else run.num_replicas,  # None is refused
            run.burn_in,
            run.thin,
            run.history_every,
            tuned_until=run.burn_in or None,
        )
    assert isinstance(run, Training) and task.steps_per_epoch is not None
    steps, clock = task.steps_per_epoch, clock_of(run, method, task.steps_per_epoch)
    return Plan(
        clock.epochs * steps,
        1 if method.is_single else run.num_replicas,
        burn_in=steps - 1,  # draws are taken at the end of an epoch
        thin=steps,
        history_every=steps,
        tuned_until=(run.burn_in or 0) * steps,
        clock=clock,
    )


def check_extends(run: Run, method: Method, epochs: int | None) -> None:
    """Raise unless a training of `epochs` epochs begins like the one that was made.

    What depends on the length of a run cannot change after it has begun.
    """
    if epochs is None or not isinstance(run, Training) or run.epochs == epochs:
        return
    at_least("epochs", epochs, 1)
    if epochs < run.epochs:
        raise ValueError(f"epochs is {epochs}, but the run was made for {run.epochs}.")
    shorter, longer = clock_of(run, method, 1), clock_of(replace(run, epochs=epochs), method, 1)
    if method.pretrain:
        raise ValueError(
            "How long the networks of a run are trained before they are sampled depends on its "
            "length: start a new run, from the networks of this one."
        )
    if method.follows_length:
        raise ValueError(
            f'The learning rate of a run with rate_schedule="{method.rate_schedule}" depends '
            "on its length: start a new run."
        )
    if method.is_cyclical and longer.cycle_epochs != shorter.cycle_epochs:
        raise ValueError(
            f"The run was made for {shorter.epochs} epochs of its network, less than a "
            f"cycle of {method.cycle_epochs}, and its only cycle was shortened to that length: "
            "start a new run, or train with "
            f"method={written(method.name, f'cycle_epochs={shorter.epochs}')} to add cycles later."
        )
    if method.picks_all and longer.pick_every != shorter.pick_every:
        raise ValueError(
            f"The networks of a run are averaged every {PICK_EVERY} epochs, or at the end of "
            f"a shorter run, such as this one of {run.epochs}: start a new run, with at least "
            f"{PICK_EVERY} epochs."
        )
