"""Problems that make a training useless: errors at its start, and warnings at its end."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.networks.outcomes import Classes, from_json
from replicax.networks.task import Supervised
from replicax.run.carry import Carry
from replicax.run.initial import have_one_start
from replicax.run.methods import Method, is_several, written
from replicax.run.options import Training
from replicax.run.program import Program
from replicax.run.records import Evaluation

if TYPE_CHECKING:
    from replicax.networks.trained import Trained

_WORSE = 10  # times the score by chance: nothing can be learnt from such a network


def checked_first(evaluation: Evaluation, method: Method) -> Evaluation:
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
                f"their losses were: write a smaller {_rates(method)}. Are the test inputs finite, "
                "and prepared like the training inputs?"
            )
        has_tested = True
        return state, row, *more

    return replace(evaluation, evaluate=evaluate)


def _rates(method: Method) -> str:
    """Return how the learning rates of a method are written."""
    rates = "learning_rate=(cold, hot)" if is_several(method.learning_rate) else "learning_rate=..."
    return f"learning_rate, as in method={written(method.name, rates)}"


def check_apart(problem: Supervised, program: Program, like: Any, carry: Carry) -> None:
    """Raise if networks that start at one point would stay identical, as they see the same
    batches."""
    count, method = program.num_replicas, program.method
    is_alone = method.has_ladder or count == 1 or np.any(program.ladder.temperature)
    if is_alone or not have_one_start(carry) or problem.is_random(like):
        return
    raise ValueError(
        f'The start is one point for all {count} networks of the method "{method.name}", '
        "which moves them without noise, so they would stay identical: give a function of a key, "
        "such as network.init, or rx.per_replica(...)."
    )


def check_start(trained: "Trained") -> None:
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


def find_training_problems(trained: "Trained") -> list[str]:
    """Return reasons why the average of a training is useless, as sentences."""
    method, done, problems = trained.metadata.method, trained.num_epochs, []
    ended = trained.result.code == "finished" and method.picks
    if ended and float(trained.average.weight) == 0:
        problems.append(f"No network was averaged in {done} epochs: write more epochs.")
    rates = _rates(method)
    hot = f"hot end of {rates}" if is_several(method.learning_rate) else rates
    nll = trained.epochs.get("nll", np.zeros((0, 1)))
    if len(nll) and nll.ndim == 2 and not np.isfinite(nll[-1]).all():
        broken = np.flatnonzero(~np.isfinite(nll[-1])).tolist()
        problems.append(
            f"The networks on rungs {broken} have non-finite predictions at the end: write a "
            f"smaller {hot}."
        )
    name, values, guess = _last_scores(trained)
    beyond = np.isfinite(values) & (values > _WORSE * guess)
    worse = np.flatnonzero(beyond).tolist() if guess else []
    if worse:
        where = "in the last step" if trained.likelihood is None else "on the test"
        problems.append(
            f"The networks on rungs {worse} predict far worse than chance, with {name} "
            f"of {np.max(values[worse]):.3g} {where} instead of {guess:.3g}: write a smaller "
            f"{rates if 0 in worse else hot}."
        )
    return problems


def _last_scores(trained: "Trained") -> tuple[str, np.ndarray, float]:
    """Return the name of a score, its last values by rung, and its value by chance (0: unknown)."""
    law = trained.likelihood
    if law is None:
        predicts = None if trained.predicts is None else from_json(trained.predicts.likelihood)
        guess = predicts.chance if isinstance(predicts, Classes) else 0.0
        name, values = "a loss", trained._final("energy")[0] / trained.energy_scale
    elif isinstance(law, Classes):
        name, values, guess = "an NLL", _last_test(trained, "nll"), law.chance
    else:
        spread = np.std(trained.labels, axis=0)
        name, values = "an RMSE", _last_test(trained, "rmse")
        guess = np.sqrt(np.mean(np.square(spread)))
    # Hot rungs of a tempered likelihood are near the prior, which need not fit the data.
    shown = 1 if trained.metadata.method.tempers_likelihood else None
    return name, np.atleast_1d(values)[:shown], float(guess)


def _last_test(trained: "Trained", score: str) -> np.ndarray:
    """Return the last values of a score by rung; none before the first test."""
    values = trained.epochs.get(score, np.zeros(0))
    return values[-1] if values.size else np.zeros(0)


def why_none_kept(trained: "Trained") -> str:
    """Return why a run has no networks to predict with."""
    run = trained.metadata.run
    if isinstance(run, Training) and run.keep_averaged == 0:
        return "No networks were kept: train with keep_averaged=100."
    if trained.metadata.method.picks and float(trained._final("average.weight")):
        return (
            "The networks of the average were not kept, as in folders of earlier versions: train "
            "again to predict."
        )
    return why_none_averaged(trained)


def why_none_averaged(trained: "Trained") -> str:
    """Return why a run has no average."""
    none = "No network has been averaged, so there is none to predict with"
    if not trained.metadata.method.picks:
        return (
            f'{none}: the method "{trained.method}" only trains; start another run from this one.'
        )
    if trained.result.code == "nonfinite":
        return f"{none}. {trained.result.sentence}"
    return (
        f"{none}: train for more epochs than burn_in, and for a whole cycle if the method has "
        "cycles."
    )
