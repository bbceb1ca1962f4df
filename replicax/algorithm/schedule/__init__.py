"""Swap schedules: which pairs may swap at step k.

Parity and gate share one clock: window number k // W and place in the window k % W of the same
k, starting at 0. The paper counts pairs from 1, so its odd pairs are i = 0, 2, 4, ... here.

A schedule of your own is a frozen dataclass that extends `Schedule` (all pairs are decided at once,
from energies before any swap) or `Sequential` (one attempt after another, each sees the swaps
before it) and overrides the methods that differ.
"""

from replicax.algorithm.schedule.at_once import (
    SWAPS_PER_WINDOW,
    NoExchange,
    Schedule,
    StochasticEvenOdd,
    WindowedDEO,
    deo,
    none,
    pairs_of_parity,
    seo,
    windowed_deo,
)
from replicax.algorithm.schedule.sequential import Adjacent, AllPairs, Sequential, adj, ape
