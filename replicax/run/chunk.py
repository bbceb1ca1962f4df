"""The compiled part of the loop: many steps of all chains in one program, and the rows that these
write.

The number of steps is dynamic and the randomness of step k depends on k alone, so the length of a
chunk changes no result, only how often the host sees the run. `rung_of` has a row for every step,
draws and energies one for every draw, history one for every point; what is not kept goes to one row
too many, which is never read.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.randomness import draw_block
from replicax.algorithm.spread import share_rows
from replicax.algorithm.step import build_parts
from replicax.run import devices, trees
from replicax.run.carry import STATE_AXES, Carry, count_step, per_chain
from replicax.run.compiled_once import compiled_once
from replicax.run.processes import follow
from replicax.run.program import Program

_AHEAD_BYTES = 2**16  # of randomness a step: up to here it is drawn many steps ahead
_BLOCK_STEPS = 1024  # steps drawn ahead at once, to stay in the cache
_CHUNK_BYTES = 2**26  # of records on the device
_SPREAD_CHUNK_BYTES = 2**22  # of records that devices send each other at the end of a chunk
_CHUNK_STEPS = 2**16
FIRST_STEPS = 64  # of a run, before its pace is known
_CHUNK_SECONDS = 0.5  # that a chunk takes, and no longer: the host sees the run in between


class Rows(NamedTuple):
    """The rows of one chunk; those beyond `count` are empty."""

    count: Any  # steps done
    rung_of: Array  # (step, chain, replica)
    draws: Any  # (draw, chain, rung, ...)
    energies: Array  # (draw, chain, rung)
    rung_energies: Array | None  # of all rungs before the swap  (draw, chain, rung)
    weights: Array | None  # log weights of a draw of jumps and of a proposal  (draw, chain, 2)
    before: Array | None  # the coldest replica before its jumps  (step with draws, chain, d)
    history: dict[str, Array]  # (point, chain, ...)


def empty(program: Program, carry: Carry, capacity: int) -> Rows:
    """Return empty rows for up to `capacity` steps, without a chain axis if `carry` has none."""
    *chains, num_replicas = carry.state.rung_of.shape
    num_rungs, num_draws = len(program.draw_rungs), _num_draws(program, capacity) + 1
    num_slots, num_draws = num_draws, num_draws * program.draws_per_step
    num_points = _num_points(program, capacity) + 1
    jumps = bool(jax.tree.leaves(carry.state.mixture))
    small = jnp.int8 if num_replicas <= 128 else jnp.int16
    return Rows(
        count=jnp.array(0),
        rung_of=jnp.zeros((capacity, *chains, num_replicas), small),
        draws=jax.tree.map(
            lambda leaf: jnp.zeros(
                (num_draws, *chains, num_rungs, *leaf.shape[len(chains) + 1 :]), leaf.dtype
            ),
            carry.state.points if program.keep_draws else None,
        ),
        energies=jnp.zeros((num_draws, *chains, num_rungs), carry.counters.energy.dtype),
        rung_energies=jnp.zeros((num_draws, *chains, num_replicas), carry.counters.energy.dtype)
        if program.keeps_rung_energies
        else None,
        weights=jnp.zeros((num_draws, *chains, 2), carry.counters.energy.dtype) if jumps else None,
        before=jnp.zeros(
            (num_slots, *chains, carry.state.jumps.points.shape[-1]), carry.state.jumps.points.dtype
        )
        if jumps and program.keep_draws
        else None,
        history={
            name: jnp.zeros((num_points, *value.shape), value.dtype)
            for name, value in _history(carry).items()
        },
    )


def _num_draws(program: Program, capacity: int) -> int:
    return capacity // program.thin + 1


def _num_points(program: Program, capacity: int) -> int:
    return capacity // program.history_every + 1


def draw_slots(program: Program, step: int, count: int, capacity: int) -> np.ndarray:
    """Return the row of each step's draw; steps without one share the last row."""
    drawn = program.is_drawn(np.arange(step, step + count))
    slots = np.full(capacity, _num_draws(program, capacity), np.int32)
    slots[:count][drawn] = np.arange(drawn.sum())
    return slots


def put_step(
    rows: Rows, rung_of: Array, draw: tuple[Any, Array, Array, Any, Any], place: Array, slot: Array
) -> Rows:
    """Write the step at `place` of the chunk, and its draw, (point, energy, energies of all rungs,
    log weights of jumps, the point before them; these may be None), to row `slot`; or the several
    draws that it leaves, with an axis of their own before that of the rungs, to as many rows."""
    point, energy, by_rung, weights, before = draw
    kept = rows.rung_energies
    several, axis = energy.ndim == rows.energies.ndim, energy.ndim - 2
    if several:
        count = energy.shape[axis]
        by_rung = jnp.repeat(jnp.expand_dims(by_rung, axis), count, axis)

    def write(column: Array, value: Array) -> Array:
        if not several:
            return put(column, value, slot)
        values = jnp.moveaxis(value, axis, 0)
        return jax.lax.dynamic_update_slice_in_dim(column, values, slot * count, 0)

    return rows._replace(
        rung_of=put(rows.rung_of, rung_of.astype(rows.rung_of.dtype), place),
        draws=jax.tree.map(write, rows.draws, point),
        energies=write(rows.energies, energy),
        rung_energies=None if kept is None else write(kept, by_rung.astype(kept.dtype)),
        weights=None if rows.weights is None else write(rows.weights, weights),
        before=None if rows.before is None else put(rows.before, before, slot),
    )


def put_history(
    program: Program, rows: Rows, carry: Carry, start: Array, step: Array, capacity: int
) -> Rows:
    """Write a point of history if one is due after `step` steps; the chunk began at `start`."""
    every = program.history_every
    number = step // every - start // every - 1
    row = jnp.where(step % every == 0, number, _num_points(program, capacity))
    history = {name: put(rows.history[name], value, row) for name, value in _history(carry).items()}
    return rows._replace(history=history)


def _history(carry: Carry) -> dict[str, Array]:
    state, counters = carry
    return {
        "learning_rate": state.ladder.learning_rate,
        "temperature": state.ladder.temperature,
        "buffer": state.buffer,
        "pairs": counters.pairs,
        "energy": counters.energy,
    }


def to_records(program: Program, rows: Rows, step: int, done: int) -> dict[str, dict]:
    """Return the rows of `done` steps from `step` on, by group of records and variable."""
    num_slots = int(program.is_drawn(np.arange(step, step + done)).sum())
    num_draws = num_slots * program.draws_per_step
    num_points = (step + done) // program.history_every - step // program.history_every
    draws = {"energy": first_rows(rows.energies, num_draws)}
    if rows.rung_energies is not None:
        draws["rung_energy"] = first_rows(rows.rung_energies, num_draws)
    if rows.weights is not None:
        draws["jump_weight"] = first_rows(rows.weights, num_draws)
    for name, leaf in zip(trees.leaf_names(rows.draws), jax.tree.leaves(rows.draws), strict=True):
        draws[f"params.{name}"] = first_rows(leaf, num_draws)
    return {
        "steps": {"rung_of": first_rows(rows.rung_of, done)},
        "draws": draws,
        **(
            {}
            if rows.before is None
            else {"before_jumps": {"point": first_rows(rows.before, num_slots)}}
        ),
        "history": {name: first_rows(x, num_points) for name, x in rows.history.items()},
    }


def first_rows(rows: Any, count: int) -> np.ndarray:
    """Return a copy of the first rows, cut on the host: the device would compile every length."""
    return np.asarray(rows)[:count].copy()


def put(rows: Array, value: Array, place: Array) -> Array:
    """Write one row."""
    # No branch around it: XLA copies rows that a branch passes on, and a step of the 25 modes takes
    # 16 us in place of 3; hence the row too many. `rows.at[place].set`, a scatter, costs 5 % more.
    return jax.lax.dynamic_update_index_in_dim(rows, value, place, 0)


def get(rows: Array, place: Array) -> Array:
    """Read one row."""
    return jax.lax.dynamic_index_in_dim(rows, place, keepdims=False)


def chunk_capacity(program: Program, carry: Carry) -> int:
    """Return the most steps of one chunk, bounded by the memory of its records and batches."""
    num_chains, num_replicas = carry.state.rung_of.shape
    draw_bytes = 0
    if program.keep_draws:
        draw_bytes = _num_bytes(carry.state.points) // num_replicas * len(program.draw_rungs)
        draw_bytes *= program.draws_per_step
    per_step = num_chains * num_replicas + -(-draw_bytes // program.thin)
    per_step += program.batches.bytes_per_step(int(carry.state.step))
    most = _CHUNK_BYTES if program.mesh is None else _SPREAD_CHUNK_BYTES
    return int(np.clip(most // max(per_step, 1), 1, _CHUNK_STEPS))


class Pace(NamedTuple):
    """The length of the next chunk: half a second's worth of steps, and enough to outweigh the
    fixed cost of a chunk."""

    length: int
    capacity: int
    before: tuple[int, float] | None = None  # steps and seconds of the chunk before

    def after(self, steps: int, seconds: float) -> "Pace":
        """Return the pace after a chunk of `steps` took `seconds`; those of the first one are
        compilation."""
        if steps == 0:
            return self
        if self.before is None:
            return self._replace(before=(0, 0.0))
        before_steps, before_seconds = self.before
        per_step, fixed = seconds / steps, 0.0
        if before_steps and before_steps != steps:
            slope = (seconds - before_seconds) / (steps - before_steps)
            per_step = max(slope, 0.01 * per_step)
            fixed = max(seconds - per_step * steps, 0.0)
        wanted = max(_CHUNK_SECONDS, 4 * fixed) / per_step
        length = int(np.clip(wanted, steps / 4, steps * 4))
        return self._replace(length=min(max(length, 1), self.capacity), before=(steps, seconds))


class Chunks:
    """The chunks of a run, compiled once; each is as long as the pace allows, and ends where the
    host has to see the run."""

    def __init__(self, program: Program, carry: Carry) -> None:
        self.program, self.step = program, int(carry.state.step)
        self.capacity = chunk_capacity(program, carry)
        self._chunk = build_chunk(program, program.keys, self.capacity)
        self._pace = Pace(min(self.capacity, FIRST_STEPS), self.capacity)

    def feed(self) -> tuple[int, Any]:
        """Return how many steps come next, the same in all processes, and the data that they need;
        0 where the batches ended."""
        left = self.program.next_stop(self.step) - self.step
        count = follow(min(self._pace.length, left))
        return self.program.batches.feed(self.step, count, self.capacity)

    def advance(self, carry: Carry, count: int, data: Any) -> tuple[Carry, dict[str, dict], float]:
        """Take up to `count` steps; return the carry after them, their rows by group of records,
        and the rate in steps per second."""
        program, began = self.program, time.monotonic()
        slots = draw_slots(program, self.step, count, self.capacity)
        carry, rows = self._chunk(carry, data, count, slots)
        ahead = self.step + count
        program.batches.read_ahead(ahead, min(count, program.num_steps - ahead))
        done = int(rows.count)
        seconds = max(time.monotonic() - began, 1e-9)
        self._pace = self._pace.after(done, seconds)
        added = to_records(program, rows, self.step, done)
        self.step += done
        return carry, added, done / seconds


def build_chunk(program: Program, keys: Array, capacity: int) -> Callable[..., tuple[Carry, Rows]]:
    """Compile `chunk(carry, data, count, slots) -> carry, Rows` for up to `capacity` steps.

    `slots[i]` is the row that the draw of step i goes to, as of `rows.draw_slots`.
    """
    if program.mesh is not None:
        spread, chunk = program.settings.spread, _build_steps(program, capacity)
        return devices.SpreadChunk(program.mesh, spread, chunk, keys)
    # The carry is donated: its arrays are written over, and replicas are in memory once.
    compiled = compiled_once(_build_steps(program, capacity), donate_argnums=0)
    return lambda carry, *rest: compiled(carry, keys, *rest)


def _build_steps(program: Program, capacity: int) -> Callable:
    """Build the chunk; a single chain is spared its axis: without it XLA gathers faster and updates
    in place."""
    segments = _build_segments(program, capacity)
    if program.num_chains > 1:
        return segments

    def chunk(carry: Carry, keys: Array, *rest: Any) -> tuple[Carry, Rows]:
        carry, rows = segments(per_chain(lambda leaf: leaf[0], carry), keys[0], *rest)
        carry = per_chain(lambda leaf: leaf[None], carry)
        columns = jax.tree.map(lambda leaf: leaf[:, None], rows._replace(count=None))
        return carry, columns._replace(count=rows.count)

    return chunk


def _build_segments(program: Program, capacity: int) -> Callable:
    """Build a loop of segments, each up to the next point of history, made of single steps."""
    spread, every = program.settings.spread, program.history_every
    draw_chains, step_chains, plan_chains = _build_chains(program, capacity)

    def chunk(carry: Carry, keys: Array, data: Any, count: Array, slots: Array):
        start = carry.state.step
        size = _num_bytes(jax.eval_shape(draw_chains, keys, start, carry.state.replicas))
        size *= spread.parts * spread.chain_parts
        ahead = size <= _AHEAD_BYTES
        # XLA compiles a block of a single step differently, to the last bit: never make one.
        block = max(2, min(_BLOCK_STEPS, every, capacity)) if ahead else capacity

        def segment(loop):
            carry, rows, first = loop
            if ahead:
                draw_all = lambda step: draw_chains(keys, step, carry.state.replicas)  # noqa: E731
                drawn = draw_block(draw_all, start + first + jnp.arange(block))
            plan = plan_chains(keys, start + first)
            until_point = ((start + first) // every + 1) * every - start
            end = jnp.minimum(jnp.minimum(first + block, count), until_point)

            def one_step(inner):
                carry, rows, place = inner
                if ahead:
                    random = jax.tree.map(lambda leaf: get(leaf, place - first), drawn)
                else:
                    random = draw_chains(keys, carry.state.step, carry.state.replicas)
                state, counts, draw = step_chains(random, *carry, plan, data, place)
                rows = put_step(rows, state.rung_of, draw, place, get(slots, place))
                return Carry(state, counts), rows, place + 1

            carry, rows, place = jax.lax.while_loop(
                lambda inner: (inner[2] < end) & _is_healthy(program, inner[0]),
                one_step,
                (carry, rows, first),
            )
            rows = put_history(program, rows, carry, start, start + place, capacity)
            return carry, rows, place

        carry, rows, place = jax.lax.while_loop(
            lambda loop: (loop[2] < count) & _is_healthy(program, loop[0]),
            segment,
            (carry, empty(program, carry, capacity), jnp.array(0)),
        )
        return carry, rows._replace(count=place)

    return chunk


def _build_chains(program: Program, capacity: int) -> tuple[Callable, Callable, Callable]:
    """Build `draw`, `step` and `plan` for all chains, or for one without an axis."""
    settings, batches, rungs = program.settings, program.batches, jnp.array(program.draw_rungs)
    spread = settings.spread
    draw, advance = build_parts(program.target, program.kernel, settings, batches.draw)
    longest = min(program.history_every, capacity)

    def step(random, state, counts, plan, data, place):
        batch = share_rows(batches.take(data, plan, random.batch, state.step, place))
        after, info = advance(random, state, batch, batches.fresh(data, state.step, place))
        scored = state if settings.energy_at == "before" else after
        counts = count_step(
            counts, state, after, info, settings, program.counted_from, scored.points
        )
        drawn = after.replica_at[rungs]
        kept = after.points if program.keep_draws else None
        point = spread.rows(kept, drawn)
        draw = point, info.energy[state.rung_of[drawn]], info.energy, None, None
        if program.draws_per_step > 1 or info.path is not None:
            draw = several_draws(program, draw, info.path)
        return after, counts, draw

    def plan(key, step):
        return batches.plan(key, step, longest)

    if program.num_chains == 1:
        return draw, step, plan
    step_chains = spread.map_chains(step, (0, STATE_AXES, 0, 0, None, None), (STATE_AXES, 0, 0))
    return jax.vmap(draw, (0, None, 0)), step_chains, jax.vmap(plan, (0, None))


def several_draws(program: Program, draw: tuple, path: tuple | None) -> tuple:
    """Return a draw as the several that a step leaves: of the coldest rung, those of the path of
    its jumps; other rungs stay."""
    point, energy, by_rung, *_ = draw
    count, on_first = program.draws_per_step, program.settings.spread.on_first

    def beside(rungs: Array, cold: Array | None) -> Array:
        repeated = jnp.broadcast_to(rungs, (count, *rungs.shape))
        if cold is None:
            return repeated
        return jnp.concatenate([cold[:, None].astype(rungs.dtype), repeated[:, 1:]], axis=1)

    if path is None:
        repeated = jax.tree.map(lambda leaf: beside(leaf, None), (point, energy))
        return *repeated, by_rung, None, None
    points, energies, weights, before = path
    if point is not None:
        point = jax.tree.map(beside, point, on_first(points))
    return point, beside(energy, energies), by_rung, weights, before


def _is_healthy(program: Program, carry: Carry) -> Array:
    healthy = jnp.all((carry.counters.nonfinite == 0) | (not program.stop_on_nonfinite))
    return program.settings.spread.everywhere(healthy)


def _num_bytes(tree: Any) -> int:
    """Return the size of arrays, shapes or keys."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        total += int(np.prod(leaf.shape)) * (8 if is_key else leaf.dtype.itemsize)
    return total
