"""The bounds beyond which a run is warned about, on posteriors that are made up."""

from types import SimpleNamespace

import numpy as np
import pytest
from made_up_metadata import made_up

from replicax.results import diagnostics, problems
from replicax.run.options import Training


@pytest.mark.parametrize(("rhat", "warns"), [(1.049, False), (1.051, True), (np.nan, False)])
def test_replicas_may_differ_by_an_rhat_of_105(rhat: float, warns: bool, monkeypatch) -> None:
    monkeypatch.setattr(diagnostics, "replica_rhat", lambda *args: {"x": 1.0, "y": rhat})
    found = diagnostics._stuck_replicas(made_up(), {})
    assert (found is not None) == warns and (not warns or "1.051 for y" in found)
    assert diagnostics._stuck_replicas(made_up(about={"schedule": "none"}), {}) is None


@pytest.mark.parametrize(("rhat", "warns"), [(1.0099, False), (1.0101, True), (np.nan, False)])
def test_chains_may_differ_by_an_rhat_of_101(rhat: float, warns: bool) -> None:
    found = diagnostics._chains_differ(made_up(), {"x": 1.0, "y": rhat})
    assert (found is not None) == warns
    assert diagnostics._chains_differ(made_up(num_chains=1), {"y": 1.5}) is None


@pytest.mark.parametrize(
    ("trips", "rhat", "warns"),
    [([5, 0], 1.009, True), ([5, 0], 1.011, False), ([5, 1], 1.009, False)],
)
def test_a_chain_without_a_round_trip_is_told_where_rhat_says_nothing(trips, rhat, warns) -> None:
    found = diagnostics._no_round_trip(made_up(round_trips=np.array(trips)), {"x": rhat})
    assert (found is not None) == warns and (not warns or "chain 1 made no round trip" in found)
    alone = made_up(round_trips=np.array(trips), num_replicas=1)
    assert diagnostics._no_round_trip(alone, {"x": 1.0}) is None


@pytest.mark.parametrize("part", ["bulk", "tail"])
@pytest.mark.parametrize(("size", "warns"), [(199.0, True), (201.0, False)])
def test_a_hundred_effective_draws_a_chain_are_enough(part, size, warns, monkeypatch) -> None:
    for name in ("bulk", "tail"):
        chosen = size if name == part else 1e4
        monkeypatch.setattr(diagnostics, f"{name}_size", lambda values, chosen=chosen: chosen)
    found = diagnostics._few_draws(made_up(), {"x": np.zeros((2, 4))})
    assert (found is not None) == warns
    if warns:
        assert f"of x in its {part if part == 'bulk' else 'tails'} is 100 per chain" in found


@pytest.mark.parametrize(
    ("sizes", "warns"),  # of the lower and the upper tail, of two chains
    [((900.0, 19_000.0), True), ((1_000.0, 19_000.0), False), ((4_100.0, 90_000.0), False)],
)
def test_a_tail_is_sticky_below_a_twentieth_of_the_other(sizes, warns, monkeypatch) -> None:
    monkeypatch.setattr(diagnostics, "tail_sizes", lambda values: sizes)
    found = diagnostics.sticky_tail({"x": np.zeros((2, 4)), "energy": np.zeros((2, 4))})
    assert (found is not None) == warns and (not warns or "lower tail of x" in found)


def test_components_that_are_looked_at_are_evenly_spaced_and_the_energy() -> None:
    names = {f"x[{i}]": np.full((2, 60_000), i) for i in range(30)}
    posterior = made_up(
        num_draws=60_000,
        components=lambda: names,
        energies=np.full((2, 60_000), -1),
        temperatures=np.ones((2, 3)),
    )
    found = diagnostics.checked_components(posterior)
    assert list(found) == [f"x[{i}]" for i in (0, 4, 8, 12, 16, 20, 24, 29)] + ["energy"]
    assert found["energy"][0, 0] == -1
    for changes in ({"temperatures": np.zeros((2, 3))}, {"num_draws": 3}):
        assert not diagnostics.checked_components(SimpleNamespace(**vars(posterior) | changes))


@pytest.mark.parametrize(
    ("rate", "target", "windows", "warns"),
    [
        (0.009, 0.4, 50, True),
        (0.011, 0.4, 50, False),
        (0.009, 0.04, 50, False),  # rare swaps are asked for: a fifth of them is rare
        (0.007, 0.04, 50, True),
        (0.009, 0.4, 9, False),
        (0.009, 0.4, 10, True),
    ],
)
def test_a_pair_blocks_below_one_swap_in_a_hundred_windows(rate, target, windows, warns) -> None:
    rates = np.array([[0.5, 0.4], [0.6, rate]])
    posterior = made_up(
        window_swap_rate=rates,
        num_windows=np.array([[50, 50], [windows, 50]]),
        about={"target_swap_rate": target},
        replicas_advised=7,
    )
    found = problems._rare_swaps(posterior)
    assert (found is not None) == warns
    if warns:
        assert "Pair 1 of chain 1" in found and "num_replicas=7 (this run has 3)" in found


def test_distances_of_rungs_are_those_of_logarithms_either_way() -> None:
    values = np.array([[1.0, np.e, 1.0, 0.0, 2.0, 2.0, np.inf, np.inf]])
    np.testing.assert_allclose(problems._distances(values), [[1, 1, 1, 1, 0, 1, 0]])
    assert problems._runs(np.array([True, True, False, False, True])) == "0 to 2, 4 to 5"


@pytest.mark.parametrize(
    ("share", "warns"),  # of the distance that two pairs of four would have on an even ladder
    [(0.049, True), (0.051, False)],
)
def test_rungs_are_the_same_at_a_twentieth_of_an_even_distance(share: float, warns: bool) -> None:
    distance = np.array([share, 2 - share, share, 2 - share])
    rates = np.exp(np.append(0.0, distance.cumsum()))
    ladder = {"learning_rates": np.tile(rates, (2, 1)), "temperatures": np.ones((2, 5))}
    found = problems._collapsed_ladder(made_up(num_replicas=5, **ladder))
    assert (found is not None) == warns and (not warns or "rungs 0 to 1, 2 to 3" in found)


@pytest.mark.parametrize(("moved", "warns"), [(0.0099, False), (0.0101, True)])
def test_a_ladder_may_move_by_one_percent(moved, warns, monkeypatch) -> None:
    monkeypatch.setattr(diagnostics, "ladder_moved", lambda posterior: moved)
    assert (problems._moving_ladder(made_up()) is not None) == warns
    assert problems._moving_ladder(made_up(about={"rule": "deterministic"})) is None


def test_a_ladder_moves_from_where_it_was_at_burn_in() -> None:
    """Points of history after steps 100, 200, 300 and 400; the greatest change of any rung."""
    rungs = np.array([[[1.0, 9.0], [1.0, 4.0], [1.0, 4.4], [1.0, 4.2]]] * 2)
    rungs[1, :, 1] = 5.0
    history = {"step": np.array([100, 200, 300, 400]), "temperature": rungs}
    for burn_in, moved in ((0, 1 - 4 / 9), (100, 1 - 4 / 9), (101, 0.1), (400, 0.0), (500, 0.0)):
        posterior = made_up(history=history, about={"burn_in": burn_in})
        assert diagnostics.ladder_moved(posterior) == pytest.approx(moved), burn_in
    still = made_up(history=history, about={"adapts": None})
    assert diagnostics.ladder_moved(still) == 0
    run = Training(epochs=5, burn_in=2)
    training = {"kind": "train", "run": run, "steps_per_epoch": 90}
    trained = made_up(history=history, about=training)
    assert diagnostics.ladder_moved(trained) == pytest.approx(0.1), (
        "of networks, two epochs of 90 steps do not count"
    )


@pytest.mark.parametrize(
    ("options", "warns"),
    [
        ({"window": 8}, True),
        ({"window": 8, "rule": "bias_corrected"}, True),
        ({"window": 8, "rule": "window_corrected"}, False),
        ({"window": 8, "swaps": "no_gate"}, False),
        ({"window": 1}, False),
    ],
)
def test_windows_are_told_where_the_rule_is_exact_without_them(options, warns) -> None:
    assert (problems._window_bias(made_up(about=options)) is not None) == warns


def test_what_was_negative_or_ended_early_is_told() -> None:
    rule = {"rule": "deterministic"}
    buffers = {True: np.array([0.1, -0.2]), False: np.array([0.0, 0.2])}
    for warns, buffer in buffers.items():
        found = problems._negative_buffer(made_up(buffer=buffer, about=rule))
        assert (found is not None) == warns
    for code, warns in (("nonfinite", True), ("batches_ended", True), ("stopped", False)):
        result = SimpleNamespace(code=code, sentence="It ended.")
        found = problems._early_end(made_up(result=result))
        assert (found == "It ended.") == warns


@pytest.mark.parametrize(
    ("rates", "words"),
    [
        ([0.9, 0.19, 0.5], "Rung 1 accepts 19% of its moves: its step is too large"),
        ([0.9, 0.21, 0.5], None),
        ([0.5, 0.6, 0.981], "Rung 2 accepts 98% of its moves: its step is needlessly small"),
        ([0.5, 0.6, 0.979], None),
        ([np.nan, np.nan, np.nan], None),
    ],
)
def test_moves_are_accepted_between_20_and_98_percent(rates, words) -> None:
    found = problems._acceptance(made_up(acceptance=np.array([[0.5] * 3, rates])[1:]))
    assert (found is None) if words is None else (words in found)
    assert ("prior proper" in str(found)) == ("needlessly small" in str(words))


@pytest.mark.parametrize(("rate", "warns"), [(0.0099, False), (0.0101, True)])
def test_replicas_may_break_in_one_percent_of_steps(rate: float, warns: bool) -> None:
    rates = np.array([[0.0, 0.001, 0.0], [0.0, 0.0, rate]])
    found = problems._broken_replicas(made_up(restart_rate=rates))
    assert (found is not None) == warns and (not warns or "on rung 2" in found)
    trained = made_up(restart_rate=rates, about={"kind": "train"})
    remedy = "Write a smaller hot end of learning_rate, or method=rx.deo(..., clip_norm=1.0)."
    assert not warns or remedy in str(problems._broken_replicas(trained))


def test_energies_that_are_kept_are_those_after_burn_in_of_all_rungs() -> None:
    energies = np.arange(24.0).reshape(2, 4, 3)
    energies[1, 3, 2] = np.inf
    history = {"step": np.array([100, 200, 300, 400]), "energy": energies}
    kept = problems.kept_energies(made_up(history=history, about={"burn_in": 200}))
    np.testing.assert_array_equal(kept[0], energies[0, 2:])
    assert np.isnan(kept[1, 1, 2])


def test_a_mean_has_the_standard_error_of_batch_means() -> None:
    """Of 47 points the last 40 are used, in ten batches of four of each chain."""
    values = np.random.default_rng(0).normal(size=(2, 47)).cumsum(axis=1)
    batches = values[:, 7:].reshape(20, 4).mean(axis=1)
    mean, error = problems.mean_and_error(values)
    assert mean == pytest.approx(batches.mean())
    assert error == pytest.approx(batches.std(ddof=1) / np.sqrt(20))
    assert problems.mean_and_error(values[:, :9]) == (None, None)


@pytest.mark.parametrize(
    ("energy", "dtype", "adjusted", "hotter", "warns"),
    [
        (8.3e6, "float32", True, 2.0, False),  # 0.5 apart
        (-8.5e6, "float32", True, 2.0, True),  # 1 apart
        (8.5e6, "float64", True, 2.0, False),
        (1.0e7, "float32", False, 2.0, False),  # 1 apart, of which swaps see half
        (2.0e7, "float32", False, 2.0, True),
        (2.0e7, "float32", False, np.inf, True),
        (np.nan, "float32", True, 2.0, False),
    ],
)
def test_energies_are_rounded_where_they_are_too_large(
    energy: float, dtype: str, adjusted: bool, hotter: float, warns: bool
) -> None:
    energies, temperatures = np.full((2, 50), energy, dtype), np.array([[1.0, hotter, np.inf]] * 2)
    for rule, told in (("metropolis", warns), ("deterministic", False)):
        about = {"adjusted": adjusted, "rule": rule}
        posterior = made_up(energies=energies, temperatures=temperatures, about=about)
        assert (problems._rounded_energy(posterior) is not None) == told


def test_energies_fall_where_half_of_the_chains_fall_to_the_end() -> None:
    """A straight line falls as much late as early; an exponential comes to rest."""
    steps = np.arange(800.0)
    line, rest = -steps, 100 * np.exp(-steps / 100)
    level = np.random.default_rng(0).normal(size=800)
    for chains, warns in (
        ((line, line), True),
        ((line, level), True),
        ((line, level, level), False),
        ((rest, rest), False),
        ((line, rest), True),
    ):
        posterior = made_up(energies=np.stack(chains), num_chains=len(chains))
        assert (problems._falling_energy(posterior) is not None) == warns
    fallen = made_up(energies=np.stack([line, line]), about={"kind": "train"})
    assert problems._falling_energy(fallen) is None
