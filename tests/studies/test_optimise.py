"""The study of exactly one swap per window: its quick version, and mutants that it detects."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import slow
from mutants import flipped_verdict, swap_that_never_comes
from scipy.optimize import brentq

import replicax as rx
from replicax.algorithm import kernels
from replicax.algorithm import swap as rules
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import WindowedDEO
from studies import load_study, optimise
from studies.shared.runner import reproduce
from studies.shared.study import Cell, Scale, Work

STUDY = load_study("optimise")


@pytest.fixture(scope="module")
def summary(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("optimise")
    result = reproduce(STUDY, folder, Scale(quick=True), progress=False)
    assert (folder / "optimise-hits.png").stat().st_size > 10_000
    assert "exactly one swap" in (folder / "optimise.md").read_text()
    return result


def probabilities(summary: dict) -> dict[tuple[str, str], float]:
    """At the largest budget, by problem and method."""
    hits = [f for f in summary["findings"] if "hits within" in f["what"]]
    names = [(f["what"].split()[0].strip(","), f["what"].split(", ")[-1]) for f in hits]
    return dict(zip(names, (float(f["ours"].split()[0]) for f in hits), strict=True))


@pytest.mark.slow
def test_every_window_of_every_pair_swaps(summary) -> None:
    rates = [f for f in summary["findings"] if "swaps per window" in f["what"]]
    assert [f["met"] for f in rates] == [True, True]


@pytest.mark.slow
def test_twenty_five_basins_are_few_for_restarts_and_for_exchange(summary) -> None:
    """Binomial standard errors at n = 24 are 0.04 to 0.1."""
    hits = probabilities(summary)
    assert hits["25", "SGD restarts"] >= 0.85
    assert hits["25", "exactly one swap"] >= 0.7
    assert hits["25", "at most one (DEO*)"] >= 0.7


@pytest.mark.slow
def test_many_basins_are_too_many_for_restarts_but_not_for_exchange(summary) -> None:
    hits = probabilities(summary)
    assert hits["Rastrigin", "SGD restarts"] <= 0.1
    assert hits["Rastrigin", "exactly one swap"] >= 0.6
    assert hits["Rastrigin", "at most one (DEO*)"] >= 0.05


@pytest.mark.slow
def test_the_notes_say_where_the_paper_s_hope_is_met_and_where_not(summary) -> None:
    assert any("25 modes" in s and "exactly one minus at most one" in s for s in summary["notes"])
    assert any("luckiest draw" in sentence for sentence in summary["notes"])


def shortened(scale: Scale) -> list[Cell]:
    fewer = {"seeds": 3, "choosing": 1, "budgets": (200, 400)}
    return [Cell(name, settings | fewer) for name, settings in STUDY.cells(scale)]


@pytest.mark.slow
def test_short_runs_leave_numbers_figures_and_a_page(tmp_path) -> None:
    study = replace(STUDY, cells=shortened)
    summary = reproduce(study, tmp_path, Scale(quick=True), progress=False)
    assert len(summary["cells"]) == 6
    page = (tmp_path / "optimise.md").read_text()
    assert "exactly one swap" in page
    for figure in summary["figures"]:
        assert f"({figure})" in page and (tmp_path / figure).stat().st_size > 10_000


def search_small(method: str) -> dict[str, np.ndarray]:
    """Rastrigin with eight chains and 1,000 steps, at a ladder that is right for it."""
    work = Work(lambda fraction: None, lambda: False)
    chosen = optimise.PROBLEMS["rastrigin"].grids[method][0]
    return optimise.search(
        optimise.PROBLEMS["rastrigin"], method, (1000,), work, num_chains=8, **chosen
    )


def is_sound(method: str, record: dict[str, np.ndarray]) -> bool:
    """Return whether the cold rung is cold (hot: near 90), and only "exactly one" always swaps."""
    all_swap = bool(np.all(record["window_swap_rate"] == 1))
    return bool(record["cold_energy"].mean() < 12) and all_swap == (method == "exactly_one")


@pytest.mark.parametrize("method", ["exactly_one", slow("deo_star")])
def test_a_small_search_is_sound(method) -> None:
    assert is_sound(method, search_small(method))


@pytest.mark.parametrize(
    ("module", "name", "mutant", "method"),
    [
        # Where swaps are forced the verdict hardly matters: "exactly one" would not tell.
        slow(rules, "judge", flipped_verdict, "deo_star"),
        slow(WindowedDEO, "swapping_pairs", swap_that_never_comes, "exactly_one"),
    ],
    ids=["flipped_verdict", "swap_that_never_comes"],
)
def test_a_mutant_is_not_sound(module, name, mutant, method, monkeypatch) -> None:
    monkeypatch.setattr(module, name, mutant)
    assert not is_sound(method, search_small(method))


def test_the_point_of_lowest_noisy_energy_is_picked_from_all_rungs_and_steps() -> None:
    points = np.full((2, 3, 4, 2), 3.0)  # (chain, record, rung, dimension)
    energies = np.ones((2, 3, 4))
    points[0, 1, 2], energies[0, 1, 2] = 0.1, -5.0  # in the right basin
    points[0, 0, 0], energies[0, 0, 0] = 2.0, np.nan
    points[1, 2, 3], energies[1, 2, 3] = 1.0, -5.0  # in a wrong one
    points[1, 2, 0], energies[1, 2, 0] = 0.1, -4.0
    record = optimise._lowest(optimise.PROBLEMS["modes25"], points, energies, (3,))
    assert record["picked"].tolist() == [True, False]


def test_annealing_ends_near_the_global_minimum() -> None:
    """The energy of a start is about 100 in the mean, that of a descent from it 90."""
    energy = search_small("annealing_p")["energy"]
    assert energy.shape == (1, 8) and energy.mean() < 12


def test_the_next_lowest_minimum_has_one_coordinate_near_one() -> None:
    """Against the root of the slope along that coordinate."""
    rugged = brentq(lambda x: 2 * x + 3 * np.pi * np.sin(2 * np.pi * x), 0.8, 1.2)
    plain = brentq(lambda x: 0.4 * x + 4 * np.pi * np.sin(2 * np.pi * x), 0.8, 1.2)
    expected = {
        "rastrigin": rugged**2 + 1.5 * (1 - np.cos(2 * np.pi * rugged)),
        "modes25": 0.2 * plain**2 - 2 - 2 * np.cos(2 * np.pi * plain),
    }
    for name, energy in expected.items():
        assert optimise.next_lowest(optimise.PROBLEMS[name]) == pytest.approx(energy, abs=1e-4)


def test_rastrigin_has_its_textbook_values_and_gradient() -> None:
    target = optimise.rastrigin()
    assert float(target.energy(jnp.full(3, 0.5), None, None)) == pytest.approx(3 * 20.25, rel=1e-6)
    assert float(target.energy(jnp.ones(2), None, None)) == pytest.approx(2.0, abs=1e-4)
    energy, gradient = optimise.rastrigin(2.0).evaluate(jnp.array([0.25, 0.0]), None, None)
    assert float(energy) == pytest.approx(0.0625 + 2.0, rel=1e-5)
    np.testing.assert_allclose(gradient, [0.5 + 4 * np.pi, 0.0], rtol=1e-5)


def test_an_annealed_kernel_cools_geometrically_and_then_stays() -> None:
    kernel = kernels.annealed(kernels.sgld(), num_steps=10, learning_rate=0.01, temperature=0.5)
    rung = Ladder(jnp.array(0.5), jnp.array(2.0))
    replica = kernel.init(jnp.array(0.0))
    for step in range(15):
        done = min(step / 10, 1.0)
        rate, temperature = 0.5 * 0.01**done, 2.0 * 0.5**done
        slides, *_ = kernel.step(jnp.array(0.0), replica, lambda x: (x, jnp.ones(())), rung)
        assert float(replica.params - slides.params) == pytest.approx(rate, abs=1e-6)
        shaken, *_ = kernel.step(jnp.array(1.0), replica, lambda x: (x, jnp.zeros(())), rung)
        std = np.sqrt(2 * rate * temperature)
        assert abs(float(shaken.params - replica.params)) == pytest.approx(std, abs=1e-6)
        replica = slides


def test_an_annealed_kernel_is_made_again_from_its_spec() -> None:
    kernel = kernels.annealed(kernels.momentum(0.8), 10, learning_rate=0.1)
    again = kernels.from_spec(kernel.traits.spec)
    assert again.traits.spec == kernel.traits.spec and kernel.traits.spec["kernel"]["decay"] == 0.8
    with pytest.raises(ValueError, match=r"temperature is 0.0; it must lie in \(0, 1\]"):
        kernels.annealed(kernels.sgld(), 10, temperature=0.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_annealed_run_resumes_bit_for_bit(tmp_path) -> None:
    kernel = kernels.annealed(kernels.sgld(), 40, temperature=0.1)
    method = rx.Method("annealing", 0.01, temperature=(1.0, 2.0), kernel=kernel)
    options = dict(num_replicas=2, method=method, seed=3, progress=False)
    target = optimise.rastrigin()
    whole = rx.sample(target, jnp.ones(2), num_steps=40, **options)
    rx.sample(target, jnp.ones(2), num_steps=25, run_dir=tmp_path / "run", **options)
    resumed = rx.resume(tmp_path / "run", target, num_steps=40, progress=False)
    np.testing.assert_array_equal(resumed.draws, whole.draws)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_each_chain_has_its_best_point() -> None:
    target = optimise.rastrigin(2.0)
    posterior = rx.sample(
        target,
        lambda key: jax.random.uniform(key, (2,), maxval=3.0),
        num_steps=200,
        num_replicas=3,
        num_chains=4,
        method=rx.deo_star(0.005, temperature=(0.1, 2.0), rule="metropolis", window=2),
        progress=False,
    )
    points, energies = posterior.best_by_chain
    assert points.shape == (4, 2) and len(set(energies.tolist())) == 4
    np.testing.assert_allclose(optimise.rastrigin_energy(points, 2.0), energies, atol=1e-4)
    assert np.all(energies <= posterior.energies.min(axis=1))
    point, energy = posterior.best
    assert energy == energies.min()
    np.testing.assert_array_equal(point, points[np.argmin(energies)])
