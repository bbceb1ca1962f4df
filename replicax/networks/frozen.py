"""`freeze`: a network of which only some parameters move, and the others stay as they are.

What is frozen is held once, as constants of the network, whatever the number of replicas; kernels,
priors, averages and run folders see only the parameters that move. A layer before all of these has
the same outputs for all replicas, and is computed once where replicas are vectorised.
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from replicax.errors import check_function, show, suggest
from replicax.nn.network import Network
from replicax.run.trees import leaf_names

_SHOWN = 12  # names in a message
Trainable = str | Sequence[str] | Callable[[str], bool] | Any  # or a tree of True and False


def freeze(network: Any, start: Any, trainable: Trainable) -> tuple[Network, tuple[Any, Any]]:
    """Return a network whose parameters are only the trainable ones, and where they start.

    The others keep the values of `start`, for every method and in `rx.train` and `rx.sample`. The
    whole network computes as in testing: its model state, such as batch statistics, is fixed, too,
    and there is no dropout. So `method="sghmc-pt"` samples networks with batch norm.

    Args:
        network: an `rx.nn.Network`, as from `rx.interop.from_flax`, or a function
            `network(params, inputs)`.
        start: the pretrained (params, model_state), with all parameters.
        trainable: a name, such as "dense", which stands for all of `dense`, or a pattern, such as
            "*bias"; several of them; a function of a name; or True and False in the place of
            parameters or of whole parts of them.

    The trainable parameters are a dict by name, such as `{"dense.weight": ..., "dense.bias": ...}`.
    `init` of the network draws them anew.

    >>> from replicax import nn
    >>> network = nn.mlp(8, 3, hidden=(5,))
    >>> head, start = freeze(network, network.init(jax.random.key(0)), "layers.1")
    >>> jax.tree.map(jnp.shape, start[0])
    {'layers.1.bias': (3,), 'layers.1.weight': (5, 3)}
    >>> head.apply(*start, jnp.ones((2, 8)), train=True)[0].shape
    (2, 3)
    """
    network = _as_network(network, start)
    params, model_state = start
    leaves, tree = jax.tree.flatten(params)
    names = leaf_names(params)
    _check_fits(network, params)
    moves = _mask(trainable, params, names)
    held = [leaf if moved else jnp.asarray(leaf) for leaf, moved in zip(leaves, moves)]

    def own(params: Any) -> dict[str, Any]:
        parts = zip(names, jax.tree.leaves(params), moves, strict=True)
        return {name: leaf for name, leaf, moved in parts if moved}

    def apply(params: Any, state: Any, inputs: Any, train: bool) -> tuple[Array, Any]:
        if not isinstance(params, dict) or set(params) != set(own(held)):
            raise ValueError(
                "Part of the network is frozen, and the start has other parameters than those that "
                "are trainable: start from what rx.freeze returns beside the network, or from its "
                "init."
            )
        parts = zip(names, held, moves, strict=True)
        whole = tree.unflatten([params[name] if moved else leaf for name, leaf, moved in parts])
        return network.apply(whole, model_state, inputs, False)[0], state

    return Network(lambda key: (own(network.init(key)[0]), {}), apply), (own(leaves), {})


def _as_network(network: Any, start: Any) -> Network:
    """Return the network; that of a function starts where the pretrained one is."""
    if not isinstance(start, tuple | list) or len(start) != 2 or not jax.tree.leaves(start[0]):
        raise ValueError(
            f"The start is {show(start)}; give the pretrained (params, model_state), and {{}} "
            "where there is no state."
        )
    if isinstance(network, Network):
        return network
    if not callable(network) or isinstance(network, type):
        raise ValueError(
            f"The network is {show(network)}; give an rx.nn.Network, or a function "
            "network(params, inputs)."
        )
    check_function("network", network, "params", "inputs")
    function: Any = network
    return Network(lambda key: tuple(start), lambda p, state, x, train: (function(p, x), state))


def _check_fits(network: Network, params: Any) -> None:
    """Raise unless the network has parameters of these names and shapes."""
    found = jax.eval_shape(lambda key: network.init(key)[0], jax.random.key(0))
    wanted, given = (dict(zip(leaf_names(x), jax.tree.leaves(x))) for x in (found, params))
    for name, leaf in wanted.items():
        shape = jnp.shape(given[name]) if name in given else None
        if shape != leaf.shape:
            has = "does not have it" if shape is None else f"has it with shape {shape}"
            raise ValueError(
                f"The network has the parameter {name} of shape {leaf.shape}, and the start {has}: "
                "give the params that were trained with this network."
            )
    for name in given.keys() - wanted.keys():
        raise ValueError(f"The start has the parameter {name}, which the network does not have.")


def _mask(trainable: Trainable, params: Any, names: list[str]) -> list[bool]:
    """Return whether each parameter is trainable; raise unless some are."""
    if callable(trainable):
        moves = [bool(trainable(name)) for name in names]
    elif isinstance(trainable, str) or _are_texts(trainable):
        patterns = [trainable] if isinstance(trainable, str) else list(trainable)
        moves = _matches(patterns, names)
    else:
        moves = _by_tree(trainable, params)
    if not any(moves):
        raise ValueError(f"Nothing is trainable; name some of the parameters {_listed(names)}.")
    return moves


def _are_texts(given: Any) -> bool:
    is_list = isinstance(given, list | tuple | set) and len(given) > 0
    return is_list and all(isinstance(one, str) for one in given)


def _matches(patterns: list[str], names: list[str]) -> list[bool]:
    """Return whether a name has one of the patterns, or belongs to a part of that name."""

    def fits(name: str, pattern: str) -> bool:
        # Names have no brackets: ".layers[2]" of Equinox is ".layers_2_".
        part = pattern.replace("[", "_").replace("]", "_")
        rest = name[len(part) :]
        return (name.startswith(part) and rest[:1] in ("", ".")) or fnmatchcase(name, pattern)

    for pattern in patterns:
        if not any(fits(name, pattern) for name in names):
            near = suggest(pattern, names)
            raise ValueError(
                f"trainable has {pattern!r}, which fits no parameter; they are {_listed(names)}."
                f"{near}"
            )
    return [any(fits(name, pattern) for pattern in patterns) for name in names]


def _by_tree(trainable: Any, params: Any) -> list[bool]:
    """Return the leaves of a tree of True and False, in which one may stand for a whole part."""
    flags = jax.tree.leaves(trainable)
    try:
        if not flags or not all(flag in (True, False) for flag in flags):
            raise ValueError
        return [bool(flag) for flag in jax.tree.leaves(jax.tree.broadcast(trainable, params))]
    except (TypeError, ValueError):
        raise ValueError(
            f"trainable is {show(trainable)}; give names or patterns of parameters, a function of "
            "a name, or True and False in the containers of params."
        ) from None


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
