"""`Program`: everything static about a run; `resolve.py` makes it."""

from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.device_parts import spread_over_devices
from replicax.algorithm.kernel import Kernel
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.randomness import seed_keys
from replicax.algorithm.spread import CHAIN, DATA, REPLICA
from replicax.algorithm.state import Settings
from replicax.algorithm.target import Target
from replicax.errors import is_whole
from replicax.run.batch_source import Batches
from replicax.run.mesh import check_rows, choose_mesh
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
    mesh: jax.sharding.Mesh | None = None  # the devices that share the work; None: one device
    # As they were resolved, in the words and the unit of the user.
    task: Task = field(kw_only=True, compare=False, repr=False)
    run: Run = field(kw_only=True, compare=False, repr=False)
    method: Method = field(kw_only=True, compare=False, repr=False)

    @property
    def keys(self) -> jax.Array:
        """A key for each chain."""
        return seed_keys(self.seed, self.num_chains)[0]

    def is_drawn(self, steps: np.ndarray) -> np.ndarray:
        """Return which steps leave a draw: after burn-in, thinned, where the kernel exploits."""
        drawn = (steps >= self.burn_in) & ((steps - self.burn_in) % self.thin == 0)
        if self.kernel.exploits is not None:
            drawn &= np.asarray(self.kernel.exploits(steps), bool)
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
        schedule = self.settings.schedule
        return Resolved(
            num_steps=self.num_steps,
            num_chains=self.num_chains,
            burn_in=self.burn_in,
            thin=self.thin,
            keep_draws=self.keep_draws,
            num_replicas=self.num_replicas,
            schedule=schedule.name,
            window=int(schedule.window),
            swaps=schedule.swaps,
            alternate=getattr(schedule, "alternate", True),
            rule=self.settings.rule.name,
            target_swap_rate=float(self.settings.tuning.target_swap_rate),
            history_every=self.history_every,
            draw_rungs=tuple(int(rung) for rung in self.draw_rungs),
            adapts=self.settings.tuning.adapts,
            track_best=self.track_best,
            counted_from=int(self.counted_from),
            row_energies=self.target.row_energies is not None,
            swap_every=self.settings.swap_every,
            energy_at=self.settings.energy_at,
            tempers_likelihood=self.target.tempers_likelihood,
            adjusted=self.kernel.adjusted,
            kernel=(self.kernel.spec or {}).get("name", "custom"),
        )


def spread_over(program: Program, devices: Any = None, data_parallel: int = 1) -> Program:
    """Return the program for the devices that are asked for: "all", a number, or a mesh.

    None is all devices where they are accelerators, belong to several processes or share replicas,
    else one. So many as `data_parallel` says share each replica.
    """
    alone = devices is None and is_whole(data_parallel) and data_parallel == 1
    if alone and len(jax.devices()) == 1:
        return program
    mesh = choose_mesh(program.num_chains, program.num_replicas, devices, data_parallel)
    if mesh is None:
        return program
    if DATA in mesh.axis_names:
        check_rows(program.batches, mesh.shape[DATA])
    sizes = mesh.shape[CHAIN], mesh.shape[REPLICA]
    spread = spread_over_devices(*sizes, several_chains=program.num_chains > 1)
    return replace(program, mesh=mesh, settings=replace(program.settings, spread=spread))
