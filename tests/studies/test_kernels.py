"""The study of kernels on a badly scaled posterior: its quick version, and a mutant."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mutants import flipped_verdict

from replicax import targets
from replicax.algorithm import swap as rules
from studies import kernels, load_study
from studies.shared.runner import reproduce
from studies.shared.study import Scale, Work

STUDY = load_study("kernels")


@pytest.fixture(scope="module")
def summary(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("kernels")
    result = reproduce(STUDY, folder, Scale(quick=True), progress=False)
    for name in ("densities", "bars"):
        assert (folder / f"kernels-{name}.png").stat().st_size > 10_000
    return result


def ours(summary: dict) -> dict:
    return {finding["what"]: finding["ours"] for finding in summary["findings"]}


@pytest.mark.slow
def test_all_kernels_make_round_trips_at_the_target_swap_rate(summary) -> None:
    """The standard deviation over seeds is below 2."""
    numbers = ours(summary)
    for name in ("SGD", "mSGD", "pSGD"):
        assert 10 < numbers[f"trips per 1,000 steps, DEO*-{name}"]["mean"] < 60
    assert numbers["verdicts per step, farthest from the target"] == pytest.approx(0.4, abs=0.02)


@pytest.mark.slow
def test_preconditioning_crosses_the_long_coordinate_and_the_others_do_not(summary) -> None:
    """Eight seeds: standard errors are about 0.03."""
    numbers = ours(summary)
    assert numbers["mode TV, DEO*-pSGD"]["mean"] < 0.3
    assert numbers["mode TV, DEO*-SGD"]["mean"] > 0.28
    assert numbers["mode TV, DEO*-mSGD"]["mean"] > 0.28
    assert all(finding["met"] in (None, True) for finding in summary["findings"])


def measure_small() -> dict[str, np.ndarray]:
    settings = {"kernel": "preconditioned", "seeds": 3, "choosing": 1, "num_steps": 2000}
    work = Work(lambda fraction: None, lambda: False)
    return kernels._measure(settings, (0.03, 12.0), work)


def is_sound(record: dict[str, np.ndarray]) -> bool:
    """Return whether draws are near the modes, with about the right masses."""
    cold = record["draws"].reshape(-1, 2)
    near = np.abs(cold - np.rint(cold)).max(axis=1) < 0.35
    return bool(record["distance"].mean() < 0.45 and near.mean() > 0.8)


def test_a_small_run_is_sound() -> None:
    assert is_sound(measure_small())


@pytest.mark.slow
def test_a_flipped_verdict_is_not_sound(monkeypatch) -> None:
    monkeypatch.setattr(rules, "judge", flipped_verdict)
    assert not is_sound(measure_small())


def test_the_masses_at_both_ends_of_y() -> None:
    masses = targets.mode_masses(np.array([[0.0, 2.0], [1.0, -2.0], [2.0, 0.0], [9.0, 9.0]]))
    assert kernels.far_mass(masses) == pytest.approx(2 / 3)


def test_stretched_modes_are_the_plain_ones_in_other_units() -> None:
    plain, stretched = targets.modes25(), kernels.stretched(targets.modes25())
    position, noise = jnp.array([0.3, -1.7]), jnp.array([0.4, -0.9])
    there = position * jnp.array([1.0, 10.0])
    energy = stretched.energy(there, None, noise)
    assert float(energy) == pytest.approx(float(plain.energy(position, None, noise)), rel=1e-5)
    slope = stretched.gradient(there, None, noise)
    np.testing.assert_allclose(
        slope, plain.gradient(position, None, noise) / np.array([1.0, 10.0]), rtol=1e-5
    )
    exact = kernels.stretched(targets.modes25(noise_std=0.0))
    automatic = jax.grad(lambda x: exact.energy(x, None, noise))(there)
    np.testing.assert_allclose(exact.gradient(there, None, noise), automatic, rtol=1e-4)
