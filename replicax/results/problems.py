"""Checks that find reasons not to trust a run; each returns a sentence with the remedy, or None."""

from typing import Any

import numpy as np

from replicax.results import diagnostics

_RHAT_GOOD = 1.01
_RARE_SWAPS = 0.01  # of windows
_FEW_WINDOWS = 10  # too few to judge a pair by
_FIXED = 0.01  # a ladder that moves by less stands still
_UNKNOWN_BATCHES = ("a function of the step", "an iterable")


def find_problems(posterior: Any) -> list[str]:
    """Return the problems of a run, one sentence each."""
    checks = (
        _no_round_trip,
        _negative_buffer,
        _window_bias,
        _noisy_metropolis,
        _moving_ladder,
        _rare_swaps,
        _early_end,
    )
    sentences = (check(posterior) for check in checks)
    return [sentence for sentence in sentences if sentence is not None]


def _exchanges(posterior: Any) -> bool:
    return posterior.options["schedule"] != "none" and posterior.num_replicas > 1


def _no_round_trip(posterior: Any) -> str | None:
    chains = np.flatnonzero(posterior.round_trips == 0)
    if not _exchanges(posterior) or chains.size == 0 or posterior.num_draws < 4:
        return None
    rhats = [diagnostics.rhat(values) for values in posterior.components().values()]
    worst = max(rhats, default=np.inf)
    if not worst < _RHAT_GOOD:
        return None
    return (
        f"R-hat looks fine ({worst:.3f}), but chain {chains[0]} made no round trip: nothing from "
        "the hottest rung reached the target, and modes may be missing."
    )


def _negative_buffer(posterior: Any) -> str | None:
    if posterior.options["rule"] != "deterministic" or np.all(posterior.buffer >= 0):
        return None
    return (
        f"The buffer ended below zero ({posterior.buffer.min():.3g}): swaps send higher energies "
        "to the cold rung. Lower target_swap_rate, or narrow the ladder."
    )


def _window_bias(posterior: Any) -> str | None:
    options = posterior.options
    exact = options["rule"] in ("metropolis", "bias_corrected")
    if not exact or options["window"] == 1 or options["swaps"] == "no_gate":
        return None
    return (
        f'The rule "{options["rule"]}" is exact for window=1 only: at most one swap in a window '
        f"of {options['window']} steps favours what hot rungs send. Write window=1, or correct "
        "for it with rule=rx.swap.window_corrected(...)."
    )


def _noisy_metropolis(posterior: Any) -> str | None:
    batches = posterior.metadata.batches
    if posterior.options["rule"] != "metropolis" or batches not in _UNKNOWN_BATCHES:
        return None
    return (
        f'The rule "metropolis" takes energies as exact, and the batches are {batches}: unless '
        "each holds all the data, the draws are too wide. Pass arrays with batch_size and "
        'rule="bias_corrected".'
    )


def _moving_ladder(posterior: Any) -> str | None:
    moved = diagnostics.ladder_moved(posterior)
    if posterior.options["rule"] == "deterministic" or moved < _FIXED:
        return None
    return (
        f"The ladder moved by {moved:.0%} while draws were kept, so they belong to no single "
        "ladder: write burn_in=..., at which the ladder is frozen, or adapt=False."
    )


def _rare_swaps(posterior: Any) -> str | None:
    rate = posterior.window_swap_rate
    if not _exchanges(posterior) or posterior.num_windows.min() < _FEW_WINDOWS:
        return None
    # Where the target swap rate is small, rare swaps are intended.
    if rate.min() >= min(_RARE_SWAPS, posterior.options["target_swap_rate"] / 5):
        return None
    chain, pair = np.unravel_index(int(np.argmin(rate)), rate.shape)
    return (
        f"Pair {pair} of chain {chain} hardly ever swaps ({rate.min():.2%} of its windows): the "
        "ladder is broken there. Add replicas or narrow the ladder."
    )


def _early_end(posterior: Any) -> str | None:
    result = posterior.result
    return result.sentence if result.code in ("nonfinite", "batches_ended") else None
