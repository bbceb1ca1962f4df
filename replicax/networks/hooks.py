"""User-defined evaluations, whose numbers are added to the table of epochs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.errors import show
from replicax.networks.predict import Average
from replicax.run.evaluation import Evaluation
from replicax.run.rows import Carry


class Epoch(NamedTuple):
    """The argument of a user's function `evaluate(epoch)`: the state of a run after an epoch."""

    number: int  # counted from 1
    networks: Any  # (params, model_state), leading axis: rung, coldest first
    numbers: dict[str, np.ndarray]  # test results, as in `Trained.epochs`
    average: Average  # running sums over the networks picked so far


def with_hook(
    evaluation: Evaluation, hook: Callable[[Epoch], Any], steps_per_epoch: int
) -> Evaluation:
    """Return the evaluation with the numbers of `hook` added to its rows."""
    inner, shapes = evaluation.evaluate, {}
    running = evaluation.running
    assert running is not None

    def evaluate(state: Any, carry: Carry) -> Any:
        state, row, *more = inner(state, carry)
        order = np.asarray(carry.state.replica_at)[0]
        epoch = Epoch(
            int(carry.state.step) // steps_per_epoch,
            jax.tree.map(lambda leaf: leaf[0][order], carry.state.points),
            {name: np.asarray(value) for name, value in row.items()},
            running(state),
        )
        numbers = _numbers(hook(epoch), row)
        found = {name: value.shape for name, value in numbers.items()}
        if shapes and found != shapes:
            raise ValueError(
                f"evaluate returned {show(found)} after epoch {epoch.number}, and {show(shapes)} "
                "before (names and shapes): return the same numbers after every epoch."
            )
        shapes.update(found)
        return state, {**row, **numbers}, *more

    return Evaluation(evaluation.state, evaluate, evaluation.final, running)


def _numbers(returned: Any, row: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the result of the user's function as arrays; raise unless they are numbers."""
    if not isinstance(returned, dict) or not all(isinstance(name, str) for name in returned):
        raise ValueError(
            f"evaluate returned {show(returned)}; return a dict of numbers by name, such as "
            '{"f1": f1}.'
        )
    numbers = {name: np.asarray(value) for name, value in returned.items()}
    for name, value in numbers.items():
        if value.dtype.kind not in "biufV":
            raise ValueError(
                f"evaluate returned {show(returned[name])} as {name}; return numbers, or arrays of "
                "numbers."
            )
        if name in row or name == "epoch":
            raise ValueError(
                f"evaluate returned {name}, which is already in the table of epochs: choose "
                "another name."
            )
    return numbers
