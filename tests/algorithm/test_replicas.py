"""What becomes of the memory of replicas that swap, and where kernels may evaluate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import quick_jit
from single_steps import FROZEN, steep, step_and_state, with_state

import replicax as rx
from replicax.algorithm import kernels, move
from replicax.algorithm.kernels import Replica
from replicax.algorithm.schedule import deo


@pytest.mark.parametrize("on_swap", ["keep", "reset"])
def test_a_swap_costs_the_momentum_of_those_that_swapped(on_swap: str) -> None:
    """With such a buffer every pair that has its turn swaps: 1 and 2, then 0 and 1, ..."""
    params = jnp.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
    rates = [0.01, 0.02, 0.03]
    square = lambda x: jnp.sum(x**2) / 2  # noqa: E731
    step, state = step_and_state(square, params, rates, buffer=-1e6, on_swap=on_swap)
    x, v = np.asarray(params, np.float64), np.zeros((3, 2))
    rung_of = np.arange(3)
    for k in range(4):
        state, _ = step(jax.random.key(0), state)
        v = 0.5 * v + x
        x = x - np.array(rates)[rung_of][:, None] * v
        pair = (1, 2) if k % 2 == 0 else (0, 1)
        swapped = np.isin(rung_of, pair)
        rung_of = np.where(swapped, sum(pair) - rung_of, rung_of)
        if on_swap == "reset":
            v[swapped] = 0
        assert state.rung_of.tolist() == rung_of.tolist() and swapped.sum() == 2
        np.testing.assert_allclose(state.replicas.memory.trace, v, rtol=1e-5)
        np.testing.assert_allclose(state.replicas.params, x, rtol=1e-5)
        zero = (np.asarray(state.replicas.memory.trace) == 0).all(axis=1)
        assert zero.tolist() == (swapped & (on_swap == "reset")).tolist()


def reset_with(kernel: kernels.Kernel) -> None:
    rx.sample(
        steep,
        jnp.array([0.5]),
        num_steps=2,
        num_replicas=2,
        method=rx.deo_star(learning_rate=[0.01, 0.02], kernel=kernel, on_swap="reset"),
        progress=False,
    )


@pytest.mark.parametrize(
    "kernel",
    [
        kernels.cyclical(kernels.momentum(), 10),
        kernels.annealed(kernels.momentum(), 10, 0.5),
        kernels.stepwise(kernels.momentum(), [5], 0.5),
        kernels.cyclical(kernels.from_optax(optax.sgd(1.0)), 10),
    ],
    ids=["cyclical", "annealed", "stepwise", "around optax"],
)
def test_a_swap_must_not_set_back_a_clock(kernel: kernels.Kernel) -> None:
    with pytest.raises(ValueError, match='write on_swap="keep"'):
        reset_with(kernel)


def test_with_a_model_state_a_kernel_evaluates_where_the_replica_is() -> None:
    def look_ahead(noise, replica, evaluate, rung):
        energy, gradient = evaluate(jax.tree.map(lambda p: p + 1.0, replica.params))
        params = jax.tree.map(lambda p, g: p - rung.learning_rate * g, replica.params, gradient)
        return Replica(params, replica.memory), energy, None

    kernel = kernels.sgld()._replace(step=look_ahead)
    params = jnp.ones((2, 1))
    model_state = {"met": params, "count": jnp.zeros(2)}
    step, state = step_and_state(
        rx.Target(with_state, has_state=True),
        params,
        [0.01, 0.02],
        kernel=kernel,
        model_state=model_state,
    )
    with pytest.raises(ValueError, match=r"may evaluate at replica\.params only"):
        step(jax.random.key(0), state)
    step, state = step_and_state(steep, params, [0.01, 0.02], kernel=kernel)
    step(jax.random.key(0), state)


LADDER = rx.algorithm.Ladder(jnp.array([0.1, 0.2, 0.4]), jnp.array([1.0, 3.0, 12.0]))


HALF_RATE = kernels.stepwise(kernels.momentum(0.5), [0], 0.5)


@pytest.mark.parametrize("kernel", [kernels.momentum(0.5), HALF_RATE], ids=["plain", "timed"])
def test_replicas_that_swap_get_a_momentum_of_their_new_rung(kernel: kernels.Kernel) -> None:
    """tau / eta is 10, 15 and 30; replica 2 stays where it is."""
    start = jax.vmap(kernel.init)(jnp.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.3]]))
    start = jax.tree.map(lambda leaf: leaf + 1, start)  # momentum 1, and a count of 1
    old, new = jnp.array([0, 1, 2]), jnp.array([1, 0, 2])
    after = jax.jit(lambda: move.change_rungs(kernel, start, LADDER, old, new))()
    np.testing.assert_array_equal(after.params, start.params)
    memory = getattr(after.memory, "inner", after.memory)
    scale = np.sqrt([15 / 10, 10 / 15, 1.0])
    np.testing.assert_allclose(memory.trace, scale[:, None] * np.ones((3, 2)), rtol=1e-6)
    assert (memory.trace[2] == 1).all(), "bit for bit where nothing swapped"
    if kernel is HALF_RATE:
        np.testing.assert_array_equal(after.memory.count, start.memory.count)
    same = jax.jit(lambda: move.change_rungs(kernel, start, LADDER, old, old))()
    jax.tree.map(np.testing.assert_array_equal, same, start)


@pytest.mark.parametrize("temperature", [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
def test_momentum_without_noise_has_no_law_and_stays(temperature: list[float]) -> None:
    kernel = kernels.momentum(0.5)
    start = jax.tree.map(lambda leaf: leaf + 1, jax.vmap(kernel.init)(jnp.zeros((2, 3))))
    rungs = rx.algorithm.Ladder(jnp.array([0.1, 0.2]), jnp.array(temperature))
    after = move.change_rungs(kernel, start, rungs, jnp.array([0, 1]), jnp.array([1, 0]))
    jax.tree.map(np.testing.assert_array_equal, after, start)


@pytest.mark.parametrize("rule", [rx.swap.metropolis(), rx.swap.deterministic()])
def test_momentum_is_scaled_under_rules_that_use_temperatures_only(rule: rx.swap.Rule) -> None:
    """Rungs 1 and 2 swap: the hotter one has the lower energy, as much as any rule could want."""
    kernel = kernels.momentum(0.5)
    settings = rx.algorithm.Settings(deo(), rule, FROZEN, langevin=False)
    state = rx.algorithm.init(kernel, jnp.array([[1.0], [9.0], [0.5]]), LADDER, settings)
    step = quick_jit(rx.algorithm.build_step(lambda x: jnp.sum(x**2) / 2, kernel, settings))
    after, _ = step(jax.random.key(0), state)
    assert after.rung_of.tolist() == [0, 2, 1]
    scale = np.sqrt(30 / 15) if rule.uses_temperature else 1.0
    wanted = [1.0, 9.0 * scale, 0.5 / scale]
    np.testing.assert_allclose(after.replicas.memory.trace[:, 0], wanted, rtol=1e-6)
