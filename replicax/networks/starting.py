"""What a method needs to begin with new networks: rates that a range test finds, a training before
the sampling, swap rates that fit the number of steps, and inputs of a usual size.

Methods that start from trained networks keep the settings of the paper. In the range test two new
networks are trained by every candidate, a kernel and a peak rate, along a warm-up and a cosine of
fifty to a hundred steps, all on the same mini-batches; the worse one counts. The rate is that of
one candidate below the best: in a whole training, rates near the edge of stability go beyond it.
Adam is chosen where it makes clearly more progress than momentum SGD. Random numbers depend only on
the seed. One program has all kernels, since compiling takes most of the time.
"""

import functools
import warnings
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import kernels
from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import seed_keys
from replicax.networks.predictor import unlike_standard
from replicax.networks.task import Supervised
from replicax.run.batches import EpochBatches, prepared
from replicax.run.compiled_once import compiled_once
from replicax.run.initial import PerReplica, initial_points, is_function
from replicax.run.methods import METHODS, Method, written
from replicax.run.options import Training
from replicax.run.parts import is_auto, plain_kernel, pretrain_epochs
from replicax.run.program import Program
from replicax.run.resolve import resolve
from replicax.run.sources import SourceBatches
from replicax.theory.round_trips import expected_round_trips, fitting_swap_rate

_PRETRAIN = 300 / 800  # of the epochs, as in the paper
_BEFORE = 0.2  # of the epochs, where the rates of the sampling are measured
_LADDER, _COLD = (1 / 20, 1 / 5), 1 / 20  # of the peak rate, which is 0.1 in the paper

_CHEAP = 2e8  # operations of the gradient of one network

_FACTOR = 10 ** (1 / 3)  # from one candidate to the next
_SEVEN = 10 ** (np.arange(7) / 3)
_RATES = {"momentum": 0.005 * _SEVEN, "adam": 0.0005 * _SEVEN}
_OTHERS = {
    "sghmc": _RATES["momentum"],
    "underdamped": _RATES["momentum"],
    "sgld": 0.05 * _SEVEN,
    "preconditioned": _RATES["adam"],
}
_OWN_RATES = 1e-4 * 10 ** (np.arange(12) / 3)  # of kernels of the user's own
_SHARE = 0.05  # of the steps of all networks of the run, for what goes beyond the fewest
_FEWEST, _MOST = 50, 100  # steps of a candidate
_JUDGED = 8  # further mini-batches, on which the candidates are compared
_MOST_BYTES = 2**28  # of the mini-batches of a source
_CLEARLY = 0.1  # of the progress that momentum SGD makes


def fitted(
    problem: Supervised, task: Supervised, method: Method, run: Training, start: Any
) -> tuple[Method, Training, dict[str, Any] | None]:
    """Return the method and the run with what new networks need, and the results of the range test,
    None without one. `task` is the problem as the method poses it."""
    is_ours = method.name in METHODS and method.rate_schedule in ("constant", "cyclical")
    samples = is_ours and method.name != "deep-ensemble"
    if method.pretrain is None and samples and is_function(start):
        share = _BEFORE if method.measures_rates else _PRETRAIN
        method = replace(method, pretrain=share if run.epochs > 1 else 0.0)
    tests_pretraining = bool(method.pretrain) and method.pretrain_rate is None
    measures = method.measures_rates and method.sample_from is None
    finds_rate = is_auto(method.learning_rate) and not (method.has_ladder or measures)
    if not (finds_rate or method.pretrain or measures):
        return method, run, None
    if (is_auto(method.temperature) or measures) and run.burn_in is None:
        before = pretrain_epochs(run, method)
        run = replace(run, burn_in=before + (run.epochs - before) // (4 if measures else 3))
    if not (finds_rate or tests_pretraining):
        return _with_swap_rate(problem, _with_rates(method), run), run, None
    resolve(task, run, _guessed(problem, method, run))  # refuses before a test that takes time
    kernel, rate, tested = find_rate(problem, method, run, start)
    if finds_rate:
        method = replace(method, kernel=kernel, learning_rate=rate)
    else:
        method = replace(method, pretrain_rate=rate)
    return _with_swap_rate(problem, _with_rates(method), run), run, tested


def with_moves(problem: Supervised, method: Method, run: Training, start: Any) -> Method:
    """Return the method with the number of steps for one move, where it leaves it open: as few as
    keep the gradient of a network in a step cheap, and at most those of an epoch."""
    batches = problem.batches
    if not method.measures_rates:
        return method
    if not isinstance(batches, EpochBatches):  # a source, which has the rows of a step
        return replace(method, steps_per_move=batches.steps_per_epoch)
    if method.steps_per_move is not None:
        return replace(method, steps_per_move=batches.steps_to_see_all(method.steps_per_move))
    if method.has_ladder:  # replicas change their rung between any two steps
        return replace(method, steps_per_move=1)
    point = _networks(problem, start, run)
    point = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[2:], leaf.dtype), point)
    key = jax.random.key(0)

    def loss(params: Any, model_state: Any, rows: Any) -> Array:
        batch = prepared(batches.prepare, key, rows)
        return problem.target.energy_at((params, model_state), batch, problem.target.draw(key))

    rows = jax.tree.map(lambda leaf: leaf[: batches.batch_size], batches.data)
    costs: Any = jax.jit(jax.grad(loss)).lower(*point, rows).cost_analysis() or {}
    of_all = float(costs.get("flops", 0.0)) * batches.num_rows / batches.batch_size
    steps = int(np.clip(np.ceil(of_all / _CHEAP), 1, batches.steps_per_epoch))
    ways = sorted({batches.steps_to_see_all(number) for number in range(steps, 2 * steps)})
    return replace(method, steps_per_move=min(ways, key=batches.seen_twice))


def _guessed(problem: Supervised, method: Method, run: Training) -> Method:
    """Return the method with some rates and a kernel, to be checked before the range test."""
    if is_auto(method.kernel):
        method = replace(method, kernel="momentum")
    if is_auto(method.learning_rate) and not method.pretrain:
        return replace(method, learning_rate=0.1)
    return _with_swap_rate(problem, _with_rates(replace(method, pretrain_rate=0.1)), run)


def _with_rates(method: Method) -> Method:
    """Return the method with the rates that it leaves open, in the paper's proportion to the peak
    rate of the training before."""
    peak = method.pretrain_rate
    if method.learning_rate is not None or peak is None:
        return method
    if method.is_cyclical:
        return replace(method, learning_rate=peak)
    by_rate = method.has_ladder and method.rule is None
    chosen = tuple(_short(peak * part) for part in _LADDER) if by_rate else _short(peak * _COLD)
    return replace(method, learning_rate=chosen)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _with_swap_rate(problem: Supervised, method: Method, run: Training) -> Method:
    """Return the method with a target swap rate that makes enough round trips, where it is open:
    the lowest one, or the best."""
    if not _swaps_by_rate(method) or method.target_swap_rate is not None or run.num_replicas < 2:
        return method
    steps = (run.epochs - pretrain_epochs(run, method)) * problem.steps_per_epoch
    rate = fitting_swap_rate(steps, run.num_replicas, _window(method))
    return replace(method, target_swap_rate=rate)


def _swaps_by_rate(method: Method) -> bool:
    """Whether a target swap rate decides how often networks swap."""
    return method.has_ladder and method.rule in (None, "deterministic")


def _window(method: Method) -> int | None:
    """Return the window of a method, None for that of Theorem 1."""
    return method.window or (None if method.schedule == "deo_star" else 1)


def warn(problem: Supervised, program: Program) -> None:
    """Warn of a run that cannot make a round trip, and of inputs of an unusual size."""
    method, run = program.method, program.run
    assert isinstance(run, Training)
    name = unlike_standard(problem)
    if name is not None:
        warnings.warn(name, stacklevel=3)
    if not _swaps_by_rate(method) or not isinstance(method.schedule, str):
        return
    steps = program.num_steps - pretrain_epochs(run, method) * problem.steps_per_epoch
    count, rate = program.num_replicas, float(method.target_swap_rate or 0.0)
    trips = expected_round_trips(steps, rate, count, _window(method))
    if trips >= 1:
        return
    window = _window(replace(method, window=None))
    other = fitting_swap_rate(steps, count, window)
    remedy = f"write method={written(method.name, f'target_swap_rate={other}')}"
    best = expected_round_trips(steps, other, count, window)
    if best < 1:
        epochs = int(np.ceil(run.epochs / best))
        remedy = f"write {epochs:,} epochs with target_swap_rate={other}, or fewer networks"
    warnings.warn(
        f"No round trip is to be expected: {count} networks with the target swap rate {rate:g} and "
        f"a window of {method.window} make {trips:.2g} in {steps:,} steps, and without round trips "
        f'exchange does nothing: {remedy}; or method="deep-ensemble".',
        stacklevel=3,
    )


def find_rate(
    problem: Supervised, method: Method, run: Training, start: Any
) -> tuple[Any, float, dict[str, Any]]:
    """Return the kernel and the peak rate that the range test finds, and its results as plain
    data."""
    names = list(_RATES) if is_auto(method.kernel) else [method.kernel or "momentum"]
    rates = [_rates_of(name) for name in names]
    room = _SHARE * run.num_replicas * run.epochs * problem.steps_per_epoch
    steps = int(np.clip(room / sum(map(len, rates)), _FEWEST, _MOST))
    tried = [plain_kernel(replace(method, kernel=name)) for name in names]
    before, losses = _range_test(
        problem, tried, rates, _networks(problem, start, run), run.seed, steps
    )
    best = [int(np.argmin(np.where(np.isfinite(one), one, np.inf))) for one in losses]
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
    tested = {
        str(name) if isinstance(name, str) else "own": {
            "rates": [float(f"{x:.3g}") for x in some],
            "losses": [float(x) if np.isfinite(x) else None for x in one],
        }
        for name, some, one in zip(names, rates, losses, strict=True)
    }
    rate = float(f"{rates[chosen][best[chosen]] / _FACTOR:.3g}")
    return names[chosen], rate, {"steps": steps, "candidates": tested}


def _rates_of(name: Any) -> np.ndarray:
    return (_RATES | _OTHERS).get(name, _OWN_RATES) if isinstance(name, str) else _OWN_RATES


def _networks(problem: Supervised, start: Any, run: Training) -> Any:
    """Return networks of a start, (params, model_state), leading axes (1, network); those of a
    function are the first of the run, so that its program is compiled once for both."""
    start, count = problem.start_from(start), max(run.num_replicas, 2)
    if isinstance(start, PerReplica):
        start = start._replace(by_chain=bool(start.by_chain))
        count = len(jax.tree.leaves(start.tree)[0])
    return initial_points(start, seed_keys(run.seed, 1)[1], 1, count, with_state=True)


def _range_test(
    problem: Supervised,
    tried: list[Kernel],
    rates: list[np.ndarray],
    points: Any,
    seed: int,
    steps: int,
) -> tuple[float, list[np.ndarray]]:
    """Return the loss before, and those after trainings by the kernels at their rates  (rate,)."""
    tried = [kernels.cosine(kernel, steps, max(1, steps // 20)) for kernel in tried]
    data, rows = mini_batches(problem, steps, seed)
    # On CPUs, where vectorised networks are slow, one candidate after the other.
    in_turn = jax.default_backend() == "cpu"

    def test(points: Any, candidates: Any, rows: Array, seed: Array, data: Any) -> Array:
        points = jax.tree.map(lambda leaf: leaf[0, :2], points)
        keys = jax.random.split(jax.random.key(seed), len(rows))
        judging = rows[:_JUDGED], keys[:_JUDGED]
        training = rows[_JUDGED:], keys[_JUDGED:]

        def losses_after(candidate: Any) -> Array:
            def after(point: Any) -> Array:
                trained = _trained(problem, tried, candidate, point, data, training)
                return _mean_loss(problem, trained, data, judging)

            return jax.lax.map(after, points)

        of_all = functools.partial(jax.lax.map, losses_after) if in_turn else jax.vmap(losses_after)
        return of_all(candidates)

    # The first candidate has the rate 0, and so the loss before.
    which = np.repeat(np.arange(len(tried)), [len(some) for some in rates])
    candidates = np.append(0, which), np.append(0, np.concatenate(rates)).astype(np.float32)
    after = compiled_once(test)(points, candidates, rows, np.uint32(seed % 2**32), data)
    before, *losses = np.asarray(after, float)
    worse = np.max(losses, axis=1)  # NaN where one of both is
    return float(np.mean(before)), [worse[which == number] for number in range(len(tried))]


def mini_batches(problem: Supervised, steps: int, seed: int) -> tuple[Any, np.ndarray]:
    """Return data, and the numbers of their rows in each mini-batch  (batch, row); the first ones
    are to judge, the others to train. Of a source they are the first ones of its first epoch."""
    batches, count = problem.batches, _JUDGED + steps
    size = batches.batch_size
    if isinstance(batches, SourceBatches):
        data = batches.first_rows(count, _MOST_BYTES)
        rows = np.arange(len(jax.tree.leaves(data)[0])).reshape(-1, size)
        training = rows[_JUDGED:] if len(rows) > _JUDGED else rows
        return data, np.concatenate(
            [np.resize(rows, (_JUDGED, size)), np.resize(training, (steps, size))]
        )
    # NumPy guarantees the numbers of RandomState for ever, unlike those of its newer generators.
    random = np.random.RandomState(seed % 2**32)
    epochs = -(-count * size // batches.num_rows)
    rows = np.concatenate([random.permutation(batches.num_rows) for _ in range(epochs)])
    return batches.data, np.resize(rows, (count, size))


def _batch_of(problem: Supervised, data: Any, batch: tuple[Array, Array]) -> tuple[Any, Any]:
    """Return a mini-batch, and the noise of the loss on it, given its rows and its key."""
    rows, key = batch
    batch_key, key = jax.random.split(key)
    some = jax.tree.map(lambda leaf: leaf[rows], data)
    return prepared(problem.batches.prepare, batch_key, some), problem.target.draw(key)


def _trained(
    problem: Supervised, tried: list[Kernel], candidate: Any, point: Any, data: Any, batches: Any
) -> Any:
    """Return a network after one step on each mini-batch, by the kernel of the candidate's number
    and with its peak rate. All kernels see the gradient, and one of them moves the network."""
    which, rate = candidate
    rung = Ladder(rate, jnp.zeros(()))

    def step(loop: Any, batch: Any) -> tuple[Any, None]:
        replicas, model_state = loop
        params = replicas[0].params
        seen = _batch_of(problem, data, batch)
        energy, gradient, model_state = problem.target.evaluate_state(params, model_state, *seen)
        evaluate = lambda params: (energy, gradient)  # noqa: E731
        moved = [one.step(None, at, evaluate, rung)[0] for one, at in zip(tried, replicas)]
        if len(moved) > 1:
            chosen = jax.tree.map(
                lambda *x: jax.lax.select_n(which, *x), *(x.params for x in moved)
            )
            moved = [replica._replace(params=chosen) for replica in moved]
        return (moved, model_state), None

    start = [kernel.init(point[0]) for kernel in tried]
    (moved, model_state), _ = jax.lax.scan(step, (start, point[1]), batches)
    return moved[0].params, model_state


def _mean_loss(problem: Supervised, point: Any, data: Any, batches: Any) -> Array:
    """Return the mean loss of a network on mini-batches."""

    def loss(batch: Any) -> Array:
        return problem.target.energy_at(point, *_batch_of(problem, data, batch))

    return jnp.mean(jax.lax.map(loss, batches))
