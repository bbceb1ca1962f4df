"""Properties that must hold for any input: schedules, swaps, ladder, unit, trips, keys, trees.

Sizes come from short lists, so that each property is compiled a few times only.
"""

import functools
import itertools
import json
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import example, given, settings
from hypothesis import strategies as st

import replicax as rx
from replicax import batches, diagnostics, ladder, prng, schedule, swap, trees
from replicax.chance import Attempts, draw_block
from replicax.ladder import EnergyUnit

SIZES = st.sampled_from([2, 3, 5, 8])
SEEDS = st.integers(0, 2**32 - 1)
few = settings(max_examples=25)


def rng_of(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# Schedules.
@functools.cache
def active_over(made: schedule.Schedule, num_pairs: int, num_steps: int) -> np.ndarray:
    steps = jnp.arange(num_steps)
    odd = jnp.asarray(rng_of(0).integers(0, 2, num_steps).astype(bool))
    active = jax.vmap(lambda step, odd: schedule.active_pairs(made, step, odd, num_pairs))
    return np.asarray(active(steps, odd))


@given(num_replicas=SIZES, window=st.sampled_from([1, 3]), coin=st.booleans())
def test_active_pairs_are_disjoint_and_all_get_their_turn(num_replicas, window, coin) -> None:
    made = schedule.seo() if coin else schedule.windowed_deo(window)
    window = made.window
    active = active_over(made, num_replicas - 1, 12 * window)
    assert not (active[:, 1:] & active[:, :-1]).any(), "a rung cannot be in two pairs"
    pairs = np.arange(num_replicas - 1)
    turns = active.reshape(-1, window, num_replicas - 1)
    assert (turns == turns[:, :1]).all(), "a turn lasts one window"
    assert active.any(axis=0).all(), "every pair gets its turn"
    # All even pairs or all odd ones, never some of them.
    assert all(set(pairs[row]) in ({*pairs[::2]}, {*pairs[1::2]}) for row in active)
    if not coin:
        clock = np.arange(12 * window)
        np.testing.assert_array_equal(active, (pairs + 1) % 2 == (clock // window % 2)[:, None])


@given(window=st.sampled_from([1, 2, 3, 7, 20]), step=st.integers(0, 10**6))
def test_windows_open_and_close_by_one_clock(window: int, step: int) -> None:
    made = schedule.windowed_deo(window)
    assert bool(schedule.window_opens(made, step)) == (step % window == 0)
    assert bool(schedule.window_closes(made, step)) == (step % window == window - 1)
    assert bool(schedule.window_closes(made, step)) == bool(schedule.window_opens(made, step + 1))


def bits(count: int, size: int) -> st.SearchStrategy[list[np.ndarray]]:
    one = st.lists(st.booleans(), min_size=size, max_size=size).map(np.array)
    return st.lists(one, min_size=count, max_size=count)


@given(
    seen=bits(4, 6),
    swaps=st.sampled_from(schedule.SWAPS_PER_WINDOW),
    step=st.integers(0, 50),
)
def test_who_swaps_is_active_and_agreed_or_forced(seen, swaps, step) -> None:
    active, gate, wanted, finite = seen
    wanted = wanted & finite
    made = schedule.windowed_deo(3, swaps)
    swapped = np.asarray(schedule.swapping_pairs(made, step, active, gate, wanted, finite))
    last = swaps == "exactly_one" and step % 3 == 2
    agreed = finite if last else wanted
    expected = active & agreed & (gate | (swaps == "no_gate"))
    np.testing.assert_array_equal(swapped, expected)


@pytest.mark.parametrize("num_replicas", [2, 5])
def test_sweeps_attempt_the_pairs_they_promise(num_replicas: int) -> None:
    every = list(itertools.combinations(range(num_replicas), 2))
    adjacent = [(i, i + 1) for i in range(num_replicas - 1)]
    for made, pairs in ((schedule.adj(), adjacent), (schedule.ape(), every)):
        assert schedule.num_attempts(made, num_replicas) == len(pairs)
        orders = [
            schedule.attempt_order(made, jax.random.key(seed), num_replicas).tolist()
            for seed in range(4)
        ]
        assert all(sorted(map(tuple, order)) == pairs for order in orders)
        if made.name == "adj":
            assert all(order == [list(pair) for pair in pairs] for order in orders)
        elif num_replicas > 2:
            assert len({str(order) for order in orders}) > 1, "in random order"


# Swaps.
def index_of(replica_at: np.ndarray) -> swap.Index:
    return swap.Index(jnp.asarray(np.argsort(replica_at)), jnp.asarray(replica_at))


def assert_inverse(index: swap.Index) -> None:
    rung_of, replica_at = np.asarray(index.rung_of), np.asarray(index.replica_at)
    np.testing.assert_array_equal(rung_of[replica_at], np.arange(len(rung_of)))
    np.testing.assert_array_equal(replica_at[rung_of], np.arange(len(rung_of)))


swap_adjacent, swap_two = jax.jit(swap.swap_adjacent), jax.jit(swap.swap_two)


@given(num_replicas=SIZES, seed=SEEDS, parity=st.integers(0, 1))
def test_disjoint_swaps_are_those_of_moving_parameters(num_replicas, seed, parity) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    pairs = np.arange(num_replicas - 1)
    swapped = (pairs % 2 == parity) & (rng.random(num_replicas - 1) < 0.6)
    after = swap_adjacent(before, swapped)
    by_hand = before.replica_at.tolist()
    for i in np.nonzero(swapped)[0]:
        by_hand[i], by_hand[i + 1] = by_hand[i + 1], by_hand[i]
    assert after.replica_at.tolist() == by_hand
    assert_inverse(after)
    assert after.rung_of.dtype == before.rung_of.dtype == jnp.int32
    again = swap_adjacent(after, swapped)
    np.testing.assert_array_equal(again.replica_at, before.replica_at)
    np.testing.assert_array_equal(again.rung_of, before.rung_of)


@given(num_replicas=SIZES, seed=SEEDS, swapped=st.booleans())
def test_a_swap_of_any_two_is_that_of_moving_parameters(num_replicas, seed, swapped) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    cold, hot = np.sort(rng.choice(num_replicas, 2, replace=False)).astype(np.int32)
    after = swap_two(before, cold, hot, swapped)
    by_hand = before.replica_at.tolist()
    if swapped:
        by_hand[cold], by_hand[hot] = by_hand[hot], by_hand[cold]
    assert after.replica_at.tolist() == by_hand
    assert_inverse(after)
    again = swap_two(after, cold, hot, swapped)
    np.testing.assert_array_equal(again.rung_of, before.rung_of)


@functools.partial(jax.jit, static_argnums=0)
def sweep_by_energy(sweep, index: swap.Index, attempts: Attempts, energy_of: jax.Array):
    def wanted(attempt: Attempts, cold: jax.Array, hot: jax.Array) -> jax.Array:
        return attempt.log_uniform < energy_of[cold] - energy_of[hot]

    return sweep(index, attempts, wanted)


@given(num_replicas=SIZES, seed=SEEDS, sweep=st.sampled_from([swap.sweep, swap.ascend]))
def test_a_sweep_is_one_swap_after_another(num_replicas, seed, sweep) -> None:
    rng = rng_of(seed)
    before = index_of(rng.permutation(num_replicas).astype(np.int32))
    order = np.array(list(itertools.combinations(range(num_replicas), 2)), np.int32)
    order = rng.permutation(order) if sweep is swap.sweep else order[order[:, 1] == order[:, 0] + 1]
    log_uniform = -rng.exponential(size=len(order)).astype(np.float32)
    energy_of = rng.normal(size=num_replicas).astype(np.float32)
    attempts = Attempts(order, log_uniform, None, None)
    after, swapped = sweep_by_energy(sweep, before, attempts, energy_of)

    by_hand, adjacent = before.replica_at.tolist(), [False] * (num_replicas - 1)
    for (cold, hot), log_u in zip(order, log_uniform):
        if log_u < energy_of[by_hand[cold]] - energy_of[by_hand[hot]]:
            by_hand[cold], by_hand[hot] = by_hand[hot], by_hand[cold]
            if hot == cold + 1:
                adjacent[cold] = True
    assert after.replica_at.tolist() == by_hand
    assert swapped.tolist() == adjacent
    assert_inverse(after)


@given(num_draws=st.sampled_from([2, 8]), num_replicas=st.sampled_from([2, 5]), seed=SEEDS)
@few
def test_the_noise_of_a_pair_is_half_the_variance_of_its_difference(
    num_draws, num_replicas, seed
) -> None:
    energies = rng_of(seed).normal(size=(num_draws, num_replicas)).astype(np.float32)
    seen = swap.energy_noise_variance(jnp.asarray(energies))
    difference = energies[:, :, None] - energies[:, None, :]
    np.testing.assert_allclose(seen, difference.var(axis=0, ddof=1) / 2, rtol=1e-3, atol=1e-5)


FINITE = st.floats(-50, 50, width=32)


@given(cold=FINITE, hot=FINITE, gap=st.floats(0.0, 3.0), std=st.floats(0, 3), late=FINITE)
def test_corrections_only_lower_the_probability(cold, hot, gap, std, late) -> None:
    def log_probability(noise_var: float, correction: float) -> float:
        cold_energy, hot_energy = np.float64(cold), np.float64(hot)
        pair = swap.Encounter(cold_energy, hot_energy, gap, noise_var, 0.0, jnp.array(0.0))
        return float(swap.log_swap_probability(pair, correction))

    plain, corrected = log_probability(0.0, 0.0), log_probability(std**2, abs(late))
    assert corrected <= plain <= 0
    expected = min(0.0, gap * (cold - hot))
    assert plain == pytest.approx(expected, rel=1e-5, abs=1e-5)
    uncapped = gap * (cold - hot) - gap**2 * std**2 - abs(late)
    assert corrected == pytest.approx(min(0.0, uncapped), rel=1e-5, abs=1e-4)


# Ladder.
adapt_rungs = jax.jit(ladder.adapt_rungs, static_argnums=2)
LADDER_SIZES = st.sampled_from([2, 3, 5, 40])


def random_ladder(num_rungs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rungs with gaps of very different sizes, some zero, and verdicts."""
    rng = rng_of(seed)
    gaps = np.exp(3 * rng.normal(size=num_rungs - 1)) * (rng.random(num_rungs - 1) < 0.9)
    rungs = np.cumsum(np.concatenate([[0.01], gaps])).astype(np.float32)
    return rungs, rng.random(num_rungs - 1) < rng.random()


@given(
    num_rungs=LADDER_SIZES,
    seed=SEEDS,
    gain=st.sampled_from([0.0, 0.1, 0.5, 3.0]),
)
def test_an_adapted_ladder_is_sorted_between_its_fixed_ends(num_rungs, seed, gain) -> None:
    rungs, wanted = random_ladder(num_rungs, seed)
    adapted = np.asarray(adapt_rungs(rungs, wanted, 0.4, jnp.float32(gain)))
    assert adapted.dtype == np.float32 and adapted.shape == rungs.shape
    assert (np.diff(adapted) >= 0).all()
    assert adapted[0] == rungs[0] and adapted[-1] == rungs[-1]
    expected = reference.adapt_ladder(rungs.astype(float), list(wanted), 0.4, gain)
    np.testing.assert_allclose(adapted, expected, rtol=2e-5, atol=2e-5 * rungs[-1])


@given(num_rungs=LADDER_SIZES, seed=SEEDS, power=st.integers(-12, 12))
@few
def test_an_adapted_ladder_scales_with_its_unit(num_rungs, seed, power) -> None:
    rungs, wanted = random_ladder(num_rungs, seed)
    unit = np.float32(2.0**power)
    one, other = (adapt_rungs(x, wanted, 0.4, jnp.float32(0.3)) for x in (rungs, unit * rungs))
    np.testing.assert_array_equal(unit * np.asarray(one), other)


@given(num_rungs=st.sampled_from([3, 5]), seed=SEEDS, rate=st.sampled_from([0.1, 0.4, 0.9]))
def test_a_gap_grows_where_the_rule_says_yes(num_rungs, seed, rate) -> None:
    """One verdict differs, all gaps equal: its own gap is the larger for the yes."""
    rng = rng_of(seed)
    rungs = np.linspace(1.0, 2.0, num_rungs).astype(np.float32)
    pair = int(rng.integers(num_rungs - 1))
    others = rng.random(num_rungs - 1) < 0.5
    yes, no = others.copy(), others.copy()
    yes[pair], no[pair] = True, False
    gaps = [np.diff(adapt_rungs(rungs, w, rate, jnp.float32(0.2)))[pair] for w in (yes, no)]
    assert gaps[0] > gaps[1]
    # And with the same verdict everywhere nothing moves: both sides push alike.
    same = adapt_rungs(rungs, np.full(num_rungs - 1, yes[pair]), rate, jnp.float32(0.2))
    np.testing.assert_allclose(same, rungs, rtol=1e-6)


@given(seed=SEEDS, buffer=FINITE, rate=st.sampled_from([0.1, 0.5]))
@few
def test_the_buffer_follows_the_mean_verdict(seed, buffer, rate) -> None:
    wanted = rng_of(seed).random(7) < 0.5
    moved = ladder.adapt_buffer(jnp.float32(buffer), jnp.asarray(wanted), rate, jnp.float32(0.5))
    assert float(moved) == pytest.approx(buffer + 0.5 * (wanted.mean() - rate), abs=1e-5)


@functools.cache
def sort_all_sizes() -> Callable[[Any], list[jax.Array]]:
    def sort(values: jax.Array) -> list[jax.Array]:
        return [ladder.sort_positive(values[:size]) for size in range(1, 101)]

    return jax.jit(sort, compiler_options={"xla_backend_optimization_level": 0})


@pytest.mark.parametrize("kind", ["spread", "duplicates", "sorted", "reversed", "tiny"])
def test_positive_numbers_of_any_count_are_sorted(kind: str) -> None:
    values = np.exp(4 * rng_of(1).normal(size=100)).astype(np.float32)
    if kind == "duplicates":
        values = rng_of(2).integers(1, 9, 100).astype(np.float32)
    elif kind in ("sorted", "reversed"):
        values = np.sort(values)[:: 1 if kind == "sorted" else -1]
    elif kind == "tiny":
        values = np.float32(1e-30) * values
    for size, ordered in enumerate(sort_all_sizes()(values.copy()), start=1):
        np.testing.assert_array_equal(ordered, np.sort(values[:size]))


@pytest.mark.parametrize("size", [5, 40])
def test_positive_doubles_are_sorted(size: int) -> None:
    values = np.exp(rng_of(3).normal(size=size))
    with jax.enable_x64(True):
        ordered = ladder.sort_positive(jnp.asarray(values))
        assert ordered.dtype == jnp.float64
        np.testing.assert_array_equal(ordered, np.sort(values))


@given(cold=st.floats(1e-4, 1.0), ratio=st.floats(1.0, 1e4), num_rungs=st.integers(1, 50))
def test_a_geometric_ladder_has_equal_ratios_and_exact_ends(cold, ratio, num_rungs) -> None:
    rungs = ladder.geometric(cold, cold * ratio, num_rungs)
    assert rungs[0] == cold and rungs.shape == (num_rungs,)
    if num_rungs > 1:
        assert rungs[-1] == cold * ratio
        ratios = rungs[1:] / rungs[:-1]
        np.testing.assert_allclose(ratios, ratio ** (1 / (num_rungs - 1)), rtol=1e-9)


# The unit of energy.
@jax.jit
def measured(energies: jax.Array) -> EnergyUnit:
    start = EnergyUnit(jnp.float32(0.0), jnp.int32(0))
    return jax.lax.scan(lambda unit, row: (unit.measure(row), None), start, energies)[0]


@given(seed=SEEDS, scale=st.sampled_from([1e-6, 0.5, 3.0, 1e4, 1e12]), shift=FINITE)
@few
def test_the_unit_of_energy_scales_with_the_energy(seed, scale, shift) -> None:
    energies = rng_of(seed).normal(size=(20, 5)).astype(np.float32)
    one = float(measured(energies).value())
    assert float(measured(np.float32(scale) * energies).value()) == pytest.approx(
        scale * one, rel=1e-4
    )
    assert float(measured(energies + np.float32(shift)).value()) == pytest.approx(one, rel=2e-3)
    flipped = energies[:, ::-1]
    assert float(measured(flipped).value()) == pytest.approx(one, rel=1e-5)


def test_the_unit_of_gaussian_differences_is_their_standard_deviation() -> None:
    steps = rng_of(0).normal(scale=3.0, size=(4000, 2)).astype(np.float32)
    assert float(measured(steps).value()) == pytest.approx(3.0 * np.sqrt(2), rel=0.05)


@given(seed=SEEDS, bad=st.sampled_from([np.nan, np.inf, -np.inf]))
@few
def test_ties_and_non_finite_energies_say_nothing_of_the_unit(seed, bad) -> None:
    energies = rng_of(seed).normal(size=(20, 5)).astype(np.float32)
    energies[3, 2], energies[7] = bad, 1.0
    logs = np.log(np.abs(np.diff(np.delete(energies, [3, 7], axis=0), axis=1)))
    beside = np.log(np.abs([energies[3, 1] - energies[3, 0], energies[3, 4] - energies[3, 3]]))
    logs = np.append(logs, beside)
    unit = measured(energies)
    assert int(unit.count) == logs.size
    assert float(unit.value()) == pytest.approx(1.887 * np.exp(logs.mean()), rel=1e-4)


# Round trips.
def random_paths(num_replicas: int, num_steps: int, seed: int, wild: bool) -> np.ndarray:
    """Index paths (step, replica): all pairs may meet, or neighbours only."""
    rng = rng_of(seed)
    replica_at, paths = np.arange(num_replicas), []
    for _ in range(num_steps):
        one = rng.integers(num_replicas - (not wild))
        other = rng.integers(num_replicas) if wild else one + 1
        replica_at[[one, other]] = replica_at[[other, one]]
        paths.append(np.argsort(replica_at))
    return np.array(paths)


@given(
    num_replicas=st.integers(2, 6),
    num_steps=st.integers(1, 200),
    seed=SEEDS,
    wild=st.booleans(),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
@example(num_replicas=2, num_steps=30, seed=0, wild=False, cuts=list(range(30)))
def test_round_trips_are_those_of_the_oracle_however_the_path_is_cut(
    num_replicas, num_steps, seed, wild, cuts
) -> None:
    chains = [random_paths(num_replicas, num_steps, seed + i, wild) for i in range(2)]
    paths = np.stack(chains).astype(np.int8)
    expected = [reference.round_trips(path) for path in paths]
    assert diagnostics.round_trips(paths).tolist() == expected

    # From step 0, where replica i is on rung i, in pieces.
    home = np.arange(num_replicas)[None]
    started = [reference.round_trips(np.concatenate([home, path])) for path in paths]
    trips = diagnostics.Trips.none(2, num_replicas)
    ends = sorted({0, *(min(cut, num_steps) for cut in cuts), num_steps})
    for start, end in itertools.pairwise(ends):
        trips = diagnostics.follow_trips(trips, paths[:, start:end])
    assert trips.count.tolist() == started
    whole = diagnostics.follow_trips(diagnostics.Trips.none(2, num_replicas), paths)
    np.testing.assert_array_equal(trips.way, whole.way)


# Keys: the bits of JAX's own generator.
DRAWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "bits8": lambda key: jax.random.bits(key, (5,), jnp.uint8),
    "bits16": lambda key: jax.random.bits(key, (4, 3), jnp.uint16),
    "bits32": lambda key: jax.random.bits(key, (7,), jnp.uint32),
    "one word": lambda key: jax.random.bits(key, (), jnp.uint32),
    "nothing": lambda key: jax.random.bits(key, (0,), jnp.uint32),
    "normal": lambda key: jax.random.normal(key, (3, 2)),
    "bfloat16": lambda key: jax.random.normal(key, (5,), jnp.bfloat16),
    "uniform": lambda key: jax.random.uniform(key, (6,)),
    "exponential": lambda key: jax.random.exponential(key, (6,)),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (9,)),
    "randint": lambda key: jax.random.randint(key, (9,), 0, 1000),
    "permutation": lambda key: jax.random.permutation(key, 13),
    "split": lambda key: jax.random.key_data(jax.random.split(key)),
    "split many": lambda key: jax.random.key_data(jax.random.split(key, (3, 2))),
    "fold_in": lambda key: jax.random.key_data(jax.random.fold_in(key, 2**31 - 1)),
    "grandchild": lambda key: jax.random.normal(jax.random.split(jax.random.fold_in(key, 7), 4)[2]),
}
WIDE_DRAWS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "bits64": lambda key: jax.random.bits(key, (5,), jnp.uint64),
    "doubles": lambda key: jax.random.normal(key, (3,)),
    "long integers": lambda key: jax.random.randint(key, (4,), 0, 2**40),
    "permutation": lambda key: jax.random.permutation(key, 13),
}


@functools.cache
def draw_all(wide: bool) -> Callable[[jax.Array], dict[str, jax.Array]]:
    draws = WIDE_DRAWS if wide else DRAWS
    return jax.jit(
        lambda key: {name: draw(key) for name, draw in draws.items()},
        compiler_options={"xla_backend_optimization_level": 0},
    )


@given(seed=st.integers(-(2**31), 2**31 - 1), wide=st.booleans())
@example(seed=0, wide=False)
@example(seed=0, wide=True)
@few
def test_keys_draw_what_the_default_generator_draws(seed, wide) -> None:
    with jax.enable_x64(wide):
        ours, theirs = draw_all(wide)(prng.make_key(seed)), draw_all(wide)(jax.random.key(seed))
        assert ours.keys() == theirs.keys()
        for name, drawn in ours.items():
            assert drawn.dtype == theirs[name].dtype, name
            np.testing.assert_array_equal(drawn, theirs[name], err_msg=name)


@given(seed=SEEDS)
@few
def test_an_ordinary_key_is_one_of_jax(seed: int) -> None:
    key = prng.ordinary(prng.make_key(seed))
    assert key.dtype == jax.random.key(0).dtype
    np.testing.assert_array_equal(
        jax.random.key_data(key), jax.random.key_data(jax.random.key(seed))
    )


def test_a_block_of_chance_is_that_of_its_steps_one_by_one() -> None:
    key = prng.make_key(5)

    def draw(step: jax.Array) -> dict[str, jax.Array]:
        now = jax.random.fold_in(key, step)
        return {"normal": jax.random.normal(now, (3, 2)), "coin": jax.random.bernoulli(now)}

    block = jax.jit(functools.partial(draw_block, draw))(17 + jnp.arange(6))
    assert block["normal"].shape == (6, 3, 2)
    for place in range(6):
        one = jax.jit(draw)(17 + place)
        np.testing.assert_array_equal(block["normal"][place], one["normal"])
        np.testing.assert_array_equal(block["coin"][place], one["coin"])


# Trees as plain data.
LEAVES = st.builds(
    lambda shape, dtype: np.ones(shape, dtype),
    st.lists(st.integers(0, 3), max_size=3).map(tuple),
    st.sampled_from(["float32", "float64", "int8"]),
)
NAMES = st.text(alphabet="ab/ .é_0", min_size=1, max_size=4)
TREES = st.recursive(
    LEAVES | st.none(),
    lambda parts: (
        st.lists(parts, max_size=3)
        | st.lists(parts, max_size=3).map(tuple)
        | st.dictionaries(NAMES, parts, max_size=3)
    ),
    max_leaves=6,
)


@given(tree=TREES)
@example(tree={"a b": np.ones(1), "a/b": np.ones(2)})
def test_a_tree_is_rebuilt_from_its_description(tree: Any) -> None:
    described = json.loads(json.dumps(trees.describe(tree)))
    leaves = jax.tree.leaves(tree)
    rebuilt = trees.rebuild(described, leaves)
    assert jax.tree.structure(rebuilt) == jax.tree.structure(tree)
    assert all(a is b for a, b in zip(jax.tree.leaves(rebuilt), leaves, strict=True))
    assert [tuple(shape) for shape in described["shapes"]] == [x.shape for x in leaves]
    assert described["dtypes"] == [str(x.dtype) for x in leaves]
    names = described["names"]
    assert len(set(names)) == len(names) == len(leaves)
    assert all(name and not set(name) & set("/ \\") for name in names)


def test_a_tree_with_containers_of_its_own_needs_a_likeness() -> None:
    tree = {"replica": rx.Replica(np.ones(2), np.zeros(3)), "n": np.ones(())}
    described = trees.describe(tree)
    leaves = jax.tree.leaves(tree)
    assert described["structure"] is None
    assert trees.rebuild(described, leaves).keys() == {"n", "replica.params", "replica.memory"}
    rebuilt = trees.rebuild(described, leaves, like=tree)
    assert isinstance(rebuilt["replica"], rx.Replica)


# Batches.
@given(num_rows=st.sampled_from([1, 7]), batch_size=st.sampled_from([1, 3, 7]), seed=SEEDS)
@few
def test_batches_of_arrays_are_rows_of_them(num_rows, batch_size, seed) -> None:
    batch_size = min(batch_size, num_rows)
    data = {"x": np.arange(2.0 * num_rows).reshape(num_rows, 2), "y": np.arange(num_rows)}
    source = batches.as_batches(data, batch_size)
    rows = source.draw(jax.random.key(seed))
    assert rows.shape == (batch_size,) and (rows >= 0).all() and (rows < num_rows).all()
    if batch_size == num_rows:
        assert rows.tolist() == list(range(num_rows)), "everything, in order"
    taken = source.take(source.data, rows)
    np.testing.assert_array_equal(taken["y"], rows)
    np.testing.assert_array_equal(taken["x"][:, 0], 2 * taken["y"])


def test_every_row_is_drawn_equally_often() -> None:
    source = batches.as_batches(np.zeros((5, 1)), 4)
    rows = jax.vmap(source.draw)(jax.random.split(jax.random.key(0), 2500))
    counts = np.bincount(np.asarray(rows).ravel(), minlength=5)
    assert np.abs(counts - 2000).max() < 5 * np.sqrt(2000 * 0.8)


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), looks=st.integers(0, 9))
def test_an_iterable_feeds_the_same_batches_however_it_is_cut(lengths, looks) -> None:
    total = sum(lengths)
    from_function = batches.as_batches(lambda step: {"x": np.full(2, step)}, None)
    from_iterable = batches.as_batches(({"x": np.full(2, k)} for k in range(total)), None)
    assert from_function.replayable and not from_iterable.replayable
    ahead = min(looks, total - 1)  # as `sample` does, to see whether the energy is usable
    assert from_iterable.at(ahead)["x"].tolist() == [ahead, ahead]
    start = 0
    for length in lengths:
        (count, ours), (_, theirs) = (
            b.feed(start, length, 5) for b in (from_iterable, from_function)
        )
        assert count == length
        assert ours["x"].shape == (5, 2), "padded to the capacity of a chunk"
        np.testing.assert_array_equal(ours["x"], theirs["x"])
        assert ours["x"][:length, 0].tolist() == list(range(start, start + length))
        start += length
    with pytest.raises(ValueError, match=f"ended at step {total}; .*itertools.cycle"):
        from_iterable.at(total)
    with pytest.raises(ValueError, match="cannot be had again. Give a function of the step"):
        from_iterable.at(start - 1)


@given(skipped=st.integers(0, 9))
@few
def test_a_resumed_iterable_is_skipped_forward(skipped: int) -> None:
    source = batches.as_batches(iter(range(10)), None)
    source.skip_to(skipped)
    assert source.position == skipped
    count, fed = source.feed(skipped, 2, 3)
    assert count == min(2, 10 - skipped) and fed[0] == skipped, "what there is, then the end"
