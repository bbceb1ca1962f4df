"""BlackJAX: replica exchange as a BlackJAX sampling algorithm, and BlackJAX kernels as kernels
here."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.kernel import Kernel, Observed, Replica, Traits
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.state import Info, State, init
from replicax.algorithm.step import build_parts
from replicax.errors import check_function, check_number, suggest
from replicax.run.batches import ArrayBatches, NoBatches
from replicax.run.initial import initial_points
from replicax.run.methods import Method, refuse_unknown
from replicax.run.options import Sampling
from replicax.run.resolve import resolve
from replicax.run.task import as_task


class SamplingAlgorithm(NamedTuple):
    """A pair of pure functions, as `blackjax.base.SamplingAlgorithm`."""

    init: Callable[..., Any]
    step: Callable[[Array, Any], tuple[Any, Any]]


class ExchangeState(NamedTuple):
    """The state of a replica exchange, with the draw of its latest step."""

    position: Any  # of the replica on the coldest rung
    energy: Array  # as evaluated in the step
    replicas: State  # all replicas, the ladder and the index process


def as_sampling_algorithm(
    target: Any,
    *,
    num_steps: int,
    method: str | Method = "posterior",
    batch_size: int | None = None,
    **options: Any,
) -> SamplingAlgorithm:
    """Return `init(position, rng_key=None)` and `step(rng_key, state)` of a replica exchange.

    Pass the pair to `blackjax.util.run_inference_algorithm`; `state.position` is a draw of the
    coldest rung, and `info` an `rx.algorithm.Info`. With
    `transform=lambda state, info: state.position`, the other replicas are not kept.

    Args:
        target: as in `rx.sample`: an `rx.bayesian` posterior, an energy, an `rx.Target`.
        num_steps: the number of steps that you will run. As in `rx.sample`, by default the
            first third of them tunes step sizes and temperatures: discard those draws.
        method: as in `rx.sample`.
        options: further options of `rx.sample` in steps: `num_replicas`, `burn_in`, ...

    >>> import jax, jax.numpy as jnp, replicax as rx
    >>> algorithm = as_sampling_algorithm(
    ...     lambda x: jnp.sum(x**2) / 2, num_steps=600, num_replicas=3
    ... )
    >>> state = algorithm.init(jnp.zeros(2))
    >>> state.position.shape, state.replicas.rung_of.tolist()
    ((2,), [0, 1, 2])
    """
    names = [field.name for field in fields(Sampling)]
    parts = {field.name for field in fields(Method)}
    moved = {name: value for name, value in options.items() if name in parts}
    refuse_unknown(as_sampling_algorithm, moved)
    for name in options:
        if name not in names:
            raise ValueError(f"{name} is not an option of an algorithm.{suggest(name, names)}")
    task = as_task(target, None, batch_size)
    if task.target.has_state or not isinstance(task.batches, NoBatches | ArrayBatches):
        raise ValueError(
            "as_sampling_algorithm takes an energy, an rx.Target or an rx.bayesian posterior of "
            "arrays; for others use rx.sample or rx.train."
        )
    program = resolve(task, Sampling(num_steps=num_steps, **options), method)
    target, settings, data = program.target, program.settings, program.batches.data
    draw, advance = build_parts(target, program.kernel, settings, program.batches.draw)

    def start(position: Any = None, rng_key: Any = None) -> ExchangeState:
        key = jax.random.key(0) if rng_key is None else rng_key
        points = initial_points(task.start_from(position), key, 1, program.num_replicas)
        points = jax.tree.map(lambda leaf: leaf[0], points)
        ladder = jax.tree.map(jnp.asarray, program.ladder)
        state = init(program.kernel, points, ladder, settings, program.buffer, None, target, data)
        return ExchangeState(_coldest(state), jnp.full((), jnp.nan, state.buffer.dtype), state)

    def step(rng_key: Array, state: ExchangeState) -> tuple[ExchangeState, Info]:
        before, place = state.replicas, jnp.array(0)
        random = draw(rng_key, before.step, before.replicas)
        batch = program.batches.take(data, None, random.batch, before.step, place)
        fresh = program.batches.fresh(data, before.step, place)
        after, info = advance(random, before, batch, fresh)
        energy = info.energy[before.rung_of[after.replica_at[0]]]
        return ExchangeState(_coldest(after), energy.astype(state.energy.dtype), after), info

    return SamplingAlgorithm(start, step)


def _coldest(state: State) -> Any:
    return jax.tree.map(lambda leaf: leaf[state.replica_at[0]], state.points)


def from_blackjax(make: Callable[[Callable, Array], Any], target_acceptance: float = 0.8) -> Kernel:
    """Return a BlackJAX algorithm as a kernel, for `rx.posterior(kernel=...)`.

    `make(logdensity, step_size)` returns the algorithm, one that preserves `logdensity`: `hmc`,
    `nuts`, `mala` and others that accept or reject. On a rung of temperature tau the log density is
    -U / tau, for `rx.bayesian` posteriors log prior + log likelihood / tau; the step size is
    sqrt(2 learning_rate), which `learning_rate="auto"` tunes to the target acceptance. The state of
    the algorithm is rebuilt at every step, so that a new rung takes effect at once.

    >>> import blackjax, jax.numpy as jnp
    >>> kernel = from_blackjax(
    ...     lambda logdensity, step_size: blackjax.nuts(logdensity, step_size, jnp.ones(2))
    ... )
    >>> kernel.traits.adjusted
    True
    """
    check_function("make", make, "logdensity", "step_size")
    needed = "it must lie in (0, 1)"
    check_number("target_acceptance", target_acceptance, lambda x: 0 < x < 1, needed)

    def step(keys: Array, replica: Replica, evaluate: Callable, rung: Ladder):
        def logdensity(params: Any) -> Array:
            at = evaluate.split(params)
            return -at.energy / rung.temperature - at.prior

        algorithm = make(logdensity, jnp.sqrt(2 * rung.learning_rate))
        state = algorithm.init(replica.params, keys[0])
        state, info = algorithm.step(keys[1], state)
        params = jax.tree.map(
            lambda new, old: new.astype(old.dtype), state.position, replica.params
        )
        energy = evaluate.split(params).energy
        acceptance = jnp.asarray(getattr(info, "acceptance_rate", target_acceptance), energy.dtype)
        observed = Observed(
            acceptance - target_acceptance,
            jax.tree.map(jnp.ones_like, params),  # the scale of parameters is the algorithm's own
            acceptance,
            jnp.zeros_like(acceptance),
        )
        return Replica(params, ()), energy, observed

    return Kernel(
        init=lambda params: Replica(params, ()),
        step=step,
        draw=lambda key, replica: jax.random.split(randomness.ordinary(key), 2),
        traits=Traits(adjusted=True, first_rate=0.01),
    )
