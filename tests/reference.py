"""Algorithm 1 read aloud: plain NumPy, Python loops, and parameters that really move.

This is the oracle that the library is held to, so the two share no code. Everything is stored
by rung, coldest first. A swap carries a whole particle (label, parameters, momentum, second
moment) from one rung to another, where the library changes two integers and leaves the particle
at home. All randomness is drawn beforehand; noise of a particle is looked up by its label.

    record = run(params=start, noise=noise, gradient=gradient, energy=energy,
                 learning_rate=eta, temperature=tau, window=8, adapt=True)

Pair i joins rungs i and i+1 and is the paper's p = i+1. Steps count from k = 0.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]  # two rungs, colder first
Energies = tuple[float, float]  # of the particles on them


class Noise(NamedTuple):
    """Every random number of a run. What a run has no use for may stay None."""

    move: Array  # Langevin normals xi                        (step, particle, *params)
    gradient: Any = None  # handed to gradient()              (step, particle, ...)
    energy: Any = None  # handed to energy()                  (step, particle, ...)
    log_uniform: Any = None  # of the step's own verdicts     (step, pair)
    odd: Any = None  # SEO's coin, True: p = 1, 3, ...        (step,)
    order: Any = None  # APE's pairs of rungs, colder first   (step, attempt, 2)
    attempt_log_uniform: Any = None  # of ADJ and APE         (step, attempt)
    attempt_energy: Any = None  # fresh ones, colder first    (step, attempt, 2, ...)


class Record(NamedTuple):
    """What was seen, step by step: energies and verdicts before the swaps, the rest at the end."""

    rung_of: Array  # the index process                       (step, replica)
    energy: Array  # U~                                       (step, rung)
    wanted: Array  # A^(p), the verdicts that adaptation sees (step, pair)
    swapped: Array  # (step, pair); in ADJ and APE            (step, attempt)
    gate: Array  # G^(p), True = open                         (step, pair)
    learning_rate: Array  # eta_{k+1}                         (step, rung)
    temperature: Array  # tau_{k+1}                           (step, rung)
    buffer: Array  # C_{k+1}                                  (step,)
    params: Array  #                                          (step, replica, *params)
    momentum: Array  #                                        (step, replica, *params)
    second_moment: Array  #                                   (step, replica, *params)


def gain_of_25_modes(k: int) -> float:
    """gamma_k = 50 / (k^0.8 + 500)."""
    return 50 / (k**0.8 + 500)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of `run`."""

    gradient: Callable[[Array, Any], Array]  # (params, noise) of one particle
    energy: Callable[[Array, Any], float]  # (params, noise) of one particle
    learning_rate: Sequence[float]  # eta^(p)
    temperature: Sequence[float]  # tau^(p), 0 = plain SGD

    kernel: Literal["sgld", "momentum", "preconditioned"] = "sgld"
    weight_decay: float = 0.0
    momentum_decay: float = 0.9  # mu
    rms_decay: float = 0.99
    rms_epsilon: float = 1e-8

    schedule: Literal["seo", "deo", "windowed", "adj", "ape"] = "windowed"
    window: int = 1  # W
    swaps: Literal["at_most_one", "exactly_one", "no_gate"] = "at_most_one"
    alternate: bool = True

    rule: str = "deterministic"  # or "metropolis", "bias_corrected", "window_corrected"
    buffer: float = 0.0  # C_0
    energy_noise_std: Any = 0.0  # sigma_p: a number, or one per pair (not in APE)
    window_correction: float = 0.0  # lambda_W
    energy_at: Literal["moved", "before"] = "moved"
    verdicts: Literal["simultaneous", "sequential"] = "simultaneous"

    adapt: bool = False
    target_swap_rate: float = 0.4  # blackboard S
    gain: Callable[[int], float] = gain_of_25_modes
    buffer_gain: Callable[[int], float] = gain_of_25_modes
    round_ends: Sequence[int] = tuple(64 * 2**i for i in range(8))  # of tuning temperatures

    def __post_init__(self) -> None:
        pairwise = self.schedule in ("deo", "windowed") and self.rule == "deterministic"
        if self.verdicts == "sequential" and not pairwise:
            raise ValueError("sequential verdicts need deo or windowed, and the deterministic rule")
        if self.schedule != "windowed" and self.window != 1:
            raise ValueError(f"{self.schedule} has no window")
        if not self.alternate and len(self.learning_rate) != 2:
            raise ValueError("alternate=False is for a ladder of two rungs")


@dataclass
class Particle:
    """All that travels in a swap."""

    label: int
    params: Array
    momentum: Array
    second_moment: Array
    energy: float = math.nan


@dataclass
class Rungs:
    """The ladder and whoever is on it now."""

    particle: list[Particle]  # by rung
    learning_rate: Array  # by rung
    temperature: Array  # by rung
    gate: list[bool]  # by pair
    buffer: float
    verdicts: list = field(default_factory=list)  # of this round of tuning

    def swap(self, cold: int, hot: int, rule: str) -> None:
        """Exchange two particles; where temperatures count, momentum is N(0, tau / eta) again."""
        if rule != "deterministic":
            variance = self.temperature / self.learning_rate
            ratio = math.sqrt(variance[hot] / variance[cold])
            self.particle[cold].momentum = self.particle[cold].momentum * ratio
            self.particle[hot].momentum = self.particle[hot].momentum / ratio
        self.particle[cold], self.particle[hot] = self.particle[hot], self.particle[cold]


def run(*, params: Sequence[Array], noise: Noise, **settings: Any) -> Record:
    """Algorithm 1, one step per row of `noise`; particle r starts at params[r] on rung r."""
    s = Settings(**settings)
    rest = [np.zeros(np.shape(p)) for p in params]
    rungs = Rungs(
        particle=[Particle(r, np.array(p, float), rest[r], rest[r]) for r, p in enumerate(params)],
        learning_rate=np.array(s.learning_rate, float),
        temperature=np.array(s.temperature, float),
        gate=[True] * (len(params) - 1),
        buffer=float(s.buffer),
    )
    steps = [step(s, rungs, noise, k) for k in range(len(noise.move))]
    return Record(*(np.array(column) for column in zip(*steps, strict=True)))


def step(s: Settings, rungs: Rungs, noise: Noise, k: int) -> tuple:
    """One pass of the outer loop of Algorithm 1; returns the fields of `Record`."""
    noise = Noise._make(_of(drawn, k) for drawn in noise)
    for rung, particle in enumerate(rungs.particle):
        move(s, particle, rungs.learning_rate[rung], rungs.temperature[rung], noise)

    energy = [particle.energy for particle in rungs.particle]
    wanted = [
        verdict(s, rungs, (i, i + 1), (energy[i], energy[i + 1]), _of(noise.log_uniform, i))
        for i in range(len(rungs.gate))
    ]
    if s.schedule in ("adj", "ape"):
        swapped = sweep(s, rungs, noise)
    else:
        swapped = exchange(s, rungs, noise, k, energy, wanted)

    target = s.target_swap_rate
    if s.adapt and s.rule == "deterministic":
        rungs.learning_rate = adapt_ladder(rungs.learning_rate, wanted, target, s.gain(k))
        rungs.buffer += s.buffer_gain(k) * (sum(wanted) / len(wanted) - target)  # Eq. 12
    elif s.adapt:
        rungs.verdicts.append(wanted)
        if k + 1 in s.round_ends:
            rungs.temperature = equal_rejection(rungs.temperature, np.mean(rungs.verdicts, axis=0))
            rungs.verdicts = []

    labels = [particle.label for particle in rungs.particle]
    rung_of = [labels.index(replica) for replica in range(len(labels))]
    replicas = [rungs.particle[rung] for rung in rung_of]
    owned = zip(*((r.params, r.momentum, r.second_moment) for r in replicas), strict=True)
    ladder = (rungs.learning_rate, rungs.temperature, rungs.buffer)
    return rung_of, energy, wanted, swapped, list(rungs.gate), *ladder, *owned


def move(s: Settings, particle: Particle, eta: float, tau: float, noise: Noise) -> None:
    """Sampling phase (Eq. 6, appendix A.1): a particle moves at eta and tau of its rung."""
    theta, xi = particle.params, noise.move[particle.label]
    gradient_noise = _of(noise.gradient, particle.label)
    if s.energy_at == "before":  # the value that comes with the gradient
        particle.energy = float(s.energy(theta, gradient_noise))

    g = s.gradient(theta, gradient_noise) + s.weight_decay * theta
    if s.kernel == "sgld":
        theta = theta - eta * g + math.sqrt(2 * eta * tau) * xi
    elif s.kernel == "momentum":
        mu = s.momentum_decay
        particle.momentum = mu * particle.momentum + g + math.sqrt(2 * (1 - mu) * tau / eta) * xi
        theta = theta - eta * particle.momentum
    elif s.kernel == "preconditioned":
        particle.second_moment = s.rms_decay * particle.second_moment + (1 - s.rms_decay) * g**2
        scale = 1 / np.sqrt(particle.second_moment + s.rms_epsilon)
        theta = theta - eta * scale * g + np.sqrt(2 * eta * tau * scale) * xi
    else:
        raise ValueError(f"no kernel is called {s.kernel!r}")

    particle.params = theta
    if s.energy_at == "moved":
        particle.energy = float(s.energy(theta, _of(noise.energy, particle.label)))


def verdict(s: Settings, rungs: Rungs, pair: Pair, energy: Energies, log_u: Any) -> bool:
    """A^(p): does the rule want the particles on these two rungs, colder first, to swap?"""
    (cold, hot), (u_cold, u_hot) = pair, energy
    if not np.isfinite(energy).all():
        return False
    if s.rule == "deterministic":
        return bool(u_hot + rungs.buffer < u_cold)  # Eq. 7

    gap = 1 / rungs.temperature[cold] - 1 / rungs.temperature[hot]
    sigma = np.broadcast_to(s.energy_noise_std, len(rungs.gate))[cold]
    exponent = {
        "metropolis": gap * (u_cold - u_hot),  # Eq. 2
        "bias_corrected": gap * (u_cold - u_hot - gap * sigma**2),  # appendix A.1
        "window_corrected": gap * (u_cold - u_hot - gap * sigma**2) - s.window_correction,  # C.3
    }[s.rule]
    return bool(log_u < exponent)


def exchange(s: Settings, rungs: Rungs, noise: Noise, k: int, energy: list, wanted: list) -> list:
    """Communication phase of SEO, DEO, DEO_W: active pairs with an open gate may swap.

    Simultaneous verdicts come in as `wanted`. In the sequential reading every pair is judged
    when its turn comes, by fresh energies of whoever is there by then: `wanted` is overwritten.
    """
    odd = noise.odd if s.schedule == "seo" else (k // s.window) % 2 == 1
    swapped = []
    for i in range(len(rungs.gate)):
        p, pair, seen = i + 1, (i, i + 1), (energy[i], energy[i + 1])
        if s.verdicts == "sequential":
            seen = fresh_energies(s, rungs, pair, _of(noise.attempt_energy, i))
            wanted[i] = verdict(s, rungs, pair, seen, log_u=None)

        if k % s.window == 0:
            rungs.gate[i] = True
        active = (p % 2 == 1) == odd or not s.alternate
        last_chance = s.swaps == "exactly_one" and k % s.window == s.window - 1  # appendix A.4
        agreed = wanted[i] or (last_chance and np.isfinite(seen).all())
        swapped.append(bool(active and rungs.gate[i] and agreed))
        if swapped[i]:
            rungs.swap(*pair, s.rule)
            rungs.gate[i] = s.swaps == "no_gate"
    return swapped


def sweep(s: Settings, rungs: Rungs, noise: Noise) -> list:
    """Communication phase of ADJ (ascending) and APE (noise.order): one attempt after another.

    Exact energies travel with their particles. A noisy rule draws new ones for every attempt,
    or one lucky draw would carry its particle all the way.
    """
    ascending = [(i, i + 1) for i in range(len(rungs.gate))]
    swapped = []
    for attempt, pair in enumerate(ascending if s.schedule == "adj" else noise.order):
        if s.rule == "metropolis":
            energy = (rungs.particle[pair[0]].energy, rungs.particle[pair[1]].energy)
        else:
            energy = fresh_energies(s, rungs, pair, _of(noise.attempt_energy, attempt))
        swapped.append(verdict(s, rungs, pair, energy, _of(noise.attempt_log_uniform, attempt)))
        if swapped[attempt]:
            rungs.swap(*pair, s.rule)
    return swapped


def fresh_energies(s: Settings, rungs: Rungs, pair: Pair, noise: Any) -> Energies:
    """New energies of the two particles that are on these rungs now."""
    cold, hot = (rungs.particle[rung].params for rung in pair)
    return float(s.energy(cold, _of(noise, 0))), float(s.energy(hot, _of(noise, 1)))


def adapt_ladder(values: Array, wanted: list[bool], target: float, gain: float) -> Array:
    """Eq. 11 for learning rates: both ends fixed, the rest kept in order.

    A gap and its verdict belong to the same pair; Eq. 10-11 as printed mix two indices.
    """
    push = [math.exp(gain * (yes - target)) for yes in wanted]
    gap = [max(0.0, values[i + 1] - values[i]) * push[i] for i in range(len(push))]
    adapted = values.copy()
    for rung in range(1, len(values) - 1):
        forward, backward = values[rung - 1] + gap[rung - 1], values[rung + 1] - gap[rung]
        # Without the clip a rung that overshoots an end would be sorted into its place.
        adapted[rung] = min(max((forward + backward) / 2, values[0]), values[-1])
    return np.sort(adapted)


def equal_rejection(temperature: Array, rate: Array) -> Array:
    """Temperatures that cut the barrier, the sum of rejection rates, into equal parts.

    Between two rungs the barrier grows evenly in (1 / temperature)^(1/4). Rates are kept away from
    1, where the barrier would be flat.
    """
    rejection = 1.01 - rate
    barrier = [sum(rejection[:i]) for i in range(len(temperature))]
    place = [tau**-0.25 for tau in temperature]
    adapted = temperature.copy()
    for rung in range(1, len(temperature) - 1):
        wanted = barrier[-1] * rung / (len(temperature) - 1)
        pair = max(i for i in range(len(rejection)) if barrier[i] <= wanted)
        share = (wanted - barrier[pair]) / rejection[pair]
        adapted[rung] = (place[pair] + share * (place[pair + 1] - place[pair])) ** -4
    return adapted


def round_trips(rung_of: Array) -> int:
    """Trips coldest -> hottest -> coldest, summed over replicas; `rung_of` is (step, replica)."""
    hottest, trips = rung_of.shape[1] - 1, 0
    for path in rung_of.T.tolist():
        was_cold = was_hot_since = False
        for rung in path:
            if rung == 0:
                trips += was_hot_since
                was_cold, was_hot_since = True, False
            elif rung == hottest:
                was_hot_since = was_cold
    return trips


def _of(noise: Any, index: int) -> Any:
    return None if noise is None else noise[index]
