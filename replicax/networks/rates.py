"""The rates at which networks are sampled at a temperature, measured in the run.

The kernel "underdamped" has the law of its temperature if its steps are short beside the steepest
direction: where eta times the largest curvature of the energy is a half, a step turns that
direction by 0.7 radian, and a Gaussian has its exact law. So rates are measured from where
networks have been trained until the first one is kept, in rounds each twice as long as the one
before, and are then frozen. Its gradients are those of all rows, which no noise heats.

What is left to see is the momentum: its mean square in the unit of the temperature is 1, and more
where steps are too long or gradients noisy. It is measured after every epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm.kernel import TimedMemory
from replicax.networks.task import Supervised
from replicax.networks.tempered import posed
from replicax.run.batches import EpochBatches, prepared
from replicax.run.carry import Carry
from replicax.run.methods import written
from replicax.run.program import Program
from replicax.run.records import Evaluation

if TYPE_CHECKING:
    from replicax.networks.trained import Trained

_STEEPEST = 0.5  # learning rate times the largest curvature
_ITERATIONS = 15  # that find the largest curvature
_FASTER = 2.0  # from one measurement to the next, at most
_HOT = 0.1  # relative to the temperature
_MOST_BYTES = 2**28  # of the rows of a source
KINETIC = "kinetic_temperature"  # in the table of epochs, relative to the temperature


class Rates:
    """Measures the rates at which the networks of a program are sampled."""

    def __init__(self, problem: Supervised, program: Program) -> None:
        if jax.process_count() > 1:
            raise ValueError(
                "Rates of the sampling are measured in one process, and there are "
                f"{jax.process_count()}: give the rate, as in "
                f"method={written(program.method.name, 'learning_rate=...')}."
            )
        self.program, self._curvature = program, _largest_curvature(posed(problem, program.method))

    def is_due(self, epoch: int, begun: int, until: int) -> bool:
        """Return whether rates are measured after an epoch, of a sampling that begins after the
        epoch `begun`, and of which networks are kept after the epoch `until`."""
        every = self.program.method.test_every
        rounds = [max(done - begun, 0).bit_length() for done in (epoch, epoch - every)]
        return begun <= epoch <= until and (epoch - begun < every or rounds[0] != rounds[1])

    def renewed(self, carry: Carry, temperature: np.ndarray, is_first: bool) -> Carry:
        """Return the carry with measured rates; `temperature` is that of the rungs  (rung,)."""
        state = carry.state
        ladder, order = state.ladder, np.asarray(state.replica_at)[0]
        points = jax.tree.map(lambda leaf: leaf[0][order], state.points)
        rate = _STEEPEST / np.maximum(self._curvature(points, temperature), 1e-30)
        if not self.program.method.has_ladder:  # of one temperature: what suits all networks
            rate = np.full_like(rate, np.nanmin(rate))
        if not is_first:
            rate = np.fmin(rate, _FASTER * np.asarray(ladder.learning_rate, float)[0])
        rates = jnp.asarray(rate, ladder.learning_rate.dtype)
        rates = jnp.broadcast_to(rates, ladder.learning_rate.shape)
        return carry._replace(state=state._replace(ladder=ladder._replace(learning_rate=rates)))


@dataclass
class Measuring(Evaluation):
    """An evaluation that measures the rates of a sampling until the first network is kept."""

    rates: Rates | None = None
    begun: int = 0
    until: int = 0

    def first(self, program: Program, carry: Carry) -> Carry:
        """Return the carry with measured rates, where networks are sampled from the start."""
        carry = super().first(program, carry)
        return carry if self.begun else self._renewed(carry, is_first=True)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry, with measured rates where they are due, and the row of the
        evaluation."""
        carry, row = super().after_chunk(program, carry, num_steps, records)
        assert self.rates is not None and program.task.steps_per_epoch is not None
        epoch = int(carry.state.step) // program.task.steps_per_epoch
        if row and self.rates.is_due(epoch, self.begun, self.until):
            carry = self._renewed(carry, is_first=0 < self.begun == epoch)
        return carry, row

    def _renewed(self, carry: Carry, is_first: bool) -> Carry:
        assert self.rates is not None
        return self.rates.renewed(carry, np.asarray(carry.state.ladder.temperature)[0], is_first)


def _largest_curvature(problem: Supervised) -> Callable[[Any, np.ndarray], np.ndarray]:
    """Build `curvature(points, temperature) -> (network,)`, the largest one of the energy as moves
    feel it, by the power iteration on the rows of a step."""
    target, batches = problem.target, problem.batches
    is_source = not isinstance(batches, EpochBatches)
    data = batches.first_rows(1, _MOST_BYTES) if is_source else batches.data
    size = batches.batch_size if is_source else batches.rows_seen
    tempers = target.tempers_likelihood

    def of_network(data: Any, network: tuple) -> Array:
        (params, model_state), temperature, key = network
        flat, unravel = ravel_pytree(params)
        count = len(jax.tree.leaves(data)[0])
        rows = jax.random.permutation(key, count)[: min(size, count)]
        batch = prepared(batches.prepare, key, jax.tree.map(lambda leaf: leaf[rows], data))

        def gradient(x: Array) -> Array:
            def energy(x: Array) -> Array:
                value = target.energy_at((unravel(x), model_state), batch, target.draw(key))
                prior = jnp.zeros(()) if target.prior is None else target.prior(unravel(x))
                return value + (temperature if tempers else 1.0) * prior

            return jax.grad(energy)(x)

        def turned(direction: Array, _: Any) -> tuple[Array, Array]:
            product = jax.jvp(gradient, (flat,), (direction,))[1]
            length = jnp.linalg.norm(product)
            return product / (length + 1e-30), length

        start = jax.random.normal(key, flat.shape)
        start = start / jnp.linalg.norm(start)
        return jax.lax.scan(turned, start, None, length=_ITERATIONS)[1][-1]

    @jax.jit
    def of_all(data: Any, networks: tuple) -> Array:
        return jax.lax.map(lambda one: of_network(data, one), networks)

    def curvature(points: Any, temperature: np.ndarray) -> np.ndarray:
        keys = jax.random.split(jax.random.key(0), len(temperature))
        return np.asarray(of_all(data, (points, jnp.asarray(temperature), keys)), float)

    return curvature


def with_kinetic(evaluation: Evaluation) -> Evaluation:
    """Return the evaluation with the kinetic temperature of every network in its rows, relative to
    the temperature of its rung, NaN where that is 0."""
    inner = evaluation.evaluate

    def evaluate(state: Any, carry: Carry) -> Any:
        state, row, *more = inner(state, carry)
        memory: Any = carry.state.replicas.memory
        while isinstance(memory, TimedMemory):
            memory = memory.inner
        kinetic = _mean_square(jax.tree.map(lambda leaf: leaf[0], memory.momentum))
        order = np.asarray(carry.state.replica_at)[0]
        temperature = np.asarray(carry.state.ladder.temperature, float)[0]
        relative = np.asarray(kinetic, float)[order] / np.where(
            temperature > 0, temperature, np.nan
        )
        return state, {**row, KINETIC: relative.astype(np.float32)}, *more

    return replace(evaluation, evaluate=evaluate)


@jax.jit
def _mean_square(momentum: Any) -> Array:
    leaves = jax.tree.leaves(momentum)
    total = sum(jnp.sum(jnp.square(leaf), axis=tuple(range(1, leaf.ndim))) for leaf in leaves)
    return jnp.asarray(total / sum(leaf[0].size for leaf in leaves))


def kinetic_heating(trained: "Trained") -> tuple[float, float] | None:
    """Return how much hotter than their temperature the averaged networks are by their momentum,
    and its standard error; None if no network was sampled."""
    epochs = trained.epochs
    if KINETIC not in epochs or not trained._records.length("networks"):
        return None
    kept = np.isin(epochs["epoch"], np.unique(trained.networks.epoch))
    of_member = epochs[KINETIC][kept].mean(axis=0)
    of_member = of_member[:1] if trained.metadata.method.has_ladder else of_member
    if not np.isfinite(of_member).any():
        return None
    error = np.std(of_member, ddof=1) / np.sqrt(len(of_member)) if len(of_member) > 1 else np.inf
    return float(np.nanmean(of_member) - 1), float(error)


def kinetic_problem(trained: "Trained") -> str | None:
    """Return a sentence about networks whose momentum is too hot or too cold; None if it is not."""
    found = kinetic_heating(trained)
    if found is None or not abs(found[0]) - 2 * found[1] > _HOT:
        return None
    state, spread = ("hotter", "wide") if found[0] > 0 else ("colder", "narrow")
    rate = float(trained.learning_rates[0, 0]) * trained.energy_scale
    smaller = written(trained.method, f'learning_rate={rate / 4:.2g}, kernel="underdamped"')
    return (
        f"The momentum of the networks is {abs(found[0]):.0%} {state} than their temperature, and "
        f"their spread too {spread}: they have not come to rest since their start, or their steps "
        f"are too long. Write a longer burn_in, in which rates are measured, or method={smaller}."
    )
