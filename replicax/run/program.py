"""`Program`: everything static about a run, made from its options."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax.algorithm.device_parts import spread_over_devices
from replicax.algorithm.kernel import Kernel, has_memory
from replicax.algorithm.ladder import Ladder
from replicax.algorithm.schedule import Schedule, Sequential
from replicax.algorithm.spread import CHAIN, DATA, REPLICA
from replicax.algorithm.state import Settings
from replicax.algorithm.swap import Rule
from replicax.algorithm.target import Target, takes_batch
from replicax.errors import is_whole
from replicax.run import settings as resolve
from replicax.run.batch_source import Batches, NoBatches
from replicax.run.mesh import check_rows, choose_mesh
from replicax.run.options import Options
from replicax.run.source_batches import SourceBatches

_LONGEST_CYCLE = 1_000_000  # steps in which a draw is looked for
_HOTTEST = 1e3  # the highest temperature that an automatic ladder gives a rung of finite energy


@dataclass(frozen=True)
class Program:
    """Everything static about a run."""

    target: Target
    kernel: Kernel
    settings: Settings
    batches: Batches
    ladder: Ladder  # at the start
    buffer: float  # at the start
    seed: int
    num_replicas: int
    num_chains: int
    burn_in: int = 0
    thin: int = 1
    draw_rungs: tuple[int, ...] = (0,)
    keep_draws: bool = True  # False: of draws only the energies are kept
    history_every: int = 100
    track_best: bool = False
    stop_on_nonfinite: bool = True
    evaluate_every: int | None = None  # steps between two evaluations of networks
    mesh: jax.sharding.Mesh | None = None  # the devices that share the work; None: one device

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

    def describe(self) -> dict[str, Any]:
        """Return the choices that options left open, for readers of the run folder."""
        schedule = self.settings.schedule
        return {
            "num_replicas": self.num_replicas,
            "schedule": schedule.name,
            "window": int(schedule.window),
            "swaps": schedule.swaps,
            "alternate": getattr(schedule, "alternate", True),
            "rule": self.settings.rule.name,
            "history_every": self.history_every,
            "draw_rungs": list(self.draw_rungs),
            "adapts": self.settings.tuning.adapts,
            "track_best": self.track_best,
            "counted_from": int(self.counted_from),
            "row_energies": self.target.row_energies is not None,
            "swap_every": self.settings.swap_every,
            "swap_energy": self.settings.energy_at,
            "tempers_likelihood": self.target.tempers_likelihood,
            "adjusted": self.kernel.adjusted,
            "kernel": (self.kernel.spec or {}).get("name", "custom"),
        }


def build_program(
    options: Options, target: Target, batches: Batches, evaluate_every: int | None = None
) -> Program:
    """Build the program of a run from options that `Options.complete` completed."""
    assert options.history_every is not None, "options are completed by complete()"
    num_replicas = resolve.num_replicas(options)
    schedule = resolve.schedule(options, num_replicas)
    rule = resolve.rule(options, num_replicas, schedule)
    kernel = resolve.kernel(options, rule)
    adapts, _ = resolve.adapts_until(options, rule, schedule)
    hottest = np.inf if target.tempers_likelihood and kernel.adjusted else _HOTTEST
    ladder = resolve.ladder(options, num_replicas, rule, adapts, kernel.first_rate, hottest)
    _check_combination(options, target, batches, rule, kernel, schedule)
    every = options.swap_every or 1
    settings = Settings(
        schedule=schedule,
        rule=rule,
        tuning=resolve.tuning(options, num_replicas, rule, schedule, kernel, hottest),
        energy_at="whole" if options.swap_energy == "full" else options.energy_at,
        swap_every=every,
        on_swap=options.on_swap,
        restarts=options.on_nonfinite == "restart",
        langevin=bool(np.any(ladder.temperature > 0)),
        map_replicas=_map_replicas(target),
    )
    forces = schedule.swaps == "exactly_one"
    program = Program(
        target,
        kernel,
        settings,
        batches.for_run(every if rule.judges_afresh else None),
        ladder=ladder,
        buffer=0.0 if isinstance(options.buffer, str) else float(options.buffer),
        seed=options.seed,
        num_replicas=num_replicas,
        num_chains=options.num_chains,
        burn_in=options.burn_in,
        thin=options.thin,
        draw_rungs=resolve.draw_rungs(options, num_replicas),
        keep_draws=options.keep_draws,
        history_every=options.history_every,
        track_best=forces if options.track_best is None else options.track_best,
        stop_on_nonfinite=options.on_nonfinite != "ignore",
        evaluate_every=evaluate_every,
    )
    _check_draws(program, options.num_steps)
    return program


def _check_draws(program: Program, num_steps: int) -> None:
    """Raise if a kernel that takes draws only at some steps would take none in this run."""
    if program.kernel.exploits is None:
        return
    first = np.arange(program.burn_in, min(num_steps, program.burn_in + _LONGEST_CYCLE))
    if not program.is_drawn(first).any():
        raise ValueError(
            f"No draw would be taken in num_steps={num_steps}: the kernel takes draws at the end "
            "of its cycles only. Write a longer run, a shorter cycle_length or a thin of 1."
        )


def _map_replicas(target: Target) -> Callable:
    """Return `jax.vmap`, or the faster one of `replicax.nn` for targets with a model state."""
    if not target.has_state:
        return jax.vmap
    from replicax import nn

    return nn.vmap


def _check_combination(
    options: Options,
    target: Target,
    batches: Batches,
    rule: Rule,
    kernel: Kernel,
    schedule: Schedule,
) -> None:
    if not (takes_batch(target) or isinstance(batches, NoBatches)):
        raise ValueError(
            "batches are given, but the energy takes (params) alone: write it as energy(params, "
            "batch), or leave batches out."
        )
    if options.energy_at == "before":
        _check_energy_before(target, rule)
    if rule.uses_temperature:
        _check_law(options, rule, kernel)
    if options.on_swap == "reset" and kernel.keeps_time:
        raise ValueError(
            'on_swap="reset" would set back the clock of a kernel that changes with time; '
            'write on_swap="keep".'
        )
    unseen = target.prior is not None and not target.tempers_likelihood
    if rule.uses_temperature and (kernel.has_own_prior or unseen):
        raise ValueError(
            f'There is a weight decay or prior that the rule "{rule.name}" would not see; put '
            "it into the energy instead (of rx.supervised: prior_in_energy=True)."
        )
    if rule.judges_afresh:
        _check_fresh_batches(batches, rule, schedule)
    _check_posterior(options, target, batches, kernel)
    exact = batches.is_whole or options.swap_energy == "full"
    if rule.assumes_exact_energies and not exact:
        raise ValueError(
            f'The rule "{rule.name}" takes energies as exact, but mini-batches make them noisy: '
            'write rule="bias_corrected", or batch_size=all rows.'
        )


def _check_energy_before(target: Target, rule: Rule) -> None:
    """Refuse energies from the gradients' own pass where they cannot judge swaps."""
    if rule.uses_temperature:
        raise ValueError(
            f'energy_at="before" does not go with the rule "{rule.name}": it must judge '
            'the states that swap. Write energy_at="moved".'
        )
    if target.gradient is not None:
        raise ValueError(
            'energy_at="before" takes the energy from the gradient\'s own pass, but this '
            'target has a separate gradient. Write energy_at="moved".'
        )


def _check_fresh_batches(batches: Batches, rule: Rule, schedule: Schedule) -> None:
    """Refuse batches that cannot give further ones, on which the rule judges swaps."""
    if not batches.can_refresh:
        raise ValueError(
            f'The rule "{rule.name}" judges swaps on other mini-batches than those that moved the '
            "replicas, which a function of the step, an iterable or a source of rx.supervised "
            "cannot give: pass arrays with batch_size."
        )
    if isinstance(schedule, Sequential) and isinstance(batches, SourceBatches):
        raise ValueError(
            f'The schedule "{schedule.name}" judges one pair after another, each on a mini-batch '
            'of its own, and a source gives one for all: write schedule="deo" or "seo".'
        )


def _check_posterior(options: Options, target: Target, batches: Batches, kernel: Kernel) -> None:
    """Refuse kernels and energies that this target and these batches cannot provide."""
    if kernel.adjusted and (target.has_state or target.gradient is not None or target.noise):
        raise ValueError(
            "An adjusted kernel (mala, hmc) needs an exact energy that JAX can differentiate, "
            "without a model state, gradient or noise of its own."
        )
    if kernel.adjusted and not (batches.is_whole and batches.can_refresh):
        raise ValueError(
            "An adjusted kernel (mala, hmc) needs exact energies, and mini-batches make them "
            "noisy: let every batch be all the data (batch_size), or write rx.bayesian(..., "
            'batch_size=...) with kernel="langevin".'
        )
    if kernel.needs == "halves" and (target.has_state or getattr(batches, "batch_size", 0) < 2):
        raise ValueError(
            'The kernel "langevin" compares the halves of a mini-batch: it needs arrays with a '
            "batch_size of at least 2 and no model state."
        )
    if options.swap_energy == "full" and target.whole_energy is None:
        raise ValueError(
            'swap_energy="full" needs an rx.bayesian posterior of arrays, which has all rows in '
            "memory."
        )
    reaches_prior = not isinstance(options.temperature, str) and np.any(
        np.isinf(np.asarray(options.temperature, float))
    )
    if reaches_prior and not (target.tempers_likelihood and kernel.adjusted):
        raise ValueError(
            "An infinite temperature is the prior alone: it needs an rx.bayesian posterior of all "
            "rows (no batch_size)."
        )


def _check_law(options: Options, rule: Rule, kernel: Kernel) -> None:
    """Refuse kernels under which no rung has the law exp(-U / tau) that the rule compares."""
    if kernel.caveat is not None:
        raise ValueError(
            f'The rule "{rule.name}" needs a kernel that preserves exp(-energy / temperature), and '
            f'this kernel does not. {kernel.caveat} Or write rule="deterministic".'
        )
    if options.on_swap == "reset" and has_memory(kernel.init):
        raise ValueError(
            f'on_swap="reset" does not go with the rule "{rule.name}": momentum that is reset at '
            "every swap makes the coldest rung too cold, and a preconditioner that is reset adapts "
            'again. Write on_swap="keep", which gives the momentum the law of the new rung.'
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
