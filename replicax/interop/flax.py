"""Networks written with Flax, Linen or NNX, as `replicax.nn.Network`: two pure functions."""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import check_function, show
from replicax.interop.extras import draw_key, import_extra
from replicax.nn.network import Network, Tree

_TRAINS = ("train", "training", "is_training")
_TESTS = ("deterministic", "use_running_average", "inference")


def from_linen(module: Any, inputs: Any) -> Network:
    """Return the network of a Linen module; see `from_flax`."""
    from flax.core import unfreeze
    from flax.errors import InvalidRngError

    example, flags = _example(inputs), _flags(module)

    def make(key: Array) -> Tree:
        params_key, other = jax.random.split(key)
        rngs = {"params": params_key, "dropout": other}
        zeros = jnp.zeros(example.shape, example.dtype)
        return unfreeze(module.init(rngs, zeros, **flags(False)))

    shapes = jax.eval_shape(make, jax.random.key(0))
    names = sorted(set(shapes) - {"params", "intermediates"})

    def train_on(variables: Tree, images: Array, rngs: Any) -> Any:
        return module.apply(variables, images, **flags(True), mutable=names, rngs=rngs)

    has_dropout = False  # whether training draws random numbers
    try:
        jax.eval_shape(lambda variables, images: train_on(variables, images, {}), shapes, example)
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
            return module.apply(variables, images, **flags(False)), state
        key, after = draw_key(state) if has_dropout else (None, {})
        logits, new = train_on(variables, images, {"dropout": key} if has_dropout else {})
        new = unfreeze(new)
        return logits, {**{name: new.get(name, state[name]) for name in names}, **after}

    return Network(init, apply)


def _example(inputs: Any) -> Any:
    """Return the shape and type of inputs, given as an array or as a shape."""
    if inputs is None:
        raise ValueError(
            "A Linen module needs example inputs for its initialisation: write from_flax(module, "
            "inputs=...), an array or a shape, such as (1, 32, 32, 3)."
        )
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


def from_flax(make_model: Callable[[Any], Any], inputs: Any = None) -> Network:
    """Return the network of `make_model(rngs: nnx.Rngs) -> nnx.Module`, or of a Linen module.

    The model maps images (image, height, width, channel) to logits (image, class). Its `nnx.Param`
    variables are the parameters; all others, such as batch statistics and the counters and keys of
    random streams (keys as their bits), are the state. `train` calls the model's `train()` or
    `eval()`, which set batch norm and dropout; without `train` the state is returned unchanged.
    Intermediates that a model sows are dropped.

    A Linen module is passed directly, with `inputs` for its initialisation, an array or a shape.
    Its collection "params" holds the parameters; all others, such as "batch_stats", are the state,
    which training updates. An argument of its `__call__` switches training on: `train`, `training`
    or `is_training`; or off: `deterministic`, `use_running_average` or `inference`. The dropout key
    is part of the state and is split in every step.

    Convolutions stay fast under `vmap` over replicas if the model builds them as
    `nnx.Conv(..., conv_general_dilated=replicax.nn.conv)`.
    """
    nnx = import_extra("flax.nnx", "flax", "from_flax")
    linen = import_extra("flax.linen", "flax", "from_flax")
    if isinstance(make_model, linen.Module):
        return from_linen(make_model, inputs)
    _check_maker(make_model, nnx.Module, linen.Module)

    def make(key: Array) -> Any:
        model = make_model(nnx.Rngs(key))
        if not isinstance(model, nnx.Module):
            raise ValueError(
                f"make_model returned {type(model).__name__}; from_flax needs an nnx.Module. Give "
                "a Linen module itself: from_flax(module, inputs=...)."
            )
        return model

    shape = nnx.eval_shape(make, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
    graph, *shapes = nnx.split(shape, nnx.Param, ...)

    def as_dict(variables: Tree) -> Tree:
        return _bits_of_keys(_text_names(nnx.to_pure_dict(variables)))

    def init(key: Array) -> tuple[Tree, Tree]:
        _, params, state = nnx.split(make(key), nnx.Param, ...)
        return as_dict(params), as_dict(state)

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        parts = (_as_variables(nnx, tree, like) for tree, like in zip((params, state), shapes))
        model = nnx.merge(graph, *parts)
        (model.train if train else model.eval)()
        logits = model(images)
        if not train:
            return logits, state
        _, _, _, new_state = nnx.split(model, nnx.Param, nnx.Intermediate, ...)
        return logits, as_dict(new_state)

    return Network(init, apply)


def _check_maker(make_model: Any, nnx_module: type, linen_module: type) -> None:
    """Raise if this is a class or a module in place of a function that makes one."""
    if isinstance(make_model, type) and issubclass(make_model, linen_module):
        raise ValueError(
            f"make_model is the class {make_model.__name__}; give an instance of the Linen module: "
            f"from_flax({make_model.__name__}(...), inputs=...)."
        )
    if isinstance(make_model, nnx_module):
        name = type(make_model).__name__
        raise ValueError(
            "make_model is an nnx module, which has its parameters already; give the function that "
            f"makes one for every replica: from_flax(lambda rngs: {name}(..., rngs=rngs))."
        )
    is_class = isinstance(make_model, type)
    makes = functools.partial(make_model.__init__, None) if is_class else make_model
    check_function("make_model", makes, "rngs")


def _as_variables(nnx: ModuleType, tree: Tree, like: Any) -> Any:
    """Return variables of the names and kinds of `like`, with the values of a tree."""
    flat = dict(nnx.to_flat_state(like))
    for path, variable in flat.items():
        value = tree
        for name in path:
            value = value[str(name)]
        flat[path] = variable.replace(_with_keys(value, variable.get_value()))
    return nnx.from_flat_state(flat)


def _text_names(tree: Tree) -> Any:
    """Turn indices of lists into text, as checkpoints store names."""
    if isinstance(tree, dict):
        return {str(name): _text_names(value) for name, value in tree.items()}
    return tree


def _is_key(leaf: Array) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bits_of_keys(tree: Tree) -> Any:
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def _with_keys(value: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(value) if _is_key(like) else value
