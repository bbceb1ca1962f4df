"""Transition kernels: how one replica moves with the hyper-parameters of its rung.

A kernel is one gradient, one optax transform and one rung:

    g <- gradient + weight decay + gradient of the prior
    theta <- theta - eta * transform(g) + noise at temperature tau

Temperature 0 is plain SGD, momentum SGD, ...: the same kernel, without noise.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from replicax.algorithm.ladder import Ladder


class Replica(NamedTuple):
    """A particle; all of it travels together when the replica swaps rungs."""

    params: Any
    memory: Any  # momentum, preconditioner, counters: the state of its kernel


class Kernel(NamedTuple):
    """A transition kernel of one replica.

    `step(noise, replica, evaluate, rung)` returns the moved replica and the energy before the
    move; `evaluate(params)` returns (energy, gradient) on this step's mini-batch and `rung` is
    a `Ladder` of two scalars. `draw(key, replica)` makes the noise, from shapes alone; `step`
    gets None in its place where no rung has a temperature. Any replica type with `.params` will
    do.
    """

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Callable, Ladder], tuple[Any, Array]]
    draw: Callable[[Array, Any], Any]
    exploits: Callable[[Any], Any] | None = None  # step -> may a draw be taken? None: always
    has_own_prior: bool = False  # weight decay or prior: moves feel it, energies do not
    keeps_time: bool = False  # whether its memory counts steps
    spec: dict | None = None  # name and options, to make the kernel again when a run resumes


def sgld(*, weight_decay: float = 0.0, prior: Callable | None = None) -> Kernel:
    """Stochastic gradient Langevin dynamics; at temperature 0, SGD (Eq. 6).

        theta <- theta - eta (g + sqrt(2 tau / eta) xi)

    Preserves exp(-U / tau) up to O(eta) and the gradient's own noise.
    """
    return _noise_in_gradient(optax.identity(), 0.0, {"name": "sgld"}, weight_decay, prior)


def momentum(
    decay: float = 0.9, *, weight_decay: float = 0.0, prior: Callable | None = None
) -> Kernel:
    """Momentum SGD; at a temperature above 0, SGHMC with friction 1 - decay.

        v <- decay v + g + sqrt(2 (1 - decay) tau / eta) xi;    theta <- theta - eta v

    The momentum is not scaled by the learning rate, so that a new rung acts at once.
    """
    if not 0 <= decay < 1:
        raise ValueError(f"decay is {decay}; momentum needs 0 <= decay < 1.")
    spec = {"name": "momentum", "decay": decay}
    return _noise_in_gradient(optax.trace(decay), decay, spec, weight_decay, prior)


def sghmc(
    friction: float = 0.1, *, weight_decay: float = 0.0, prior: Callable | None = None
) -> Kernel:
    """Stochastic gradient Hamiltonian Monte Carlo: `momentum` with decay 1 - friction."""
    if not 0 < friction <= 1:
        raise ValueError(f"friction is {friction}; sghmc needs 0 < friction <= 1.")
    return momentum(1 - friction, weight_decay=weight_decay, prior=prior)


def preconditioned(
    decay: float = 0.99,
    eps: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    prior: Callable | None = None,
) -> Kernel:
    """SGD preconditioned by a running root mean square of the gradient (pSGLD, Li et al. 2016).

        nu <- decay nu + (1 - decay) g^2;  G = (nu + eps)^(-1/2)
        theta <- theta - eta G g + sqrt(2 eta tau G) xi

    The correction term Gamma of pSGLD is left out, as its authors do in practice.
    """
    transform = optax.scale_by_rms(decay, eps)

    def move(replica: Replica, gradient: Any, noise: Any, rung: Ladder) -> Replica:
        update, memory = transform.update(gradient, replica.memory, replica.params)
        params = jax.tree.map(lambda p, u: p - rung.learning_rate * u, replica.params, update)
        if noise is not None:
            square = optax.tree_utils.tree_get(memory, "nu")
            scale = jax.tree.map(lambda nu: jnp.sqrt(jax.lax.rsqrt(nu + eps)), square)
            params = _add_noise(params, noise, _langevin_std(rung), scale)
        return Replica(params, memory)

    spec = {"name": "preconditioned", "decay": decay, "eps": eps}
    return _kernel(transform, move, weight_decay, prior, spec)


def from_optax(
    transform: optax.GradientTransformation,
    *,
    weight_decay: float = 0.0,
    prior: Callable | None = None,
) -> Kernel:
    """Return a kernel of any optax optimiser of learning rate 1: the rung supplies the rate.

        theta <- theta + eta * update + sqrt(2 eta tau) xi

    >>> import optax
    >>> kernel = from_optax(optax.adam(1.0))
    """

    def move(replica: Replica, gradient: Any, noise: Any, rung: Ladder) -> Replica:
        update, memory = transform.update(gradient, replica.memory, replica.params)
        params = jax.tree.map(lambda p, u: p + rung.learning_rate * u, replica.params, update)
        if noise is not None:
            params = _add_noise(params, noise, _langevin_std(rung))
        return Replica(params, memory)

    return _kernel(transform, move, weight_decay, prior, spec=None)


class TimedMemory(NamedTuple):
    """The memory of a kernel that keeps time, around that of another kernel."""

    count: Array  # steps taken
    inner: Any


def cyclical(
    kernel: Kernel, cycle_length: int, exploitation: float = 0.05, hold: bool = False
) -> Kernel:
    """Return a kernel under a cosine learning rate that restarts every cycle (Zhang et al. 2020).

        eta_k = eta/2 (1 + cos(pi t)),  t = (k mod cycle_length) / cycle_length

    Noise is injected and draws are taken only in the last part of a cycle, `exploitation` of it.
    With `hold` the learning rate falls no further in that part. For single-chain baselines.
    """
    if cycle_length < 2 or not 0 < exploitation <= 1:
        raise ValueError(
            f"cycle_length is {cycle_length} and exploitation {exploitation}; a cycle needs at "
            "least 2 steps and exploitation in (0, 1]."
        )

    begins = cycle_length - max(1, round(exploitation * cycle_length))

    def exploits(step: Any) -> Any:
        return step % cycle_length >= begins

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        place = count % cycle_length
        place = jnp.minimum(place, begins) if hold else place
        rate = 0.5 * (1 + jnp.cos(jnp.pi * place / cycle_length))
        return Ladder(rung.learning_rate * rate, rung.temperature * exploits(count))

    options = {"cycle_length": cycle_length, "exploitation": exploitation, "hold": hold}
    return _timed(kernel, rung_at, "cyclical", options)._replace(exploits=exploits)


def annealed(
    kernel: Kernel, num_steps: int, learning_rate: float = 1.0, temperature: float = 1.0
) -> Kernel:
    """Return a kernel that cools: simulated annealing, each replica by itself.

        eta_k = eta learning_rate^t,  tau_k = tau temperature^t,  t = min(k / num_steps, 1)

    `learning_rate` and `temperature` are what is left of the rung's own after `num_steps`.
    """
    if num_steps < 1 or not (0 < learning_rate <= 1 and 0 < temperature <= 1):
        raise ValueError(
            f"num_steps is {num_steps}, learning_rate {learning_rate} and temperature "
            f"{temperature}; annealing needs at least one step, and what is left in (0, 1]."
        )

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        done = jnp.minimum(count / num_steps, 1.0)
        return Ladder(
            rung.learning_rate * learning_rate**done, rung.temperature * temperature**done
        )

    options = {
        "num_steps": num_steps,
        "learning_rate": learning_rate,
        "temperature": temperature,
    }
    return _timed(kernel, rung_at, "annealed", options)


def stepwise(kernel: Kernel, falls: Sequence[int], factor: float) -> Kernel:
    """Return a kernel whose learning rate is multiplied by `factor` at the steps `falls`."""
    if factor <= 0 or any(fall < 0 for fall in falls):
        raise ValueError(
            f"falls is {falls} and factor {factor}; give steps of at least 0 and a factor above 0."
        )

    def rung_at(rung: Ladder, count: Array) -> Ladder:
        passed = jnp.sum(count >= jnp.array(falls, jnp.int32))
        return Ladder(rung.learning_rate * factor**passed, rung.temperature)

    return _timed(kernel, rung_at, "stepwise", {"falls": list(falls), "factor": factor})


def _timed(
    kernel: Kernel, rung_at: Callable[[Ladder, Array], Ladder], name: str, options: dict
) -> Kernel:
    """Return a kernel whose rung depends on how many steps its replica has taken.

    The one way to wrap a kernel in a schedule of rates; `name` and `options` make it again.
    """

    def init(params: Any) -> Replica:
        replica = kernel.init(params)
        return Replica(params, TimedMemory(jnp.array(0, jnp.int32), replica.memory))

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        count, inner = replica.memory
        inner = Replica(replica.params, inner)
        inner, energy = kernel.step(noise, inner, evaluate, rung_at(rung, count))
        return Replica(inner.params, TimedMemory(count + 1, inner.memory)), energy

    spec = None if kernel.spec is None else {"name": name, **options, "kernel": kernel.spec}
    return kernel._replace(init=init, step=step, keeps_time=True, spec=spec)


def from_spec(spec: dict) -> Kernel:
    """Return the kernel that a `spec` describes."""
    options = {name: value for name, value in spec.items() if name != "name"}
    if spec["name"] in _AROUND:
        return _AROUND[spec["name"]](from_spec(options.pop("kernel")), **options)
    return NAMED[spec["name"]](**options)


_AROUND = {"cyclical": cyclical, "annealed": annealed, "stepwise": stepwise}  # another kernel
NAMED = {
    "sgld": sgld,
    "sgd": sgld,  # temperature 0
    "momentum": momentum,
    "sghmc": sghmc,
    "preconditioned": preconditioned,
}


def _noise_in_gradient(transform, decay, spec, weight_decay, prior) -> Kernel:
    """Return a kernel whose noise enters before the transform, so that momentum keeps it."""

    def move(replica: Replica, gradient: Any, noise: Any, rung: Ladder) -> Replica:
        if noise is not None:
            std = jnp.sqrt(2 * (1 - decay) * rung.temperature / rung.learning_rate)
            gradient = _add_noise(gradient, noise, std)
        update, memory = transform.update(gradient, replica.memory, replica.params)
        params = jax.tree.map(lambda p, u: p - rung.learning_rate * u, replica.params, update)
        return Replica(params, memory)

    return _kernel(transform, move, weight_decay, prior, spec)


def _kernel(transform, move, weight_decay, prior, spec) -> Kernel:
    if weight_decay < 0:
        raise ValueError(f"weight_decay is {weight_decay}; it must be at least 0.")
    if spec is not None:
        spec = None if prior is not None else {**spec, "weight_decay": weight_decay}
    decayed = optax.add_decayed_weights(weight_decay) if weight_decay else optax.identity()

    def init(params: Any) -> Replica:
        return Replica(params, transform.init(params))

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        energy, gradient = evaluate(replica.params)
        gradient, _ = decayed.update(gradient, decayed.init(replica.params), replica.params)
        if prior is not None:
            gradient = jax.tree.map(jnp.add, gradient, jax.grad(prior)(replica.params))
        moved = move(replica, gradient, noise, rung)
        return _same_dtypes(moved, replica), energy

    return Kernel(
        init, step, draw_normal, has_own_prior=bool(weight_decay) or prior is not None, spec=spec
    )


def draw_normal(key: Array, replica: Any) -> Any:
    """Draw a standard normal for every parameter."""
    leaves, structure = jax.tree.flatten(replica.params)
    keys = [key] if len(leaves) == 1 else jax.random.split(key, len(leaves))
    draws = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return structure.unflatten(draws)


def _langevin_std(rung: Ladder) -> Array:
    return jnp.sqrt(2 * rung.learning_rate * rung.temperature)


def _add_noise(tree: Any, noise: Any, std: Array, scale: Any = None) -> Any:
    if scale is not None:
        noise = jax.tree.map(jnp.multiply, noise, scale)
    return jax.tree.map(lambda x, z: x + std.astype(x.dtype) * z, tree, noise)


def _same_dtypes(tree: Any, like: Any) -> Any:
    """Keep bfloat16 parameters bfloat16: hyper-parameters of a rung are float32."""
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)
