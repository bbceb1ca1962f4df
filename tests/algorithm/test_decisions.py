"""The decisions of single steps: what is told by rung, counted, forced and kept."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
from common import quick_jit
from single_steps import stand_still, told_energies

import replicax as rx
from replicax.algorithm import randomness, schedule, swap
from replicax.algorithm.exchange import adapt, decide
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.state import Info
from replicax.algorithm.tuning import Tuning


def test_what_is_observed_of_replicas_is_told_by_rung() -> None:
    """Energies, restarts and what kernels observe; replica 2 is on rung 0, 0 on 1, 1 on 2."""
    settings = rx.algorithm.Settings(schedule.deo(), swap.deterministic(), Tuning(adapts=None))
    rungs = Ladder(jnp.ones(3), jnp.ones(3))
    state = rx.algorithm.init(stand_still(), jnp.zeros((3, 1)), rungs, settings, buffer=1e6)
    at = {"rung_of": jnp.array([1, 2, 0]), "replica_at": jnp.array([2, 0, 1])}
    energies, broken = jnp.array([5.0, 6.0, 7.0]), jnp.array([True, False, False])

    @quick_jit
    def step(state):
        random = SimpleNamespace(log_uniform=None, schedule=None)
        return decide(settings, random, state, energies, broken=broken, observed=-energies)  # type: ignore

    _, info = step(state._replace(**at))
    assert info.energy.tolist() == [7, 5, 6] and info.observed.tolist() == [-7, -5, -6]
    assert info.restarted.tolist() == [False, True, False]


def test_verdicts_of_temperatures_count_where_swaps_were_attempted() -> None:
    settings = rx.algorithm.Settings(rule=swap.metropolis(), tuning=Tuning(adapts="temperature"))
    state = rx.algorithm.init(
        stand_still(), jnp.zeros((2, 1)), Ladder(jnp.ones(2), jnp.ones(2)), settings
    )
    step = quick_jit(lambda state, info: adapt(settings, state, info))
    yes, no = jnp.array([True]), jnp.array([False])
    for attempted, count in ((True, 1), (False, 1), (True, 2)):
        info = Info(jnp.zeros(2), yes, no, yes, jnp.zeros(2, bool), jnp.array(attempted))
        state = step(state, info)
        assert (int(state.verdicts.count), state.verdicts.wanted.tolist()) == (count, [count])
    assert int(state.step) == 3


def test_no_swap_is_forced_while_the_unit_of_energy_is_measured() -> None:
    made = schedule.windowed_deo(1, "exactly_one", alternate=False)
    step, state = told_energies(made, swap.deterministic(), 2, buffer=1e6, measure_steps=3)
    step, swapped = quick_jit(step), []
    for _ in range(5):
        state, info = step(randomness.make_key(0), state, jnp.array([1.0, 2.0]))
        swapped.append(bool(info.swapped[0]))
    assert swapped == [False, False, False, True, True]


def test_an_estimate_of_noise_is_kept_from_step_to_step() -> None:
    target = rx.Target(
        energy=lambda x, batch, noise: 3 * noise, noise=lambda key: jax.random.normal(key)
    )
    rule = swap.bias_corrected("estimate", estimate_every=2)
    settings = rx.algorithm.Settings(schedule.deo(), rule, Tuning(adapts=None, adapts_buffer=False))
    rungs = Ladder(jnp.ones(2), jnp.array([1.0, 2.0]))
    state = rx.algorithm.init(stand_still(), jnp.zeros(2), rungs, settings)
    step, seen = quick_jit(rx.algorithm.build_step(target, stand_still(), settings)), []
    for _ in range(3):
        state, _ = step(randomness.make_key(0), state)
        seen.append(float(state.energy_noise_var[0, 1]))
    assert 1 < seen[0] < 30, "of 9, from eight draws"
    assert seen[1] == seen[0] != seen[2]
