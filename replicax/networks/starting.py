"""What a method needs to begin with new networks: rates that a range test finds, a training before
the sampling, swap rates that fit the number of steps, and inputs of a usual size.

Methods that start from trained networks keep the settings of the paper.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from replicax import theory
from replicax.networks import rates
from replicax.networks.predictor import unlike_standard
from replicax.networks.task import Supervised
from replicax.run.initial import is_function
from replicax.run.methods import METHODS, Method, written
from replicax.run.options import Training
from replicax.run.parts import is_auto
from replicax.run.plan import pretrain_epochs
from replicax.run.program import Program
from replicax.run.resolve import resolve

_SHARE = 300 / 800  # of the epochs, as in the paper
_LADDER, _COLD = (1 / 20, 1 / 5), 1 / 20  # of the peak rate, which is 0.1 in the paper
_SWAP_RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_ENOUGH_TRIPS = 5


def fitted(
    problem: Supervised, task: Supervised, method: Method, run: Training, start: Any
) -> tuple[Method, Training, dict[str, Any] | None]:
    """Return the method and the run with what new networks need, and the results of the range test,
    None without one. `task` is the problem as the method poses it."""
    is_ours = method.name in METHODS and method.rate_schedule in ("constant", "cyclical")
    if method.pretrain is None and is_ours and is_function(start):
        method = replace(method, pretrain=_SHARE if run.epochs > 1 else 0.0)
    tests_pretraining = bool(method.pretrain) and method.pretrain_rate is None
    finds_rate = is_auto(method.learning_rate) and not method.has_ladder  # else it is refused
    if not finds_rate and not method.pretrain:
        return method, run, None
    if is_auto(method.temperature) and run.burn_in is None:
        before = pretrain_epochs(run, method)
        run = replace(run, burn_in=before + (run.epochs - before) // 3)
    if not (finds_rate or tests_pretraining):
        return _with_swap_rate(problem, _with_rates(method), run), run, None
    resolve(task, run, _guessed(problem, method, run))  # refuses before a test that takes time
    kernel, rate, tested = rates.found(problem, method, run, start)
    if finds_rate:
        method = replace(method, kernel=kernel, learning_rate=rate)
    else:
        method = replace(method, pretrain_rate=rate)
    return _with_swap_rate(problem, _with_rates(method), run), run, tested


def _guessed(problem: Supervised, method: Method, run: Training) -> Method:
    """Return the method with some rates and a kernel, to be checked before the range test."""
    if is_auto(method.kernel):
        method = replace(method, kernel="momentum")
    if is_auto(method.learning_rate) and not method.has_ladder:
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
    trips = [_expected_trips(method, rate, run.num_replicas, steps) for rate in _SWAP_RATES]
    enough = [rate for rate, some in zip(_SWAP_RATES, trips) if some >= _ENOUGH_TRIPS]
    return replace(method, target_swap_rate=min(enough, default=_SWAP_RATES[np.argmax(trips)]))


def _swaps_by_rate(method: Method) -> bool:
    """Whether a target swap rate decides how often networks swap."""
    return method.has_ladder and method.rule in (None, "deterministic")


def _expected_trips(method: Method, swap_rate: float, num_replicas: int, steps: float) -> float:
    """Return how many round trips Lemma 1 expects in so many steps."""
    window = method.window or 1
    if method.window is None and method.schedule == "deo_star":
        window = theory.optimal_window(num_replicas, swap_rate)
    rate = theory.round_trip_rate(1 - swap_rate, window=window, num_replicas=num_replicas)
    return steps * float(rate)


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
    trips = _expected_trips(method, rate, count, steps)
    if trips >= 1:
        return
    others = [(_expected_trips(replace(method, window=None), other, count, steps), other)
              for other in _SWAP_RATES]  # fmt: skip
    best, other = max(others)
    remedy = f"write method={written(method.name, f'target_swap_rate={other}')}"
    if best < 1:
        epochs = int(np.ceil(run.epochs / best))
        remedy = f"write {epochs:,} epochs with target_swap_rate={other}, or fewer networks"
    warnings.warn(
        f"No round trip is to be expected: {count} networks with the target swap rate {rate:g} and "
        f"a window of {method.window} make {trips:.2g} in {steps:,} steps, and without round trips "
        f'exchange does nothing: {remedy}; or method="deep-ensemble".',
        stacklevel=3,
    )
