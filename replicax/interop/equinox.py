"""Networks written with Equinox as `replicax.nn.Network`: two pure functions.

Parameters and state become dicts of plain arrays, as in `replicax.interop.flax`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import choose
from replicax.interop.extras import import_extra
from replicax.nn.network import Network, Tree


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
    eqx = import_extra("equinox", "equinox")
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


def _names(tree: Any) -> list[str]:
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
