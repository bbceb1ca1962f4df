"""Swap rules (when two replicas exchange rungs) and the swap itself.

A rule compares the energies on a colder and a hotter rung and says whether the two replicas want
to swap. A swap changes two integers; parameters stay where they are.

A rule of your own is a frozen dataclass that extends `Rule` and overrides `wanted`.
"""

from replicax.algorithm.swap.corrected import (
    BiasCorrected,
    WindowCorrected,
    bias_corrected,
    window_corrected,
)
from replicax.algorithm.swap.rules import (
    Deterministic,
    Index,
    Metropolis,
    Proposal,
    Rule,
    RuleInForce,
    deterministic,
    judge,
    log_swap_probability,
    metropolis,
    swap_adjacent,
    swap_two,
)

RULES = ("deterministic", "metropolis", "bias_corrected", "window_corrected")
