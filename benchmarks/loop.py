"""The compiled loop of `rx.sample`, taken apart so that its parts can be timed."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

import replicax as rx
from replicax.algorithm.randomness import draw_block
from replicax.algorithm.step import build_parts
from replicax.algorithm.target import as_target
from replicax.algorithm.tuning import Tuning
from replicax.run import chunk
from replicax.run.batches import Batches, NoBatches
from replicax.run.chunk import draw_slots, get
from replicax.run.devices import place, spread_over
from replicax.run.initial import initial_carry, seed_keys
from replicax.run.options import Sampling
from replicax.run.resolve import resolve
from replicax.run.task import Task


def toy_method(learning_rate: Any = (0.003, 0.6), **choices: Any) -> rx.Method:
    """The paper's method on the 25 modes, section 5.1, as `replicax demo` has it."""
    return rx.deo_star(learning_rate, **{"target_swap_rate": 0.4, **choices})


TOY: dict[str, Any] = {"num_replicas": 16, "method": toy_method(), "burn_in": 100, "thin": 10}


class Loop:
    """The compiled chunk of `rx.sample`: each call does `steps` more steps."""

    def __init__(
        self,
        target: Any,
        params: Any,
        steps: int,
        devices: int = 1,
        data_parallel: int = 1,
        batches: Batches | None = None,
        *,
        method: rx.Method,
        **options: Any,
    ) -> None:
        task = Task(as_target(target), batches or NoBatches())
        program = resolve(task, Sampling(**{"num_steps": 200_000, **options}), method)
        self.program, self.steps = spread_over(program, devices, data_parallel), steps
        self.keys, _ = seed_keys(program.seed, program.num_chains)
        carry, mesh = initial_carry(self.program, params), self.program.mesh
        self.carry = carry if mesh is None else place(mesh, carry)
        self._chunk = chunk.build_chunk(self.program, self.keys, steps)

    @property
    def block(self) -> int:
        """Steps whose randomness is drawn at once."""
        return min(chunk._BLOCK_STEPS, self.program.history_every, self.steps)

    def __call__(self) -> int:
        self.carry, rows = self._chunk(*self._arguments())
        jax.block_until_ready(rows)
        return self.steps

    def _arguments(self) -> tuple:
        slots = draw_slots(self.program, int(self.carry.state.step), self.steps, self.steps)
        return self.carry, self.program.batches.data, self.steps, slots

    def body_ops(self) -> dict[str, int]:
        """How many operations of each kind one step launches, by the compiled program."""
        steps = chunk._build_steps(self.program, self.steps)
        carry, *rest = self._arguments()
        compiled = jax.jit(steps, donate_argnums=0).lower(carry, self.keys, *rest).compile()
        return count_body_ops(compiled.as_text())

    def moves_alone(self, energies: bool = True) -> Callable[[], int]:
        """The same moves from the same randomness: no exchange, no adaptation, no records.

        With `energies`, those of the moved states, which a swap would look at, are computed too.
        """
        alone = Tuning(adapts=None, adapts_buffer=False)
        settings = replace(self.program.settings, schedule=rx.schedule.none(), tuning=alone)
        if not energies:
            settings = replace(settings, energy_at="before")
        draw, advance = build_parts(self.program.target, self.program.kernel, settings)
        key, state = self.keys[0], self._one_chain()
        block, steps = self.block, self.steps

        @jax.jit
        def run(state, energy):
            def some_steps(_, carry):
                first, replicas = carry[0].step, carry[0].replicas
                drawn = draw_block(
                    lambda step: draw(key, step, replicas), first + jnp.arange(block)
                )

                def one_step(place, carry):
                    state, info = advance(_row(drawn, place), carry[0])
                    return state, info.energy.astype(carry[1].dtype)

                return jax.lax.fori_loop(0, block, one_step, carry)

            return jax.lax.fori_loop(0, steps // block, some_steps, (state, energy))

        energy = jnp.zeros(state.rung_of.shape, state.buffer.dtype)
        return _repeat(run, (state, energy), steps // block * block)

    def randomness_alone(self) -> Callable[[], int]:
        """Drawing all randomness, and nothing else."""
        draw, _ = build_parts(self.program.target, self.program.kernel, self.program.settings)
        key, state = self.keys[0], self._one_chain()
        block, steps = self.block, self.steps

        @jax.jit
        def run(first, seen):
            def some_steps(number, seen):
                at = first + number * block + jnp.arange(block)
                drawn = draw_block(lambda step: draw(key, step, state.replicas), at)
                # A few rows, at places that the compiler cannot know: all must be there.
                look = lambda i, seen: _add(seen, _row(drawn, (i * at[0]) % block))  # noqa: E731
                return jax.lax.fori_loop(0, 4, look, seen)

            return first + steps, jax.lax.fori_loop(0, steps // block, some_steps, seen)

        shapes = jax.eval_shape(lambda: draw(key, state.step, state.replicas))
        seen = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return _repeat(run, (state.step, seen), steps // block * block)

    def _one_chain(self) -> Any:
        """The first chain's state, copied: the loop gives its own memory away."""
        parts = zip(chunk.STATE_AXES, self.carry.state)
        return type(self.carry.state)._make(
            jax.tree.map(lambda leaf, axis=axis: jnp.array(leaf if axis is None else leaf[0]), part)
            for axis, part in parts
        )


def _repeat(run: Callable, carry: Any, steps: int) -> Callable[[], int]:
    def case() -> int:
        nonlocal carry
        carry = jax.block_until_ready(run(*carry))
        return steps

    return case


def _row(rows: Any, place: Any) -> Any:
    return jax.tree.map(lambda leaf: get(leaf, place), rows)


def _add(one: Any, other: Any) -> Any:
    return jax.tree.map(lambda x, y: x + y.astype(x.dtype), one, other)


def count_body_ops(hlo: str) -> dict[str, int]:
    """Operations that are launched one by one in the busiest innermost loop of a CPU program."""
    parts = re.findall(r"^%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", hlo, re.MULTILINE | re.DOTALL)
    computations = dict(parts)
    bodies = re.findall(r" while\([^\n]*body=%?([\w.\-]+)", hlo)
    silent = ("parameter", "get-tuple-element", "tuple", "constant", "bitcast")
    counts: list[dict[str, int]] = []
    for body in (computations[name] for name in bodies):
        ops = re.findall(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? ([a-z\-]+)\(", body, re.MULTILINE)
        if "while" not in ops:
            launched = [op for op in ops if op not in silent]
            counts.append({op: launched.count(op) for op in sorted(set(launched))})
    return max(counts, key=lambda count: sum(count.values()), default={})
