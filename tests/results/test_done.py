"""Runs that decide themselves how long they are, and what they are short of."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.errors import RunProblem
from replicax.results import done


def energy(x):
    """.7 N(-2, 1) and .3 N(2, .5^2), in two dimensions."""
    log_density = [
        np.log(share) - jnp.sum((x - at) ** 2) / (2 * sd**2) - 2 * np.log(sd)
        for share, at, sd in ((0.7, -2.0, 1.0), (0.3, 2.0, 0.5))
    ]
    return -jnp.logaddexp(*log_density)


def start(key):
    return 2 * jax.random.normal(key, (2,))


def sample(target: Any = energy, begin: Any = start, **options: Any) -> rx.Posterior:
    options = {"num_replicas": 4, "num_chains": 4, "progress": False} | options
    return rx.sample(target, begin, **options)


@pytest.fixture(scope="module")
def found() -> rx.Posterior:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return sample()


def test_a_run_ends_when_it_is_done_and_is_right(found, capsys) -> None:
    assert found.shortcomings() == [] == found.problems()
    assert found.num_steps < done.MOST_STEPS and found.round_trips.min() >= done.FEWEST_TRIPS
    share = (found.draws[..., 0] > 0).mean()
    assert share == pytest.approx(0.3, abs=0.05)


def test_what_is_short_is_shown_on_the_way(capsys, monkeypatch) -> None:
    monkeypatch.setattr(done, "FIRST_STEPS", 90)
    run = sample(num_replicas=8, progress=True)
    said = capsys.readouterr().err
    assert run.num_steps > 90
    assert "Step 90: short of round trips" in said and "more steps" in said
    assert f"Done after {run.num_steps:,} steps." in said


def test_a_run_at_its_limit_says_what_it_is_short_of() -> None:
    for limit, reason in (
        ({"max_steps": 60}, "max_steps"),
        ({"max_seconds": 1e-6}, "max_seconds is over"),
    ):
        with pytest.warns(RunProblem, match=rf"ended before it was done \(.*{reason}\).* short of"):
            run = sample(**limit)
        assert run.shortcomings() and run.num_steps <= 60
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run.extend(900).num_steps == run.num_steps + 900


@pytest.mark.filterwarnings("ignore::replicax.errors.RunProblem")
def test_a_run_in_a_folder_is_the_same(found, tmp_path) -> None:
    run = sample(run_dir=tmp_path / "run")
    np.testing.assert_array_equal(run.draws, found.draws)
    sample(run_dir=tmp_path / "other", num_steps=600)
    resumed = rx.resume(tmp_path / "other", energy, until_done=True, progress=False)
    np.testing.assert_array_equal(resumed.draws, found.draws)
    with pytest.raises(ValueError, match="max_steps is 9, the limit of a run that goes on"):
        rx.resume(tmp_path / "other", energy, max_steps=9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"method": rx.deo_star((0.1, 1.0))}, 'only the method "posterior" knows when it is done'),
        ({"num_steps": 9, "max_seconds": 1}, "max_seconds is 1, the limit of a run that goes on"),
        ({"max_seconds": 0}, "max_seconds is 0"),
        ({"max_steps": 0}, "max_steps is 0"),
    ],
)
def test_what_cannot_be_decided_is_said(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        sample(**options)


def test_mini_batches_do_not_know_when_they_are_done() -> None:
    target = rx.bayesian(
        lambda x, rows: -((rows - x) ** 2), lambda x: -(x**2), np.ones(9), batch_size=3
    )
    with pytest.raises(ValueError, match="mini-batches does not know when it is done"):
        sample(target, 0.0)


# Adverse runs: none of them is done


def seen(found: rx.Posterior, **changes: Any) -> Any:
    """A run with other properties."""
    names = {name: property(lambda _, x=x: x) for name, x in changes.items()}
    run = object.__new__(type("Adverse", (rx.Posterior,), names))
    run.__dict__ = dict(found.__dict__)
    return run


def test_a_chain_without_round_trips_is_not_done(found) -> None:
    trips = found.round_trips.copy()
    trips[2] = done.FEWEST_TRIPS - 1
    (short,) = done.shortcomings(seen(found, round_trips=trips))
    assert short.words == "round trips 9 of 10" and short.factor == pytest.approx(10 / 9)


def test_a_chain_that_is_stuck_is_not_done() -> None:
    """All replicas of one chain begin, and stay, in the other mode: 40 sd away."""

    def apart(x):
        return -jnp.logaddexp(-jnp.sum((x - 40) ** 2) / 2, -jnp.sum((x + 40) ** 2) / 2)

    signs = jnp.array([1.0, 1, -1, 1])[:, None, None]
    starts = rx.per_replica(40.0 * signs * jnp.ones((4, 4, 2)), by_chain=True)
    method = rx.posterior(jumps=0, temperature=(1.0, 2.0))
    with pytest.warns(RunProblem, match="short of"):
        run = sample(apart, starts, method=method, max_steps=1_500)
    assert any("R-hat" in words for words in run.shortcomings())


def test_few_effective_draws_are_not_done(found, monkeypatch) -> None:
    values = np.random.default_rng(0).standard_normal((4, 60)).repeat(4, axis=1)
    monkeypatch.setattr(done.diagnostics, "checked_components", lambda _: {"x": values})
    short = [one for one in done._of_draws(found) if one]
    bulk, tail = (one for one in short if one.words.startswith("effective size"))
    assert "bulk" in bulk.words and "tail" in tail.words and 1 < bulk.factor < 3
    monkeypatch.setattr(done.diagnostics, "checked_components", lambda _: {})
    assert [one.words for one in done._of_draws(found) if one] == ["draws"]


def test_a_warning_is_a_shortcoming(found, monkeypatch) -> None:
    monkeypatch.setattr(rx.Posterior, "problems", lambda _: ["The mixture misses places."])
    assert found.shortcomings() == ["The mixture misses places."]
