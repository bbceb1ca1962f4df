"""Networks written with Equinox as `replicax.nn.Network`: two pure functions.

Parameters and state become dicts of plain arrays, as in `replicax.interop.flax`.
"""

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose
from replicax.interop.extras import import_extra
from replicax.nn.network import Network, Tree


def from_equinox(make_model: Callable[[Array], Any], channels: str = "first") -> Network:
    """Return the network of `make_model(key) -> eqx.Module`, or `-> (module, eqx.nn.State)`.

    As usual in Equinox the module is called with one image: `module(image) -> logits`, or with
    state, `module(image, state) -> logits, state`. It is mapped over a batch under the axis name
    "batch", which batch norm needs: `eqx.nn.BatchNorm(size, axis_name="batch", mode="batch")`.
    With `channels="first"`, the convention of Equinox's layers, an image is
    (channel, height, width); with "last" it is (height, width, channel).

    Inexact arrays are the parameters; all other arrays and the state of layers are the state, both
    named by their path in the module. `train` sets `eqx.nn.inference_mode`; without it the state is
    returned unchanged. If `__call__` has an argument `key`, as dropout needs, it gets one key per
    image during training, from a key in the state that is split in every step.
    `rx.swag.refresh_statistics` fits batch norm of mode "batch", which in testing divides its
    averages by 1 - momentum^count, after many batches; it does not fit mode "ema", which trains
    with its averages. Equinox's convolutions have no hook for `replicax.nn.conv`: for a wide
    network on a GPU, call it in your own layer.
    """
    eqx = import_extra("equinox", "equinox", "from_equinox")
    choose("channels", channels, ("first", "last"))
    returns_state = False

    def make(key: Array) -> tuple[Any, Any]:
        nonlocal returns_state
        model = make_model(key)
        returns_state = isinstance(model, tuple)
        return model if returns_state else eqx.nn.make_with_state(lambda: model)()

    shape, state_shape = eqx.filter_eval_shape(make, jax.random.key(0))
    leaves, structure = jax.tree.flatten(shape)
    names = _names(shape)
    is_array = [isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves]
    param_names = {
        name
        for name, leaf, array in zip(names, leaves, is_array)
        if array and jnp.issubdtype(leaf.dtype, jnp.inexact)
    }
    state_names, state_structure = _names(state_shape), jax.tree.structure(state_shape)
    is_stateful = returns_state or bool(state_names)
    needs_key, default_key = _key_argument(eqx, shape)

    def init(key: Array) -> tuple[Tree, Tree]:
        model, state = make(key)
        values = zip(names, jax.tree.leaves(model), is_array, strict=True)
        arrays = {name: leaf for name, leaf, array in values if array}
        params = {name: leaf for name, leaf in arrays.items() if name in param_names}
        fixed = {name: leaf for name, leaf in arrays.items() if name not in param_names}
        layers = dict(zip(state_names, jax.tree.leaves(state), strict=True))
        keys = {"key": jax.random.key_data(jax.random.fold_in(key, 1))} if needs_key else {}
        return params, {"fixed": fixed, "layers": layers, **keys}

    def assemble(arrays: Tree) -> Any:
        parts = zip(names, leaves, is_array)
        filled = [arrays[name] if array else leaf for name, leaf, array in parts]
        return jax.tree.unflatten(structure, filled)

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        model = eqx.nn.inference_mode(assemble(params | state["fixed"]), not train)
        images = jnp.moveaxis(images, -1, 1) if channels == "first" else images
        keys, after = None, {}
        if needs_key and train:
            key, use = jax.random.split(jax.random.wrap_key_data(state["key"]))
            keys, after = jax.random.split(use, len(images)), {"key": jax.random.key_data(key)}

        def call(image: Array, key: Any, *layers: Any) -> Any:
            if not needs_key:
                return model(image, *layers)
            return model(image, *layers, key=default_key if key is None else key)

        if not is_stateful:
            return jax.vmap(call, axis_name="batch")(images, keys), {**state, **after}
        layers = [state["layers"][name] for name in state_names]
        batched = jax.vmap(call, (0, 0, None), (0, None), axis_name="batch")
        logits, new_layers = batched(images, keys, jax.tree.unflatten(state_structure, layers))
        if train:
            new = dict(zip(state_names, jax.tree.leaves(new_layers), strict=True))
            state = {**state, "layers": new, **after}
        return logits, state

    return Network(init, apply)


def _key_argument(eqx: Any, model: Any) -> tuple[bool, Any]:
    """Return whether a module needs random keys in training, and the key that it gets in testing.

    Equinox's own layers always take a key; they need one only if they contain dropout.
    """
    parameter = inspect.signature(type(model).__call__).parameters.get("key")
    if parameter is None:
        return False, None
    is_dropout = lambda part: isinstance(part, eqx.nn.Dropout)  # noqa: E731
    has_dropout = any(map(is_dropout, jax.tree.leaves(model, is_leaf=is_dropout)))
    is_required = parameter.default is parameter.empty
    is_own = not type(model).__module__.startswith("equinox")
    return is_own or has_dropout, jax.random.key(0) if is_required else None


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
