"""The warnings of a run: each on a run that is wrong, and silent on one that is not."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from altered_runs import with_properties
from common import in_method
from made_up_metadata import changed

import replicax as rx
from replicax.results import diagnostics, problems
from replicax.results.problems import mean_and_error
from replicax.results.summary import _log_evidence, render_log_evidence
from replicax.run.batches import EpochBatches, NoBatches, as_batches


def sample_bowl(**options) -> rx.Posterior:
    """A Gaussian, four chains, learning rates at which successive draws are nearly independent."""
    defaults = {
        "num_steps": 2_000,
        "num_chains": 4,
        "num_replicas": 3,
        "learning_rate": 0.8,
        "temperature": (1.0, 4.0),
        "rule": "metropolis",
        "schedule": "deo",
        "burn_in": 50,
    }
    return rx.sample(rx.targets.gaussian(), jnp.zeros(2), **in_method(defaults | options))


def test_a_run_without_problems_gives_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        posterior = sample_bowl()
    assert posterior.problems() == []
    assert posterior.round_trips.min() > 100
    assert posterior.summary()["problems"] == []


@pytest.mark.filterwarnings("ignore:Pair")
def test_no_round_trip_is_a_warning_where_rhat_looks_fine() -> None:
    stuck = {"rule": "deterministic", "buffer": 1e6, "adapt": False}
    with pytest.warns(UserWarning, match="R-hat looks fine .* but chain 0 made no round trip"):
        posterior = sample_bowl(**stuck)
    assert posterior.round_trips.tolist() == [0, 0, 0, 0]
    assert any("no round trip" in sentence for sentence in posterior.summary()["problems"])


def test_without_exchange_round_trips_are_not_expected() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_bowl(schedule="none", adapt=False)


def test_a_buffer_below_zero_is_a_warning() -> None:
    eager = {"rule": "deterministic", "target_swap_rate": 0.8, "learning_rate": (0.2, 0.8)}
    with pytest.warns(UserWarning, match="The buffer ended below zero"):
        posterior = sample_bowl(**eager)
    assert posterior.buffer.min() < 0


@pytest.mark.filterwarnings("ignore:R-hat")
def test_a_pair_that_hardly_ever_swaps_is_a_warning_that_names_it() -> None:
    with pytest.warns(UserWarning, match="Pair 1 of chain . hardly ever swaps"):
        posterior = sample_bowl(temperature=(1.0, 2.0, 4_000.0))
    rates = posterior.window_swap_rate
    assert rates[:, 0].min() > 0.3 and rates[:, 1].max() < 0.01


@pytest.fixture(scope="module")
def good() -> rx.Posterior:
    return sample_bowl()


def says(posterior: rx.Posterior, words: str) -> bool:
    return any(words in sentence for sentence in posterior.problems())


# Draws


def with_draws(good: rx.Posterior, values: np.ndarray) -> rx.Posterior:
    """Two parameters of independent draws, and another with these values."""
    noise = np.random.default_rng(0).standard_normal((2, 4, good.num_draws))
    components = {"a": noise[0], "worst": values, "b": noise[1]}
    return with_properties(good, components=lambda: components)


def autoregression(num_draws: int, correlation: float) -> np.ndarray:
    values = np.random.default_rng(1).standard_normal((4, num_draws))
    for draw in range(1, num_draws):
        values[:, draw] += correlation * values[:, draw - 1]
    return values


def test_chains_that_do_not_agree_are_a_warning_that_names_the_worst_parameter(good) -> None:
    noise = np.random.default_rng(1).standard_normal((4, good.num_draws))
    assert with_draws(good, noise).problems() == []
    moved = with_draws(good, noise + 0.5 * np.arange(4)[:, None])
    assert says(moved, "R-hat over chains is 1.1") and says(moved, "for worst (above 1.01)")
    optimised = with_properties(moved, temperatures=np.zeros((4, 3)))
    assert not says(optimised, "R-hat over chains")
    drifts = {"worst": noise[:1] + np.linspace(0, 2, good.num_draws)}
    alone = {"num_chains": 1, "energies": noise[:1], "rung_of": good.rung_of[:1]}
    alone = with_properties(good, components=lambda: drifts, **alone)
    assert not says(alone, "R-hat over chains")


@pytest.mark.parametrize(("correlation", "few"), [(0.5, False), (0.97, True)])
def test_few_effective_draws_are_a_warning(good, correlation: float, few: bool) -> None:
    # 1,950 draws times (1 - a) / (1 + a): 650 and 30 per chain.
    found = with_draws(good, autoregression(good.num_draws, correlation))
    assert says(found, "The effective size of worst in its bulk") == few


def test_few_effective_draws_in_the_tails_are_a_warning(good) -> None:
    rng = np.random.default_rng(1)
    wide = np.repeat(rng.random((4, good.num_draws // 75)) < 0.15, 75, axis=1)
    values = rng.standard_normal((4, good.num_draws)) * np.where(wide, 10.0, 1.0)
    assert says(with_draws(good, values), "The effective size of worst in its tails")


# The ladder


def test_a_collapsed_ladder_is_a_warning(good) -> None:
    def collapses(rates: list[float], temperatures: list[float], words: str = "") -> bool:
        ladder = {"learning_rates": np.tile(rates, (4, 1)), "num_replicas": len(rates),
                  "temperatures": np.tile(temperatures, (4, 1)),
                  "history": {"step": np.zeros(0)}}  # fmt: skip
        return says(with_properties(good, **ladder), f"The ladder has collapsed{words}")

    sgd = [1.0, 0, 0, 0, 0, 0]
    assert collapses([1e-4] * 4 + [1e-3] * 2, sgd, words=": rungs 1 to 3, 4 to 5 of chain 0")
    assert collapses([1e-4, 1.01e-4, 1.02e-4, 1.03e-4, 9.9e-4, 1e-3], sgd)
    assert not collapses(list(np.geomspace(1e-4, 1e-3, 6)), sgd)
    assert not collapses([1e-4, 2e-4, 2.01e-4, 3e-4, 5e-4, 1e-3], sgd)  # one pair of five
    assert not collapses([0.1] * 6, list(np.geomspace(1, 10, 6)))
    assert collapses([0.1] * 6, [1.0, 1.001, 1.002, 9.99, 9.999, 10.0])
    assert not collapses([0.1] * 6, [1.0, 2.0, 4.0, 8.0, 16.0, np.inf])  # the prior at the end
    assert not collapses([0.1] * 6, [1.0] * 6)  # both ends are the same: as it was given


DATA = jnp.zeros((100, 2))


@pytest.mark.parametrize(
    ("batches", "unknown"),
    [
        (NoBatches(), False),
        (as_batches(DATA, 100), False),
        (as_batches(DATA, 10), True),
        (as_batches(lambda step: DATA, None), True),
        (EpochBatches(DATA, 10), True),
    ],
)
def test_the_deterministic_rule_is_a_warning_of_its_own_with_mini_batches(
    good, batches: Any, unknown: bool
) -> None:
    metadata = changed(good.metadata, batches=batches.describe(), rule="deterministic")
    sentence = "t is not known that the deterministic rule samples the posterior"
    assert says(with_properties(good, metadata=metadata), sentence)
    assert (
        says(with_properties(good, metadata=metadata), f"With mini-batches i{sentence}") == unknown
    )
    optimised = with_properties(good, metadata=metadata, temperatures=np.zeros((4, 3)))
    assert not says(optimised, sentence)
    training = changed(metadata, kind="train")
    assert not says(with_properties(good, metadata=training), sentence)
    exact = changed(metadata, rule="bias_corrected")
    assert not says(with_properties(good, metadata=exact), sentence)


def test_a_rung_of_infinite_temperature_stands_still(good) -> None:
    history = good.history
    rungs = np.broadcast_to([1.0, 4.0, np.inf], history["temperature"].shape).copy()
    metadata = changed(good.metadata, adapts="temperature")
    adapted = with_properties(good, history={**history, "temperature": rungs}, metadata=metadata)
    assert diagnostics.ladder_moved(adapted) == 0
    rungs[2, -1, 1] = 5.0
    assert diagnostics.ladder_moved(adapted) == 0.25


def test_a_start_from_one_point_is_told_beside_the_rhat_over_replicas(good) -> None:
    assert good.metadata.resolved.one_start
    assert "started at one point" in str(good.summary())
    metadata = changed(good.metadata, one_start=False)
    assert "started at one point" not in str(with_properties(good, metadata=metadata).summary())


# Energies and steps


def bowl(x: Any) -> Any:
    return jnp.sum(x**2) / 2


def run(energy: Any, num_steps: int, hottest: float, **options: Any) -> rx.Posterior:
    defaults = {"num_chains": 4, "num_replicas": 4, "rule": "metropolis", "window": 1}
    defaults |= {"learning_rate": 0.3, "temperature": (1.0, hottest)}
    return rx.sample(energy, jnp.zeros(3), num_steps=num_steps, **in_method(defaults | options))


@pytest.fixture(scope="module")
def settled() -> rx.Posterior:
    return run(bowl, num_steps=3_000, hottest=40.0, burn_in=200)


def test_a_settled_run_has_no_problem(settled: rx.Posterior) -> None:
    assert settled.problems() == []


# Energies that fall


def test_a_sign_error_is_found() -> None:
    with pytest.warns(UserWarning, match="falls through the whole run.*minus the log density"):
        posterior = run(lambda x: -jnp.sum(jnp.sqrt(1 + x**2)), num_steps=800, hottest=4.0)
    assert posterior.result.code == "finished"


def with_energies(settled: rx.Posterior, course: Any, seed: int = 0) -> rx.Posterior:
    """Cold energies around `course`, a function of the time in [0, 1]."""
    shape = settled.energies.shape
    scatter = np.random.default_rng(seed).standard_normal(shape)
    return with_properties(settled, energies=scatter + course(np.linspace(0, 1, shape[1])))


@pytest.mark.parametrize(
    "course", [lambda t: -30 * t, lambda t: -np.exp(80 * t), lambda t: -30 * t**3]
)
def test_energies_that_fall_to_the_end_are_found(settled: rx.Posterior, course: Any) -> None:
    assert says(with_energies(settled, course), "falls through the whole run")


@pytest.mark.parametrize(
    "course", [lambda t: 0 * t, lambda t: 100 * np.exp(-20 * t), lambda t: -t, lambda t: 30 * t]
)
def test_energies_that_come_to_rest_are_not(settled: rx.Posterior, course: Any) -> None:
    assert not says(with_energies(settled, course), "falls through the whole run")


def test_what_was_finite_before_a_nan_is_looked_at(settled: rx.Posterior) -> None:
    energies = with_energies(settled, lambda t: -30 * t).energies.copy()
    energies[1, -3:], energies[2, -1] = -np.inf, np.nan
    assert says(with_properties(settled, energies=energies), "falls through the whole run")


# Energies whose differences are rounded away


def test_an_energy_with_a_large_constant_is_found_and_right_in_double_precision() -> None:
    """Near 4e7, float32 has every fourth whole number."""

    def wide(x: Any) -> Any:
        return x**2 / 2 + 4e7

    plain = rx.posterior(jumps=0)
    with pytest.warns(UserWarning, match="about 4e[+]07, where .* float32 are 4 apart"):
        posterior = rx.sample(wide, 0.0, num_steps=3_000, num_chains=4, method=plain)
    assert posterior.draws.std() > 1.1  # and that is what it does: the truth is 1
    with jax.enable_x64(True):
        posterior = rx.sample(wide, 0.0, num_steps=3_000, num_chains=4, method=plain)
    assert posterior.draws.std() == pytest.approx(1.0, abs=0.05)
    assert not says(posterior, "Energies are about")


# The hottest rung


def test_a_hottest_rung_without_finite_mass_is_found() -> None:
    with pytest.warns(UserWarning, match="The hottest rung runs away"):
        run(lambda x: 1.5 * jnp.sum(jnp.log1p(x**2)), num_steps=6_000, hottest=40.0, burn_in=200)


def with_history(settled: rx.Posterior, **shifts: Any) -> rx.Posterior:
    """All rungs with independent energies of the cold rung's law, shifted by (point, rung)."""
    history = settled.history
    rng = np.random.default_rng(shifts.get("seed", 0))
    energy = rng.gamma(1.5, size=history["energy"].shape) + shifts["by"]
    return with_properties(settled, history={**history, "energy": energy})


def ramp(settled: rx.Posterior, rise: float) -> np.ndarray:
    """A rise of the hottest rung  (point, rung)."""
    num_points = len(settled.history["step"])
    return np.linspace(0, rise, num_points)[:, None] * np.array([0, 0, 0, 1.0])


def test_a_rise_must_be_larger_than_noise(settled: rx.Posterior) -> None:
    found = [
        says(with_history(settled, by=ramp(settled, rise), seed=seed), "runs away")
        for rise in (0.0, -5.0, 5.0)
        for seed in range(20)
    ]
    assert found == [False] * 40 + [True] * 20


# Rungs colder than the target


def test_rungs_of_sgd_that_are_colder_than_the_target_are_found() -> None:
    paper = {"rule": "deterministic", "temperature": 1.0, "learning_rate": (0.02, 0.2)}
    with pytest.warns(UserWarning, match=r"Rung \d has a lower mean energy than the target's"):
        posterior = run(bowl, num_steps=3_000, hottest=1.0, burn_in=200, window=None, **paper)
    assert posterior.draws.std() < 0.9  # and that is what it does: the truth is 1
    assert any("The ladder has collapsed" in sentence for sentence in posterior.problems())


def test_a_colder_rung_must_be_certain_and_matter(settled: rx.Posterior) -> None:
    at = np.array([0, 0, 1.0, 0])
    for seed in range(20):
        assert not says(with_history(settled, by=0.0, seed=seed), "lower mean energy")
        assert not says(with_history(settled, by=5 * at, seed=seed), "lower mean energy")
        assert says(with_history(settled, by=-1.5 * at, seed=seed), "Rung 2 has a lower mean")
    few = settled.history["energy"].shape[1]
    exact = np.zeros((4, few, 4)) - 0.1 * at + 1e-6 * np.random.default_rng(0).normal(size=(few, 1))
    history = {**settled.history, "energy": exact}
    assert not says(
        with_properties(settled, history=history), "lower mean energy"
    )  # 0.1 of 1.5: too small


def test_batch_means_know_about_correlation() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((200, 2, 500))
    for draw in range(1, 500):
        noise[:, :, draw] = 0.8 * noise[:, :, draw - 1] + 0.6 * noise[:, :, draw]
    means, errors = zip(*(mean_and_error(values) for values in noise), strict=True)
    # The closed form is sqrt((1 + 0.8) / (1 - 0.8) / 1000) = 0.095; independent draws have 0.032.
    assert np.std(means) == pytest.approx(0.095, rel=0.15)
    assert np.mean(errors) == pytest.approx(0.095, rel=0.15)
    assert mean_and_error(noise[0, :, :9]) == (None, None)


def test_as_many_points_as_batches_are_enough() -> None:
    """Ten points of each of two chains are twenty batches of one."""
    values = np.random.default_rng(0).standard_normal((2, 10))
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(20))
    assert mean_and_error(values[:, :9]) == (None, None)


# Replicas that break, and steps


def test_replicas_that_break_often_are_found() -> None:
    def walled(x: Any) -> Any:
        return jnp.where(jnp.max(jnp.abs(x)) > 5, jnp.nan, bowl(x))

    with pytest.warns(UserWarning, match=r"The energy on rung 3 was not finite in .* of steps"):
        posterior = run(walled, num_steps=400, hottest=20.0, on_nonfinite="restart")
    assert posterior.restart_rate[:, 3].max() > 0.01
    assert posterior.restart_rate[:, 0].max() == 0


def test_acceptance_far_from_its_target_is_found(settled: rx.Posterior) -> None:
    rates = np.full((4, 4), 0.7)
    assert with_properties(settled, acceptance=rates).problems() == []
    for rate, step in ((0.1, "too large"), (1.0, "needlessly small")):
        rates[1, 2] = rate
        found = with_properties(settled, acceptance=rates)
        assert says(found, f"Rung 2 accepts {rate:.0%} of its moves: its step is {step}")
    assert "accepts" in str(found.summary()) and found.summary()["acceptance"][1][2] == 1.0


# Chains whose ladders differ

LADDERS = np.array([[1.0, 2.1, 6.0, np.inf], [1.0, 1.9, 5.0, np.inf]] * 2)


@pytest.fixture(scope="module")
def two_ends() -> rx.Posterior:
    """Chains whose replicas start in one mode of the prior, one of four in the other mode."""
    target = rx.bayesian(
        lambda x, rows: -((x - rows) ** 2) / 2,
        lambda x: jnp.logaddexp(-((x - 40) ** 2) / 2, -((x + 40) ** 2) / 2),
        jnp.array([38.0, 41.0]),
    )
    starts = rx.per_replica(40.0 * jnp.array([[1.0], [1], [-1], [1]]) * jnp.ones(4), by_chain=True)
    method = rx.posterior(temperature=(1.0, np.inf), jumps=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return rx.sample(
            target, starts, num_steps=1_500, num_replicas=4, num_chains=4, method=method
        )


def with_rungs(run: rx.Posterior, energies: np.ndarray, ladders: np.ndarray) -> rx.Posterior:
    return with_properties(
        run, rung_energies=energies, temperatures=ladders, num_draws=energies.shape[1]
    )


def gamma_energies(seed: int, ladders: np.ndarray, num_draws: int, correlation: float) -> Any:
    """Energies of a Gamma law on each rung, with the correlation of an autoregression of draws, as
    sums of six squares  (chain, draw, rung)."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((num_draws, len(ladders), ladders.shape[1], 6))
    for draw in range(1, num_draws):
        noise[draw] *= np.sqrt(1 - correlation)
        noise[draw] += np.sqrt(correlation) * noise[draw - 1]
    squares = np.sum(noise**2, axis=-1) / 2
    return np.moveaxis(squares, 0, 1) / (0.05 + 1 / ladders[:, None, :])


CHAINS, ENERGIES = "Chains differ in their log evidence", "Energies of chain"


def test_chains_in_different_modes_differ_in_their_evidence_and_energies(two_ends) -> None:
    """As they are, and where all rungs of a chain are so far away that each knows its own."""
    assert says(two_ends, "Energies of chain 2 at temperature")
    energies = gamma_energies(0, LADDERS, 500, 0.0)
    energies[2] += 30
    found = with_rungs(two_ends, energies, LADDERS)
    told = [sentence for sentence in found.problems() if CHAINS in sentence]
    assert len(told) == 1 and "Write a function start(key)" in told[0]
    assert found.log_evidence().standard_error > 5
    assert CHAINS in str(found.summary()).replace("\n", " ")
    assert len(found.summary()["log_evidence"]["by_chain"]) == 4


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_chains_that_are_right_do_not_differ(two_ends, correlation: float) -> None:
    """Twenty-five runs, of four chains with two ladders."""
    for seed in range(25):
        energies = gamma_energies(seed, LADDERS, 500, correlation)
        found = with_rungs(two_ends, energies, LADDERS)
        assert not says(found, CHAINS) and not says(found, ENERGIES), seed
        assert abs(found.log_evidence().value - 3 * np.log(0.05 / 1.05)) < 1.0


def with_bridge(run: rx.Posterior, seed: int, withheld: float, num_draws: int = 500) -> Any:
    """Ladders that know all, and draws and proposals without a mode of this share of the mass."""
    rng = np.random.default_rng(seed)
    energies = gamma_energies(seed, LADDERS, num_draws, 0.0)
    x = np.stack([rng.standard_normal((4, num_draws)), 1.2 * rng.standard_normal((4, num_draws))])
    known = 3 * np.log(0.05 / 1.05) + np.log1p(-withheld)
    weights = np.moveaxis(known + np.log(1.2) - x**2 / 2 + (x / 1.2) ** 2 / 2, 0, -1)
    return with_properties(
        run, rung_energies=energies, temperatures=LADDERS, num_draws=num_draws, jump_weights=weights
    )


def test_a_bridge_that_agrees_with_the_ladder_is_the_more_precise_one(two_ends) -> None:
    for seed in range(25):
        found = with_bridge(two_ends, seed, withheld=0.0)
        assert problems._evidences_disagree(found) is None, seed
        assert problems._evidences_differ(found) is None
        ladder, whole = found.log_evidence(by="ladder"), found.log_evidence()
        assert whole == found.log_evidence(by="bridge")
        assert whole.standard_error < ladder.standard_error
        assert abs(whole.value - 3 * np.log(0.05 / 1.05)) < 4 * whole.standard_error
    words = render_log_evidence(_log_evidence(found))
    assert words.startswith(f"{whole.value:.3f} ± {whole.standard_error:.2g} by the bridge (")
    assert f"(by the ladder {ladder.value:.2f} ± {ladder.standard_error:.2g}; by chain" in words


@pytest.mark.parametrize("share", [0.7, 0.9])
def test_a_mode_that_draws_and_mixture_miss_is_told(two_ends, share: float) -> None:
    """The bridge is low by 1.2 or 2.3 nats, with a small error of its own."""
    for seed in range(25):
        found = with_bridge(two_ends, seed, withheld=share)
        ladder, bridge = found.log_evidence(by="ladder"), found.log_evidence(by="bridge")
        assert bridge.standard_error < 0.02
        told = problems._evidences_disagree(found) or ""
        assert "the draws miss a mode" in told and "extend(retune=True)" in told, seed
        value, error = found.log_evidence()
        assert value == ladder.value and error == pytest.approx(ladder.value - bridge.value)
        assert told in found.problems() or seed


def test_a_prior_without_its_constants_is_no_missed_mode(two_ends) -> None:
    """Its bridge is too high, and the ladder, which normalises it, is reported."""
    found = with_bridge(two_ends, 0, -4.0)
    assert problems._evidences_disagree(found) is None
    ladder = found.log_evidence(by="ladder")
    assert found.log_evidence(by="bridge").value > ladder.value + 1
    assert found.log_evidence() == ladder


def test_chains_whose_draws_give_different_evidences_are_told(two_ends) -> None:
    found = with_bridge(two_ends, 0, 0.0)
    weights = found.jump_weights + np.array([0, 0, 0.8, 0])[:, None, None]
    altered = with_properties(found, **properties_of(found, jump_weights=weights))
    assert CHAINS in (problems._evidences_differ(altered) or "")


def properties_of(run: Any, **changes: Any) -> dict[str, Any]:
    names = ("rung_energies", "temperatures", "num_draws", "jump_weights")
    return {name: getattr(run, name) for name in names} | changes


def test_a_bridge_needs_no_prior_on_the_hottest_rung(two_ends) -> None:
    found = with_bridge(two_ends, 0, 0.0)
    short = with_properties(found, **properties_of(found, temperatures=LADDERS.clip(max=9)))
    assert short.log_evidence() == found.log_evidence(by="bridge")
    with pytest.raises(ValueError, match="prior on the hottest rung"):
        short.log_evidence(by="ladder")
    with pytest.raises(ValueError, match="A bridge needs jumps"):
        two_ends.log_evidence(by="bridge")
    with pytest.raises(ValueError, match="one of ladder, bridge"):
        two_ends.log_evidence(by="bridges")


def test_chains_that_differ_on_a_hot_rung_alone_are_told(two_ends) -> None:
    """The coldest rung of all chains has the same energies: no R-hat could tell."""
    for seed in range(25):
        energies = gamma_energies(seed, LADDERS, 500, 0.0)
        energies[3, :, 2] += 12.0
        found = with_rungs(two_ends, energies, LADDERS)
        assert says(found, "Energies of chain 3 at temperature 5 (median"), seed
        assert says(found, CHAINS)


def test_a_difference_of_a_quarter_of_a_standard_deviation_does_not_matter(two_ends) -> None:
    energies = gamma_energies(0, LADDERS, 8_000, 0.0)
    spread = energies[3, :, 2].std()
    for shift, told in ((0.15, False), (0.25, True)):
        moved = energies.copy()
        moved[3, :, 2] += shift * spread
        assert says(with_rungs(two_ends, moved, LADDERS), ENERGIES) == told


def test_energies_are_compared_with_rungs_that_are_as_hot() -> None:
    ladders = np.array([[1.0, 2.0, 4.0], [1.0, 3.0, 4.0 * (1 + 1e-9)], [1.0, 1.0, 9.0]])
    pairs = {one: [] for one in np.ndindex(3, 3)}
    for one, other in problems._as_hot(ladders):
        pairs[one].append(other)
    assert not any(pairs[chain, 0] for chain in range(3)), "R-hat judges the coldest"
    assert pairs[0, 1] == [(1, 1), (2, 2)] and pairs[1, 1] == [(0, 2), (2, 2)]
    assert pairs[0, 2] == [(1, 2), (2, 2)] and pairs[1, 2] == [(0, 2), (2, 2)]
    assert pairs[2, 1] == [(0, 1), (1, 1)] and pairs[2, 2] == []


def test_ladders_of_learning_rates_are_not_compared(two_ends) -> None:
    energies = gamma_energies(0, LADDERS, 500, 0.0)
    energies[3, :, 2] += 12.0
    found = with_rungs(two_ends, energies, LADDERS)
    by_rate = changed(two_ends.metadata, rule="deterministic")
    assert not says(with_properties(found, metadata=by_rate), ENERGIES)
    moving = with_properties(found, metadata=changed(two_ends.metadata, adapts="temperature"))
    history = {**two_ends.history, "temperature": np.cumsum(np.ones((4, 15, 4)), axis=1)}
    assert not says(with_properties(moving, history=history), ENERGIES)
