"""Is a run long enough? What is short of that, and runs that go on until nothing is.

Jumps count for precision, never for convergence: that is told by round trips between the ends of
the ladder, and by chains and replicas that agree.
"""

import sys
import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.errors import RunProblem
from replicax.results import diagnostics, evidence
from replicax.run.methods import as_method
from replicax.run.options import Limits, Session
from replicax.run.processes import is_first
from replicax.run.progress import format_seconds
from replicax.run.sweeps import FEWEST_SWEEPS, MOST_SWEEPS
from replicax.run.task import Task

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

FEWEST_TRIPS = 10  # of each chain, since the ladder is frozen
LARGEST_RHAT = 1.01
ENOUGH_DRAWS = 400  # effective ones, of all chains together, in bulk and tails
LARGEST_ERROR = 0.1  # of the ladder's log evidence, where there is one
NUM_CHAINS = 4  # unless the user says otherwise
FIRST_STEPS = 600  # of a run that decides itself how long it is
MOST_STEPS = 20_000  # unless the user says otherwise
_LEAST_GROWTH, _MOST_GROWTH = 1.5, 4.0  # of the steps that are kept, from one look to the next
_PATIENCE = 6  # times the burn-in, before a new one is made
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
    checked = diagnostics.checked_components(posterior)
    if not checked:
        return [Short("draws", _MOST_GROWTH)]
    components = {name: values for name, values in checked.items() if np.ptp(values) > 0}
    if not components:
        return []
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


def check_possible(task: Task, method: Any) -> None:
    """Raise where a run cannot tell by itself when it is done."""
    method = as_method(method)
    if not method.keeps_law:
        raise ValueError(
            f'num_steps is missing: only the method "posterior" knows when it is done. Write '
            f'num_steps=... for "{method.name}".'
        )
    if not task.has_exact_energies:
        raise ValueError(
            "num_steps is missing: a run on mini-batches does not know when it is done. Write "
            "num_steps=..., or leave out batch_size."
        )


class Watch:
    """The limits of a run that decides itself how long it is, as one of its callbacks."""

    def __init__(self, limits: Limits, shows: bool, sweeps: bool = False) -> None:
        most, self.first = (MOST_SWEEPS, FEWEST_SWEEPS) if sweeps else (MOST_STEPS, FIRST_STEPS)
        self.max_steps = most if limits.max_steps is None else limits.max_steps
        seconds = np.inf if limits.max_seconds is None else limits.max_seconds
        self.began, self.seconds, self.shows = time.monotonic(), seconds, shows

    def __call__(self, progress: object) -> str | None:
        is_over = time.monotonic() - self.began >= self.seconds
        return "stop: max_seconds is over" if is_over else None

    def first_steps(self, burn_in: int | None) -> int:
        """Return the length of the first part of a run, after which it is looked at."""
        return min(max(self.first, 2 * (burn_in or 0)), self.max_steps)

    def say(self, words: str) -> None:
        if self.shows:
            print(words, file=sys.stderr, flush=True)


def watched(session: Session, limits: Limits, sweeps: bool = False) -> tuple[Session, Watch]:
    """Return the session with the limits among its callbacks, and the limits, of steps or of
    sweeps."""
    shows = sys.stderr.isatty() if session.progress is None else session.progress
    watch, given = Watch(limits, shows and is_first(), sweeps), session.callback
    callbacks = [] if given is None else [given] if callable(given) else list(given)
    return replace(session, callback=[*callbacks, watch]), watch


def until_done(posterior: "Posterior", session: Session, watch: Watch) -> "Posterior":
    """Go on with a run until it is short of nothing or at its limits, and say which."""
    while True:
        short, steps = shortcomings(posterior), posterior.num_steps
        words = "; ".join(one.words for one in short)
        if not short:
            watch.say(f"Done after {steps:,} {'steps' if posterior.sweeps is None else 'sweeps'}.")
            return posterior
        if posterior.result.code != "finished" or steps >= watch.max_steps:
            ended = "max_steps" if steps >= watch.max_steps else posterior.result.sentence
            warnings.warn(
                f"The run ended before it was done ({ended.rstrip('.')}). It is short of: {words}. "
                "posterior.extend() goes on; extend(retune=True) also learns ladder, step sizes "
                "and mixture anew.",
                RunProblem,
                stacklevel=3,
            )
            return posterior
        posterior = _gone_on(posterior, short, words, session, watch)


def _gone_on(
    posterior: "Posterior", short: list[Short], words: str, session: Session, watch: Watch
) -> "Posterior":
    """Return the run with more draws; where many times as many would not do, with a new burn-in."""
    steps, burn_in = posterior.num_steps, posterior.metadata.resolved.burn_in
    factor, kept = _ROOM * max(one.factor for one in short), steps - burn_in
    # Tuned too early: in a folder, the draws so far are not given up without a word of the user.
    retunes = factor > _MOST_GROWTH and kept > _PATIENCE * burn_in and posterior.run_dir is None
    retunes = retunes and posterior.sweeps is None  # the mixture has been learned from all rows
    more = 2 * steps if retunes else int(kept * (np.clip(factor, _LEAST_GROWTH, _MOST_GROWTH) - 1))
    more = min(max(more, 1), watch.max_steps - (0 if retunes else steps))
    seconds = format_seconds((time.monotonic() - watch.began) / steps * more)
    anew = ", with a new burn-in" if retunes else ""
    watch.say(f"Step {steps:,}: short of {words}. {more:,} more steps{anew}, about {seconds}.")
    return posterior.going_on(more, retunes, session)
