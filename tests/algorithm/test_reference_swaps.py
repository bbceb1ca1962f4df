"""The oracle by itself: schedules and rules on small cases worked out by hand.

Three particles give pairs 0 and 1. Windows alternate, and the first one belongs to pair 1.
"""

import math
from typing import Any

import numpy as np
import pytest
from scripted_runs import scripted

WINDOW_OF_TWO = [  # energies of particles 0, 1, 2, step by step; who is on rungs 0, 1, 2
    [5, 1, 0],  # pair 1 active, on the rungs 0 1 2: wanted, swaps
    [5, 0, 1],  # pair 1 active, on the rungs 0 2 1: wanted, but its gate is closed
    [0, 2, 1],  # pair 0 active, on the rungs 0 2 1: not wanted
    [1, 2, 0],  # pair 0 active, on the rungs 0 2 1: wanted, swaps
    [1, 0, 3],  # pair 1 active, on the rungs 2 0 1: its gate is open again, wanted, swaps
    [9, 9, 9],  # pair 1 active, on the rungs 2 1 0: not wanted
]


def test_at_most_one_swap_closes_the_gate_until_the_next_window() -> None:
    record = scripted(WINDOW_OF_TWO, window=2)
    assert record.swapped.tolist() == [[0, 1], [0, 0], [0, 0], [1, 0], [0, 1], [0, 0]]
    assert record.gate.tolist() == [[1, 0], [1, 0], [1, 1], [0, 1], [1, 0], [1, 0]]
    after_the_swap = [[0, 2, 1], [0, 2, 1], [0, 2, 1], [1, 2, 0], [2, 1, 0], [2, 1, 0]]
    assert record.rung_of.tolist() == after_the_swap
    # Energies by rung, as they were before the swap; verdicts of both pairs, active or not.
    assert record.energy[:5].tolist() == [[5, 1, 0], [5, 1, 0], [0, 1, 2], [1, 0, 2], [3, 1, 0]]
    assert record.wanted.tolist() == [[1, 1], [1, 1], [0, 0], [1, 0], [1, 1], [0, 0]]


def test_without_a_gate_a_pair_swaps_twice_in_its_window() -> None:
    record = scripted(WINDOW_OF_TWO[:2], window=2, swaps="no_gate")
    assert record.swapped.tolist() == [[0, 1], [0, 1]]
    assert record.rung_of.tolist() == [[0, 2, 1], [0, 1, 2]]
    assert record.gate.all()


def test_exactly_one_swap_is_forced_at_the_end_of_the_window() -> None:
    unwanted = [[0.0, 1.0, 2.0]] * 3
    record = scripted([*unwanted, [9, 9, 9], [9, 8, 9], [9, 9, 9]], window=3, swaps="exactly_one")
    assert not record.wanted[:3].any()
    # Pair 1 is forced at k = 2; pair 0 meets 0 and 2, who never want to, and is forced at k = 5.
    assert record.swapped.tolist() == [[0, 0], [0, 0], [0, 1], [0, 0], [0, 0], [1, 0]]
    assert record.rung_of[-1].tolist() == [1, 2, 0]

    agreed = scripted(WINDOW_OF_TWO, window=2, swaps="exactly_one")
    at_most_one = scripted(WINDOW_OF_TWO, window=2)
    np.testing.assert_array_equal(agreed.swapped, at_most_one.swapped)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("particle", [1, 2])
def test_a_non_finite_energy_never_swaps(bad: float, particle: int) -> None:
    energy = np.array([[0.0, 2.0, 1.0]])
    assert scripted(energy).swapped.tolist() == [[0, 1]]
    energy[0, particle] = bad
    assert not scripted(energy, swaps="exactly_one").swapped.any()
    sure = {"log_uniform": np.full((1, 2), -99.0)}
    metropolis = scripted(energy, sure, rule="metropolis", temperature=[1.0, 2.0, 3.0])
    assert not metropolis.wanted[0, 1]


def test_a_lone_pair_may_be_active_in_every_window() -> None:
    lower_hot = [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    every = scripted(lower_hot, alternate=False)
    assert every.swapped[:, 0].tolist() == [1, 1, 1, 1]
    assert every.rung_of.tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    assert scripted([[1.0, 0.0]] * 4).swapped[:, 0].tolist() == [0, 1, 0, 0]
    with pytest.raises(ValueError, match="two rungs"):
        scripted(WINDOW_OF_TWO, alternate=False)


def test_the_coin_of_seo_chooses_odd_or_even_pairs() -> None:
    odd = {"odd": np.array([True, False])}
    record = scripted([[2.0, 1.0, 0.0]] * 2, odd, schedule="seo")
    assert record.swapped.tolist() == [[1, 0], [0, 1]]
    assert record.rung_of.tolist() == [[1, 0, 2], [2, 0, 1]]


def test_the_buffer_asks_for_a_lower_energy_above() -> None:
    assert scripted([[0.0, 3.0, 1.0]], buffer=1.9).swapped.tolist() == [[0, 1]]
    assert scripted([[0.0, 3.0, 1.0]], buffer=2.0).swapped.tolist() == [[0, 0]]


@pytest.mark.parametrize("log_uniform", [-1e-12, -5.0])
def test_metropolis_always_lets_the_lower_energy_go_down(log_uniform: float) -> None:
    noise = {"log_uniform": np.full((1, 2), log_uniform)}
    tempered = {"rule": "metropolis", "temperature": [1.0, 2.0, 4.0]}
    record = scripted([[0.0, 1.0, 0.9]], noise, **tempered)
    assert record.swapped.tolist() == [[0, 1]]
    # Downhill is certain, uphill is not: pair 0 needs log u < (1 - 1/2)(0 - 1).
    assert record.wanted[0, 0] == (log_uniform < -0.5)


def test_corrections_are_subtracted_in_the_exponent() -> None:
    # dT = 1/2 - 1/4 for pair 1: dT (U_cold - U_hot) = 1/2, dT^2 sigma^2 = 9/16, lambda = 1.
    at = {"temperature": [1.0, 2.0, 4.0], "energy_noise_std": 3.0, "window_correction": 1.0}
    for rule, exponent in {
        "metropolis": 0.5,
        "bias_corrected": 0.5 - 9 / 16,
        "window_corrected": 0.5 - 9 / 16 - 1,
    }.items():
        for shift, verdict in {-1e-9: True, 1e-9: False}.items():
            noise = {"log_uniform": np.full((1, 2), exponent + shift)}
            record = scripted([[0.0, 4.0, 2.0]], noise, rule=rule, **at)
            assert record.wanted[0, 1] == verdict, rule


def test_adj_sweeps_upwards_and_later_attempts_see_earlier_swaps() -> None:
    sure = {"log_uniform": np.zeros((1, 3)), "attempt_log_uniform": np.zeros((1, 3))}
    exact = {"rule": "metropolis", "temperature": [1.0, 2.0, 3.0, 4.0]}
    record = scripted([[3.0, 2.0, 1.0, 0.0]], sure, schedule="adj", **exact)
    # Particle 0, the worst, is carried through to the top by energies that travel with it.
    assert record.swapped.tolist() == [[1, 1, 1]]
    assert record.rung_of.tolist() == [[3, 0, 1, 2]]


def test_ape_follows_its_order_of_pairs() -> None:
    order = np.array([[[0, 2], [1, 2], [0, 1]]])
    sure = {"log_uniform": np.zeros((1, 2)), "attempt_log_uniform": np.zeros((1, 3))}
    exact = {"rule": "metropolis", "temperature": [1.0, 2.0, 3.0]}
    record = scripted([[2.0, 1.0, 0.0]], {"order": order, **sure}, schedule="ape", **exact)
    # 0 and 2 swap: rungs 2 1 0, sorted; nobody else wants to.
    assert record.swapped.tolist() == [[1, 0, 0]]
    assert record.rung_of.tolist() == [[2, 1, 0]]


def test_a_noisy_sweep_draws_its_own_energies() -> None:
    fresh = np.array([[[1.0, 0.0], [0.0, 1.0]]])  # (step, attempt, side): only pair 0 agrees
    record = scripted([[0.0, 1.0, 0.0]], {"attempt_energy": fresh}, schedule="adj")
    assert record.swapped.tolist() == [[1, 0]]
    assert record.wanted.tolist() == [[0, 1]]  # what adaptation sees: the step's own energies


def test_sequential_verdicts_see_earlier_swaps() -> None:
    # Energies 2, 0, 1 of the particles: pair 0 swaps at k = 1. Pair 1 then judges particles 0 and
    # 2 in the sequential reading, still 1 and 2 in the simultaneous one.
    settings: dict[str, Any] = {
        "params": np.array([[2.0], [0.0], [1.0]]),
        "energy": lambda params, noise: params[0],
        "schedule": "deo",
    }
    simultaneous = scripted(np.zeros((2, 3)), **settings)
    sequential = scripted(np.zeros((2, 3)), **settings, verdicts="sequential")
    assert simultaneous.swapped.tolist() == sequential.swapped.tolist() == [[0, 0], [1, 0]]
    assert simultaneous.wanted.tolist() == [[1, 0], [1, 0]]
    assert sequential.wanted.tolist() == [[1, 0], [1, 1]]
    with pytest.raises(ValueError, match="sequential"):
        scripted(np.zeros((2, 3)), verdicts="sequential", schedule="seo")
