"""What should a training budget be spent on? Small convolutional networks, 16 x 16 images."""

import functools
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np

import replicax as rx
from replicax.networks.evaluate import build_outputs
from replicax.networks.task import Supervised
from replicax.results import figure_style
from studies.shared.small_images import small_images
from studies.shared.study import (
    Cell,
    Finding,
    Record,
    Results,
    Scale,
    Study,
    Table,
    Work,
    stack,
)

NETWORKS, EPOCHS, BATCH, PEAK = 6, 40, 100, 0.1
BUDGETS = (10, 20, 40, 80, 160)
HELD_OUT = 500  # training images on which settings are chosen, with seed 0
WIDTHS = (16, 32, 64, 64)  # 62,000 parameters
REGIMES = {"augmented": True, "plain": False}  # the networks still learn, or know their data
TRUNK = 0.7  # of the epochs, along a cosine, before a ladder takes over
SWAP_RATE, EVERY = 0.1, 10  # with which a ladder makes round trips; steps between judgements
_QUICK = ("deep-ensemble .1", "ensemble-then-sample .1 from .7")
_OWN = "what it averages itself"
_WAYS = ("last", "coldest", "coldest half", "all", "all half")


def falling(num_epochs: int, steps_per_epoch: int) -> Callable[[Any], Any]:
    """Return the factor of the peak rate: a cosine to 0 over the trunk, then from a half to a tenth
    in the first half of the rest, and constant, as `ensemble_then_sample` has it."""
    trunk, end = TRUNK * num_epochs * steps_per_epoch, num_epochs * steps_per_epoch

    def factor(step: Any) -> Any:
        half = (end - trunk) / 2
        cosine = 0.5 * (1 + jnp.cos(jnp.pi * jnp.minimum(step / trunk, 1)))
        place = jnp.clip((step - trunk) / half, 0, 1)
        after = 0.1 + 0.4 * 0.5 * (1 + jnp.cos(jnp.pi * place))
        warm = jnp.minimum(1.0, (step + 1) / steps_per_epoch)
        return jnp.where(step < trunk, warm * cosine, after)

    return factor


def _ladder(swaps: bool, **more: Any) -> Callable[[int, int], rx.Method]:
    """Return a ladder of learning rates after a trunk, with swaps or without; `more` is a part of
    the method."""
    usual: dict[str, Any] = {"learning_rate": (0.005, 0.02), "pretrain": TRUNK}
    usual |= {"pretrain_rate": PEAK, "target_swap_rate": SWAP_RATE, **more}
    return lambda epochs, steps: _with_swaps(rx.deo_star(**usual), swaps)


def _with_swaps(method: rx.Method, swaps: bool) -> rx.Method:
    """Return the method, or the same rungs with a buffer that no difference of losses reaches."""
    return method if swaps else replace(method, adapt=False, buffer=1e6)


def _falling_ladder(swaps: bool, factors: float = 1.0, **more: Any) -> Callable:
    """Return a ladder of rates that all fall as those of `ensemble_then_sample`, apart by `factors`
    around them, at temperature 1 or on a ladder of temperatures."""

    def method(epochs: int, steps: int) -> rx.Method:
        rates = tuple(PEAK * factors**at for at in (-0.5, 0.5)) if factors > 1 else PEAK
        usual: dict[str, Any] = {"rate_schedule": falling(epochs, steps), "pretrain": 0.0}
        usual |= {"target_swap_rate": SWAP_RATE, "temperature": 1.0, **more}
        return _with_swaps(rx.deo_star(rates, **usual), swaps)

    return method


def _of(make: Callable[..., rx.Method], *given: Any, **more: Any) -> Callable:
    return lambda epochs, steps: make(*given, **more)


# At rates that fall, which is hotter than temperature 1.
THEN_SAMPLE = functools.partial(rx.ensemble_then_sample, kernel="momentum")
MAIN = {
    "deep-ensemble": _of(rx.deep_ensemble),
    "deep-ensemble .05": _of(rx.deep_ensemble, 0.05),
    "deep-ensemble .1": _of(rx.deep_ensemble, 0.1),
    "deep-ensemble .2": _of(rx.deep_ensemble, 0.2),
    "ensemble-then-sample": _of(THEN_SAMPLE),
    "ensemble-then-sample .1": _of(THEN_SAMPLE, 0.1),
    "ensemble-then-sample .05 from .7": _of(THEN_SAMPLE, 0.05, sample_from=0.7),
    "ensemble-then-sample .1 from .5": _of(THEN_SAMPLE, 0.1, sample_from=0.5),
    "ensemble-then-sample .1 from .7": _of(THEN_SAMPLE, 0.1, sample_from=0.7),
    "ensemble-then-sample .2 from .7": _of(THEN_SAMPLE, 0.2, sample_from=0.7),
    "deo-star": _of(rx.deo_star, pretrain_rate=PEAK),
    "ensemble": _of(rx.ensemble, pretrain_rate=PEAK),
}
LADDERS = {
    "rates .005-.02, apart": _ladder(False),
    "rates .005-.02, DEO*": _ladder(True),
    "rates .005-.02, DEO": _ladder(True, window=1),
    "rates .01-.05, apart": _ladder(False, learning_rate=(0.01, 0.05)),
    "rates .01-.05, DEO*": _ladder(True, learning_rate=(0.01, 0.05)),
    "rates .01-.05, by held-out loss": _ladder(
        True, learning_rate=(0.01, 0.05), energy_at="all_rows", swap_every=EVERY
    ),
    "falling, T 1": _falling_ladder(False),
    "falling, T 1-30, apart": _falling_ladder(False, temperature=(1.0, 30.0)),
    "falling, T 1-30, DEO*": _falling_ladder(True, temperature=(1.0, 30.0)),
    "falling, T 1-30, by held-out loss": _falling_ladder(
        True, temperature=(1.0, 30.0), energy_at="all_rows", swap_every=EVERY
    ),
    "falling x 1/2-2, apart": _falling_ladder(False, 4.0),
    "falling x 1/2-2, DEO*": _falling_ladder(True, 4.0),
}
LONG = "ensemble-then-sample .1 from .7, T .01"  # with the most epochs alone
RECIPES = MAIN | LADDERS
ALL = RECIPES | {
    LONG: _of(THEN_SAMPLE, PEAK, sample_from=TRUNK, temperature=0.01),
}
OVER_BUDGETS = (
    "deep-ensemble .1",
    "ensemble-then-sample .1 from .7",
    "deo-star",
    "ensemble",
)


def cells(scale: Scale) -> list[Cell]:
    """Return the cells, each a recipe in a regime with so many epochs: all at 40, also on images
    held out; some at other budgets; ladders in the second regime alone."""
    seeds, most = scale.num_seeds(3, 1), scale.choose(EPOCHS, 4)
    chosen = []
    for regime in REGIMES:
        for recipe in scale.choose(RECIPES, _QUICK):
            if regime == "plain" or recipe in MAIN:
                chosen.append((regime, recipe, most, True))
    for epochs in scale.choose(BUDGETS, (2,)):
        for regime in REGIMES:
            for recipe in scale.choose(OVER_BUDGETS, ("deep-ensemble .1",)):
                if epochs != EPOCHS:
                    chosen.append((regime, recipe, epochs, False))
    if not scale.quick:
        chosen += [(regime, LONG, BUDGETS[-1], False) for regime in REGIMES]
    names = ("regime", "recipe", "epochs", "held_out")
    return [Cell(_name(*one[:3]), {**dict(zip(names, one)), "seeds": seeds}) for one in chosen]


def _name(regime: str, recipe: str, epochs: int) -> str:
    """Return the name of a cell, valid as a file name."""
    return f"{regime}-{epochs}-" + re.sub(r"[^A-Za-z0-9.*=]+", "-", recipe).replace("*", "star")


@functools.cache
def problem(regime: str, held_out: bool) -> tuple[Supervised, Any]:
    """Return the problem of a regime, tested on the test images or on training images held out, and
    the start of its networks."""
    images = small_images()
    if held_out:
        images = images.validation_split(HELD_OUT)
    network = rx.nn.small_cnn(images.num_classes, 3, widths=WIDTHS)
    options: dict[str, Any] = {"augment": REGIMES[regime], "batch_size": BATCH}
    return rx.classification(network, images, weight_decay=5e-4, **options), network.init


@functools.cache
def judged_apart(regime: str, held_out: bool) -> Supervised:
    """Return the problem without a tenth of its rows, whose loss is the energy of swaps."""
    whole, _ = problem(regime, held_out)
    images, labels = (np.asarray(rows) for rows in whole.batches.data)
    order = np.random.default_rng(0).permutation(len(labels))
    judges, others = np.split(order, [len(labels) // 10])
    predictor = whole.predictor
    assert predictor is not None and predictor.likelihood is not None
    likelihood = predictor.likelihood
    shown = jnp.asarray(images[judges]), jnp.asarray(labels[judges])

    def energy(point: Any, data: Any) -> Any:
        del data
        params, model_state = point
        logits = predictor.outputs(params, model_state, shown[0])
        return likelihood.score(logits, shown[1])["nll"]

    batches = replace(whole.batches, data=(images[others], labels[others]))
    target = whole.target._replace(whole_energy=energy)
    return replace(whole, batches=batches, target=target)


class Recorder:
    """Keeps the logits of all networks after every epoch, coldest rung first."""

    def __init__(self, outputs: Callable[[Any, Any], Any], test: Any) -> None:
        self.outputs, self.test = outputs, test
        self.epochs: list[np.ndarray] = []  # (rung, image, class) each

    def __call__(self, epoch: Any) -> dict[str, Any]:
        logits = self.outputs(epoch.networks, self.test.inputs)
        self.epochs.append(np.asarray(logits.astype(jnp.float16)))
        return {}

    def ways(self, sampled_from: int) -> dict[str, np.ndarray]:
        """Return NLL and accuracy of every way to average, of networks sampled after some epochs:
        NaN without any."""
        logits = np.stack(self.epochs).astype(np.float32)  # (epoch, rung, image, class)
        logits -= logits.max(-1, keepdims=True)
        odds = np.exp(logits)
        probs = odds / odds.sum(-1, keepdims=True)
        half = sampled_from + (len(probs) - sampled_from) // 2
        chosen = {
            "last": probs[-1:], "coldest": probs[sampled_from:, :1], "all": probs[sampled_from:],
            "coldest half": probs[half:, :1], "all half": probs[half:],
        }  # fmt: skip
        labels, found = np.asarray(self.test.targets), {}
        for name in _WAYS:
            part = chosen[name]
            mean = part.mean((0, 1)) if part.size else np.full(probs.shape[2:], np.nan)
            right = mean.argmax(-1) == labels
            found[f"{name} nll"] = -np.log(mean[np.arange(len(labels)), labels] + 1e-12).mean()
            found[f"{name} accuracy"] = right.mean() if part.size else np.array(np.nan)
        return found


@functools.cache
def _outputs(regime: str, held_out: bool) -> Any:
    test = problem(regime, held_out)[0].test
    assert test is not None
    return build_outputs(test)


def run(settings: dict[str, Any], work: Work) -> Record:
    """Run the seeds of a cell, which share a compiled program, and with `held_out` seed 0 on
    training images held out."""
    tested = stack([_run_one(settings, work, seed, False) for seed in range(settings["seeds"])])
    if not settings["held_out"]:
        return tested
    held_out = _run_one(settings, work, 0, True)
    return tested | {f"held out {name}": value for name, value in held_out.items()}


def _run_one(settings: dict[str, Any], work: Work, seed: int, held_out: bool) -> dict[str, Any]:
    regime, recipe, epochs = (settings[name] for name in ("regime", "recipe", "epochs"))
    posed, init = problem(regime, held_out)
    if "held-out loss" in recipe:
        posed = judged_apart(regime, held_out)
    method = ALL[recipe](epochs, posed.steps_per_epoch)
    recorder = Recorder(_outputs(regime, held_out), posed.test)
    with warnings.catch_warnings():  # the study judges its runs itself
        warnings.simplefilter("ignore", UserWarning)
        trained = rx.train(
            posed, init, epochs=epochs, num_replicas=NETWORKS, method=method, seed=seed,
            evaluate=recorder, keep_averaged=0, progress=False,
            callback=lambda progress: work.tick(progress.step / progress.num_steps),
        )  # fmt: skip
    return _describe(trained, recorder)


def _describe(trained: Any, recorder: Recorder) -> dict[str, Any]:
    """Return what is kept of a run: its own average, every way to average, and its ladder."""
    method = trained.metadata.method
    begun = _sampled_from(trained)
    own = trained.metrics()
    energy = trained.history["energy"][0]  # (epoch, rung) of one mini-batch
    return {
        "nll": np.array(own.nll),
        "accuracy": np.array(own.accuracy),
        "single nll": np.array(trained.epochs["nll"][-1].mean()),
        "single accuracy": np.array(trained.epochs["accuracy"][-1].mean()),
        "averaged": np.array(float(trained.average.weight)),
        "sampled from": np.array(begun),
        "rate": np.array(float(np.max(method.pretrain_rate or method.learning_rate))),
        "adam": np.array(method.kernel == "adam"),
        "training loss": np.array(energy[-5:].mean()),
        "trips": np.array(int(trained.round_trips.sum())),
        "swap rate": np.array(float(trained.verdict_rate.mean())),
        **recorder.ways(begun),
    }


def _sampled_from(trained: Any) -> int:
    """Return the epoch after which the networks of a run were sampled; its length, if never."""
    method, clock = trained.metadata.method, trained.clock
    if method.sample_from is not None:
        return int(trained._final("validation.begun")) or clock.epochs
    if method.name == "deep-ensemble":
        return clock.epochs
    return clock.pretrain_epochs or round(TRUNK * clock.epochs)


def best_of(results: Results, regime: str, recipes: Iterable[str]) -> tuple[str, Record]:
    """Return the recipe with the lowest NLL on images held out, and its record."""
    found = [(s["recipe"], record) for s, record in results.where(regime=regime, held_out=True)
             if s["recipe"] in recipes]  # fmt: skip
    return min(found, key=lambda one: float(one[1]["held out nll"]))


def best_exchange(results: Results, swaps: bool) -> tuple[str, str, Record]:
    """Return what has the lowest NLL on images held out in the plain regime, of all with swaps or
    of all without: the recipe, the networks that are averaged, and the record."""
    found = []
    for settings, record in results.where(regime="plain", held_out=True):
        name = settings["recipe"]
        ways = _WAYS if name in LADDERS else (_OWN,)
        if _swaps(name) == swaps:
            found += [(float(record[_key(f"held out {way}")]), name, way) for way in ways]
    _, name, way = min(one for one in found if np.isfinite(one[0]))
    return name, way, results.only(regime="plain", recipe=name, epochs=_length(results))


def _key(way: str) -> str:
    """Return the name of the NLL of a way to average in a record."""
    return f"{way} nll".replace(f"{_OWN} ", "")


def _swaps(name: str) -> bool:
    return name.startswith("deo") or "DEO" in name or "held-out" in name


def _length(results: Results) -> int:
    """Return the epochs of the runs that are also judged on images held out."""
    return max(settings["epochs"] for settings, _ in results.where(held_out=True))


def _family(name: str) -> list[str]:
    return [recipe for recipe in MAIN if recipe.startswith(name)]


def _signed(values: Any, digits: int = 3) -> str:
    return ", ".join(f"{value:+.{digits}f}" for value in np.ravel(values))


def findings(results: Results) -> list[Finding]:
    lines = []
    for regime in REGIMES:
        plain, sampled = (
            best_of(results, regime, _family(family))
            for family in ("deep-ensemble", "ensemble-then-sample")
        )
        nll, right = (sampled[1][name] - plain[1][name] for name in ("nll", "accuracy"))
        wins = bool((nll < 0).all() and right.mean() >= 0)
        lines.append(
            Finding(f"{regime}: NLL of {sampled[0]} minus that of {plain[0]}, by seed", "",
                    _signed(nll), "below 0 in every seed, accuracy no lower", wins)
        )  # fmt: skip
        lines.append(
            Finding(f"{regime}: accuracy of these, points, by seed", "", _signed(100 * right, 2))
        )
    return [*lines, *exchange_findings(results)]


def exchange_findings(results: Results) -> list[Finding]:
    """Compare ladders with and without swaps, and averages of one rung and of all."""
    if not any(settings["recipe"] in LADDERS for settings, _ in results.where(held_out=True)):
        return []
    swapped, way, one = best_exchange(results, True)
    apart, other_way, other = best_exchange(results, False)
    difference = one[_key(way)] - other[_key(other_way)]
    lines = [
        Finding(f"plain: NLL of the best with swaps ({swapped}; {way}) minus that of the best "
                f"without ({apart}; {other_way}), by seed", "", _signed(difference),
                "below 0 in every seed", bool((difference < 0).all()))
    ]  # fmt: skip
    for regime, name in _COSTS:
        record = results.only(regime=regime, recipe=name, epochs=_length(results))
        cost = record["coldest nll"] - record["all nll"]
        lines.append(
            Finding(f"{regime}: NLL of the coldest network of every epoch minus that of all rungs, "
                    f"{name}, by seed", "", _signed(cost))
        )  # fmt: skip
    return lines


def _mean(values: Any, digits: int, scale: float = 1.0) -> str:
    values = scale * np.ravel(values)
    if not np.isfinite(values).all():
        return "–"
    spread = f" ± {values.std(ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{values.mean():.{digits}f}{spread}"


def tables(results: Results) -> list[Table]:
    return [
        *(_recipes_table(results, regime) for regime in REGIMES),
        *([_ladders_table(results)] if exchange_findings(results) else []),
        _budgets_table(results),
    ]


def _recipes_table(results: Results, regime: str) -> Table:
    rows = []
    for settings, record in results.where(regime=regime, held_out=True):
        if settings["recipe"] in MAIN:
            begun = ", ".join(f"{int(epoch)}" for epoch in record["sampled from"])
            kernel = "Adam " if record["adam"].any() else ""
            rates = ", ".join(f"{rate:.3g}" for rate in dict.fromkeys(record["rate"].tolist()))
            rows.append([
                settings["recipe"], f"{float(record['held out nll']):.3f}",
                _mean(record["accuracy"], 2, 100), _mean(record["nll"], 3),
                ", ".join(f"{value:.3f}" for value in record["nll"]),
                _mean(record["single accuracy"], 2, 100), _mean(record["training loss"], 2),
                kernel + rates, begun,
            ])  # fmt: skip
    alone = ["one network: accuracy, %", "training loss", "peak rate", "sampled after epoch"]
    head = ["recipe", "held out: NLL", "accuracy, %", "NLL", "NLL by seed", *alone]
    return Table(f"{regime.capitalize()}: {_length(results)} epochs in all", head, rows)


def _ladders_table(results: Results) -> Table:
    rows = []
    for settings, record in results.where(regime="plain", held_out=True):
        name = settings["recipe"]
        if name in LADDERS:
            trips = ", ".join(f"{int(count)}" for count in record["trips"])
            ways = [_mean(record[f"{way} nll"], 3) for way in _WAYS]
            best = _mean(record["all half accuracy"], 2, 100)
            rows.append([name, trips if _swaps(name) else "–", *ways, best])
    head = ["ladder", "round trips by seed", *(f"NLL, {way}" for way in _WAYS),
            "accuracy, all half, %"]  # fmt: skip
    return Table("Exchange, plain: NLL by what is averaged", head, rows)


def _budgets_table(results: Results) -> Table:
    rows = []
    for regime in REGIMES:
        for recipe in (*OVER_BUDGETS, LONG):
            for settings, record in _by_budget(results, regime, recipe):
                scores = [_mean(record["accuracy"], 2, 100), _mean(record["nll"], 3)]
                ways = [_mean(record[f"{way} nll"], 3) for way in ("last", "coldest", "all")]
                rows.append([regime, recipe, settings["epochs"], *scores, *ways])
    head = ["images", "recipe", "epochs", "accuracy, %", "NLL", "NLL, last networks",
            "NLL, the coldest", "NLL, all"]  # fmt: skip
    return Table("By the epochs of each network in all", head, rows)


def _by_budget(results: Results, regime: str, recipe: str) -> list[tuple[dict, Record]]:
    return sorted(results.where(regime=regime, recipe=recipe), key=lambda one: one[0]["epochs"])


_COSTS = (
    ("augmented", "deo-star"),
    ("plain", "deo-star"),
    ("plain", "rates .005-.02, DEO*"),
    ("plain", "rates .01-.05, DEO*"),
    ("plain", "falling x 1/2-2, DEO*"),
)
_SHOWN = {
    "deep-ensemble .1": ("deep ensemble", "o"),
    "ensemble-then-sample .1 from .7": ("70 % cosine, then temperature 1", "s"),
    "deo-star": ("DEO⋆, coldest network", "^"),
    "ensemble": ("the paper's ensemble", "D"),
}


def draw(results: Results) -> dict[str, Any]:
    figure = figure_style.new_figure(9.5, 6.6)
    panels = figure.subplots(2, 2, sharex=True)
    for column, (regime, title) in enumerate(_REGIME_TITLES.items()):
        for row, (name, scale) in enumerate((("accuracy", 100), ("nll", 1))):
            axes = panels[row, column]
            for number, (recipe, (shown, marker)) in enumerate(_SHOWN.items()):
                found = _by_budget(results, regime, recipe)
                epochs = [settings["epochs"] for settings, _ in found]
                values = [scale * record[name] for _, record in found]
                means = [value.mean() for value in values]
                spread = [value.std(ddof=1) if len(value) > 1 else 0.0 for value in values]
                axes.errorbar(epochs, means, spread, marker=marker, ms=5, lw=1.4, capsize=2,
                              color=figure_style.CHAINS[number], label=shown)  # fmt: skip
            axes.set_xscale("log", base=2)
            axes.set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
            figure_style.label(axes, "epochs of each network, everything included" * row,
                               ("accuracy, %", "NLL")[row], title * (1 - row))  # fmt: skip
    figure_style.legend(panels[0, 0])
    figure.set_label(
        "Six networks, 16 x 16 images of 20 classes, test: accuracy and NLL of the average against "
        "the epochs that each network had in all, start networks and held-out rows included; mean "
        "and standard deviation over seeds."
    )
    return {"budgets": figure}


_REGIME_TITLES = {
    "augmented": "augmented: the networks still learn",
    "plain": "plain: they know their data by heart",
}
_ABOUT = f"""
Six small convolutional networks (62,000 parameters, batch norm), 5,000 images of 16 x 16 pixels in
20 classes (from CIFAR-100), mini-batches of {BATCH}, weight decay 5e-4; 2,000 test images. Every
recipe is one call of `rx.train` from new networks and takes the same epochs of each network, what
trains them first and rows that are held out included. With augmentation (crops, mirrors, erased
rectangles) the networks still learn at the end; plain, they know their data by heart.

The rule was fixed before the runs: of each family the setting with the lowest NLL on {HELD_OUT}
training images held out, with seed 0; then it is trained on all training images and judged on the
test images with three seeds. Averages are of probabilities. A family becomes the default of
`rx.train` only if its NLL is below the deep ensemble's in every seed and its accuracy no lower, in
both regimes and on the tables of [Does exchange beat an ensemble?](exchange.md).

**Can exchange be made to help?** In the plain regime, ladders follow {100 * TRUNK:.0f} % of the
epochs along a cosine. "rates": rungs with constant rates. "falling": rates that fall as those of
`ensemble-then-sample`; with noise at temperature 1 on the coldest rung and none above (T 1), with
temperatures from 1 to 30, or with rates apart by factors from 1/2 to 2 besides T 1. The target swap
rate is {SWAP_RATE}, the window that of Theorem 1 (DEO*) or 1 (DEO); swaps are judged on the
mini-batch, or every {EVERY} steps on the loss of a tenth of the rows that is held out; and the same
rungs without swaps are "apart". Averages are of the networks of all epochs of the sampling, or of
its second half: of the coldest rung, or of all; and of the last networks alone.
"""
STUDY = Study(
    name="recipes",
    title="What should a training budget be spent on?",
    about=_ABOUT,
    cells=cells,
    run=run,
    findings=findings,
    figures=draw,
    tables=tables,
)
