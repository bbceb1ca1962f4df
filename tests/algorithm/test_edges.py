"""What stands on the edge of what is allowed is taken, and what stands just beyond is refused."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import replicax as rx
from replicax.algorithm import ladder
from replicax.algorithm.tuning import Gain, as_gain
from replicax.algorithm.wrapped_kernels import check_factors

SGLD = rx.kernels.sgld()
LITTLE = 1e-9
EDGES: dict[str, tuple[Callable[[Any], Any], list, list]] = {
    "leapfrog": (rx.kernels.hmc, [1, 2], [0]),
    "acceptance of hmc": (lambda x: rx.kernels.hmc(8, x), [LITTLE, 0.99], [0.0, 1.0]),
    "acceptance of mala": (rx.kernels.mala, [LITTLE, 0.99], [0.0, 1.0]),
    "momentum": (rx.kernels.momentum, [0.0, 0.99], [-LITTLE, 1.0]),
    "friction": (rx.kernels.sghmc, [LITTLE, 1.0], [0.0, 1 + LITTLE]),
    "decay": (rx.kernels.preconditioned, [0.0, 0.99], [-LITTLE, 1.0]),
    "eps": (lambda x: rx.kernels.preconditioned(eps=x), [LITTLE], [0.0]),
    "freeze_after": (lambda x: rx.kernels.preconditioned(freeze_after=x), [None, 1], [0]),
    "weight decay": (lambda x: rx.kernels.sgld(weight_decay=x), [0.0, LITTLE], [-LITTLE]),
    "cycle": (lambda x: rx.kernels.cyclical(SGLD, x), [2], [1]),
    "exploitation": (lambda x: rx.kernels.cyclical(SGLD, 9, x), [LITTLE, 1.0], [0.0, 1.01]),
    "cooling steps": (lambda x: rx.kernels.annealed(SGLD, x), [1], [0]),
    "rate left": (lambda x: rx.kernels.annealed(SGLD, 9, x), [LITTLE, 1.0], [0.0, 1.01]),
    "heat left": (lambda x: rx.kernels.annealed(SGLD, 9, 1.0, x), [LITTLE, 1.0], [0.0, 1.01]),
    "falls": (lambda x: rx.kernels.stepwise(SGLD, [x], 0.5), [0, 1], [-1]),
    "factor": (lambda x: rx.kernels.stepwise(SGLD, [1], x), [LITTLE, 2.0], [0.0]),
    "cosine steps": (lambda x: rx.kernels.cosine(SGLD, x), [1], [0]),
    "warm-up": (lambda x: rx.kernels.cosine(SGLD, 9, x), [0, 8], [-1, 9]),
    "final": (lambda x: rx.kernels.cosine(SGLD, 9, 0, x), [0.0, 1.0], [-LITTLE, 1.01]),
    "norm": (lambda x: rx.kernels.clipped(SGLD, x), [LITTLE, 2.0], [0.0]),
    "rate of an optax transform": (
        lambda x: rx.kernels.from_optax(optax.sgd(x)), [1.0, 1 + 1e-8, -1.0], [1.00001, 0.99999]
    ),
    "rungs": (lambda x: ladder.geometric(1.0, 2.0, x), [1, 2], [0]),
    "end of a ladder": (lambda x: ladder.geometric(x, 2.0, 3), [LITTLE], [0.0]),
    "hot end": (lambda x: ladder.geometric(2.0, x, 3), [LITTLE], [0.0]),
    "cold end of a pair": (lambda x: ladder.per_rung("t", (x, 2.0), 3), [LITTLE], [0.0]),
    "scale of a gain": (lambda x: Gain(scale=x), [0.0], [-LITTLE]),
    "offset of a gain": (lambda x: Gain(offset=x), [LITTLE], [0.0]),
    "cap of a gain": (lambda x: Gain(cap=x), [LITTLE], [0.0]),
    "power of a gain": (lambda x: Gain(power=x), [0.0, 1.0], [-LITTLE, 1.01]),
    "gain": (lambda x: as_gain("gain", x), [0, LITTLE], [-LITTLE]),
    "window": (rx.schedule.windowed_deo, [1, jnp.array(2)], [0, jnp.array(0)]),
    "replicas": (rx.schedule.deo().check, [2, 3], [1]),
    "replicas without exchange": (rx.schedule.none().check, [1], [0]),
    "replicas that do not take turns": (
        rx.schedule.windowed_deo(2, alternate=False).check, [2], [1, 3]
    ),
    "sigma": (rx.swap.bias_corrected, [0.0, None, (0.0, 2.0)], [-LITTLE, np.inf, (1.0, np.inf)]),
    "estimate_every": (lambda x: rx.swap.bias_corrected(estimate_every=x), [1], [0]),
    "estimate_draws": (lambda x: rx.swap.bias_corrected(estimate_draws=x), [2], [1]),
    "lambda": (rx.swap.window_corrected, [-1, np.float32(2), np.array(2.0)], [None, np.inf, True]),
    "a schedule that ends": (lambda x: check_factors("rates", infinite_from(x), 9), [9], [8]),
    "a schedule that begins": (lambda x: check_factors("rates", infinite_until(x), 9), [-1], [0]),
}  # fmt: skip


def infinite_from(first: int) -> Callable:
    return lambda step: jnp.where(step >= first, jnp.inf, 1.0)


def infinite_until(last: int) -> Callable:
    return lambda step: jnp.where(step <= last, jnp.inf, 1.0)


@pytest.mark.parametrize("name", EDGES)
def test_the_edge_is_taken_and_what_is_beyond_it_refused(name: str) -> None:
    make, taken, refused = EDGES[name]
    for value in taken:
        make(value)
    for value in refused:
        with pytest.raises(ValueError):
            make(value)


TEMPERATURES = {
    "deterministic": ([0.0, 2.0, (1.0, 1.0), [0, 0, 0], [1, 0, 0], [1, 1, 2]], [[2, 1, 0], -1.0]),
    "metropolis": ([(1.0, 2.0), [1, 2, 3]], [0.0, [0, 1, 2], [1, 1, 2], [1, 3, 2], [2, 1, 1]]),
}


@pytest.mark.parametrize("name", TEMPERATURES)
def test_temperatures_of_a_rule_that_compares_them_increase_and_of_others_do_not_fall(
    name: str,
) -> None:
    rule, (taken, refused) = getattr(rx.swap, name)(), TEMPERATURES[name]
    for value in taken:
        assert ladder.temperatures(value, 3, rule).shape == (3,)
    for value in [*refused, [1, np.nan, 2], [np.nan, 1, 2], [1, 2, np.nan]]:
        with pytest.raises(ValueError):
            ladder.temperatures(value, 3, rule)


def test_what_is_told_to_a_rule_may_be_traced() -> None:
    import jax

    def gap(sigma: Any, correction: Any) -> Any:
        rule = rx.swap.window_corrected(correction, sigma)
        return rule.energy_noise_std + rule.window_correction

    assert jax.jit(gap)(2.0, 0.5) == 2.5


def test_temperatures_that_fall_are_refused_by_what_the_rule_does_with_them() -> None:
    with pytest.raises(ValueError, match="compares temperatures"):
        ladder.temperatures([1, 3, 2], 3, rx.swap.metropolis())
    with pytest.raises(ValueError, match="must not decrease"):
        ladder.temperatures([1, 3, 2], 3, rx.swap.deterministic())


def test_a_ladder_that_ends_at_the_prior_has_it_above_a_thousand_times_the_coldest() -> None:
    found = ladder.per_rung("temperature", (2.0, np.inf), 4)
    np.testing.assert_allclose(found, [2.0, 2.0 * 1000**0.5, 2000.0, np.inf])
