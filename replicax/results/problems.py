"""Checks that find reasons not to trust a run; each returns a sentence with the remedy, or None.

Those here read the records; `gradient_problems.py` evaluates the target again, and
`diagnostics.py` judges the draws.
"""

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import diagnostics, evidence, mixture
from replicax.results.diagnostics import exchanges
from replicax.results.remedies import (
    is_bayesian,
    longer,
    more_replicas,
    retuning,
    to_first_draws,
)
from replicax.run.methods import written

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

NOT_DONE = "Not done, "  # how the sentence begins by which such a run has ended
_MOST_NOISE = 0.1  # of estimated energies
_COLDER = 0.1  # fraction of the mean energy of a Gaussian at the temperature of the target
_CHANCE = 1e-4  # probability of taking noise for a colder rung, or for chains that differ
_APART_FOR_GOOD = 5.0  # nats between chains that have not seen the same modes
_APART = 0.3  # difference of chains, in standard deviations of the energy on a rung
_FEW_POINTS, _MOST_POINTS = 20, 2_000  # energies of each chain and rung that are compared
_BLOCKS = 8  # blocks of a run in which a trend is sought
_FALL = 5.0  # standard deviations within a block
_RISE = 0.4  # rise of normal scores from the first to the last third
_RISE_CERTAIN = 4.5  # standard errors
_MISSED = 0.015  # standard error of the mass of places that the mixture misses
_RESTARTED = 0.01  # fraction of steps
_LOW_ACCEPTANCE, _HIGH_ACCEPTANCE = 0.2, 0.98
_ROUNDED = 1.0  # from one floating-point energy to the next, in the unit of the temperature
_RARE_SWAPS = 0.01  # fraction of windows
_FEW_WINDOWS = 10  # too few to judge a pair by
_FIXED = 0.01  # a smaller relative movement counts as none
_SAME = 0.05  # fraction of the distance of neighbours on an even ladder
_COLLAPSED = 1 / 3  # fraction of the pairs
_FALLS = (
    "The energy falls through the whole run (from {:.3g} to {:.3g}), as if it had no lower bound: "
    "is it minus the log density, with the right sign? If so, burn_in is too short."
)


def find_problems(posterior: "Posterior") -> list[str]:
    """Return the problems of a run, one sentence each, possible causes first."""
    found = [sentence for sentence, _ in with_cures(posterior)]
    ended = posterior.result.sentence
    return found or ([ended] if ended.startswith(NOT_DONE) else [])


def with_cures(posterior: "Posterior") -> list[tuple[str, str]]:
    """Return the problems of a run, each with what may cure it: a change of the "target" or of the
    method, another "tuning", or more draws, "length"."""
    ended = _in_burn_in(posterior)
    if ended is not None:  # what else is seen, a burn-in that is over may have cured
        return [(ended, "length")]
    of_draws = posterior._mixing_problems
    # Where moves are accepted or rejected, jumps are only the cause of draws that mix slowly.
    sweeps = posterior.sweeps
    is_small = sweeps is not None and sweeps["finder_rows"] == sweeps["rows"]
    # Nor do Gaussians at minima see jumps; with few rows it costs little to look for them.
    looks = any(of_draws) or not posterior.metadata.resolved.adjusted or is_small
    seen = posterior._gradient_problem if looks else None
    found = [*((check(posterior), cure) for check, cure in _CAUSES.items()), (seen, "target")]
    found += [(check(posterior), cure) for check, cure in _OTHERS.items()]
    found += [(sentence, "length") for sentence in of_draws]
    return [(sentence, cure) for sentence, cure in found if sentence is not None]


def _in_burn_in(posterior: "Posterior") -> str | None:
    """Report a run that was stopped before its first draw."""
    burn_in, steps = posterior.metadata.resolved.burn_in, posterior.num_steps
    stopped = posterior.result.code in ("stopped", "interrupted")
    if not stopped or steps > burn_in or posterior.metadata.kind == "train":
        return None
    return (
        f"The run was stopped in its burn-in, after {steps:,} of {burn_in:,} steps, and has no "
        f"draws. {to_first_draws(posterior)}"
    )


def _early_end(posterior: "Posterior") -> str | None:
    result = posterior.result
    return result.sentence if result.code in ("nonfinite", "batches_ended") else None


def _rounded_energy(posterior: "Posterior") -> str | None:
    """Energies so large that their differences, which accept moves and swaps, are rounded away."""
    temperatures = np.asarray(posterior.temperatures, float)[:, :2]
    energies = posterior.energies[np.isfinite(posterior.energies)]
    exact = posterior.metadata.resolved.rule == "metropolis" and np.all(temperatures > 0)
    if _is_training(posterior) or not exact or not energies.size:
        return None
    size = np.median(np.abs(energies)).astype(energies.dtype)
    judged = 1 / temperatures[:, 0]  # by how much an energy counts
    if not posterior.metadata.resolved.adjusted:  # in swaps alone
        judged = judged - 1 / temperatures[:, -1]
    if not np.spacing(size) * judged.max() >= _ROUNDED:
        return None
    return (
        f"Energies are about {size:.2g}, where numbers of {size.dtype} are {np.spacing(size):.2g} "
        "apart: smaller differences are lost, and the draws follow the rounding. Leave large "
        "constants out of the energy, or of the log likelihood of every row, or compute in double "
        'precision: jax.config.update("jax_enable_x64", True), before any array is made.'
    )


def _falling_energy(posterior: "Posterior") -> str | None:
    """Report a downward trend in every block, far beyond the spread within a block, without an
    end."""
    energies = np.asarray(posterior.energies, float)
    broken = np.flatnonzero(~np.isfinite(energies).all(axis=0))
    energies = energies[:, : np.append(broken, energies.shape[1])[0]]
    length = energies.shape[1] // _BLOCKS
    if _is_training(posterior) or length < 4:
        return None
    blocks = energies[:, : _BLOCKS * length].reshape(len(energies), _BLOCKS, length)
    blocks = blocks / max(1.0, float(np.abs(blocks).max()))  # squares might overflow
    means, spread = blocks.mean(axis=2), np.median(blocks.std(axis=2), axis=1)
    fall, late_fall = means[:, 0] - means[:, -1], means[:, _BLOCKS // 2] - means[:, -1]
    falls = np.all(np.diff(means, axis=1) < 0, axis=1) & (fall > _FALL * spread)
    falls &= late_fall > fall / 5
    if falls.mean() < 0.5:
        return None
    chain = int(np.argmax(falls))
    return _FALLS.format(energies[chain, :length].mean(), energies[chain, -length:].mean())


def _runaway_rung(posterior: "Posterior") -> str | None:
    """Report an upward trend of the hottest rung, by ranks: it may be as slow as a logarithm."""
    energies = kept_energies(posterior)[:, :, -1]
    third = energies.shape[1] // 3
    alone = posterior.num_replicas < 2
    if _is_training(posterior) or alone or third < 4 or np.isnan(energies).any():
        return None
    scores = diagnostics.rank_normalised(energies)
    rise = (scores[:, -third:].mean(axis=1) - scores[:, :third].mean(axis=1)).mean()
    if rise < max(_RISE, _RISE_CERTAIN * np.sqrt(2 / (third * len(energies)))):
        return None
    remedy = (
        "Write a prior of finite mass."
        if is_bayesian(posterior)
        else "Temper only the likelihood, with rx.bayesian(log_likelihood, log_prior, data), or "
        "lower the highest temperature (or learning rate)."
    )
    return (
        "The hottest rung runs away: its energy rises through the whole run, and its tempered "
        f"density may have no finite mass. {remedy}"
    )


def _colder_rungs(posterior: "Posterior") -> str | None:
    """Report rungs whose mean energy is below that of the coldest, which no hotter distribution can
    have."""
    target = float(posterior.temperatures[:, 0].min())
    energies = kept_energies(posterior)
    drop, error = mean_and_error(energies[:, :, :1] - energies)
    if _is_training(posterior) or drop is None or target <= 0:
        return None
    num_params = posterior.metadata.params.num_elements
    relevant = _COLDER * target * num_params / 2
    certain = drop > certainty(energies, posterior.num_replicas) * error
    if not np.any(certain & (drop > relevant)):
        return None
    rung = int(np.argmax(np.where(certain, drop, -np.inf)))
    other = "leave out the method" if is_bayesian(posterior) else "use rx.bayesian"
    return (
        f"Rung {rung} has a lower mean energy than the target's rung 0, by {drop[rung]:.3g}: it is "
        "colder, and exchange makes the draws too narrow. SGD without noise does this at small "
        "learning rates; energies on the mini-batch that moved the replicas have the same effect. "
        "Give all rungs noise: method=rx.deo(learning_rate=..., temperature=(1, hot), "
        f'rule="bias_corrected") (exact energies: rule="metropolis"), or {other}.'
    )


def _broken_replicas(posterior: "Posterior") -> str | None:
    rates = posterior.restart_rate
    rung = int(np.argmax(rates.max(axis=0)))
    if rates.max() <= _RESTARTED:
        return None
    remedy = "Make the energy finite far out (a prior; logarithms of positive parameters)" + (
        "." if is_bayesian(posterior) else ", or temper only the likelihood with rx.bayesian."
    )
    if posterior.metadata.kind == "train":
        clipped = in_method(posterior, "clip_norm=1.0")
        remedy = f"Write a smaller hot end of learning_rate, or {clipped}."
    return (
        f"The energy on rung {rung} was not finite in {rates[:, rung].max():.1%} of steps, and its "
        f"replica was restarted from a colder rung, which lets no mode through. {remedy}"
    )


def _acceptance(posterior: "Posterior") -> str | None:
    """Report rungs that accept too few or too many moves, for adjusted kernels."""
    rates = measured(posterior, "acceptance")
    if rates is None:
        return None
    lowest, highest = np.nanmin(rates, axis=0), np.nanmax(rates, axis=0)
    if np.nanmin(lowest) < _LOW_ACCEPTANCE:
        rung, rate, step = int(np.nanargmin(lowest)), np.nanmin(lowest), "too large"
    elif np.nanmax(highest) > _HIGH_ACCEPTANCE:
        rung, rate, step = int(np.nanargmax(highest)), np.nanmax(highest), "needlessly small"
    else:
        return None
    tuned = posterior.metadata.tunes_learning_rate
    now = float(posterior.learning_rates[0, rung])
    change = f"Change learning_rate of the method, which is {now:.3g} there."
    flat = " If it stays, the density is flat: is the prior proper, has it finite mass?"
    return (
        f"Rung {rung} accepts {rate:.0%} of its moves: its step is {step}. "
        + (retuning(posterior) if tuned else change)
        + (flat if rate > _HIGH_ACCEPTANCE else "")
    )


def _missed_by_mixture(posterior: "Posterior") -> str | None:
    """Report places that no jump reaches, if the ladder has brought the coldest replica there and
    back too rarely to know their mass."""
    found = mixture.missed(posterior)
    if found is None or found.error < _MISSED:
        return None
    held = f"the coldest replica was for up to {found.longest:,} steps without a jump"
    learns = " The mixture learns of them in a longer burn-in."
    if posterior.sweeps is not None:
        held, learns = f"a chain was held for up to {found.longest:,} sweeps", ""
    return (
        f"The mixture misses places with {found.mass:.1%} of the draws, where {held}: their mass "
        f"is known to ± {found.error:.1%} only.{learns} {retuning(posterior)}"
    )


def _finder_weighs_more(posterior: "Posterior") -> str | None:
    """Report draws of the finder that the frozen mixture of a run of sweeps does not cover."""
    sweeps = posterior.sweeps
    if sweeps is None or not sweeps["kept"]:
        return None
    if sweeps["unsettled"]:
        return (
            f"{sweeps['unsettled']} minima of some of the rows could not be followed to those of "
            f"all rows in {sweeps['minima']} sweeps: modes may be missing. {retuning(posterior)}"
        )
    kept = np.array(sweeps["excess"][sweeps["learning"] :])
    if not kept.size or not kept.max() > 0:
        return None
    return (
        f"In {np.sum(kept > 0)} of {kept.size} sweeps a draw of the finder, of some of the rows, "
        f"weighs more than all proposals together, up to e^{kept.max():.1f} times as much: the "
        f"mixture misses a place. {retuning(posterior)}"
    )


def _energies_are_rough(posterior: "Posterior") -> str | None:
    """Report estimated energies (`exact=False`) whose error is not small at the draws."""
    sweeps = posterior.sweeps
    if sweeps is None or not sweeps["estimated_from"] or not sweeps["kept"]:
        return None
    noise = max(*sweeps["noise"][sweeps["learning"] :], sweeps["error"])
    if not noise > _MOST_NOISE:
        return None
    return (
        f"Energies are estimated from {sweeps['estimated_from']:,} of {sweeps['rows']:,} rows, to "
        f"± {noise:.2g} at the draws: means may be off by as much, in standard deviations. Leave "
        "out exact=False."
    )


def _evidences_differ(posterior: "Posterior") -> str | None:
    """Report chains that give different log evidences, by their ladders or by their draws."""
    for found in posterior._evidences.values():
        if found.differ():
            gap = float(np.nanmax(found.values) - np.nanmin(found.values))
            return (
                f"Chains differ in their log evidence, from {np.nanmin(found.values):.5g} to "
                f"{np.nanmax(found.values):.5g}: some have found what others have not, on hot "
                f"rungs if their draws agree. {_where_chains_differ(posterior, gap)}"
            )
    return None


def _evidences_disagree(posterior: "Posterior") -> str | None:
    """Report an evidence by draws and proposals that is below that of the ladder."""
    found = {name: found.combined() for name, found in posterior._evidences.items()}
    if not evidence.misses(found):
        return None
    by_ladder, by_bridge = found["ladder"], found["bridge"]
    return (
        f"The log evidence is {by_ladder.value:.5g} ± {by_ladder.standard_error:.2g} by the "
        f"energies of the ladder and {by_bridge.value:.5g} ± {by_bridge.standard_error:.2g} by "
        "draws and proposals: the draws miss a mode, or have too little of it. "
        f"{retuning(posterior)} If log_prior leaves out constants, only that of the ladder is "
        "right."
    )


def _energies_differ(posterior: "Posterior") -> str | None:
    """Report a hot rung whose energies are above those of another chain's rung that is as hot.

    Energies rise with temperature, and so do their ranks: the ratio of two tempered densities
    depends on the energy alone.
    """
    temperatures = np.asarray(posterior.temperatures, float)
    pairs, energies = _as_hot(temperatures), _energies_of_rungs(posterior)
    by_rate = posterior.metadata.resolved.rule == "deterministic" or np.any(temperatures == 0)
    if _is_training(posterior) or by_rate or not pairs or energies.shape[1] < _FEW_POINTS:
        return None
    if diagnostics.ladder_moved(posterior) >= _FIXED:
        return None
    scores = diagnostics.rank_normalised(energies)
    mean, spread = scores.mean(axis=1), scores.std(axis=1)  # (chain, rung)
    error = np.array([[evidence.mean_error(rung) for rung in chain.T] for chain in scores])
    one, other = (tuple(side) for side in np.array(pairs).transpose(1, 2, 0))
    apart = mean[one] - mean[other]
    noise = evidence.certainty(len(pairs)) * np.hypot(error[one], error[other])
    worst = int(np.argmax(apart / np.maximum(noise, _APART * spread[one]).clip(1e-300)))
    if not apart[worst] > max(noise[worst], _APART * spread[one][worst]):
        return None
    said = "chain {} at temperature {:.3g} (median {:.4g})"
    sides = (
        said.format(at[0], temperatures[at], np.median(energies[at[0], :, at[1]]))
        for at in pairs[worst]
    )
    return (
        f"Energies of {' are above those of '.join(sides)}: chains are in different regions there. "
        f"{_where_chains_differ(posterior)}"
    )


def _where_chains_differ(posterior: "Posterior", gap: float = 0.0) -> str:
    """Return what lets chains find what others have found: more steps where replicas make round
    trips, else a ladder on which they do; other starts where no rung leads there, as many nats of
    evidence say."""
    if gap > _APART_FOR_GOOD:
        return (
            "Write a function start(key) that draws as widely as the prior: no rung leads from the "
            "one place to the other."
        )
    moves = not exchanges(posterior) or posterior.round_trips.min() > 0
    return longer(posterior, 4.0) if moves else more_replicas(posterior)


def _as_hot(temperatures: np.ndarray) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return pairs of a (chain, rung) and one of another chain that is as hot or hotter, from
    temperatures (chain, rung); without coldest rungs, of which R-hat judges."""
    same = (1 - 1e-6) * temperatures
    return [
        ((chain, rung), (other, max(rung, int(at))))
        for chain, other in itertools.permutations(range(len(temperatures)), 2)
        for rung, at in enumerate(np.searchsorted(temperatures[other], same[chain]))
        if rung > 0 and at < temperatures.shape[1]
    ]


def _energies_of_rungs(posterior: "Posterior") -> np.ndarray:
    """Return energies of all rungs after burn-in, at draws or at points of the history
    (chain, point, rung); infinite where they are not finite."""
    if "rung_energy" in posterior._records.names("draws"):
        energies = posterior.rung_energies
    else:
        energies = kept_energies(posterior)
    every = -(-energies.shape[1] // _MOST_POINTS) or 1
    return np.where(np.isfinite(energies), energies, np.inf)[:, ::every]


def _unknown_law(posterior: "Posterior") -> str | None:
    metadata, rule = posterior.metadata, posterior.metadata.resolved.rule
    samples = metadata.kind == "sample" and float(posterior.temperatures[:, 0].max()) > 0
    if not samples or rule != "deterministic" or not exchanges(posterior):
        return None
    deo = 'method=rx.deo(learning_rate=..., temperature=(1, hot), rule="bias_corrected")'
    if not metadata.batches.may_be_partial:
        return (
            "It is not known that the deterministic rule samples the posterior, and its draws can "
            "be too narrow. To sample it, leave out the method if the energy is exact, and write "
            f"{deo} if it is noisy."
        )
    target = "rx.bayesian(log_likelihood, log_prior, data) as the target, without"
    exact = "leave out the" if is_bayesian(posterior) else f"write {target} a"
    return (
        "With mini-batches it is not known that the deterministic rule samples the posterior: for "
        f"that, {exact} method, or write {deo}."
    )


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
        f"ladder is broken there. {more_replicas(posterior)}"
    )


# What else may cure each, in the order in which they are told.
_CAUSES = {
    _early_end: "target",
    _rounded_energy: "target",
    _falling_energy: "tuning",
    _runaway_rung: "target",
    _colder_rungs: "target",
    _broken_replicas: "target",
    _acceptance: "tuning",
}
_OTHERS = {
    _unknown_law: "target",
    _negative_buffer: "target",
    _window_bias: "target",
    _noisy_metropolis: "target",
    _moving_ladder: "tuning",
    _collapsed_ladder: "tuning",
    _rare_swaps: "tuning",
    _missed_by_mixture: "tuning",
    _finder_weighs_more: "target",
    _energies_are_rough: "target",
    _evidences_differ: "length",
    _evidences_disagree: "tuning",
    _energies_differ: "length",
}


def _is_training(posterior: "Posterior") -> bool:
    return posterior.metadata.kind == "train"


def kept_energies(posterior: "Posterior") -> np.ndarray:
    """Return energies of all rungs after burn-in (chain, point, rung), with NaN for non-finite
    values."""
    history = posterior.history
    if "energy" not in history:
        return np.zeros((posterior.num_chains, 0, posterior.num_replicas))
    energies = history["energy"][:, history["step"] > posterior.metadata.resolved.burn_in]
    return np.where(np.isfinite(energies), energies, np.nan).astype(float)


def mean_and_error(values: np.ndarray, num_batches: int = 10) -> tuple[Any, Any]:
    """Return the mean of (chain, point, ...) over chains and points, and its standard error by
    batch means; (None, None) if there are too few points."""
    length = values.shape[1] // num_batches
    if length < 1:
        return None, None
    used = values[:, values.shape[1] - num_batches * length :]
    batches = used.reshape(len(used) * num_batches, length, *used.shape[2:])
    means = batches.mean(axis=1)
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(len(means))


def certainty(values: np.ndarray, count: int, num_batches: int = 10) -> float:
    """Return the number of standard errors, from (chain, point, ...) by batch means, beyond which
    the error of a mean is significant when `count` means are tested."""
    from scipy.special import stdtrit

    return -float(stdtrit(len(values) * num_batches - 1, _CHANCE / count))


def in_method(posterior: "Posterior", arguments: str) -> str:
    """Return how the method of a run is written with other arguments."""
    return f"method={written(posterior.metadata.method.name, f'..., {arguments}')}"


def measured(posterior: "Posterior", name: str) -> np.ndarray | None:
    """Return a statistic (chain, rung) of the kernel, None if it has none."""
    values = getattr(posterior, name, None)
    if values is None or np.all(np.isnan(values)):
        return None
    return np.asarray(values, float)
