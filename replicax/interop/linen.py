"""Networks written with Flax Linen as `replicax.nn.Network`: two pure functions."""

import inspect
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import show
from replicax.nn.network import Network, Tree

_TRAINS = ("train", "training", "is_training")
_TESTS = ("deterministic", "use_running_average", "inference")


def from_linen(module: Any, inputs: Any) -> Network:
    """Return the network of a Linen module; see `from_flax`."""
    from flax.core import unfreeze
    from flax.errors import InvalidRngError

    if inputs is None:
        raise ValueError(
            "A Linen module needs example inputs for its initialisation: write from_flax(module, "
            "inputs=...), an array or a shape, such as (1, 32, 32, 3)."
        )
    example, flags = _example(inputs), _flags(module)

    def make(key: Array) -> Tree:
        params_key, other = jax.random.split(key)
        rngs = {"params": params_key, "dropout": other}
        return unfreeze(module.init(rngs, zeros(), **flags(False)))

    def zeros() -> Array:
        return jnp.zeros(example.shape, example.dtype)

    shapes = jax.eval_shape(make, jax.random.key(0))
    names = sorted(set(shapes) - {"params", "intermediates"})

    def call(variables: Tree, images: Array, train: bool, rngs: Any) -> Any:
        if not train:
            return module.apply(variables, images, **flags(False)), {}
        return module.apply(variables, images, **flags(True), mutable=names, rngs=rngs)

    has_dropout = False  # whether training draws random numbers
    try:
        jax.eval_shape(lambda variables: call(variables, zeros(), True, {}), shapes)
    except InvalidRngError:
        has_dropout = True

    def init(key: Array) -> tuple[Tree, Tree]:
        variables = make(key)
        state: Tree = {name: variables[name] for name in names}
        if has_dropout:
            state["key"] = jax.random.key_data(jax.random.fold_in(key, 1))
        return variables.get("params", {}), state

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        variables = {"params": params, **{name: state[name] for name in names}}
        if not train:
            return call(variables, images, False, {})[0], state
        rngs, after = {}, {}
        if has_dropout:
            key, use = jax.random.split(jax.random.wrap_key_data(state["key"]))
            rngs, after = {"dropout": use}, {"key": jax.random.key_data(key)}
        logits, new = call(variables, images, True, rngs)
        new = unfreeze(new)
        return logits, {**{name: new.get(name, state[name]) for name in names}, **after}

    return Network(init, apply)


def _example(inputs: Any) -> Any:
    """Return the shape and type of inputs, given as an array or as a shape."""
    if hasattr(inputs, "shape") and hasattr(inputs, "dtype"):
        return jax.ShapeDtypeStruct(inputs.shape, jnp.result_type(inputs))
    if isinstance(inputs, tuple | list) and all(isinstance(size, int) for size in inputs):
        return jax.ShapeDtypeStruct(tuple(inputs), jnp.float32)
    raise ValueError(
        f"inputs is {show(inputs)}; give an array of inputs, or their shape, such as "
        "(1, 32, 32, 3)."
    )


def _flags(module: Any) -> Any:
    """Build `flags(train)`, the keyword argument that switches the training of the module on or
    off."""
    parameters = inspect.signature(type(module).__call__).parameters
    on = [name for name in _TRAINS if name in parameters]
    off = [name for name in _TESTS if name in parameters]
    return lambda train: {**dict.fromkeys(on, train), **dict.fromkeys(off, not train)}
