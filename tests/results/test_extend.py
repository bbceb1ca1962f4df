"""`Posterior.extend`: more draws under the same tuning, or a new burn-in."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.run import learning

pytestmark = pytest.mark.filterwarnings("ignore::replicax.errors.RunProblem")


def energy(x):
    return jnp.sum((x**2 - 4) ** 2) / 2


def start(key):
    return 2 * jax.random.normal(key, (2,))


def sample(num_steps: int, **options):
    options = {"burn_in": 210, "method": rx.posterior(jumps=16)} | options
    return rx.sample(
        energy, start, num_steps=num_steps, num_replicas=3, num_chains=2, progress=False, **options
    )


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    return sample(400).draws


@pytest.fixture(scope="module")
def begun():
    return sample(300)


def test_an_extended_run_is_the_longer_one_bit_for_bit(whole, begun) -> None:
    longer = begun.extend(100)
    assert longer.num_steps == 400 and begun.num_steps == 300
    np.testing.assert_array_equal(longer.draws, whole)
    again = begun.extend(50).extend(50)
    np.testing.assert_array_equal(again.draws, whole)
    np.testing.assert_array_equal(again.rung_of.shape, (2, 400, 3))


def test_as_many_steps_as_were_kept_unless_given(begun) -> None:
    assert begun.extend().num_steps == 300 + 90


def test_an_interrupted_burn_in_goes_on(whole) -> None:
    stopped = sample(400, callback=lambda progress: "stop" if progress.step >= 50 else None)
    assert stopped.num_steps < 210
    np.testing.assert_array_equal(stopped.extend(400 - stopped.num_steps).draws, whole)


def test_a_run_in_a_folder_grows_there(whole, tmp_path: Path) -> None:
    run = sample(300, run_dir=tmp_path / "run")
    longer = run.extend(60)
    assert longer.run_dir == run.run_dir
    with pytest.raises(ValueError, match=r"write rx\.load\('.*run', target\)"):
        rx.load(run.run_dir).extend(40)
    np.testing.assert_array_equal(rx.load(run.run_dir, energy).extend(40).draws, whole)
    with pytest.raises(ValueError, match="run_dir of its own"):
        rx.load(run.run_dir, energy).extend(retune=True)


@pytest.mark.slow
def test_a_new_burn_in_has_a_folder_of_its_own(tmp_path: Path) -> None:
    run = sample(300, run_dir=tmp_path / "run")
    tuned = rx.load(run.run_dir, energy).extend(240, retune=True, run_dir=tmp_path / "other")
    assert tuned.run_dir == tmp_path / "other" and rx.load(run.run_dir).num_steps == 300


def test_a_new_burn_in_is_a_third_of_the_steps(begun) -> None:
    seen = []
    retuned = begun.extend(
        240, retune=True, callback=lambda progress: seen.append(progress.metadata.resolved)
    )
    assert retuned.num_steps == 240 and seen[0].burn_in == 80 == retuned.metadata.resolved.burn_in


@pytest.mark.slow
def test_a_new_burn_in_begins_where_the_replicas_are() -> None:
    """Without a search and without steps, rung 0 is where the coldest replica was."""
    plain = sample(300, method=rx.posterior(jumps=0))
    state = plain._records.standing.carry.state
    cold = jax.vmap(lambda points, at: points[at[0]])(state.replicas.params, state.replica_at)
    fixed = rx.posterior(jumps=0, learning_rate=1e-12, adapt=False, schedule="none")
    plain._records.standing = plain._records.standing._replace(
        program=sample(300, method=fixed)._records.standing.program
    )
    still = plain.extend(2, retune=True).draws
    np.testing.assert_allclose(still[:, 0], cold, atol=1e-4)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"num_steps": 0}, "num_steps is 0"),
        ({"retune": "yes"}, "retune is 'yes'"),
        ({"run_dir": "here"}, "run_dir is for retune=True"),
    ],
)
def test_what_cannot_be_extended_is_said(begun, given, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        begun.extend(**given)


def test_a_new_burn_in_searches_where_the_old_mixture_is(begun, monkeypatch) -> None:
    """Replicas may all have left what an earlier search found; and starts are still the user's."""
    seen, search = [], learning.search
    monkeypatch.setattr(learning, "search", lambda *args: seen.append(args) or search(*args))
    begun.extend(150, retune=True)
    centres, points, more = begun._records.final["mixture.mean"], seen[0][1], seen[0][6]
    np.testing.assert_array_equal(points[: begun.jumps["components"]], centres[: len(points)])
    assert more.shape == (256, 2) and 1.5 < more.std() < 2.5
