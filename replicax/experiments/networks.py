"""Small networks on scikit-learn's digits: round trips by window, the swap rate, energy noise."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax import kernels, predict
from replicax.data import load
from replicax.experiments import networks_figures as drawn
from replicax.experiments.networks_numbers import (
    BEST,
    COLD_TEMPERATURES,
    LADDER,
    NUM_REPLICAS,
    RATE,
    best_window,
    lemma,
    noise_of,
    replica_counts,
    sweep,
    trips,
    windows,
)
from replicax.experiments.study import (
    Cell,
    Finding,
    Measured,
    Record,
    Results,
    Scale,
    Study,
    Table,
    Work,
    number,
)
from replicax.ladder import Gain
from replicax.nn.small import small_cnn
from replicax.problems import Supervised, classification

_WIDTHS = (4, 8)  # so few channels that the digits are not learnt by heart and energies stay noisy
_RATES = (0.01, 0.32)  # of the noise study, doubled from rung to rung
_NUM_RATES = 6
_LOOKS = 100  # mini-batches that judge the energy noise
_ABOUT = f"""
Section 5.2 and appendix B.4 on a scale that two cores can afford: {NUM_REPLICAS} networks of two
small convolutions on scikit-learn's digits, momentum SGD between the learning rates
{LADDER[0]:g} and {LADDER[1]:g}, no augmentation, mini-batches of 64. Three questions: does the
window make round trips of networks more frequent, as it does for coins (Lemma 1)? Which target swap
rate makes the best average? And how noisy are energies, by learning rate, with what that means for
the number of replicas? All bounds were fixed before the runs.
"""


@functools.cache
def problem() -> tuple[Supervised, Any]:
    """The posterior and how its networks start; made once, so that programs can be shared."""
    network = small_cnn(10, widths=_WIDTHS)
    made = classification(network, load("digits"), batch_size=64, augment=False, weight_decay=5e-4)
    return made, network.init


def cells(scale: Scale) -> list[Cell]:
    """The window study and the sweep share the cell at the rate and the window of both."""
    seeds, epochs = scale.num_seeds(3, 1), scale.choose(100, 8)
    optimal = best_window(RATE)
    chosen = scale.choose((1, 4, optimal, 4 * optimal), (1, optimal))
    exchange = [(RATE, window) for window in chosen]
    rates = scale.choose((0.01, 0.03, 0.3), ())
    exchange += [(rate, best_window(rate)) for rate in rates]
    common = {"seeds": seeds, "epochs": epochs, "burn_in": epochs // 4}
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


def _sample(settings: dict[str, Any], work: Work, seed: int, **options: Any) -> Any:
    made, init = problem()
    steps = made.steps_per_epoch
    return work.sample(
        made.target, init, batches=made.batches, num_steps=settings["epochs"] * steps, seed=seed,
        temperature=0.0, kernel=kernels.momentum(0.9), energy_at="before",
        burn_in=settings["burn_in"] * steps - 1, thin=steps, history_every=steps,
        on_nonfinite="restart", gain=Gain(600.0, 1000.0), buffer=0.1,
        buffer_gain=Gain(60.0, 1000.0, cap=0.05), **options,
    )  # fmt: skip


def run_exchange(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """DEO of one window and target: trips, verdict rates, and how good the average is."""
    found = _sample(settings, work, seed, num_replicas=NUM_REPLICAS, learning_rate=LADDER,
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
    return jax.jit(jax.vmap(lambda points: test.logits(*points, test.inputs))), test.labels


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
    """Independent networks at each of several learning rates; then their energies, not moving."""
    rates = np.geomspace(*_RATES, _NUM_RATES)
    every = tuple(range(_NUM_RATES))
    found = _sample(settings, work, seed, num_replicas=_NUM_RATES, learning_rate=rates,
                    schedule="none", draw_rungs=every, target_swap_rate=RATE)  # fmt: skip
    points = [jax.tree.map(lambda leaf: jnp.asarray(leaf[0, -1]), found.draws_at(r)) for r in every]
    energies = look_at(jax.tree.map(lambda *leaves: jnp.stack(leaves), *points))  # (batch, rung)
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


def look_at(points: Any, num_looks: int = _LOOKS) -> np.ndarray:
    """Mean losses of networks (rung, ...) on the same mini-batches  -> (batch, rung)."""
    data, keys = problem()[0].batches.data, jax.random.split(jax.random.key(0), num_looks)
    return np.stack([np.asarray(_energies()(points, data, key), float) for key in keys])


def findings(results: Results) -> list[Finding]:
    return [*window_findings(results), *rate_findings(results), *noise_findings(results)]


def is_long(results: Results) -> bool:
    """Whether there was time for round trips; the quick version only shows."""
    return all(settings["epochs"] >= 50 for settings, _ in results)


def window_findings(results: Results) -> list[Finding]:
    optimal, one = trips(results, BEST), trips(results, 1)
    ratio = optimal.mean / max(one.mean, 1e-9)
    closed = lemma(best_window(RATE)) / lemma(1)
    lines = [
        Finding(f"round trips per 100 epochs, W = 1, S = {RATE:g}", number(lemma(1)), one),
        Finding(f"round trips per 100 epochs, W = {best_window(RATE)}",
                number(lemma(best_window(RATE))), optimal),
        Finding(f"trips at W = {best_window(RATE)} over trips at W = 1", number(closed),
                number(ratio), "above 1", ratio > 1 if is_long(results) else None),
    ]  # fmt: skip
    far = [w for w in windows(results) if w > best_window(RATE)]
    if far:
        share = trips(results, far[0]).mean / max(optimal.mean, 1e-9)
        lines.append(
            Finding(f"trips at W = {far[0]} over trips at W = {best_window(RATE)}",
                    number(lemma(far[0]) / lemma(best_window(RATE))), number(share), "below 1",
                    share < 1 if is_long(results) else None)
        )  # fmt: skip
    return lines


def rate_findings(results: Results) -> list[Finding]:
    """Whether pairs agree as often as asked, and which target has the best average."""
    off = [abs(m["verdict_rate"].mean() / rate - 1) for rate, m in sweep(results)]
    lines = [Finding("mean verdict rate, largest distance to its target", "0",
                     f"{100 * max(off):.0f} %", "at most 25 %",
                     max(off) <= 0.25 if is_long(results) else None)]  # fmt: skip
    for name, what in (("nll", "lowest NLL"), ("accuracy", "highest accuracy")):
        sign = 1 if name == "nll" else -1
        best = min(sweep(results), key=lambda pair: sign * pair[1][name].mean())
        lines.append(Finding(f"S with the {what} of the average", "0.005 on CIFAR-100",
                             f"{best[0]:g}: {Measured.of(best[1][name])}"))  # fmt: skip
    return lines


def noise_findings(results: Results) -> list[Finding]:
    noise = noise_of(results)
    ratio = noise.alone[-1] / noise.alone[0]
    shared = float(np.max(noise.pair / np.hypot(noise.alone[1:], noise.alone[:-1]) * np.sqrt(2)))
    low, high = noise.rate[0], noise.rate[-1]
    return [
        Finding(f"energy noise at learning rate {high:g} over that at {low:g}", "grows",
                number(ratio), "above 1", ratio > 1),
        Finding("σ_p of neighbours on the same mini-batch, over that of independent ones (largest)",
                "1", number(shared), "below 1: shared noise cancels", shared < 1),
    ]  # fmt: skip


def tables(results: Results) -> list[Table]:
    header = ["W", "trips per 100 epochs", "Lemma 1 at r = 1 - S", "Lemma 1, measured rates",
              "mean verdict rate", "swaps per window"]  # fmt: skip
    rows = []
    for window in windows(results):
        record = results.only(rate=RATE, window=window)
        rows.append([window, trips(results, window), lemma(window),
                     lemma(window, record["verdict_rate"].mean(axis=0)),
                     record["verdict_rate"].mean(), record["window_swap_rate"].mean()])  # fmt: skip
    sweep_head = ["S", "W", "mean verdict rate", "buffer", "accuracy of the average, %",
                  "NLL of the average", "accuracy of the last network, %"]  # fmt: skip
    sweep_rows = [
        [f"{rate:g}", best_window(rate), Measured.of(record["verdict_rate"].mean(axis=1)),
         Measured.of(record["buffer"]), Measured.of(100 * record["accuracy"]),
         Measured.of(record["nll"]), Measured.of(100 * record["single_accuracy"])]
        for rate, record in sweep(results)
    ]  # fmt: skip
    noise = noise_of(results)
    noise_rows = [
        [f"{rate:.3g}", f"{energy:.3f}", f"{alone:.4f}", f"{pair:.4f}" if pair else "–"]
        for rate, energy, alone, pair in zip(
            noise.rate, noise.energy, noise.alone, [*noise.pair, None], strict=True
        )
    ]
    noise_head = ["learning rate", "mean loss", "sd over mini-batches, mean loss",
                  "σ_p with the next rate, same mini-batches"]  # fmt: skip
    count_head = ["τ of the coldest rung", "noise alone: P⋆", "same mini-batches: P⋆"]
    return [
        Table("Windows", header, rows),
        Table("The target swap rate", sweep_head, sweep_rows),
        Table("Energy noise by learning rate", noise_head, noise_rows),
        Table("How many replicas that noise asks for", count_head, replica_counts(results)),
    ]


def notes(results: Results) -> list[str]:
    noise = noise_of(results)
    rows = problem()[0].num_rows
    return [
        "Lemma 1 treats verdicts as coins tossed anew at every step. Networks remember: a pair "
        "that agrees now is likely to agree again at the next mini-batch, or to have just swapped, "
        "so counted trips need not match it, and the first trips come late because every replica "
        "starts on its own rung.",
        f"Energy noise: standard deviation over {_LOOKS} mini-batches of 64 of the mean loss of a "
        "network that stands still, as swaps see it (batch statistics of the mini-batch), times "
        f"N = {rows} for energies in total loss. σ_p is that of Eq. 14: the difference of two "
        "energies has variance 2 σ_p²; on the same mini-batch it is the deviation of the "
        "differences over √2.",
        "How many replicas (appendix B.4): `theory.optimal_num_replicas` wants temperatures, which "
        "rungs of SGD do not have. The reading taken here is the paper's, that temperature is "
        f"proportional to the learning rate: τ_p = τ_0 η_p / η_0 over η = {noise.rate[0]:g} to "
        f"{noise.rate[-1]:g}. τ_0, the temperature of the coldest rung, is not determined by that; "
        f"{', '.join(f'{t:g}' for t in COLD_TEMPERATURES)} are shown, and P⋆ is proportional to "
        "1 / τ_0: the paper's thousands rest on a cold posterior's τ_0 far below 1.",
    ]


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
