"""Networks written with Flax NNX or Equinox as `replicax.nn.Network`: two pure functions.

Parameters and state become dicts of plain arrays, which `jax.vmap` maps over replicas and
checkpoints can hold; the rest of a model (layers, sizes, activations) stays in the functions.
"""

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose
from replicax.nn.network import Network, Tree


def from_flax(make_model: Callable[[Any], Any]) -> Network:
    """A network from `make_model(rngs: nnx.Rngs) -> nnx.Module`.

    The model is called with images (image, height, width, channel) and returns logits
    (image, class). Its `nnx.Param` variables are the parameters; all others, such as batch
    statistics and the counters and keys of random streams (keys as their bits), are the state.
    `train` calls the model's `train()` or `eval()`, which tell batch norm and dropout; without
    `train` the state is returned as it came. Intermediates that a model sows are dropped.

    Convolutions stay fast under `vmap` over replicas if the model makes them as
    `nnx.Conv(..., conv_general_dilated=replicax.nn.conv)`.
    """
    nnx = _need("flax.nnx", "flax")

    def make(key: Array) -> Any:
        model = make_model(nnx.Rngs(key))
        if not isinstance(model, nnx.Module):
            raise ValueError(
                f"make_model returned {type(model).__name__}; from_flax needs an nnx.Module. For "
                "Linen modules wrap it: nnx.bridge.ToNNX(module, rngs=rngs)."
            )
        return model

    shape = nnx.eval_shape(make, jax.ShapeDtypeStruct((), jax.random.key(0).dtype))
    graph, *shapes = nnx.split(shape, nnx.Param, ...)

    def as_variables(tree: Tree, like: Any) -> Any:
        flat = dict(nnx.to_flat_state(like))
        for path, variable in flat.items():
            value = tree
            for name in path:
                value = value[str(name)]
            flat[path] = variable.replace(_with_keys(value, variable.get_value()))
        return nnx.from_flat_state(flat)

    def as_dict(variables: Any) -> Tree:
        return _bits_of_keys(_text_names(nnx.to_pure_dict(variables)))

    def init(key: Array) -> tuple[Tree, Tree]:
        _, params, state = nnx.split(make(key), nnx.Param, ...)
        return as_dict(params), as_dict(state)

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        parts = (as_variables(tree, like) for tree, like in zip((params, state), shapes))
        model = nnx.merge(graph, *parts)
        (model.train if train else model.eval)()
        logits = model(images)
        if not train:
            return logits, state
        _, _, _, after = nnx.split(model, nnx.Param, nnx.Intermediate, ...)
        return logits, as_dict(after)

    return Network(init, apply)


def from_equinox(make_model: Callable[[Array], Any], channels: str = "first") -> Network:
    """A network from `make_model(key) -> eqx.Module`, or `-> (module, eqx.nn.State)`.

    As is the way in Equinox the module is called with one image: `module(image) -> logits`, and
    where it has state, `module(image, state) -> logits, state`; it is mapped over the images of a
    batch under the axis name "batch", which batch norm must be given:
    `eqx.nn.BatchNorm(size, axis_name="batch", mode="batch")`. With `channels="first"` an image
    arrives as (channel, height, width), what Equinox's layers expect; with "last" as
    (height, width, channel), as it is here.

    Inexact arrays are the parameters, all other arrays and the state of layers the state, both by
    their path in the module. `train` sets `eqx.nn.inference_mode`; without it the state is
    returned as it came. The module is given no random key, so dropout cannot be used in training.
    Batch norm of mode "batch" divides its averages by 1 - momentum^count when it tests, and that
    of mode "ema" trains with them: `rx.swag.refresh_statistics` fits the former once many batches
    were counted, and not the latter.
    Equinox's convolutions have no hook for `replicax.nn.conv`: in a wide network on a GPU, call
    that in a layer of your own.
    """
    eqx = _need("equinox", "equinox")
    choose("channels", channels, ("first", "last"))
    returns_state = False

    def make(key: Array) -> tuple[Any, Any]:
        nonlocal returns_state
        made = make_model(key)
        returns_state = isinstance(made, tuple)
        return made if returns_state else eqx.nn.make_with_state(lambda: made)()

    shape, state_shape = eqx.filter_eval_shape(make, jax.random.key(0))
    leaves, structure = jax.tree.flatten(shape)
    names = _names(shape)
    is_array = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves]
    is_param = [yes and jnp.issubdtype(leaf.dtype, jnp.inexact)
                for yes, leaf in zip(is_array, leaves)]  # fmt: skip
    state_names, state_structure = _names(state_shape), jax.tree.structure(state_shape)
    is_stateful = returns_state or bool(state_names)

    def init(key: Array) -> tuple[Tree, Tree]:
        model, state = make(key)
        found = list(zip(names, jax.tree.leaves(model), is_array, is_param, strict=True))
        params = {name: leaf for name, leaf, _, trained in found if trained}
        fixed = {name: leaf for name, leaf, array, trained in found if array and not trained}
        layers = dict(zip(state_names, jax.tree.leaves(state), strict=True))
        return params, {"fixed": fixed, "layers": layers}

    def assemble(params: Tree, fixed: Tree) -> Any:
        arrays = {**params, **fixed}
        filled = [arrays[name] if array else leaf
                  for name, leaf, array in zip(names, leaves, is_array)]  # fmt: skip
        return jax.tree.unflatten(structure, filled)

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        model = eqx.nn.inference_mode(assemble(params, state["fixed"]), not train)
        images = jnp.moveaxis(images, -1, 1) if channels == "first" else images
        if not is_stateful:
            return jax.vmap(model, axis_name="batch")(images), state
        layers = [state["layers"][name] for name in state_names]
        of_batch = jax.vmap(model, (0, None), (0, None), axis_name="batch")
        logits, after = of_batch(images, jax.tree.unflatten(state_structure, layers))
        if train:
            layers = dict(zip(state_names, jax.tree.leaves(after), strict=True))
            state = {**state, "layers": layers}
        return logits, state

    return Network(init, apply)


def _need(module: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f'from_{extra}() needs {extra}: install it with pip install "replicax[{extra}]".'
        ) from error


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def _text_names(tree: Any) -> Any:
    """Places in lists become text, as checkpoints write them."""
    if isinstance(tree, dict):
        return {str(name): _text_names(value) for name, value in tree.items()}
    return tree


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _bits_of_keys(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.random.key_data(x) if _is_key(x) else x, tree)


def _with_keys(value: Any, like: Any) -> Any:
    return jax.random.wrap_key_data(value) if _is_key(like) else value
