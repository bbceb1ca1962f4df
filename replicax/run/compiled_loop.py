"""The compiled part of the loop: many steps of all chains in one program.

The number of steps is dynamic and the randomness of step k depends on k alone, so the length of a
chunk changes no result, only how often the host sees the run.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.randomness import draw_block
from replicax.algorithm.spread import share_rows
from replicax.algorithm.step import build_parts
from replicax.run import counters, devices
from replicax.run import rows as layout
from replicax.run.compiled_once import compiled_once
from replicax.run.program import Program
from replicax.run.rows import STATE_AXES, Carry, Rows, get, per_chain

_AHEAD_BYTES = 2**16  # of randomness a step: up to here it is drawn many steps ahead
_BLOCK_STEPS = 1024  # steps drawn ahead at once, to stay in the cache
_CHUNK_BYTES = 2**26  # of records on the device
_SPREAD_CHUNK_BYTES = 2**22  # of records that devices send each other at the end of a chunk
_CHUNK_STEPS = 2**16
_CHUNK_SECONDS = 0.5  # that a chunk takes, and no longer: the host sees the run in between


def chunk_capacity(program: Program, carry: Carry) -> int:
    """Return the most steps of one chunk, bounded by the memory of its records and batches."""
    num_chains, num_replicas = carry.state.rung_of.shape
    draw_bytes = 0
    if program.keep_draws:
        draw_bytes = _num_bytes(carry.state.points) // num_replicas * len(program.draw_rungs)
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


def build_chunk(program: Program, keys: Array, capacity: int) -> Callable[..., tuple[Carry, Rows]]:
    """Compile `chunk(carry, data, count, slots) -> carry, Rows` for up to `capacity` steps.

    `slots[i]` is the row that the draw of step i goes to, as of `rows.draw_slots`.
    """
    if program.mesh is not None:
        spread, chunk = program.settings.spread, _build_steps(program, capacity)
        return devices.SpreadChunk(program.mesh, spread, chunk, keys)
    compiled = compiled_once(_build_steps(program, capacity), donate_argnums=0)
    return lambda carry, *rest: compiled(carry, keys, *rest)


def _build_steps(program: Program, capacity: int) -> Callable:
    """Build the chunk: segments, each up to the next point of history, made of single steps."""
    one_chain, every = program.num_chains == 1, program.history_every
    spread = program.settings.spread
    draw_chains, step_chains, plan_chains = _build_chains(program, capacity)

    def chunk(carry: Carry, keys: Array, data: Any, count: Array, slots: Array):
        if one_chain:
            carry, keys = per_chain(lambda leaf: leaf[0], carry), keys[0]
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
                rows = layout.put_step(rows, state.rung_of, draw, place, get(slots, place))
                return Carry(state, counts), rows, place + 1

            carry, rows, place = jax.lax.while_loop(
                lambda inner: (inner[2] < end) & _is_healthy(program, inner[0]),
                one_step,
                (carry, rows, first),
            )
            rows = layout.put_history(program, rows, carry, start, start + place, capacity)
            return carry, rows, place

        carry, rows, place = jax.lax.while_loop(
            lambda loop: (loop[2] < count) & _is_healthy(program, loop[0]),
            segment,
            (carry, layout.empty(program, carry, capacity), jnp.array(0)),
        )
        if one_chain:
            carry = per_chain(lambda leaf: leaf[None], carry)
            rows = jax.tree.map(lambda leaf: leaf[:, None], rows._replace(count=None))
        return carry, rows._replace(count=place)

    return chunk


def _build_chains(program: Program, capacity: int) -> tuple[Callable, Callable, Callable]:
    """Build `draw`, `step` and `plan` for all chains.

    A single chain is spared its axis: without it XLA gathers faster and updates in place.
    """
    settings, batches, rungs = program.settings, program.batches, jnp.array(program.draw_rungs)
    spread = settings.spread
    draw, advance = build_parts(program.target, program.kernel, settings, batches.draw)
    longest = min(program.history_every, capacity)

    def step(random, state, counts, plan, data, place):
        batch = share_rows(batches.take(data, plan, random.batch, state.step, place))
        after, info = advance(random, state, batch, batches.fresh(data, state.step, place))
        scored = state if settings.energy_at == "before" else after
        counts = counters.count(
            counts, state, after, info, settings, program.counted_from, scored.points
        )
        drawn = after.replica_at[rungs]
        kept = after.points if program.keep_draws else None
        point = spread.rows(kept, drawn)
        return after, counts, (point, info.energy[state.rung_of[drawn]], info.energy)

    def plan(key, step):
        return batches.plan(key, step, longest)

    if program.num_chains == 1:
        return draw, step, plan
    step_chains = spread.map_chains(step, (0, STATE_AXES, 0, 0, None, None), (STATE_AXES, 0, 0))
    return jax.vmap(draw, (0, None, 0)), step_chains, jax.vmap(plan, (0, None))


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
