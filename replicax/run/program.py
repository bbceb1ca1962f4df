"""Everything static about a run, and compiled programs that several runs share."""

import json
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernels import Kernel
from replicax.algorithm.step import Settings
from replicax.algorithm.target import Target
from replicax.run.batches import Batches, NoBatches


@dataclass(frozen=True)
class Program:
    """Everything static about a run."""

    target: Target
    kernel: Kernel
    settings: Settings
    batches: Batches
    num_chains: int
    burn_in: int = 0
    thin: int = 1
    draw_rungs: tuple[int, ...] = (0,)
    keep_draws: bool = True  # False: of draws only the energies are kept
    history_every: int = 100
    track_best: bool = False
    stop_on_nonfinite: bool = True
    chunk_steps: int | None = None
    watch_every: int | None = None  # steps between two looks of a `run.Watch`

    def is_drawn(self, steps: np.ndarray) -> np.ndarray:
        """Which steps leave a draw: after burn-in, thinned, where the kernel exploits."""
        drawn = (steps >= self.burn_in) & ((steps - self.burn_in) % self.thin == 0)
        if self.kernel.exploits is not None:
            drawn &= np.asarray(self.kernel.exploits(steps), bool)
        return drawn

    def lengths(self, step: int) -> dict[str, int]:
        """How many rows each group of records has once `step` steps are done."""
        return {
            "steps": step,
            "draws": int(self.is_drawn(np.arange(step)).sum()),
            "history": step // self.history_every,
            "epochs": step // self.watch_every if self.watch_every else 0,
        }


class Numbers(NamedTuple):
    """Numbers of a program that its compiled form takes as data: one serves them all."""

    window: Any
    window_correction: Any
    reference_steps: Any
    tuning_steps: Any
    energy_noise_std: Any
    target_swap_rate: Any
    burn_in: Any

    @classmethod
    def of(cls, program: Program) -> "Numbers":
        schedule, rule, tuning = _parts(program)
        std = 0.0 if rule.estimates_noise else rule.energy_noise_std
        return cls(
            window=int(schedule.window),  # Python's own numbers take the precision they meet
            window_correction=0.0 if rule.tunes_correction else float(rule.window_correction),
            reference_steps=rule.reference_steps or 1,
            tuning_steps=rule.tuning_steps or 1,
            energy_noise_std=float(std) if np.ndim(std) == 0 else jnp.asarray(std),
            target_swap_rate=float(tuning.target_swap_rate),
            burn_in=program.burn_in,
        )

    def put_into(self, program: Program) -> Program:
        schedule, rule, tuning = _parts(program)
        std = rule.energy_noise_std if rule.estimates_noise else self.energy_noise_std
        if rule.tunes_correction:
            stages = {n: getattr(self, n) for n in ("reference_steps", "tuning_steps")}
            rule = replace(rule, **stages)
        else:
            rule = replace(rule, window_correction=self.window_correction)
        settings = replace(
            program.settings,
            schedule=replace(schedule, window=self.window),
            rule=replace(rule, energy_noise_std=std),
            tuning=replace(tuning, target_swap_rate=self.target_swap_rate),
        )
        return replace(program, settings=settings, burn_in=self.burn_in)


def _parts(program: Program) -> tuple:
    return program.settings.schedule, program.settings.rule, program.settings.tuning


class Programs:
    """Compiled programs, shared by the calls of `rx.sample` that they are given to.

    Calls that differ in seed, starts, window, swap rate, ladder or noise level alone compile
    once. As with `jax.jit`, a target must be a pure function: what it reads from outside is
    looked at when it is compiled.

    >>> import replicax as rx
    >>> programs = rx.Programs()
    >>> for window in (1, 8):
    ...     posterior = rx.sample(
    ...         rx.targets.modes25(), rx.targets.modes25_start, num_steps=200, window=window,
    ...         num_replicas=4, learning_rate=(0.003, 0.6), programs=programs,
    ...     )  # fmt: skip
    """

    def __init__(self) -> None:
        self._made: dict[Hashable, Callable] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._made)

    def get(self, name: str, program: Program, make: Callable[[], Callable], *more: Any):
        """What `make()` gives, made once for all programs that differ in `Numbers` alone."""
        key = (name, _identity(program), *more)
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]


def _identity(program: Program) -> Hashable:
    """Equal for programs that compile to the same code."""
    neutral = Numbers(1, 0.0, 1, 1, 0.0, 0.5, 0).put_into(program)
    kernel, batches = program.kernel, program.batches
    known = kernel.spec is not None
    parts = replace(neutral, kernel=None, batches=None)  # type: ignore[arg-type]
    return (
        parts,
        json.dumps(kernel.spec, sort_keys=True) if known else kernel,
        type(batches) if isinstance(batches, NoBatches) else id(batches),
    )
