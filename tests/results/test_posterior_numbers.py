"""The numbers of a posterior and of its summary, from records that are made up."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from made_up_metadata import metadata_of

from replicax import theory
from replicax.results import diagnostics
from replicax.results.posterior import Posterior
from replicax.results.summary import expected_trips, ladder_numbers
from replicax.run.carry import PAIR_COUNTS
from replicax.run.trees import TreeSpec

STEPS, BURN_IN, THIN, EVERY = 100, 40, 20, 5  # draws at steps 40, 60 and 80
FINAL = {
    "step": np.array(STEPS),
    "round_trips": np.array([3, 6]),
    "verdicts": np.array([[6, 3], [12, 9]]),
    "windows": np.array([[4, 0], [5, 8]]),
    "window_swaps": np.array([[2, 0], [5, 2]]),
    "restarts": np.array([[0, 1, 2], [0, 3, 4]]),
    "acceptance": np.array([[30.0, 45.0, 60.0], [6.0, 12.0, 18.0]]),
}
ROWS = np.arange(24.0).reshape(3, 2, 2, 2)  # (draw, chain, rung, parameter)
PAIRS = np.arange(2 * 2 * 3 * 2).reshape(2, 2, 3, 2)  # (point, chain, count, pair)
GROUPS = {
    "draws": {
        "params.x": ROWS,
        "energy": np.array([[[5, 50], [9, 90]], [[2, 20], [8, 80]], [[7, 70], [1, 10]]], float),
        "rung_energy": np.arange(18.0).reshape(3, 2, 3),
    },
    "history": {"pairs": PAIRS, "energy": np.arange(12.0).reshape(2, 2, 3)},
    "steps": {"rung_of": np.arange(12).reshape(2, 2, 3)},
}


def posterior(final: Any = None, **changes: Any) -> Posterior:
    about = {"burn_in": BURN_IN, "thin": THIN, "swap_every": EVERY, "window": 4, "adjusted": True}
    about |= {"draw_rungs": (0, 2), "counted_from": BURN_IN} | changes
    metadata = metadata_of(params=TreeSpec(("x",), ((2,),), ("float64",), None), **about)
    records: Any = SimpleNamespace(
        metadata=metadata,
        final=FINAL | (final or {}),
        folder=None,
        length=lambda group: 3,
        names=lambda group: list(GROUPS[group]),
        read=lambda group, name: GROUPS[group][name],
    )
    return Posterior(records, like=np.zeros(2))


def test_rates_are_by_counted_steps_attempts_and_windows() -> None:
    """60 of 100 steps count, with 12 attempts to swap; restarts count in all of them."""
    found = posterior()
    assert (found.counted_steps, found.counted_attempts) == (60, 12)
    np.testing.assert_allclose(found.verdict_rate, FINAL["verdicts"] / 12)
    np.testing.assert_allclose(found.window_swap_rate, [[0.5, 0.0], [1.0, 0.25]])
    np.testing.assert_allclose(found.restart_rate, FINAL["restarts"] / 100)
    np.testing.assert_allclose(found.acceptance, FINAL["acceptance"] / 60)
    assert posterior(adjusted=False).acceptance is None


def test_the_barrier_says_how_many_replicas_would_do() -> None:
    """Rejections of 0.5 + 0.75 and of 0 + 0.25: twice the larger, rounded up, and one."""
    found = posterior()
    np.testing.assert_allclose(found.barrier, [1.25, 0.25])
    assert found.replicas_advised == 4
    assert posterior(rule="deterministic").replicas_advised is None


def test_draws_are_those_of_their_rung_and_steps() -> None:
    found = posterior()
    np.testing.assert_array_equal(found.draw_steps, [40, 60, 80])
    np.testing.assert_array_equal(found.draws, np.moveaxis(ROWS[:, :, 0], 0, 1))
    np.testing.assert_array_equal(found.draws_at(2), np.moveaxis(ROWS[:, :, 1], 0, 1))
    np.testing.assert_array_equal(found.energies, [[5, 2, 7], [9, 8, 1]])
    np.testing.assert_array_equal(found.energies_at(2), [[50, 20, 70], [90, 80, 10]])
    assert found.rung_energies.shape == (2, 3, 3) and found.rung_energies[1, 0, 2] == 5
    np.testing.assert_array_equal(found.rung_of[1], [[3, 4, 5], [9, 10, 11]])
    with pytest.raises(ValueError, match=r"Draws of rung 1 were not kept, only of \[0, 2\]"):
        found.draws_at(1)
    point, energy = found.best
    assert energy == 1
    np.testing.assert_array_equal(point, ROWS[2, 1, 0])
    assert list(found.components()) == ["x[0]", "x[1]"]
    np.testing.assert_array_equal(found.components()["x[1]"], ROWS[:, :, 0, 1].T)


def test_histories_have_their_steps_and_counts() -> None:
    history = posterior().history
    np.testing.assert_array_equal(history["step"], [50, 100])
    for row, name in enumerate(PAIR_COUNTS):
        np.testing.assert_array_equal(history[name], np.moveaxis(PAIRS[:, :, row], 0, 1))
    np.testing.assert_array_equal(history["energy"][1], [[3, 4, 5], [9, 10, 11]])


def test_expected_trips_are_those_of_lemma_1_per_step() -> None:
    """A window has 4 attempts, so 20 steps; nothing passes a pair that never swaps."""
    found = expected_trips(posterior())
    assert found is not None and found[0] == 0
    assert found[1] == pytest.approx(1000 * theory.round_trip_rate([0.0, 0.75]) / 20)
    for other in ({"schedule": "seo"}, {"swaps": "no_gate"}, {"alternate": False}):
        assert expected_trips(posterior(**other)) is None


def test_mean_energies_are_by_chain_and_rung_after_burn_in() -> None:
    rungs = FINAL | {"learning_rates": np.ones((2, 3)), "temperatures": np.ones((2, 3))}
    for burn_in, first in ((40, 3.0), (50, 6.0)):
        found = ladder_numbers(posterior(rungs, burn_in=burn_in))["mean_energy_by_rung"]
        assert found == [[first, first + 1, first + 2], [first + 3, first + 4, first + 5]]


def test_round_trips_are_told_per_thousand_counted_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs, chains = np.ones((2, 3)), np.zeros(2)
    more = {"seconds": 1.0, "peak_bytes": 1, "learning_rates": rungs, "temperatures": rungs}
    more |= {"buffer": chains, "window_correction": chains}
    found = posterior(FINAL | more, machine="a machine")
    monkeypatch.setattr(Posterior, "problems", lambda self: [])
    monkeypatch.setattr(Posterior, "components", lambda self: {})
    monkeypatch.setattr(diagnostics, "ladder_moved", lambda posterior: 0.0)
    summary = found.summary()
    assert summary["round_trips"] == [3, 6]
    assert summary["round_trips_per_1000_steps"] == [50.0, 100.0]  # of 60 steps
    assert summary["mean_energy"] == pytest.approx([14 / 3, 6.0])


class Constrained:
    """A target whose parameter x is sampled as log x[0], beside a second number."""

    @staticmethod
    def constrain(x: Any) -> Any:
        assert x.shape == (2,), "of one draw"
        return {"scale": jnp.exp(x[0]), "shift": x[1]}


def test_values_are_those_of_the_user_draw_by_draw() -> None:
    """Of all draws, of the best of each chain, and of the best."""
    found = posterior()
    made = Posterior(found._records, found._like, Constrained())
    cold = np.moveaxis(ROWS[:, :, 0], 0, 1)  # (chain, draw, parameter)
    np.testing.assert_allclose(made.draws["scale"], np.exp(cold[..., 0]), rtol=1e-6)
    np.testing.assert_allclose(made.draws_at(2)["shift"], np.moveaxis(ROWS[:, :, 1, 1], 0, 1))
    best, energies = made.best_by_chain  # draws 1 and 2, as of their energies
    np.testing.assert_array_equal(energies, [2, 1])
    np.testing.assert_allclose(best["shift"], [cold[0, 1, 1], cold[1, 2, 1]])
    point, energy = made.best
    assert energy == 1 and float(point["shift"]) == cold[1, 2, 1]
    np.testing.assert_array_equal(found.best[0], cold[1, 2])
    np.testing.assert_array_equal(found.best_by_chain[0], [cold[0, 1], cold[1, 2]])
    assert list(made.components()) == ["scale", "shift"]
    np.testing.assert_allclose(made.components(["shift"])["shift"], cold[..., 1])


def test_the_unit_of_a_sampling_is_that_of_its_energy() -> None:
    assert posterior().energy_scale == posterior().temperature_scale == 1.0
    late = posterior({"step": np.array(BURN_IN)})
    assert (late.counted_steps, late.counted_attempts) == (1, 1), "nothing is divided by 0"
    with pytest.raises(ValueError, match="Draws of rung 1 were not kept, only of .0, 2."):
        posterior().draws_at(1)
    with pytest.raises(ValueError, match="parameters of draws were not kept"):
        _ = posterior(keep_draws=False).draws
    np.testing.assert_array_equal(posterior(keep_draws=False).energies, [[5, 2, 7], [9, 8, 1]])
