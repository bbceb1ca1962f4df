"""Runs that decide themselves how long they are, and what they are short of."""

import warnings
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up_metadata import changed

import replicax as rx
from replicax.algorithm import fitting
from replicax.algorithm.mixture import make_mixture
from replicax.errors import RunProblem
from replicax.results import done
from replicax.run import learning
from replicax.run.storage.metadata import BatchSpec


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
    assert found.result.sentence.startswith(f"Done after {found.num_steps} steps: round trips")
    assert found.num_steps < done.MOST_STEPS and found.round_trips.mean() >= done.FEWEST_TRIPS
    share = (found.draws[..., 0] > 0).mean()
    assert share == pytest.approx(0.3, abs=0.05)


def test_what_is_short_is_shown_on_the_way(capsys, monkeypatch) -> None:
    monkeypatch.setattr(done, "FIRST_STEPS", 90)
    run = sample(num_replicas=8, progress=True)
    said = capsys.readouterr().err
    assert run.num_steps > 90
    assert "Step 90: round trips of a chain" in said and "Short of round trips" in said
    assert "more steps" in said and "left." in said
    assert f"Done after {run.num_steps:,} steps: round trips of a chain, R-hat" in said
    assert run.result.sentence in said


def test_a_run_at_its_limit_says_what_it_is_short_of() -> None:
    for limit, reason in (
        ({"max_steps": 60}, "max_steps=60 is over"),
        ({"max_seconds": 1e-6}, "max_seconds is over"),
    ):
        with pytest.warns(RunProblem, match=rf"ended before it was done: .*{reason}.* short of"):
            run = sample(**limit)
        assert run.shortcomings() and run.num_steps <= 60
        assert run.problems()
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


# Adverse runs: none of them is done


def seen(found: rx.Posterior, **changes: Any) -> Any:
    """A run with other properties."""
    names = {name: property(lambda _, x=x: x) for name, x in changes.items()}
    run = object.__new__(type("Adverse", (rx.Posterior,), names))
    run.__dict__ = dict(found.__dict__)
    return run


def test_a_chain_without_round_trips_is_not_done(found) -> None:
    for trips, counted in (((9, 9, 9, 9), 9), ((2, 20, 20, 20), 8), ((0, 90, 90, 90), 0)):
        (short,) = done.shortcomings(seen(found, round_trips=np.array(trips)))
        assert short.words == f"round trips of a chain {counted} of 10"
        assert short.factor == pytest.approx(10 / max(counted, 0.5))
    assert not done.numbers(seen(found, round_trips=np.array((3, 9, 9, 19))))[0].is_short


def test_chains_that_only_jumps_make_agree_are_not_done(found) -> None:
    before = {name: values.copy() for name, values in found.judged_before_jumps().items()}
    assert {values.shape for values in before.values()} == {(4, found.num_steps - 200)}
    before["params[1]"][3] += 1.0
    (short,) = done.shortcomings(seen(found, judged_before_jumps=lambda: before))
    assert short.words.startswith("R-hat before jumps 1.") and "(params[1])" in short.words


def test_without_a_ladder_no_round_trips_are_asked_for_and_that_is_said(found) -> None:
    metadata = changed(found.metadata, num_replicas=1)
    alone = seen(found, metadata=metadata, round_trips=np.zeros(4, int))
    trips = done.numbers(alone)[0]
    assert not trips.is_short and "not asked for (no ladder: one replica)" in trips.words


def withheld(monkeypatch, covers: Any) -> None:
    """Let mixtures be learned of points (n, d) alone that `covers` says."""
    choose, search = fitting.choose, learning.search

    def choose_of_some(old: Any, draws: np.ndarray, energies: np.ndarray, *rest: Any) -> Any:
        flat = draws.reshape(-1, draws.shape[-1])
        kept = covers(flat)
        if kept.sum() < 50:
            return fitting.Chosen(old, 1.0, "old", 0)
        chosen = choose(old, flat[kept][None], energies.reshape(-1)[kept][None], *rest)
        return chosen if chosen.mixture is None else chosen._replace(mixture=narrow(chosen.mixture))

    def search_for_some(*args: Any) -> Any:
        found = search(*args)
        kept = covers(found.minima) if len(found.minima) else np.zeros(0, bool)
        parts = ("minima", "energies", "covariances")
        return found._replace(**{name: getattr(found, name)[kept] for name in parts})

    def narrow(mixture: Any) -> Any:
        """Without the wide component, which would reach everything."""
        used = fitting.in_use(mixture)
        kept = np.isinf(used.freedom) if np.isinf(used.freedom).any() else used.freedom > 0
        return make_mixture(used.log_weight[kept], used.mean[kept], used.root[kept])

    monkeypatch.setattr(fitting, "choose", choose_of_some)
    monkeypatch.setattr(learning, "search", search_for_some)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "covers", "words"),
    [
        (energy, lambda x: x[:, 0] < 0.5, "The mixture misses places"),
        (lambda x: jnp.sum(jnp.log1p(x**2)), lambda x: np.abs(x).max(axis=1) < 1, "mixture misses"),
    ],
    ids=["a mode", "tails"],
)
def test_what_the_mixture_lacks_is_not_done(monkeypatch, target, covers, words) -> None:
    withheld(monkeypatch, covers)
    with pytest.warns(RunProblem, match="ended before it was done"):
        run = sample(target, max_steps=900)
    assert any(words in one or "R-hat" in one for one in run.shortcomings())
    assert run.result.sentence.startswith("Not done, max_steps=900 is over. Short of: ")


@pytest.mark.slow
def test_a_ladder_without_round_trips_is_not_done() -> None:
    method = rx.posterior(temperature=(1.0, 1e5, 1e10), jumps=16)
    with pytest.warns(RunProblem, match="Short of|short of"):
        run = sample(
            lambda x: jnp.sum(x**2) / 2, start, num_replicas=3, method=method, max_steps=900
        )
    trips, *others = done.numbers(run)
    assert trips.is_short and trips.value == 0 and not any(one.is_short for one in others)


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
    monkeypatch.setattr(done.diagnostics, "checked_components", lambda *_: {"x": values})
    short = [one for one in done._of_draws(found) if one.is_short]
    bulk, tail = (one for one in short if one.words.startswith("effective draws"))
    assert "bulk" in bulk.words and "tails" in tail.words and 1 < bulk.factor < 3
    monkeypatch.setattr(done.diagnostics, "checked_components", lambda *_: {})
    assert [one.name for one in done._of_draws(found) if one.is_short] == ["draws"]


def test_a_standard_deviation_that_rests_on_few_excursions_is_not_done(found, monkeypatch) -> None:
    values = np.random.default_rng(1).standard_normal((4, 10_000))
    components = {"near": values, "far": values.copy()}
    components["far"][:, 5_000:5_100] *= 10
    monkeypatch.setattr(done.diagnostics, "checked_components", lambda *_: components)
    (short,) = (one for one in done._of_draws(found) if one.is_short)
    assert short.name == "relative error of a standard deviation" and short.of == "far"
    assert short.factor == pytest.approx((short.value / done.LARGEST_SD_ERROR) ** 2)
    assert short.factor > 2


def test_a_warning_is_a_shortcoming(found, monkeypatch) -> None:
    told = [("The mixture misses places.", "tuning")]
    monkeypatch.setattr(done.problems, "with_cures", lambda _: told)
    assert found.shortcomings() == ["The mixture misses places."]


def test_what_only_the_user_can_change_ends_the_run(found, monkeypatch) -> None:
    told = [("Energies are about 4e7.", "target")]
    monkeypatch.setattr(done.problems, "with_cures", lambda _: told)
    with pytest.warns(RunProblem, match="does not go away with more steps.*about 4e7"):
        run = sample()
    assert run.num_steps < done.MOST_STEPS / 4


def test_a_run_that_is_stopped_in_its_burn_in_says_how_it_gets_draws() -> None:
    with pytest.warns(RunProblem, match=r"of 400 steps, and has no draws\. Write posterior"):
        run = sample(num_steps=600, burn_in=400, callback=lambda progress: "stop: enough")
    assert run.num_draws == 0 and run.num_steps <= 400
    assert [len(run.problems()), run.result.sentence.endswith("enough.")] == [1, True]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole = run.extend(600 - run.num_steps)
    assert whole.num_steps == 600 and whole.num_draws > 0


def test_draws_are_not_given_up_for_a_burn_in_that_ends_too_early(monkeypatch) -> None:
    def tuned_anew(posterior, short, words, session, watch):
        stops = {"callback": lambda progress: "stop: max_seconds is over"}
        return done._going_on(posterior, 200, True, done.Session(progress=False, **stops))

    monkeypatch.setattr(done, "_gone_on", tuned_anew)
    monkeypatch.setattr(done, "FIRST_STEPS", 60)
    with pytest.warns(RunProblem, match="in a new burn-in: Stopped at step"):
        run = sample(num_replicas=8)
    assert run.num_draws > 0 and run.num_steps == 60


@pytest.mark.parametrize(
    ("accepted", "rows", "says"),
    [
        (0.01, BatchSpec("bayesian, arrays", 90, 90), "all rows: without a method, and with num"),
        (0.01, BatchSpec("bayesian, arrays", 90, 10), "all rows: without batch_size or a method"),
        (0.01, BatchSpec("bayesian, SourceRows", 90, 90), "all rows: with the rows as arrays"),
        (0.1, BatchSpec("bayesian, arrays", 90, 90), None),
    ],
)
def test_sweeps_whose_mixture_is_refused_end_at_once(accepted, rows, says) -> None:
    run = SimpleNamespace(
        num_steps=12,
        num_draws=4 * 128,
        sweeps={"kept": 4},
        jumps={"accepted": np.full(4, accepted)},
        result=SimpleNamespace(code="finished"),
        metadata=SimpleNamespace(
            method=rx.sweeps(),
            kind="sample",
            resolved=SimpleNamespace(burn_in=8),
            batches=rows,
        ),
    )
    watch = SimpleNamespace(max_steps=64, warned=0)
    short = [done.Short("R-hat 1.6 of 1.01", 9.0)]
    reason = done._limit(run, short, watch)
    assert reason is None if says is None else "the mixture is refused" in reason
    words = done._remedy(run, short)
    assert says in words and "jumps=512" not in words if says else "extend" in words


def test_a_run_that_is_only_short_of_round_trips_has_a_problem(found) -> None:
    sentence = "Not done, max_seconds is over. Short of: round trips of a chain 2 of 10."
    ending = replace(found.metadata.result, sentence=sentence)
    short = changed(found.metadata, result=ending)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(found), "metadata", property(lambda self: short))
        assert found.problems() == [sentence]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found.warn()
    assert found.problems() == []
