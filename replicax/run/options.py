"""The options of a run, each declared once: default, check, help, and what resuming may change.

`Sampling` has those of `rx.sample`, `Training` those of `rx.train`; what only an algorithm knows is
a `Method` (`methods.py`). Options stay in the words and the unit of the user. None means left open:
`resolve.py` decides it.

The command line reads these declarations to show its help: neither JAX nor NumPy is imported here.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from replicax.errors import (
    at_least,
    check_flag,
    check_function,
    check_number,
    check_path,
    choose,
    is_whole,
    show,
)

AUTO = "auto"
REQUIRED = MISSING  # as the default of an option: there is none
CHECKPOINT_SECONDS = 30.0
SEEDS = -(2**31), 2**32 - 1  # others would equal one of these: JAX takes the last 32 bits
COUNTED = 2**31 - 1  # the largest whole number of JAX, such as a number of steps
_NUMERIC = "iufV"  # kinds of NumPy's types; V: bfloat16 and its kin

Check = Callable[[str, Any], object]  # raises
Kind = TypeVar("Kind")


class Option(NamedTuple):
    """What is known of an option beside its default."""

    help: str = ""  # of the flag; none: it is not offered
    check: Check | None = None
    on_resume: str = "fixed"  # "may change", "may grow", or "give again": no folder can hold it
    flag: str | None = None  # at a prompt, where it is not the name with dashes
    command: str | None = None  # the only one that offers it
    metavar: str | None = None  # of the flag
    show_default: str | None = None  # what None stands for, in a few words


def option(default: Any, help: str = "", check: Check | None = None, **about: Any) -> Any:
    """Declare a field of a dataclass as an option; `help` is that of its flag."""
    return field(default=default, metadata={"option": Option(help, check, **about)})


def options_of(kind: Any) -> dict[str, Option]:
    """Return what was declared of each option of a dataclass, by name."""
    return {entry.name: entry.metadata["option"] for entry in _declared(kind)}


def _declared(kind: Any) -> list[Field]:
    return [entry for entry in fields(kind) if "option" in entry.metadata]


def checked(options: Any) -> None:
    """Raise unless each option by itself is valid; None passes where it is the default."""
    for entry in _declared(options):
        value, check = getattr(options, entry.name), entry.metadata["option"].check
        if check is not None and not (value is None and entry.default is None):
            check(entry.name, value)


def given(kind: Callable[..., Kind], arguments: dict[str, Any]) -> Kind:
    """Return the options among the arguments of a call, as in `given(Sampling, locals())`."""
    names = [entry.name for entry in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: arguments[name] for name in names})


def whole(lowest: int, highest: int = COUNTED) -> Check:
    """Return a check of whole numbers."""
    return lambda name, value: at_least(name, value, lowest, highest)


def one_of(*words: str) -> Check:
    """Return a check of words."""
    return lambda name, value: choose(name, value, words)


def number(holds: Callable[[Any], bool], needed: str) -> Check:
    """Return a check of numbers; `needed` says for which ones it `holds`."""
    return lambda name, value: check_number(name, value, holds, needed)


positive = number(lambda x: x > 0, "it must be a number above 0")
below_one = number(lambda x: 0 <= x < 1, "it must be a number of at least 0 and below 1")


def check_rungs(name: str, value: Any) -> None:
    """Raise unless `value` is "auto", a number or several; how many, the ladder checks."""
    import numpy as np

    if isinstance(value, str) and value == AUTO:
        return
    try:
        values = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        values = np.asarray(None)
    if values.dtype.kind not in _NUMERIC or values.dtype.names:
        raise ValueError(
            f"{name} is {show(value)}; give one number, a pair (cold, hot), one per rung, or "
            '"auto".'
        )


def checkpoint_interval(every: Any) -> tuple[int | None, float]:
    """Return steps and seconds between two checkpoints; the seconds count where steps is None.

    >>> checkpoint_interval(500), checkpoint_interval("90s"), checkpoint_interval("2h")
    ((500, 0.0), (None, 90.0), (None, 7200.0))
    """
    if every is None:
        return None, CHECKPOINT_SECONDS
    if isinstance(every, str):
        number, unit = every[:-1], every[-1:]
        seconds = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(unit, 0.0)
        if seconds and re.fullmatch(r"\d{1,9}(\.\d{1,9})?", number):
            return None, float(number) * seconds
    elif is_whole(every) and every >= 1:
        return int(every), 0.0
    raise ValueError(
        f'checkpoint_every is {show(every)}; give a number of steps, or a time such as "30s", '
        '"10m" or "2h".'
    )


def _check_draw_rungs(name: str, value: Any) -> None:
    is_all = isinstance(value, str) and value == "all"
    are_whole = isinstance(value, tuple | list | range) and all(map(is_whole, value))
    if not is_all and not are_whole:
        raise ValueError(f'{name} is {show(value)}; give a list such as (0, 3), or "all".')


@dataclass(frozen=True, kw_only=True)
class Run:
    """What the runs of `rx.sample` and `rx.train` have in common."""

    num_replicas: int | None = option(
        None,
        "Number of replicas, one for each rung of the ladder.",
        whole(1),
        flag="--replicas",
        metavar="P",
        show_default="one per learning rate or temperature; else 8, of deo-star 16",
    )
    burn_in: int | None = option(
        None,
        "Steps before the first draw that is kept.",
        whole(0),
        show_default="0; a third with --method posterior",
    )
    seed: int = option(0, "Seed of all random numbers.", whole(*SEEDS))
    on_nonfinite: str | None = option(
        None,
        "If an energy is not finite: restart its replica from a colder one, stop, or ignore it.",
        one_of("stop", "ignore", "restart"),
        show_default="restart; hmc, mala, no exchange: stop",
    )
    checkpoint_every: int | str | None = option(
        None,
        "Save every N steps, or every TIME: 30s, 10m, 2h.",
        lambda name, value: checkpoint_interval(value),
        on_resume="may change",
        metavar="N|TIME",
        show_default="30s",
    )
    keep_checkpoints: int = option(2, check=whole(1), on_resume="may change")

    __post_init__ = checked


@dataclass(frozen=True, kw_only=True)
class Sampling(Run):
    """The options of `rx.sample`, in steps."""

    # The first two are None only until `sample` gives a run that decides itself its first length,
    # and `resolve` closes them.
    num_steps: int = option(
        None,
        "Steps of every replica.",
        whole(1),
        on_resume="may grow",
        flag="--steps",
        show_default="until done",
    )
    num_chains: int = option(
        None,
        "Number of independent chains; use 4 for R-hat.",
        whole(1),
        flag="--chains",
        show_default="1; 4 until done",
    )
    thin: int | None = option(
        None,
        "Steps between draws.",
        whole(1),
        show_default="1; on mini-batches, steps between swaps",
    )
    draw_rungs: Any = option((0,), check=_check_draw_rungs)
    keep_draws: bool = option(True, check=check_flag)
    history_every: int | None = option(None, check=whole(1))


@dataclass(frozen=True, kw_only=True)
class Training(Run):
    """The options of `rx.train`, in epochs."""

    epochs: int = option(
        REQUIRED,
        "Epochs of each network.",
        whole(1),
        on_resume="may grow",
        show_default="500; digits, FILE.npz: 120",
    )
    num_replicas: int = option(
        10,
        "Number of networks.",
        whole(1),
        flag="--replicas",
        metavar="P",
        show_default="10; digits, FILE.npz: 4",
    )
    burn_in: int | None = option(
        None,
        "Epochs before the average begins.",
        whole(0),
        show_default="those of the pre-training; from trained networks 0",
    )
    on_nonfinite: str | None = option(None, check=one_of("restart", "stop"))
    keep_networks: bool = option(False, "Save the coldest network of every epoch.", check_flag)
    keep_averaged: int = option(100, check=whole(0))
    hold_out: float | None = option(
        None,
        "Share of the training rows that is held out, to decide by.",
        below_one,
        metavar="SHARE",
        show_default="0.1 where it decides, else 0",
    )
    early_stop: int | None = option(
        None,
        "Stop after so many epochs without a lower loss on the rows held out.",
        whole(1),
        show_default="never",
    )
    evaluate: Any = option(
        None,
        check=lambda name, value: check_function(name, value, "epoch"),
        on_resume="give again",
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Where a run without a number of steps ends at the latest."""

    max_steps: int | None = option(
        None,
        "Without --steps: the most steps.",
        whole(1),
        show_default="20000",
    )
    max_seconds: float | None = option(
        None,
        "Without --steps: the most seconds.",
        positive,
        metavar="T",
        show_default="none",
    )

    __post_init__ = checked

    def check_unused(self) -> None:
        """Raise if limits are given to a run of a given length."""
        for entry in fields(self):
            value = getattr(self, entry.name)
            if value is not None:
                raise ValueError(
                    f"{entry.name} is {show(value)}, the limit of a run that goes on until it is "
                    "done: leave out num_steps, or the limit."
                )


@dataclass(frozen=True, kw_only=True)
class Session:
    """How one process takes part in a run: nothing here changes a result."""

    run_dir: str | Path | None = option(
        None, "The run folder.", flag="--out", metavar="DIR", show_default="runs/NAME-1, -2, ..."
    )
    progress: bool | None = option(
        None, "Show progress on stderr.", show_default="if stderr is a terminal"
    )
    callback: Callable | Sequence[Callable] | None = None
    note: dict[str, Any] | None = None
    devices: Any = option(
        None,
        "Number of devices to use.",
        metavar="all|N",
        show_default="all accelerators, or one CPU",
    )
    data_parallel: int = option(1, "Devices per replica, which share its mini-batches.")

    def __post_init__(self) -> None:
        check_flag("progress", self.progress, None)
        for callback in self.callbacks:
            check_function("callback", callback, "progress")
        if self.run_dir is not None:
            object.__setattr__(self, "run_dir", check_path("run_dir", self.run_dir))
        try:
            length = len(json.dumps(self.note)) if isinstance(self.note, dict | None) else None
        except (TypeError, ValueError, RecursionError):
            length = None
        if length is None:
            raise ValueError("note must be a dict of plain data: numbers, text, lists and dicts.")
        if length > 2**22:
            raise ValueError("note is longer than 2**22 letters: keep data in a file of your own.")

    @property
    def callbacks(self) -> list[Callable]:
        """The callbacks, of which there may be one alone, or none."""
        if isinstance(self.callback, list | tuple):
            return list(self.callback)
        return [] if self.callback is None else [self.callback]  # type: ignore[list-item]
