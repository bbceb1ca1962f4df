"""Which learning rate and temperature a kernel moves with, and what it remembers across rungs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import FIXED, quick_jit

import replicax as rx
from replicax.algorithm import kernels, randomness, schedule, swap
from replicax.algorithm.energy_noise import FreshBatches
from replicax.algorithm.kernels import Kernel, Replica
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import draw_normal
from replicax.algorithm.step import build_parts

RUNG = Ladder(jnp.float32(0.5), jnp.float32(3.0))


def telling() -> Kernel:
    """A kernel that writes down the rung it moves on."""

    def step(noise: Any, replica: Replica, evaluate: Any, rung: Ladder) -> tuple:
        return Replica(jnp.stack([rung.learning_rate, rung.temperature]), ()), jnp.zeros(()), None

    return Kernel(lambda params: Replica(params, ()), step)


def rungs_of(kernel: Kernel, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Learning rates and temperatures of the first steps, relative to those of the rung."""

    def one(replica: Any, _: Any) -> tuple[Any, Any]:
        replica, *_ = kernel.step(None, replica, None, RUNG)
        return replica, replica.params

    start = kernel.init(jnp.zeros(2))
    _, seen = jax.lax.scan(one, start, length=num_steps)
    return tuple(np.asarray(seen / jnp.stack(RUNG[:2])).T)


@pytest.mark.parametrize("hold", [False, True])
def test_a_cycle_is_a_cosine_with_noise_at_its_end(hold: bool) -> None:
    rate, temperature = rungs_of(kernels.cyclical(telling(), 20, 0.15, hold), 45)
    place = np.arange(45) % 20
    at = np.minimum(place, 17) if hold else place
    np.testing.assert_allclose(rate, (1 + np.cos(np.pi * at / 20)) / 2, atol=1e-5)
    np.testing.assert_allclose(temperature, place >= 17)


def test_a_short_cycle_exploits_its_last_step() -> None:
    _, temperature = rungs_of(kernels.cyclical(telling(), 4, 0.05), 8)
    np.testing.assert_allclose(temperature, [0, 0, 0, 1] * 2)
    spec = kernels.cyclical(kernels.sgld(), 100).traits.spec
    assert spec is not None and (spec["exploitation"], spec["hold"]) == (0.05, False)


def test_a_stepwise_rate_falls_at_its_steps() -> None:
    rate, temperature = rungs_of(kernels.stepwise(telling(), [3, 5], 0.2), 8)
    np.testing.assert_allclose(rate, [1, 1, 1, 0.2, 0.2, 0.04, 0.04, 0.04], rtol=1e-5)
    np.testing.assert_allclose(temperature, 1)


def test_a_cosine_rises_in_its_warm_up_and_falls_to_its_end() -> None:
    rate, temperature = rungs_of(kernels.cosine(telling(), 12, warmup_steps=4, final=0.1), 15)
    falls = 0.1 + 0.9 * (1 + np.cos(np.pi * np.minimum(np.arange(11) / 8, 1))) / 2
    np.testing.assert_allclose(rate, [0.2, 0.4, 0.6, 0.8, *falls], rtol=1e-5)
    np.testing.assert_allclose(temperature, 1)


def test_annealing_ends_where_it_was_told() -> None:
    rate, temperature = rungs_of(kernels.annealed(telling(), 10, 0.01, 0.25), 15)
    done = np.minimum(np.arange(15) / 10, 1)
    np.testing.assert_allclose(rate, 0.01**done, rtol=1e-5)
    np.testing.assert_allclose(temperature, 0.25**done, rtol=1e-5)


def rung(rate: float, temperature: float) -> Ladder:
    return Ladder(jnp.float32(rate), jnp.float32(temperature))


def test_momentum_takes_the_law_of_its_new_rung() -> None:
    change = kernels.momentum(0.9).traits.change_rung
    assert change is not None
    replica = Replica(jnp.ones(2), {"v": jnp.array([1.0, -2.0])})
    changed = change(replica, rung(0.1, 2.0), rung(0.4, 3.0))
    scale = np.sqrt((3.0 / 0.4) / (2.0 / 0.1))
    np.testing.assert_allclose(changed.memory["v"], [scale, -2 * scale], rtol=1e-6)
    np.testing.assert_array_equal(changed.params, replica.params)
    for old, new in ((0.0, 3.0), (2.0, 0.0), (0.0, 0.0)):
        same = change(replica, rung(0.1, old), rung(0.4, new))
        np.testing.assert_array_equal(same.memory["v"], replica.memory["v"])


def test_a_timed_kernel_changes_rungs_as_they_are_at_its_time() -> None:
    timed = kernels.annealed(kernels.momentum(0.9), 10, learning_rate=1.0, temperature=0.5)
    inner = kernels.momentum(0.9)
    assert timed.traits.change_rung is not None and inner.traits.change_rung is not None
    replica = timed.init(jnp.ones(2))
    moving = jax.tree.map(lambda v: v + 1.0, replica.memory.inner)
    replica = Replica(replica.params, replica.memory._replace(count=jnp.int32(5), inner=moving))
    found = timed.traits.change_rung(replica, rung(0.1, 2.0), rung(0.4, 3.0))
    wanted = inner.traits.change_rung(
        Replica(replica.params, moving), rung(0.1, 2.0), rung(0.4, 3.0)
    )
    jax.tree.map(np.testing.assert_allclose, found.memory.inner, wanted.memory)
    assert int(found.memory.count) == 5


def test_the_preconditioner_freezes_after_its_steps() -> None:
    kernel = kernels.preconditioned(0.5, 1e-8, freeze_after=3)
    replica, seen = kernel.init(jnp.zeros(1)), []
    for k in range(6):
        gradient = jnp.full(1, 1.0 + k)
        evaluate = lambda params, gradient=gradient: (jnp.zeros(()), gradient)  # noqa: E731
        replica, *_ = kernel.step(None, replica, evaluate, RUNG)
        seen.append(float(replica.memory.inner.nu[0]))
    wanted = [0.5, 0.25 + 2.0, 0.125 + 1.0 + 4.5]
    np.testing.assert_allclose(seen, [*wanted, *[wanted[-1]] * 3], rtol=1e-6)


def moved(kernel: Kernel, x: Any, gradient: Any, noise: Any = None) -> Any:
    """One step of a kernel from its start, on a rung of rate 1/2 and temperature 3."""
    evaluate = lambda params: (jnp.zeros(()), gradient)  # noqa: E731
    return kernel.step(noise, kernel.init(x), evaluate, RUNG)[0]


def test_the_weight_decay_of_a_kernel_is_added_to_the_gradient() -> None:
    x, gradient = jnp.array([2.0, -1.0]), jnp.array([0.5, 3.0])
    kernel = kernels.sgld(weight_decay=0.25)
    wanted = x - 0.5 * (gradient + 0.25 * x)
    np.testing.assert_allclose(moved(kernel, x, gradient).params, wanted, rtol=1e-6)
    assert kernel.traits.has_own_prior and not kernels.sgld().traits.has_own_prior


def test_clipping_cuts_gradients_and_not_energies() -> None:
    """Of length 5, cut to 1, then with weight decay; a shorter one stays as it is."""
    kernel = kernels.clipped(kernels.sgld(weight_decay=0.5), 1.0)
    assert "Its gradients are clipped" in (kernel.traits.caveat or "")
    x = jnp.array([2.0, 0.0])
    for gradient, cut in (([3.0, 4.0], [0.6, 0.8]), ([0.3, 0.4], [0.3, 0.4])):
        evaluate = lambda params, g=gradient: (jnp.float32(7.0), jnp.array(g))  # noqa: E731
        after, energy, _ = kernel.step(None, kernel.init(x), evaluate, RUNG)
        np.testing.assert_allclose(after.params, x - 0.5 * (np.array(cut) + 0.5 * x), rtol=1e-5)
        assert float(energy) == 7


@pytest.mark.parametrize("freeze_after", [None, 3])
def test_a_preconditioned_move_has_the_newest_squares_of_its_gradient(freeze_after: Any) -> None:
    x, gradient, noise = jnp.zeros(2), jnp.array([2.0, -4.0]), jnp.array([1.0, -2.0])
    kernel = kernels.preconditioned(0.75, 1e-3, freeze_after=freeze_after)
    scale = (0.25 * gradient**2 + 1e-3) ** -0.5
    wanted = -0.5 * scale * gradient + np.sqrt(2 * 0.5 * 3.0 * scale) * noise
    found = moved(kernel, x, gradient, noise)
    np.testing.assert_allclose(found.params, wanted, rtol=1e-5)


@pytest.mark.parametrize("kernel", [kernels.momentum(0.5), kernels.preconditioned(0.5)])
def test_parameters_of_low_precision_stay_so(kernel: Kernel) -> None:
    x = jnp.ones(2, jnp.bfloat16)
    found = moved(kernel, x, x, x)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {jnp.dtype(jnp.bfloat16)}


def test_kernels_are_made_again_from_what_is_stored_of_them() -> None:
    for kernel in (
        kernels.sgld(weight_decay=0.1),
        kernels.momentum(0.7),
        kernels.preconditioned(0.9, 1e-4, freeze_after=7),
        kernels.mala(0.6),
        kernels.hmc(5, 0.7),
        kernels.clipped(kernels.stepwise(kernels.momentum(0.8), [3, 5], 0.5), 2.0),
        kernels.cosine(kernels.annealed(kernels.sgld(), 9, 0.5, 0.25), 20, 4, 0.1),
    ):
        assert kernel.traits.spec is not None
        again = kernels.from_spec(kernel.traits.spec)
        functions = ("exploits", "change_rung", "prepare")
        same = [kind.traits._replace(**dict.fromkeys(functions)) for kind in (kernel, again)]
        assert same[0] == same[1]


def test_rates_of_an_optax_chain_are_multiplied() -> None:
    chain = optax.chain(optax.scale(0.5), optax.clip(1.0), optax.chain(optax.scale(-0.25)))
    assert kernels.own_rate(chain.update) == 0.125
    assert kernels.own_rate(optax.adam(1.0).update) == 1.0


def test_which_kernels_count_their_steps() -> None:
    timed = (kernels.preconditioned(freeze_after=3), kernels.stepwise(kernels.sgld(), [3], 0.5))
    assert all(kernel.traits.keeps_time for kernel in timed)
    others = kernels.preconditioned(), kernels.momentum()
    assert not any(kernel.traits.keeps_time for kernel in others)


def test_every_parameter_has_noise_of_its_own() -> None:
    params = {"a": jnp.zeros(3), "b": jnp.zeros(3), "c": jnp.zeros((2, 3))}
    drawn = draw_normal(jax.random.key(0), Replica(params, ()))
    numbers = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(drawn)])
    assert len(np.unique(numbers)) == 12


def test_the_defaults_of_kernels() -> None:
    assert kernels.momentum().traits.spec == {"name": "momentum", "decay": 0.9, "weight_decay": 0.0}
    sghmc, spec = kernels.sghmc().traits.spec, kernels.preconditioned().traits.spec
    assert sghmc is not None and sghmc["decay"] == pytest.approx(0.9)
    assert kernels.sghmc(0.3).traits.spec["decay"] == pytest.approx(0.7)  # type: ignore[index]
    assert spec is not None and (spec["decay"], spec["eps"]) == (0.99, 1e-8)


# In a step: what a swap does to momentum, and which batch judges it.
def one_step(kernel: Kernel, target: Any, rule: swap.Rule, fresh: Any = None, batch: Any = None):
    """A step in which two replicas, at 1 and 3, meet and are judged by `rule`."""
    settings = rx.algorithm.Settings(schedule.windowed_deo(1, alternate=False), rule, FIXED)
    draw, advance = build_parts(target, kernel, settings)
    rungs = Ladder(jnp.array([0.1, 0.4]), jnp.array([2.0, 3.0]))
    state = rx.algorithm.init(kernel, jnp.array([1.0, 3.0]), rungs, settings)
    random = draw(randomness.make_key(0), state.step, state.replicas)
    return state, *quick_jit(lambda *both: advance(*both, batch, fresh))(random, state)


@pytest.mark.parametrize("swaps", [True, False])
def test_a_swap_gives_momentum_the_law_of_the_new_rung(swaps: bool) -> None:
    """Flat energies swap always; where the hot one is far higher they never do."""
    target = rx.Target(
        lambda x, batch, noise: 0.0 * x if swaps else 1e3 * x,
        gradient=lambda x, batch, noise: 0.0 * x,
    )
    kernel = kernels.momentum(0.5)
    start, after, info = one_step(kernel, target, swap.metropolis())
    assert bool(info.swapped[0]) is swaps
    # The kernel moves each replica on its old rung; then the momentum changes.
    random = build_parts(
        target, kernel, rx.algorithm.Settings(rule=swap.metropolis(), tuning=FIXED)
    )[0](randomness.make_key(0), start.step, start.replicas)
    moved = np.sqrt(2 * 0.5 * np.array([2.0, 3.0]) / [0.1, 0.4]) * np.asarray(random.move)
    scale = np.sqrt((3.0 / 0.4) / (2.0 / 0.1)) if swaps else 1.0
    np.testing.assert_allclose(after.replicas.memory.trace, moved * [scale, 1 / scale], rtol=1e-5)


def test_swaps_are_judged_on_another_batch() -> None:
    """The batch that moves replicas says 0; the one that judges them says which batch it is."""
    target = rx.Target(lambda x, batch, noise: batch + 0 * x)
    fresh = FreshBatches(lambda key: jnp.float32(7.0))
    seen = {}
    for rule in (swap.bias_corrected(1.0), swap.metropolis(), swap.deterministic()):
        _, _, info = one_step(kernels.sgld(), target, rule, fresh, jnp.float32(0.0))
        seen[rule.name] = info.energy.tolist()
    exact = [0.0, 0.0]
    wanted = {"bias_corrected": [7.0, 7.0], "metropolis": exact, "deterministic": exact}
    assert seen == wanted
