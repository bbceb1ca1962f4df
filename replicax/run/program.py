"""`Program`: everything static about a run; `resolve.py` makes it."""

from dataclasses import dataclass, field, fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.state import Settings
from replicax.algorithm.target import Target
from replicax.run.batches import Batches
from replicax.run.methods import Method
from replicax.run.options import Run
from replicax.run.storage.metadata import Resolved
from replicax.run.task import Task


@dataclass(frozen=True)
class Program:
    """Everything static about a run."""

    target: Target
    kernel: Kernel
    settings: Settings
    batches: Batches
    ladder: Ladder = field(compare=False)  # at the start
    buffer: float = field(compare=False)  # at the start
    seed: int = field(compare=False)
    num_replicas: int
    num_chains: int
    num_steps: int = field(compare=False)
    burn_in: int = 0
    thin: int = 1
    draw_rungs: tuple[int, ...] = (0,)
    keep_draws: bool = True  # False: of draws only the energies are kept
    history_every: int = 100
    track_best: bool = False
    stop_on_nonfinite: bool = True
    evaluate_every: int | None = None  # steps between two evaluations of networks
    draws_per_step: int = 1  # that a drawn step leaves: positions of its jumps
    round_ends: tuple[int, ...] = ()  # steps after which the host renews what is learned
    mesh: jax.sharding.Mesh | None = None  # the devices that share the work; None: one device
    # As they were resolved, in the words and the unit of the user.
    task: Task = field(kw_only=True, compare=False, repr=False)
    run: Run = field(kw_only=True, compare=False, repr=False)
    method: Method = field(kw_only=True, compare=False, repr=False)

    @property
    def keys(self) -> jax.Array:
        """A key for each chain."""
        return seed_keys(self.seed, self.num_chains)[0]

    def next_stop(self, step: int) -> int:
        """Return the next step after `step` at which the host has to see the run."""
        every = self.evaluate_every
        stops = [self.num_steps, *(end for end in self.round_ends if end > step)]
        return min([*stops, self.num_steps if every is None else step + every - step % every])

    @property
    def evaluations_per_step(self) -> int:
        """Energies that a step evaluates, in all chains; a gradient counts as two."""
        moves = 2 * self.num_replicas * self.kernel.traits.gradients
        jumps = 0 if self.settings.jumps is None else self.settings.jumps.num_proposals
        return self.num_chains * (moves + jumps)

    def is_drawn(self, steps: np.ndarray) -> np.ndarray:
        """Return which steps leave a draw: after burn-in, thinned, where the kernel exploits."""
        drawn = (steps >= self.burn_in) & ((steps - self.burn_in) % self.thin == 0)
        if self.kernel.traits.exploits is not None:
            drawn &= np.asarray(self.kernel.traits.exploits(steps), bool)
        return drawn

    def is_broken(self, carry: Any) -> bool:
        """Return whether a non-finite energy ends the run."""
        return self.stop_on_nonfinite and bool(np.any(carry.counters.nonfinite))

    @property
    def counted_from(self) -> Any:
        """The first step that rates and round trips count: after burn-in, and after the steps
        without exchange that measure the unit of energy."""
        return jnp.maximum(self.burn_in, self.settings.tuning.measure_steps)

    @property
    def keeps_rung_energies(self) -> bool:
        """Whether the energies of all rungs are kept with each draw, for the evidence."""
        return self.target.tempers_likelihood and self.settings.rule.uses_temperature

    def describe(self) -> Resolved:
        """Return what the options came to, in steps, for readers of the run folder."""
        schedule, tuning = self.settings.schedule, self.settings.tuning
        same = {entry.name for entry in fields(Resolved)} & set(vars(self)) - {"kernel"}
        return Resolved(
            **{name: getattr(self, name) for name in same},
            schedule=schedule.name,
            window=int(schedule.window),
            swaps=schedule.swaps,
            alternate=getattr(schedule, "alternate", True),
            rule=self.settings.rule.name,
            target_swap_rate=float(tuning.target_swap_rate),
            adapts=tuning.adapts,
            counted_from=int(self.counted_from),
            row_energies=self.target.row_energies is not None,
            swap_every=self.settings.swap_every,
            energy_at=self.settings.energy_at,
            tempers_likelihood=self.target.tempers_likelihood,
            adjusted=self.kernel.traits.adjusted,
            kernel=(self.kernel.traits.spec or {}).get("name", "custom"),
        )
