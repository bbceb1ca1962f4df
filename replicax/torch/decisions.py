"""The decisions of the JAX engine on P given energies, compiled once for a CPU.

Between two steps the state is one array with the bits of its numbers: a call with twenty small
arrays takes more than twice the time. The values that every step needs are read directly from its
memory: each NumPy function that is called between two decisions slows the next one by more than its
own time.
"""

import os
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm import kernels
from replicax.algorithm.exchange import decide
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.state import Settings, init
from replicax.algorithm.step import build_draw
from replicax.algorithm.target import as_target
from replicax.run.carry import Carry, count_step, start_counters


def prepare_jax() -> None:
    """Configure JAX for use beside PyTorch, if it is not initialised yet: it reserves no GPU
    memory, and runs in the calling thread, which is faster for few numbers."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax.config.update("jax_cpu_enable_async_dispatch", False)


class Packed(NamedTuple):
    """The position of an array in the packed state, which is an array of int32."""

    part: slice
    shape: tuple[int, ...]
    dtype: np.dtype
    is_floating: bool

    def reader(self) -> Callable[[Any], tuple[Any, ...]]:
        """Return a function that reads the numbers from the memory of the packed state."""
        kind = self.dtype.char if self.is_floating else "i"
        layout = struct.Struct(f"{int(np.prod(self.shape))}{kind}")
        return lambda packed: layout.unpack_from(packed, 4 * self.part.start)


class Decisions:
    """Exchange and adaptation, one step at a time; arrays of the state are read by name."""

    def __init__(self, settings: Settings, ladder: Ladder, buffer: float, seed: int) -> None:
        self._cpu = _find_cpu()  # on which all that follows is computed
        with jax.default_device(self._cpu):
            key = np.asarray(jax.random.key_data(seed_keys(seed, 1)[0][0]))
            start = jax.jit(lambda: _start(settings, ladder, buffer))()
            self._places, self._structure = _places(start)
            self._set(np.asarray(_pack(jax.tree.leaves(start))))
        self._advance = jax.jit(_build_advance(settings, key, self._unpack))
        self._rung_of = self._places[".state.rung_of"].reader()
        self._rates = self._places[".state.ladder.learning_rate"].reader()

    def advance(self, energy_of: list[float]) -> None:
        """Decide on the energies of all replicas."""
        self._packed = self._advance(self._packed, np.array(energy_of, np.float32))

    def rung_of(self) -> tuple[int, ...]:
        """Return the rung of every replica."""
        return self._rung_of(self._packed)

    def learning_rates(self) -> tuple[float, ...]:
        """Return the learning rate of every rung."""
        return self._rates(self._packed)

    def read(self, name: str) -> np.ndarray:
        """Return one array of the state, such as ".state.buffer"."""
        part, shape, dtype, is_floating = self._places[name]
        values = np.asarray(self._packed)[part]
        values = values.view(dtype) if is_floating else values.astype(dtype, copy=False)
        return values if values.shape == shape else values.reshape(shape)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state."""
        return {name: self.read(name) for name in self._places}

    def load(self, arrays: dict[str, np.ndarray]) -> None:
        """Set the whole state, as `arrays` returned it; raise, without any change, if it does not
        fit."""
        leaves = []
        for name, place in self._places.items():
            if name not in arrays or np.shape(arrays[name]) != place.shape:
                raise ValueError(f"The saved state lacks {name}, or it has another shape.")
            leaves.append(np.asarray(arrays[name], place.dtype))
        with jax.default_device(self._cpu):
            self._set(np.asarray(_pack(leaves)))

    def _set(self, packed: np.ndarray) -> None:
        self._packed = jax.device_put(packed, self._cpu)

    def _unpack(self, packed: Array) -> Carry:
        def unpacked(place: Packed) -> Array:
            words = packed[place.part]
            if not place.is_floating:
                return words.reshape(place.shape).astype(place.dtype)
            words = words if place.dtype.itemsize == 4 else words.reshape(-1, 2)
            return jax.lax.bitcast_convert_type(words, place.dtype).reshape(place.shape)

        return jax.tree.unflatten(self._structure, map(unpacked, self._places.values()))


def _find_cpu() -> Any:
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise RuntimeError(
            f"The exchange runs on the CPU, which JAX is configured not to use ({error}): write "
            "JAX_PLATFORMS=cuda,cpu, or leave JAX_PLATFORMS out."
        ) from None


def _start(settings: Settings, ladder: Ladder, buffer: float) -> Carry:
    ladder = jax.tree.map(jnp.asarray, ladder)
    no_params = jnp.zeros((ladder.learning_rate.shape[0], 0))
    state = init(kernels.sgld(), no_params, ladder, settings, buffer)
    return Carry(state, start_counters(state, track_best=False))


def _build_advance(settings: Settings, key_data: np.ndarray, unpack: Callable) -> Callable:
    no_target, no_kernel = as_target(lambda params: jnp.zeros(())), kernels.sgld()
    decisions_alone = replace(settings, energy_at="before", langevin=False)
    draw = build_draw(no_target, no_kernel, decisions_alone)

    def advance(packed: Array, energy_of: Array) -> Array:
        before, counts = unpack(packed)
        key = jax.random.wrap_key_data(jnp.asarray(key_data), impl="threefry2x32")
        random = draw(key, before.step, before.replicas)
        energy_of = energy_of.astype(before.buffer.dtype)
        after, info = decide(settings, random, before, energy_of)
        counted_from = settings.tuning.measure_steps
        counts = count_step(counts, before, after, info, settings, counted_from, before.points)
        return _pack(jax.tree.leaves(Carry(after, counts)))

    return advance


def _places(carry: Carry) -> tuple[dict[str, Packed], Any]:
    leaves, structure = jax.tree_util.tree_flatten_with_path(carry)
    places, end = {}, 0
    for path, leaf in leaves:
        dtype, is_floating = np.dtype(leaf.dtype), jnp.issubdtype(leaf.dtype, jnp.floating)
        first, end = end, end + leaf.size * (dtype.itemsize // 4 if is_floating else 1)
        name = jax.tree_util.keystr(path)
        places[name] = Packed(slice(first, end), leaf.shape, dtype, bool(is_floating))
    return places, structure


def _pack(leaves: list[Any]) -> Array:
    """Return the state as one array: the bits of floats, and integers and booleans unchanged."""
    words = [
        jax.lax.bitcast_convert_type(leaf, jnp.int32)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
        else jnp.asarray(leaf, jnp.int32)
        for leaf in leaves
    ]
    return jnp.concatenate([word.ravel() for word in words])
