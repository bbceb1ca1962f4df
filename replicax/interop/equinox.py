"""Networks written with Equinox as `replicax.nn.Network`: two pure functions.

Parameters and state become dicts of plain arrays, as in `replicax.interop.flax`.
"""

import functools
import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose, show
from replicax.interop.extras import draw_key, import_extra
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
    `refresh_statistics` of `replicax.networks.swag` fits batch norm of mode "batch", which in
    testing divides its averages by 1 - momentum^count, after many batches; it does not fit mode
    "ema", which trains with its averages. Equinox's convolutions have no hook for
    `replicax.nn.conv`: for a wide network on a GPU, call it in your own layer.
    """
    eqx = import_extra("equinox", "equinox", "from_equinox")
    _check_maker(eqx, make_model)
    choose("channels", channels, ("first", "last"))
    returns_state = False

    def make(key: Array) -> tuple[Any, Any]:
        nonlocal returns_state
        model = make_model(key)
        returns_state = isinstance(model, tuple)
        return model if returns_state else eqx.nn.make_with_state(lambda: model)()

    shape, layers_like = eqx.filter_eval_shape(make, jax.random.key(0))
    params_like, rest = eqx.partition(shape, _is_inexact)
    fixed_like, static = eqx.partition(rest, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    is_stateful = returns_state or bool(jax.tree.leaves(layers_like))
    needs_key, default_key = _key_argument(eqx, shape)

    def call(model: Callable, image: Array, key: Array | None, *layers: Any) -> Any:
        if not needs_key:
            return model(image, *layers)
        return model(image, *layers, key=default_key if key is None else key)

    def apply(params: Tree, state: Tree, images: Array, train: bool) -> tuple[Array, Tree]:
        arrays = _filled(params_like, params), _filled(fixed_like, state["fixed"])
        model = eqx.nn.inference_mode(eqx.combine(*arrays, static), not train)
        images = jnp.moveaxis(images, -1, 1) if channels == "first" else images
        keys, after = None, {}
        if needs_key and train:
            key, after = draw_key(state)
            keys = jax.random.split(key, len(images))
        one = functools.partial(call, model)
        if not is_stateful:
            return jax.vmap(one, axis_name="batch")(images, keys), {**state, **after}
        batched = jax.vmap(one, (0, 0, None), (0, None), axis_name="batch")
        logits, layers = batched(images, keys, _filled(layers_like, state["layers"]))
        return logits, {**state, "layers": _by_path(layers), **after} if train else state

    return Network(functools.partial(_init, eqx, make, needs_key), apply)


def _check_maker(eqx: ModuleType, make_model: Any) -> None:
    """Raise if this is a module in place of a function that makes one."""
    if isinstance(make_model, eqx.Module) or not callable(make_model):
        raise ValueError(
            f"make_model is {show(make_model)}; give the function that makes a module for every "
            "replica: from_equinox(lambda key: Net(..., key=key))."
        )


def _init(eqx: ModuleType, make: Callable, needs_key: bool, key: Array) -> tuple[Tree, Tree]:
    """Return parameters and state of a module, `Network.init`."""
    model, layers = make(key)
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    parts = {"fixed": eqx.filter(rest, eqx.is_array), "layers": layers}
    state: Tree = {name: _by_path(part) for name, part in parts.items()}
    if needs_key:
        state["key"] = jax.random.key_data(jax.random.fold_in(key, 1))
    return _by_path(params), state


def _is_inexact(leaf: object) -> bool:
    return isinstance(leaf, jax.ShapeDtypeStruct) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _key_argument(eqx: ModuleType, model: Callable) -> tuple[bool, Array | None]:
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


def _by_path(tree: Any) -> Tree:
    """Return the leaves of a tree by their paths."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree.leaves_with_path(tree)}


def _filled(like: Any, named: Tree) -> Any:
    """Return a tree with the structure of `like` and the leaves of `_by_path`."""
    return jax.tree.map_with_path(lambda path, _: named[jax.tree_util.keystr(path)], like)
