"""The arguments of `rx.sample`: `Options` with their defaults and checks, target and batches."""

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from replicax.algorithm.schedule import NoExchange
from replicax.algorithm.swap import WindowCorrected
from replicax.algorithm.target import Target, as_target
from replicax.algorithm.tuning import Gain
from replicax.errors import at_least, check_flag, check_number, choose, is_whole, show
from replicax.run.batch_source import Batches, NoBatches
from replicax.run.batches import as_batches
from replicax.run.bayesian import Bayesian
from replicax.run.plain import from_plain, to_plain

AUTO = "auto"
PAPER = {
    "schedule": "deo_star",
    "rule": "deterministic",
    "kernel": "sgld",
    "temperature": 1.0,
    "burn_in": 0,
    "thin": 1,
    "on_nonfinite": "restart",
    "swap_every": 1,
    "swap_energy": "batch",
}
_NUM_REPLICAS = 8
_JUDGING_SHARE = 0.5  # of the cost of the moves, at most, for energies over all rows
_FEWEST_ATTEMPTS = 1000  # in a run; where all rows allow fewer, swaps are judged on mini-batches
_USUAL_SWAP_EVERY = 10
_CHECKPOINT_SECONDS = 30.0
_MOST_STEPS = 2**31 - 1  # steps are counted in 32 bits
_SEEDS = -(2**31), 2**32 - 1  # others would equal one of these: JAX takes the last 32 bits
_NUMERIC = "iufV"  # kinds of NumPy's types; V: bfloat16 and its kin


@dataclass(frozen=True)
class Options:
    """All options of a run except the target, the start and the batches; see `rx.sample`."""

    num_steps: int
    learning_rate: Any = AUTO
    num_replicas: int | None = None
    num_chains: int = 1
    temperature: Any = None
    target_swap_rate: float = 0.4
    window: int | None = None
    schedule: Any = None
    rule: Any = None
    kernel: Any = None
    gain: Any = Gain()
    buffer: Any = "auto"
    buffer_gain: Any = "auto"
    adapt: Any = None
    energy_at: str = "moved"
    on_swap: str = "keep"
    burn_in: Any = None  # a whole number once filled in, as the next
    thin: Any = None
    seed: int = 0
    draw_rungs: Any = (0,)
    keep_draws: bool = True
    history_every: int | None = None
    track_best: bool | None = None
    on_nonfinite: Any = None
    checkpoint_every: int | str | None = None
    keep_checkpoints: int = 2
    swap_every: Any = None
    swap_energy: Any = None

    def __post_init__(self) -> None:
        defaults = dict(PAPER)
        named = isinstance(self.schedule, str) and self.schedule.lower() == "none"
        if named or isinstance(self.schedule, NoExchange):
            defaults["on_nonfinite"] = "stop"  # there is no ladder: replicas would become twins
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        _check_counts(self)
        for name in ("learning_rate", "temperature"):
            check_rungs(name, getattr(self, name))
        _check_leaves_draws(self)
        _check_choices(self)

    def complete(self) -> "Options":
        """Fill in the options that depend on the length of the run, when it starts.

        About 500 points of history, at least 100 steps apart: draws of randomness end at each. The
        stages of a window correction that tunes itself take a third of the run each.
        """
        every = self.history_every or max(100, self.num_steps // 500)
        rule, third = self.rule, self.num_steps // 3
        if isinstance(rule, WindowCorrected) and rule.tunes_correction:
            reference, tuning = rule.reference_steps or third, rule.tuning_steps or third
            rule = replace(rule, reference_steps=reference, tuning_steps=tuning)
        return replace(self, history_every=every, rule=rule)

    def to_json(self) -> dict[str, Any]:
        """Return plain data; user-defined objects are marked, and must be given again to resume."""
        return to_plain(self)

    @classmethod
    def from_json(cls, data: dict[str, Any], given: dict[str, Any]) -> "Options":
        """Return the options of a run folder; entries of `given` that are not None replace them."""
        return from_plain(cls, data, given)


def _check_counts(options: Options) -> None:
    """Raise unless counts (of steps, chains, replicas, checkpoints) are valid whole numbers."""
    at_least("num_steps", options.num_steps, 1, _MOST_STEPS)
    for name in ("num_chains", "thin", "swap_every", "keep_checkpoints"):
        at_least(name, getattr(options, name), 1)
    at_least("burn_in", options.burn_in, 0)
    checkpoint_interval(options.checkpoint_every)
    for name in ("window", "history_every"):
        if getattr(options, name) is not None:
            at_least(name, getattr(options, name), 1)
    at_least("seed", options.seed, *_SEEDS)
    few = is_whole(options.num_replicas) and options.num_replicas < 1  # the schedule tells more
    if options.num_replicas is not None and not few:
        at_least("num_replicas", options.num_replicas, 1)


def _check_choices(options: Options) -> None:
    """Raise unless flags, the swap rate, rungs and names have valid values."""
    check_flag("keep_draws", options.keep_draws)
    check_flag("track_best", options.track_best, None)
    needed = "it is the rate at which the rule says yes and must lie in (0, 1), such as 0.4"
    check_number("target_swap_rate", options.target_swap_rate, lambda x: 0 < x < 1, needed)
    rungs = options.draw_rungs
    is_all = isinstance(rungs, str) and rungs == "all"
    are_whole = isinstance(rungs, tuple | list | range) and all(map(is_whole, rungs))
    if not is_all and not are_whole:
        raise ValueError(f'draw_rungs is {show(rungs)}; give a list such as (0, 3), or "all".')
    choose("energy_at", options.energy_at, ("moved", "before"))
    choose("on_swap", options.on_swap, ("keep", "reset"))
    choose("on_nonfinite", options.on_nonfinite, ("stop", "ignore", "restart"))
    if isinstance(options.swap_energy, str):
        choose("swap_energy", options.swap_energy, ("batch", "full"))
    else:
        at_least("swap_energy", options.swap_energy, 1)


def checkpoint_interval(every: Any) -> tuple[int | None, float]:
    """Return steps and seconds between two checkpoints; the seconds count where steps is None.

    >>> checkpoint_interval(500), checkpoint_interval("90s"), checkpoint_interval("2h")
    ((500, 0.0), (None, 90.0), (None, 7200.0))
    """
    if every is None:
        return None, _CHECKPOINT_SECONDS
    if isinstance(every, str):
        number, unit = every[:-1], every[-1:]
        seconds = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(unit, 0.0)
        if seconds and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
            return None, float(number) * seconds
    elif is_whole(every) and every >= 1:
        return int(every), 0.0
    raise ValueError(
        f'checkpoint_every is {show(every)}; give a number of steps, or a time such as "30s", '
        '"10m" or "2h".'
    )


def check_rungs(name: str, value: Any) -> None:
    """Raise unless `value` is "auto", a number or several; how many, the ladder checks."""
    if isinstance(value, str) and value == AUTO:
        return
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        values = np.asarray(None)
    if values.dtype.kind not in _NUMERIC or values.dtype.names:
        raise ValueError(
            f"{name} is {show(value)}; give one number, a pair (cold, hot), one per rung, or "
            '"auto".'
        )


def _check_leaves_draws(options: Options) -> None:
    """Raise unless at least one draw is left after burn-in and thinning."""
    num_steps = options.num_steps
    if options.burn_in >= num_steps:
        raise ValueError(
            f"burn_in is {options.burn_in} and num_steps {num_steps}, which leaves no draw: write "
            "a burn_in below num_steps."
        )
    if options.thin > num_steps:
        raise ValueError(
            f"thin is {options.thin} and num_steps {num_steps}: draws would be further apart than "
            "the run is long. Write a smaller thin."
        )


def _is_supervised(target: Any) -> bool:
    """Return whether this is an `rx.supervised` problem, without an import of networks."""
    return isinstance(getattr(target, "batches", None), Batches)


def in_unit_of(target: Any, options: Any) -> Any:
    """Return the options with rates and temperatures in the unit of the target's energies.

    Only once, when a run starts: a run folder stores the converted ones.
    """
    if not _is_supervised(target):
        return options
    try:
        rates = target.learning_rate(options.learning_rate)
        temperatures = target.temperature(options.temperature)
    except (TypeError, ValueError):  # not numbers, which the settings of the run refuse
        return options
    return replace(options, learning_rate=rates, temperature=temperatures)


def target_and_batches(
    target: Any, batches: Any, batch_size: int | None, swap_energy: Any = None
) -> tuple[Target, Batches]:
    """Return a target and its mini-batches; posteriors and networks bring their own."""
    if _is_supervised(target):
        if batches is not None or (isinstance(target, Bayesian) and batch_size is not None):
            raise ValueError(
                "The posterior has its own data: give no batches (and rx.bayesian its batch_size)."
            )
        if isinstance(target, Bayesian):
            target = target.judged_on(swap_energy)
        return target.target, target.batches
    has_data = batches is not None or batch_size is not None
    return as_target(target), as_batches(batches, batch_size) if has_data else NoBatches()


def fill_in(choices: dict[str, Any], target: Target, batches: Batches) -> dict[str, Any]:
    """Return the choices with None replaced by defaults that sample the law of the target; without
    changes if the paper's defaults are to be used."""
    auto = isinstance(choices["learning_rate"], str)
    if not auto and not target.tempers_likelihood:  # the paper's choices
        return choices
    if not is_whole(choices["num_steps"]) or not is_whole(choices["swap_every"] or 1):
        return choices  # which the options refuse
    exact_energy = batches.is_whole and target.noise is None and batches.can_refresh
    if not exact_energy and not target.tempers_likelihood:
        raise ValueError(
            "learning_rate is not given, and the energy is noisy (mini-batches or noise of its "
            "own). For a posterior whose rows are known write rx.bayesian(log_likelihood, "
            "log_prior, data, batch_size=...), which needs no learning rate; otherwise give "
            "learning_rate=(cold, hot) for the paper's ladder of SGD rungs."
        )
    chosen = {name: value for name, value in choices.items() if value is not None}
    num_steps = int(choices["num_steps"])
    adjusted = exact_energy and "kernel" not in chosen
    defaults: dict[str, Any] = {
        "num_replicas": None if _has_rungs(choices) else _NUM_REPLICAS,
        "kernel": "hmc" if exact_energy else "langevin",
        "temperature": AUTO,
        "adapt": True,
        "on_nonfinite": "stop" if adjusted else "restart",
        "swap_energy": "batch" if exact_energy else AUTO,
    }
    if choices["num_replicas"] == 1:
        defaults |= {"schedule": "none", "temperature": 1.0, "adapt": False}
    chosen = {**defaults, **chosen}
    energy, every, rule = _judging(chosen, batches, exact_energy, num_steps)
    # Draws are taken where swaps are attempted, and energies are those of all rows.
    burn_in = num_steps // 3 // every * every
    thin = min(every, num_steps)
    defaults = {"burn_in": burn_in, "swap_every": every, "rule": rule, "thin": thin}
    chosen = {**defaults, **chosen, "swap_energy": energy}
    if "schedule" not in chosen:
        chosen["schedule"] = "deo" if chosen.get("window") in (None, 1) else "no_gate"
    return {**choices, **chosen}


def _has_rungs(choices: dict[str, Any]) -> bool:
    try:
        return any(np.size(choices[name]) > 2 for name in ("learning_rate", "temperature"))
    except ValueError:  # lists of unequal lengths, which the options refuse
        return False


def _judging(
    chosen: dict[str, Any], batches: Batches, exact: bool, num_steps: int
) -> tuple[Any, int, str]:
    """Return which energies judge swaps, every how many steps, and by which rule."""
    energy = chosen["swap_energy"]
    if exact:
        return "batch", chosen.get("swap_every", 1), "metropolis"
    num_rows, size = getattr(batches, "num_rows", 0), getattr(batches, "batch_size", 1)
    # One step takes a gradient, about three evaluations, of a mini-batch.
    dear = int(np.ceil(num_rows / (3 * size * _JUDGING_SHARE)))
    every = chosen.get("swap_every", max(_USUAL_SWAP_EVERY, dear))
    if energy == AUTO:
        affordable = batches.data is not None and num_steps >= _FEWEST_ATTEMPTS * every
        energy = "full" if affordable else "batch"
    if energy == "full":
        return energy, every, "metropolis"
    return energy, chosen.get("swap_every", _USUAL_SWAP_EVERY), "bias_corrected"
