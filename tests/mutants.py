"""Rules of the algorithm, broken: a test that guards a rule must fail with its mutant in place.

Each takes the place of the function beside it: `monkeypatch.setattr(room, name, mutant)`.
"""

import jax.numpy as jnp

from replicax.algorithm import schedule, swap

_wanted, _active_pairs, _swapping_pairs = (
    swap.Rule.wanted,
    schedule.active_pairs,
    schedule.swapping_pairs,
)


def flipped_verdict(rule: swap.Rule, pair: swap.Encounter):
    """For `swap.Rule.wanted`."""
    return ~_wanted(rule, pair) & swap.both_finite(pair.cold_energy, pair.hot_energy)


def energies_the_wrong_way(rule: swap.Rule, pair: swap.Encounter):
    """For `swap.Rule.wanted`."""
    turned = pair._replace(cold_energy=pair.hot_energy, hot_energy=pair.cold_energy)
    return _wanted(rule, turned)


def always_odd(made, step, odd, num_pairs):
    """For `schedule.active_pairs`."""
    return jnp.arange(num_pairs) % 2 == 0


def wrong_parity(made, step, odd, num_pairs):
    """For `schedule.active_pairs`: even where odd pairs have their turn."""
    return _active_pairs(made, step + made.window, odd, num_pairs)


def parity_of_every_step(made, step, odd, num_pairs):
    """For `schedule.active_pairs`: turns of one step, whatever the window."""
    return _active_pairs(schedule.windowed_deo(1), step, odd, num_pairs)


def gate_that_never_closes(made, step, active, gate, wanted, finite):
    """For `schedule.swapping_pairs`."""
    return _swapping_pairs(made, step, active, jnp.ones_like(gate), wanted, finite)


def swap_that_never_comes(made, step, active, gate, wanted, finite):
    """For `schedule.swapping_pairs`: no swap is forced."""
    return _swapping_pairs(made, step, active, gate, wanted, jnp.zeros_like(finite))
