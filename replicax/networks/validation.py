"""What is decided by rows that are held out of the training: when a training ends, and when it
turns into sampling.

Networks are scored on these rows after every epoch. Their loss has stopped falling where in a tenth
of the epochs, one after the other, it is above the lowest one before by `RISE`, in nats of a row:
less, or shorter, is the noise of epochs at a high rate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.data.dataset import held_out
from replicax.networks.evaluate import build_outputs
from replicax.networks.pairs import of_mean_one
from replicax.networks.rates import Rates
from replicax.networks.task import Supervised, Tested, tested_by
from replicax.run.batches import EpochBatches
from replicax.run.carry import Carry
from replicax.run.methods import Method
from replicax.run.options import Training
from replicax.run.parts import Clock
from replicax.run.program import Program
from replicax.run.records import Evaluation

SHARE = 0.1  # of the rows, that are held out unless the run says how many
RISE = 0.05  # of the loss of a row
_LONG, _FEWEST = 0.1, 3  # of the epochs, and epochs at least, in which it stays above that
_FEWEST_LEFT = 4  # epochs that a sampling takes at least
_HOT, _COLD = 0.5, 0.1  # rates of the sampling at its begin and at its end, of the peak rate


def share_of(run: Training, method: Method) -> float:
    """Return the share of the rows that is held out of the training."""
    needed = run.early_stop is not None or method.sample_from == "validation"
    return run.hold_out if run.hold_out is not None else SHARE * needed


def without_held_out(problem: Supervised, share: float) -> Supervised:
    """Return the problem with a share of its rows held out, the same ones each time."""
    if not share:
        return problem
    batches, predictor = problem.batches, problem.predictor
    is_pair = isinstance(batches, EpochBatches) and isinstance(batches.data, tuple | list)
    if not is_pair or len(batches.data) not in (2, 3) or predictor is None:
        raise ValueError(
            "Rows are held out of arrays (inputs, labels or targets) with a network: give those; "
            "for a source or a loss of your own leave out early_stop and hold_out, and of "
            "rx.ensemble_then_sample write sample_from=0.7, say."
        )
    count = max(1, round(share * problem.num_rows))
    mask = held_out("the data", "rows", problem.num_rows, count, 0)
    kept, held = (
        jax.tree.map(lambda leaf, rows=rows: leaf[np.flatnonzero(rows)], batches.data)
        for rows in (~mask, mask)
    )
    inputs, outcomes, *weights = kept
    weights = [jnp.asarray(of_mean_one(np.asarray(weight))) for weight in weights]
    batches = replace(batches, data=(inputs, outcomes, *weights))
    return replace(problem, batches=batches, validation=tested_by(predictor, *held))


@dataclass
class Phase:
    """Where a run stands, for the host alone; a copy of what `Watch` stores."""

    begun: int = 0  # the epoch after which networks are sampled; 0: they are trained
    stopped: int = 0  # the epoch after which the training was stopped early

    def reason_to_stop(self, progress: Any) -> str | None:
        """A callback."""
        del progress
        if not self.stopped:
            return None
        return f"stop: the validation loss has not fallen any more (epoch {self.stopped})"


class Watch(NamedTuple):
    """The state of the evaluation."""

    inner: Any
    losses: Array  # (epoch,) mean over networks
    begun: Array  # ()
    stopped: Array  # ()
    best: Any  # networks of the epoch with the lowest loss, (params, model_state); None: not kept


def is_rising(losses: np.ndarray, num_epochs: int) -> bool:
    """Return whether the loss has stopped falling, of the epochs so far of so many.

    >>> is_rising(np.array([2.0, 1.5, 1.2, 1.1, 1.0, 1.02]), 40)
    False
    >>> is_rising(np.array([2.0, 1.1, 1.2, 1.3, 1.3, 1.4]), 40)
    True
    """
    width = max(_FEWEST, round(_LONG * num_epochs))
    before, last = losses[:-width], losses[-width:]
    return len(before) > 0 and bool(last.min() > before.min() + RISE)


def sampling_factor(epoch: int, begun: int, num_epochs: int, first: float) -> float:
    """Return the factor of the peak rate in an epoch of the sampling: along half a cosine from
    `first` in its first half, and constant in the second, whose networks are averaged."""
    half = max((num_epochs - begun) // 2, 1)
    place = min((epoch - begun - 1) / half, 1.0)
    return _COLD + (first - _COLD) * 0.5 * (1 + np.cos(np.pi * place))


def is_averaged(epoch: int, begun: int, num_epochs: int) -> bool:
    """Return whether the networks of an epoch are averaged."""
    return epoch > begun + (num_epochs - begun) // 2 if begun else epoch == num_epochs


@dataclass
class Watched(Evaluation):
    """An evaluation that looks at held-out rows, and changes the rest of the run."""

    program: Program = field(kw_only=True)
    clock: Clock = field(kw_only=True)
    phase: Phase = field(kw_only=True)
    rates: Rates | None = None  # None: they follow from the peak rate

    def first(self, program: Program, carry: Carry) -> Carry:
        """Return the carry without noise where networks are trained before they are sampled."""
        if program.method.sample_from is None:
            return carry
        cold = jnp.zeros_like(carry.state.ladder.temperature)
        return _with_ladder(carry, temperature=cold)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry with the rates of the next epoch, and the row of the evaluation."""
        carry, row = super().after_chunk(program, carry, num_steps, records)
        begun = int(self.state.begun)
        if not row or not begun:
            return carry, row
        done, until = int(carry.state.step) // self.clock.steps_per_epoch, self.clock.epochs
        heats = jnp.asarray(program.ladder.temperature, carry.state.ladder.temperature.dtype)
        heats = jnp.broadcast_to(heats, carry.state.ladder.temperature.shape)
        carry = _with_ladder(carry, temperature=heats)
        if self.rates is None:
            factor = self._factor(program, done + 1)
            rates = jnp.asarray(program.ladder.learning_rate, heats.dtype) * factor
            return _with_ladder(carry, learning_rate=jnp.broadcast_to(rates, heats.shape)), row
        if self.rates.is_due(done, begun, begun + (until - begun) // 2):
            carry = self.rates.renewed(carry, np.asarray(heats)[0], is_first=done == begun)
        return carry, row

    def _factor(self, program: Program, epoch: int) -> float:
        """Return the factor of the peak rate in an epoch of the sampling."""
        begun, epochs = int(self.state.begun), self.clock.epochs
        first = max(0.5 * (1 + np.cos(np.pi * begun / epochs)), _COLD)
        if program.method.sample_from != "validation":
            first = _HOT
        return sampling_factor(epoch, begun, epochs, first)


def _with_ladder(carry: Carry, **values: Array) -> Carry:
    state = carry.state
    return carry._replace(state=state._replace(ladder=state.ladder._replace(**values)))


def build_watched(
    evaluation: Evaluation,
    problem: Supervised,
    program: Program,
    clock: Clock,
    phase: Phase,
    like: Any,
) -> Evaluation:
    """Build an evaluation around another, which looks at the held-out rows after every epoch and
    decides by them; `like` has the shapes of one network."""
    run = program.run
    assert isinstance(run, Training)
    score, patience = _build_score(problem.validation), run.early_stop

    def evaluate(state: Watch, carry: Carry) -> tuple[Watch, dict[str, Any], Any]:
        points, epoch = carry.state.points, int(carry.state.step) // clock.steps_per_epoch
        phase.begun, phase.stopped = int(state.begun), int(state.stopped)
        losses, best, row = np.array(state.losses), state.best, {}
        if score is not None:
            row["validation"] = np.asarray(score(points))
            losses[epoch - 1] = row["validation"].mean()
        so_far = losses[:epoch]
        if patience is not None:
            if epoch == 1 or so_far[-1] < so_far[:-1].min():
                best = jax.tree.map(jnp.copy, points)
            is_over = epoch == clock.epochs or epoch - 1 - int(np.argmin(so_far)) >= patience
            if is_over and not phase.stopped:
                phase.stopped = 0 if epoch == clock.epochs else epoch
                carry = _at(carry, best)
        elif not phase.begun and _begins(program.method, clock, so_far):
            phase.begun = epoch
        inner, others, networks = evaluation.evaluate(state.inner, carry)
        begun, stopped = jnp.array(phase.begun), jnp.array(phase.stopped)
        state = Watch(inner, jnp.asarray(losses), begun, stopped, best)
        return state, {**others, **row}, networks

    def final(state: Watch) -> dict[str, np.ndarray]:
        own = {"begun": np.asarray(state.begun), "losses": np.asarray(state.losses)}
        named = {f"validation.{name}": value for name, value in own.items()}
        return {**evaluation.final(state.inner), **named}

    best, running, measures = None, evaluation.running, program.method.measures_rates
    if patience is not None:
        lead = (1, program.num_replicas)
        best = jax.tree.map(lambda leaf: jnp.zeros((*lead, *leaf.shape), leaf.dtype), like)
    return Watched(
        Watch(evaluation.state, jnp.full(clock.epochs, jnp.nan), jnp.array(0), jnp.array(0), best),
        evaluate,
        final,
        None if running is None else lambda state: running(state.inner),
        program=program,
        clock=clock,
        phase=phase,
        rates=Rates(problem, program) if measures else None,
    )


def _begins(method: Method, clock: Clock, losses: np.ndarray) -> bool:
    """Return whether networks are sampled after the last epoch of these losses: after the share
    that is given, or where the validation loss has stopped falling and enough epochs are left."""
    epoch, share = len(losses), method.sample_from
    if not isinstance(share, str):
        return share is not None and epoch == round(share * clock.epochs)
    return clock.epochs - epoch >= _FEWEST_LEFT and is_rising(losses, clock.epochs)


def _build_score(tested: Tested | None) -> Callable[[Any], Array] | None:
    """Build `score(points) -> (network,)`, the mean loss on the held-out rows."""
    if tested is None:
        return None
    outputs = build_outputs(tested)

    @jax.jit
    def score(points: Any, inputs: Any, targets: Array, weights: Any) -> Array:
        values = outputs(jax.tree.map(lambda leaf: leaf[0], points), inputs)
        law = tested.likelihood
        return jax.vmap(lambda one: law.score(one, targets, weights)["nll"])(values)

    return lambda points: score(points, tested.inputs, tested.targets, tested.weights)


def _at(carry: Carry, points: Any) -> Carry:
    """Return the carry with its networks at other points, for an evaluation."""
    params, model_state = points
    replicas = carry.state.replicas._replace(params=params)
    state = carry.state._replace(replicas=replicas, model_state=model_state)
    return carry._replace(state=state)


def decision(method: Method, clock: Clock, begun: int, losses: np.ndarray) -> str:
    """Return in a sentence what a run decided, and why."""
    if method.sample_from != "validation":
        return f"Networks were sampled after epoch {begun}, as given."
    done = losses[: begun or len(losses)]
    lowest = int(np.nanargmin(done)) + 1 if np.isfinite(done).any() else 0
    if not begun:
        return (
            f"The validation loss of the networks did not rise (lowest in epoch {lowest} of "
            f"{clock.epochs}): they were trained along the whole cosine, and the last averaged."
        )
    return (
        f"The validation loss of the networks stopped falling in epoch {lowest} of {clock.epochs} "
        f"({losses[lowest - 1]:.3g}, and {losses[begun - 1]:.3g} in epoch {begun}): they were "
        f"sampled at temperature {method.temperature:g} from then on, and all networks of the "
        "second half of that averaged."
    )
