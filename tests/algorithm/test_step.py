"""The library against the oracle: the same noise must give the same run, step by step."""

import functools
from typing import Any

import chunks
import jax
import numpy as np
import pytest
import reference
from common import quick_jit, slow
from mutants import flipped_verdict, gate_that_never_closes, wrong_parity
from oracle_cases import (
    KERNELS,
    NUM_STEPS,
    RULES,
    SCHEDULES,
    Case,
    assert_same_run,
    bowl,
    bowl_gradient,
    bowl_target,
    buffer_gain,
    draws_of,
    gain,
    library,
    oracle,
    parts,
    run_library,
)

import replicax as rx
from replicax.algorithm import exchange, randomness, schedule, swap, tuning
from replicax.algorithm.schedule import Adjacent, Schedule, WindowedDEO
from replicax.algorithm.tuning import Tuning

QUICK = {  # every schedule, and every rule with windows
    *[(name, "deterministic") for name in ("deo", "exactly_one", "lone_pair")],
    *[("at_most_one", rule) for rule in RULES],
    *[(name, "metropolis") for name in ("no_gate", "seo", "ape")],
    ("adj", "bias_corrected"),
}


def with_momentum() -> list[Any]:
    """Every schedule with every rule; momentum on, everything adapting."""
    rules = [rule for rule in RULES if rule != "bias_corrected_by_pair"]
    cells = [(name, rule) for name in SCHEDULES for rule in rules]
    return [Case(*cell) if cell in QUICK else slow(Case(*cell)) for cell in cells]


OTHERS = [
    Case("at_most_one", "bias_corrected_by_pair"),
    slow(Case("adj", "bias_corrected_by_pair")),
    Case("exactly_one", "deterministic", energy_at="before"),
    *[slow(Case(name, "deterministic", energy_at="before")) for name in ("seo", "ape")],
    slow(Case("at_most_one", "metropolis", energy_at="before")),
    Case("at_most_one", "deterministic", "sgld", own_gradient=True),
    slow(Case("adj", "bias_corrected", "sgld", own_gradient=True, adapt=False)),
    Case("at_most_one", "deterministic", "preconditioned", weight_decay=0.3),
    slow(Case("seo", "metropolis", "preconditioned", own_gradient=True)),
    Case("no_gate", "deterministic", weight_decay=0.3, adapt=False, hot=False),
]


@pytest.mark.parametrize("case", [*with_momentum(), *OTHERS], ids=str)
def test_the_library_equals_the_oracle(case: Case) -> None:
    record = oracle(case)
    assert record.swapped.sum() > 50
    assert_same_run(case, library(case), record)
    adapting, fixed = "learning_rate", "temperature"
    if RULES[case.rule][0].uses_temperature:
        adapting, fixed = fixed, adapting
    if case.adapt and case.num_replicas > 2:
        assert np.ptp(getattr(record, adapting)[:, 1:-1], axis=0).min() > 1e-3
    assert not np.ptp(getattr(record, fixed), axis=0).any()


def window_one_step_late(windowed, step, true=Schedule.window_opens):
    return true(windowed, step - 1)


def swap_that_keeps_home(index, swapped):
    return index


def half_a_swap(index, cold, hot, swapped, true=swap.swap_two):
    return true(index, cold, hot, swapped)._replace(replica_at=index.replica_at)


def climber_seen_from_above(adjacent, index, attempts, wanted, true=Adjacent.sweep):
    return true(adjacent, index, attempts, lambda attempt, cold, hot: wanted(attempt, hot, cold))


def no_correction(pair, window_correction=0.0, true=swap.log_swap_probability):
    return true(pair._replace(energy_noise_var=0.0), window_correction)


def ladder_the_wrong_way(rungs, wanted, target, gain, true=tuning.adapt_rungs):
    return true(rungs, ~wanted, 1 - target, gain)


def buffer_the_wrong_way(buffer, wanted, target, gain, true=tuning.adapt_buffer):
    return true(buffer, ~wanted, 1 - target, gain)


MUTANTS = [
    (swap, "judge", flipped_verdict, Case("at_most_one", "deterministic")),
    (WindowedDEO, "active_pairs", wrong_parity, Case("at_most_one", "deterministic")),
    (WindowedDEO, "swapping_pairs", gate_that_never_closes, Case("at_most_one", "deterministic")),
    (WindowedDEO, "window_opens", window_one_step_late, Case("at_most_one", "deterministic")),
    (exchange, "swap_adjacent", swap_that_keeps_home, Case("deo", "deterministic")),
    (schedule, "swap_two", half_a_swap, Case("ape", "metropolis")),
    (Adjacent, "sweep", climber_seen_from_above, Case("adj", "metropolis")),
    (swap, "log_swap_probability", no_correction, Case("at_most_one", "bias_corrected")),
    (tuning, "adapt_rungs", ladder_the_wrong_way, Case("deo", "deterministic")),
    (tuning, "adapt_buffer", buffer_the_wrong_way, Case("deo", "deterministic")),
]


QUICK_MUTANTS = (flipped_verdict, swap_that_keeps_home, no_correction, ladder_the_wrong_way)


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "case"),
    [mutant if mutant[2] in QUICK_MUTANTS else slow(*mutant) for mutant in MUTANTS],
    ids=[mutant[2].__name__ for mutant in MUTANTS],
)
def test_a_mutant_differs_from_the_oracle(owner, name, mutant, case, monkeypatch) -> None:
    record = oracle(case)
    monkeypatch.setattr(owner, name, mutant)
    trace = run_library(case)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_same_run(case, trace, record)


def test_built_steps_draw_the_same_randomness_one_by_one() -> None:
    case = Case("seo", "metropolis")
    with jax.enable_x64(True):
        _, _, state = parts(case)
        kernel = KERNELS[case.kernel][0]()
        tuning = Tuning(gain=gain, adapts="temperature", adapts_buffer=False)
        settings = rx.algorithm.Settings(schedule.seo(), swap.metropolis(), tuning)
        step = quick_jit(rx.algorithm.build_step(bowl_target(False), kernel, settings))
        for k in range(20):
            state, info = step(randomness.make_key(11), state)
            np.testing.assert_array_equal(state.rung_of, library(case).states.rung_of[k])
            np.testing.assert_allclose(info.energy, library(case).infos.energy[k], rtol=1e-9)
        assert int(state.step) == 20


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sampled_chain_equals_the_oracle() -> None:
    """Through the compiled loop and its records: draws are of the cold rung after the swap."""
    case, seed, chain = Case("at_most_one", "deterministic"), 5, 0
    with jax.enable_x64(True):
        posterior = chunks.sample(
            bowl_target(False),
            rx.per_replica(case.start),
            num_steps=NUM_STEPS,
            method=rx.Method(
                "own",
                learning_rate=case.learning_rate,
                temperature=case.temperature,
                schedule=SCHEDULES[case.schedule][0],
                kernel=KERNELS[case.kernel][0](),
                gain=gain,
                buffer_gain=buffer_gain,
                buffer=0.1,
            ),
            seed=seed,
            history_every=60,
            progress=False,
        )
        run_key, _ = jax.random.split(randomness.make_key(seed))
        random = jax.device_get(draws_of(case, jax.random.fold_in(run_key, chain)))
    noise = reference.Noise(random.move, random.gradient, random.energy)
    record = reference.run(
        params=case.start,
        noise=noise,
        gradient=bowl_gradient,
        energy=bowl,
        learning_rate=case.learning_rate,
        temperature=case.temperature,
        kernel=case.kernel,
        momentum_decay=0.8,
        window=4,
        buffer=0.1,
        adapt=True,
        gain=gain,
        buffer_gain=buffer_gain,
    )
    close = functools.partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10)
    np.testing.assert_array_equal(posterior.rung_of[chain], record.rung_of)
    steps, cold = np.arange(NUM_STEPS), np.argmin(record.rung_of, axis=1)
    close(posterior.draws[chain], record.params[steps, cold])
    was_on = np.concatenate([[np.arange(5)], record.rung_of[:-1]])[steps, cold]
    close(posterior.energies[chain], record.energy[steps, was_on])
    close(posterior.learning_rates[chain], record.learning_rate[-1])
    close(posterior.buffer[chain], record.buffer[-1])
    close(posterior.history["learning_rate"][chain], record.learning_rate[59::60])
    close(posterior.history["buffer"][chain], record.buffer[59::60])
    close(posterior.verdict_rate[chain], record.wanted.mean(axis=0))
    started = np.concatenate([[np.arange(5)], record.rung_of])
    assert posterior.round_trips[chain] == reference.round_trips(started)
    # Windows of pair 0 are the second, the fourth, ...; a window swaps at most once.
    windows = record.swapped.reshape(-1, 4, 4).sum(axis=1)
    rate = [windows[1::2, 0].mean(), windows[::2, 1].mean()]
    close(posterior.window_swap_rate[chain, :2], rate)


def test_the_gain_of_the_library_is_that_of_the_oracle() -> None:
    steps = np.arange(0, 20_000, 999)
    expected = [reference.gain_of_25_modes(k) for k in steps]
    np.testing.assert_allclose(rx.Gain()(steps), expected, rtol=1e-6)
    assert float(rx.Gain(scale=500.0)(0)) == 0.5, "capped"


@pytest.mark.parametrize("case", with_momentum(), ids=str)
def test_rungs_and_replicas_are_inverse_permutations(case: Case) -> None:
    states = library(case).states
    for rung_of, replica_at in zip(states.rung_of, states.replica_at):
        assert sorted(rung_of) == list(range(case.num_replicas))
        np.testing.assert_array_equal(replica_at[rung_of], np.arange(case.num_replicas))


def in_windows(case: Case, values: np.ndarray) -> np.ndarray:
    """(step, pair) -> (window, place in it, pair), whole windows only."""
    window = SCHEDULES[case.schedule][0].window
    whole = len(values) // window * window
    return values[:whole].reshape(-1, window, values.shape[1])


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        *[(name, "deterministic") for name in ("at_most_one", "exactly_one", "lone_pair", "deo")],
        ("at_most_one", "metropolis"),
        *[slow(name, "metropolis") for name in ("exactly_one", "lone_pair", "deo")],
    ],
)
def test_a_gate_closes_after_a_swap_and_reopens_with_its_window(name: str, rule: str) -> None:
    states, infos = library(case := Case(name, rule))
    swapped, gate = in_windows(case, infos.swapped), in_windows(case, states.gate)
    assert swapped.sum(axis=1).max() == 1, "at most one swap per pair and window"
    np.testing.assert_array_equal(gate, np.cumsum(swapped, axis=1) == 0)
    active = in_windows(case, infos.active)
    assert (active == active[:, :1]).all(), "a turn lasts a whole window"
    assert not (infos.swapped & ~infos.active).any()
    if name != "exactly_one":
        assert not (infos.swapped & ~infos.wanted).any()


@pytest.mark.parametrize("rule", ["deterministic", slow("metropolis")])
def test_exactly_one_means_one_swap_in_every_active_window(rule: str) -> None:
    _, infos = library(case := Case("exactly_one", rule))
    swapped = in_windows(case, infos.swapped).sum(axis=1)
    np.testing.assert_array_equal(swapped, in_windows(case, infos.active)[:, 0])
    unwanted = infos.swapped & ~infos.wanted
    assert unwanted.any(), "some swaps must have been forced"
    assert not in_windows(case, unwanted)[:, :-1].any(), "forced before the last step"


def test_without_a_gate_a_pair_may_swap_at_every_step_of_its_window() -> None:
    _, infos = library(case := Case("no_gate", "metropolis"))
    np.testing.assert_array_equal(infos.swapped, infos.wanted & infos.active)
    assert in_windows(case, infos.swapped).sum(axis=1).max() > 1
