"""Rules of the algorithm, broken: a test that guards a rule must fail with its mutant in place.

Each takes the place of a function or method: `monkeypatch.setattr(owner, name, mutant)`.
"""

import jax.numpy as jnp

from replicax.algorithm import schedule, swap
from replicax.algorithm.schedule import WindowedDEO

_judge = swap.judge
_active_pairs, _swapping_pairs = WindowedDEO.active_pairs, WindowedDEO.swapping_pairs


def flipped_verdict(rule: swap.Rule, proposal: swap.Proposal):
    """For `swap.judge`."""
    return ~_judge(rule, proposal) & proposal.is_finite


def energies_the_wrong_way(rule: swap.Rule, proposal: swap.Proposal):
    """For `swap.judge`."""
    turned = proposal._replace(cold_energy=proposal.hot_energy, hot_energy=proposal.cold_energy)
    return _judge(rule, turned)


def always_odd(windowed, step, drawn, num_pairs):
    """For `WindowedDEO.active_pairs`."""
    return jnp.arange(num_pairs) % 2 == 0


def wrong_parity(windowed, step, drawn, num_pairs):
    """For `WindowedDEO.active_pairs`: even where odd pairs have their turn."""
    return _active_pairs(windowed, step + windowed.window, drawn, num_pairs)


def parity_of_every_step(windowed, step, drawn, num_pairs):
    """For `WindowedDEO.active_pairs`: turns of one step, whatever the window."""
    return _active_pairs(schedule.deo(), step, drawn, num_pairs)


def gate_that_never_closes(windowed, step, active, gate, wanted, finite):
    """For `WindowedDEO.swapping_pairs`."""
    return _swapping_pairs(windowed, step, active, jnp.ones_like(gate), wanted, finite)


def swap_that_never_comes(windowed, step, active, gate, wanted, finite):
    """For `WindowedDEO.swapping_pairs`: no swap is forced."""
    return _swapping_pairs(windowed, step, active, gate, wanted, jnp.zeros_like(finite))
