"""The paper's algorithm on the 25 modes as research scripts have it: loops of Python over NumPy.

Sixteen replicas move one after the other, then pairs are judged one by one. Random numbers are
drawn for many steps at once, which a script would not do, and which makes it faster.
"""

import math
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from peer import PeerRun, thinned
from target import Target

RUNGS, RATES, WINDOW, SWAP_RATE, NOISE_STD = 16, (0.003, 0.6), 8, 0.4, 2.0
_BURN_IN, _BLOCK, _THIN = 100, 500, 10
_WALL = 20.0


@dataclass
class Ladder:
    """All that a step needs, by rung: places, learning rates; and the gates of pairs."""

    places: list[np.ndarray]
    rates: np.ndarray = field(default_factory=lambda: np.geomspace(*RATES, RUNGS))
    gates: list[bool] = field(default_factory=lambda: [True] * (RUNGS - 1))
    buffer: float = 0.0
    step: int = 0


def gradient(x: np.ndarray) -> np.ndarray:
    slope = 2.4 if x @ x > _WALL else 0.4
    return slope * x + 4 * math.pi * np.sin(2 * math.pi * x)


def energy(x: np.ndarray) -> float:
    square = x @ x
    wells = 2 * (math.cos(2 * math.pi * x[0]) + math.cos(2 * math.pi * x[1]))
    return 0.2 * square - wells + max(0.0, square - _WALL)


def advance(ladder: Ladder, noise: np.ndarray, langevin: np.ndarray, of_energy: np.ndarray) -> None:
    """Do one step: move all replicas, judge and swap pairs, adapt learning rates and buffer.

    Noise: of gradients (rung, 2), of the Langevin step of the cold rung (2,), of energies (rung,).
    """
    rates, energies = ladder.rates, []
    for rung in range(RUNGS):
        x = ladder.places[rung]
        x = x - rates[rung] * (gradient(x) + NOISE_STD * noise[rung])
        if rung == 0:
            x = x + math.sqrt(2 * rates[0]) * langevin
        ladder.places[rung] = x
        energies.append(energy(x) + NOISE_STD * of_energy[rung])
    k, wanted = ladder.step, []
    is_odd = (k // WINDOW) % 2 == 1
    for pair in range(RUNGS - 1):
        wanted.append(energies[pair + 1] + ladder.buffer < energies[pair])
        if k % WINDOW == 0:
            ladder.gates[pair] = True
        if ((pair + 1) % 2 == 1) == is_odd and ladder.gates[pair] and wanted[pair]:
            places = ladder.places
            places[pair], places[pair + 1] = places[pair + 1], places[pair]
            ladder.gates[pair] = False
    gain = 50 / (k**0.8 + 500)
    gaps = np.diff(rates) * np.exp(gain * (np.array(wanted) - SWAP_RATE))
    inner = (rates[:-2] + gaps[:-1] + rates[2:] - gaps[1:]) / 2
    rates[1:-1] = np.clip(inner, rates[0], rates[-1])
    rates.sort()
    ladder.buffer += gain * (sum(wanted) / len(wanted) - SWAP_RATE)
    ladder.step += 1


def deo_star(target: Target, seconds: float, seed: int = 0, **_: Any) -> PeerRun:
    """Run one chain for the processor time given."""
    rng = np.random.default_rng(seed)
    ladder, draws = Ladder(list(rng.uniform(-3, 3, (RUNGS, 2)))), []
    began = time.process_time()
    while time.process_time() - began < seconds or ladder.step < 2 * _BURN_IN:
        noise = rng.standard_normal((_BLOCK, RUNGS, 2))
        langevin = rng.standard_normal((_BLOCK, 2))
        of_energy = rng.standard_normal((_BLOCK, RUNGS))
        for drawn in zip(noise, langevin, of_energy):
            advance(ladder, *drawn)
            if ladder.step > _BURN_IN and ladder.step % _THIN == 0:
                draws.append(ladder.places[0])
    spent = time.process_time() - began
    note = f"one chain of {ladder.step} steps"
    return PeerRun(thinned(np.array(draws)[None]), (), spent, 0.0, ladder.step, note)
