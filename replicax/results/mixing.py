"""Checks of the draws: agreement of chains, agreement of replicas, number of effective draws."""

from typing import TYPE_CHECKING, Any

import numpy as np

from replicax.results import diagnostics

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

RHAT_GOOD = 1.01  # largest good R-hat over chains
REPLICA_RHAT_GOOD = 1.05  # largest good R-hat over replicas
ENOUGH_DRAWS = 100  # effective, per chain
_STICKY = 1 / 20  # fraction of the effective size of the other tail
_MANY_DRAWS = 2_000  # effective, per chain: a tail that is seen so often hides nothing
_WORK = 1_000_000  # values that are checked
_FEW_DRAWS = 4  # nothing can be said of fewer


def checked_components(posterior: "Posterior") -> dict[str, np.ndarray]:
    """Return the components of the parameters that are checked, and the energy.

    All of them, or evenly spaced ones if there are many. None for networks: their weights have many
    equivalent arrangements, between which no chain needs to move.
    """
    optimises = not float(posterior.temperatures[:, 0].max()) > 0  # and draws are no sample
    if posterior.metadata.kind == "train" or optimises or posterior.num_draws < _FEW_DRAWS:
        return {}
    components = posterior.components()
    most = int(np.clip(_WORK // (posterior.num_chains * posterior.num_draws), 8, 100))
    names = list(components)
    chosen = np.unique(np.linspace(0, len(names) - 1, min(most, len(names))).astype(int))
    return {**{names[i]: components[names[i]] for i in chosen}, "energy": posterior.energies}


def find_mixing_problems(posterior: "Posterior") -> list[str | None]:
    """Return the problems of the draws, one sentence each."""
    components = checked_components(posterior)
    rhats = {name: diagnostics.rhat(values) for name, values in components.items()}
    return [
        _stuck_replicas(posterior, components),
        _no_round_trip(posterior, rhats),
        _chains_differ(posterior, rhats),
        _few_draws(posterior, components),
        sticky_tail(components),
    ]


def exchanges(posterior: "Posterior") -> bool:
    """Return whether the run has a ladder on which replicas move."""
    return posterior.metadata.resolved.schedule != "none" and posterior.num_replicas > 1


def _stuck_replicas(posterior: "Posterior", components: dict[str, np.ndarray]) -> str | None:
    if not exchanges(posterior):
        return None
    name, worst = _largest(diagnostics.replica_rhat(posterior, components))
    if not worst > REPLICA_RHAT_GOOD:
        return None
    return (
        f"R-hat over replicas is {worst:.3f} for {name} (above {REPLICA_RHAT_GOOD}): replicas "
        "bring different draws to the coldest rung. If they keep their modes, the starts decide "
        "how much mass a mode has: raise the highest temperature (or learning rate), or add "
        "replicas. If they only move slowly, run longer."
    )


def _no_round_trip(posterior: "Posterior", rhats: dict[str, float]) -> str | None:
    chains = np.flatnonzero(posterior.round_trips == 0)
    if not exchanges(posterior) or chains.size == 0 or posterior.num_draws < _FEW_DRAWS:
        return None
    _, worst = _largest(rhats)
    if posterior.metadata.kind != "train" and not worst < RHAT_GOOD:
        return None
    fine = f"R-hat looks fine ({worst:.3f}), but chain" if rhats else "Chain"
    return (
        f"{fine} {chains[0]} made no round trip: nothing from the hottest rung reached the target, "
        "and modes may be missing. Run longer, or look for a pair that hardly ever swaps."
    )


def _chains_differ(posterior: "Posterior", rhats: dict[str, float]) -> str | None:
    name, worst = _largest(rhats)
    if posterior.num_chains < 2 or not worst > RHAT_GOOD:
        return None
    return (
        f"R-hat over chains is {worst:.3f} for {name} (above {RHAT_GOOD}): the chains do not agree "
        "yet. Run longer, with a longer burn_in if they started far apart."
    )


def _few_draws(posterior: "Posterior", components: dict[str, np.ndarray]) -> str | None:
    sizes = {}
    for name, values in components.items():
        sizes[name, "bulk"] = -diagnostics.bulk_size(values) / posterior.num_chains
        sizes[name, "tails"] = -diagnostics.tail_size(values) / posterior.num_chains
    (name, part), size = _largest(sizes) if sizes else (("", ""), np.nan)
    if not -size < ENOUGH_DRAWS:
        return None
    return (
        f"The effective size of {name} in its {part} is {-size:.0f} per chain (below "
        f"{ENOUGH_DRAWS}, of {posterior.num_draws} draws): means and quantiles are imprecise. Run "
        "longer, or use a kernel that moves further in a step."
    )


def sticky_tail(components: dict[str, np.ndarray]) -> str | None:
    """Return a sentence about a tail that is entered rarely and left slowly: a narrow region, such
    as the neck of a funnel, whose deeper part may not have been visited."""
    sizes = {}
    for name, values in components.items():
        if name != "energy":
            lower, upper = (size / len(values) for size in diagnostics.tail_sizes(values))
            sizes[name, "lower", lower, upper] = lower / upper
            sizes[name, "upper", upper, lower] = upper / lower
    known = {key: ratio for key, ratio in sizes.items() if ratio < _STICKY}
    known = {key: ratio for key, ratio in known.items() if key[2] < _MANY_DRAWS}
    if not known:
        return None
    name, side, size, other = min(known, key=known.__getitem__)
    return (
        f"The {side} tail of {name} has an effective size of {size:.0f} per chain, the other one "
        f"{other:.0f}: draws enter it rarely and leave it slowly, as with the neck of a funnel "
        "or a small mode, and it may reach farther. Write the model in parameters of one scale "
        "(for a hierarchy, non-centred ones), or run much longer."
    )


def _largest(values: dict[Any, float]) -> tuple[Any, float]:
    """Return the name of the largest number and the number, NaN if there is none."""
    known = {name: value for name, value in values.items() if not np.isnan(value)}
    if not known:
        return "", float("nan")
    name = max(known, key=known.__getitem__)
    return name, known[name]
