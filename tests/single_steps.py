"""Single steps of Algorithm 1 on a ladder that stands still, and energies that break."""

from typing import Any

import jax.numpy as jnp
from common import quick_jit

import replicax as rx
from replicax.algorithm import kernels
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
    settings = rx.Settings(tuning=FROZEN, langevin=False, **settings)
    rates = jnp.array(learning_rate)
    state = rx.init(
        kernel, params, rx.Ladder(rates, 0 * rates), settings, buffer, model_state=model_state
    )
    return quick_jit(rx.build_step(target, kernel, settings)), state
