"""How much the noise of mini-batches heats networks at a temperature, and the rates at which they
are sampled, measured so that it is little.

The kernel "underdamped", with the momentum a, the learning rate eta and the temperature tau, on an
energy of curvature h and with gradients whose noise has the variance n, has the excess temperature

    e = eta n / (2 (1 - a) tau) f

relative to the same run with n = 0; so has SGHMC (`rx.kernels.momentum`). f is 1 if the noise of
all steps is independent. But the batches of an epoch contain every row once, and their noises add
up to 0: in directions that take longer than an epoch to relax, f is close to 0 at the end of an
epoch, where networks are averaged.

The heating of a run is the root mean square of e over the parameters that the data determine. Their
number is twice the variance of U / tau, as for a Gaussian; many directions of a network have no
other law than the prior's, and no noise. n is measured by differences of gradients between
mini-batches, and h by derivatives of gradients.

Rates are measured from where networks have been trained until the first one is kept, in rounds each
twice as long as the one before, and are then frozen: eta times the largest curvature is at most a
quarter, and e at most 5 %, with the number of directions of the noise, which are fewer than those
that the data determine. Steps of all rows have no noise, so that only the curvature counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.networks.task import Supervised
from replicax.networks.tempered import posed, tempered
from replicax.run.batches import EpochBatches, prepared
from replicax.run.carry import Carry
from replicax.run.methods import Method, written
from replicax.run.parts import plain_kernel
from replicax.run.program import Program
from replicax.run.records import Evaluation

if TYPE_CHECKING:
    from replicax.networks.trained import Trained

_HEATED, _WANTED = 0.1, 0.05  # relative to the temperature of the coldest rung
_STEEPEST = 0.25  # learning rate times the largest curvature, where rates are measured
_ITERATIONS = 15  # that find the largest curvature
_ROUNDS = 4  # in which a rate is made smaller
_FASTER = 2.0  # from one measurement to the next, at most
_FEWEST = 10  # kept networks, whose energies vary
_NETWORKS = 8  # kept networks at which noise and curvature are measured
_DIRECTIONS = 8  # directions for each of them
_PAIRS = 16  # differences of gradients that measure the noise in these directions
_MOST_PARAMS = 10_000_000  # of which there are 24 gradients in memory
_MOST_BYTES = 2**28  # of the mini-batches of a source
_SMALLEST = 1e-6  # eta h: a direction that hardly relaxes, or never
_LARGEST = 1.9  # eta h / (1 + a), which is below 2 where a run is stable


def heating_problem(heating: float | None, method: str = "sghmc-pt") -> str | None:
    """Return a sentence about networks that mini-batches heat; None if they do not, much."""
    if heating is None or not heating > _HEATED:
        return None
    return (
        f"The noise of mini-batches heats the coldest rung by about {heating:.0%}, and the "
        "posterior is too wide: write a smaller learning_rate, as in "
        f"method={written(method, 'learning_rate=...')}, and more epochs; or a larger batch_size."
    )


def find_heating(trained: "Trained") -> float | None:
    """Return the relative excess temperature of the coldest rung by the noise of mini-batches; None
    if the method samples no posterior, or if it cannot be measured."""
    method, problem = trained.metadata.method, trained._target
    decay = _decay(method)
    samples = method.tempers_likelihood or method.measures_rates
    if not samples or decay is None or jax.process_count() > 1:
        return None
    batches = getattr(problem, "batches", None)  # a run folder may be opened without its problem
    has_tree = trained._like is not None or trained.metadata.params.structure is not None
    has_networks = has_tree and trained._records.length("networks")
    if not isinstance(batches, EpochBatches) or not has_networks:
        return None
    networks = trained.networks
    coldest = networks.rung == 0 if method.has_ladder else networks.rung >= 0
    points: Any = networks.params, networks.model_state
    points = jax.tree.map(lambda leaf: jnp.asarray(leaf[coldest]), points)
    leaves = jax.tree.leaves(points[0])
    num_params = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)
    temperature = float(trained.temperatures[0, 0]) * trained.temperature_scale
    if len(leaves[0]) < _FEWEST or num_params > _MOST_PARAMS or not temperature:
        return None
    problem = _whole(posed(problem, method))
    if problem.batches.has_all_rows:
        return 0.0
    rate = float(trained.learning_rates[0, 0]) / trained.temperature_scale
    determined = min(num_params, 2 * np.var(_energies(problem, points) / temperature))
    count = len(leaves[0])
    chosen = np.unique(np.linspace(0, count - 1, _NETWORKS).astype(int))
    some = jax.tree.map(lambda leaf: leaf[chosen], points)
    noise = _measured(problem)(some, np.full(len(chosen), temperature))
    squares = _squares(noise, rate, decay, temperature, problem.batches)
    # In some networks the noise is large for a moment, which heats nothing.
    return float(np.sqrt(np.median(squares) / max(determined, 1.0)))


def _whole(problem: Supervised) -> Supervised:
    """Return the problem with the energy of all rows, and a prior, as the posterior has it."""
    target = problem.target
    if target.prior is None:  # it is part of the energy, or there is none
        target = target._replace(prior=lambda params: jnp.zeros(()))
    return tempered(replace(problem, target=target))


@dataclass
class Rates:
    """Measures the rates at which networks are sampled, with a compiled program of its own."""

    problem: Supervised
    program: Program

    def __post_init__(self) -> None:
        if jax.process_count() > 1:
            raise ValueError(
                "Rates of the sampling are measured in one process, and there are "
                f"{jax.process_count()}: give the rate, as in "
                f"method={written(self.program.method.name, 'learning_rate=...')}."
            )
        self._whole = _whole(self.problem)
        self._steepest = _steepest(self._whole)
        self._noise = None if self._whole.batches.has_all_rows else _measured(self._whole)

    def is_due(self, epoch: int, begun: int, until: int) -> bool:
        """Return whether rates are measured after an epoch of a sampling that begins after the
        epoch `begun`, and of which networks are kept after the epoch `until`."""
        every = self.program.method.test_every
        rounds = [max(done - begun, 0).bit_length() for done in (epoch, epoch - every)]
        return begun <= epoch <= until and (epoch - begun < every or rounds[0] != rounds[1])

    def renewed(self, carry: Carry, temperature: np.ndarray, is_first: bool) -> Carry:
        """Return the carry with measured rates; `temperature` is that of the rungs  (rung,)."""
        state, unit = carry.state, self.program.task.unit
        scale = unit.num_rows / unit.loss  # of the posterior, for each unit of the energies
        order = np.asarray(state.replica_at)[0]
        points = jax.tree.map(lambda leaf: leaf[0][order], state.points)
        temperature = np.asarray(temperature, np.float32) * scale
        steepest = np.asarray(self._steepest(points, temperature), float)
        rate = _STEEPEST / np.maximum(steepest, 1e-30)
        if self._noise is not None:
            noise, decay = self._noise(points, temperature), _decay(self.program.method)
            assert decay is not None
            rate = _cooled(noise, rate, decay, temperature, self._whole.batches)
        if not self.program.method.has_ladder:  # of one temperature: what suits all networks
            rate = np.full_like(rate, np.nanmin(rate))
        ladder = state.ladder
        before = np.asarray(ladder.learning_rate, float)[0] / scale
        rate = rate if is_first else np.fmin(rate, _FASTER * before)
        rates = jnp.asarray(rate * scale, ladder.learning_rate.dtype)
        rates = jnp.broadcast_to(rates, ladder.learning_rate.shape)
        return carry._replace(state=state._replace(ladder=ladder._replace(learning_rate=rates)))


@dataclass
class Measuring(Evaluation):
    """An evaluation that measures the rates of a sampling until the first network is kept."""

    rates: Rates | None = None
    begun: int = 0
    until: int = 0

    def first(self, program: Program, carry: Carry) -> Carry:
        carry = super().first(program, carry)
        return carry if self.begun else self._renewed(program, carry, is_first=True)

    def after_chunk(
        self, program: Program, carry: Carry, num_steps: int, records: Any
    ) -> tuple[Carry, dict[str, np.ndarray]]:
        """Return the carry, with measured rates where they are due, and the row of the
        evaluation."""
        carry, row = super().after_chunk(program, carry, num_steps, records)
        assert self.rates is not None
        epoch = int(carry.state.step) // program.task.steps_per_epoch  # type: ignore[operator]
        if row and self.rates.is_due(epoch, self.begun, self.until):
            is_first = 0 < self.begun == epoch
            carry = self._renewed(program, carry, is_first)
        return carry, row

    def _renewed(self, program: Program, carry: Carry, is_first: bool) -> Carry:
        assert self.rates is not None
        temperature = np.asarray(carry.state.ladder.temperature)[0]
        return self.rates.renewed(carry, temperature, is_first)


def _decay(method: Method) -> float | None:
    """Return the momentum with which networks are sampled; None if their heating is not known."""
    changes = method.rate_schedule != "constant" and method.sample_from is None
    if changes or method.clip_norm is not None:
        return None
    kernel = plain_kernel(method)
    spec = kernel.traits.spec or {}
    if spec.get("name") == "sgld":
        return 0.0
    return float(spec["decay"]) if spec.get("name") in ("momentum", "underdamped") else None


def _energies(problem: Supervised, points: Any) -> np.ndarray:
    """Return the energies over all rows  (network,)."""
    energy = problem.target.whole_energy
    assert energy is not None
    of_all = jax.jit(lambda points, data: jax.lax.map(lambda point: energy(point, data), points))
    return np.asarray(of_all(points, problem.batches.data), float)


class _Noise(NamedTuple):
    """The noise of gradients at some networks."""

    square: Any  # (network,) the sum of squares of its variances, over all directions
    trace: Any  # (network,) the sum of its variances
    variance: Any  # (network, direction) in some directions
    curvature: Any  # (network, direction)


def _squares(
    noise: _Noise, rate: Any, decay: float, temperature: Any, batches: EpochBatches
) -> np.ndarray:
    """Return the sum of squares of the excess temperature over all directions  (network,)."""
    rate, temperature = (np.asarray(x, float)[..., None] for x in (rate, temperature))
    share = _share(rate * noise.curvature, decay, batches)
    weight = np.square(noise.variance) + 1e-30
    shared = np.sum(weight * share**2, axis=1) / np.sum(weight, axis=1)
    return np.square(rate / (2 * (1 - decay) * temperature))[..., 0] * noise.square * shared


def _cooled(
    noise: _Noise, rate: np.ndarray, decay: float, temperature: np.ndarray, batches: EpochBatches
) -> np.ndarray:
    """Return the rates, made smaller where networks would become too hot."""
    directions = np.square(noise.trace) / np.maximum(noise.square, 1e-30)
    for _ in range(_ROUNDS):  # the share, too, depends on the rate
        heating = np.sqrt(_squares(noise, rate, decay, temperature, batches) / directions)
        rate = rate * np.minimum(1.0, _WANTED / np.maximum(heating, 1e-30))
    return rate


def _batch_of(problem: Supervised, data: Any, key: Array) -> Any:
    """Draw the rows of a step."""
    rows_key, key = jax.random.split(key)
    batches, count = problem.batches, len(jax.tree.leaves(data)[0])
    size = min(getattr(batches, "rows_seen", batches.batch_size), count)
    rows = jax.random.permutation(rows_key, count)[:size]
    return prepared(batches.prepare, key, jax.tree.map(lambda leaf: leaf[rows], data))


def _rows_of(problem: Supervised) -> Any:
    """Return the rows in memory, of a source the first ones."""
    batches = problem.batches
    if isinstance(batches, EpochBatches):
        return batches.data
    return batches.first_rows(2 * (_DIRECTIONS + _PAIRS), _MOST_BYTES)


def _gradient(problem: Supervised, temperature: Array, model_state: Any, unravel: Any) -> Callable:
    """Build the gradient of U + tau V on rows, as kernels see it, of flat parameters."""
    target = problem.target
    assert target.prior is not None

    def gradient(flat: Array, rows: Any, key: Array) -> Array:
        def energy(x: Array) -> Array:
            prior = temperature * target.prior(unravel(x))  # type: ignore[misc]
            return target.energy_at((unravel(x), model_state), rows, key) + prior

        return jax.grad(energy)(flat)

    return gradient


def _over_networks(problem: Supervised, measure: Callable) -> Callable[[Any, np.ndarray], Any]:
    """Build `measured(points, temperature)` of `measure(gradient, flat, rows, key)` at each of the
    networks, the rows being a function of a key."""

    def of_network(data: Any, network: tuple) -> Any:
        (params, model_state), temperature, key = network
        flat, unravel = ravel_pytree(params)
        gradient = _gradient(problem, temperature, model_state, unravel)
        return measure(gradient, flat, lambda key: _batch_of(problem, data, key), key)

    @jax.jit
    def of_all(data: Any, networks: tuple) -> Any:
        return jax.lax.map(lambda one: of_network(data, one), networks)

    data = _rows_of(problem)

    def measured(points: Any, temperature: np.ndarray) -> Any:
        keys = jax.random.split(jax.random.key(0), len(temperature))
        found = of_all(data, (points, jnp.asarray(temperature, jnp.float32), keys))
        return jax.tree.map(lambda x: np.asarray(x, float), found)

    return measured


def _steepest(problem: Supervised) -> Callable[[Any, np.ndarray], Any]:
    """Build `steepest(points, temperature) -> (network,)`, the largest curvature of the energy by
    the power iteration."""

    def measure(gradient: Callable, flat: Array, rows: Callable, key: Array) -> Array:
        batch = rows(key)

        def turned(direction: Array, _: Any) -> tuple[Array, Array]:
            product = jax.jvp(lambda x: gradient(x, batch, key), (flat,), (direction,))[1]
            length = jnp.linalg.norm(product)
            return product / (length + 1e-30), length

        start = gradient(flat, batch, key) + jax.random.normal(key, flat.shape)
        start = start / jnp.linalg.norm(start)
        return jax.lax.scan(turned, start, None, length=_ITERATIONS)[1][-1]

    return _over_networks(problem, measure)


def _measured(problem: Supervised) -> Callable[[Any, np.ndarray], _Noise]:
    """Build `noise(points, temperature)`: noise and curvature at networks, on further mini-batches.

    The directions are those of the Hessian, in the space of some differences of gradients; the
    noise in them is measured by other differences.
    """

    def measure(gradient: Callable, flat: Array, rows: Callable, key: Array) -> _Noise:
        def curved(direction: Array, key: Array) -> Array:
            batch = rows(key)
            return jax.grad(lambda x: direction @ gradient(x, batch, key))(flat)

        keys = jax.random.split(key, (_DIRECTIONS + _PAIRS, 2))
        one = lambda key: gradient(flat, rows(key), key)  # noqa: E731
        pairs = jax.lax.map(lambda pair: one(pair[0]) - one(pair[1]), keys) / jnp.sqrt(2.0)
        inner = pairs @ pairs.T
        products, lengths = jnp.square(inner), jnp.diag(inner)
        square = (jnp.sum(products) - jnp.trace(products)) / (len(pairs) * (len(pairs) - 1))
        basis = jnp.linalg.qr(pairs[:_DIRECTIONS].T)[0]
        seen = basis.T, keys[: basis.shape[1], 0]
        hessian = jax.lax.map(lambda one: curved(*one), seen) @ basis
        curvature, turn = jnp.linalg.eigh((hessian + hessian.T) / 2)
        variance = jnp.mean(jnp.square(pairs[_DIRECTIONS:] @ basis @ turn), axis=0)
        return _Noise(square, jnp.mean(lengths), variance, curvature)

    return _over_networks(problem, measure)


def _share(steepness: np.ndarray, decay: float, batches: EpochBatches) -> np.ndarray:
    """Return f, the variance by the noise of an epoch's batches as a share of that by independent
    noise, at the end of an epoch; `steepness` is eta h."""
    steps, size, rows = batches.steps_per_pass, batches.rows_seen, batches.num_rows
    apart = size / (rows - size)  # minus the correlation of two batches without common rows
    again = (steps * size - rows) * rows / (size * (rows - size))  # of the first and the last, more
    shares = []
    for x in np.clip(steepness, _SMALLEST, _LARGEST * (1 + decay)).ravel():
        step = np.array([[1 + decay - x, -decay], [1.0, 0.0]])  # of a network and the one before
        epoch, kick = np.linalg.matrix_power(step, steps), np.array([1.0, 0.0])
        first = np.linalg.matrix_power(step, steps - 1) @ kick  # what the first noise has become
        of_all = np.linalg.solve(np.eye(2) - step, kick - epoch @ kick)  # equal noise in all steps
        correlated = again * np.outer(first, kick) + again * np.outer(kick, first)
        correlated -= apart * np.outer(of_all, of_all)
        alone = _stationary(step, np.outer(kick, kick))
        shares.append(1 + apart + _stationary(epoch, correlated) / alone)
    return np.reshape(shares, np.shape(steepness))


def _stationary(step: np.ndarray, added: np.ndarray) -> float:
    """Return the variance of the first component of y <- step y + noise of the covariance added."""
    return float(np.linalg.solve(np.eye(4) - np.kron(step, step), added.ravel())[0])
