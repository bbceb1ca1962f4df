"""Problems that make a training useless: errors at its start, and warnings at its end."""

from dataclasses import replace
from typing import Any

import numpy as np

from replicax.run.evaluation import Evaluation
from replicax.run.rows import Carry

_WORSE = 10  # times the NLL of one that guesses: nothing can be learnt from such a network


def checked_first(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation, which raises if in its first test no network has finite
    predictions."""
    inner, has_tested = evaluation.evaluate, False

    def evaluate(state: Any, carry: Carry) -> Any:
        nonlocal has_tested
        state, row, *more = inner(state, carry)
        nll = np.asarray(row.get("nll", 0.0))
        if not has_tested and not np.isfinite(nll).any():
            raise ValueError(
                f"The predictions of all {nll.size} networks on the test are not finite, although "
                "their losses were: write a smaller learning_rate. Are the test inputs finite, and "
                "prepared like the training inputs?"
            )
        has_tested = True
        return state, row, *more

    return replace(evaluation, evaluate=evaluate)


def check_apart(problem: Any, options: Any, like: Any) -> None:
    """Raise if networks that start at one point would stay identical, as they see the same
    batches."""
    count = options.num_replicas
    is_alone = options.base.has_ladder or options.base.is_single or count == 1
    if is_alone or np.any(options.sampler(problem).temperature) or problem.is_random(like):
        return
    raise ValueError(
        f'The start is one point for all {count} networks of the method "{options.method_name}", '
        "which moves them without noise, so they would stay identical: give a function of a key, "
        "such as network.init, or rx.per_replica(...)."
    )


def check_start(trained: Any) -> None:
    """Raise if the loss was not finite at the start, before a network had moved."""
    code, _ = trained.result
    if code != "nonfinite" or trained.num_steps > 1:
        return
    energy = np.asarray(trained._records.final["energy"])[0]
    rung = int(np.argmin(np.isfinite(energy)))
    raise ValueError(
        f"The loss of the start is {energy[rung]} for network {rung}, before it has moved: are "
        "inputs and labels finite, and is the loss defined for all of them?"
    )


def find_training_problems(trained: Any) -> list[str]:
    """Return reasons why the average of a training is useless, as sentences."""
    options, done, problems = trained.train_options, trained.num_epochs, []
    ended = trained.result.code == "finished" and options.base.picks
    if ended and float(trained.average.weight) == 0:
        remedy = "a smaller settle_epochs" if options.settle_epochs else "more epochs"
        problems.append(f"No network was averaged in {done} epochs: write {remedy}.")
    nll = trained.epochs.get("nll", np.zeros((0, 1)))
    if len(nll) and nll.ndim == 2 and not np.isfinite(nll[-1]).all():
        broken = np.flatnonzero(~np.isfinite(nll[-1])).tolist()
        problems.append(
            f"The networks on rungs {broken} have non-finite predictions at the end: write a "
            "smaller hot end of learning_rate."
        )
    classes = getattr(trained.likelihood, "num_classes", None)
    if len(nll) and nll.ndim == 2 and classes:
        worse = np.flatnonzero(nll[-1] > _WORSE * np.log(classes)) if classes > 1 else np.zeros(0)
        if worse.size:
            problems.append(
                f"The networks on rungs {worse.tolist()} predict far worse than chance, with an "
                f"NLL of {np.max(nll[-1][worse]):.3g} on the test instead of "
                f"{np.log(classes):.3g}: write a smaller "
                f"{'learning_rate' if 0 in worse else 'hot end of learning_rate'}."
            )
    return problems
