"""Early stops: when they come, and that they judge draws as the posterior does."""

from typing import Any

import numpy as np
import pytest
from altered_runs import alter
from recorded_progress import record

import replicax as rx
from replicax.callbacks.stopping import _StopAfter
from replicax.results import diagnostics
from replicax.results.diagnostics import checked_components

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def recorded() -> tuple[rx.Posterior, list[rx.callbacks.Progress]]:
    return record()


def stopped_at(seen: list[rx.callbacks.Progress], **conditions: Any) -> tuple[int, str] | None:
    """The place in `seen` and the reason of the stop, or None."""
    stop = rx.callbacks.stop_after(**conditions)
    for place, progress in enumerate(seen):
        reason = stop(progress)
        if reason is not None:
            return place, reason
    return None


def until(posterior: rx.Posterior, progress: rx.callbacks.Progress) -> rx.Posterior:
    """The posterior as it was then."""
    num_draws = max(progress.step - 500, 0)
    final = {"step": np.asarray(progress.step)}
    return alter(posterior, {"steps": progress.step, "draws": num_draws}, final)


def smallest_size(posterior: rx.Posterior) -> float:
    return min(map(diagnostics.bulk_size, checked_components(posterior).values()))


def largest_rhat(posterior: rx.Posterior) -> float:
    components = checked_components(posterior)
    over_replicas = diagnostics.replica_rhat(posterior, components)
    return max(*map(diagnostics.rhat, components.values()), *over_replicas.values())


def test_round_trips_count_from_burn_in_in_every_chain(recorded):
    _, seen = recorded
    early = [progress for progress in seen if progress.step < 500]
    assert early[-1].round_trips.min() >= 3, "before burn-in there are enough, too"
    place, reason = stopped_at(seen, round_trips=3)
    assert seen[place].step >= 500 and seen[place].round_trips.min() >= 3
    before = [progress for progress in seen[:place] if progress.step >= 500]
    assert before and all(progress.round_trips.min() < 3 for progress in before)
    assert reason == f"stop: {seen[place].round_trips.min()} round trips in every chain"


def test_an_effective_size_is_that_of_the_summary(recorded):
    posterior, seen = recorded
    wanted = 0.5 * smallest_size(posterior)
    place, reason = stopped_at(seen, effective_size=wanted)
    size = smallest_size(until(posterior, seen[place]))
    assert size >= wanted and reason == f"stop: effective size {size:.0f}"
    by_summary = until(posterior, seen[place]).components()
    sizes = [diagnostics.bulk_size(values) for values in by_summary.values()]
    assert min(sizes) >= size
    assert smallest_size(until(posterior, seen[place - 4])) < wanted
    assert stopped_at(seen, round_trips=1, effective_size=1e9) is None


def test_rhat_is_that_over_chains_and_over_replicas(recorded):
    posterior, seen = recorded
    place, reason = stopped_at(seen, r_hat=1.1, round_trips=3)
    then = until(posterior, seen[place])
    assert largest_rhat(then) <= 1.1 and seen[place].round_trips.min() >= 3
    assert smallest_size(then) >= 100 * posterior.num_chains, "else R-hat is not trusted"
    assert reason.endswith(f"R-hat {largest_rhat(then):.3f}")


@pytest.mark.parametrize("rhat", [1.2, float("nan")])
def test_replicas_that_disagree_or_are_unknown_do_not_stop(monkeypatch, recorded, rhat):
    """R-hat over chains alone would stop here."""
    monkeypatch.setattr(diagnostics, "replica_rhat", lambda _, parts: dict.fromkeys(parts, rhat))
    assert stopped_at(recorded[1], r_hat=1.1) is None


def test_a_resumed_run_is_judged_by_all_its_draws(tmp_path, recorded):
    """The folder may know more than was done when the run was killed: that is done again."""
    posterior, seen = recorded
    folder = posterior.save(tmp_path / "run")
    judge = rx.callbacks.stop_after(effective_size=1e9)
    assert isinstance(judge, _StopAfter)
    for progress in seen[20:30]:
        judge(progress._replace(run_dir=folder))
    so_far, then = judge.so_far, until(posterior, seen[29])
    assert so_far is not None and so_far.num_draws == then.num_draws == 1000
    np.testing.assert_array_equal(so_far.rung_of, then.rung_of)
    np.testing.assert_array_equal(so_far.energies, then.energies)
    for name, values in then.components().items():
        np.testing.assert_array_equal(so_far.components()[name], values)


def test_trainings_and_searches_have_no_effective_size(recorded):
    progress = recorded[1][0]
    ladder = progress.carry.state.ladder._replace(temperature=np.zeros((2, 3)))
    cold = progress.carry._replace(state=progress.carry.state._replace(ladder=ladder))
    with pytest.raises(ValueError, match="optimises; use round_trips"):
        rx.callbacks.stop_after(effective_size=100)(progress._replace(carry=cold))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "no condition"),
        ({"round_trips": 0}, "round_trips is 0"),
        ({"round_trips": 2.5}, "round_trips is 2.5"),
        ({"effective_size": -1}, "effective_size is -1"),
        ({"effective_size": "many"}, "effective_size is 'many'"),
        ({"r_hat": 1.0}, "r_hat is 1.0"),
        ({"r_hat": float("nan")}, "r_hat is nan"),
    ],
)
def test_conditions_that_mean_nothing(options, words):
    with pytest.raises(ValueError, match=words):
        rx.callbacks.stop_after(**options)
