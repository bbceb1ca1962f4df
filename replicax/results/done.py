"""Is a run long enough? What is short of that, and runs that go on until nothing is.

Jumps count for precision, never for convergence: that is told by round trips between the ends of
the ladder, and by chains and replicas that agree.
"""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replicax.results import diagnostics, evidence

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

FEWEST_TRIPS = 10  # of each chain, since the ladder is frozen
LARGEST_RHAT = 1.01
ENOUGH_DRAWS = 400  # effective ones, of all chains together, in bulk and tails
LARGEST_ERROR = 0.1  # of the ladder's log evidence, where there is one
FIRST_STEPS = 600  # of a run that decides itself how long it is
MOST_STEPS = 20_000  # unless the user says otherwise
_LEAST_GROWTH, _MOST_GROWTH = 1.5, 4.0  # of the steps that are kept, from one look to the next
_ROOM = 1.1  # steps beyond those that the numbers so far ask for


class Short(NamedTuple):
    """A number that is not good enough yet."""

    words: str
    factor: float  # by which the draws would have to grow


def shortcomings(posterior: "Posterior") -> list[Short]:
    """Return what a run is short of; nothing where it is done."""
    found = [_trips(posterior), *_of_draws(posterior), _of_evidence(posterior)]
    short = [one for one in found if one is not None]
    # What else the run warns of, more draws may cure.
    warned = [] if short else posterior.problems()
    return short + [Short(sentence, 2.0) for sentence in warned]


def _trips(posterior: "Posterior") -> Short | None:
    if not diagnostics.exchanges(posterior):
        return None
    fewest = int(posterior.round_trips.min())
    if fewest >= FEWEST_TRIPS:
        return None
    return Short(f"round trips {fewest} of {FEWEST_TRIPS}", FEWEST_TRIPS / max(fewest, 0.5))


def _of_draws(posterior: "Posterior") -> list[Short | None]:
    components = {
        name: values
        for name, values in diagnostics.checked_components(posterior).items()
        if np.ptp(values) > 0
    }
    found = []
    if posterior.num_chains > 1:
        rhats = {name: diagnostics.rhat(values) for name, values in components.items()}
        name = max(rhats, key=lambda name: np.nan_to_num(rhats[name], nan=np.inf))
        if not rhats[name] < LARGEST_RHAT:
            # R-hat - 1 falls as 1 / the number of draws, where chains mix.
            factor = (rhats[name] - 1) / (LARGEST_RHAT - 1) if rhats[name] < 1.1 else 4.0
            found.append(Short(f"R-hat {rhats[name]:.3f} of {name}", factor))
    for word, size_of in (("bulk", diagnostics.bulk_size), ("tail", diagnostics.tail_size)):
        sizes = {name: size_of(values) for name, values in components.items()}
        name = min(sizes, key=lambda name: np.nan_to_num(sizes[name]))
        if not sizes[name] >= ENOUGH_DRAWS:
            size = np.nan_to_num(sizes[name])
            words = f"effective size in the {word} {size:.0f} of {ENOUGH_DRAWS} ({name})"
            found.append(Short(words, ENOUGH_DRAWS / max(size, 1.0)))
    return found


def _of_evidence(posterior: "Posterior") -> Short | None:
    if evidence.refusal(posterior) is not None:
        return None
    ladder = evidence.by_ladder(posterior.rung_energies, posterior.temperatures).combined()
    error = ladder.standard_error
    if error < LARGEST_ERROR:
        return None
    factor = (error / LARGEST_ERROR) ** 2 if np.isfinite(error) else 4.0
    return Short(f"error of the ladder's log evidence {error:.2g} of {LARGEST_ERROR}", factor)


class Watch:
    """The limits of a run that decides itself how long it is, as one of its callbacks."""

    def __init__(self, max_steps: int | None, max_seconds: float | None) -> None:
        self.max_steps = MOST_STEPS if max_steps is None else max_steps
        self.deadline = np.inf if max_seconds is None else time.monotonic() + max_seconds
        self.began = time.monotonic()

    def __call__(self, progress: object) -> str | None:
        return "stop: max_seconds is over" if time.monotonic() >= self.deadline else None


def go_on(posterior: "Posterior", watch: Watch, extend: Callable, shows: bool) -> "Posterior":
    """Extend a run by `extend(posterior, num_steps)` until it is done or at its limits."""
    while posterior.result.code == "finished" and posterior.num_steps < watch.max_steps:
        short = shortcomings(posterior)
        if not short:
            break
        kept = posterior.num_steps - posterior.metadata.resolved.burn_in
        wanted = _ROOM * max(one.factor for one in short)
        more = int(kept * (np.clip(wanted, _LEAST_GROWTH, _MOST_GROWTH) - 1))
        more = min(max(more, 1), watch.max_steps - posterior.num_steps)
        if shows:
            _show(posterior, short, more, watch)
        posterior = extend(posterior, more)
    return posterior


def _show(posterior: "Posterior", short: list[Short], more: int, watch: Watch) -> None:
    from replicax.run.progress import format_seconds

    seconds = (time.monotonic() - watch.began) / posterior.num_steps * more
    words = "; ".join(one.words for one in short)
    print(
        f"step {posterior.num_steps:,}: short of {words}. {more:,} more steps, about "
        f"{format_seconds(seconds)}",
        file=sys.stderr,
        flush=True,
    )
