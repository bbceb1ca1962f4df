"""Is a run long enough? What is short of that, and runs that go on until nothing is.

Jumps count for precision, never for convergence: that is told by round trips between the ends of
the ladder, and by chains and replicas that agree.
"""

import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from replicax.errors import RunProblem, at_least, check_flag
from replicax.results import diagnostics, evidence, mixture, problems
from replicax.results.remedies import is_refused, longer, retuning, to_first_draws
from replicax.run import sweeps
from replicax.run.carry import trip_ends
from replicax.run.methods import as_method
from replicax.run.options import Limits, Session
from replicax.run.processes import is_first
from replicax.run.progress import Progress, format_seconds
from replicax.run.start import extended, retuned
from replicax.run.sweeps import FEWEST_SWEEPS, MOST_SWEEPS
from replicax.run.task import as_task

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior

FEWEST_TRIPS = 10  # of a chain, the mean of all, since the ladder is frozen
MOST_UNEQUAL = 4  # times the fewest of a chain, for the mean of all
LARGEST_RHAT = 1.01
ENOUGH_DRAWS = 400  # effective ones, of all chains together, in bulk and tails
LARGEST_SD_ERROR = 0.05  # of a standard deviation, as a fraction of it
_MOST_JUDGED = 4_000  # evenly spaced draws of a chain that tell these numbers
LARGEST_ERROR = 0.1  # of the log evidence, where there is one
NUM_CHAINS = 4  # unless the user says otherwise
FIRST_STEPS = 600  # of a run that decides itself how long it is
MOST_STEPS = 20_000  # unless the user says otherwise
_LEAST_GROWTH, _MOST_GROWTH = 1.5, 4.0  # of the steps that are kept, from one look to the next
_PATIENCE = 6  # times the burn-in, before a new one is made
_MORE_REDRAWS = 64  # of a step, where replicas hardly make round trips
_FOLLOWED = 8  # parameters whose numbers are followed over time
_LOOKS = 2  # at which only what the user has to change is left
_ROOM = 1.1  # steps beyond those that the numbers so far ask for


class Number(NamedTuple):
    """One of the numbers by which a run is done."""

    name: str
    value: float  # NaN where it is not asked for, or not known
    wanted: float
    is_short: bool
    factor: float = 1.0  # by which the draws would have to grow
    of: str = ""  # the parameter that is worst, or why the number is not asked for

    @property
    def words(self) -> str:
        """The number as it is written everywhere."""
        if np.isnan(self.value) and not self.is_short:
            return f"{self.name} not asked for ({self.of})"
        return f"{self.name} {self.shown} of {self.wanted:g}{f' ({self.of})' if self.of else ''}"

    @property
    def shown(self) -> str:
        """The value alone."""
        if np.isnan(self.value):
            return "not known"
        if self.name.startswith("R-hat"):
            return f"{self.value:.3f}"
        return f"{self.value:,.0f}" if self.wanted > 1 else f"{self.value:.2g}"


class Short(NamedTuple):
    """What a run is short of."""

    words: str
    factor: float  # by which the draws would have to grow
    cure: str = "length"


def numbers(posterior: "Posterior") -> list[Number]:
    """Return the numbers that decide whether a run is done, as they are now."""
    return [*_trips(posterior), *_of_draws(posterior), *_of_evidence(posterior)]


def shortcomings(posterior: "Posterior") -> list[Short]:
    """Return what a run is short of; nothing where it is done."""
    found = numbers(posterior)
    short = [Short(one.words, one.factor) for one in found if one.is_short]
    # What else the run warns of, more draws or another tuning may cure.
    warned = [] if short or not found else problems.with_cures(posterior)
    return short + [Short(sentence, 2.0, cure) for sentence, cure in warned]


def in_words(posterior: "Posterior") -> str:
    """Return the numbers of a run in a sentence, with its log evidence and its mixture."""
    words = [one.words for one in numbers(posterior)]
    found = {name: way.combined() for name, way in posterior._evidences.items()}
    words += [f"log evidence {x.value:.2f} ± {x.standard_error:.2g} ({name})"
              for name, x in found.items()]  # fmt: skip
    covered = mixture.missed(posterior)
    if covered is not None:
        words.append(f"the mixture covers {1 - covered.mass:.1%} of the draws")
    return "; ".join(words)


def course(posterior: "Posterior", points: int = 12) -> tuple[np.ndarray, list[list[Number]]]:
    """Return the numbers as they were at some steps of the run, and these steps. Of the parameters
    those are followed that are worst at the end."""
    draws = diagnostics.checked_components(posterior, posterior.judged())
    before, burn_in = posterior.judged_before_jumps(), posterior.metadata.resolved.burn_in
    if not draws:
        return np.zeros(0, int), []
    sizes = {name: np.nan_to_num(diagnostics.bulk_size(values)) for name, values in draws.items()}
    worst = sorted(sizes, key=lambda name: sizes[name])[:_FOLLOWED]
    ends = [np.sort(np.concatenate(trip_ends(chain))) for chain in posterior.rung_of]
    counted = posterior.metadata.resolved.counted_from
    found, shares = [], np.linspace(0, 1, points + 1)[1:]
    for share in shares:
        step = burn_in + int(share * (posterior.num_steps - burn_in))
        now = {name: draws[name][:, : int(share * posterior.num_draws)] for name in worst}
        early = {name: before[name] for name in worst if name in before}
        early = {name: x[:, : int(share * x.shape[1])] for name, x in early.items()}
        trips = [int(np.sum((chain > counted) & (chain <= step))) for chain in ends]
        numbers = [*_trips(posterior, np.array(trips)), *_of(now, early)]
        found.append([*numbers, *_of_evidence(posterior, int(share * posterior.num_draws))])
    return burn_in + (shares * (posterior.num_steps - burn_in)).astype(int), found


def _trips(posterior: "Posterior", trips: np.ndarray | None = None) -> list[Number]:
    name = "round trips of a chain"
    if not diagnostics.exchanges(posterior):
        why = "no ladder: replicas do not exchange"
        if posterior.sweeps is not None:
            why = "no ladder: modes were found on some of the rows"
        elif posterior.num_replicas == 1:
            why = "no ladder: one replica"
        return [Number(name, np.nan, FEWEST_TRIPS, False, of=why)]
    trips = posterior.round_trips if trips is None else trips
    counted = min(float(trips.mean()), MOST_UNEQUAL * float(trips.min()))
    factor = FEWEST_TRIPS / max(counted, 0.5)
    return [Number(name, counted, FEWEST_TRIPS, counted < FEWEST_TRIPS, factor)]


def _of_draws(posterior: "Posterior") -> list[Number]:
    checked = diagnostics.checked_components(posterior, posterior.judged())
    if not checked:
        return [Number("draws", posterior.num_draws, ENOUGH_DRAWS, True, _MOST_GROWTH)]
    before = posterior.judged_before_jumps()
    return _of(checked, {name: values for name, values in before.items() if name in checked})


def _of(checked: dict[str, np.ndarray], before: dict[str, np.ndarray]) -> list[Number]:
    """Return the numbers of draws, and of the coldest replica before its jumps."""
    checked, before = _thinned(checked), _thinned(before)
    components = {name: values for name, values in checked.items() if np.ptp(values) > 0}
    before = {name: values for name, values in before.items() if name in components}
    sizes = (("bulk", diagnostics.bulk_size), ("tails", diagnostics.tail_size))
    return [
        *_rhat("R-hat", components),
        *_rhat("R-hat before jumps", before),
        *(
            _worst(f"effective draws in the {part}", size, components, ENOUGH_DRAWS)
            for part, size in sizes if components
        ),
        *_spread(components),
    ]  # fmt: skip


def _thinned(components: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {
        name: values[:, :: -(-values.shape[1] // _MOST_JUDGED) or 1]
        for name, values in components.items()
    }


def _rhat(name: str, components: dict[str, np.ndarray]) -> list[Number]:
    """Return the largest R-hat over chains, none where there is one chain."""
    several = {key: values for key, values in components.items() if len(values) > 1}
    if not several:
        return []
    rhats = {key: diagnostics.rhat(values) for key, values in several.items()}
    worst = max(rhats, key=lambda key: np.nan_to_num(rhats[key], nan=np.inf))
    # R-hat - 1 falls as 1 / the number of draws, where chains mix.
    factor = (rhats[worst] - 1) / (LARGEST_RHAT - 1) if rhats[worst] < 1.1 else 4.0
    return [
        Number(name, rhats[worst], LARGEST_RHAT, not rhats[worst] < LARGEST_RHAT, factor, worst)
    ]


def _worst(
    name: str, size_of: Callable, components: dict[str, np.ndarray], wanted: float
) -> Number:
    sizes = {key: np.nan_to_num(size_of(values)) for key, values in components.items()}
    worst = min(sizes, key=lambda key: sizes[key])
    size = float(sizes[worst])
    return Number(name, size, wanted, size < wanted, wanted / max(size, 1.0), worst)


def _spread(components: dict[str, np.ndarray]) -> list[Number]:
    """Return how well the standard deviation is known that is known worst."""
    errors = {key: diagnostics.sd_error(values) for key, values in components.items()}
    if not errors:
        return []
    worst = max(errors, key=lambda key: np.nan_to_num(errors[key], nan=np.inf))
    error = errors[worst]
    factor = (error / LARGEST_SD_ERROR) ** 2 if np.isfinite(error) else 4.0
    is_short = not error < LARGEST_SD_ERROR
    name = "relative error of a standard deviation"
    return [Number(name, error, LARGEST_SD_ERROR, is_short, factor, worst)]


def _of_evidence(posterior: "Posterior", num_draws: int | None = None) -> list[Number]:
    found = posterior._evidences if num_draws is None else evidence.of_run(posterior, num_draws)
    if not found:
        return []
    error = evidence.reported(found)[1].standard_error
    factor = (error / LARGEST_ERROR) ** 2 if np.isfinite(error) else 4.0
    name = "error of the log evidence"
    return [Number(name, error, LARGEST_ERROR, not error < LARGEST_ERROR, factor)]


def extend(
    posterior: "Posterior", num_steps: int | None, retune: bool, session: Session
) -> "Posterior":
    """Return `Posterior.extend`, without warnings."""
    check_flag("retune", retune)
    if num_steps is not None:
        at_least("num_steps", num_steps, 1)
    if posterior.metadata.kind == "train":
        raise ValueError(
            "A training is continued by rx.resume(run_dir, problem, epochs=...), with the "
            "epochs in all."
        )
    if retune and posterior.run_dir is not None and session.run_dir is None:
        raise ValueError(
            f"The run with a new burn-in leaves {posterior.run_dir} as it is: give it a run_dir of "
            "its own."
        )
    if session.run_dir is not None and not retune:
        raise ValueError(
            "run_dir is for retune=True: an extended run stays where it is, in its folder or in "
            "memory."
        )
    if num_steps is None:
        kept = max(posterior.num_steps - posterior.metadata.resolved.burn_in, 1)
        num_steps = 2 * posterior.num_steps if retune else kept
    return _going_on(posterior, num_steps, retune, session)


def _going_on(
    posterior: "Posterior", num_steps: int, retune: bool, session: Session, redraws: int = 0
) -> "Posterior":
    """Return the run with more steps, or as many after a new burn-in, there with so many `redraws`
    unless they are 0."""
    from replicax.results.posterior import Posterior

    records, like, target = posterior._records, posterior._like, posterior._target
    task = records.task or (None if target is None else as_task(target))
    if posterior.sweeps is not None and retune:
        raise ValueError("Sweeps learn in their first ones: start the run again instead.")
    if posterior.sweeps is not None:
        records = sweeps.extended(records, task, num_steps, session)
    elif retune:
        records, like = retuned(records, task, num_steps, session, redraws)
    else:
        records = extended(records, task, posterior.num_steps + num_steps, session)
    return Posterior(records, like, target)


def check_possible(method: Any) -> None:
    """Raise where a run cannot tell by itself when it is done."""
    method = as_method(method)
    if not method.keeps_law:
        raise ValueError(
            f'num_steps is missing: only the method "posterior" knows when it is done. Write '
            f'num_steps=... for "{method.name}".'
        )


class Watch:
    """The limits of a run that decides itself how long it is, as one of its callbacks."""

    def __init__(self, limits: Limits, shows: bool, sweeps: bool = False) -> None:
        most, self.first = (MOST_SWEEPS, FEWEST_SWEEPS) if sweeps else (MOST_STEPS, FIRST_STEPS)
        self.max_steps = most if limits.max_steps is None else limits.max_steps
        seconds = np.inf if limits.max_seconds is None else limits.max_seconds
        self.began, self.seconds, self.shows = time.monotonic(), seconds, shows
        self.rate = np.nan  # steps per second of the last chunk
        self.warned = 0  # looks in a row at which only warnings were left

    def __call__(self, progress: Progress) -> str | None:
        self.rate = progress.steps_per_second
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
    watch = Watch(limits, shows and is_first(), sweeps)
    return replace(session, callback=[*session.callbacks, watch]), watch


def until_done(posterior: "Posterior", session: Session, watch: Watch) -> "Posterior":
    """Go on with a run until it is short of nothing or at its limits, and say which."""
    unit = "steps" if posterior.sweeps is None else "sweeps"
    while True:
        short, steps = shortcomings(posterior), posterior.num_steps
        words = "; ".join(one.words for one in short)
        where = f"Step {steps:,}" if posterior.sweeps is None else f"Sweep {steps:,}"
        if watch.shows:  # the words take as long as the numbers
            watch.say(f"{where}: {in_words(posterior)}.")
        if not short:
            asked = [one.name for one in numbers(posterior) if not np.isnan(one.value)]
            return _ended(
                posterior, f"Done after {steps:,} {unit}: {', '.join(asked)} are as wanted.", watch
            )
        reason = _limit(posterior, short, watch)
        if reason is not None:
            return _given_up(posterior, reason, short, words, watch)
        further = _gone_on(posterior, short, words, session, watch)
        if further.num_draws or not posterior.num_draws:
            posterior = further
            continue
        # Stopped in a new burn-in: the draws so far are better than none.
        reason = further.result.sentence.rstrip(".")
        return _given_up(posterior, f"in a new burn-in: {reason}", short, words, watch)


def _given_up(
    posterior: "Posterior", reason: str, short: list[Short], words: str, watch: Watch
) -> "Posterior":
    """End a run that is not done, with a warning."""
    posterior = _ended(posterior, f"{problems.NOT_DONE}{reason}. Short of: {words}", watch)
    warnings.warn(
        f"The run ended before it was done: {reason}. It is short of: {words}"
        f"{'' if words.endswith('.') else '.'} {_remedy(posterior, short)}".rstrip(),
        RunProblem,
        stacklevel=4,
    )
    return posterior


def _limit(posterior: "Posterior", short: list[Short], watch: Watch) -> str | None:
    """Return why a run that is not done goes no further, None if it does."""
    if posterior.num_steps >= watch.max_steps:
        return f"max_steps={watch.max_steps} is over"
    if posterior.result.code != "finished":
        return posterior.result.sentence.rstrip(".")
    if is_refused(posterior):
        return "the mixture is refused: the posterior is far from Gaussians around its minima"
    redraws = posterior.metadata.method.redraws or 0
    if redraws >= _MORE_REDRAWS and not _has_patience(posterior) and _hardly_travels(posterior):
        return f"replicas hardly make round trips, with {redraws} draws from the prior in each step"
    # Only what the user has to change is left: a few looks say that it stays.
    only_target = all(one.cure == "target" for one in short)
    watch.warned = watch.warned + 1 if only_target else 0
    return "what it warns of does not go away with more steps" if watch.warned > _LOOKS else None


def _remedy(posterior: "Posterior", short: list[Short]) -> str:
    """Return how to go on, in a sentence: with the same tuning unless that is the problem."""
    if any(one.cure == "target" for one in short):
        return ""
    if not posterior.num_draws:
        return to_first_draws(posterior)
    if _tuned_badly(posterior, short):
        return retuning(posterior)
    return longer(posterior, max(one.factor for one in short))


def _tuned_badly(posterior: "Posterior", short: list[Short]) -> bool:
    """Return whether a new burn-in is better than more draws: a warning says so, or many times as
    many draws would be needed after a burn-in so short. Sweeps have learned from all rows, and
    are tuned badly where their mixture is refused."""
    if posterior.sweeps is not None:
        return is_refused(posterior)
    if any(one.cure == "tuning" for one in short) or _redraws_wanted(posterior):
        return True
    factor = _ROOM * max(one.factor for one in short)
    return factor > _MOST_GROWTH and not _has_patience(posterior)


def _hardly_travels(posterior: "Posterior") -> bool:
    """Return whether replicas make far too few round trips."""
    (trips,) = _trips(posterior)
    return trips.is_short and trips.factor > _MOST_GROWTH


def _redraws_wanted(posterior: "Posterior") -> int:
    """Return how many draws from the prior each replica should be offered in a step, 0 for as many
    as now."""
    now = posterior.metadata.method.redraws or 0
    return _MORE_REDRAWS if 0 < now < _MORE_REDRAWS and _hardly_travels(posterior) else 0


def _has_patience(posterior: "Posterior") -> bool:
    """Return whether a run is so short after its burn-in that more draws may be enough."""
    burn_in = posterior.metadata.resolved.burn_in
    return posterior.num_steps - burn_in <= _PATIENCE * burn_in


def _ended(posterior: "Posterior", sentence: str, watch: Watch) -> "Posterior":
    """Say how a run has ended, and store it with the run, in place of how its last part did."""
    watch.say(sentence)
    metadata = posterior.metadata
    if metadata.result is not None and is_first():
        result = replace(metadata.result, sentence=f"{sentence.rstrip('.')}.")
        posterior._records.write_metadata(replace(metadata, result=result))
    return posterior


def _gone_on(
    posterior: "Posterior", short: list[Short], words: str, session: Session, watch: Watch
) -> "Posterior":
    """Return the run with more draws; where many times as many would not do, with a new burn-in."""
    steps, kept = posterior.num_steps, posterior.num_steps - posterior.metadata.resolved.burn_in
    factor = _ROOM * max(one.factor for one in short)
    # Tuned badly: in a folder, the draws so far are not given up without a word of the user.
    retunes = _tuned_badly(posterior, short) and posterior.run_dir is None
    redraws = _redraws_wanted(posterior) if retunes else 0
    more = (1 if redraws else 2) * steps
    if not retunes:
        more = int(kept * (np.clip(factor, _LEAST_GROWTH, _MOST_GROWTH) - 1))
    more = min(max(more, 1), watch.max_steps - (0 if retunes else steps))
    anew = ", with a new burn-in" if retunes else ""
    left = format_seconds(more / watch.rate) if watch.rate > 0 else "unknown"
    watch.say(f"Short of {words}: {more:,} more steps{anew}, about {left} left.")
    return _going_on(posterior, more, retunes, session, redraws)
