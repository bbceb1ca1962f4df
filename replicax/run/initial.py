"""The states before step 0: starts, also those that differ by replica, and checks of the energy
there.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from replicax.algorithm import state
from replicax.algorithm.kernel import PyTree
from replicax.algorithm.labels import label_places, taken
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.target import Target, check_energy, takes_key
from replicax.errors import check_flag, check_function, explained, show
from replicax.run import devices, trees
from replicax.run.carry import STATE_AXES, Carry, start_counters
from replicax.run.compiled_once import compiled_once, on_disk
from replicax.run.program import Program

_PERMUTED = 4  # starts beside which labels are permuted
_BESIDE = 0.1  # how far, in units of the size of the entries
_HALVINGS = 20  # of points, to where the energy is finite
_ROUNDED = 1e-4  # relative difference of energies that rounding may make
_RUNG_BYTES = 64  # of a rung beside its parameters: ladder, index, energies, counts


class PerReplica(NamedTuple):
    """A tree whose leaves have leading axes (replica, ...) or (chain, replica, ...)."""

    tree: PyTree
    by_chain: bool | None = None  # None: the shapes tell


def per_replica(tree: PyTree, by_chain: bool | None = None) -> PerReplica:
    """Mark starts that differ by replica: leading axes (replica, ...) or (chain, replica, ...).

    `by_chain=True` says that the leading axes are (chain, replica, ...), `by_chain=False` that
    there is no axis of chains. Without it the shapes decide; where they fit both, it is needed.
    """
    check_flag("by_chain", by_chain, None)
    return PerReplica(tree, by_chain)


def spread_starts(tree: PyTree, by_chain: bool | None, num_chains: int, num_replicas: int) -> Any:
    """Return starts with leading axes (chain, replica, ...)."""
    shapes = [leaf.shape for leaf in jax.tree.leaves(tree)]
    both = (num_chains, num_replicas)
    fits_chains = all(shape[:2] == both for shape in shapes)
    fits_replicas = all(shape[:1] == (num_replicas,) for shape in shapes)
    if shapes and by_chain is None and fits_chains and fits_replicas:
        raise ValueError(
            f"per_replica params begin with {both}, and there are {num_chains} chains of "
            f"{num_replicas} replicas: write rx.per_replica(tree, by_chain=True) if the first axis "
            "is the chain and the second the replica, by_chain=False if the first is the replica."
        )
    if shapes and fits_chains and by_chain is not False:
        return tree
    if shapes and fits_replicas and not by_chain:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_chains, *x.shape)), tree)
    alone, by_chains = f"({num_replicas}, ...)", f"({num_chains}, {num_replicas}, ...)"
    needed = {None: f"{alone} or {by_chains}", True: by_chains, False: alone}[by_chain]
    raise ValueError(
        f"per_replica params have leading axes {sorted({shape[:2] for shape in shapes})}; with "
        f"{num_chains} chains of {num_replicas} replicas every leaf must begin with "
        f"{needed}."
    )


def initial_points(
    params: PyTree, key: Array, num_chains: int, num_replicas: int, with_state: bool = False
) -> Any:
    """Return the start of every replica, leading axes (chain, replica, ...).

    `params` is one start for all, `per_replica(...)`, or a function of a key. With `with_state` a
    start is a pair (params, model_state).
    """
    if isinstance(params, PerReplica):
        tree = jax.tree.map(_as_array, params.tree)
        starts = spread_starts(tree, params.by_chain, num_chains, num_replicas)
    elif is_function(params):
        check_function("start", params, "key")

        def draw_chains(key: Array, chains: Array) -> Any:
            def draw_chain(chain: Array) -> Any:
                keys = jax.random.split(jax.random.fold_in(key, chain), num_replicas)
                return jax.vmap(params)(keys)

            return jax.vmap(draw_chain)(chains)

        with explained("start(key)", "It must return the point where sampling starts."):
            # The draws for a ResNet20 take 0.2 s, and 15 s to be optimised.
            starts = compiled_once(draw_chains, runs_once=with_state)(key, jnp.arange(num_chains))
    else:
        one = jax.tree.map(_as_array, params)
        starts = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (num_chains, num_replicas, *leaf.shape)), one
        )
    if with_state and not (isinstance(starts, tuple | list) and len(starts) == 2):
        raise ValueError(
            "The start must be a pair (params, model_state), or a function of a key that returns "
            "one; where there is nothing to remember, model_state is {}."
        )
    leaves = jax.tree.leaves(starts[0] if with_state else starts)
    if not sum(leaf.size for leaf in leaves):
        raise ValueError("start holds no arrays; give the point where sampling starts.")
    for leaf in leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ValueError(
                f"start holds an array of dtype {leaf.dtype}; sampling moves real floating-point "
                "numbers: write 0.0 instead of 0, or close over what stays fixed."
            )
    # A weak type would become a strong one after the first chunk and compile the loop again.
    starts = jax.tree.map(lambda leaf: jnp.array(leaf, dtype=leaf.dtype), starts)
    return tuple(starts) if with_state else starts


def _as_array(leaf: Any) -> Array:
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError):
        raise ValueError(
            f"start holds {show(leaf)}; give numbers and arrays: the point where sampling starts."
        ) from None


def is_function(start: Any) -> bool:
    """Return whether a start is a function of a key."""
    return callable(start) and not _is_array_tree(start)


def _is_array_tree(params: PyTree) -> bool:
    """Return True for callable pytrees, such as an Equinox module: they are starts themselves."""
    leaves = jax.tree.leaves(params)
    return bool(leaves) and all(isinstance(x, jax.Array | np.ndarray | float) for x in leaves)


def check_memory(params: PyTree, num_chains: int, num_replicas: int) -> None:
    """Raise if the states of all replicas need more memory than there is.

    Counted are three copies of the parameters (themselves, gradient, memory of the kernel) and a
    few numbers of each rung; activations and records come on top.
    """
    needed = num_chains * num_replicas * (3 * 4 * (num_parameters(params) or 0) + _RUNG_BYTES)
    present = devices.memory_bytes()
    if needed > present:
        raise ValueError(
            f"num_replicas is {num_replicas} and num_chains {num_chains}: their states need about "
            f"{needed / 1e9:,.1f} GB of memory, and there are {present / 1e9:,.1f} GB. Write fewer."
        )


def num_parameters(params: PyTree) -> int | None:
    """Return how many numbers one start has, None where only making it would tell."""
    if isinstance(params, PerReplica):
        return None
    if callable(params) and not _is_array_tree(params):
        try:
            params = jax.eval_shape(params, jax.random.key(0))
        except Exception:  # which is explained where the starts are made
            return None
    try:
        leaves = jax.tree.leaves(params)
    except ValueError:
        raise ValueError(
            "start has keys that cannot be sorted, such as text and numbers in one dict: write "
            "text for all."
        ) from None
    return sum(getattr(leaf, "size", 1) for leaf in leaves)


def initial_carry(program: Program, params: PyTree) -> Carry:
    """Return the carry of all chains at step 0, after checks of the energy there."""
    return build_carry(program, checked_points(program, params))


def checked_points(program: Program, params: PyTree, anywhere: bool = False) -> PyTree:
    """Return where all replicas start, leading axes (chain, replica), after checks of the energy
    there."""
    with on_disk():
        keys, start_key = seed_keys(program.seed, program.num_chains)
    has_state = program.target.has_state
    points = initial_points(
        params, start_key, program.num_chains, program.num_replicas, with_state=has_state
    )
    with explained("batches", "Does it suit the rows?"):
        batch = program.batches.first(keys[0])
    check_energy(program.target, jax.eval_shape(trees.first, points), batch, keys[0])
    # Of networks, the first step tells; where a search comes first, starts may be `anywhere`.
    if not (has_state or anywhere or program.settings.jumps is not None):
        check_finite(program, points)
    if program.kernel.traits.adjusted and takes_key(program.target):
        _check_exact(program, points, batch, keys)
    if program.target.exchangeable is not None:
        _check_exchangeable(program, points, batch, keys)
    return points


def build_carry(program: Program, points: PyTree) -> Carry:
    """Return the carry of all chains at step 0, from points that were checked."""
    return _build_carry(program, points, compiled_once)


def have_one_start(carry: Carry) -> bool:
    """Return whether all replicas of all chains start at one point."""
    return bool(_are_equal(carry.state.points))


@jax.jit
def _are_equal(points: PyTree) -> Array:
    return jnp.all(jnp.stack([jnp.all(x == x[:1, :1]) for x in jax.tree.leaves(points)]))


def carry_like(program: Program, like: PyTree) -> Carry:
    """Return the shapes of a carry, given those of one point."""
    lead = (program.num_chains, program.num_replicas)
    points = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*lead, *x.shape), x.dtype), like)
    return jax.eval_shape(lambda points: _build_carry(program, points), points)


def _build_carry(program: Program, points: PyTree, compile: Callable = jax.jit) -> Carry:
    target = program.target

    def build(points: PyTree, ladder: Ladder, buffer: float, batch: PyTree) -> Carry:
        def one_chain(point: PyTree) -> Carry:
            params, model_state = point if target.has_state else (point, None)
            start = state.init(
                program.kernel, params, ladder, program.settings, buffer, model_state, target, batch
            )
            observes, redraws = program.kernel.traits.observes, program.settings.redraws > 0
            counters = start_counters(start, program.track_best, observes, redraws)
            return Carry(start, counters)

        return jax.vmap(one_chain, out_axes=Carry(STATE_AXES, 0))(points)  # type: ignore

    # Ladder, buffer and energies in the precision of the parameters, at least float32.
    params = points[0] if target.has_state else points
    dtype = jnp.result_type(jnp.float32, *jax.tree.leaves(params))
    ladder = jax.tree.map(lambda values: jnp.asarray(values, dtype), program.ladder)
    rows = program.batches.data if program.kernel.traits.prepare is not None else None
    return compile(build)(points, ladder, program.buffer, rows)


def check_finite(program: Program, points: PyTree) -> None:
    """Raise unless the energy is finite at points with leading axes (chain, replica)."""
    target, num_replicas, keys = program.target, program.num_replicas, program.keys
    batch = program.batches.first(keys[0])
    with_prior = target.tempers_likelihood and target.prior is not None
    of_all = target.whole_energy  # one row that is NaN may be in no mini-batch for long
    batch = batch if of_all is None else program.batches.data

    def energies(params, batch, keys):
        def one(point, key):
            noise = target.draw(key)
            energy = target.energy(point, batch, noise) if of_all is None else of_all(point, batch)
            return (energy, target.prior(point)) if with_prior else (energy,)  # type: ignore

        keys = jax.vmap(lambda key: jax.random.split(key, num_replicas))(keys)
        return jax.vmap(jax.vmap(one))(params, keys)

    values = compiled_once(energies)(points, batch, keys)
    names = ("log_likelihood of the data", "log_prior") if with_prior else ("energy",)
    floats = [x for x in jax.tree.leaves(batch) if jnp.issubdtype(x.dtype, jnp.floating)]
    finite = all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in floats)
    remedy = "start where the posterior has mass" if finite else "the data hold NaN or inf"
    for name, value in zip(names, values):
        value = np.asarray(-value if with_prior else value)
        if not np.all(np.isfinite(value)):
            chain, replica = np.argwhere(~np.isfinite(value))[0]
            where = f" of chain {chain}" if program.num_chains > 1 else ""
            raise ValueError(
                f"The {name} at the start is {value[chain, replica]} for replica {replica}{where}; "
                f"{remedy}."
            )


def _check_exact(program: Program, points: PyTree, batch: PyTree, keys: Array) -> None:
    """Raise unless the energy is the same for two keys."""
    target, point = program.target, trees.first(points)
    energy = jax.jit(lambda p, b, key: target.energy(p, b, target.draw(key)))
    one, other = (float(energy(point, batch, key)) for key in jax.random.split(keys[0]))
    if one != other:
        raise ValueError(
            f"The energy at the start is {one:.6g} with one key and {other:.6g} with another, and "
            "an adjusted kernel (mala; hmc, the default) needs an exact one. For noisy energies "
            "write method=rx.deo_star(learning_rate=(cold, hot))."
        )


def _check_exchangeable(program: Program, points: PyTree, batch: PyTree, keys: Array) -> None:
    """Raise unless the density beside some of the starts is the same when labels are permuted."""
    target = program.target
    _, unravel = ravel_pytree(trees.first(points))

    @jax.jit
    def energies(points: Array, batch: PyTree) -> tuple[Array, Array]:
        def one(point: Array) -> tuple[Array, Array]:
            params = unravel(point)
            prior = jnp.zeros(()) if target.prior is None else target.prior(params)
            return target.energy(params, batch, target.draw(keys[0])), prior

        return jax.vmap(one)(points)

    beside, permuted = _beside_and_permuted(target, points)
    for _ in range(_HALVINGS):  # a start may be where the energy is infinite
        finite = jnp.isfinite(sum(energies(beside, batch)))[:, None]
        beside, permuted = (jnp.where(finite, x, x / 2) for x in (beside, permuted))
    both = [energies(x, batch) for x in (beside, permuted)]
    names = ("log likelihood", "log prior") if target.tempers_likelihood else ("energy", "prior")
    sign = -1 if target.tempers_likelihood else 1
    for name, one, other in zip(names, *both, strict=True):
        one, other = sign * np.asarray(one, float), sign * np.asarray(other, float)
        with np.errstate(invalid="ignore"):
            apart = np.abs(one - other) - _ROUNDED * (1 + np.abs(one))
        if np.any(apart > 0):
            at = int(np.nanargmax(apart))
            raise ValueError(
                f"The {name} is {one[at]:.6g} at a point beside the start and {other[at]:.6g} when "
                "the labels of exchangeable= are permuted there: they cannot be exchanged. Name "
                "all arrays that carry the label, and give every label the same prior."
            )


def _beside_and_permuted(target: Target, points: PyTree) -> tuple[Array, Array]:
    """Return flattened points beside some of the starts (chain, replica, ...), and the same with
    their labels permuted. Labels that start at one point would be the same in any order."""
    places = label_places(target.exchangeable, trees.first(points))
    assert places is not None
    flat = np.asarray(jax.vmap(jax.vmap(lambda tree: ravel_pytree(tree)[0]))(points))
    flat = flat.reshape(-1, flat.shape[-1])[:_PERMUTED]
    rng = np.random.default_rng(0)
    beside = flat + _BESIDE * (1 + np.abs(flat)) * rng.standard_normal(flat.shape)
    beside = beside.astype(flat.dtype)
    rank = [np.roll(np.arange(len(places)), 1), *(rng.permutation(len(places)) for _ in beside)]
    permuted = taken(places, beside, np.stack(rank[: len(beside)]))
    return jnp.asarray(beside), jnp.asarray(permuted)


def with_row_energies(target: Target) -> Target:
    """Return the target with the energies of batches of one row as `row_energies`."""

    def row_energies(point: PyTree, batch: PyTree, noise: Any) -> Array:
        def energy(row: Any) -> Array:
            return target.energy_at(point, jax.tree.map(lambda leaf: leaf[None], row), noise)

        return jax.vmap(energy)(batch)

    return target._replace(row_energies=row_energies)


def use_rows(program: Program, carry: Carry) -> Program:
    """Return the program with energies by row, if the energy of a batch is the mean of those of
    its rows (as at the starting points)."""
    target = program.target
    keys = program.keys
    batch = program.batches.first(keys[0])
    if batch is None or target.row_energies:
        return program
    with_rows = with_row_energies(target)

    @jax.jit
    def compare(points: PyTree, batch: PyTree, key: Array) -> tuple[Array, Array]:
        point, noise = trees.first(points), target.draw(key)
        rows = with_rows.row_energies(point, batch, noise)  # type: ignore[misc]
        return target.energy_at(point, batch, noise), jnp.mean(rows)

    energy, mean = (float(value) for value in compare(carry.state.points, batch, keys[0]))
    same = np.isclose(energy, mean, rtol=1e-3)
    return replace(program, target=with_rows) if same else program
