"""Checks that find reasons not to trust a run; each returns a sentence with the remedy, or None."""

from typing import TYPE_CHECKING

import numpy as np

from replicax.results import diagnostics
from replicax.results.energy_problems import find_energy_problems, in_method
from replicax.results.mixing import exchanges, find_mixing_problems

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

_RARE_SWAPS = 0.01  # fraction of windows
_FEW_WINDOWS = 10  # too few to judge a pair by
_FIXED = 0.01  # a smaller relative movement counts as none
_SAME = 0.05  # fraction of the distance of neighbours on an even ladder
_COLLAPSED = 1 / 3  # fraction of the pairs


def find_problems(posterior: "Posterior") -> list[str]:
    """Return the problems of a run, one sentence each, possible causes first."""
    checks = (
        _unknown_law,
        _negative_buffer,
        _window_bias,
        _noisy_metropolis,
        _moving_ladder,
        _collapsed_ladder,
        _rare_swaps,
    )
    sentences = [
        _early_end(posterior),
        *find_energy_problems(posterior),
        posterior._gradient_problem,
        *(check(posterior) for check in checks),
        *find_mixing_problems(posterior),
    ]
    return [sentence for sentence in sentences if sentence is not None]


def _unknown_law(posterior: "Posterior") -> str | None:
    metadata, rule = posterior.metadata, posterior.metadata.resolved.rule
    samples = metadata.kind == "sample" and float(posterior.temperatures[:, 0].max()) > 0
    if not samples or rule != "deterministic" or not exchanges(posterior):
        return None
    if not metadata.batches.may_be_partial:
        return (
            "It is not known that the deterministic rule samples the posterior, and its draws can "
            "be too narrow. To sample it, leave out the method if the energy is exact, and write "
            'method=rx.deo(learning_rate=..., temperature=(1, hot), rule="bias_corrected") if it '
            "is noisy."
        )
    return (
        "With mini-batches it is not known that the deterministic rule samples the posterior: for "
        "that, write rx.bayesian(log_likelihood, log_prior, data, batch_size=...) as the target, "
        "without a method, or method=rx.deo(learning_rate=..., temperature=(1, hot), "
        'rule="bias_corrected").'
    )


def _collapsed_ladder(posterior: "Posterior") -> str | None:
    """Report neighbouring rungs that are equal, on a ladder whose ends differ."""
    distance = _distances(posterior.learning_rates) + _distances(posterior.temperatures)
    num_pairs = distance.shape[1]
    if not exchanges(posterior) or not np.any(distance > 0):
        return None
    same = distance < _SAME * distance.sum(axis=1, keepdims=True) / num_pairs
    chain = int(np.argmax(same.sum(axis=1)))
    if same[chain].mean() <= _COLLAPSED:
        return None
    return (
        f"The ladder has collapsed: rungs {_runs(same[chain])} of chain {chain} have nearly the "
        f"same learning rate and temperature. Write {in_method(posterior, 'adapt=False')} to keep "
        "your ladder, or choose other ends or a smaller target_swap_rate, so that all pairs can "
        "reach the same rate."
    )


def _runs(same: np.ndarray) -> str:
    """Return in words the rungs that equal their neighbours, given as (pair,)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(int)))
    return ", ".join(f"{first} to {last}" for first, last in edges.reshape(-1, 2))


def _distances(values: np.ndarray) -> np.ndarray:
    """Return the logarithmic distances of neighbours (chain, pair); the distance of 0 (no noise) or
    infinity (the prior alone) to any other value is 1."""
    lower, upper = np.asarray(values, float)[:, :-1], np.asarray(values, float)[:, 1:]
    usable = (lower > 0) & (upper > 0) & np.isfinite(lower) & np.isfinite(upper)
    ratio = np.where(usable, upper, 1.0) / np.where(usable, lower, 1.0)
    return np.where(usable, np.abs(np.log(ratio)), lower != upper)


def _negative_buffer(posterior: "Posterior") -> str | None:
    if posterior.metadata.resolved.rule != "deterministic" or np.all(posterior.buffer >= 0):
        return None
    return (
        f"The buffer ended below zero ({posterior.buffer.min():.3g}): swaps send higher energies "
        "to the cold rung. Lower target_swap_rate, as in "
        f"{in_method(posterior, 'target_swap_rate=...')}, or narrow the ladder."
    )


def _window_bias(posterior: "Posterior") -> str | None:
    resolved = posterior.metadata.resolved
    exact = resolved.rule in ("metropolis", "bias_corrected")
    if not exact or resolved.window == 1 or resolved.swaps == "no_gate":
        return None
    return (
        f'The rule "{resolved.rule}" is exact for window=1 only: at most one swap in a window of '
        f"{resolved.window} steps favours states from hot rungs. Write "
        f"{in_method(posterior, 'window=1')}, or correct for it with "
        "rule=rx.swap.window_corrected(...) there."
    )


def _noisy_metropolis(posterior: "Posterior") -> str | None:
    batches = posterior.metadata.batches
    if posterior.metadata.resolved.rule != "metropolis" or batches.is_counted:
        return None
    return (
        f'The rule "metropolis" assumes exact energies, and the batches are {batches}: unless each '
        "contains all the data, the draws are too wide. Pass arrays with batch_size and "
        + in_method(posterior, 'rule="bias_corrected"')
        + "."
    )


def _moving_ladder(posterior: "Posterior") -> str | None:
    moved = diagnostics.ladder_moved(posterior)
    if posterior.metadata.resolved.rule == "deterministic" or moved < _FIXED:
        return None
    return (
        f"The ladder moved by {moved:.0%} while draws were kept, so they belong to no single "
        "ladder: write burn_in=..., at which the ladder is frozen, or "
        f"{in_method(posterior, 'adapt=False')}."
    )


def _rare_swaps(posterior: "Posterior") -> str | None:
    rate = posterior.window_swap_rate
    if not exchanges(posterior) or posterior.num_windows.min() < _FEW_WINDOWS:
        return None
    # Where the target swap rate is small, rare swaps are intended.
    if rate.min() >= min(_RARE_SWAPS, posterior.metadata.resolved.target_swap_rate / 5):
        return None
    chain, pair = np.unravel_index(int(np.argmin(rate)), rate.shape)
    return (
        f"Pair {pair} of chain {chain} hardly ever swaps ({rate.min():.2%} of its windows): the "
        f"ladder is broken there. Add replicas{_advice(posterior)} or narrow the ladder."
    )


def _advice(posterior: "Posterior") -> str:
    advised = posterior.replicas_advised
    if advised is None or advised <= posterior.num_replicas:
        return ""
    return f" ({advised} would do; you have {posterior.num_replicas})"


def _early_end(posterior: "Posterior") -> str | None:
    result = posterior.result
    return result.sentence if result.code in ("nonfinite", "batches_ended") else None
