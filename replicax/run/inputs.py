"""From what users pass to `rx.sample` to a target, its mini-batches and a full set of choices."""

from dataclasses import replace
from typing import Any

import numpy as np

from replicax.algorithm.target import Target, as_target
from replicax.errors import is_whole
from replicax.run.batch_source import Batches, NoBatches
from replicax.run.batches import as_batches
from replicax.run.bayesian import Bayesian

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
    """Return the choices with values in the place of None, where they are to give the law of the
    target."""
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
    defaults = {
        "burn_in": burn_in,
        "swap_every": every,
        "rule": rule,
        "thin": min(every, num_steps),
    }
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
