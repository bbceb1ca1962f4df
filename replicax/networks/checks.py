"""Problems that make a training useless: errors at its start, and warnings at its end."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.networks.outcomes import Classes, from_json
from replicax.networks.task import Supervised
from replicax.results.diagnostics import rhat
from replicax.run.carry import Carry
from replicax.run.initial import have_one_start
from replicax.run.methods import Method, is_several, written
from replicax.run.options import Training
from replicax.run.program import Program
from replicax.run.records import Evaluation

if TYPE_CHECKING:
    from replicax.networks.trained import Trained

_FEWEST_DRAWS = 8  # of each member, for R-hat
_PAIRS = 16  # of rows, at which predictions are compared
_UNMIXED = 1.2  # R-hat
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


def find_rhat(trained: "Trained") -> float | None:
    """Return R-hat over members, in halves, of what sampled networks predict between rows and
    beyond them, which few outputs exceed; None where nothing is sampled, or too little was kept."""
    problem, method = trained._target, trained.metadata.method
    predictor, data = (getattr(problem, name, None) for name in ("predictor", "batches"))
    data = getattr(data, "data", None)
    is_pair = predictor is not None and isinstance(data, tuple | list) and len(data) == 2
    sampled = method.measures_rates and not method.has_ladder
    if not (is_pair and sampled and trained._records.length("networks")):
        return None
    networks = trained.networks
    count = len(set(networks.rung))
    draws = len(networks.rung) // count
    if draws < _FEWEST_DRAWS or count * draws != len(networks.rung):
        return None
    assert data is not None
    some = jax.tree.map(_between, data[0])
    outputs: Any = predictor.outputs  # type: ignore[union-attr]
    of_all = jax.jit(lambda points: jax.lax.map(lambda one: outputs(*one, some), points))
    values = np.asarray(of_all(trained.points), float).reshape(draws, count, -1)
    return float(np.quantile([rhat(column.T) for column in np.moveaxis(values, 2, 0)], 0.9))


def _between(rows: Any) -> Any:
    """Return inputs between pairs of rows and beyond them, where what is not known shows; other
    inputs than real numbers as they are."""
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        return jnp.asarray(rows[: 2 * _PAIRS])
    one, other = rows[: len(rows) // 2][:_PAIRS], rows[-(len(rows) // 2) :][:_PAIRS]
    return jnp.concatenate([one + share * (other - one) for share in (0.5, 1.5)])


def mixing_problem(found: float | None, method: Method) -> str | None:
    """Return a sentence about members that have not gone far enough; None if they have."""
    if found is None or found < _UNMIXED:
        return None
    fewer = f"; or fewer than steps_per_move={method.steps_per_move}, which cost more each"
    return (
        f"R-hat over the members' predictions between rows and beyond them is {found:.2f}: they "
        "are still near the networks that were trained, and the spread of predictions may be wrong "
        f"there. Write more epochs{fewer if (method.steps_per_move or 1) > 1 else ''}."
    )


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
