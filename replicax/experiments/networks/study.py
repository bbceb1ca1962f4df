"""Small networks on scikit-learn's digits: round trips by window, the swap rate, energy noise."""

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm import kernels
from replicax.data import load
from replicax.experiments.networks.figures import draw_noise, draw_rates, draw_windows
from replicax.experiments.networks.findings import findings, notes, tables
from replicax.experiments.networks.numbers import (
    LADDER,
    NUM_BATCHES,
    NUM_REPLICAS,
    RATE,
    best_window,
)
from replicax.experiments.shared.measured import stack
from replicax.experiments.shared.study import Cell, Record, Results, Scale, Study, Work
from replicax.networks import predict
from replicax.networks.classification import classification
from replicax.networks.options import TrainOptions
from replicax.networks.problem import Supervised
from replicax.nn.small import small_cnn
from replicax.run.per_replica import per_replica

_WIDTHS = (4, 8)  # so few channels that networks do not memorise the digits: energies stay noisy
_RATES = (0.01, 0.32)  # of the noise study
_START_RATE = 0.05
_STARTS: dict[tuple[int, int], Any] = {}  # start networks by epochs and seed
_STARTS_LOCK = threading.Lock()
_TITLE = "Small networks: windows, swap rates and energy noise"
_ABOUT = f"""
Section 5.2 and appendix B.4 on a scale that two cores can afford: {NUM_REPLICAS} networks of two
small convolutions on scikit-learn's digits, trained before at the learning rate {_START_RATE:g},
then sampled by momentum SGD between {LADDER[0]:g} and {LADDER[1]:g}; no augmentation, mini-batches
of 64. Three questions: does the window make round trips of networks more frequent, as it does for
coins (Lemma 1)? Which target swap rate gives the best average? And how does the noise of energies
depend on the learning rate, and how many replicas does it require?

The bounds were fixed before the first run of this study, which began from untrained networks, and
have not been changed since. In that run windows reduced the round trips (17.3, 11.7, 7.3 and 0.3
per 100 epochs at W = 1, 4, 27 and 108, three seeds), and at S = 0.01 the verdict rate was 0.06 %,
because the buffer did not recover from the values it had adapted to in early training. Its noise
part was invalid, because learning rates were adapted that should have been fixed. The results below
start from trained networks, as in the paper.
"""


@functools.cache
def problem() -> tuple[Supervised, Any]:
    """Return the posterior and the initialiser of its networks, as one object for all cells."""
    network, options = small_cnn(10, widths=_WIDTHS), {"augment": False, "weight_decay": 5e-4}
    return classification(network, load("digits"), batch_size=64, **options), network.init


def cells(scale: Scale) -> list[Cell]:
    """Return the cells; the studies of windows and of rates share the one at the best of both."""
    seeds, epochs = scale.num_seeds(3, 1), scale.choose(80, 6)
    optimal = best_window(RATE)
    windows = scale.choose((1, 4, optimal, 4 * optimal), (1, optimal))
    exchange = [(RATE, window) for window in windows]
    rates = scale.choose((0.01, 0.03, 0.3), ())
    exchange += [(rate, best_window(rate)) for rate in rates]
    common = {"seeds": seeds, "epochs": epochs, "burn_in": epochs // 4}
    common["start_epochs"] = scale.choose(40, 4)
    chosen = [Cell("noise", {"kind": "noise", **common})]
    for rate, window in exchange:
        settings = {"kind": "exchange", "rate": rate, "window": window, **common}
        chosen.append(Cell(f"S={rate:g}-W={window}", settings))
    return chosen


def run(settings: dict[str, Any], work: Work) -> Record:
    """Run the seeds of a cell one after another; they share a compiled program."""
    run_one = run_noise if settings["kind"] == "noise" else run_exchange
    return stack([run_one(settings, work, seed) for seed in range(settings["seeds"])])


def start_networks(settings: dict[str, Any], work: Work, seed: int) -> Any:
    """Return trained networks, (params, model_state) by replica; all cells of a seed share them."""
    epochs = settings["start_epochs"]
    with _STARTS_LOCK:
        if (epochs, seed) not in _STARTS:
            length = {"epochs": epochs, "burn_in": epochs}
            rates = np.full(NUM_REPLICAS, _START_RATE)
            _STARTS[epochs, seed] = _train_alone(length, work, seed, problem()[1], rates)
        return _STARTS[epochs, seed]


def _train_alone(
    settings: dict[str, Any], work: Work, seed: int, start: Any, rates: np.ndarray
) -> Any:
    """Return the last networks of replicas without exchange, (params, model_state) by replica."""
    every = tuple(range(NUM_REPLICAS))
    posterior = _sample(settings, work, seed, start, learning_rate=rates, schedule="none",
                        adapt=False, draw_rungs=every, target_swap_rate=RATE)  # fmt: skip
    draws = [posterior.draws_at(rung) for rung in every]
    return jax.tree.map(lambda *leaves: jnp.stack([leaf[0, -1] for leaf in leaves]), *draws)


def _sample(settings: dict[str, Any], work: Work, seed: int, start: Any, **options: Any) -> Any:
    digits, _ = problem()
    steps = digits.steps_per_epoch
    return work.sample(
        digits.target, start, num_replicas=NUM_REPLICAS, batches=digits.batches, seed=seed,
        num_steps=settings["epochs"] * steps, temperature=0.0, kernel=kernels.momentum(0.9),
        energy_at="before",
        burn_in=settings["burn_in"] * steps - 1, thin=steps, history_every=steps,
        on_nonfinite="restart", gain=TrainOptions.gain, buffer=TrainOptions.buffer,
        buffer_gain=TrainOptions.buffer_gain, **options,
    )  # fmt: skip


def run_exchange(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """Run one seed of an exchange: trips, verdict rates, and metrics of the average."""
    start = per_replica(start_networks(settings, work, seed))
    posterior = _sample(settings, work, seed, start, learning_rate=LADDER,
                        target_swap_rate=settings["rate"], window=settings["window"])  # fmt: skip
    averaged, single = evaluate(posterior.draws)
    return {
        "trips": 100 * posterior.round_trips[0] / settings["epochs"],
        "verdict_rate": posterior.verdict_rate[0],  # (pair,)
        "window_swap_rate": posterior.window_swap_rate[0],
        "learning_rate": posterior.learning_rates[0],
        "buffer": posterior.buffer[0],
        "accuracy": np.array(averaged.accuracy),
        "nll": np.array(averaged.nll),
        "single_accuracy": np.array(single.accuracy),
        "single_nll": np.array(single.nll),
    }


@functools.cache
def _logits() -> Any:
    test = problem()[0].test
    assert test is not None, "classification has test data"

    def logits(points: Any) -> Any:
        params, model_state = points
        return test.logits(params, model_state, test.inputs)

    return jax.jit(jax.vmap(logits)), test.labels


def evaluate(draws: Any) -> tuple[predict.Metrics, predict.Metrics]:
    """Return the metrics of the average of cold networks, by probabilities, and of the last one."""
    logits, labels = _logits()
    outputs = logits(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), draws))
    averaged, single = (
        predict.evaluate(predict.log_probabilities(predict.average(part)), labels)
        for part in (outputs, outputs[-1:])
    )
    return averaged, single


def run_noise(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """Train one network further at several learning rates; measure its energy on mini-batches."""
    rates, starts = np.geomspace(*_RATES, NUM_REPLICAS), start_networks(settings, work, seed)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), starts)
    energies = batch_energies(
        _train_alone(settings, work, seed, per_replica(same), rates)
    )  # (batch, rung)
    return {
        "learning_rate": rates,
        "energy": energies.mean(axis=0),
        "std": energies.std(axis=0, ddof=1),
        "difference_std": np.diff(energies, axis=1).std(axis=0, ddof=1),  # (pair,)
    }


@functools.cache
def _energies() -> Any:
    digits, _ = problem()

    def energies(networks: Any, data: Any, key: Any) -> Any:
        rows = jax.random.choice(key, digits.num_rows, (digits.batches.batch_size,), replace=False)
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        batch = digits.batches.prepare(key, batch) if digits.batches.prepare else batch
        return jax.vmap(lambda *network: digits.target.energy(*network, batch, key)[0])(*networks)

    return jax.jit(energies)


def batch_energies(networks: Any, num_batches: int = NUM_BATCHES) -> np.ndarray:
    """Return mean losses of networks (rung, ...) on the same mini-batches  -> (batch, rung)."""
    data, keys = problem()[0].batches.data, jax.random.split(jax.random.key(0), num_batches)
    return np.stack([np.asarray(_energies()(networks, data, key), float) for key in keys])


def figures(results: Results) -> dict[str, Any]:
    return {
        "windows": draw_windows(results),
        "rates": draw_rates(results),
        "noise": draw_noise(results),
    }


STUDY = Study("networks", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
