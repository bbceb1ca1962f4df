"""The library against the oracle: the same noise must give the same run, step by step.

The library changes two integers per swap, the oracle (`reference.py`) moves whole particles. Both
run in float64 on the same numbers, which `build_parts` draws and the oracle is handed.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from common import quick_jit
from mutants import flipped_verdict, gate_that_never_closes, wrong_parity

import replicax as rx
from replicax import algorithm, kernels, ladder, prng, schedule, swap
from replicax.chance import Chance
from replicax.ladder import Ladder, Tuning

NUM_STEPS = 300
SIGMA = 0.4
SIGMAS = (0.2, 0.6, 0.4, 0.5)  # one per pair

SCHEDULES: dict[str, tuple[schedule.Schedule, dict[str, Any]]] = {
    "deo": (schedule.deo(), {"schedule": "deo"}),
    "at_most_one": (schedule.windowed_deo(4), {"window": 4}),
    "exactly_one": (
        schedule.windowed_deo(3, "exactly_one"),
        {"window": 3, "swaps": "exactly_one"},
    ),
    "no_gate": (schedule.windowed_deo(4, "no_gate"), {"window": 4, "swaps": "no_gate"}),
    "lone_pair": (schedule.windowed_deo(2, alternate=False), {"window": 2, "alternate": False}),
    "seo": (schedule.seo(), {"schedule": "seo"}),
    "adj": (schedule.adj(), {"schedule": "adj"}),
    "ape": (schedule.ape(), {"schedule": "ape"}),
}
RULES: dict[str, tuple[swap.Rule, dict[str, Any]]] = {
    "deterministic": (swap.deterministic(), {}),
    "metropolis": (swap.metropolis(), {}),
    "bias_corrected": (swap.bias_corrected(SIGMA), {"energy_noise_std": SIGMA}),
    "bias_corrected_by_pair": (swap.bias_corrected(SIGMAS), {"energy_noise_std": SIGMAS}),
    "window_corrected": (
        swap.window_corrected(0.1, SIGMA),
        {"energy_noise_std": SIGMA, "window_correction": 0.1},
    ),
}
KERNELS: dict[str, tuple[Callable[..., rx.Kernel], dict[str, Any]]] = {
    "momentum": (functools.partial(kernels.momentum, 0.8), {"momentum_decay": 0.8}),
    "sgld": (kernels.sgld, {}),
    "preconditioned": (
        functools.partial(kernels.preconditioned, 0.95, 1e-3),
        {"rms_decay": 0.95, "rms_epsilon": 1e-3},
    ),
}


class Case(NamedTuple):
    """One combination of parts; the fields that most cases share have defaults."""

    schedule: str
    rule: str
    kernel: str = "momentum"
    energy_at: str = "moved"
    own_gradient: bool = False
    weight_decay: float = 0.0
    adapt: bool = True
    hot: bool = True  # noise on every rung; False: plain momentum SGD everywhere

    def __str__(self) -> str:
        parts = [self.schedule, self.rule, self.kernel, self.energy_at]
        parts += [name for name in ("own_gradient", "weight_decay") if getattr(self, name)]
        parts += [f"not {name}" for name in ("adapt", "hot") if not getattr(self, name)]
        return "-".join(parts)

    @property
    def num_replicas(self) -> int:
        return 2 if self.schedule == "lone_pair" else 5

    @property
    def learning_rate(self) -> np.ndarray:
        return np.geomspace(0.01, 0.04, self.num_replicas)

    @property
    def temperature(self) -> np.ndarray:
        if RULES[self.rule][0].uses_temperature:
            return np.geomspace(0.5, 2.5, self.num_replicas)
        return np.linspace(0.0, 1.5, self.num_replicas) if self.hot else np.zeros(self.num_replicas)

    @property
    def start(self) -> np.ndarray:
        return np.random.default_rng(7).normal(size=(self.num_replicas, 2))


# A tame target whose axes differ, tilted and shifted by noise: U~ = U + n_1 x / 2 + n_0 / 3.
STIFFNESS = np.array([1.0, 3.0])


def bowl(x: Any, noise: Any, dot: Any = np.dot) -> Any:
    exact = dot(STIFFNESS, x**2) / 2 + dot(x, x) ** 2 / 20 + x[0] / 5
    return exact + dot(noise[1:], x) / 2 + noise[0] / 3


def bowl_gradient(x: Any, noise: Any, dot: Any = np.dot) -> Any:
    return STIFFNESS * x + dot(x, x) * x / 5 + np.array([0.2, 0.0]) + noise[1:] / 2


def bowl_target(own_gradient: bool) -> rx.Target:
    return rx.Target(
        energy=lambda x, batch, noise: bowl(x, noise, jnp.dot),
        gradient=(lambda x, batch, noise: bowl_gradient(x, noise, jnp.dot))
        if own_gradient
        else None,
        noise=lambda key: jax.random.normal(key, (3,)),
    )


def gain(step: Any) -> Any:
    """In float64, unlike `rx.Gain`, so that both sides agree to the last digits."""
    return 20 / ((step * 1.0) ** 0.8 + 100)


def buffer_gain(step: Any) -> Any:
    return 2 * gain(step)


class Trace(NamedTuple):
    """Everything the library said, leading axis: step."""

    states: rx.State
    infos: rx.Info


def parts(case: Case) -> tuple[Callable, Callable, rx.State]:
    """`draw` and `advance` of the library, and where they start."""
    rule = RULES[case.rule][0]
    adapts = "temperature" if rule.uses_temperature else "learning_rate"
    tuning = Tuning(
        gain=gain,
        buffer_gain=buffer_gain,
        adapts=adapts if case.adapt else None,
        adapts_buffer=case.adapt and not rule.uses_temperature,
    )
    settings = rx.Settings(
        SCHEDULES[case.schedule][0], rule, tuning, case.energy_at, bool(case.temperature.any())
    )
    kernel = KERNELS[case.kernel][0](weight_decay=case.weight_decay)
    draw, advance = algorithm.build_parts(bowl_target(case.own_gradient), kernel, settings)
    rungs = Ladder(jnp.asarray(case.learning_rate), jnp.asarray(case.temperature))
    return draw, advance, rx.init(kernel, jnp.asarray(case.start), rungs, settings, buffer=0.1)


@functools.cache
def draw_everything(name: str) -> Callable[[jax.Array], Chance]:
    """All that any case with this schedule may draw, from a key, leading axis: step."""
    draw, _, state = parts(Case(name, "metropolis"))
    steps = jnp.arange(NUM_STEPS)
    return quick_jit(lambda key: jax.vmap(lambda step: draw(key, step, state.replicas))(steps))


@functools.cache
def drawn_fields(name: str, rule: str, energy_at: str, hot: bool) -> list[bool]:
    draw, _, state = parts(Case(name, rule, energy_at=energy_at, hot=hot))
    shapes = jax.eval_shape(draw, prng.make_key(11), jnp.array(0), state.replicas)
    return [field is not None for field in shapes]


def chances(case: Case, key: jax.Array | None = None) -> Chance:
    """The chance of every step, without the fields that the case does not draw."""
    name = case.schedule if case.schedule in ("lone_pair", "adj", "ape", "seo") else "deo"
    rule = "metropolis" if RULES[case.rule][0].uses_temperature else "deterministic"
    fields = drawn_fields(name, rule, case.energy_at, case.hot)
    every = draw_everything("seo" if name == "deo" else name)
    drawn = every(prng.make_key(11) if key is None else key)
    return Chance(*(values if needed else None for needed, values in zip(fields, drawn)))


def run_library(case: Case) -> Trace:
    with jax.enable_x64(True):
        _, advance, state = parts(case)

        def one_step(state: rx.State, chance: Chance):
            state, info = advance(chance, state)
            return state, Trace(state, info)

        scan = quick_jit(lambda state, chance: jax.lax.scan(one_step, state, chance)[1])
        return jax.device_get(scan(state, chances(case)))


def noise_of(case: Case) -> reference.Noise:
    with jax.enable_x64(True):
        chance = chances(case)
        still = np.zeros((NUM_STEPS, case.num_replicas, 2))
        move = still if chance.move is None else np.asarray(chance.move)
        noise = reference.Noise(
            move=-move if case.kernel == "sgld" else move,  # the library adds it to the gradient
            gradient=np.asarray(chance.gradient),
            energy=chance.energy,
            log_uniform=chance.log_uniform,
            odd=chance.odd,
        )
        if chance.attempts is not None:
            noise = noise._replace(
                order=chance.attempts.order,
                attempt_log_uniform=chance.attempts.log_uniform,
                attempt_energy=chance.attempts.energy,
            )
        return reference.Noise(*(None if x is None else np.asarray(x) for x in noise))


def run_oracle(case: Case) -> reference.Record:
    return reference.run(
        params=case.start,
        noise=noise_of(case),
        gradient=bowl_gradient,
        energy=bowl,
        learning_rate=case.learning_rate,
        temperature=case.temperature,
        rule=case.rule.removesuffix("_by_pair"),
        kernel=case.kernel,
        energy_at=case.energy_at,
        weight_decay=case.weight_decay,
        buffer=0.1,
        adapt=case.adapt,
        gain=gain,
        buffer_gain=buffer_gain,
        **SCHEDULES[case.schedule][1],
        **RULES[case.rule][1],
        **KERNELS[case.kernel][1],
    )


library = functools.cache(run_library)
oracle = functools.cache(run_oracle)


def pairs_swapped(case: Case, record: reference.Record) -> np.ndarray:
    """Which adjacent pairs swapped; the oracle counts the attempts of ADJ and APE one by one."""
    if case.schedule == "ape":
        swapped = np.zeros((NUM_STEPS, case.num_replicas - 1), bool)
        step, attempt = np.nonzero(record.swapped)
        cold, hot = noise_of(case).order[step, attempt].T
        adjacent = hot == cold + 1
        swapped[step[adjacent], cold[adjacent]] = True
        return swapped
    return record.swapped.astype(bool)


def not_yet_swapped(case: Case, swapped: np.ndarray) -> np.ndarray:
    """G^(p) spelled out: a swap closes it, the first step of a window opens it."""
    window = SCHEDULES[case.schedule][0].window
    gate = np.ones_like(swapped)
    for step in range(len(swapped)):
        before = gate[step - 1] if step % window else True
        gate[step] = before & ~swapped[step]
    return gate


def assert_same_run(case: Case, trace: Trace, record: reference.Record) -> None:
    states, infos = trace
    np.testing.assert_array_equal(states.rung_of, record.rung_of)
    swapped = pairs_swapped(case, record)
    np.testing.assert_array_equal(infos.wanted, record.wanted)
    np.testing.assert_array_equal(infos.swapped, swapped)
    # Where no gate holds a swap back the library still notes in which windows there was one.
    gated = case.schedule not in ("no_gate", "adj", "ape")
    np.testing.assert_array_equal(
        states.gate, record.gate if gated else not_yet_swapped(case, swapped)
    )
    memory = {"momentum": "trace", "preconditioned": "nu"}.get(case.kernel)
    kept = {"trace": record.momentum, "nu": record.second_moment}.get(memory or "")
    compared = [
        (infos.energy, record.energy),
        (states.replicas.params, record.params),
        (states.ladder.learning_rate, record.learning_rate),
        (states.ladder.temperature, record.temperature),
        (states.buffer, record.buffer),
    ]
    if memory is not None:
        compared.append((getattr(states.replicas.memory, memory), kept))
    for ours, theirs in compared:
        assert ours.dtype == np.float64
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-10)


def with_momentum() -> list[Case]:
    """Every schedule with every rule; momentum on, everything adapting."""
    rules = [rule for rule in RULES if rule != "bias_corrected_by_pair"]
    return [Case(name, rule) for name in SCHEDULES for rule in rules]


OTHERS = [
    *[Case(name, "bias_corrected_by_pair") for name in ("at_most_one", "adj")],
    *[Case(name, "deterministic", energy_at="before") for name in ("exactly_one", "seo", "ape")],
    Case("at_most_one", "metropolis", energy_at="before"),
    Case("at_most_one", "deterministic", "sgld", own_gradient=True),
    Case("adj", "bias_corrected", "sgld", own_gradient=True, adapt=False),
    Case("at_most_one", "deterministic", "preconditioned", weight_decay=0.3),
    Case("seo", "metropolis", "preconditioned", own_gradient=True),
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


def window_one_step_late(made, step, true=schedule.window_opens):
    return true(made, step - 1)


def swap_that_keeps_home(index, swapped):
    return index


def half_a_swap(index, cold, hot, swapped, true=swap.swap_two):
    return true(index, cold, hot, swapped)._replace(replica_at=index.replica_at)


def climber_seen_from_above(index, attempts, wanted, true=swap.ascend):
    return true(index, attempts, lambda attempt, cold, hot: wanted(attempt, hot, cold))


def no_correction(pair, window_correction=0.0, true=swap.log_swap_probability):
    return true(pair._replace(energy_noise_var=0.0), window_correction)


def ladder_the_wrong_way(rungs, wanted, target, gain, true=ladder.adapt_rungs):
    return true(rungs, ~wanted, 1 - target, gain)


def buffer_the_wrong_way(buffer, wanted, target, gain, true=ladder.adapt_buffer):
    return true(buffer, ~wanted, 1 - target, gain)


MUTANTS = [
    (swap.Rule, "wanted", flipped_verdict, Case("at_most_one", "deterministic")),
    (schedule, "active_pairs", wrong_parity, Case("at_most_one", "deterministic")),
    (schedule, "swapping_pairs", gate_that_never_closes, Case("at_most_one", "deterministic")),
    (schedule, "window_opens", window_one_step_late, Case("at_most_one", "deterministic")),
    (swap, "swap_adjacent", swap_that_keeps_home, Case("deo", "deterministic")),
    (swap, "swap_two", half_a_swap, Case("ape", "metropolis")),
    (swap, "ascend", climber_seen_from_above, Case("adj", "metropolis")),
    (swap, "log_swap_probability", no_correction, Case("at_most_one", "bias_corrected")),
    (ladder, "adapt_rungs", ladder_the_wrong_way, Case("deo", "deterministic")),
    (ladder, "adapt_buffer", buffer_the_wrong_way, Case("deo", "deterministic")),
]


@pytest.mark.parametrize(
    ("room", "name", "mutant", "case"), MUTANTS, ids=[m[2].__name__ for m in MUTANTS]
)
def test_a_mutant_differs_from_the_oracle(room, name, mutant, case, monkeypatch) -> None:
    record = oracle(case)
    monkeypatch.setattr(room, name, mutant)
    trace = run_library(case)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_same_run(case, trace, record)


def test_built_steps_draw_the_same_chance_one_by_one() -> None:
    case = Case("seo", "metropolis")
    with jax.enable_x64(True):
        _, _, state = parts(case)
        kernel = KERNELS[case.kernel][0]()
        tuning = Tuning(gain=gain, adapts="temperature", adapts_buffer=False)
        settings = rx.Settings(schedule.seo(), swap.metropolis(), tuning)
        step = quick_jit(rx.build_step(bowl_target(False), kernel, settings))
        for k in range(20):
            state, info = step(prng.make_key(11), state)
            np.testing.assert_array_equal(state.rung_of, library(case).states.rung_of[k])
            np.testing.assert_allclose(info.energy, library(case).infos.energy[k], rtol=1e-9)
        assert int(state.step) == 20


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_sampled_chain_equals_the_oracle() -> None:
    """Through the compiled loop and its records: draws are of the cold rung after the swap."""
    case, seed, chain = Case("at_most_one", "deterministic"), 5, 0
    with jax.enable_x64(True):
        posterior = rx.sample(
            bowl_target(False),
            rx.per_replica(case.start),
            num_steps=NUM_STEPS,
            learning_rate=case.learning_rate,
            temperature=case.temperature,
            schedule=SCHEDULES[case.schedule][0],
            kernel=KERNELS[case.kernel][0](),
            gain=gain,
            buffer_gain=buffer_gain,
            buffer=0.1,
            seed=seed,
            history_every=60,
            chunk_steps=100,
            progress=False,
        )
        run_key, _ = jax.random.split(prng.make_key(seed))
        chance = jax.device_get(chances(case, jax.random.fold_in(run_key, chain)))
    noise = reference.Noise(chance.move, chance.gradient, chance.energy)
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


@pytest.mark.parametrize("rule", ["deterministic", "metropolis"])
@pytest.mark.parametrize("name", ["at_most_one", "exactly_one", "lone_pair", "deo"])
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


@pytest.mark.parametrize("rule", ["deterministic", "metropolis"])
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
