"""The range test: which kernel and which learning rate a network wants, found by short trainings.

Two new networks are trained by every candidate, a kernel and a peak rate, along a warm-up and a
cosine of fifty to a hundred steps, all on the same mini-batches; the worse one counts. The
rate is that of one candidate below the best: in a whole training, rates near the edge of stability
go beyond it. Adam is chosen where it makes clearly more progress than momentum SGD. Random numbers
depend only on the seed.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import kernels
from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.networks.task import Supervised
from replicax.run.compiled_once import compiled_once
from replicax.run.initial import PerReplica, initial_points
from replicax.run.methods import Method, written
from replicax.run.options import Training
from replicax.run.parts import is_auto, plain_kernel

_FACTOR = 10 ** (1 / 3)  # from one candidate to the next
_SEVEN = 10 ** (np.arange(7) / 3)
_RATES = {"momentum": 0.005 * _SEVEN, "adam": 0.0005 * _SEVEN}
_OTHERS = {"sghmc": _RATES["momentum"], "sgld": 0.05 * _SEVEN, "preconditioned": _RATES["adam"]}
_OWN_RATES = 1e-4 * 10 ** (np.arange(12) / 3)  # of kernels of the user's own
_SHARE = 0.05  # of the steps of all networks of the run, for what goes beyond the fewest
_FEWEST, _MOST = 50, 100  # steps of a candidate
_JUDGED = 8  # further mini-batches, on which the candidates are compared
_CLEARLY = 0.1  # of the progress that momentum SGD makes


def found(
    problem: Supervised, method: Method, run: Training, start: Any
) -> tuple[Any, float, dict[str, Any]]:
    """Return the kernel and the peak rate that the range test finds, and its results as plain
    data."""
    points = _networks(problem, start, run.seed)
    names = list(_RATES) if is_auto(method.kernel) else [method.kernel or "momentum"]
    candidates = [(plain_kernel(replace(method, kernel=name)), _rates_of(name)) for name in names]
    room = _SHARE * run.num_replicas * run.epochs * problem.steps_per_epoch
    steps = int(np.clip(room / sum(len(rates) for _, rates in candidates), _FEWEST, _MOST))
    before, losses = _test(problem, candidates, points, run.seed, steps)
    best = [np.argmin(np.where(np.isfinite(one), one, np.inf)) for one in losses]
    lowest = [float(one[place]) for one, place in zip(losses, best, strict=True)]
    if not np.isfinite(lowest).any():
        raise ValueError(
            "The loss is not finite after a few steps at any learning rate of the range test: are "
            "inputs and targets of a spread of about 1? Or give the rate: "
            f"method={written(method.name, 'learning_rate=...')}."
        )
    chosen = 0
    if len(names) > 1 and not lowest[0] <= lowest[1] + _CLEARLY * (before - lowest[0]):
        chosen = 1  # also where momentum SGD diverged at all rates
    rate = float(f"{candidates[chosen][1][best[chosen]] / _FACTOR:.3g}")
    tested = {
        str(name) if isinstance(name, str) else "own": {
            "rates": [float(f"{x:.3g}") for x in rates],
            "losses": [float(x) if np.isfinite(x) else None for x in one],
        }
        for name, (_, rates), one in zip(names, candidates, losses, strict=True)
    }
    return names[chosen], rate, {"steps": steps, "candidates": tested}


def _rates_of(name: Any) -> np.ndarray:
    return (_RATES | _OTHERS).get(name, _OWN_RATES) if isinstance(name, str) else _OWN_RATES


def _networks(problem: Supervised, start: Any, seed: int) -> Any:
    """Return two networks of a start, (params, model_state), leading axis: network."""
    start, key = problem.start_from(start), jax.random.key(seed)
    if isinstance(start, PerReplica):
        start = start._replace(by_chain=bool(start.by_chain))
    points = initial_points(start, key, 1, _count(start), with_state=True)
    return jax.tree.map(lambda leaf: leaf[0, :2], points)


def _count(start: Any) -> int:
    return len(jax.tree.leaves(start.tree)[0]) if isinstance(start, PerReplica) else 2


def _test(
    problem: Supervised,
    candidates: list[tuple[Kernel, np.ndarray]],
    points: Any,
    seed: int,
    steps: int,
) -> tuple[float, list[np.ndarray]]:
    """Return the loss before, and those after trainings by the candidates, by kernel  (rate,)."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 31), steps + _JUDGED)
    # On CPUs, where vectorised networks are slow, one candidate after the other.
    in_turn = jax.default_backend() == "cpu"

    def test(points: Any, rates: list[Array], keys: Array, data: Any) -> Any:
        fresh = _fresh(problem, data)
        loss = lambda network: _mean_loss(problem, fresh, network, keys[steps:])  # noqa: E731

        def of_kernel(kernel: Kernel) -> Callable[[Array], Array]:
            def of_rate(rate: Array) -> Array:
                def after(point: Any) -> Array:
                    return loss(_trained(problem, fresh, kernel, point, rate, keys[:steps]))

                return jnp.max(jax.lax.map(after, points))  # NaN where one of both is

            return of_rate

        after = []
        for (kernel, _), some in zip(candidates, rates, strict=True):
            of_rate = of_kernel(kernel)
            after.append(jax.lax.map(of_rate, some) if in_turn else jax.vmap(of_rate)(some))
        return jnp.mean(jax.lax.map(loss, points)), after

    rates = [jnp.asarray(rates, jnp.float32) for _, rates in candidates]
    before, after = compiled_once(test)(points, rates, keys, problem.batches.data)
    return float(before), [np.asarray(losses, float) for losses in after]


def _fresh(problem: Supervised, data: Any) -> Callable[[Array], Any]:
    """Return what makes further mini-batches; of a source there is one only."""
    fresh = problem.batches.fresh(data) if data is not None else None
    if fresh is not None:
        return fresh
    first = problem.batches.first(jax.random.key(0))
    return lambda key: first


def _trained(
    problem: Supervised, fresh: Callable, kernel: Kernel, point: Any, rate: Array, keys: Array
) -> Any:
    """Return a network after a training of one step for each key, with this peak rate."""
    num_steps = len(keys)
    kernel = kernels.cosine(kernel, num_steps, max(1, num_steps // 20))
    rung = Ladder(rate, jnp.zeros(()))

    def step(loop: Any, key: Array) -> tuple[Any, None]:
        replica, model_state = loop
        batch_key, key = jax.random.split(key)
        batch, noise = fresh(batch_key), problem.target.draw(key)
        seen = []

        def evaluate(params: Any) -> Any:
            energy, gradient, state = problem.target.evaluate_state(
                params, model_state, batch, noise
            )
            seen.append(state)
            return energy, gradient

        replica, _, _ = kernel.step(None, replica, evaluate, rung)
        return (replica, seen[0]), None

    (replica, model_state), _ = jax.lax.scan(step, (kernel.init(point[0]), point[1]), keys)
    return replica.params, model_state


def _mean_loss(problem: Supervised, fresh: Callable, point: Any, keys: Array) -> Array:
    """Return the mean loss of a network on one mini-batch for each key."""

    def loss(key: Array) -> Array:
        return problem.target.energy_at(point, fresh(key), problem.target.draw(key))

    return jnp.mean(jax.lax.map(loss, keys))
