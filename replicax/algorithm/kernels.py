"""Transition kernels: how one replica moves with the hyper-parameters of its rung.

A kernel is one gradient, one optax transform and one rung:

    g <- gradient + weight decay
    theta <- theta - eta * transform(g) + noise at temperature tau

Temperature 0 is plain SGD, momentum SGD, ...: the same kernel, without noise.
"""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from replicax.algorithm.adjusted_kernels import hmc as hmc
from replicax.algorithm.adjusted_kernels import mala as mala
from replicax.algorithm.kernel import Kernel as Kernel
from replicax.algorithm.kernel import PyTree, TimedMemory, Traits, has_memory, select
from replicax.algorithm.kernel import Replica as Replica
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.wrapped_kernels import annealed as annealed
from replicax.algorithm.wrapped_kernels import clipped as clipped
from replicax.algorithm.wrapped_kernels import cosine as cosine
from replicax.algorithm.wrapped_kernels import cyclical as cyclical
from replicax.algorithm.wrapped_kernels import pretrained as pretrained
from replicax.algorithm.wrapped_kernels import scheduled as scheduled
from replicax.algorithm.wrapped_kernels import stepwise as stepwise
from replicax.errors import at_least, check_number, explained, not_negative, show

_NO_LAW = (
    "The optax transform keeps a state, and the law of such a kernel is not known: "
    'write kernel="momentum", "sghmc" or "preconditioned" instead.'
)

_FORGETS = 10  # a momentum is kept for a tenth of all moves so far
_TRAINING_DECAY = 0.9  # of the momentum where there is no noise


def sgld(*, weight_decay: float = 0.0) -> Kernel:
    """Stochastic gradient Langevin dynamics; at temperature 0, SGD (Eq. 6).

        theta <- theta - eta (g + sqrt(2 tau / eta) xi)

    Preserves exp(-U / tau) up to O(eta) and the gradient's own noise.
    """
    return _noise_in_gradient(optax.identity(), 0.0, {"name": "sgld"}, weight_decay)


def momentum(decay: float = 0.9, *, weight_decay: float = 0.0) -> Kernel:
    """Momentum SGD; at a temperature above 0, SGHMC with friction 1 - decay.

        v <- decay v + g + sqrt(2 (1 - decay) tau / eta) xi;    theta <- theta - eta v

    Preserves exp(-U / tau) up to O(eta) and the gradient's own noise, with a momentum of the law
    N(0, tau / eta). The momentum is not scaled by the learning rate, so that a new rung acts at
    once. When a replica swaps under a rule that uses temperatures, its momentum is multiplied by
    sqrt((tau' / eta') / (tau / eta)) and so has the law of the new rung.
    """
    check_number("decay", decay, lambda x: 0 <= x < 1, "momentum needs 0 <= decay < 1")
    spec = {"name": "momentum", "decay": decay}
    kernel = _noise_in_gradient(optax.trace(decay), decay, spec, weight_decay)
    return kernel.having(change_rung=_scale_momentum)


def _scale_momentum(replica: Replica, old: Ladder, new: Ladder) -> Replica:
    """Scale the momentum from N(0, tau / eta) of the old rung to that of the new one."""
    has_law = (old.temperature > 0) & (new.temperature > 0)
    hotter = new.temperature / jnp.where(has_law, old.temperature, 1.0)
    variance = jnp.where(has_law, hotter * (old.learning_rate / new.learning_rate), 1.0)
    scale = jnp.sqrt(variance)
    memory = jax.tree.map(lambda v: v * scale.astype(v.dtype), replica.memory)
    return Replica(replica.params, memory)


def sghmc(friction: float = 0.1, *, weight_decay: float = 0.0) -> Kernel:
    """Stochastic gradient Hamiltonian Monte Carlo: `momentum` with decay 1 - friction."""
    check_number("friction", friction, lambda x: 0 < x <= 1, "sghmc needs 0 < friction <= 1")
    return momentum(1 - friction, weight_decay=weight_decay)


class Gathered(NamedTuple):
    """The memory of `underdamped`."""

    momentum: PyTree
    moves: Array  # with noise, so far
    count: Array  # steps since the start
    gradient: PyTree  # sum over the mini-batches since the last move
    batches: Array  # their number


def underdamped(decay: float = 0.995, num_batches: int = 1) -> Kernel:
    """Langevin dynamics with a momentum, in a symmetric splitting (BAOAB, Leimkuhler and Matthews
    2013), with one gradient for each move.

        p <- p - h g;  theta <- theta + h p / 2;  p <- decay p + sqrt((1 - decay^2) tau) xi;
        theta <- theta + h p / 2,  h = sqrt(eta)

    Preserves exp(-U / tau) up to O(eta) and the gradient's own noise; the parameters of a Gaussian
    have their exact law for every eta that is stable. g is the mean over `num_batches`
    mini-batches, which have no noise where they are all rows, and a replica moves in the last of so
    many steps. At temperature 0 it trains, in every step, as momentum SGD with a decay of 0.9 at
    most. After k moves with noise it is k / (k + 10) at most: the first one draws the momentum, and
    what a start has too much of energy is soon lost. When a replica swaps under a rule that uses
    temperatures, its momentum is multiplied by sqrt(tau' / tau).
    """
    check_number("decay", decay, lambda x: 0 <= x < 1, "underdamped needs 0 <= decay < 1")
    at_least("num_batches", num_batches, 1)

    def init(params: PyTree) -> Replica:
        zeros, none = jax.tree.map(jnp.zeros_like, params), jnp.array(0, jnp.int32)
        gathered = zeros if num_batches > 1 else ()
        return Replica(params, Gathered(zeros, none, none, gathered, none))

    def move(noise: Any, replica: Replica, gradient: PyTree, rung: Ladder) -> tuple:
        params, momentum = replica.params, replica.memory.momentum
        length, is_hot = jnp.sqrt(rung.learning_rate), rung.temperature > 0
        moves = replica.memory.moves
        kept = jnp.minimum(decay, moves / (moves + _FORGETS))
        kept = jnp.where(is_hot, kept, min(decay, _TRAINING_DECAY))
        std = jnp.sqrt((1 - jnp.square(kept)) * rung.temperature)
        before = jax.tree.map(lambda p, g: p - length * g, momentum, gradient)
        after = jax.tree.map(lambda p: kept * p, before)
        if noise is not None:
            after = _add_noise(after, noise, std)
        drift = lambda x, p, q: x + length / 2 * (p + q)  # noqa: E731
        return jax.tree.map(drift, params, before, after), after, moves + is_hot

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        energy, gradient = evaluate(replica.params)
        momentum, moves, count, gathered, batches = replica.memory
        if num_batches == 1:
            params, momentum, moves = move(noise, replica, gradient, rung)
            memory = Gathered(momentum, moves, count + 1, (), batches)
            return _same_dtypes(Replica(params, memory), replica), energy, None
        gathered, batches = jax.tree.map(jnp.add, gathered, gradient), batches + 1
        mean = jax.tree.map(lambda g: g / batches, gathered)
        moved = move(noise, replica, mean, rung)
        is_last = (rung.temperature <= 0) | ((count + 1) % num_batches == 0)
        params, momentum, moves = select(is_last, moved, (replica.params, momentum, moves))
        left = select(is_last, jax.tree.map(jnp.zeros_like, gathered), gathered)
        memory = Gathered(momentum, moves, count + 1, left, jnp.where(is_last, 0, batches))
        return _same_dtypes(Replica(params, memory), replica), energy, None

    def change_rung(replica: Replica, old: Ladder, new: Ladder) -> Replica:
        has_law = (old.temperature > 0) & (new.temperature > 0)
        ratio = new.temperature / jnp.where(has_law, old.temperature, 1.0)
        scale, memory = jnp.sqrt(jnp.where(has_law, ratio, 1.0)), replica.memory
        momentum = jax.tree.map(lambda p: p * scale.astype(p.dtype), memory.momentum)
        return Replica(replica.params, memory._replace(momentum=momentum))

    spec = {"name": "underdamped", "decay": decay, "num_batches": num_batches}
    return Kernel(init, step, traits=Traits(spec, change_rung=change_rung))


def preconditioned(
    decay: float = 0.99,
    eps: float = 1e-8,
    *,
    freeze_after: int | None = None,
    weight_decay: float = 0.0,
) -> Kernel:
    """SGD preconditioned by a running root mean square of the gradient (pSGLD, Li et al. 2016).

        nu <- decay nu + (1 - decay) g^2;  G = (nu + eps)^(-1/2)
        theta <- theta - eta G g + sqrt(2 eta tau G) xi

    The correction term Gamma of pSGLD is left out. While G adapts, the law is therefore not
    exp(-U / tau): N(0, 1) gets a variance of 1.1 at rate 0.1, and of 1.7 at rate 0.001. With
    `freeze_after` G is constant from that step of the replica on; the kernel then preserves
    exp(-U / tau) up to O(eta G), whatever G is, and needs no Gamma. Under rules that use
    temperatures `rx.sample` fills in half of `burn_in`. Where a gradient is 0 at the start, G is
    eps^(-1/2) and the first step is long: start elsewhere, or choose a larger eps.
    """
    check_number("decay", decay, lambda x: 0 <= x < 1, "preconditioned needs 0 <= decay < 1")
    check_number("eps", eps, lambda x: x > 0, "preconditioned needs eps > 0")
    if freeze_after is not None:
        at_least("freeze_after", freeze_after, 1)
    rms = optax.scale_by_rms(decay, eps)
    transform = rms if freeze_after is None else _frozen_after(rms, freeze_after)

    def move(replica: Replica, gradient: PyTree, noise: Any, rung: Ladder) -> Replica:
        memory: Any = transform.update(gradient, replica.memory, replica.params)[1]
        square = memory.nu if freeze_after is None else memory.inner.nu
        scale = jax.tree.map(lambda nu: jax.lax.rsqrt(nu + eps), square)
        update = jax.tree.map(jnp.multiply, scale, gradient)
        params = jax.tree.map(lambda p, u: p - rung.learning_rate * u, replica.params, update)
        if noise is not None:
            scale, std = jax.tree.map(jnp.sqrt, scale), _langevin_std(rung)
            params = _add_noise(params, jax.tree.map(jnp.multiply, noise, scale), std)
        return Replica(params, memory)

    spec = {"name": "preconditioned", "decay": decay, "eps": eps, "freeze_after": freeze_after}
    kernel = _kernel(transform, move, weight_decay, spec)
    if freeze_after is not None:
        return kernel.having(keeps_time=True)
    return kernel.having(
        caveat="Its preconditioner adapts at every step: write "
        "rx.kernels.preconditioned(freeze_after=...), a step of the burn-in."
    )


def adam(
    decay: float = 0.9, square_decay: float = 0.999, eps: float = 1e-8, *, weight_decay: float = 0.0
) -> Kernel:
    """Adam (Kingma and Ba, 2015), for training: `optax.adam`, with the rate of the rung.

        theta <- theta - eta m / (sqrt(nu) + eps)

    m and nu are running means of the gradient and of its square, corrected for their start at 0.
    """
    options = {"decay": decay, "square_decay": square_decay, "eps": eps}
    transform = optax.adam(1.0, decay, square_decay, eps)
    kernel = from_optax(transform, weight_decay=weight_decay)
    return kernel.having(spec={"name": "adam", **options, "weight_decay": weight_decay})


def _frozen_after(
    transform: optax.GradientTransformation, num_steps: int
) -> optax.GradientTransformation:
    """Return a transform whose state is renewed in the first `num_steps` steps only."""

    def init(params: PyTree) -> Any:
        return TimedMemory(jnp.array(0, jnp.int32), transform.init(params))

    def update(updates: Any, state: Any, params: PyTree = None) -> tuple[Any, Any]:
        updates, renewed = transform.update(updates, state.inner, params)
        inner = select(state.count < num_steps, renewed, state.inner)
        return updates, TimedMemory(state.count + 1, inner)

    return optax.GradientTransformation(init, update)


def from_optax(transform: optax.GradientTransformation, *, weight_decay: float = 0.0) -> Kernel:
    """Return a kernel of any optax optimiser of learning rate 1: the rung supplies the rate.

        theta <- theta + eta * update + sqrt(2 eta tau) xi

    The law is known only if the update is minus the gradient, as with `optax.sgd(1.0)`. A transform
    that keeps a state (momentum, Adam, ...) has no known law: rules that use temperatures refuse
    it. One without a state that changes the gradient, such as clipping, is accepted, and its
    law is not exp(-U / tau) where it does so.

    >>> import optax
    >>> kernel = from_optax(optax.adam(1.0))
    """
    if not (hasattr(transform, "init") and hasattr(transform, "update")):
        raise ValueError(
            f"The optax transform is {show(transform)}; give one that is made, such as "
            "optax.adam(1.0)."
        )
    rate = own_rate(transform.update)
    if abs(rate - 1) > 1e-6:
        raise ValueError(
            f"The kernel is an optax transform with a learning rate or scale of its own, {rate:g}, "
            "by which the rates of all rungs would be multiplied: write 1.0 there, as in "
            "optax.adam(1.0), and give learning_rate."
        )

    def move(replica: Replica, gradient: PyTree, noise: Any, rung: Ladder) -> Replica:
        with explained("The optax transform", "It is given gradients and parameters alone."):
            update, memory = transform.update(gradient, replica.memory, replica.params)
        params = jax.tree.map(lambda p, u: p + rung.learning_rate * u, replica.params, update)
        if noise is not None:
            params = _add_noise(params, noise, _langevin_std(rung))
        return Replica(params, memory)

    kernel = _kernel(transform, move, weight_decay, spec=None)
    return kernel.having(caveat=_NO_LAW) if has_memory(transform.init) else kernel


def own_rate(update: Callable) -> float:
    """Return the product of all constant factors of an optax transform, by its `update`.

    They are found in the functions that optax chained; what is not found there counts as 1.

    >>> own_rate(optax.chain(optax.clip(1.0), optax.sgd(0.5)).update)
    0.5
    """
    product, found = 1.0, [update]
    while found:
        function = found.pop()
        if not (inspect.isfunction(function) and function.__module__.startswith("optax")):
            continue
        inside = inspect.getclosurevars(function).nonlocals
        if function.__qualname__.startswith("scale.<locals>") and "step_size" in inside:
            product *= abs(float(inside["step_size"]))
        for value in inside.values():
            if hasattr(value, "init") and hasattr(value, "update"):
                found.append(value.update)
            elif isinstance(value, tuple | list):
                found += value
    return product


def from_spec(spec: dict) -> Kernel:
    """Return the kernel that a `spec` describes."""
    options = {name: value for name, value in spec.items() if name != "name"}
    if "kernel" in options:
        options["kernel"] = from_spec(options["kernel"])
        return _AROUND[spec["name"]](**options)
    return NAMED[spec["name"]](**options)


_AROUND = {  # another kernel
    made.__name__: made for made in (annealed, clipped, cosine, cyclical, pretrained, stepwise)
}
NAMED = {
    "sgld": sgld,
    "sgd": sgld,  # temperature 0
    "momentum": momentum,
    "sghmc": sghmc,
    "underdamped": underdamped,
    "adam": adam,
    "preconditioned": preconditioned,
    "mala": mala,
    "hmc": hmc,
}


def _noise_in_gradient(
    transform: optax.GradientTransformation, decay: float, spec: dict, weight_decay: float
) -> Kernel:
    """Return a kernel whose noise enters before the transform, so that momentum keeps it."""

    def move(replica: Replica, gradient: PyTree, noise: Any, rung: Ladder) -> Replica:
        if noise is not None:
            std = jnp.sqrt(2 * (1 - decay) * rung.temperature / rung.learning_rate)
            gradient = _add_noise(gradient, noise, std)
        update, memory = transform.update(gradient, replica.memory, replica.params)
        params = jax.tree.map(lambda p, u: p - rung.learning_rate * u, replica.params, update)
        return Replica(params, memory)

    return _kernel(transform, move, weight_decay, spec)


def _kernel(
    transform: optax.GradientTransformation,
    move: Callable[[Replica, Any, Any, Ladder], Replica],
    weight_decay: float,
    spec: dict | None,
) -> Kernel:
    not_negative("weight_decay", weight_decay)
    if spec is not None:
        spec = {**spec, "weight_decay": weight_decay}
    decayed = optax.add_decayed_weights(weight_decay) if weight_decay else optax.identity()

    def init(params: PyTree) -> Replica:
        return Replica(params, transform.init(params))

    def step(noise: Any, replica: Replica, evaluate: Callable, rung: Ladder):
        energy, gradient = evaluate(replica.params)
        gradient, _ = decayed.update(gradient, decayed.init(replica.params), replica.params)
        moved = move(replica, gradient, noise, rung)
        return _same_dtypes(moved, replica), energy, None

    return Kernel(init, step, traits=Traits(spec, has_own_prior=bool(weight_decay)))


def _langevin_std(rung: Ladder) -> Array:
    return jnp.sqrt(2 * rung.learning_rate * rung.temperature)


def _add_noise(tree: PyTree, noise: Any, std: Array) -> Any:
    return jax.tree.map(lambda x, z: x + std.astype(x.dtype) * z, tree, noise)


def _same_dtypes(tree: PyTree, like: PyTree) -> Any:
    """Keep bfloat16 parameters bfloat16: hyper-parameters of a rung are float32."""
    return jax.tree.map(lambda x, y: x.astype(y.dtype), tree, like)
