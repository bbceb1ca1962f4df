"""Evaluation of the networks of a run after every epoch: their test on unseen data, the running
average of their predictions, and numbers of the user's own.

The networks of an average are kept to predict new inputs: as rows of the records "networks",
written when they are averaged. If there are many, every second, fourth, ... pick is kept, so that
the number of networks stays below a limit. Which ones are kept depends only on the number of picks
so far, not on the length or the interruptions of a run.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.spread import share_rows
from replicax.errors import show
from replicax.networks.likelihoods import Likelihood
from replicax.networks.predict import Average
from replicax.networks.task import Supervised, Tested
from replicax.run import devices, trees
from replicax.run.carry import Carry
from replicax.run.devices import map_replicas
from replicax.run.records import Arrays, Evaluation, Records
from replicax.run.trees import TreeSpec

GROUP = "networks"
MAX_BYTES = 2**28  # limit for all kept networks
_BATCH = 500  # images that all replicas see together


class Averages(NamedTuple):
    """The state of the evaluation."""

    sampled: Any  # running sums over the networks that were picked
    count: Array  # evaluations so far, shape ()


class Networks(NamedTuple):
    """Networks of an average, leading axis: network, in the order in which they were added."""

    params: Any
    model_state: Any
    weight: np.ndarray  # (network,) in the average
    epoch: np.ndarray  # (network,)
    rung: np.ndarray  # (network,) -1: drawn from a Gaussian


@dataclass(frozen=True)
class Thinning:
    """Which networks are kept: at most `limit` of them, evenly spaced; of a pick larger than that
    the first ones."""

    limit: int

    @classmethod
    def of(cls, like: Any, limit: int) -> "Thinning":
        """Return the thinning of networks with the shapes of `like`."""
        num_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(like))
        return cls(min(limit, max(1, MAX_BYTES // max(num_bytes, 1))))

    def stride(self, number: int, members: int) -> int:
        """Return the distance between kept picks of `members` networks each, after `number` picks.

        >>> [Thinning(limit=4).stride(number, members=1) for number in (1, 4, 5, 9, 10)]
        [1, 1, 2, 2, 4]
        """
        stride, most = 1, max(1, self.limit // members)
        while number // stride > most:
            stride *= 2
        return stride

    def rows(
        self, number: int, epoch: int, weights: np.ndarray, rungs: np.ndarray, points: Callable
    ) -> Arrays:
        """Return the networks of the `number`-th pick as rows of the records, none if it is not
        kept. `points()` returns them as (params, model_state) with a leading axis."""
        count = min(self.limit, len(weights))
        if not count:
            return {}
        stride = self.stride(number, count)
        if number % stride:
            return {}
        columns = {"pick": number, "stride": stride, "epoch": epoch}
        rows = {name: np.full(count, value, np.int32) for name, value in columns.items()}
        return {
            **rows,
            "rung": np.asarray(rungs[:count], np.int32),
            "weight": np.asarray(weights[:count], np.float32),
            "bytes": _pack(points())[:count],
        }


def build_average(
    problem: Supervised,
    weights: Callable[[int, int], np.ndarray],
    every: int = 1,
    thinning: Thinning = Thinning(0),  # noqa: B008
) -> Evaluation:
    """Build the evaluation of all networks every `every` epochs; those with a weight are averaged,
    and the thinning stores some of them.

    `weights(epoch, num_replicas) -> (rung,)`, epochs counted from 1.
    """
    test = compiled_test(problem)

    def evaluate(averages: Averages, carry: Carry) -> tuple[Averages, dict[str, Any], Any]:
        points = carry.state.points
        replica_at = np.asarray(carry.state.replica_at)[0]
        epoch = every * (int(averages.count) + 1)
        weight = np.asarray(weights(epoch, len(replica_at)), np.float32)
        sampled, row = test.score(averages.sampled, points, replica_at, jnp.asarray(weight))
        rungs = np.flatnonzero(weight > 0)
        take = lambda: take_networks(points, replica_at[rungs])  # noqa: E731
        number = 1 + round(float(averages.sampled.weight) / max(float(weight.sum()), 1.0))
        networks = thinning.rows(number, epoch, weight[rungs], rungs, take)
        return averages._replace(sampled=sampled, count=averages.count + 1), row, networks

    final = lambda averages: {**final_values(averages), "labels": test.targets}  # noqa: E731
    running = lambda averages: averages.sampled  # noqa: E731
    averages = Averages(test.empty(), jnp.array(0, jnp.int32))
    return Evaluation(averages, evaluate, final, running)


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
    """Return the result of the user's function as arrays; raise unless they are numbers of new
    names."""
    named: dict[Any, Any] = returned if isinstance(returned, dict) else {None: returned}
    numbers = {name: np.asarray(value) for name, value in named.items()}
    for name, value in numbers.items():
        if not isinstance(name, str) or value.dtype.kind not in "biufV":
            raise ValueError(
                f"evaluate returned {show(returned)}; return a dict of numbers, or arrays of "
                'numbers, by name, such as {"f1": f1}.'
            )
        if name in row or name == "epoch":
            raise ValueError(
                f"evaluate returned {name}, which is already in the table of epochs: choose "
                "another name."
            )
    return numbers


class CompiledTest:
    """A compiled test: scores networks and adds those with a weight to the running sums."""

    def __init__(self, test: Tested) -> None:
        self._test, self._likelihood = test, test.likelihood
        self._outputs = build_outputs(test)
        self._score = jax.jit(functools.partial(_score_all, test.likelihood, test.targets))
        self.targets = np.asarray(test.targets)

    def empty(self) -> Any:
        return self._likelihood.empty(self._test.targets)

    def add(self, sums: Any, points: Any) -> Any:
        """Return the sums with further networks added; `points` are (params, model_state) by
        network."""
        outputs = self._outputs(points, self._test.inputs)
        ones = jnp.ones(len(outputs))
        added: Any = self._likelihood.average(outputs, self._test.targets, ones)
        return self._likelihood.merge(sums, added)

    def score(
        self, sums: Any, points: Any, replica_at: np.ndarray, weight: Array
    ) -> tuple[Any, dict[str, Any]]:
        """Return the sums with the weighted networks added, and a row of scores; weights are
        (rung,)."""
        outputs = map_replicas(self._outputs, points, self._test.inputs)
        return self._score(sums, outputs, replica_at, weight)


class Count(NamedTuple):
    """Running sums without a test."""

    weight: Any  # () of the networks that were picked


class NoTest:
    """No test: networks are only counted."""

    targets = np.zeros(0)

    def empty(self) -> Count:
        return Count(jnp.zeros(()))

    def add(self, sums: Count, points: Any) -> Count:
        return Count(sums.weight + len(jax.tree.leaves(points)[0]))

    def score(
        self, sums: Count, points: Any, replica_at: np.ndarray, weight: Array
    ) -> tuple[Count, dict[str, Any]]:
        sums = Count(sums.weight + jnp.sum(weight))
        return sums, {"weight": sums.weight}


def compiled_test(problem: Supervised) -> CompiledTest | NoTest:
    """Return the compiled test of a problem, or `NoTest`."""
    return NoTest() if problem.test is None else CompiledTest(problem.test)


def build_outputs(test: Tested) -> Callable[[Any, Any], Array]:
    """Build `outputs(points, inputs) -> (replica, row, ...)`; points are (params, model_state)."""
    num_rows = len(test.targets)
    num_batches = -(-num_rows // _BATCH)
    size = -(-num_rows // num_batches)
    # The last row fills up batches of equal sizes.
    rows = np.minimum(np.arange(num_batches * size), num_rows - 1).reshape(num_batches, size)
    one_batch = jax.vmap(test.outputs, (0, 0, None))

    def outputs(points: Any, inputs: Any) -> Array:
        params, model_state = points

        def of_batch(rows: Array) -> Array:
            batch = share_rows(jax.tree.map(lambda x: x[rows], inputs))
            return one_batch(params, model_state, batch)

        values = jnp.moveaxis(jax.lax.map(of_batch, rows), 1, 0)
        return values.reshape(len(values), rows.size, *values.shape[3:])[:, :num_rows]

    return jax.jit(outputs)


def _score_all(
    likelihood: Likelihood,
    targets: Array,
    sampled: Any,
    outputs: Array,
    replica_at: Array,
    weight: Array,
) -> tuple[Any, dict[str, Any]]:
    """Add the networks with a weight to the average, and score all; outputs (replica, row, ...).

    Returns the average and a row of numbers about it and the networks.
    """
    outputs = outputs[replica_at]
    has_weight = (weight > 0).reshape(-1, *[1] * (outputs.ndim - 1))
    weighed = jnp.where(has_weight, outputs, 1.0)  # 0 times NaN is NaN
    added: Any = likelihood.average(weighed, targets, weight)
    sampled = likelihood.merge(sampled, added)
    row = jax.vmap(lambda one: likelihood.score(one, targets))(outputs)
    row["weight"] = sampled.weight
    for by in likelihood.ways:
        scores = likelihood.score_average(sampled, targets, by)
        # An average of nothing has no class that is the most probable.
        known = {name: jnp.where(sampled.weight > 0, x, jnp.nan) for name, x in scores.items()}
        row |= {f"average_{name}_{by}": value for name, value in known.items()}
    return sampled, row


def final_values(averages: Averages) -> dict[str, np.ndarray]:
    """Return the average for the records: "average.logits", "average.weight", ..."""
    sums = averages.sampled._asdict()
    return {f"average.{field}": np.asarray(value) for field, value in sums.items()}


def read(records: Records, like: Any = None) -> Networks | None:
    """Return the networks in the records, None if there are none.

    `like` has the containers, which a folder cannot describe.
    """
    if not records.length(GROUP):
        return None
    pick, stride = records.read(GROUP, "pick"), records.read(GROUP, "stride")
    kept = pick % stride[-1] == 0
    params, model_state = _unpack(records.metadata.params, records.read(GROUP, "bytes")[kept], like)
    columns = [records.read(GROUP, name)[kept] for name in ("weight", "epoch", "rung")]
    return Networks(params, model_state, *columns)


def take_networks(points: Any, replicas: np.ndarray) -> Any:
    """Return some replicas of the first chain on the host; every process must call this."""
    return devices.to_host(_take(points, jnp.asarray(replicas)))


@jax.jit
def _take(points: Any, replicas: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0, replicas], points)


def _pack(points: Any) -> np.ndarray:
    """Return networks as bytes  (network, byte)."""
    leaves = [np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(points)]
    flat = [leaf.reshape(len(leaf), -1).view(np.uint8) for leaf in leaves if leaf.size]
    return np.concatenate(flat, axis=1)


def _unpack(spec: TreeSpec, packed: np.ndarray, like: Any) -> Any:
    leaves, start = [], 0
    for shape, name in zip(spec.shapes, spec.dtypes, strict=True):
        dtype = jnp.dtype(name)
        stop = start + int(np.prod(shape, dtype=int)) * dtype.itemsize
        part = np.ascontiguousarray(packed[:, start:stop])
        leaves.append(part.view(dtype).reshape(len(packed), *shape))
        start = stop
    return trees.rebuild(spec, leaves, like)
