"""Cases in which the library must equal the oracle, and both run on the same noise.

The library changes two integers per swap, the oracle (`reference.py`) moves whole particles. Both
run in float64 on the same numbers, which `build_parts` draws and the oracle is handed.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import reference
from common import quick_jit

import replicax as rx
from replicax.algorithm import kernels, randomness, schedule, swap
from replicax.algorithm import step as algorithm
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.tuning import Tuning

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
KERNELS: dict[str, tuple[Callable[..., rx.kernels.Kernel], dict[str, Any]]] = {
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

    states: rx.algorithm.State
    infos: rx.algorithm.Info


def parts(case: Case) -> tuple[Callable, Callable, rx.algorithm.State]:
    """`draw` and `advance` of the library, and where they start."""
    rule = RULES[case.rule][0]
    adapts = "temperature" if rule.uses_temperature else "learning_rate"
    tuning = Tuning(
        gain=gain,
        buffer_gain=buffer_gain,
        adapts=adapts if case.adapt else None,
        adapts_buffer=case.adapt and not rule.uses_temperature,
    )
    settings = rx.algorithm.Settings(
        SCHEDULES[case.schedule][0],
        rule,
        tuning,
        case.energy_at,
        langevin=bool(case.temperature.any()),
    )
    kernel = KERNELS[case.kernel][0](weight_decay=case.weight_decay)
    draw, advance = algorithm.build_parts(bowl_target(case.own_gradient), kernel, settings)
    rungs = Ladder(jnp.asarray(case.learning_rate), jnp.asarray(case.temperature))
    return (
        draw,
        advance,
        rx.algorithm.init(kernel, jnp.asarray(case.start), rungs, settings, buffer=0.1),
    )


@functools.cache
def draw_everything(name: str) -> Callable[[jax.Array], Randomness]:
    """All that any case with this schedule may draw, from a key, leading axis: step."""
    draw, _, state = parts(Case(name, "metropolis"))
    steps = jnp.arange(NUM_STEPS)
    return quick_jit(lambda key: jax.vmap(lambda step: draw(key, step, state.replicas))(steps))


@functools.cache
def drawn_fields(name: str, rule: str, energy_at: str, hot: bool) -> list[bool]:
    draw, _, state = parts(Case(name, rule, energy_at=energy_at, hot=hot))
    shapes = jax.eval_shape(draw, randomness.make_key(11), jnp.array(0), state.replicas)
    return [field is not None for field in shapes]


def draws_of(case: Case, key: jax.Array | None = None) -> Randomness:
    """The randomness of every step, without the fields that the case does not draw."""
    name = case.schedule if case.schedule in ("lone_pair", "adj", "ape", "seo") else "deo"
    rule = "metropolis" if RULES[case.rule][0].uses_temperature else "deterministic"
    fields = drawn_fields(name, rule, case.energy_at, case.hot)
    every = draw_everything("seo" if name == "deo" else name)
    drawn = every(randomness.make_key(11) if key is None else key)
    return Randomness(*(values if needed else None for needed, values in zip(fields, drawn)))


def run_library(case: Case) -> Trace:
    with jax.enable_x64(True):
        _, advance, state = parts(case)

        def one_step(state: rx.algorithm.State, random: Randomness):
            state, info = advance(random, state)
            return state, Trace(state, info)

        scan = quick_jit(lambda state, random: jax.lax.scan(one_step, state, random)[1])
        return jax.device_get(scan(state, draws_of(case)))


def noise_of(case: Case) -> reference.Noise:
    with jax.enable_x64(True):
        random = draws_of(case)
        still = np.zeros((NUM_STEPS, case.num_replicas, 2))
        move = still if random.move is None else np.asarray(random.move)
        noise = reference.Noise(
            move=-move if case.kernel == "sgld" else move,  # the library adds it to the gradient
            gradient=np.asarray(random.gradient),
            energy=random.energy,
            log_uniform=random.log_uniform,
            odd=random.schedule,
        )
        if random.attempts is not None:
            noise = noise._replace(
                order=random.attempts.order,
                attempt_log_uniform=random.attempts.log_uniform,
                attempt_energy=random.attempts.energy,
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
        # Ladders that adapt let rounding errors grow to 1e-10, and momentum follows the ladder.
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-8)
