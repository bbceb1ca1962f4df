"""The evidence from energies whose law on every rung is known."""

import numpy as np
import pytest

from replicax.results.evidence import log_evidence, log_ratio

SHAPE, RATE = 3.0, 0.5
EXACT = SHAPE * np.log(RATE / (RATE + 1))
LADDERS = np.array(
    [[1.0, 1.6, 4.0, np.inf], [1.0, 2.5, 9.0, np.inf], [1.0, 1.2, 1.9, np.inf]]
)  # one for each chain


def energies(num_draws: int, seed: int = 0) -> np.ndarray:
    """Energies with the density of states U^(k-1) e^(-cU): a Gamma law of rate c + 1/tau on a rung
    of temperature tau, and the evidence (c / (c + 1))^k  (chain, draw, rung)."""
    rng = np.random.default_rng(seed)
    drawn = rng.gamma(SHAPE, size=(3, num_draws, 4))
    return drawn / (RATE + 1 / LADDERS[:, None, :])


def test_the_evidence_is_the_mean_of_chains_that_each_have_their_own_ladder() -> None:
    found = log_evidence(energies(4000), LADDERS)
    assert found.value == pytest.approx(EXACT, abs=4 * found.standard_error)
    assert found.standard_error < 0.02
    alone = [log_evidence(energies(4000)[[c]], LADDERS[[c]]).value for c in range(3)]
    assert np.ptp(alone) > 1e-4 and found.value == pytest.approx(np.mean(alone))


def test_its_standard_error_is_that_of_blocks_of_draws() -> None:
    """At least 16 in all chains together: six of each of the three."""
    drawn = energies(700)
    blocks = [
        log_evidence(np.concatenate([part] * 20)[None], LADDERS[[chain]]).value
        for chain in range(3)
        for part in np.array_split(drawn[chain], 6)
    ]
    wanted = np.std(blocks, ddof=1) / np.sqrt(18)
    assert log_evidence(drawn, LADDERS).standard_error == pytest.approx(wanted, rel=1e-6)


def test_few_draws_have_no_standard_error() -> None:
    log_evidence(energies(60), LADDERS)
    with pytest.raises(ValueError, match="at least 60 are needed"):
        log_evidence(energies(59), LADDERS)


def test_a_ratio_is_found_where_few_cold_draws_are_near_the_hot_ones() -> None:
    """One cold energy in five is as high as all hot ones: 5 f(t) = f(-t) at t = 10 + x, up to
    exp(-28), so that e^t = 5. By symmetry for one hot energy as low as all cold ones."""
    one_of_five, others = np.array([10.0, -20, -20, -20, -20]), np.full(5, 10.0)
    assert log_ratio(one_of_five, others) == pytest.approx(np.log(5) - 10, abs=1e-6)
    assert log_ratio(-others, -one_of_five) == pytest.approx(10 - np.log(5), abs=1e-6)


def test_a_ratio_of_equal_laws_is_their_mean_energy() -> None:
    """Where all energies on both rungs are u, log Z_cold / Z_hot = -(a - b) u."""
    assert log_ratio(np.full(5, 7.0), np.full(5, 7.0)) == pytest.approx(-7.0)
