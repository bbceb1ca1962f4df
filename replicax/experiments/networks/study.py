"""Small networks on scikit-learn's digits: round trips by window, the swap rate, energy noise."""

import functools
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm import kernels
from replicax.data import load
from replicax.experiments.networks import figures as drawn
from replicax.experiments.networks.findings import findings, notes, tables
from replicax.experiments.networks.numbers import LADDER, LOOKS, NUM_REPLICAS, RATE, best_window
from replicax.experiments.shared.study import Cell, Record, Results, Scale, Study, Work
from replicax.networks import predict
from replicax.networks.problem import Supervised, classification
from replicax.networks.train import BUFFER, BUFFER_GAIN, GAIN
from replicax.nn.small import small_cnn
from replicax.run.initial import per_replica

_WIDTHS = (4, 8)  # so few channels that the digits are not learnt by heart and energies stay noisy
_RATES = (0.01, 0.32)  # of the noise study
_START_RATE = 0.05
_MADE: dict[tuple[int, int], Any] = {}  # start networks by their epochs and seed
_MAKING = threading.Lock()
_ABOUT = f"""
Section 5.2 and appendix B.4 on a scale that two cores can afford: {NUM_REPLICAS} networks of two
small convolutions on scikit-learn's digits, trained before at the learning rate {_START_RATE:g},
then sampled by momentum SGD between {LADDER[0]:g} and {LADDER[1]:g}; no augmentation, mini-batches
of 64. Three questions: does the window make round trips of networks more frequent, as it does for
coins (Lemma 1)? Which target swap rate makes the best average? And how noisy are energies, by
learning rate, with what that means for the number of replicas?

The bounds were fixed before the first run of this study, which began from untrained networks, and
have not been touched since. In that run the window cost trips (17.3, 11.7, 7.3 and 0.3 per 100
epochs at W = 1, 4, 27 and 108, three seeds), and at S = 0.01 pairs agreed in 0.06 % of steps,
because the buffer never came back from what it had learnt while networks were learning; its noise
part was void, because learning rates adapted that should have stood still. What follows begins from
trained networks, as the paper does.
"""


@functools.cache
def problem() -> tuple[Supervised, Any]:
    """The posterior and how its networks start; made once, so that programs can be shared."""
    network = small_cnn(10, widths=_WIDTHS)
    made = classification(network, load("digits"), batch_size=64, augment=False, weight_decay=5e-4)
    return made, network.init


def cells(scale: Scale) -> list[Cell]:
    """The window study and the sweep share the cell at the rate and the window of both."""
    seeds, epochs = scale.num_seeds(3, 1), scale.choose(80, 6)
    optimal = best_window(RATE)
    chosen = scale.choose((1, 4, optimal, 4 * optimal), (1, optimal))
    exchange = [(RATE, window) for window in chosen]
    rates = scale.choose((0.01, 0.03, 0.3), ())
    exchange += [(rate, best_window(rate)) for rate in rates]
    common = {"seeds": seeds, "epochs": epochs, "burn_in": epochs // 4}
    common["start_epochs"] = scale.choose(40, 4)
    made = [
        Cell(
            f"S={rate:g}-W={window}", {"kind": "exchange", "rate": rate, "window": window, **common}
        )
        for rate, window in exchange
    ]
    return [Cell("noise", {"kind": "noise", **common}), *made]


def run(settings: dict[str, Any], work: Work) -> Record:
    """One seed after the other, which share a program."""
    run_one = run_noise if settings["kind"] == "noise" else run_exchange
    found = [run_one(settings, work, seed) for seed in range(settings["seeds"])]
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def starts_of(settings: dict[str, Any], work: Work, seed: int) -> Any:
    """Networks trained before, (params, model_state) by replica; all cells of a seed share them."""
    epochs = settings["start_epochs"]
    with _MAKING:
        if (epochs, seed) not in _MADE:
            length = {"epochs": epochs, "burn_in": epochs}
            rates = np.full(NUM_REPLICAS, _START_RATE)
            _MADE[epochs, seed] = _alone(length, work, seed, problem()[1], rates)
        return _MADE[epochs, seed]


def _alone(settings: dict[str, Any], work: Work, seed: int, start: Any, rates: np.ndarray) -> Any:
    """The last networks of replicas that do not exchange, (params, model_state) by replica."""
    every = tuple(range(NUM_REPLICAS))
    found = _sample(settings, work, seed, start, learning_rate=rates, schedule="none", adapt=False,
                    draw_rungs=every, target_swap_rate=RATE)  # fmt: skip
    points = [jax.tree.map(lambda leaf: jnp.asarray(leaf[0, -1]), found.draws_at(r)) for r in every]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *points)


def _sample(settings: dict[str, Any], work: Work, seed: int, start: Any, **options: Any) -> Any:
    made, _ = problem()
    steps = made.steps_per_epoch
    return work.sample(
        made.target, start, num_replicas=NUM_REPLICAS, batches=made.batches, seed=seed,
        num_steps=settings["epochs"] * steps, temperature=0.0, kernel=kernels.momentum(0.9),
        energy_at="before",
        burn_in=settings["burn_in"] * steps - 1, thin=steps, history_every=steps,
        on_nonfinite="restart", gain=GAIN, buffer=BUFFER, buffer_gain=BUFFER_GAIN, **options,
    )  # fmt: skip


def run_exchange(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """DEO of one window and target: trips, verdict rates, and how good the average is."""
    start = per_replica(starts_of(settings, work, seed))
    found = _sample(settings, work, seed, start, learning_rate=LADDER,
                    target_swap_rate=settings["rate"], window=settings["window"])  # fmt: skip
    averaged, single = judge(found.draws)
    return {
        "trips": 100 * found.round_trips[0] / settings["epochs"],
        "verdict_rate": found.verdict_rate[0],  # (pair,)
        "window_swap_rate": found.window_swap_rate[0],
        "learning_rate": found.learning_rates[0],
        "buffer": found.buffer[0],
        "accuracy": np.array(averaged.accuracy),
        "nll": np.array(averaged.nll),
        "single_accuracy": np.array(single.accuracy),
        "single_nll": np.array(single.nll),
    }


@functools.cache
def _logits() -> Any:
    test = problem()[0].test
    assert test is not None, "classification has a test"

    def logits(points: Any) -> Any:
        params, model_state = points
        return test.logits(params, model_state, test.inputs)

    return jax.jit(jax.vmap(logits)), test.labels


def judge(draws: Any) -> tuple[predict.Metrics, predict.Metrics]:
    """The average of the cold networks, by probabilities, and the last one of them alone."""
    logits, labels = _logits()
    seen = logits(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), draws))
    averaged, single = (
        predict.evaluate(predict.log_probabilities(predict.average(part)), labels)
        for part in (seen, seen[-1:])
    )
    return averaged, single


def run_noise(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """One trained network goes on with several learning rates; then energies, standing still."""
    rates, starts = np.geomspace(*_RATES, NUM_REPLICAS), starts_of(settings, work, seed)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), starts)
    energies = look_at(_alone(settings, work, seed, per_replica(same), rates))  # (batch, rung)
    return {
        "learning_rate": rates,
        "energy": energies.mean(axis=0),
        "std": energies.std(axis=0, ddof=1),
        "difference_std": np.diff(energies, axis=1).std(axis=0, ddof=1),  # (pair,)
    }


@functools.cache
def _energies() -> Any:
    made, _ = problem()

    def energies(points: Any, data: Any, key: Any) -> Any:
        rows = jax.random.choice(key, made.num_rows, (made.batches.batch_size,), replace=False)
        batch = jax.tree.map(lambda leaf: leaf[rows], data)
        batch = made.batches.prepare(key, batch) if made.batches.prepare else batch
        return jax.vmap(lambda *one: made.target.energy(*one, batch, key)[0])(*points)

    return jax.jit(energies)


def look_at(points: Any, num_looks: int = LOOKS) -> np.ndarray:
    """Mean losses of networks (rung, ...) on the same mini-batches  -> (batch, rung)."""
    data, keys = problem()[0].batches.data, jax.random.split(jax.random.key(0), num_looks)
    return np.stack([np.asarray(_energies()(points, data, key), float) for key in keys])


def figures(results: Results) -> dict[str, Any]:
    return {
        "windows": drawn.draw_windows(results),
        "rates": drawn.draw_rates(results),
        "noise": drawn.draw_noise(results),
    }


STUDY = Study(
    name="networks",
    title="Small networks: windows, swap rates and energy noise",
    about=_ABOUT,
    cells=cells,
    run=run,
    findings=findings,
    figures=figures,
    tables=tables,
    notes=notes,
)
