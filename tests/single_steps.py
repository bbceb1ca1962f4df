"""Single steps of Algorithm 1 on a ladder that stands still, and energies that break."""

from typing import Any

import jax.numpy as jnp
from common import quick_jit

import replicax as rx
from replicax.algorithm import kernels, schedule, swap
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.tuning import Tuning

FROZEN = Tuning(adapts=None, adapts_buffer=False)


def steep(x: Any) -> Any:
    """Gradient steps of rate 2 diverge from beyond 1, faster and faster, to infinity."""
    return jnp.sum(x**4) / 4


def with_state(x: Any, state: Any, batch: Any, key: Any) -> tuple[Any, Any]:
    return steep(x), {"met": x, "count": state["count"] + 1}


def step_and_state(
    target: Any,
    params: Any,
    learning_rate: list[float],
    kernel: Any = None,
    model_state: Any = None,
    buffer: float = 0.0,
    **settings: Any,
):
    """A step of Algorithm 1, compiled, and the state it starts from."""
    kernel = kernels.momentum(0.5) if kernel is None else kernel
    settings = rx.algorithm.Settings(tuning=FROZEN, langevin=False, **settings)
    rates = jnp.array(learning_rate)
    state = rx.algorithm.init(
        kernel,
        params,
        rx.algorithm.Ladder(rates, 0 * rates),
        settings,
        buffer,
        model_state=model_state,
    )
    return quick_jit(rx.algorithm.build_step(target, kernel, settings)), state


def stand_still() -> rx.kernels.Kernel:
    def step(noise, replica, evaluate, rung):
        return replica, jnp.zeros(()), None

    return rx.kernels.Kernel(
        init=lambda params: rx.kernels.Replica(params, ()),
        step=step,
        draw=lambda key, replica: jnp.zeros(()),
    )


def told_energies(made: schedule.Schedule, rule: swap.Rule, num_replicas: int, **options: Any):
    """`step(key, state, energies)`, energies by replica, and a state to start from."""
    target = rx.Target(
        energy=lambda number, energies, noise: energies[number.astype(int)],
        gradient=lambda number, energies, noise: jnp.zeros(()),
        noise=lambda key: jnp.zeros(()),
    )
    buffer, every = options.pop("buffer", 0.0), options.pop("swap_every", 1)
    tuning = Tuning(**({"adapts": None, "adapts_buffer": False} | options))
    settings = rx.algorithm.Settings(made, rule, tuning, swap_every=every)
    rungs = Ladder(*(jnp.linspace(1.0, 2.0, num_replicas) for _ in range(2)))
    numbers = jnp.arange(num_replicas, dtype=jnp.float32)
    state = rx.algorithm.init(stand_still(), numbers, rungs, settings, buffer)
    return rx.algorithm.build_step(target, stand_still(), settings), state
