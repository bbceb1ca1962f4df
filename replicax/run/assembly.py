"""From options, target and batches to what the loop runs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from replicax import nn
from replicax.algorithm import prng
from replicax.algorithm import step as algorithm
from replicax.algorithm.kernels import Kernel
from replicax.algorithm.swap import Rule
from replicax.algorithm.target import Target, check_energy
from replicax.run import compiled_loop as chunk
from replicax.run import initial as starts
from replicax.run import pytrees as trees
from replicax.run import resolve
from replicax.run.batches import ArrayBatches, Batches, EpochBatches, HostBatches
from replicax.run.options import Options
from replicax.run.program import Program, Programs
from replicax.run.round_trips import Trips


class Assembly:
    """A program, a ladder and keys: the parts of a run, made from its options."""

    def __init__(
        self,
        chosen: Options,
        target: Target,
        batches: Batches,
        programs: Programs | None = None,
        watch_every: int | None = None,
    ) -> None:
        self.programs = programs
        assert chosen.history_every is not None, "options are completed by with_history()"
        self.options, self.target, self.batches = chosen, target, batches
        self.num_replicas = num_replicas = resolve.num_replicas(chosen)
        schedule = resolve.schedule(chosen, num_replicas)
        rule = resolve.rule(chosen, num_replicas, schedule)
        kernel = resolve.kernel(chosen.kernel)
        adapts, _ = resolve.adapts_until(chosen, rule)
        self.ladder = resolve.ladder(chosen, num_replicas, rule, adapts)
        self._check_combination(rule, kernel)
        settings = algorithm.Settings(
            schedule=schedule,
            rule=rule,
            tuning=resolve.tuning(chosen, rule, num_replicas),
            energy_at=chosen.energy_at,
            on_swap=chosen.on_swap,
            restarts=chosen.on_nonfinite == "restart",
            langevin=bool(np.any(self.ladder.temperature > 0)),
            map_replicas=nn.vmap if target.has_state else jax.vmap,
        )
        track_best = chosen.track_best
        self.program = Program(
            target,
            kernel,
            settings,
            batches,
            num_chains=chosen.num_chains,
            burn_in=chosen.burn_in,
            thin=chosen.thin,
            draw_rungs=resolve.draw_rungs(chosen, num_replicas),
            keep_draws=chosen.keep_draws,
            history_every=chosen.history_every,
            track_best=schedule.forces if track_best is None else track_best,
            stop_on_nonfinite=chosen.on_nonfinite != "ignore",
            chunk_steps=chosen.chunk_steps,
            watch_every=watch_every,
        )
        self.keys, self.start_key = _split_seed(prng.make_key(chosen.seed), chosen.num_chains)

    def _check_combination(self, rule: Rule, kernel: Kernel) -> None:
        if self.options.energy_at == "before":
            if rule.uses_temperature:
                raise ValueError(
                    f'energy_at="before" does not go with the rule "{rule.name}": it must judge '
                    'the states that swap. Write energy_at="moved".'
                )
            if self.target.gradient is not None:
                raise ValueError(
                    'energy_at="before" takes the energy from the gradient\'s own pass, but this '
                    'target has a separate gradient. Write energy_at="moved".'
                )
        if self.options.on_swap == "reset" and kernel.keeps_time:
            raise ValueError(
                'on_swap="reset" would set back the clock of a kernel that changes with time; '
                'write on_swap="keep".'
            )
        own_prior = kernel.has_own_prior or self.target.prior is not None
        if rule.uses_temperature and own_prior:
            raise ValueError(
                f'There is a weight decay or prior that the rule "{rule.name}" would not see; put '
                "it into the energy instead."
            )
        if rule.estimates_noise and isinstance(self.batches, HostBatches):
            raise ValueError(
                "Estimating the energy noise looks at further mini-batches, which a function of "
                "the step or an iterable cannot give: pass arrays with batch_size, or a known "
                "energy_noise_std."
            )

    def describe(self) -> dict[str, Any]:
        """Resolved choices, for people who read the run folder."""
        schedule = self.program.settings.schedule
        return {
            "num_replicas": self.num_replicas,
            "schedule": schedule.name,
            "window": int(schedule.window),
            "swaps": schedule.swaps,
            "alternate": schedule.alternate,
            "rule": self.program.settings.rule.name,
            "history_every": self.program.history_every,
            "draw_rungs": list(self.program.draw_rungs),
            "adapts": self.program.settings.tuning.adapts,
            "track_best": self.program.track_best,
        }

    def carry(self, points: Any, dtype: Any) -> chunk.Carry:
        """What the loop starts from, given one start for every chain and replica."""
        program = self.program

        def begin(points, ladder, buffer):
            def one(point):
                params, model_state = point if self.target.has_state else (point, None)
                settings = program.settings
                return algorithm.init(program.kernel, params, ladder, settings, buffer, model_state)

            return chunk.start(program, jax.vmap(one, out_axes=chunk.STATE_AXES)(points))

        ladder = resolve.device_ladder(self.ladder, dtype)
        buffer = 0.0 if isinstance(self.options.buffer, str) else float(self.options.buffer)
        return self._compiled("carry", begin)(points, ladder, buffer)

    def starting_carry(self, params: Any) -> tuple[chunk.Carry, dict[str, Any]]:
        """The carry of all chains at step 0, once the energy is known to be usable there."""
        begin = starts.make_starts(
            params,
            self.start_key,
            self.options.num_chains,
            self.num_replicas,
            with_state=self.target.has_state,
        )
        one = jax.eval_shape(trees.first, begin)
        check_energy(self.target, one, self._first_batch(), self.keys[0])
        if not self.target.has_state:  # of a network, the first step tells
            self._check_finite(begin)
        return self.carry(begin, self._dtype(one)), trees.describe(one)

    def first_carry(self, one: Any) -> chunk.Carry:
        """A carry with every replica at the same start."""
        shape = (self.options.num_chains, self.num_replicas)
        begin = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*shape, *leaf.shape)), one)
        return self.carry(begin, self._dtype(one))

    def _compiled(self, name: str, function: Callable) -> Callable:
        if self.programs is None:
            return jax.jit(function)
        return self.programs.get(name, self.program, lambda: jax.jit(function), self.num_replicas)

    def no_trips(self) -> Trips:
        return Trips.none(self.options.num_chains, self.num_replicas)

    def _first_batch(self) -> Any:
        if isinstance(self.batches, HostBatches):
            return jax.tree.map(jnp.asarray, self.batches.at(0))
        if isinstance(self.batches, EpochBatches):
            return self.batches.fresh(self.batches.data, prng.ordinary(self.keys[0]))
        if isinstance(self.batches, ArrayBatches):
            return self.batches.take(self.batches.data, self.batches.draw(self.keys[0]))
        return None

    def _dtype(self, one: Any) -> Any:
        """Ladder, buffer and energies in the precision of the parameters, at least float32."""
        params = one[0] if self.target.has_state else one
        return jnp.result_type(jnp.float32, *jax.tree.leaves(params))

    def _check_finite(self, begin: Any) -> None:
        num_chains = self.options.num_chains

        def energies(params, batch, keys):
            one = lambda p, k: self.target.energy(p, batch, self.target.draw(k))  # noqa: E731
            keys = jax.vmap(lambda key: jax.random.split(key, self.num_replicas))(keys)
            return jax.vmap(jax.vmap(one))(params, keys)

        compiled = self._compiled("energies", energies)
        seen = np.asarray(compiled(begin, self._first_batch(), self.keys))
        if not np.all(np.isfinite(seen)):
            chain, replica = np.argwhere(~np.isfinite(seen))[0]
            where = f" of chain {chain}" if num_chains > 1 else ""
            raise ValueError(
                f"The energy at the start is {seen[chain, replica]} for replica {replica}{where}; "
                "start where the posterior has mass."
            )


@functools.partial(jax.jit, static_argnums=1)
def _split_seed(key: jax.Array, num_chains: int) -> tuple[jax.Array, jax.Array]:
    """A key for each chain, and one for the starts; compiled whole, which is quicker than apart."""
    run_key, start_key = jax.random.split(key)
    chains = jnp.arange(num_chains)
    return jax.vmap(lambda chain: jax.random.fold_in(run_key, chain))(chains), start_key
