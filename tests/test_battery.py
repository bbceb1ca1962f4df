"""Kernels x schedules x rules: every combination that is allowed runs, and runs the same.

By default a pairwise cover: every two parts meet in some combination. All of them under `slow`.
Then what the one call promises whatever its options: one trace, no result that depends on chunks,
checkpoints or the number of chains, and a sentence for every bad input.
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

import replicax as rx
from replicax import algorithm, kernels, prng, run, schedule, swap
from replicax.chance import Chance
from replicax.ladder import Ladder, Tuning

NUM_REPLICAS = 4
NUM_STEPS = 12

KERNELS: dict[str, rx.Kernel] = {
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
REST = sorted(set(itertools.product(*AXES)) - set(COVER))


def test_the_cover_holds_every_two_parts_and_little_more() -> None:
    for one, other in itertools.combinations(range(3), 2):
        met = {(row[one], row[other]) for row in COVER}
        assert met == set(itertools.product(AXES[one], AXES[other]))
    assert len(COVER) < 1.3 * len(KERNELS) * len(SCHEDULES)


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


def built(parts: Parts, target: rx.Target) -> tuple[Callable, Callable, rx.State]:
    kernel, rule = KERNELS[parts[0]], RULES[parts[2]]
    adapts = "temperature" if rule.uses_temperature else "learning_rate"
    tuning = Tuning(adapts=adapts, adapts_buffer=not rule.uses_temperature, measure_steps=2)
    settings = rx.Settings(SCHEDULES[parts[1]], rule, tuning)
    draw, advance = algorithm.build_parts(target, kernel, settings)
    rungs = Ladder(jnp.geomspace(0.01, 0.05, NUM_REPLICAS), jnp.geomspace(0.5, 2.0, NUM_REPLICAS))
    state = rx.init(kernel, nested_start(NUM_REPLICAS), rungs, settings, buffer=0.05)
    return draw, advance, state


def quick_jit(function: Callable) -> Callable:
    """The same program, compiled in half the time."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


@functools.cache
def draw_everything(name: str) -> Chance:
    """The chance of 2 n steps: all that any combination with this schedule may draw."""
    draw, _, state = built(("sgld", name, "estimated"), Counted().target())
    draw_step = jax.vmap(lambda step: draw(prng.make_key(0), step, state.replicas))
    return quick_jit(draw_step)(jnp.arange(2 * NUM_STEPS))


@functools.cache
def drawn_fields(name: str, rule: str) -> list[bool]:
    draw, _, state = built(("sgld", name, rule), Counted().target())
    shapes = jax.eval_shape(draw, prng.make_key(0), jnp.array(0), state.replicas)
    return [field is not None for field in shapes]


def chances(parts: Parts) -> Chance:
    """Without what this combination does not draw."""
    name = parts[1] if parts[1] in ("adj", "ape", "seo") else "at_most_one"
    fields = drawn_fields(name, parts[2])
    drawn = draw_everything("seo" if name == "at_most_one" else name)
    return Chance(*(values if needed else None for needed, values in zip(fields, drawn)))


def check_combination(parts: Parts) -> None:
    energy = Counted()
    _, advance, start = built(parts, energy.target())

    def one_step(state: rx.State, chance: Chance):
        state, info = advance(chance, state)
        return state, (info, state.rung_of)

    scan = quick_jit(functools.partial(jax.lax.scan, one_step))
    chance = chances(parts)
    half = [jax.tree.map(lambda x, s=s: x[s], chance) for s in (np.s_[:12], np.s_[12:])]
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


@pytest.mark.parametrize("parts", COVER, ids="-".join)
def test_a_combination_runs_in_one_trace(parts: Parts) -> None:
    check_combination(parts)


@pytest.mark.slow
@pytest.mark.parametrize("parts", REST, ids="-".join)
def test_any_combination_runs_in_one_trace(parts: Parts) -> None:
    check_combination(parts)


EAGER = [("sgld", "at_most_one", "deterministic"), ("preconditioned", "adj", "bias_corrected")]
EAGER_TOO = [
    ("momentum", "exactly_one", "window_corrected"),
    ("cyclical", "seo", "metropolis"),
    ("adam", "ape", "estimated"),
]


@pytest.mark.parametrize(
    "parts", [*EAGER, *(pytest.param(x, marks=pytest.mark.slow) for x in EAGER_TOO)], ids="-".join
)
def test_a_step_is_the_same_without_jit(parts: Parts) -> None:
    _, advance, state = built(parts, Counted().target())
    state = state._replace(step=state.step + 3)  # past the measurement
    chance = jax.tree.map(lambda x: x[3], chances(parts))
    compiled = quick_jit(advance)(chance, state)
    with jax.disable_jit():
        eager = advance(chance, state)
    for ours, theirs in zip(jax.tree.leaves(compiled), jax.tree.leaves(eager), strict=True):
        assert ours.dtype == theirs.dtype
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


def quietly(target: Any, params: Any, **options: Any) -> rx.Posterior:
    defaults = {
        "num_steps": 60,
        "num_replicas": NUM_REPLICAS,
        "learning_rate": (0.02, 0.1),
        "buffer": 0.1,
        "buffer_gain": 0.1,
        "progress": False,
    }
    return rx.sample(target, params, **(defaults | options))


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


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_unit_of_energy_is_measured_in_double_precision_too() -> None:
    with jax.enable_x64(True):
        posterior = quietly(lambda x: jnp.sum(x**2), jnp.ones(2), num_steps=5, buffer="auto")
    assert posterior.learning_rates.dtype == posterior.buffer.dtype == np.float64
    assert posterior.draws.dtype == posterior.energies.dtype == np.float64


# What a run does not depend on.
ROWS = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)


class Regression:
    """A straight line seen through mini-batches; counts how often Python runs it."""

    calls = 0

    def __call__(self, params: Any, rows: jax.Array, key: jax.Array) -> jax.Array:
        self.calls += 1
        residual = rows[:, 0] - params["slope"] * rows[:, 1] - params["shift"][0]
        return 20 * jnp.mean(residual**2) + 0.1 * jax.random.normal(key)


def regress(**options: Any) -> tuple[rx.Posterior, int]:
    """The posterior, and how often the energy was traced."""
    defaults = {
        "num_steps": 300,
        "num_chains": 3,
        "batches": ROWS,
        "batch_size": 8,
        "kernel": "momentum",
        "learning_rate": (0.0005, 0.005),
        "window": 4,
        "burn_in": 5,
        "thin": 2,
        "history_every": 13,
        "seed": 4,
    }
    params = {"slope": jnp.zeros(()), "shift": [jnp.zeros(())]}
    energy = Regression()
    return quietly(energy, params, **(defaults | options)), energy.calls


@pytest.fixture(scope="module")
def usual() -> tuple[rx.Posterior, int]:
    posterior, calls = regress()
    assert (np.diff(posterior.rung_of.astype(int), axis=1) != 0).sum() > 200
    return posterior, calls


def assert_same_bits(one: rx.Posterior, other: rx.Posterior) -> None:
    pairs = zip(jax.tree.leaves(one.draws), jax.tree.leaves(other.draws), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)
    for name in ("rung_of", "learning_rates", "buffer", "round_trips", "energies"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("verdict_rate", "window_swap_rate", "temperatures"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name, values in one.history.items():
        np.testing.assert_array_equal(values, other.history[name], err_msg=name)


@pytest.mark.parametrize("chunk_steps", [1, 7, 64])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_length_of_a_chunk_changes_nothing_and_traces_nothing(usual, chunk_steps) -> None:
    chunks = []
    posterior, calls = regress(chunk_steps=chunk_steps, callback=lambda p: chunks.append(p.step))
    assert len(chunks) == -(-300 // chunk_steps)
    assert calls == usual[1], "traced again"
    assert_same_bits(posterior, usual[0])


@pytest.mark.parametrize(("checkpoint_every", "chunk_steps"), [(3, 64), (50, None)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checkpoints_change_nothing(tmp_path, usual, checkpoint_every, chunk_steps) -> None:
    options = {"checkpoint_every": checkpoint_every, "chunk_steps": chunk_steps}
    posterior, _ = regress(run_dir=tmp_path / "run", **options)
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) >= 2
    assert_same_bits(posterior, usual[0])
    assert_same_bits(rx.load(tmp_path / "run"), usual[0])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_chain_does_not_know_of_the_others(usual) -> None:
    several, (alone, _) = usual[0], regress(num_chains=1)
    np.testing.assert_array_equal(alone.rung_of[0], several.rung_of[0])
    for ours, theirs in zip(jax.tree.leaves(alone.draws), jax.tree.leaves(several.draws)):
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone.learning_rates[0], several.learning_rates[0], rtol=1e-4)
    assert not np.array_equal(several.rung_of[0], several.rung_of[1])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_another_seed_is_another_run(usual) -> None:
    other, _ = regress(seed=5)
    assert not np.array_equal(other.rung_of, usual[0].rung_of)


# Bad input.
def bowl(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2)


TEMPERED: dict[str, Any] = {"rule": "metropolis", "temperature": (1.0, 2.0)}
WITH_BATCHES = lambda x, rows: jnp.sum((x - jnp.mean(rows)) ** 2)  # noqa: E731
BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "one replica": ({"num_replicas": 1}, 'at least 2.*schedule="none"'),
    "no replica": ({"num_replicas": 0}, "at least 2"),
    "half a replica": ({"num_replicas": 2.5}, "whole number"),
    "replicas not a number": ({"num_replicas": float("nan")}, "whole number"),
    "no replica, no exchange": ({"num_replicas": 0, "schedule": "none"}, "num_replicas is 0"),
    "rates in words": ({"learning_rate": "fast"}, "a pair .cold, hot."),
    "temperature in words": ({"temperature": "hot"}, "a pair .cold, hot."),
    "swap rate in words": ({"target_swap_rate": "0.4"}, "such as 0.4"),
    "steps not given": ({"num_steps": None}, "whole number of at least 1"),
    "buffer not given": ({"buffer": None}, 'finite number or "auto"'),
    "one rung drawn": ({"draw_rungs": 0}, "give a list such as"),
    "seed in words": ({"seed": "a"}, "seed is 'a'; it must be a whole number"),
    "gain not a number": ({"gain": float("nan")}, "give a number, a function"),
    "no steps between points": ({"history_every": 0}, "at least 1"),
    "callback no function": ({"callback": 3}, "give a function"),
    "replicas not given": ({"num_replicas": None}, "write num_replicas="),
    "rates decrease": ({"learning_rate": (0.1, 0.01)}, "must not decrease.*coldest"),
    "rates up and down": ({"learning_rate": (0.1, 0.3, 0.2)}, "must not decrease"),
    "rate zero": ({"learning_rate": 0.0}, "must be positive"),
    "rate negative": ({"learning_rate": (-0.1, 0.1)}, "must be positive"),
    "rate not finite": ({"learning_rate": (0.1, np.nan)}, "must be positive"),
    "rates equal": ({"learning_rate": (0.1, 0.1)}, "strictly increasing.*adapt=False"),
    "rates too many": ({"learning_rate": (0.1, 0.2, 0.3, 0.4)}, r"3 replicas give one number"),
    "temperatures too many": ({"temperature": (1, 2, 3, 4)}, r"3 replicas give one number"),
    "temperature negative": ({"temperature": -1.0}, "at least 0"),
    "rule without temperatures": ({"rule": "metropolis"}, r"strictly increasing.*\(cold, hot\)"),
    "rule with falling temperatures": (
        {"rule": "bias_corrected", "temperature": (2.0, 1.0)},
        "strictly increasing",
    ),
    "rule with equal temperatures": (
        {"rule": "metropolis", "temperature": (1.0, 2.0, 2.0)},
        "strictly increasing",
    ),
    "window_corrected by name": ({"rule": "window_corrected"}, "rx.swap.window_corrected"),
    "noise by the wrong pairs": (
        {**TEMPERED, "rule": swap.bias_corrected((0.1, 0.2, 0.3))},
        "2 adjacent pairs.*give one number",
    ),
    "swap rate 0": ({"target_swap_rate": 0}, r"in \(0, 1\), such as 0.4"),
    "swap rate 1": ({"target_swap_rate": 1.0}, r"in \(0, 1\), such as 0.4"),
    "swap rate nan": ({"target_swap_rate": np.nan}, r"in \(0, 1\), such as 0.4"),
    "window 0": ({"window": 0}, "whole number of at least 1"),
    "window 2.5": ({"window": 2.5}, "whole number of at least 1"),
    "window of deo": ({"schedule": "deo", "window": 2}, 'schedule="deo_star"'),
    "window said twice": ({"schedule": schedule.windowed_deo(3), "window": 2}, "say it once"),
    "alternate": (
        {"schedule": schedule.windowed_deo(3, alternate=False)},
        "leave alternate=True",
    ),
    "schedule misspelt": ({"schedule": "deo_stra"}, "Did you mean 'deo_star'"),
    "rule misspelt": ({"rule": "metropolos"}, "Did you mean 'metropolis'"),
    "kernel misspelt": ({"kernel": "momentun"}, "Did you mean 'momentum'"),
    "energy_at misspelt": ({"energy_at": "befor"}, "Did you mean 'before'"),
    "on_nonfinite misspelt": ({"on_nonfinite": "stopp"}, "Did you mean 'stop'"),
    "buffer misspelt": ({"buffer": "aut"}, "Did you mean 'auto'"),
    "buffer_gain misspelt": ({"buffer_gain": "aut"}, "Did you mean 'auto'"),
    "buffer nan": ({"buffer": np.nan}, 'finite number or "auto"'),
    "gain negative": ({"gain": -1.0}, r"rx.Gain\(...\)"),
    "adapt negative": ({"adapt": -1}, "at least 0"),
    "before with metropolis": ({**TEMPERED, "energy_at": "before"}, 'energy_at="moved"'),
    "weight decay with metropolis": (
        {**TEMPERED, "kernel": kernels.sgld(weight_decay=0.1)},
        "into the energy",
    ),
    "no steps": ({"num_steps": 0}, "at least 1"),
    "no chains": ({"num_chains": 0}, "at least 1"),
    "thin 0": ({"thin": 0}, "at least 1"),
    "burn_in negative": ({"burn_in": -1}, "at least 0"),
    "chunk_steps 0": ({"chunk_steps": 0}, "at least 1"),
    "checkpoint_every 0": ({"checkpoint_every": 0}, "at least 1"),
    "draws without the target": ({"draw_rungs": (1,)}, "start with 0"),
    "draws of no rung": ({"draw_rungs": (0, 3)}, "rungs 0 to 2"),
    "batch_size alone": ({"batch_size": 3}, "give the arrays as batches"),
    "batches of no kind": ({"batches": 3}, "a function of the step, or an iterable"),
    "start of the wrong length": ({"params": rx.per_replica(jnp.zeros((4, 2)))}, r"\(3, ...\)"),
    "starts of the wrong chains": (
        {"params": rx.per_replica(jnp.zeros((2, 4, 2))), "num_chains": 2},
        r"\(3, ...\) or \(2, 3, ...\)",
    ),
    "start of integers": ({"params": jnp.zeros(2, int)}, "write 0.0 instead of 0"),
    "no start": ({"params": {}}, "give the point where sampling starts"),
    "start not finite": ({"params": jnp.array([0.0, np.nan])}, "start where the posterior has"),
}
BAD_TARGETS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "vector": (lambda x: x**2, {}, r"shape \(2,\).*sum \(or average\)"),
    "shape (1,)": (lambda x: jnp.sum(x)[None], {}, "must return a scalar"),
    "complex": (lambda x: jnp.sum(x) * 1j, {}, "real floating-point"),
    "integer": (lambda x: jnp.array(3), {}, "real floating-point"),
    "tuple": (lambda x: (jnp.sum(x), 1.0), {}, "one scalar"),
    "nothing": (lambda x: None, {}, "one scalar"),
    "no function": (3, {}, r"energy\(params, batch, key\)"),
    "four arguments": (lambda a, b, c, d: jnp.sum(a), {}, r"\(params, batch, key\)"),
    "inf": (lambda x: jnp.sum(x) + jnp.inf, {}, "start where the posterior has mass"),
    "-inf": (lambda x: jnp.sum(x) - jnp.inf, {}, "start where the posterior has mass"),
    "a gradient apart, before": (
        rx.Target(bowl, lambda x: 2 * x),
        {"energy_at": "before"},
        'energy_at="moved"',
    ),
    "arrays without a size": (WITH_BATCHES, {"batches": ROWS}, "batch_size=..."),
    "a batch too large": (
        WITH_BATCHES,
        {"batches": ROWS, "batch_size": 41},
        "whole number from 1 to 40",
    ),
    "rows that differ": (
        lambda x, rows: bowl(x),
        {"batches": (ROWS, ROWS[:9]), "batch_size": 3},
        r"differ in their number of rows",
    ),
    "noise of a function": (
        WITH_BATCHES,
        {
            "batches": lambda step: ROWS[:3],
            "rule": "bias_corrected",
            "temperature": (1.0, 2.0),
        },
        "arrays with batch_size, or a known energy_noise_std",
    ),
    "nothing to iterate": (WITH_BATCHES, {"batches": iter([])}, "itertools.cycle"),
}


@pytest.fixture
def no_loop(monkeypatch) -> None:
    """Bad input must be found before the loop is compiled."""

    def compiled(*args: Any) -> None:
        raise AssertionError("the loop was about to be compiled")

    monkeypatch.setattr(run, "build_chunk", compiled)


def three_replicas(target: Any, **options: Any) -> None:
    options = {"params": jnp.zeros(2), "learning_rate": (0.01, 0.1), **options}
    options = {"num_steps": 10, "num_replicas": 3, "progress": False, **options}
    rx.sample(target, options.pop("params"), **options)


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_gets_a_sentence_with_the_remedy(name: str, no_loop: None) -> None:
    options, remedy = BAD_OPTIONS[name]
    with pytest.raises(ValueError, match=remedy):
        three_replicas(bowl, **options)


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_a_bad_target_gets_a_sentence_with_the_remedy(name: str, no_loop: None) -> None:
    target, options, remedy = BAD_TARGETS[name]
    with pytest.raises(ValueError, match=remedy):
        three_replicas(target, **options)


def test_the_table_of_bad_input_starts_from_good_input(no_loop: None) -> None:
    with pytest.raises(AssertionError, match="about to be compiled"):
        three_replicas(bowl)


def test_a_run_folder_that_is_none_gets_a_sentence(tmp_path, no_loop: None) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="below a file; run_dir must be a folder"):
        three_replicas(bowl, run_dir=file)
    for path in (tmp_path, file, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="is not a run folder: there is no run.json"):
            rx.load(path)
        with pytest.raises(ValueError, match="is not a run folder: there is no run.json"):
            rx.resume(path, bowl)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="already holds a run; write rx.resume"):
        three_replicas(bowl, run_dir=tmp_path)


def cliff(x: jax.Array, steps: jax.Array) -> jax.Array:
    """Flat, and not a number from step 20 on."""
    return jnp.where(steps >= 20, jnp.nan, 0.0) + 0.0 * jnp.sum(x)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("on_nonfinite", ["stop", "ignore"])
def test_a_non_finite_energy_later_stops_the_run_or_is_ignored(on_nonfinite: str) -> None:
    options: dict[str, Any] = {
        **TEMPERED,
        "window": 2,
        "batches": lambda step: np.float32(step),
        "on_nonfinite": on_nonfinite,
    }
    posterior = quietly(cliff, 0.0, **options)
    assert (np.diff(posterior.rung_of[0, :20].astype(int), axis=0) != 0).any()
    assert np.isfinite(posterior.energies[0, :20]).all()
    if on_nonfinite == "stop":
        assert posterior.result.code == "nonfinite"
        for word in ("replica", "rung 0", "chain 0", "nan", "step 20"):
            assert word in posterior.result.sentence
        assert posterior.num_steps == 21 and posterior.draws.shape == (1, 21)
    else:
        assert posterior.result.code == "finished" and posterior.num_steps == 60
        frozen = posterior.rung_of[0, 19:]
        np.testing.assert_array_equal(frozen, np.broadcast_to(frozen[0], frozen.shape))
        assert np.isfinite(posterior.draws).all()
