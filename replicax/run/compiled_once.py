"""`compiled_once`: compiled functions whose programs later calls find again.

A run always traces its target, and so sees what the target reads from outside as it is now. What
takes most of the time is XLA, which is spared where a program with the same text is kept: that of a
run with another seed, start or ladder, or with other data of the same shapes.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import jax

_KEPT = 8  # programs, the ones used last
_MOST_NUMBERS = 2**20  # in a constant, such as data that a target closes over
_LONGEST_TEXT = 2**24
_ELIDED = "__elided__"  # stands in the text for the numbers of larger constants

_programs: OrderedDict[Hashable, Callable] = OrderedDict()
_lock = threading.Lock()


def compiled_once(function: Callable, donate_argnums: int | tuple[int, ...] = ()) -> Callable:
    """Return `jax.jit(function)`, which is not compiled where an equal program is kept.

    Programs with large constants, which would stay in memory, and those that call Python are not
    kept.
    """
    jitted = jax.jit(function, donate_argnums=donate_argnums)
    own: dict[Hashable, Callable] = {}

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        kind = structure, tuple(map(jax.typeof, leaves))
        if kind not in own:
            own[kind] = program_of(jitted.lower(*arguments), arguments)
        return own[kind](*arguments)

    return call


def program_of(lowered: jax.stages.Lowered, arguments: tuple) -> Callable:
    """Return the program of a function lowered for these arguments, an equal one if it is kept."""
    places = tuple(getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments))
    module: Any = lowered.compiler_ir()
    text = module.operation.get_asm(large_elements_limit=_MOST_NUMBERS)
    # Which Python function a program calls is not in its text.
    if _ELIDED in text or "callback" in text or len(text) > _LONGEST_TEXT:
        return lowered.compile()
    digest = hashlib.sha256(text.encode()).digest()
    options = str(jax.config.values)  # some of them change what XLA makes of a text
    key = digest, lowered.in_tree, lowered.out_tree, places, options
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return _programs[key]
    program = lowered.compile()  # outside of the lock: threads may compile side by side
    with _lock:
        _programs[key] = program
        while len(_programs) > _KEPT:
            _programs.popitem(last=False)
    return program
