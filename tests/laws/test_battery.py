"""Kernels x schedules x rules: every combination that is allowed runs, and runs the same.

By default every part at least once. Under `slow` all, first a pairwise cover: any two parts meet.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from common import quick_jit, quietly, slow

import replicax as rx
from replicax.algorithm import kernels, randomness, schedule, swap
from replicax.algorithm import step as algorithm
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import Randomness
from replicax.algorithm.tuning import Tuning

NUM_REPLICAS = 4
NUM_STEPS = 12

KERNELS: dict[str, rx.kernels.Kernel] = {
    "sgld": kernels.sgld(),
    "momentum": kernels.momentum(0.8),
    "preconditioned": kernels.preconditioned(0.95, 1e-3),
    "cyclical": kernels.cyclical(kernels.momentum(0.5), 10, 0.3),
    "adam": kernels.from_optax(optax.adam(1.0)),
}
SCHEDULES: dict[str, schedule.Schedule] = {
    "at_most_one": schedule.windowed_deo(3),
    "exactly_one": schedule.windowed_deo(3, "exactly_one"),
    "no_gate": schedule.windowed_deo(3, "no_gate"),
    "seo": schedule.seo(),
    "adj": schedule.adj(),
    "ape": schedule.ape(),
    "none": schedule.none(),
}
RULES: dict[str, swap.Rule] = {
    "deterministic": swap.deterministic(),
    "metropolis": swap.metropolis(),
    "bias_corrected": swap.bias_corrected(0.2),
    "estimated": swap.bias_corrected(estimate_every=5, estimate_draws=3),
    "window_corrected": swap.window_corrected(0.1, 0.2),
}
Parts = tuple[str, str, str]  # kernel, schedule, rule


def pairwise_cover(*axes: list[str]) -> list[tuple[str, ...]]:
    """Few combinations in which any two entries of different axes meet; greedy, always the same."""
    numbered = list(itertools.combinations(range(len(axes)), 2))
    missing = {(i, a, j, b) for i, j in numbered for a in axes[i] for b in axes[j]}
    cover = []
    while missing:
        rows = itertools.product(*axes)
        met = [(row, {(i, row[i], j, row[j]) for i, j in numbered} & missing) for row in rows]
        row, new = max(met, key=lambda row_and_new: len(row_and_new[1]))
        missing -= new
        cover.append(row)
    return cover


AXES = (list(KERNELS), list(SCHEDULES), list(RULES))
COVER = pairwise_cover(*AXES)
QUICK = [
    ("sgld", "no_gate", "bias_corrected"),
    ("sgld", "seo", "estimated"),
    ("momentum", "at_most_one", "metropolis"),
    ("momentum", "ape", "window_corrected"),
    ("preconditioned", "none", "window_corrected"),
    ("cyclical", "exactly_one", "bias_corrected"),
    ("adam", "adj", "deterministic"),
]
REST = sorted(set(itertools.product(*AXES)) - set(COVER))


def test_the_cover_holds_every_two_parts_and_little_more() -> None:
    for one, other in itertools.combinations(range(3), 2):
        met = {(row[one], row[other]) for row in COVER}
        assert met == set(itertools.product(AXES[one], AXES[other]))
    assert len(COVER) < 1.3 * len(KERNELS) * len(SCHEDULES)
    for axis, parts in enumerate(AXES):
        assert {row[axis] for row in QUICK} == set(parts)
    assert set(QUICK) <= set(COVER)


class Counted:
    """A noisy energy of a nested tree that counts how often Python runs it."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, params: Any, batch: Any, noise: jax.Array) -> jax.Array:
        self.calls += 1
        x, y = params["layer"]["w"], params["bias"][0]
        bowl = jnp.sum((x * jnp.array([1.0, 2.0])) ** 2) / 2 + (y - 0.5) ** 2 + jnp.sum(x**4) / 20
        return bowl + 0.2 * noise[0] + 0.3 * jnp.dot(noise[1:], x)

    def target(self) -> rx.Target:
        return rx.Target(self, noise=lambda key: jax.random.normal(key, (3,)))


def nested_start(*leading: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    w, y = rng.normal(size=(*leading, 2)), rng.normal(size=leading)
    return {"layer": {"w": jnp.asarray(w, jnp.float32)}, "bias": [jnp.asarray(y, jnp.float32)]}


def built(parts: Parts, target: rx.Target) -> tuple[Callable, Callable, rx.algorithm.State]:
    kernel, rule = KERNELS[parts[0]], RULES[parts[2]]
    adapts = "temperature" if rule.uses_temperature else "learning_rate"
    tuning = Tuning(adapts=adapts, adapts_buffer=not rule.uses_temperature, measure_steps=2)
    settings = rx.algorithm.Settings(SCHEDULES[parts[1]], rule, tuning)
    draw, advance = algorithm.build_parts(target, kernel, settings)
    rungs = Ladder(jnp.geomspace(0.01, 0.05, NUM_REPLICAS), jnp.geomspace(0.5, 2.0, NUM_REPLICAS))
    state = rx.algorithm.init(kernel, nested_start(NUM_REPLICAS), rungs, settings, buffer=0.05)
    return draw, advance, state


@functools.cache
def draw_everything(name: str) -> Randomness:
    """The randomness of 2 n steps: all that any combination with this schedule may draw."""
    draw, _, state = built(("sgld", name, "estimated"), Counted().target())
    draw_step = jax.vmap(lambda step: draw(randomness.make_key(0), step, state.replicas))
    return quick_jit(draw_step)(jnp.arange(2 * NUM_STEPS))


@functools.cache
def drawn_fields(name: str, rule: str) -> list[bool]:
    draw, _, state = built(("sgld", name, rule), Counted().target())
    shapes = jax.eval_shape(draw, randomness.make_key(0), jnp.array(0), state.replicas)
    return [field is not None for field in shapes]


def draws_of(parts: Parts) -> Randomness:
    """Without what this combination does not draw."""
    name = parts[1] if parts[1] in ("adj", "ape", "seo") else "at_most_one"
    fields = drawn_fields(name, parts[2])
    drawn = draw_everything("seo" if name == "at_most_one" else name)
    return Randomness(*(values if needed else None for needed, values in zip(fields, drawn)))


def check_combination(parts: Parts) -> None:
    energy = Counted()
    _, advance, start = built(parts, energy.target())

    def one_step(state: rx.algorithm.State, random: Randomness):
        state, info = advance(random, state)
        return state, (info, state.rung_of)

    scan = quick_jit(functools.partial(jax.lax.scan, one_step))
    random = draws_of(parts)
    half = [jax.tree.map(lambda x, s=s: x[s], random) for s in (np.s_[:12], np.s_[12:])]
    middle, (_, first_path) = scan(start, half[0])
    calls = energy.calls
    end, (info, path) = scan(middle, half[1])
    assert energy.calls == calls > 0, "traced again"

    for before, after in zip(jax.tree.leaves(start), jax.tree.leaves(end), strict=True):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)
        assert np.isfinite(after).all()
    assert int(end.step) == 2 * NUM_STEPS
    assert info.energy.shape == (NUM_STEPS, NUM_REPLICAS)
    assert info.energy.dtype == jnp.float32 and np.isfinite(info.energy).all()
    for verdicts in (info.wanted, info.swapped, info.active):
        assert verdicts.shape == (NUM_STEPS, NUM_REPLICAS - 1) and verdicts.dtype == bool
    path = np.concatenate([[np.arange(NUM_REPLICAS)], first_path, path])
    np.testing.assert_array_equal(np.sort(path, axis=1), path * 0 + np.arange(NUM_REPLICAS))
    moved = (np.diff(path, axis=0) != 0).any(axis=1)
    assert moved[2:].any() == (parts[1] != "none"), "exchange"
    assert not moved[:2].any(), "while the unit of energy is measured nobody swaps"
    assert not np.allclose(end.replicas.params["layer"]["w"], start.replicas.params["layer"]["w"])


@pytest.mark.parametrize("parts", [x if x in QUICK else slow(x) for x in COVER], ids="-".join)
def test_a_combination_runs_in_one_trace(parts: Parts) -> None:
    check_combination(parts)


@pytest.mark.slow
@pytest.mark.parametrize("parts", REST, ids="-".join)
def test_any_combination_runs_in_one_trace(parts: Parts) -> None:
    check_combination(parts)


EAGER = [
    ("sgld", "at_most_one", "deterministic"),
    ("preconditioned", "adj", "bias_corrected"),
    ("momentum", "exactly_one", "window_corrected"),
    ("cyclical", "seo", "metropolis"),
    ("adam", "ape", "estimated"),
]


@pytest.mark.slow
@pytest.mark.parametrize("parts", EAGER, ids="-".join)
def test_a_step_is_the_same_without_jit(parts: Parts) -> None:
    _, advance, state = built(parts, Counted().target())
    state = state._replace(step=state.step + 3)  # past the measurement
    random = jax.tree.map(lambda x: x[3], draws_of(parts))
    compiled = quick_jit(advance)(random, state)
    with jax.disable_jit():
        eager = advance(random, state)
    for ours, theirs in zip(jax.tree.leaves(compiled), jax.tree.leaves(eager), strict=True):
        assert ours.dtype == jnp.asarray(theirs).dtype  # what does not depend on the step is plain
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)


def test_sghmc_is_momentum_by_another_name() -> None:
    one, other = kernels.sghmc(0.3), kernels.momentum(0.7)
    replica = one.init(jnp.ones(2))
    noise, rung = jnp.array([0.5, -1.0]), Ladder(jnp.array(0.1), jnp.array(2.0))
    evaluate = lambda x: (jnp.sum(x**2), 2 * x)  # noqa: E731
    moved = [k.step(noise, replica, evaluate, rung) for k in (one, other)]
    for ours, theirs in zip(*map(jax.tree.leaves, moved)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_a_kernel_keeps_the_dtype_of_every_parameter(name: str, dtype: str) -> None:
    kernel = KERNELS[name]
    params = {"small": jnp.zeros(3, dtype), "usual": [jnp.zeros((), jnp.float32)]}
    replica = kernel.init(params)

    def move(key, replica, rung):
        evaluate = jax.value_and_grad(lambda p: jnp.sum(p["small"] ** 2) + p["usual"][0] ** 2)
        return kernel.step(kernel.draw(key, replica), replica, evaluate, rung)[0]

    rung = Ladder(jnp.float32(0.1), jnp.float32(1.0))
    moved = jax.eval_shape(move, jax.random.key(0), replica, rung)
    assert jax.tree.structure(moved) == jax.tree.structure(replica)
    for before, after in zip(jax.tree.leaves(replica), jax.tree.leaves(moved)):
        assert (before.shape, before.dtype) == (after.shape, after.dtype)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_have_the_tree_of_the_parameters_and_bfloat16_stays() -> None:
    params = {
        "a": (jnp.zeros(2, jnp.bfloat16), None),
        "b": {"c": [jnp.zeros(()), jnp.zeros((1, 3))]},
    }

    def energy(params: Any) -> jax.Array:
        leaves = jax.tree.leaves(params)
        return sum(jnp.sum((jnp.asarray(x, jnp.float32) - 1) ** 2) for x in leaves)

    seen = []
    posterior = quietly(
        energy,
        params,
        num_steps=29,
        num_chains=2,
        thin=2,
        draw_rungs="all",
        kernel="momentum",
        callback=lambda progress: seen.append(progress.carry.state.replicas),
    )
    for kept in (seen[-1].params, seen[-1].memory.trace):
        assert kept["a"][0].dtype == jnp.bfloat16 and kept["b"]["c"][0].dtype == jnp.float32
    for rung in range(NUM_REPLICAS):
        draws = posterior.draws_at(rung)
        assert jax.tree.structure(draws) == jax.tree.structure(params)
        for draw, start in zip(jax.tree.leaves(draws), jax.tree.leaves(params)):
            assert draw.shape == (2, 15, *start.shape)
            assert draw.dtype == np.float32, "NumPy has no bfloat16: records are wider"
            assert np.ptp(draw) > 0.1
        again = energy(jax.tree.map(lambda x: x[1, 3], draws))
        np.testing.assert_allclose(posterior.energies_at(rung)[1, 3], again, rtol=1e-5)
    narrow = posterior.draws["a"][0]
    np.testing.assert_array_equal(np.asarray(jnp.bfloat16(narrow), np.float32), narrow)
    assert posterior.rung_of.shape == (2, 29, NUM_REPLICAS)
    assert posterior.rung_of.dtype == np.int8


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_energy_may_be_of_low_precision() -> None:
    posterior = quietly(lambda x: jnp.sum(x**2), jnp.ones(2, jnp.bfloat16), num_steps=5)
    assert posterior.energies.dtype == np.float32


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_unit_of_energy_is_measured_in_double_precision_too() -> None:
    with jax.enable_x64(True):
        posterior = quietly(lambda x: jnp.sum(x**2), jnp.ones(2), num_steps=5, buffer="auto")
    assert posterior.learning_rates.dtype == posterior.buffer.dtype == np.float64
    assert posterior.draws.dtype == posterior.energies.dtype == np.float64
