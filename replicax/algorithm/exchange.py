"""The decisions of a step, which need energies alone: exchange, then adaptation.

`decide` takes them for replicas that the engine moves (`step.py`), and for those that a training
loop of another library moves (`replicax.torch`).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import energy_noise
from replicax.algorithm.energy_noise import EnergySource
from replicax.algorithm.kernel import Observed
from replicax.algorithm.randomness import Attempts, Randomness
from replicax.algorithm.schedule import Sequential
from replicax.algorithm.state import Info, Settings, State
from replicax.algorithm.swap import Index, RuleInForce, swap_adjacent
from replicax.algorithm.tuning import tune, tune_step_sizes, tune_temperatures


def decide(
    settings: Settings,
    random: Randomness,
    state: State,
    energy_of: Array,
    *,
    deciding_energies: Callable[[], tuple[Array, EnergySource]] | None = None,
    settle: Callable[[State], State] = lambda after: after,
    broken: Array | None = None,
    observed: Observed | None = None,
) -> tuple[State, Info]:
    """Exchange rungs and adapt the ladder, given the energy of every replica.

    `deciding_energies()`, if given, returns the energies that decide instead of `energy_of`, and
    their source for rules that need more of them; `settle(after)` changes the memory of replicas
    after swaps. Both are called only at steps that attempt swaps. `broken` and `observed` are by
    replica.
    """

    def attempt() -> tuple[State, Array, Array, Array, Array]:
        energies, source = (energy_of, None) if deciding_energies is None else deciding_energies()
        after, wanted, swapped, active = exchange(settings, random, state, energies, source)
        return settle(after), energies, wanted, swapped, active

    def skip() -> tuple[State, Array, Array, Array, Array]:
        none = jnp.zeros(state.gate.shape, bool)
        return state, energy_of, none, none, none

    attempted = settings.attempts_swap(state.step)
    always = settings.swap_every == 1
    chosen = attempt() if always else jax.lax.cond(attempted, attempt, skip)
    after, energy_of, wanted, swapped, active = chosen
    at = state.replica_at
    restarted = jnp.zeros(at.shape, bool) if broken is None else broken[at]
    observed = jax.tree.map(lambda by_replica: by_replica[at], observed)
    info = Info(energy_of[at], wanted, swapped, active, restarted, attempted, observed)
    return adapt(settings, after, info), info


def exchange(
    settings: Settings,
    random: Randomness,
    state: State,
    energy_of: Array,
    source: EnergySource | None = None,
) -> tuple[State, Array, Array, Array]:
    """Exchange phase: active pairs with an open gate swap if the rule accepts.

    Returns the state and, for each pair, whether it wanted to swap, swapped and was active. Rules
    that estimate noise, and schedules in sequence with noisy energies, need a `source`.
    """
    num_pairs = state.gate.shape[0]
    rule, schedule, attempt = settings.rule, settings.schedule, settings.attempt(state.step)
    noise = None
    if rule.estimates_noise:
        assert source is not None
        noise = energy_noise.estimate(rule, random, state, source)
    in_force = RuleInForce(rule, state.ladder.temperature, state.buffer)
    energy, cold = energy_of[state.replica_at], jnp.arange(num_pairs)
    may_swap = ~settings.tuning.measuring(state.step)
    wanted = may_swap & in_force.verdict(
        cold,
        cold + 1,
        energy[:-1],
        energy[1:],
        random.log_uniform,
        None if noise is None else noise.of_pairs(state.replica_at),
    )
    active = schedule.active_pairs(attempt, random.schedule, num_pairs)
    gate = state.gate | schedule.window_opens(attempt)
    index = Index(state.rung_of, state.replica_at)
    if isinstance(schedule, Sequential):
        assert random.attempts is not None
        verdict = _build_verdict(in_force, may_swap, energy_of, source, noise)
        index, swapped = schedule.sweep(index, random.attempts, verdict)
    else:
        finite = may_swap & jnp.isfinite(energy[:-1]) & jnp.isfinite(energy[1:])
        swapped = schedule.swapping_pairs(attempt, active, gate, wanted, finite)
        index = swap_adjacent(index, swapped)
    after = state._replace(
        rung_of=index.rung_of,
        replica_at=index.replica_at,
        gate=gate & ~swapped,
        energy_noise_var=state.energy_noise_var if noise is None else noise.by_rung,
    )
    return after, wanted, swapped, active


def _build_verdict(
    in_force: RuleInForce,
    may_swap: Array,
    energy_of: Array,
    source: EnergySource | None,
    noise: energy_noise.Noise | None,
) -> Callable[[Attempts, Array, Array], Array]:
    """Build `verdict(attempt, cold_replica, hot_replica)` for sequential schedules."""

    def verdict(attempt: Attempts, cold_replica: Array, hot_replica: Array) -> Array:
        (cold, hot), pair = attempt.order, (cold_replica, hot_replica)
        if in_force.rule.assumes_exact_energies:
            cold_energy, hot_energy = (energy_of[replica] for replica in pair)
        else:
            assert source is not None
            cold_energy, hot_energy = source.energy_pair(attempt, *pair, energy_of.dtype)
        noise_var = None if noise is None else noise.of_two(attempt.order, pair)
        return may_swap & in_force.verdict(
            cold, hot, cold_energy, hot_energy, attempt.log_uniform, noise_var
        )

    return verdict


def adapt(settings: Settings, state: State, info: Info) -> State:
    """Adapt ladder, buffer and step sizes: equal swap rates along the ladder, with the target rate
    as their mean if the rule has one."""
    tuning, energy, wanted = settings.tuning, info.energy, info.wanted
    ladder, buffer, unit = tune(
        tuning, state.step, state.ladder, state.buffer, state.energy_unit, energy, wanted
    )
    verdicts, sizes = state.verdicts, state.step_sizes
    if tuning.step_sizes is not None:
        ladder, sizes = tune_step_sizes(tuning.step_sizes, state.step, ladder, sizes, info.observed)
    if tuning.adapts == "temperature":
        temperature, verdicts = tune_temperatures(
            tuning.barrier, state.step, ladder.temperature, verdicts, wanted, info.attempted
        )
        ladder = ladder._replace(temperature=temperature)
    return state._replace(
        step=state.step + 1,
        ladder=ladder,
        buffer=buffer,
        energy_unit=unit,
        verdicts=verdicts,
        step_sizes=sizes,
    )
