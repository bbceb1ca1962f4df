"""Broken replicas begin again from a colder neighbour; a coldest one that breaks ends the run."""

import itertools
from typing import Any

import chunks
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import chunks_of, quick_jit, slow
from single_steps import FROZEN, steep, step_and_state, with_state

import replicax as rx
from replicax.algorithm import kernels, move
from replicax.algorithm.kernels import Replica
from replicax.algorithm.schedule import Schedule, WindowedDEO, deo, windowed_deo


def test_a_broken_replica_takes_all_of_its_nearest_sound_colder_neighbour() -> None:
    replica_at = np.array([2, 0, 4, 1, 3])
    ids = np.arange(5.0)
    tree = (
        Replica({"w": ids[:, None] * np.ones(3)}, optax.TraceState({"w": 10 + ids})),
        {"var": 20 + ids, "count": np.arange(5)},
    )
    tree = jax.tree.map(jnp.asarray, tree)
    restart = jax.jit(lambda broken: move.restart_broken(tree, broken, jnp.array(replica_at)))
    for broken in itertools.product((False, True), repeat=5):
        source_of = np.arange(5)
        for rung in range(5):
            colder = [replica_at[r] for r in range(rung) if not broken[replica_at[r]]]
            if broken[replica_at[rung]] and colder:
                source_of[replica_at[rung]] = colder[-1]
        found = restart(jnp.array(broken))
        jax.tree.map(
            lambda one, leaf, source=source_of: np.testing.assert_array_equal(one, leaf[source]),
            found,
            tree,
        )


def test_a_broken_coldest_rung_copies_nothing() -> None:
    tree = (jnp.array([5.0, jnp.nan, jnp.nan]), jnp.array([0, 1, 2]))
    broken, replica_at = jnp.array([False, True, True]), jnp.array([1, 2, 0])
    jax.tree.map(
        np.testing.assert_array_equal, move.restart_broken(tree, broken, replica_at), tree
    )  # rungs 0 and 1 are broken, rung 2 is sound and hotter


@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_energies_and_parameters_are_looked_at(bad: float) -> None:
    params = {"a": jnp.ones((4, 2)).at[1, 1].set(bad), "b": jnp.ones(4).at[2].set(bad)}
    energy = jnp.ones(4).at[3].set(bad)
    broken = move.find_broken(Replica(params, None), energy)
    assert broken.tolist() == [False, True, True, True]


def test_counts_and_keys_of_a_state_are_not_looked_at() -> None:
    state = {"key": jax.random.split(jax.random.key(0), 2), "count": jnp.array([3, 4])}
    params = {"a": jnp.ones((2, 3)).at[1, 0].set(jnp.nan)}
    broken = move.find_broken(Replica(params, None), jnp.ones(2), state)
    assert broken.tolist() == [False, True]


@pytest.mark.parametrize("size", [move._SMALL, move._SMALL + 1])
def test_large_arrays_are_looked_at_too(size: int) -> None:
    params = {"a": jnp.ones((3, 2)), "b": jnp.ones((3, size)).at[1, -1].set(jnp.nan)}
    broken = move.find_broken(Replica(params, None), jnp.ones(3))
    assert broken.tolist() == [False, True, False]


def test_parameters_that_break_in_the_move_are_caught() -> None:
    """At 0 the energy of the root is finite, and lower than its neighbour's; its slope is not."""
    root = lambda x: jnp.sum(jnp.sqrt(jnp.abs(x)))  # noqa: E731
    arguments = (root, jnp.array([[1.0], [0.0]]), [0.1, 0.1])
    settings = {"energy_at": "before", "schedule": windowed_deo(1, alternate=False)}
    step, state = step_and_state(*arguments, **settings, restarts=True)
    after, info = step(jax.random.key(0), state)
    assert info.restarted.tolist() == [False, True]
    assert not info.swapped.any() and np.isnan(info.energy[1])
    np.testing.assert_allclose(after.replicas.params, [[0.95], [0.95]])

    step, state = step_and_state(*arguments, **settings)  # nobody looks: it is let through
    after, info = step(jax.random.key(0), state)
    assert info.swapped.all()
    assert not np.isfinite(after.replicas.params[after.replica_at[0]]).any()


def test_a_restart_is_told_by_rung_wherever_replicas_are() -> None:
    """Replica 2, which breaks, is on rung 1; replica 1 below it on rung 0 is copied."""
    root = lambda x: jnp.sum(jnp.sqrt(jnp.abs(x)))  # noqa: E731
    params = jnp.array([[1.0], [4.0], [0.0]])
    step, state = step_and_state(root, params, [0.1] * 3, energy_at="before", restarts=True)
    state = state._replace(rung_of=jnp.array([2, 0, 1]), replica_at=jnp.array([1, 2, 0]))
    after, info = step(jax.random.key(0), state)
    assert info.restarted.tolist() == [False, True, False]
    assert np.isnan(info.energy).tolist() == [False, True, False]
    np.testing.assert_array_equal(after.replicas.params[2], after.replicas.params[1])


def test_statistics_that_break_are_caught() -> None:
    """As with batch norm, where a running variance can overflow and the loss stays finite."""

    def energy(x: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
        return jnp.tanh(jnp.sum(x**2)), {"var": state["var"] + (1e20 * x) ** 2}

    params = jnp.array([[1e-10], [3.0]])
    step, state = step_and_state(
        rx.Target(energy, has_state=True),
        params,
        [0.01, 0.02],
        model_state={"var": jnp.ones((2, 1))},
        energy_at="before",
        restarts=True,
    )
    after, info = step(jax.random.key(0), state)
    assert np.isfinite(info.energy[0])
    assert info.restarted.tolist() == [False, True]
    assert np.isfinite(after.model_state["var"]).all()


def test_restarts_copy_memory_and_model_state() -> None:
    target = rx.Target(with_state, has_state=True)
    params = jnp.array([[1.5], [2.0], [1e30]])
    model_state = {"met": params, "count": jnp.array([5, 6, 7])}
    step, state = step_and_state(
        target,
        params,
        [0.01, 0.02, 2.0],
        model_state=model_state,
        energy_at="before",
        restarts=True,
    )
    after, info = step(jax.random.key(0), state)
    assert info.restarted.tolist() == [False, False, True]
    assert after.model_state["count"].tolist() == [6, 7, 7]
    np.testing.assert_array_equal(after.model_state["met"][:, 0], [1.5, 2.0, 2.0])
    np.testing.assert_allclose(after.replicas.memory.trace[:, 0], [1.5**3, 8.0, 8.0], rtol=1e-6)
    np.testing.assert_allclose(after.replicas.params[1:, 0], 2.0 - 0.02 * 8.0, rtol=1e-6)


@pytest.mark.parametrize(
    "rule", [rx.swap.metropolis(), rx.swap.deterministic()], ids=["metropolis", "deterministic"]
)
def test_a_copy_has_the_momentum_of_the_rung_that_it_comes_to(rule: rx.swap.Rule) -> None:
    """tau / eta is 10, 15, 30 and 60 by rung; replicas 3 and 0, on rungs 2 and 3, break, and 1 on
    rung 1 is copied. Under a rule without temperatures a momentum has no law, and stays."""
    kernel = kernels.momentum(0.5)
    ladder = rx.algorithm.Ladder(jnp.array([0.1, 0.2, 0.4, 0.5]), jnp.array([1.0, 3.0, 12.0, 30.0]))
    settings = rx.algorithm.Settings(deo(), rule, FROZEN, langevin=False, restarts=True)
    state = rx.algorithm.init(kernel, jnp.array([[1e30], [2.0], [1.0], [1e30]]), ladder, settings)
    rungs = {"rung_of": jnp.array([3, 1, 0, 2]), "replica_at": jnp.array([2, 1, 3, 0])}
    step = quick_jit(rx.algorithm.build_step(lambda x: jnp.sum(x**2) / 2, kernel, settings))
    after, info = step(jax.random.key(0), state._replace(**rungs))
    assert info.restarted.tolist() == [False, False, True, True] and not info.swapped.any()
    scale = np.sqrt([60 / 15, 1.0, 1.0, 30 / 15]) if rule.uses_temperature else np.ones(4)
    np.testing.assert_allclose(
        after.replicas.memory.trace[:, 0], [2.0, 2.0, 1.0, 2.0] * scale, rtol=1e-6
    )


def broken_and_moved(schedule: Schedule) -> tuple[int, int]:
    """Over 60 steps: how often a replica broke, and how often it changed rung as it did."""
    step, state = step_and_state(
        steep,
        jnp.array([[1.2], [1.4], [1.6]]),
        [0.001, 0.002, 2.0],
        kernel=kernels.sgld(),
        restarts=True,
        schedule=schedule,
    )
    breaks = moves = 0
    for _ in range(60):
        after, info = step(jax.random.key(0), state)
        assert np.isfinite(after.replicas.params).all()
        replica = state.replica_at[info.restarted]
        breaks += len(replica)
        moves += int(np.sum(after.rung_of[replica] != state.rung_of[replica]))
        state = after
    return breaks, moves


@pytest.mark.parametrize("schedule", [slow(deo()), windowed_deo(2, "exactly_one")])
def test_a_replica_does_not_swap_as_it_breaks(schedule: Schedule, monkeypatch) -> None:
    breaks, moves = broken_and_moved(schedule)
    assert breaks >= 5 and moves == 0
    if schedule.swaps == "exactly_one":  # the one that could: it does not ask the rule
        true = WindowedDEO.swapping_pairs
        blind = lambda *args: true(*args[:-1], jnp.ones_like(args[-1]))  # noqa: E731
        monkeypatch.setattr(WindowedDEO, "swapping_pairs", blind)
        assert broken_and_moved(schedule)[1] > 0


def restarts_by_hand(rates: list[float], num_steps: int, moved: bool) -> np.ndarray:
    """Replicas that never exchange, started at 3; a broken one copies the next colder one."""
    x, count = np.full(len(rates), 3.0, np.float32), np.zeros(len(rates), int)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(num_steps):
            energy = x**4 / 4
            x = x - np.float32(rates) * x**3
            energy = x**4 / 4 if moved else energy
            for rung in range(len(rates)):
                if not (np.isfinite(energy[rung]) and np.isfinite(x[rung])):
                    x[rung] = x[rung - 1]
                    count[rung] += 1
    return count


@pytest.mark.parametrize("energy_at", ["moved", slow("before")])
def test_restarts_are_counted_by_rung(energy_at: str) -> None:
    rates = [0.01, 0.5, 2.0]
    posterior = rx.sample(
        steep,
        jnp.array([3.0]),
        num_steps=60,
        method=rx.Method(
            "none",
            learning_rate=rates,
            temperature=0.0,
            schedule="none",
            adapt=False,
            energy_at=energy_at,
        ),
        on_nonfinite="restart",
        draw_rungs="all",
        progress=False,
    )
    assert posterior.result.code == "finished"
    wanted = restarts_by_hand(rates, 60, energy_at == "moved")
    assert wanted[0] == 0 and wanted[1] >= 2 and wanted[2] > wanted[1]
    np.testing.assert_array_equal(posterior._records.final["restarts"], [wanted])
    assert posterior._records.final["nonfinite"].tolist() == [0]
    assert all(np.isfinite(posterior.draws_at(rung)).all() for rung in range(3))


@pytest.fixture(scope="module")
def exchanging() -> rx.Posterior:
    return rx.sample(
        steep,
        jnp.array([0.5]),
        num_steps=400,
        num_chains=2,
        method=rx.deo_star(
            learning_rate=[0.01, 0.02, 2.0],
            temperature=[1.0, 1.0, 0.0],
            window=2,
            buffer=0.0,
            adapt=False,
        ),
        on_nonfinite="restart",
        progress=False,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_target_stays_clean_above_a_rung_that_breaks(exchanging: rx.Posterior) -> None:
    assert exchanging.result.code == "finished"
    restarts = exchanging._records.final["restarts"]
    assert restarts.shape == (2, 3)
    assert (restarts[:, 2] >= 2).all() and (restarts[:, :2] == 0).all()
    assert np.isfinite(exchanging.draws).all() and np.isfinite(exchanging.energies).all()
    assert np.abs(exchanging.draws).max() < 4
    assert len(np.unique(exchanging.rung_of[0], axis=0)) > 3, "replicas must have exchanged"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("on_nonfinite", ["restart", "stop"])
def test_a_coldest_rung_that_diverges_ends_the_run(on_nonfinite: str) -> None:
    posterior = rx.sample(
        steep,
        jnp.array([3.0]),
        num_steps=50,
        num_replicas=2,
        method=rx.Method(
            "none", learning_rate=[2.0, 2.0], temperature=0.0, schedule="none", adapt=False
        ),
        on_nonfinite=on_nonfinite,
        progress=False,
    )
    assert posterior.result.code == "nonfinite"
    assert posterior.num_steps < 10
    assert "rung 0" in posterior.result.sentence
    assert np.isfinite(posterior.draws[0, :-1]).all()


def break_at(step: int, num_steps: int, **options: Any) -> rx.Posterior:
    return chunks.sample(
        lambda x, batch: jnp.sum(x**2) + batch,
        jnp.array([1.0]),
        num_steps=num_steps,
        num_replicas=2,
        method=rx.deo_star(learning_rate=[0.1, 0.2], temperature=0.0, adapt=False, buffer=0.0),
        batches=lambda k: np.float32(np.nan if k == step else 0.0),
        progress=False,
        **options,
    )


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_that_breaks_in_its_last_step_says_so() -> None:
    with chunks_of(5):
        assert break_at(9, 10).result.code == "nonfinite"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_that_breaks_in_the_last_step_of_a_chunk_ends_in_order() -> None:
    """The first two chunks have 64 steps each, whatever the clock says."""
    posterior = break_at(127, 300)
    assert posterior.result.code == "nonfinite" and posterior.num_steps == 128
