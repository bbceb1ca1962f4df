"""Small networks on scikit-learn's digits: round trips by window, the swap rate, energy noise."""

import functools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax import theory
from replicax.networks.task import Supervised
from replicax.results import figure_style
from studies.shared.index_process import simulate_trips
from studies.shared.study import (
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
    stack,
)

NUM_REPLICAS = 8
LADDER = (0.02, 0.2)
RATE = 0.1  # the target swap rate of the window study
_REPEATS = 200
BEST = 0  # means the best window
COLD_TEMPERATURES = (1.0, 0.1, 0.01)
NUM_BATCHES = 100  # mini-batches to estimate the energy noise
NUM_ROWS = 1297  # training images
STEPS_PER_EPOCH = 21  # mini-batches of 64
_WIDTHS = (4, 8)  # so few channels that networks do not memorise the digits: energies stay noisy
_RATES = (0.01, 0.32)  # of the noise study
_START_RATE = 0.05
_AS_TRAINED: dict[str, Any] = {  # what is usual for `rx.train`
    "kernel": "momentum",
    "temperature": 0.0,
    "energy_at": "before",
    "gain": rx.Gain(600.0, 1000.0),
    "buffer": 0.1,
    "buffer_gain": rx.Gain(60.0, 1000.0, cap=0.05),
}
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
    network, options = rx.nn.small_cnn(10, widths=_WIDTHS), {"augment": False, "weight_decay": 5e-4}
    return rx.classification(
        network, rx.data.load("digits"), batch_size=64, **options
    ), network.init


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
    alone = rx.Method(
        "alone", rates, schedule="none", adapt=False, target_swap_rate=RATE, **_AS_TRAINED
    )
    posterior = _sample(settings, work, seed, start, alone, draw_rungs=every)
    draws = [posterior.draws_at(rung) for rung in every]
    return jax.tree.map(lambda *leaves: jnp.stack([leaf[0, -1] for leaf in leaves]), *draws)


def _sample(
    settings: dict[str, Any], work: Work, seed: int, start: Any, method: rx.Method, **options: Any
) -> Any:
    """Sample networks by `rx.sample`, with a draw at the end of every epoch."""
    digits, _ = problem()
    steps = digits.steps_per_epoch
    return work.sample(
        digits.target,
        start,
        batches=digits.batches,
        num_steps=settings["epochs"] * steps,
        burn_in=settings["burn_in"] * steps - 1,
        thin=steps,
        history_every=steps,
        num_replicas=NUM_REPLICAS,
        method=method,
        on_nonfinite="restart",
        seed=seed,
        **options,
    )


def run_exchange(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """Run one seed of an exchange: trips, verdict rates, and metrics of the average."""
    start = rx.per_replica(start_networks(settings, work, seed))
    exchange = rx.deo_star(
        LADDER, target_swap_rate=settings["rate"], window=settings["window"], **_AS_TRAINED
    )
    posterior = _sample(settings, work, seed, start, exchange)
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
        return test.outputs(params, model_state, test.inputs)

    return jax.jit(jax.vmap(logits)), test.targets


def evaluate(draws: Any) -> tuple[rx.predict.Metrics, rx.predict.Metrics]:
    """Return the metrics of the average of cold networks, by probabilities, and of the last one."""
    logits, labels = _logits()
    outputs = logits(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), draws))
    averaged, single = (
        rx.predict.evaluate(rx.predict.log_probabilities(rx.predict.average(part)), labels)
        for part in (outputs, outputs[-1:])
    )
    return averaged, single


def run_noise(settings: dict[str, Any], work: Work, seed: int) -> Record:
    """Train one network further at several learning rates; measure its energy on mini-batches."""
    rates, starts = np.geomspace(*_RATES, NUM_REPLICAS), start_networks(settings, work, seed)
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), starts)
    energies = batch_energies(
        _train_alone(settings, work, seed, rx.per_replica(same), rates)
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


class Noise(NamedTuple):
    """The energy noise, averaged over seeds."""

    rate: np.ndarray  # (rung,) learning rates
    energy: np.ndarray  # (rung,) mean loss
    alone: np.ndarray  # (rung,) standard deviation over mini-batches
    pair: np.ndarray  # (pair,) sigma_p of neighbours on the same mini-batches


def best_window(rate: float) -> int:
    """Return the window of Theorem 1."""
    return int(theory.optimal_window(NUM_REPLICAS, rate))


def windows(results: Results) -> list[int]:
    return sorted(s["window"] for s, _ in results.where(rate=RATE))


def trips(results: Results, window: int) -> Measured:
    """Return round trips per 100 epochs, over seeds."""
    record = results.only(rate=RATE, window=window or best_window(RATE))
    return Measured.of(record["trips"])


def lemma(window: float, verdict_rate: Any = None) -> float:
    """Return round trips per 100 epochs by Lemma 1, at the target rate or at measured rates."""
    if verdict_rate is not None and np.any(np.asarray(verdict_rate) <= 0):
        return 0.0  # no replica passes a pair that never swaps
    if verdict_rate is None:
        rate = theory.round_trip_rate(1 - RATE, window, NUM_REPLICAS)
    else:
        rate = theory.round_trip_rate(1 - np.asarray(verdict_rate, float), window)
    return float(100 * STEPS_PER_EPOCH * rate)


def coins(results: Results, window: int) -> Measured:
    """Return trips per 100 epochs of coins with the measured rates, in runs of equal length."""
    ((settings, record),) = results.where(rate=RATE, window=window)
    rates, steps = record["verdict_rate"].mean(axis=0), settings["epochs"] * STEPS_PER_EPOCH
    counts = simulate_trips(rates, window, steps, repeats=_REPEATS)
    return Measured.of(100 * counts / settings["epochs"])


def sweep(results: Results) -> Iterator[tuple[float, Record]]:
    """Return target swap rates in order, with the record of each at its best window."""
    records = [(s["rate"], r) for s, r in results.where(kind="exchange")
               if s["window"] == best_window(s["rate"])]  # fmt: skip
    return iter(sorted(records, key=lambda pair: pair[0]))


def noise_of(results: Results) -> Noise:
    record = results["noise"]
    return Noise(
        np.asarray(record["learning_rate"][0], float),
        record["energy"].mean(axis=0),
        record["std"].mean(axis=0),
        record["difference_std"].mean(axis=0) / np.sqrt(2),
    )


def replica_counts(results: Results) -> list[list[Any]]:
    """Return P_star by cold temperature, from the noise of single energies and of differences."""
    noise = noise_of(results)
    rows: list[list[Any]] = []
    for cold in COLD_TEMPERATURES:
        temperatures = cold * noise.rate / noise.rate[0]
        apart = np.sqrt((noise.alone[1:] ** 2 + noise.alone[:-1] ** 2) / 2)
        counts = [
            theory.optimal_num_replicas(NUM_ROWS * sigma, temperatures)
            for sigma in (apart, noise.pair)
        ]
        ranges = [f"{c.num_replicas} ({c.lower:.0f} to {c.upper:.0f})" for c in counts]
        rows.append([f"{cold:g}", *ranges])
    return rows


def findings(results: Results) -> list[Finding]:
    return [*window_findings(results), *rate_findings(results), *noise_findings(results)]


def is_long(results: Results) -> bool:
    """Return whether runs are long enough for round trips; the quick version is not judged."""
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
    """Compare verdict rates with their targets, and find the target with the best average."""
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
    ratio = float(noise.alone[-1] / noise.alone[0])
    shared = float(np.max(noise.pair / np.hypot(noise.alone[1:], noise.alone[:-1]) * np.sqrt(2)))
    low, high = noise.rate[0], noise.rate[-1]
    by_seed = results["noise"]["std"][:, -1] / results["noise"]["std"][:, 0]
    seeds = f"{number(ratio)} (seeds: {', '.join(number(one) for one in by_seed)})"
    return [
        Finding(f"energy noise at learning rate {high:g} over that at {low:g}", "grows",
                seeds, "above 1", ratio > 1),
        Finding("σ_p of neighbours on the same mini-batch, over that of independent ones (largest)",
                "1", number(shared), "below 1: shared noise cancels", shared < 1),
    ]  # fmt: skip


def tables(results: Results) -> list[Table]:
    header = ["W", "trips per 100 epochs", "Lemma 1 at r = 1 - S", "Lemma 1, measured rates",
              "coins of the measured rates", "mean verdict rate", "swaps per window"]  # fmt: skip
    rows = []
    for window in windows(results):
        record = results.only(rate=RATE, window=window)
        rows.append([window, trips(results, window), lemma(window),
                     lemma(window, record["verdict_rate"].mean(axis=0)),
                     coins(results, window), record["verdict_rate"].mean(),
                     record["window_swap_rate"].mean()])  # fmt: skip
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
        Table("Number of replicas for that noise", count_head, replica_counts(results)),
    ]


def notes(results: Results) -> list[str]:
    noise = noise_of(results)
    return [
        *_trip_notes(results),
        *_settling(results),
        *_growth(results),
        f"Energy noise: standard deviation over {NUM_BATCHES} mini-batches of 64 of the mean loss "
        "of a fixed network, as swaps see it (batch statistics of the mini-batch), "
        f"times N = {NUM_ROWS} for energies in total loss. σ_p is that of Eq. 14: the difference "
        "of two energies has variance 2 σ_p²; on the same mini-batch it is the deviation of the "
        "differences over √2. As in the paper one trained network went on with all rates, so that "
        "neighbours are relatives: replicas that began apart share less of the noise.",
        "How many replicas (appendix B.4): `theory.optimal_num_replicas` wants temperatures, which "
        "rungs of SGD do not have. The reading taken here is the paper's, that temperature is "
        f"proportional to the learning rate: τ_p = τ_0 η_p / η_0 over η = {noise.rate[0]:g} to "
        f"{noise.rate[-1]:g}. τ_0, the temperature of the coldest rung, is not determined by that; "
        f"{', '.join(f'{t:g}' for t in COLD_TEMPERATURES)} are shown, and P⋆ is proportional to "
        "1 / τ_0: the paper's thousands rest on a cold posterior's τ_0 far below 1.",
    ]


def _trip_notes(results: Results) -> list[str]:
    """Compare networks with coins of the same rates."""
    if not is_long(results):
        return ["Too short for round trips: the quick version shows the numbers without a verdict."]
    best = best_window(RATE)
    record = results.only(rate=RATE, window=best)
    expected = 1 - (1 - record["verdict_rate"]) ** best
    return [
        "Lemma 1 treats verdicts as coins that are tossed anew at every step, whoever meets, in a "
        f"run without beginning. With W = {best} a pair swapped in "
        f"{100 * record['window_swap_rate'].mean():.0f} % of its windows, coins of its verdict "
        f"rate would in {100 * expected.mean():.0f} %, and {trips(results, best)} trips per 100 "
        f"epochs compare with {coins(results, best)} of such coins in runs as long from the same "
        f"start; with W = 1 {trips(results, 1)} compare with {coins(results, 1)}.",
    ]


def _settling(results: Results) -> list[str]:
    noise = noise_of(results)
    if noise.energy[0] < 1.2 * noise.energy[1]:
        return []
    return [
        f"At the learning rate {noise.rate[0]:g} the mean loss, {noise.energy[0]:.3f}, is above "
        f"that at {noise.rate[1]:g}, {noise.energy[1]:.3f}: those networks have not settled in the "
        "epochs they had, and their noise is that of a network on its way.",
    ]


def _growth(results: Results) -> list[str]:
    """Say if some seeds do not show that single energies become noisier."""
    std = results["noise"]["std"]
    against = int(np.sum(std[:, -1] <= std[:, 0]))
    if against == 0:
        return []
    return [
        f"The growth of the noise of single energies is weak: {against} of {len(std)} seeds do not "
        "show it. What swaps see, the difference of neighbours, grows with the learning rate far "
        "more, from relatives that have hardly parted to such that have.",
    ]


def figures(results: Results) -> dict[str, Any]:
    return {
        "windows": draw_windows(results),
        "rates": draw_rates(results),
        "noise": draw_noise(results),
    }


def draw_windows(results: Results) -> Any:
    figure = figure_style.new_figure(7.6, 4.4)
    axes = figure.add_subplot()
    chosen = windows(results)
    closed = np.geomspace(min(chosen), max(chosen), 60)
    axes.set_xscale("log")
    axes.plot(
        closed, [lemma(w) for w in closed], **figure_style.DASHED, label="Lemma 1 at r = 1 - S"
    )
    expected = [coins(results, window) for window in chosen]
    axes.errorbar(chosen, [e.mean for e in expected], [e.std for e in expected], fmt="s",
                  mfc="white", color=figure_style.SOFT, capsize=3,
                  label="coins of the measured rates, mean ± sd")  # fmt: skip
    for window in chosen:
        by_seed = results.only(rate=RATE, window=window)["trips"]
        label = "one seed" if window == chosen[0] else None
        axes.plot([window] * len(by_seed), by_seed, "o", color=figure_style.CHAINS[0], ms=4,
                  alpha=0.5, label=label)  # fmt: skip
    means = [results.only(rate=RATE, window=w)["trips"].mean() for w in chosen]
    axes.plot(chosen, means, "-", color=figure_style.CHAINS[0], lw=1.6, label="mean")
    axes.set_ylim(bottom=0)
    figure_style.label(axes, "window W", "round trips per 100 epochs", f"target swap rate {RATE:g}")
    axes.set_xticks(chosen, [str(w) for w in chosen])
    axes.set_xticks([], minor=True)
    figure_style.legend_below(axes)
    figure.set_label(
        f"Round trips of small networks by window; Theorem 1's best one is {best_window(RATE)}. "
        "Coins toss the measured verdict rates in a run of the same length from the same start."
    )
    return figure


def draw_rates(results: Results) -> Any:
    figure = figure_style.new_figure(10.5, 3.8)
    row = figure.subplots(1, 2)
    records = list(sweep(results))
    rates = [rate for rate, _ in records]
    kinds = (("accuracy", 100, "accuracy, %"), ("nll", 1, "NLL per image, nats"))
    for axes, (name, scale, y) in zip(row, kinds, strict=True):
        axes.set_xscale("log")
        for prefix, colour, what in (
            ("", figure_style.CHAINS[0], "average of cold networks"),
            ("single_", figure_style.CHAINS[1], "the last cold network"),
        ):
            values = [scale * record[prefix + name] for _, record in records]
            for rate, by_seed in zip(rates, values, strict=True):
                axes.plot([rate] * len(by_seed), by_seed, "o", color=colour, ms=4, alpha=0.5)
            axes.plot(rates, [v.mean() for v in values], color=colour, lw=1.6, label=what)
        figure_style.label(axes, "target swap rate S", y)
        axes.set_xticks(rates, [f"{rate:g}" for rate in rates])
        axes.set_xticks([], minor=True)
    figure_style.legend_below(row[0])
    figure.set_label(
        "Test accuracy and NLL of the cold rung by target swap rate, each at Theorem 1's window; "
        "dots are seeds."
    )
    return figure


def draw_noise(results: Results) -> Any:
    figure = figure_style.new_figure(7, 4)
    axes = figure.add_subplot()
    noise = noise_of(results)
    record = results["noise"]
    middle = np.sqrt(noise.rate[1:] * noise.rate[:-1])
    axes.set_xscale("log")
    axes.set_yscale("log")
    for seed in range(len(record["std"])):
        alone = record["std"][seed]
        axes.plot(noise.rate, alone, "o", color=figure_style.CHAINS[0], ms=4, alpha=0.4)
        pair = record["difference_std"][seed] / np.sqrt(2)
        axes.plot(middle, pair, "s", color=figure_style.CHAINS[1], ms=4, alpha=0.4)
    axes.plot(noise.rate, noise.alone, color=figure_style.CHAINS[0], label="one network")
    axes.plot(middle, noise.pair, color=figure_style.CHAINS[1],
              label="neighbours on the same mini-batch: σ of Eq. 14")  # fmt: skip
    figure_style.label(
        axes, "learning rate", "sd of the mean loss over mini-batches", "Energy noise"
    )
    axes.set_xticks(noise.rate, [f"{rate:.3g}" for rate in noise.rate])
    axes.set_xticks([], minor=True)
    figure_style.legend(axes)
    figure.set_label(
        "How much the mini-batch moves the energy of a fixed network, by the learning "
        "rate that it was trained with; dots are seeds."
    )
    return figure


STUDY = Study("networks", _TITLE, _ABOUT, cells, run, findings, figures, tables, notes)
