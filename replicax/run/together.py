"""`together`: several runs side by side on one device, in one compiled program."""

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from replicax.errors import show
from replicax.run.common_steps import Cancelled, CommonSteps
from replicax.run.compiled_loop import SHARED_STEPS
from replicax.run.host_loop import interruptible

_LOOK_SECONDS = 0.2
Run = TypeVar("Run")


def together(calls: Sequence[Callable[[], Run]]) -> list[Run]:
    """Run several runs side by side, and return what their calls return, in the same order.

    One small network, or a few replicas, leave an accelerator idle. Runs whose steps are the same,
    such as those of several seeds, take them in one program. Each keeps its own folder, records and
    average, and is the run that it would be alone, to rounding.

    >>> import functools
    >>> import replicax as rx
    >>> target = rx.targets.modes25()
    >>> posteriors = rx.together([
    ...     functools.partial(
    ...         rx.sample, target, rx.targets.modes25_start, num_steps=200, num_replicas=4,
    ...         learning_rate=(0.003, 0.6), seed=seed, progress=False,
    ...     )
    ...     for seed in range(3)
    ... ])  # fmt: skip
    >>> [posterior.num_steps for posterior in posteriors]
    [200, 200, 200]

    Args:
        calls: functions without arguments, each of which makes one call of `rx.train`,
            `rx.sample` or `rx.resume`. The runs may differ in `seed`, start, `learning_rate`,
            `temperature`, `run_dir`, in what a method averages, and in their length; all else, the
            data included, is the same. Callbacks are called from several threads.
    """
    calls = list(calls)
    for call in calls:
        if not callable(call):
            raise ValueError(
                f"calls has {show(call)}; give functions without arguments, such as "
                "functools.partial(rx.train, problem, start, seed=1)."
            )
    results: list[Any] = [None] * len(calls)
    errors: list[BaseException | None] = [None] * len(calls)

    def run(number: int, steps: CommonSteps) -> None:
        SHARED_STEPS.set(steps)
        try:
            results[number] = calls[number]()
        except BaseException as error:
            errors[number] = error
        steps.leave(errors[number])

    with interruptible() as signals:
        steps = CommonSteps(len(calls), signals)
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run, args=(run, number, steps), daemon=True
            )
            for number in range(len(calls))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(_LOOK_SECONDS)  # in between Python handles signals
    told = [error for error in errors if error is not None]
    for error in sorted(told, key=lambda error: isinstance(error, Cancelled)):
        raise error
    return results
