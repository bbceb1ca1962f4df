"""What kernels and rules say of themselves, and what they do where there is nothing to measure."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import quick_jit

import replicax as rx
from replicax.algorithm import kernels
from replicax.algorithm.kernel import Observed
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.state import Settings, init
from replicax.algorithm.target import check_energy
from replicax.algorithm.tuning import (
    BarrierTuning,
    StepSizeTuning,
    start_step_sizes,
    tune_step_sizes,
)

# What they say

EXACT, FOLLOWING = ("hmc", "mala"), ("sgld", "momentum", "sghmc", "preconditioned", "adam")


@pytest.mark.parametrize("name", [*EXACT, *FOLLOWING])
def test_a_kernel_feels_no_prior_but_the_weight_decay_that_it_is_given(name: str) -> None:
    make = kernels.NAMED[name]
    traits = make().traits
    assert not traits.has_own_prior and not traits.keeps_time and traits.exploits is None
    if name in FOLLOWING:
        assert make(weight_decay=0.1).traits.has_own_prior


@pytest.mark.parametrize("name", kernels.NAMED)
def test_only_adjusted_kernels_accept_or_reject_and_only_some_observe(name: str) -> None:
    made = kernels.NAMED[name]().traits
    assert made.adjusted == (name in EXACT) == (made.prepare is not None)
    assert made.observes == (name in EXACT)
    assert (made.change_rung is not None) == (name in ("momentum", "sghmc", "underdamped"))
    assert (made.caveat is not None) == (name in ("preconditioned", "adam"))
    assert made.first_rate == (0.01 if name in EXACT else None)


def test_a_kernel_around_another_keeps_its_caveat_or_has_its_own() -> None:
    around = {
        "clipped": lambda kernel: kernels.clipped(kernel, 1.0),
        "cyclical": lambda kernel: kernels.cyclical(kernel, 10),
        "annealed": lambda kernel: kernels.annealed(kernel, 10, 1.0, 0.5),
        "rates alone": lambda kernel: kernels.annealed(kernel, 10, 0.5),
        "cosine": lambda kernel: kernels.cosine(kernel, 10),
    }
    inside = kernels.adam()
    for name, make in around.items():
        assert make(inside).traits.caveat == inside.traits.caveat
        law_changes = name in ("clipped", "cyclical", "annealed")
        assert (make(kernels.sgld()).traits.caveat is not None) == law_changes, name


def test_rules_say_what_they_need() -> None:
    named = [rx.swap.deterministic(), rx.swap.metropolis(), rx.swap.bias_corrected()]
    named += [rx.swap.window_corrected(0.5), rx.swap.window_corrected(0.5, 2.0)]
    assert [rule.uses_temperature for rule in named] == [False, True, True, True, True]
    assert [rule.assumes_exact_energies for rule in named] == [False, True, False, False, False]
    assert [rule.judges_afresh for rule in named] == [False, False, True, True, True]
    assert [rule.estimates_noise for rule in named] == [False, False, True, True, False]
    assert (named[2].estimate_every, named[2].estimate_draws) == (100, 8)  # type: ignore[attr-defined]


def test_factors_of_optax_are_found_in_what_optax_made_and_nowhere_else() -> None:
    """Also where a function of the user's own looks like one of optax."""

    def scale() -> Any:
        step_size, several = 3.0, (optax.sgd(0.5).update, 7.0, np.ones(2))

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            return updates * step_size * len(several), state

        return update

    own = scale()
    own.__qualname__ = "scale.<locals>.update"
    assert kernels.own_rate(own) == 1.0
    own.__module__ = "optax.of_ones_own"
    assert kernels.own_rate(own) == 1.5
    assert kernels.own_rate(optax.sgd(0.25).update) == 0.25


@pytest.mark.parametrize("every", [1, 2, 3])
def test_the_clock_of_a_schedule_counts_attempts(every: int) -> None:
    settings = Settings(swap_every=every)
    assert [int(settings.attempt(step)) for step in range(7)] == [k // every for k in range(7)]
    assert [bool(settings.attempts_swap(step)) for step in range(7)] == [
        k % every == 0 for k in range(7)
    ]


def test_a_likelihood_may_be_tempered_without_a_prior() -> None:
    target = rx.Target(lambda params, batch, key: params**2, tempers_likelihood=True)
    check_energy(target, jnp.float32(1.0), None, jax.random.key(0))
    with pytest.raises(ValueError, match="log_prior"):
        wrong = target._replace(prior=lambda params: params > 0)
        check_energy(wrong, jnp.float32(1.0), None, jax.random.key(0))


# Nothing to measure


def test_rounds_double_unless_they_are_told() -> None:
    ends = BarrierTuning().round_ends
    assert ends[:4] == (64, 128, 256, 512) and len(ends) == 25 and max(ends) < 2**31


def test_a_parameter_without_steepness_is_as_wide_as_any_may_be() -> None:
    """A millionth of the geometric mean's steepness is the least that counts."""
    ladder, sizes = start_step_sizes(Ladder(jnp.ones(1), jnp.ones(1)), jnp.zeros((1, 2)))
    flat = Observed(jnp.zeros(1), jnp.array([[0.0, 1.0]]), jnp.ones(1))
    ladder, _ = tune_step_sizes(StepSizeTuning((1,), 5), jnp.int32(0), ladder, sizes, flat)
    wide, narrow = np.asarray(ladder.scale[0])
    assert wide / narrow == pytest.approx(1e12, rel=1e-3)


def test_step_sizes_stand_still_from_their_last_step_on() -> None:
    ladder, sizes = start_step_sizes(Ladder(jnp.ones(1), jnp.ones(1)), jnp.zeros((1, 2)))
    observed = Observed(jnp.ones(1), jnp.ones((1, 2)), jnp.ones(1))
    tuning = StepSizeTuning((3,), 5)
    tune = quick_jit(lambda step: tune_step_sizes(tuning, step, ladder, sizes, observed))
    for step, moves in ((4, True), (5, False), (6, False)):
        after, _ = tune(jnp.int32(step))
        assert (float(after.learning_rate[0]) != 1.0) == moves, step


def test_an_adjusted_kernel_needs_the_target_to_begin() -> None:
    ladder, params = Ladder(jnp.ones(2), jnp.ones(2)), jnp.zeros((2, 1))
    with pytest.raises(ValueError, match=r"evaluates its start: give init\(\.\.\., target="):
        init(kernels.hmc(), params, ladder, Settings())
    assert int(init(kernels.sgld(), params, ladder, Settings()).step) == 0
