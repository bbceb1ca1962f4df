"""The posterior of a network with a tempered likelihood and an exact prior.

On a rung of temperature T

    exp(-N L(theta) / T - N weight_decay |theta|^2 / 2),

so that the coldest, T = 1, samples the posterior, and the prior confines the hot ones. Energies are
those of all rows and contain only the likelihood: in a swap the prior cancels.

The noise of mini-batches heats such a run. SGHMC with the momentum a, the learning rate eta and the
temperature tau (`rx.kernels.momentum`), on an energy of curvature h and with gradients whose noise
has the variance n, has the excess temperature

    e = eta n / (2 (1 - a) tau) f

relative to the same run with n = 0. f is 1 if the noise of all steps is independent. But the
batches of an epoch contain every row once, and their noises add up to 0: in directions that take
longer than an epoch to relax, f is close to 0 at the end of an epoch, where networks are averaged.

The heating of a run is the root mean square of e over the parameters that the data determine. Their
number is twice the variance of U / tau, as for a Gaussian; many directions of a network have no
other law than the prior's, and no noise. n is measured by differences of gradients between
mini-batches, and h by derivatives of gradients.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.spread import share_rows
from replicax.networks.task import Supervised
from replicax.run.batches import EpochBatches, sum_in_pieces
from replicax.run.methods import Method, written

if TYPE_CHECKING:
    from replicax.networks.trained import Trained

_HEATED = 0.1  # relative to the temperature of the coldest rung
_FEWEST = 10  # kept networks, whose energies vary
_NETWORKS = 8  # kept networks at which noise and curvature are measured
_DIRECTIONS = 8  # directions for each of them
_PAIRS = 16  # differences of gradients that measure the noise in these directions
_MOST_PARAMS = 10_000_000  # of which there are 24 gradients in memory
_SMALLEST = 1e-6  # eta h: a direction that hardly relaxes, or never
_LARGEST = 1.9  # eta h / (1 + a), which is below 2 where a run is stable


def tempered(problem: Supervised) -> Supervised:
    """Return the problem with a tempered likelihood; raise unless it has a separate prior."""
    target, ratio = problem.target, float(problem.num_rows)
    if target.tempers_likelihood:
        return problem
    prior, energy = target.prior, target.energy
    if prior is None:
        raise ValueError(
            "Only the likelihood is tempered, but the problem has no separate prior: pass "
            "weight_decay=... to rx.supervised or rx.classification, and no prior_in_energy."
        )

    def total(params: Any, model_state: Any, batch: Any, key: Any) -> tuple[Array, Any]:
        value, model_state = energy(params, model_state, batch, key)
        return ratio * value, model_state

    tempered_target = target._replace(
        energy=total,
        prior=lambda params: ratio * prior(params),
        tempers_likelihood=True,
        num_rows=problem.num_rows,
    )
    batches = problem.batches
    if isinstance(batches, EpochBatches):
        whole_energy = _whole_energy(tempered_target.energy_at, batches)
        tempered_target = tempered_target._replace(whole_energy=whole_energy)
    return replace(problem, target=tempered_target)


def check_posterior(problem: Supervised, like: Any, name: str) -> None:
    """Raise unless energies depend only on parameters and rows; `like` has the shapes of one
    network, `name` is the name of the method."""
    floating = [x for x in jax.tree.leaves(like[1]) if jnp.issubdtype(x.dtype, jnp.floating)]
    if floating:
        raise ValueError(
            f'The method "{name}" samples the posterior of the parameters, and this network has a '
            "model state, such as batch statistics, on which its loss depends: use a network "
            'without, such as rx.nn.resnet(20, norm="frn").'
        )
    if problem.is_random(like):
        raise ValueError(
            f'The method "{name}" samples the posterior of the parameters, and this loss draws '
            "random numbers, as dropout does: use a network without, or a dropout rate of 0."
        )
    batches = problem.batches
    if not isinstance(batches, EpochBatches) or batches.prepare is None:
        return
    rows = jax.tree.map(lambda leaf: leaf[: batches.batch_size], batches.data)
    one, other = (batches.prepare(jax.random.key(seed), rows) for seed in (0, 1))
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    if any(not np.array_equal(a, b) for a, b in leaves):
        raise ValueError(
            f'The method "{name}" samples the posterior given the data, but random augmentation '
            "changes the likelihood: write augment=False, or a prepare that does not depend on its "
            "key."
        )


def _whole_energy(
    energy_at: Callable[..., Array], batches: EpochBatches
) -> Callable[[Any, Any], Array]:
    """Return the energy over all rows, evaluated in batches and a remainder."""
    key = jax.random.key(0)  # on which neither batch nor energy depends

    def energy(point: Any, data: Any) -> Array:
        def sum_over(rows: Any) -> Array:
            count = len(jax.tree.leaves(rows)[0])
            prepared = rows if batches.prepare is None else batches.prepare(key, rows)
            return count * energy_at(point, share_rows(prepared), key)

        return sum_in_pieces(sum_over, data, batches.batch_size) / batches.num_rows

    return energy


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
    if the method does not temper the likelihood, or if it cannot be measured."""
    method, problem = trained.metadata.method, trained._target
    decay = _decay(method, trained.metadata.resolved.kernel)
    if not method.tempers_likelihood or decay is None or jax.process_count() > 1:
        return None
    batches = getattr(problem, "batches", None)  # a run folder may be opened without its problem
    has_tree = trained._like is not None or trained.metadata.params.structure is not None
    has_networks = has_tree and trained._records.length("networks")
    if not isinstance(batches, EpochBatches) or not has_networks:
        return None
    networks = trained.networks
    coldest = networks.rung == 0
    points: Any = networks.params, networks.model_state
    points = jax.tree.map(lambda leaf: jnp.asarray(leaf[coldest]), points)
    leaves = jax.tree.leaves(points[0])
    num_params = sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)
    if len(leaves[0]) < _FEWEST or num_params > _MOST_PARAMS:
        return None
    if batches.has_all_rows:
        return 0.0
    rate, temperature = float(trained.learning_rates[0, 0]), float(trained.temperatures[0, 0])
    posed = tempered(problem)
    determined = min(num_params, 2 * np.var(_energies(posed, points) / temperature))
    noise = _measure(posed, points, temperature)
    share = _share(rate * noise.curvature, decay, batches)
    weight = np.square(noise.variance) + 1e-30
    shared = np.sum(weight * share**2, axis=1) / np.sum(weight, axis=1)
    squares = np.square(rate / (2 * (1 - decay) * temperature)) * noise.square * shared
    # In some networks the noise is large for a moment, which heats nothing.
    return float(np.sqrt(np.median(squares) / max(determined, 1.0)))


def _decay(method: Method, kernel: str) -> float | None:
    """Return the momentum of a run, given the name of its kernel; None if its heating is not
    known."""
    if kernel == "momentum":
        own = method.kernel.traits.spec if isinstance(method.kernel, Kernel) else None
        return float(method.momentum if own is None else own["decay"])
    return 0.0 if kernel == "sgld" else None


def _energies(problem: Supervised, points: Any) -> np.ndarray:
    """Return the energies over all rows  (network,)."""
    energy = problem.target.whole_energy
    assert energy is not None
    of_all = jax.jit(lambda points, data: jax.lax.map(lambda point: energy(point, data), points))
    return np.asarray(of_all(points, problem.batches.data), float)


class _GradientNoise(NamedTuple):
    """The noise of gradients at some networks."""

    square: Any  # (network,) the sum of squares of its variances, over all directions
    variance: Any  # (network, direction) in some directions
    curvature: Any  # (network, direction)


def _measure(problem: Supervised, points: Any, temperature: float) -> _GradientNoise:
    """Measure noise and curvature at some networks, on further mini-batches.

    The directions are those of the Hessian, in the space of some differences of gradients; the
    noise in them is measured by other differences.
    """
    target, batches, prior = problem.target, problem.batches, problem.target.prior
    assert prior is not None

    def of_network(data: Any, network: tuple[Any, Array]) -> _GradientNoise:
        (params, model_state), key = network
        flat, unravel = ravel_pytree(params)
        fresh = batches.fresh(data)
        assert fresh is not None  # sources are refused

        def gradient(flat: Array, key: Array) -> Array:
            batch = fresh(key)
            energy = lambda x: target.energy_at((unravel(x), model_state), batch, key)  # noqa: E731
            return jax.grad(energy)(flat)

        def curved(direction: Array, key: Array) -> Array:
            pull = jax.grad(lambda x: temperature * prior(unravel(x)))
            return jax.grad(lambda x: direction @ (gradient(x, key) + pull(x)))(flat)

        keys = jax.random.split(key, (_DIRECTIONS + _PAIRS, 2))
        pairs = jax.lax.map(lambda pair: gradient(flat, pair[0]) - gradient(flat, pair[1]), keys)
        pairs = pairs / jnp.sqrt(2.0)
        products = jnp.square(pairs @ pairs.T)
        square = (jnp.sum(products) - jnp.trace(products)) / (len(pairs) * (len(pairs) - 1))
        basis = jnp.linalg.qr(pairs[:_DIRECTIONS].T)[0]
        seen = basis.T, keys[: basis.shape[1], 0]
        hessian = jax.lax.map(lambda one: curved(*one), seen) @ basis
        curvature, turn = jnp.linalg.eigh((hessian + hessian.T) / 2)
        variance = jnp.mean(jnp.square(pairs[_DIRECTIONS:] @ basis @ turn), axis=0)
        return _GradientNoise(square, variance, curvature)

    count = len(jax.tree.leaves(points)[0])
    chosen = np.unique(np.linspace(0, count - 1, _NETWORKS).astype(int))
    some = jax.tree.map(lambda leaf: leaf[chosen], points)
    keys = jax.random.split(jax.random.key(0), len(chosen))
    of_all = jax.jit(lambda data, some: jax.lax.map(lambda one: of_network(data, one), some))
    return jax.tree.map(lambda x: np.asarray(x, float), of_all(batches.data, (some, keys)))


def _share(steepness: np.ndarray, decay: float, batches: EpochBatches) -> np.ndarray:
    """Return f, the variance by the noise of an epoch's batches as a share of that by independent
    noise, at the end of an epoch; `steepness` is eta h."""
    steps, size, rows = batches.steps_per_epoch, batches.batch_size, batches.num_rows
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
