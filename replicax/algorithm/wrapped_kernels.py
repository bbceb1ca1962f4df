"""Kernels around other kernels: learning rates or temperatures that change with time, and gradients
that are cut to a greatest length.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from replicax.algorithm.kernel import Kernel, PyTree, Replica, TimedMemory, check_of_step, select
from replicax.algorithm.ladder import Ladder
from replicax.errors import (
    at_least,
    check_flag,
    check_number,
    is_whole,
    show,
)

_SHARE = lambda x: 0 < x <= 1, "it must lie in (0, 1]"
_SMALLEST = 1e-6  # of a factor of the learning rate, by which noise is divided


def cyclical(
    kernel: Kernel, cycle_length: int, exploitation: float = 0.05, hold: bool = False
) -> Kernel:
    """Return a kernel under a cosine learning rate that restarts every cycle (Zhang et al. 2020).

        eta_k = eta cos(pi t / 2)^2,  t = (k mod cycle_length) / cycle_length

    Noise is injected and draws are taken only in the last part of a cycle, `exploitation` of it.
    With `hold` the learning rate falls no further in that part. For single-chain baselines.
    """
    at_least("cycle_length", cycle_length, 2)
    check_number("exploitation", exploitation, *_SHARE)
    check_flag("hold", hold)
    begins = cycle_length - max(1, round(exploitation * cycle_length))

    def exploits(step: Any) -> Any:
        return step % cycle_length >= begins

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        place = count % cycle_length
        place = jnp.minimum(place, begins) if hold else place
        # cos(pi t / 2) as a sine of what is left of the cycle: never rounded to 0, by which
        # noise would be divided; 1 + cos(pi t) is 0 in float32 at the end of long cycles.
        rate = jnp.sin(0.5 * jnp.pi * (cycle_length - place) / cycle_length) ** 2
        temperature = rung.temperature * exploits(count)
        return rung._replace(learning_rate=rung.learning_rate * rate, temperature=temperature)

    options = {"cycle_length": cycle_length, "exploitation": exploitation, "hold": hold}
    caveat = "It moves without noise in most of a cycle: it is for runs without exchange."
    cycles = timed(kernel, rung_at, "cyclical", options)
    return cycles.having(exploits=exploits, caveat=kernel.traits.caveat or caveat)


def annealed(
    kernel: Kernel, num_steps: int, learning_rate: float = 1.0, temperature: float = 1.0
) -> Kernel:
    """Return a kernel that cools: simulated annealing, each replica by itself.

        eta_k = eta learning_rate^t,  tau_k = tau temperature^t,  t = min(k / num_steps, 1)

    `learning_rate` and `temperature` are what is left of the rung's own after `num_steps`.
    """
    at_least("num_steps", num_steps, 1)
    check_number("learning_rate", learning_rate, *_SHARE)
    check_number("temperature", temperature, *_SHARE)

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        done = jnp.minimum(count / num_steps, 1.0)
        return rung._replace(
            learning_rate=rung.learning_rate * learning_rate**done,
            temperature=rung.temperature * temperature**done,
        )

    options = {"num_steps": num_steps, "learning_rate": learning_rate, "temperature": temperature}
    cooling = timed(kernel, rung_at, "annealed", options)
    if temperature == 1:
        return cooling
    caveat = "Its moves become colder than their rung, by whose temperature replicas swap."
    return cooling.having(caveat=kernel.traits.caveat or caveat)


def stepwise(kernel: Kernel, falls: Sequence[int], factor: float) -> Kernel:
    """Return a kernel whose learning rate is multiplied by `factor` at the steps `falls`."""
    if not isinstance(falls, Sequence) or any(not is_whole(fall) or fall < 0 for fall in falls):
        raise ValueError(f"falls is {show(falls)}; give a list of steps of at least 0.")
    check_number("factor", factor, lambda x: x > 0, "it must be a number above 0")

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        passed = jnp.sum(count >= jnp.array(falls, jnp.int32))
        return rung._replace(learning_rate=rung.learning_rate * factor**passed)

    return timed(kernel, rung_at, "stepwise", {"falls": list(falls), "factor": factor})


def cosine(
    kernel: Kernel,
    num_steps: int,
    warmup_steps: int = 0,
    final: float = 0.0,
    while_cold: bool = False,
) -> Kernel:
    """Return a kernel whose learning rate falls along half a cosine, to `final` of it.

    For `warmup_steps` steps before it rises from 0 in a straight line. With `while_cold` only rungs
    of temperature 0 do so, and others keep their rates.
    """
    at_least("num_steps", num_steps, 1)
    at_least("warmup_steps", warmup_steps, 0)
    if warmup_steps >= num_steps:
        raise ValueError(
            f"warmup_steps is {warmup_steps} of num_steps={num_steps}: write fewer, so that there "
            "is a time in which the learning rate falls."
        )
    check_number("final", final, lambda x: 0 <= x <= 1, "it must lie in [0, 1]")
    falling = _times(_warm_cosine(num_steps, warmup_steps, final))

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        after = falling(rung, count)
        return select(rung.temperature > 0, rung, after) if while_cold else after

    options = {"num_steps": num_steps, "warmup_steps": warmup_steps, "final": final}
    options |= {"while_cold": True} if while_cold else {}
    return timed(kernel, rung_at, "cosine", options)


def _warm_cosine(num_steps: int, warmup_steps: int, final: float = 0.0) -> Callable:
    start = 1 / (warmup_steps + 1)  # the first step is one of the warm-up, not one of rate 0
    return optax.warmup_cosine_decay_schedule(start, 1.0, warmup_steps, num_steps, final)


def pretrained(kernel: Kernel, num_steps: int, learning_rate: float) -> Kernel:
    """Return a kernel that trains for `num_steps` before it samples, whatever its rung.

    Without noise, at a learning rate that rises in a twentieth of these steps and then falls along
    half a cosine to 0. The clock of a schedule inside begins after them.
    """
    at_least("num_steps", num_steps, 1)
    check_number("learning_rate", learning_rate, lambda x: x > 0, "it must be a number above 0")
    factor = _times(_warm_cosine(num_steps, num_steps // 20))
    traits = kernel.traits

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        trains = count < num_steps
        rate = jnp.asarray(learning_rate, rung.learning_rate.dtype)
        training = factor(rung._replace(learning_rate=rate), count)
        return rung._replace(
            learning_rate=jnp.where(trains, training.learning_rate, rung.learning_rate),
            temperature=jnp.where(trains, 0.0, rung.temperature).astype(rung.temperature.dtype),
        )

    options = {"num_steps": num_steps, "learning_rate": learning_rate}
    begun = timed(kernel, rung_at, "pretrained", options)

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        trains = replica.memory.count < num_steps
        replica, *seen = begun.step(noise, replica, evaluate, rung)
        count, inner = replica.memory
        if traits.keeps_time and isinstance(inner, TimedMemory):
            inner = inner._replace(count=jnp.where(trains, 0, inner.count))
        return Replica(replica.params, TimedMemory(count, inner)), *seen

    exploits = traits.exploits
    if exploits is not None:
        begun = begun.having(exploits=lambda step: (step >= num_steps) & exploits(step - num_steps))
    return begun._replace(step=step)


def scheduled(kernel: Kernel, schedule: Callable[[Any], Any]) -> Kernel:
    """Return a kernel whose learning rate is multiplied by `schedule(step)`, any of optax's.

    A factor below a millionth counts as that: noise is divided by the learning rate.

    >>> import optax, replicax as rx
    >>> fall = optax.exponential_decay(1.0, transition_steps=1000, decay_rate=0.5)
    >>> kernel = scheduled(rx.kernels.momentum(), fall)
    """
    check_of_step("schedule", schedule)
    check_factors("The schedule of learning rates", schedule, 1)
    return timed(kernel, _times(schedule), "scheduled", None)


def check_factors(name: str, schedule: Callable[[Any], Any], num_steps: int) -> None:
    """Raise unless a schedule is finite in a run of so many steps, at a thousand of them."""
    steps = np.unique(np.linspace(0, num_steps - 1, 1000).astype(np.int32))
    factors = np.asarray(jax.jit(jax.vmap(lambda step: jnp.asarray(schedule(step))))(steps))
    broken = np.flatnonzero(~np.isfinite(factors))
    if broken.size:
        raise ValueError(
            f"{name} is {factors[broken[0]]} at step {steps[broken[0]]}; it must return a finite "
            "number, by which learning rates are multiplied."
        )


def _times(factor: Callable[[Any], Any]) -> Callable[[Ladder, Array], Ladder]:
    """Return the rung with its learning rate multiplied by `factor(step)`."""

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        change = jnp.maximum(jnp.asarray(factor(count), rung.learning_rate.dtype), _SMALLEST)
        return rung._replace(learning_rate=rung.learning_rate * change)

    return rung_at


def timed(
    kernel: Kernel,
    rung_at: Callable[[Ladder, Array], Ladder],
    name: str,
    options: dict | None,
) -> Kernel:
    """Return a kernel whose rung depends on a count of its steps, which its replica keeps.

    The one way to wrap a kernel in a schedule of rates; `name` and `options` make it again, unless
    they are None.
    """
    _check_wrapped(kernel, name, "changes the learning rate with time")
    traits = kernel.traits

    def init(params: PyTree) -> Replica:
        replica = kernel.init(params)
        return Replica(params, TimedMemory(jnp.array(0, jnp.int32), replica.memory))

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        count, inner = replica.memory
        inner = Replica(replica.params, inner)
        inner, *seen = kernel.step(noise, inner, evaluate, rung_at(rung, count))
        return Replica(inner.params, TimedMemory(count + 1, inner.memory)), *seen

    def change_rung(replica: Replica, old: Ladder, new: Ladder) -> Replica:
        count, inner = replica.memory
        assert traits.change_rung is not None
        inner = Replica(replica.params, inner)
        inner = traits.change_rung(inner, rung_at(old, count), rung_at(new, count))
        return Replica(inner.params, TimedMemory(count, inner.memory))

    spec = None
    if traits.spec is not None and options is not None:
        spec = {"name": name, **options, "kernel": traits.spec}
    changes = None if traits.change_rung is None else change_rung
    timed_kernel = kernel._replace(init=init, step=step)
    return timed_kernel.having(keeps_time=True, spec=spec, change_rung=changes)


def _check_wrapped(kernel: object, name: str, changes: str) -> None:
    """Raise unless a kernel can be wrapped in `kernels.NAME`, which changes rate or gradient."""
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"The kernel in kernels.{name} is {show(kernel)}; give one that is made, such as "
            "rx.kernels.sgld()."
        )
    if kernel.traits.observes:
        raise ValueError(
            f'kernels.{name} {changes}, and "hmc" and "mala" tune their own steps: wrap another '
            "kernel."
        )


def clipped(kernel: Kernel, max_norm: float) -> Kernel:
    """Return a kernel whose gradient, of all parameters together, is at most `max_norm` long.

        g <- g min(1, max_norm / |g|)

    The gradient is that of the energy and of its prior; weight decay of the kernel itself and
    noise come after. The law of the kernel is then not exp(-U / tau), where it clips.
    """
    check_number("max_norm", max_norm, lambda x: x > 0, "it must be a number above 0")
    _check_wrapped(kernel, "clipped", "changes the gradient")
    clip = optax.clip_by_global_norm(max_norm)

    def step(noise: Any, replica: Any, evaluate: Callable, rung: Ladder):
        def evaluate_clipped(params: PyTree) -> tuple[Any, Any]:
            energy, gradient = evaluate(params)
            return energy, clip.update(gradient, optax.EmptyState())[0]

        return kernel.step(noise, replica, evaluate_clipped, rung)

    spec = kernel.traits.spec
    if spec is not None:
        spec = {"name": "clipped", "max_norm": max_norm, "kernel": spec}
    caveat = "Its gradients are clipped: leave that out."
    return kernel._replace(step=step).having(spec=spec, caveat=kernel.traits.caveat or caveat)
