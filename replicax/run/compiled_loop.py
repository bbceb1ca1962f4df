"""The compiled part of the loop: up to `capacity` steps of all chains in one program.

The number of steps is dynamic and the chance of step k depends on k alone, so the length of a
chunk changes nothing but when the host looks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.randomness import draw_block
from replicax.algorithm.step import State, build_parts
from replicax.algorithm.window_correction import Correction
from replicax.run import counters as tallies
from replicax.run.batches import ArrayBatches, Batches, EpochBatches, HostBatches, row_drawer
from replicax.run.counters import Tally
from replicax.run.program import Numbers, Program, Programs

# Only `step` is shared by the chains; everything else has a leading chain axis.
STATE_AXES: Any = State._make([None] + [0] * (len(State._fields) - 1))

_AHEAD_BYTES = 2**16  # of chance a step: up to here it is drawn many steps ahead
_BLOCK_STEPS = 1024  # steps drawn ahead at once, to stay in the cache
_CHUNK_BYTES = 2**26  # of records on the device
_CHUNK_STEPS = 2**16


class Carry(NamedTuple):
    """What a checkpoint holds: all that the rest of the run depends on."""

    state: State
    tally: Tally


class Chunk(NamedTuple):
    """What a chunk brings to the host; rows beyond `count` are empty."""

    count: Array  # steps done
    rung_of: Array  # (step, chain, replica)
    draws: Any  # (draw, chain, rung, ...)
    energies: Array  # (draw, chain, rung)
    history: dict[str, Array]  # (point, chain, ...)


def start(program: Program, states: State) -> Carry:
    """The carry before the first step; `states` has a leading chain axis but on `step`."""
    begin = jax.vmap(lambda state: tallies.start(state, program.track_best), (STATE_AXES,))
    return Carry(states, begin(states))


def chunk_capacity(program: Program, carry: Carry) -> int:
    """The most steps of one chunk: bounded by the memory that its records and batches take."""
    if program.chunk_steps is not None:
        return max(2, program.chunk_steps)
    num_chains, num_replicas = carry.state.rung_of.shape
    draw_bytes = 0
    if program.keep_draws:
        draw_bytes = _num_bytes(carry.state.points) // num_replicas * len(program.draw_rungs)
    per_step = num_chains * num_replicas + -(-draw_bytes // program.thin)
    if isinstance(program.batches, HostBatches):
        batch = program.batches.at(int(carry.state.step))
        per_step += _num_bytes(jax.tree.map(np.asarray, batch))
    return int(np.clip(_CHUNK_BYTES // max(per_step, 1), 1, _CHUNK_STEPS))


def build_chunk(
    program: Program, keys: Array, capacity: int, programs: Programs | None = None
) -> Callable:
    """Compile `chunk(carry, data, count, slots) -> carry, Chunk` for up to `capacity` steps.

    `slots[i]` is the row that step i's draw goes to; what is not kept goes to a row too many.
    """
    if programs is None:  # known numbers make faster code
        compiled = jax.jit(_build(program, capacity), donate_argnums=0)
        return lambda carry, *rest: compiled(carry, keys, *rest)

    def chunk(carry: Carry, numbers: Numbers, *rest: Any) -> tuple[Carry, Chunk]:
        return _build(numbers.put_into(program), capacity)(carry, *rest)

    shared = programs.get("chunk", program, lambda: jax.jit(chunk, donate_argnums=0), capacity)
    return lambda carry, *rest: shared(carry, Numbers.of(program), keys, *rest)


def _build(program: Program, capacity: int) -> Callable:
    settings, batches = program.settings, program.batches
    draw, advance = build_parts(program.target, program.kernel, settings, row_drawer(batches))
    one_chain = program.num_chains == 1
    num_rows = capacity // program.thin + 2
    max_points = capacity // program.history_every + 1
    rungs = jnp.array(program.draw_rungs)

    def step_chain(chance, state, tally, orders, data, place):
        batch, fresh_batch = _batch(batches, chance, state.step, orders, data, place)
        after, info = advance(chance, state, batch, fresh_batch)
        scored = after if settings.energy_at == "moved" else state
        tally = tallies.count(tally, state, info, settings.schedule, program.burn_in, scored.points)
        drawn = after.replica_at[rungs]
        kept = after.points if program.keep_draws else None
        position = jax.tree.map(lambda leaf: leaf[drawn], kept)
        return after, tally, (position, info.energy[state.rung_of[drawn]])

    # A single chain is spared its axis: without it XLA gathers faster and updates in place.
    draw_chains, step_chains, order_chains = draw, step_chain, _build_orders(program, capacity)
    if not one_chain:
        draw_chains = jax.vmap(draw, (0, None, 0))
        step_chains = jax.vmap(step_chain, (0, STATE_AXES, 0, 0, None, None), (STATE_AXES, 0, 0))
        order_chains = jax.vmap(order_chains, (0, None))

    def chunk(carry: Carry, keys: Array, data: Any, count: Array, slots: Array):
        if one_chain:
            carry, keys = _per_chain(lambda leaf: leaf[0], carry), keys[0]
        start = carry.state.step
        chance_bytes = _num_bytes(jax.eval_shape(draw_chains, keys, start, carry.state.replicas))
        ahead = chance_bytes <= _AHEAD_BYTES
        # XLA compiles a block of a single step differently, to the last bit: never make one.
        block = max(2, min(_BLOCK_STEPS, program.history_every, capacity)) if ahead else capacity

        def healthy(carry: Carry) -> Array:
            return jnp.all((carry.tally.nonfinite == 0) | (not program.stop_on_nonfinite))

        def segment(loop):
            """Steps up to the end of the block, of the chunk, or to the next point of history."""
            carry, rows, first = loop
            if ahead:
                draw_all = lambda step: draw_chains(keys, step, carry.state.replicas)  # noqa: E731
                chances = draw_block(draw_all, start + first + jnp.arange(block))
            orders = order_chains(keys, start + first)
            every = program.history_every
            until_point = ((start + first) // every + 1) * every - start
            end = jnp.minimum(jnp.minimum(first + block, count), until_point)

            def one_step(inner):
                carry, rows, place = inner
                if ahead:
                    chance = jax.tree.map(lambda leaf: _get(leaf, place - first), chances)
                else:
                    chance = draw_chains(keys, carry.state.step, carry.state.replicas)
                state, tally, drawn = step_chains(
                    chance, carry.state, carry.tally, orders, data, place
                )
                slot = _get(slots, place)
                rung_of = state.rung_of.astype(rows.rung_of.dtype)
                rows = rows._replace(
                    rung_of=_put(rows.rung_of, rung_of, place),
                    draws=jax.tree.map(lambda r, x: _put(r, x, slot), rows.draws, drawn[0]),
                    energies=_put(rows.energies, drawn[1], slot),
                )
                return Carry(state, tally), rows, place + 1

            carry, rows, place = jax.lax.while_loop(
                lambda inner: (inner[2] < end) & healthy(inner[0]), one_step, (carry, rows, first)
            )
            points = (start + place) // every - start // every
            row = jnp.where((start + place) % every == 0, points - 1, max_points)
            history = {
                name: _put(rows.history[name], value, row)
                for name, value in _history(carry).items()
            }
            return carry, rows._replace(history=history), place

        rows = _empty_rows(program, carry, capacity, num_rows, max_points + 1)
        carry, rows, place = jax.lax.while_loop(
            lambda loop: (loop[2] < count) & healthy(loop[0]), segment, (carry, rows, jnp.array(0))
        )
        if one_chain:
            carry = _per_chain(lambda leaf: leaf[None], carry)
            rows = jax.tree.map(lambda leaf: leaf[:, None], rows._replace(count=None))
        return carry, rows._replace(count=place)

    return chunk


def _per_chain(change: Callable[[Array], Array], carry: Carry) -> Carry:
    """Change every array that has a value per chain."""
    return jax.tree.map(
        lambda axis, part: part if axis is None else jax.tree.map(change, part),
        Carry._make([STATE_AXES, 0]),
        carry,
        is_leaf=lambda axis: axis is None,
    )


def _put(rows: Array, value: Array, place: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(rows, value, place, 0)


def _get(rows: Array, place: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(rows, place, keepdims=False)


class Orders(NamedTuple):
    """The rows of the epochs that the steps of a segment belong to."""

    first_epoch: Array
    rows: Array  # (epoch, row)


def _build_orders(program: Program, capacity: int) -> Callable[[Array, Array], Orders | None]:
    """`orders(key, step)`: once a segment, since to permute all rows at every step takes long."""
    batches = program.batches
    if not isinstance(batches, EpochBatches):
        return lambda key, step: None
    longest = min(program.history_every, capacity)
    num_epochs = -(-longest // batches.steps_per_epoch) + 1

    def orders(key: Array, step: Array) -> Orders:
        first = step // batches.steps_per_epoch
        epochs = first + jnp.arange(num_epochs)
        return Orders(first, jax.lax.map(lambda epoch: batches.order(key, epoch), epochs))

    return orders


def _batch(
    batches: Batches, chance: Any, step: Array, orders: Any, data: Any, place: Array
) -> tuple[Any, Callable | None]:
    if isinstance(batches, EpochBatches):
        order = orders.rows[step // batches.steps_per_epoch - orders.first_epoch]
        batch = batches.take(data, order, step, chance.batch)
        return batch, lambda key: batches.fresh(data, key)
    if isinstance(batches, ArrayBatches):
        fresh_batch = lambda key: batches.take(data, batches.draw(key))  # noqa: E731
        return batches.take(data, chance.batch), fresh_batch
    if isinstance(batches, HostBatches):
        return jax.tree.map(lambda leaf: leaf[place], data), None
    return None, None


def _history(carry: Carry) -> dict[str, Array]:
    state, tally = carry
    tuned = isinstance(state.correction, Correction)
    return {
        "learning_rate": state.ladder.learning_rate,
        "temperature": state.ladder.temperature,
        "buffer": state.buffer,
        "pairs": tally.pairs,
        "energy": tally.energy,
        **({"window_correction": state.correction.value} if tuned else {}),
    }


def _empty_rows(
    program: Program, carry: Carry, capacity: int, num_rows: int, num_points: int
) -> Chunk:
    *chains, num_replicas = carry.state.rung_of.shape
    num_rungs = len(program.draw_rungs)
    small = jnp.int8 if num_replicas <= 128 else jnp.int16
    dtype = carry.tally.energy.dtype
    return Chunk(
        count=jnp.array(0),
        rung_of=jnp.zeros((capacity, *chains, num_replicas), small),
        draws=jax.tree.map(
            lambda leaf: jnp.zeros(
                (num_rows, *chains, num_rungs, *leaf.shape[len(chains) + 1 :]), leaf.dtype
            ),
            carry.state.points if program.keep_draws else None,
        ),
        energies=jnp.zeros((num_rows, *chains, num_rungs), dtype),
        history={
            name: jnp.zeros((num_points, *value.shape), value.dtype)
            for name, value in _history(carry).items()
        },
    )


def _num_bytes(tree: Any) -> int:
    """Of arrays, shapes or keys."""
    sizes = (
        8 if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x.dtype.itemsize
        for x in jax.tree.leaves(tree)
    )
    return sum(
        int(np.prod(x.shape)) * size for x, size in zip(jax.tree.leaves(tree), sizes, strict=True)
    )
