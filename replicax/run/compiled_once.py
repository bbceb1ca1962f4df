"""`compiled_once`: compiled functions whose programs later calls find again, in this process and,
by JAX's cache on the disk, in later ones.

A run always traces its target, and so sees what the target reads from outside as it is now. What
takes most of the time is XLA, which is spared where a program with the same text is kept: that of a
run with another seed, start or ladder, or with other data of the same shapes.
"""

import contextlib
import hashlib
import os
import platform
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache.compilation_cache import reset_cache

_KEPT = 24  # programs, the ones used last
_MOST_NUMBERS = 2**20  # in a constant, such as data that a target closes over
_LONGEST_TEXT = 2**24
_ELIDED = "__elided__"  # stands in the text for the numbers of larger constants

_FOLDER_OPTION = "jax_compilation_cache_dir"
_ENABLED_OPTION = "jax_enable_compilation_cache"
_QUICK_OPTION = "jax_persistent_cache_min_compile_time_secs"
_QUICK = 0.1  # seconds of compiling that are not worth a file
_MOST_BYTES = 2**30  # of programs on the disk

_programs: OrderedDict[Hashable, Callable] = OrderedDict()
_spent: list[float] = []  # seconds of processor time for each program
_lock = threading.Lock()
_on_disk_lock = threading.RLock()


def compiled_once(
    function: Callable, donate_argnums: int | tuple[int, ...] = (), runs_once: bool = False
) -> Callable:
    """Return `jax.jit(function)`, which is not compiled where an equal program is kept.

    Programs with large constants, which would stay in memory, and those that call Python are not
    kept. What `runs_once` is not optimised on CPUs, where that takes longer than it saves.
    """
    jitted = jax.jit(function, donate_argnums=donate_argnums)
    own: dict[Hashable, Callable] = {}

    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        kind = structure, tuple(map(jax.typeof, leaves)), _chosen_place(leaves)
        if kind not in own:
            began = time.process_time()
            own[kind] = program_of(jitted.lower(*arguments), arguments, runs_once)
            _spent.append(time.process_time() - began)
        return own[kind](*arguments)

    return call


def _chosen_place(leaves: list[Any]) -> Any:
    """Return where the arrays were put that were put anywhere: a program is of its devices."""
    placed = (x.sharding for x in leaves if isinstance(x, jax.Array) and x.committed)
    return next(placed, None)


def seconds_compiling() -> float:
    """Return the processor time of this process that went into tracing, lowering and compiling."""
    return sum(_spent)


def program_of(lowered: jax.stages.Lowered, arguments: tuple, runs_once: bool = False) -> Callable:
    """Return the program of a function lowered for these arguments, an equal one if it is kept."""
    quickly: Any = {"xla_backend_optimization_level": 0}
    compiling = quickly if runs_once and jax.default_backend() == "cpu" else None
    leaves = jax.tree.leaves(arguments)
    places = tuple(getattr(leaf, "sharding", None) for leaf in leaves)
    # Keys of another generator are numbers of the same shape.
    kinds = tuple(map(jax.typeof, leaves))
    module: Any = lowered.compiler_ir()
    text = module.operation.get_asm(large_elements_limit=_MOST_NUMBERS)
    # Which Python function a program calls is not in its text.
    if _ELIDED in text or "callback" in text or len(text) > _LONGEST_TEXT:
        return lowered.compile(compiling)
    digest = hashlib.sha256(text.encode()).digest()
    options = str(jax.config.values)  # some of them change what XLA makes of a text
    key = digest, lowered.in_tree, lowered.out_tree, kinds, places, options, runs_once
    with _lock:
        if key in _programs:
            _programs.move_to_end(key)
            return _programs[key]
    with on_disk():  # outside of the lock: others may find their programs meanwhile
        program = lowered.compile(compiling)
    with _lock:
        _programs[key] = program
        while len(_programs) > _KEPT:
            _programs.popitem(last=False)
    return program


@contextlib.contextmanager
def on_disk(quick: float = _QUICK) -> Iterator[None]:
    """Compile with JAX's cache in the user's cache folder, unless JAX has one already or
    $REPLICAX_CACHE is "off"; what took `quick` seconds or less is not kept. What the user compiles
    elsewhere is none of our business."""
    is_chosen = jax.config.values[_FOLDER_OPTION] or not jax.config.values[_ENABLED_OPTION]
    folder = None if is_chosen else _cache_folder()
    if folder is None:
        yield
        return
    ours = {_FOLDER_OPTION: str(folder), _QUICK_OPTION: quick}
    with _on_disk_lock:  # the options are those of the whole process
        before = {name: jax.config.values[name] for name in ours}
        _choose(ours)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                yield
        finally:
            _choose(before)
    # JAX says what it could not read or write, and leaves it there: for ever, if nobody removes it.
    damaged = [one for one in said if "persistent compilation cache" in str(one.message)]
    if damaged:
        _make_room(folder, 0)
    for one in said:
        if one not in damaged:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def _choose(options: dict[str, Any]) -> None:
    for name, value in options.items():
        jax.config.update(name, value)
    reset_cache()  # JAX decides once whether there is one, and where


def _cache_folder() -> Path | None:
    """Return the folder of programs for processors like this one, which nobody else can write to;
    None if there is to be none, or can be none."""
    chosen = os.environ.get("REPLICAX_CACHE")
    if chosen == "off":
        return None
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "replicax"
    # A program may have instructions that another processor of a shared home folder lacks.
    folder = Path(chosen or usual).expanduser() / f"programs-{_processor()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if hasattr(os, "getuid") and (about.st_uid != os.getuid() or about.st_mode & 0o022):
            return None  # whoever writes there could run code here
        _make_room(folder)
    except (OSError, RuntimeError):  # no home, or nothing can be written to it
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor() -> str:
    about = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return hashlib.sha256(about.encode()).hexdigest()[:16]


def _make_room(folder: Path, most: int = _MOST_BYTES) -> None:
    """Remove the programs that were written first, where all of them take too much."""
    kept = sorted(folder.glob(f"*-{'[0-9a-f]' * 64}-cache"), key=lambda path: path.stat().st_mtime)
    num_bytes = sum(path.stat().st_size for path in kept)
    for path in kept:
        if num_bytes <= most:
            return
        num_bytes -= path.stat().st_size
        path.unlink(missing_ok=True)
