"""What a posterior says of its draws."""

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_best_draw_is_the_lowest_finite_one() -> None:
    posterior = rx.sample(
        lambda x: jnp.sum(x**2) / 2, jnp.ones(2), num_steps=30, num_replicas=2, num_chains=3,
        method=rx.deo_star(learning_rate=(0.1, 0.2), buffer=0.1, buffer_gain=0.1), progress=False,
    )  # fmt: skip
    draws, energies = posterior.draws, posterior.energies.copy()
    energies[0, 3], energies[1, 4], energies[2, 5] = np.nan, -np.inf, np.inf
    energies[2, 9] = energies[np.isfinite(energies)].min() - 1
    stored = posterior._records._pending["draws"][0]
    stored["energy"] = np.moveaxis(energies, 1, 0)[:, :, None]
    finite = np.where(np.isfinite(energies), energies, np.inf)
    places = finite.argmin(axis=1)
    points, lowest = posterior.best_by_chain
    np.testing.assert_array_equal(points, draws[np.arange(3), places])
    np.testing.assert_array_equal(lowest, finite.min(axis=1))
    point, energy = posterior.best
    np.testing.assert_array_equal(point, draws[2, 9])
    assert energy == finite.min()


def test_means_rhat_effective_sizes_and_energies_are_those_of_arviz() -> None:
    az = pytest.importorskip("arviz")
    posterior = rx.sample(
        lambda x: jnp.sum((x["a"] - 1) ** 2) / 2 + x["b"] ** 2, {"a": jnp.ones(2), "b": 0.0},
        num_steps=601, num_replicas=3, num_chains=4, burn_in=50, progress=False,
        method=rx.deo(0.3, temperature=(1.0, 4.0), rule="metropolis"),
    )  # fmt: skip
    data, summary = posterior.to_arviz(), posterior.summary()
    energy = np.asarray(data["sample_stats"]["energy"])
    np.testing.assert_array_equal(energy, posterior.energies)
    np.testing.assert_array_equal(np.asarray(data["sample_stats"]["lp"]), -posterior.energies)
    np.testing.assert_allclose(summary["mean_energy"], energy.mean(axis=1), rtol=1e-6)
    draws = {name: np.asarray(data["posterior"][name], float) for name in ("a", "b")}
    theirs = (draws["a"] - 1) ** 2  # the energy of ArviZ's draws, as the target has it
    np.testing.assert_allclose(theirs.sum(axis=2) / 2 + draws["b"] ** 2, energy, rtol=1e-4)
    rows = {"a[0]": draws["a"][:, :, 0], "a[1]": draws["a"][:, :, 1], "b": draws["b"]}
    for name, values in rows.items():
        ours = summary["parameters"][name]
        assert ours["mean"] == pytest.approx(values.mean(), abs=1e-5)
        assert ours["rhat"] == pytest.approx(float(az.rhat(values)), rel=1e-6)
        assert ours["effective_size"] == pytest.approx(float(az.ess(values)), rel=1e-6)
        tail = float(az.ess(values, method="tail", prob=(0.05, 0.95)))
        assert ours["tail_size"] == pytest.approx(tail, rel=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("num_steps", "burn_in"), [(14, 0), (31, 11), (6, 0)])
def test_a_pair_that_always_says_yes_has_the_rate_1(num_steps: int, burn_in: int) -> None:
    """Swaps are attempted at steps 0, 5, 10, ..., whatever the length of the run."""
    seen = []
    posterior = rx.sample(
        lambda x: 0.0 * x.sum(), jnp.zeros(2), num_steps=num_steps, num_replicas=2, burn_in=burn_in,
        method=rx.deo(0.3, temperature=(1.0, 2.0), rule="metropolis", swap_every=5, adapt=False),
        progress=False, callback=lambda progress: seen.append(progress.verdict_rate),
    )  # fmt: skip
    assert posterior.verdict_rate.tolist() == seen[-1].tolist() == [[1.0]]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_expected_trips_count_steps_and_not_attempts() -> None:
    """Lemma 1 where swaps are attempted every fifth step: near what was counted."""
    posterior = rx.sample(
        rx.targets.gaussian(), jnp.zeros(2), num_steps=12_000, num_replicas=4, num_chains=2,
        method=rx.deo(0.3, temperature=(1.0, 8.0), rule="metropolis", swap_every=5, adapt=False),
        burn_in=500, progress=False,
    )  # fmt: skip
    summary = posterior.summary()
    ratio = np.divide(
        summary["round_trips_per_1000_steps"], summary["round_trips_per_1000_steps_expected"]
    )
    assert np.all((ratio > 0.7) & (ratio < 1.3)), ratio
