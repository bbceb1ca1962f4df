"""BlackJAX: its algorithms as kernels here."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.algorithm import randomness
from replicax.algorithm.kernel import Kernel, Observed, Replica, Traits
from replicax.algorithm.ladder import Ladder
from replicax.errors import check_function, check_number


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
        )
        return Replica(params, ()), energy, observed

    return Kernel(
        init=lambda params: Replica(params, ()),
        step=step,
        draw=lambda key, replica: jax.random.split(randomness.ordinary(key), 2),
        traits=Traits(adjusted=True, first_rate=0.01),
    )
