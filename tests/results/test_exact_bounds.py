"""What stands exactly on a bound gives no warning, and the fewest draws that are enough are enough.

`test_bounds.py` has values on both sides of the bounds.
"""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from made_up_metadata import changed, made_up
from scipy.stats import t

import replicax as rx
from replicax.results import diagnostics, problems, remedies
from replicax.results import gradient_problems as gradients
from replicax.run.storage.metadata import BatchSpec, TreeSpec


def test_a_number_on_its_bound_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_up(round_trips=np.array([5, 0]))
    monkeypatch.setattr(diagnostics, "replica_rhat", lambda *rest: {"x": 1.05})
    assert diagnostics._stuck_replicas(run, {}) is None
    assert diagnostics._chains_differ(run, {"x": 1.01}) is None
    assert diagnostics._no_round_trip(run, {"x": 1.01}) is None
    monkeypatch.setattr(diagnostics, "bulk_size", lambda values: 200.0)
    monkeypatch.setattr(diagnostics, "tail_size", lambda values: 1e4)
    assert diagnostics._few_draws(run, {"x": np.zeros((2, 4))}) is None
    for sizes in ((950.0, 19_000.0), (4_000.0, 90_000.0)):
        monkeypatch.setattr(diagnostics, "tail_sizes", lambda values, sizes=sizes: sizes)
        assert diagnostics.sticky_tail({"x": np.zeros((2, 4))}) is None
    monkeypatch.setattr(diagnostics, "ladder_moved", lambda posterior: 0.01)
    assert "moved by 1%" in str(problems._moving_ladder(made_up()))


def test_problems_of_energies_on_their_bounds() -> None:
    for rates in ([0.2, 0.5, 0.5], [0.5, 0.5, 0.98]):
        assert problems._acceptance(made_up(acceptance=np.array([rates]))) is None
    broken = made_up(restart_rate=np.array([[0.0, 0.0, 0.01]]))
    assert problems._broken_replicas(broken) is None
    settled = made_up(buffer=np.zeros(2), about={"rule": "deterministic"})
    assert problems._negative_buffer(settled) is None


def test_the_tail_that_is_told_is_the_worst_and_the_energy_is_none() -> None:
    values = np.random.default_rng(0).standard_normal((2, 4))

    def told(sizes: dict[str, tuple[float, float]]) -> str | None:
        components = {name: values + number for number, name in enumerate(sizes)}
        known = {float(components[name][0, 0]): pair for name, pair in sizes.items()}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(diagnostics, "tail_sizes", lambda x: known[float(x[0, 0])])
            return diagnostics.sticky_tail(components)

    found = told({"a": (800.0, 38_000.0), "b": (38_000.0, 400.0), "c": (9e3, 9e3)})
    assert "The upper tail of b has an effective size of 200 per chain, the other one 19000" in str(
        found
    )
    assert told({"energy": (1.0, 38_000.0)}) is None


@pytest.mark.parametrize(("count", "enough"), [(3, False), (4, True)])
def test_four_draws_are_enough_to_look_for_round_trips(count: int, enough: bool) -> None:
    run = made_up(round_trips=np.array([5, 0]), num_draws=count)
    assert (diagnostics._no_round_trip(run, {"x": 1.0}) is not None) == enough
    components = {"x": np.zeros((2, count))}
    looked_at = made_up(
        num_draws=count,
        components=lambda: components,
        energies=np.zeros((2, count)),
        temperatures=np.array([[1.0, 2.0, 3.0], [0.0, 2.0, 3.0]]),
    )
    assert bool(diagnostics.checked_components(looked_at)) == enough


def test_at_most_a_hundred_components_are_looked_at() -> None:
    components = {f"x[{i}]": np.zeros((2, 4)) for i in range(300)}
    run = made_up(num_draws=4, components=lambda: components, energies=np.zeros((2, 4)),
                  temperatures=np.ones((2, 3)))  # fmt: skip
    found = diagnostics.checked_components(run)
    assert len(found) == 101 and {"x[0]", "x[299]", "energy"} <= found.keys()


def test_networks_have_no_components_and_are_told_without_any_rhat() -> None:
    run = made_up(round_trips=np.array([0, 0]), about={"kind": "train"})
    assert str(diagnostics._no_round_trip(run, {})).startswith("Chain 0 made no round trip")
    assert diagnostics._no_round_trip(made_up(round_trips=np.array([0, 0])), {}) is None
    assert "Train 11 times" in str(diagnostics._no_round_trip(run, {}))
    run.verdict_rate = np.array([[0.5, 0.0]] * 2)
    assert "Write num_replicas=5" in str(diagnostics._no_round_trip(run, {})), "no hotter end"
    assert diagnostics.checked_components(made_up(temperatures=np.ones((2, 3)), about={
        "kind": "train"})) == {}  # fmt: skip


# Visits


def run_of(paths: np.ndarray, num_steps: int | None = None) -> Any:
    num_chains, length, num_replicas = paths.shape
    return made_up(rung_of=paths, draw_steps=np.arange(length), num_draws=length,
                   num_steps=num_steps or length, num_chains=num_chains,
                   num_replicas=num_replicas)  # fmt: skip


def cold_and(rung: int, visits: int) -> np.ndarray:
    """Replica 0 goes between the coldest rung and another; others stay  (chain, step, replica)."""
    path = np.tile([0, rung], visits)
    rest = [np.where(path == 0, rung, 0) if i == rung else np.full_like(path, i) for i in (1, 2, 3)]
    return np.stack([path, *rest], axis=1)[None]


@pytest.mark.parametrize("rung", [1, 2, 3])
def test_visits_end_on_the_hottest_rung_from_which_replicas_return(rung: int) -> None:
    """The path of three visits never goes above `rung`."""
    visits = diagnostics._find_visits(run_of(cold_and(rung, 3)))
    assert visits is not None
    assert visits.replica.tolist() == [0] * 3 + [rung] * 3
    assert diagnostics._find_visits(run_of(cold_and(rung, 2))) is None


@pytest.mark.parametrize("highest", [2, 3])
def test_visits_end_on_the_highest_of_the_rungs_that_give_enough(highest: int) -> None:
    """Every other way up of the only replica that is drawn ends on rung 1, which ends no visit."""
    path = np.tile([0, 1, 0, highest], 3)
    rest = [np.where(path == 0, 1, 0), np.where(path == highest, 1, 2), np.full_like(path, 3)]
    run = run_of(np.stack([path, *rest], axis=1)[None])
    run.draw_steps, run.num_draws = np.arange(0, 12, 2), 6
    visits = diagnostics._find_visits(run)
    assert visits is not None and visits.of_draw.tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(("length", "enough"), [(3, False), (4, True)])
def test_four_draws_may_be_four_visits(length: int, enough: bool) -> None:
    """All draws are those of one replica, which is hot between them."""
    path = np.tile([0, 1], 4)[: 2 * length]
    run = run_of(np.stack([path, 1 - path], axis=1)[None])
    run.draw_steps, run.num_draws = np.arange(0, 2 * length, 2), length
    assert (diagnostics._find_visits(run) is not None) == enough


def test_runs_that_are_too_long_are_not_followed() -> None:
    paths = cold_and(1, 20)
    assert diagnostics._find_visits(run_of(paths, 2**26)) is not None  # of four replicas
    assert diagnostics._find_visits(run_of(paths, 2**26 + 1)) is None
    alone = run_of(paths[:, :, :1] * 0)
    assert diagnostics._find_visits(alone) is None


@pytest.mark.parametrize(("count", "chance"), [(1, 5e-4), (2, 2.5e-4), (5, 1e-4)])
def test_one_false_alarm_in_a_thousand_runs_over_all_components_and_both_ranks(
    count: int, chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = []
    monkeypatch.setattr(diagnostics, "_rhat_of", lambda values, visits, p: told.append(p) or 1.0)
    components = {f"x[{i}]": np.zeros((1, 40)) for i in range(count)}
    assert diagnostics.replica_rhat(run_of(cold_and(1, 20)), components) == dict.fromkeys(
        components, 1.0
    )
    assert told == pytest.approx([chance] * count)
    assert diagnostics.replica_rhat(run_of(cold_and(1, 20)), {}) == {}


# Courses of energies


def hottest(values: np.ndarray, kind: str = "sample", **known: Any) -> Any:
    """A run whose hottest rung has these energies (chain, point)."""
    energies = np.stack([np.zeros_like(values), np.zeros_like(values), values], axis=2)
    history = {"step": np.arange(1, values.shape[1] + 1), "energy": energies}
    return made_up(history=history, about={"kind": kind}, **known)


@pytest.mark.parametrize(("points", "enough"), [(11, False), (12, True)])
def test_a_rise_is_seen_in_twelve_points(points: int, enough: bool) -> None:
    """A straight line of twenty chains: normal scores of the thirds differ by about 2."""
    rising = np.tile(np.arange(float(points)), (20, 1)) + np.linspace(0, 0.5, 20)[:, None]
    assert (problems._runaway_rung(hottest(rising)) is not None) == enough
    assert problems._runaway_rung(hottest(rising, num_replicas=1)) is None
    assert problems._runaway_rung(hottest(-rising)) is None
    assert problems._runaway_rung(hottest(rising, "train")) is None


def test_a_rise_is_that_from_the_first_to_the_last_third() -> None:
    """Two levels: of normal scores they differ by 2 E|z| = 1.596, in the thirds of a run."""
    step = np.random.default_rng(0).standard_normal((4, 300))
    for begins, warns in ((100, True), (150, True), (299, False)):
        course = step + 100.0 * (np.arange(300) >= begins)
        assert (problems._runaway_rung(hottest(course)) is not None) == warns


@pytest.mark.parametrize(("points", "enough"), [(31, False), (32, True)])
def test_a_fall_is_seen_in_thirty_two_draws_of_any_size(points: int, enough: bool) -> None:
    for unit in (1.0, 1e-6, 1e200):
        falling = -unit * np.tile(np.arange(float(points)), (2, 1))
        found = problems._falling_energy(made_up(energies=falling))
        assert (found is not None) == enough, unit


def test_a_rung_is_colder_beyond_a_twentieth_of_its_degrees_of_freedom() -> None:
    """Two parameters at temperature 1 have a mean energy of 1 in a Gaussian: a tenth of that."""
    noise = 1e-3 * np.random.default_rng(0).standard_normal((2, 400, 3))
    for drop, warns in ((0.09, False), (0.11, True)):
        energies = noise + np.array([0.0, 1.0, -drop])
        history = {"step": np.arange(1, 401), "energy": energies}
        run = made_up(history=history, temperatures=np.array([[1.0, 2.0, 4.0]] * 2))
        found = problems._colder_rungs(run)
        assert (found is not None) == warns and (not warns or "Rung 2 has a lower" in str(found))


# Ladders


def test_a_third_of_the_pairs_may_be_equal() -> None:
    rates = np.array([[1.0, 1.0, 2.0, 4.0]] * 2)
    ladder = {"learning_rates": rates, "temperatures": np.ones((2, 4)), "num_replicas": 4}
    assert problems._collapsed_ladder(made_up(**ladder)) is None
    ladder["learning_rates"] = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 4.0]])
    assert "rungs 0 to 2 of chain 1" in str(problems._collapsed_ladder(made_up(**ladder)))
    ladder["learning_rates"] = np.ones((2, 4))
    assert problems._collapsed_ladder(made_up(**ladder)) is None, "no ladder at all"


@pytest.mark.parametrize(("has", "advised", "told"), [(3, None, 5), (3, 9, 9), (20, 20, 30)])
def test_more_replicas_are_advised_than_there_are(has: int, advised: int | None, told: int) -> None:
    run = made_up(num_replicas=has, replicas_advised=advised)
    assert remedies.more_replicas(run) == f"Write num_replicas={told} (this run has {has})."


def test_remedies_have_numbers() -> None:
    run = made_up(num_steps=600, about={"burn_in": 200}, sweeps=None)
    assert remedies.longer(run, 2.0) == "Write posterior.extend(480)."
    assert remedies.longer(run, np.nan) == remedies.longer(run, 2.0)
    assert remedies.longer(run, 1e9) == "Write posterior.extend(8_400)."  # 22 times as many
    assert "a burn-in of 400 steps where this run had 200" in remedies.retuning(run)
    swept = made_up(num_steps=12, about={"burn_in": 8}, sweeps={"rows": 1_000_000})
    assert remedies.retuning(swept).endswith("and num_steps=10_000.")
    trained = made_up(num_steps=600, about={"kind": "train"})
    assert remedies.longer(trained, 2.0) == "Train 2.2 times as many epochs."
    given = made_up(about={"temperature": (1.0, 4.0)}, temperatures=np.array([[1.0, 2.0, 4.0]]))
    assert remedies.hotter(given) == "Write a higher temperature in the method: (1, 12), now 4."
    tuned = made_up(about={"temperature": "auto"}, temperatures=np.array([[1.0, 2.0, 4.0]]))
    assert remedies.hotter(tuned) == remedies.more_replicas(tuned)


def test_who_has_a_bayesian_is_not_told_to_use_it() -> None:
    """Nor is anybody told of replicas who needs none."""
    rising = np.tile(np.arange(30.0), (20, 1)) + np.linspace(0, 0.5, 20)[:, None]
    for tempers, told in ((False, True), (True, False)):
        run = hottest(rising, restart_rate=np.array([[0.0, 0.0, 0.5]]))
        run.metadata = changed(run.metadata, tempers_likelihood=tempers)
        for check in (problems._runaway_rung, problems._broken_replicas):
            assert ("rx.bayesian" in str(check(run))) == told


# Gradients


def test_draws_that_are_checked_are_evenly_spaced_in_all_chains() -> None:
    leaves = [np.arange(60.0).reshape(3, 20), np.arange(120.0).reshape(3, 20, 2) + 100]
    found = gradients._spaced(leaves, 12)
    assert found.shape == (3, 4, 3)
    np.testing.assert_array_equal(found[1, :, 0], [20, 26, 32, 39])
    np.testing.assert_array_equal(found[2, -1], [59, 218, 219])
    assert gradients._spaced(leaves, 10**6).shape == (3, 20, 3)
    long = [np.zeros((2, 4000))]
    assert gradients._spaced(long, 10**6).shape == (2, 500, 1), "a thousand of all chains"


def test_a_centre_is_the_mean_of_the_other_chains() -> None:
    draws = np.array([[[1.0], [3.0]], [[5.0], [7.0]], [[0.0], [2.0]]])
    np.testing.assert_allclose(gradients._centres(draws)[:, 0, 0], [3.5, 1.5, 4.0])
    np.testing.assert_allclose(gradients._centres(draws[:1])[:, 0, 0], [2.0])


def test_steps_are_as_long_as_a_difference_of_draws_and_then_twice_their_spread() -> None:
    """Differences of independent draws of variance s^2 have variance 2 s^2; those of a slow path
    are a tenth as long as it is wide."""
    scale = np.repeat([1e-3, 5.0], 200)
    draws = scale * np.random.default_rng(0).standard_normal((4, 200, 400))
    slow = scale * np.repeat(np.random.default_rng(1).standard_normal((4, 20, 400)), 10, axis=1)
    slow += 0.1 * draws
    for values, near in ((draws, 1.0), (slow, 0.1)):
        starts, steps = gradients._steps([values], 8)
        assert starts.shape == steps.shape == (24 + 8, 400)
        lengths = np.sqrt(np.mean((steps / scale) ** 2, axis=1))
        assert np.median(lengths[:24]) == pytest.approx(near, rel=0.15)
        assert np.median(lengths[24:]) == pytest.approx(2 * np.std(values / scale), rel=0.05)
        assert all(np.any(np.all(start == values, axis=-1)) for start in starts)


@pytest.mark.parametrize(("excess", "one", "warns"), [
    (0.09, 0.0, False), (0.11, 0.0, True), (0.0, 0.19, False), (0.0, 0.21, True),
])  # fmt: skip
def test_all_parameters_may_be_a_tenth_too_hot_and_one_a_fifth(excess, one, warns) -> None:
    """Of twenty parameters, whose gradients are those of Gaussians: the identity is exact up to a
    mean of squares, which is made 1 here."""
    draws = np.random.default_rng(0).standard_normal((4, 500, 20))
    draws -= draws.mean(axis=1, keepdims=True)
    slopes = draws / (draws**2).mean(axis=(0, 1))
    slopes *= 1 + excess
    slopes[..., 7] *= 1 + one
    found = gradients._temperature(draws, slopes)
    assert (found is not None) == warns
    if warns:
        assert f"is {1 + max(excess, one):.2f} and not 1" in str(found)


def draws_of(target: Any, temperature: float = 1.0, **about: Any) -> Any:
    kinds = {"batches": BatchSpec("none")} | about
    return made_up(_target=target, temperatures=np.array([[temperature, 9.0]] * 2), about=kinds)


def bowl(x: Any) -> Any:
    return jnp.sum(x**2)


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_density_of_the_coldest_rung_is_that_at_its_temperature(temperature: float) -> None:
    """Of a posterior the likelihood alone is tempered; energies of all of its rows are read."""
    x = jnp.array([1.0, 2.0])
    density, num_rows = gradients._log_density(draws_of(bowl, temperature))
    assert density is not None and num_rows == 1
    assert float(density(x)) == pytest.approx(-5 / temperature)
    rows = np.array([1.0, 2.0, 4.0], np.float32)
    target = rx.bayesian(lambda x, row: -row * x[0], lambda x: -(x[1] ** 2), rows)
    density, num_rows = gradients._log_density(draws_of(target, temperature))
    assert density is not None and num_rows == 3
    assert float(density(x)) == pytest.approx(-7 / temperature - 4)


@pytest.mark.parametrize(
    "about",
    [{"kind": "train"}, {"rule": "deterministic"}, {"batches": BatchSpec("arrays", 5, 2)}],
)
def test_a_density_that_is_not_known_exactly_is_none(about: dict[str, Any]) -> None:
    assert gradients._log_density(draws_of(bowl))[0] is not None
    assert gradients._log_density(draws_of(bowl, **about)) == (None, 0)
    assert gradients._log_density(draws_of(bowl, 0.0)) == (None, 0)
    other = rx.Target(bowl, prior=bowl), rx.Target(bowl, gradient=jax.grad(bowl))
    for target in (None, lambda x, batch, key: bowl(x), *other):
        assert gradients._log_density(draws_of(target)) == (None, 0)


@pytest.mark.parametrize(
    ("num_draws", "size", "keep_draws", "can"),
    [(20, 10_000, True, True), (19, 2, True, False), (20, 10_001, True, False),
     (20, 2, False, False)],
)  # fmt: skip
def test_twenty_draws_of_ten_thousand_numbers_are_evaluated(
    num_draws: int, size: int, keep_draws: bool, can: bool
) -> None:
    params = TreeSpec(
        ("a", "b"), ((size - 1,), ()), ("float32",) * 2, {"list": [{"leaf": 0}, {"leaf": 1}]}
    )
    run = made_up(num_draws=num_draws, about={"params": params, "keep_draws": keep_draws})
    assert gradients._can_evaluate(run) == can


@pytest.mark.parametrize("place", [0.01, 0.5, 0.99])
def test_a_jump_is_found_wherever_it_is_on_a_way(place: float) -> None:
    """Between the first two places, in the middle and between the last two."""

    def energy(x: Any) -> Any:
        return jnp.sum(x**2) / 2 + 5.0 * (x[0] > 1)

    steps = np.float32([[2.0, 0.5], [-2.0, 1.0], [1.0, 0.0]])
    starts = np.float32([1.0, 0.3]) - place * steps * np.float32([1, 0])
    ways = starts[:, None] + gradients._PLACES[:, None].astype(np.float32) * steps[:, None]
    energies, slopes = gradients._evaluate(energy, ways)[0]
    rest = gradients._unexplained(energies, slopes, steps)
    np.testing.assert_allclose(np.abs(rest), 5.0, atol=1e-3)
    found = gradients._find_jumps(energy, ways, energies, rest)
    assert found is not None and len(found.size) == 3
    np.testing.assert_allclose(found.before[:, 0], 1.0, atol=1e-5)
    np.testing.assert_allclose(found.size, 5.0, atol=1e-3)
    assert found.crossed.tolist() == [[True, False]] * 3


def test_noise_is_taken_for_a_difference_once_in_ten_thousand_checks() -> None:
    """By Student's t, with one degree of freedom less than there are batches."""
    for num_chains, count in ((1, 1), (2, 5)):
        found = problems.certainty(np.zeros((num_chains, 100)), count)
        assert 2 * t.sf(found, 10 * num_chains - 1) == pytest.approx(2e-4 / count)


def test_an_energy_that_is_not_finite_in_one_chain_ends_the_fall_of_all() -> None:
    """What was before it is looked at in both chains, of which one falls."""
    falling = np.stack([-np.arange(80.0), np.zeros(80)])
    falling[0, 40:] = np.nan
    assert problems._falling_energy(made_up(energies=falling)) is not None
    falling[1, 20] = np.inf
    assert problems._falling_energy(made_up(energies=falling)) is None, "twenty are too few"


@pytest.mark.parametrize(("shift", "warns"), [(0.2, False), (0.45, True)])
def test_chains_may_differ_by_a_third_of_the_spread_of_energies(
    shift: float, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a rung that is as hot in both; where the two chains happen to agree says nothing."""
    energies = np.random.default_rng(0).standard_normal((2, 2000, 2))
    energies[0, :, 1] += shift
    energies[:, :2] = 0.0
    monkeypatch.setattr(diagnostics, "ladder_moved", lambda posterior: 0.0)
    run = made_up(
        temperatures=np.array([[1.0, 2.0]] * 2),
        rung_energies=energies,
        _records=SimpleNamespace(names=lambda group: ["rung_energy"]),
    )
    found = problems._energies_differ(run)
    assert (found is not None) == warns
    if warns:
        assert "Energies of chain 0 at temperature 2" in str(found)
        assert "above those of chain 1 at temperature 2" in str(found)
