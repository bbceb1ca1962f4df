"""Mutations written by hand, where the meaning of the algorithm is at stake.

Each names the rule that it breaks, a function, what stands there and what that becomes. The file is
found by the function, so files may move; `tests/mutations/test_lists.py` fails for what no longer
applies.
"""

from pathlib import Path
from typing import NamedTuple

from mutations.choice import PACKAGE
from mutations.operators import Mutant, functions_of, mutant_at


class Meaning(NamedTuple):
    """A mutation, and the rule that it breaks."""

    rule: str
    function: str  # its qualified name or the end of it; "" for what stands outside functions
    before: str  # an expression or statement, found there once
    after: str


def by_hand(root: Path) -> list[Mutant]:
    """Return the mutants of the list; raise `LookupError` for those that do not fit once."""
    texts = {
        path.relative_to(root).as_posix(): path.read_text()
        for path in sorted((root / PACKAGE).rglob("*.py"))
    }
    functions = {path: functions_of(text) for path, text in texts.items()}
    made, misfits = [], []
    for meaning in MEANINGS:
        name = meaning.function
        files = [
            path
            for path, names in functions.items()
            if not name or any(f".{x}".endswith(f".{name}") for x in names)
        ]
        found = [x for path in files if (x := _in_file(texts[path], path, meaning)) is not None]
        if len(found) != 1:
            misfits.append(f"{len(found)} places fit the mutation by hand: {meaning}")
        made += found
    if misfits:
        raise LookupError("\n".join(misfits))
    return made


def _in_file(text: str, path: str, meaning: Meaning) -> Mutant | None:
    try:
        return mutant_at(text, path, meaning.function, meaning.before, meaning.after)
    except LookupError:
        return None


MEANINGS = (
    # Who swaps: rules, schedules, gates.
    Meaning(
        "energies that are not finite never swap",
        "judge",
        "return rule.wanted(proposal) & proposal.is_finite",
        "return rule.wanted(proposal)",
    ),
    Meaning(
        "the deterministic rule swaps towards the lower energy",
        "Deterministic.wanted",
        "proposal.cold_energy - proposal.hot_energy",
        "proposal.hot_energy - proposal.cold_energy",
    ),
    Meaning(
        "the correction is quadratic in the slope",
        "log_swap_probability",
        "slope ** 2 * proposal.energy_noise_var",
        "slope * proposal.energy_noise_var",
    ),
    Meaning(
        "the sign of the slope between two rungs",
        "RuleInForce.verdict",
        "inverse[cold] - inverse[hot]",
        "inverse[hot] - inverse[cold]",
    ),
    Meaning("noise by pair is that of the pair", "RuleInForce.verdict", "std[cold]", "std[hot]"),
    Meaning(
        "the correction needs a variance, not a standard deviation",
        "RuleInForce.verdict",
        "noise_var = (std if std.ndim == 0 else std[cold]) ** 2",
        "noise_var = std if std.ndim == 0 else std[cold]",
    ),
    Meaning("disjoint swaps: the hot one of a pair", "swap_adjacent", "(0, 1)", "(1, 0)"),
    Meaning(
        "disjoint swaps: the inverse permutation",
        "swap_adjacent",
        "index.replica_at[rungs + move]",
        "index.replica_at[rungs - move]",
    ),
    Meaning("disjoint swaps: rungs by replica", "swap_adjacent", "move[index.rung_of]", "move"),
    Meaning(
        "exact energies are not judged afresh",
        "Rule.judges_afresh",
        "return self.uses_temperature and (not self.assumes_exact_energies)",
        "return self.uses_temperature",
    ),
    Meaning(
        "parity changes with the window, not with the step",
        "WindowedDEO.active_pairs",
        "step // self.window",
        "step % self.window",
    ),
    Meaning(
        "a swap is forced in the last step of a window",
        "WindowedDEO.swapping_pairs",
        "(step + 1) % self.window",
        "step % self.window",
    ),
    Meaning(
        "a forced swap needs finite energies",
        "WindowedDEO.swapping_pairs",
        "wanted | closes & finite",
        "wanted | closes",
    ),
    Meaning(
        "without a gate a pair may swap in every step",
        "WindowedDEO.swapping_pairs",
        "active & wanted",
        "active & gate & wanted",
    ),
    Meaning(
        "even and odd pairs take turns from the first window on",
        "pairs_of_parity",
        "(jnp.arange(num_pairs) + 1) % 2",
        "jnp.arange(num_pairs) % 2",
    ),
    Meaning(
        "a sweep over all pairs counts swaps of neighbours",
        "Sequential.sweep",
        "adjacent = swapped & (hot == cold + 1)",
        "adjacent = swapped",
    ),
    Meaning(
        "the gate reopens with the window",
        "exchange",
        "gate = state.gate | schedule.window_opens(attempt)",
        "gate = state.gate",
    ),
    Meaning(
        "no swap while the unit of the energy is measured",
        "exchange",
        "may_swap = ~settings.tuning.measuring(state.step)",
        "may_swap = True",
    ),
    Meaning(
        "energies of a sweep belong to replicas",
        "_build_verdict.verdict",
        "cold_energy, hot_energy = (energy_of[replica] for replica in pair)",
        "cold_energy, hot_energy = (energy[cold], energy[hot])",
    ),
    Meaning(
        "the coin of stochastic even-odd is fair",
        "StochasticEvenOdd.draw",
        "jax.random.bernoulli(key)",
        "jax.random.bernoulli(key, 0.2)",
    ),
    # Energies of judgement and their noise.
    Meaning(
        "a judging batch is drawn afresh",
        "EnergySource.another_batch",
        "return self.batch if self.fresh_batch is None else self.fresh_batch(key)",
        "return self.batch",
    ),
    Meaning(
        "an exact rule sees all rows", "EnergySource.whole_energies", "rows.all_rows", "self.batch"
    ),
    Meaning(
        "every attempt of a sweep has a batch of its own",
        "EnergySource.energy_pair",
        "batch = self.another_batch(attempt.batch)",
        "batch = self.batch",
    ),
    Meaning(
        "the weight of an estimate falls with estimates, not steps",
        "estimate.renew",
        "step // rule.estimate_every + 1",
        "step + 1",
    ),
    Meaning(
        "estimates are by rung",
        "estimate.renew",
        "lambda key: source.energies(key)[state.replica_at]",
        "lambda key: source.energies(key)",
    ),
    Meaning(
        "an estimate that is not finite is dropped",
        "estimate.renew",
        "return jnp.where(jnp.isfinite(latest), renewed, before)",
        "return renewed",
    ),
    Meaning(
        "noise is that of the replicas that meet",
        "Noise.of_pairs",
        "return self.by_replica[replica_at[:-1], replica_at[1:]]",
        "return jnp.diagonal(self.by_replica, offset=1)",
    ),
    Meaning(
        "noise of a pair is beside the diagonal",
        "Noise.of_pairs",
        "jnp.diagonal(self.by_rung, offset=1)",
        "jnp.diagonal(self.by_rung)",
    ),
    Meaning(
        "noise by replica", "Noise.of_two", "self.by_replica[replicas]", "self.by_replica[rungs]"
    ),
    Meaning(
        "noise of a mean falls with the batch",
        "EnergySource.row_noise",
        "scale = self.fresh_batch.noise_share / rows.shape[1]",
        "scale = self.fresh_batch.noise_share",
    ),
    Meaning(
        "covariance over n - 1",
        "difference_variance",
        "centred.T @ centred / (energies.shape[0] - 1)",
        "centred.T @ centred / energies.shape[0]",
    ),
    Meaning("the stream of batches is not that of moves", "", "_BATCH = 2 ** 32 - 1", "_BATCH = 0"),
    # Random numbers.
    Meaning(
        "numbers of a step follow from the step",
        "build_draw.draw",
        "jax.random.split(jax.random.fold_in(key, step))",
        "jax.random.split(key)",
    ),
    Meaning(
        "log of a uniform number", "log_uniform", "jax.random.exponential", "jax.random.uniform"
    ),
    Meaning(
        "leaves have numbers of their own",
        "draw_normal",
        "keys = [key] if len(leaves) == 1 else jax.random.split(key, len(leaves))",
        "keys = [key] * len(leaves)",
    ),
    Meaning(
        "chains start from points of their own",
        "initial_points.draw_chains.draw_chain",
        "jax.random.fold_in(key, chain)",
        "jax.random.fold_in(key, 0)",
    ),
    Meaning(
        "chains have streams of their own",
        "_split_seed",
        "jax.random.fold_in(run_key, chain)",
        "jax.random.fold_in(run_key, 0 * chain)",
    ),
    Meaning(
        "the start does not repeat the stream of the run",
        "_split_seed",
        "run_key, start_key = jax.random.split(key)",
        "run_key, start_key = (key, key)",
    ),
    # Moves.
    Meaning(
        "the factor 2 of Langevin noise",
        "_langevin_std",
        "2 * rung.learning_rate * rung.temperature",
        "rung.learning_rate * rung.temperature",
    ),
    Meaning(
        "the friction in the noise of SGHMC",
        "_noise_in_gradient.move",
        "2 * (1 - decay) * rung.temperature",
        "2 * rung.temperature",
    ),
    Meaning(
        "momentum is rescaled to the new learning rate, not from it",
        "_scale_momentum",
        "old.learning_rate / new.learning_rate",
        "new.learning_rate / old.learning_rate",
    ),
    Meaning(
        "momentum scales with a standard deviation",
        "_scale_momentum",
        "scale = jnp.sqrt(variance)",
        "scale = variance",
    ),
    Meaning(
        "rungs without temperature have no law of momentum",
        "_scale_momentum",
        "has_law = (old.temperature > 0) & (new.temperature > 0)",
        "has_law = old.temperature > 0",
    ),
    Meaning(
        "momentum is rescaled on swaps",
        "momentum",
        "return kernel.having(change_rung=_scale_momentum)",
        "return kernel",
    ),
    Meaning(
        "friction is one minus the decay",
        "sghmc",
        "momentum(1 - friction, weight_decay=weight_decay)",
        "momentum(friction, weight_decay=weight_decay)",
    ),
    Meaning(
        "preconditioned by the root of the square",
        "preconditioned.move",
        "lambda nu: jax.lax.rsqrt(nu + eps)",
        "lambda nu: 1 / (nu + eps)",
    ),
    Meaning(
        "a preconditioner that is frozen counts steps",
        "preconditioned",
        "return kernel.having(keeps_time=True)",
        "return kernel",
    ),
    Meaning(
        "the batch that moved is not the one that judges",
        "_build_move_one.move_one",
        "target.energy_at(point, judging_batch, energy_noise)",
        "target.energy_at(point, batch, energy_noise)",
    ),
    Meaning(
        "a replica moves by its own rung", "build_move.move", "state.rung_of", "state.replica_at"
    ),
    Meaning(
        "a rule that corrects judges on a fresh batch",
        "_judging_batch",
        "return fresh_batch(energy_noise.batch_key(random.fresh))",
        "return batch",
    ),
    Meaning(
        "memory changes from the old rung to the new one",
        "_settled",
        "(here(before.rung_of), here(after.rung_of))",
        "(here(after.rung_of), here(before.rung_of))",
    ),
    Meaning(
        "a cycle has temperature only where it samples",
        "cyclical.rung_at",
        "temperature = rung.temperature * exploits(count)",
        "temperature = rung.temperature",
    ),
    Meaning(
        "the cosine of a cycle is squared",
        "cyclical.rung_at",
        "rate = jnp.sin(0.5 * jnp.pi * (cycle_length - place) / cycle_length) ** 2",
        "rate = jnp.sin(0.5 * jnp.pi * (cycle_length - place) / cycle_length)",
    ),
    Meaning(
        "time goes on",
        "timed.step",
        "TimedMemory(count + 1, inner.memory)",
        "TimedMemory(count, inner.memory)",
    ),
    Meaning(
        "a timed kernel keeps what a swap changes",
        "timed",
        "None if traits.change_rung is None else change_rung",
        "None",
    ),
    Meaning(
        "the prior is part of the acceptance",
        "hmc.step",
        "end.prior - start.prior",
        "0 * end.prior",
    ),
    Meaning(
        "a path that leaves the numbers is rejected",
        "hmc.step",
        "log_ratio = jnp.where(jnp.isfinite(end.energy), -change, -jnp.inf)",
        "log_ratio = -change",
    ),
    Meaning(
        "velocity is given up half by half",
        "hmc.step",
        "(back ** 2 - drawn.length ** 2) / 2",
        "(back ** 2 - drawn.length ** 2) / 4",
    ),
    Meaning(
        "only the likelihood is tempered: gradient",
        "hmc.step.gradient",
        "slope * u + v",
        "u + slope * v",
    ),
    Meaning(
        "the weight decay of a tempered likelihood",
        "Target._with_prior",
        "(temperature * g).astype(g.dtype)",
        "g",
    ),
    Meaning(
        "temperature reaches the prior",
        "Target.evaluate_state",
        "self._with_prior(gradient, params, temperature)",
        "self._with_prior(gradient, params, 1.0)",
    ),
    # Adaptation.
    Meaning(
        "rates fall when swaps are too rare",
        "adapt_rungs",
        "wanted.astype(rungs.dtype) - target_swap_rate",
        "target_swap_rate - wanted.astype(rungs.dtype)",
    ),
    Meaning(
        "rates stay between their ends",
        "adapt_rungs",
        "inner = jnp.clip((forward + backward) / 2, rungs[0], rungs[-1])",
        "inner = (forward + backward) / 2",
    ),
    Meaning(
        "nothing adapts while the unit is measured",
        "tune",
        "tunes = ~measuring",
        "tunes = measuring | True",
    ),
    Meaning(
        "the buffer starts from the unit",
        "tune",
        "jnp.where(measuring, unit.value(), buffer)",
        "jnp.where(measuring, buffer, buffer)",
    ),
    Meaning(
        "the gain of the buffer has the unit of the energy",
        "tune",
        "tuning.buffer_gain(step) if tuning.buffer_gain else tuning.gain(step) * unit.value()",
        "tuning.buffer_gain(step) if tuning.buffer_gain else tuning.gain(step)",
    ),
    Meaning(
        "the coldest temperature stays",
        "equalised",
        "tuned = tuned.at[0].set(temperature[0])",
        "tuned = tuned * 1.01",
    ),
    Meaning(
        "the hottest temperature stays unless it is free",
        "equalised",
        "return tuned if tuning.free_until else tuned.at[-1].set(temperature[-1])",
        "return tuned",
    ),
    Meaning(
        "attempts before the first step do not count",
        "tune_temperatures",
        "if tuning.first_step:\n    attempted = attempted & (step >= tuning.first_step)",
        "if tuning.first_step:\n    pass",
    ),
    Meaning(
        "step sizes towards shorter scales",
        "_end_round",
        "-log + jnp.log(SQUARE_OF_NORMAL)",
        "log + jnp.log(SQUARE_OF_NORMAL)",
    ),
    # Replicas that broke.
    Meaning(
        "broken by rung",
        "restart_broken.copied",
        "jnp.where(broken[replica_at], -1, rungs)",
        "jnp.where(broken, -1, rungs)",
    ),
    Meaning(
        "the nearest sound rung below",
        "restart_broken.copied",
        "jnp.where(sound_below >= 0, sound_below, rungs)",
        "jnp.maximum(rungs - 1, 0)",
    ),
    Meaning(
        "the replica on that rung",
        "restart_broken.copied",
        "(replica_at[source], source, rungs)",
        "(source, source, rungs)",
    ),
    Meaning(
        "parameters that are not finite",
        "find_broken",
        "~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "~jnp.isfinite(energy_of)",
    ),
    Meaning(
        "energies that are not finite",
        "find_broken",
        "~(jnp.isfinite(energy_of) & jnp.isfinite(total))",
        "~jnp.isfinite(total)",
    ),
    # What is counted and recorded.
    Meaning(
        "a draw is the replica on the rung after the swap",
        "_build_chains.step",
        "after.replica_at",
        "state.replica_at",
    ),
    Meaning(
        "an energy is that of the rung before the swap",
        "_build_chains.step",
        "state.rung_of",
        "after.rung_of",
    ),
    Meaning(
        "a window counts once",
        "count_step",
        "info.active & opens & window_counted",
        "info.active & window_counted",
    ),
    Meaning(
        "the first swap of a window may reopen its gate",
        "count_step",
        "info.swapped & (before.gate | opens)",
        "info.swapped & before.gate",
    ),
    Meaning(
        "the best point is that of the replica",
        "_update_best",
        "replica = before.replica_at[rung]",
        "replica = rung",
    ),
    Meaning(
        "trip ends are where trips grow",
        "trip_ends",
        "np.diff(trips, axis=0, prepend=0) > 0",
        "trips > 0",
    ),
    Meaning(
        "acceptance before burn-in does not count",
        "count_step",
        "acceptance + jnp.where(counted, info.observed.acceptance, 0)",
        "acceptance + info.observed.acceptance",
    ),
    Meaning(
        "nothing is counted while measuring",
        "Program.counted_from",
        "return jnp.maximum(self.burn_in, self.settings.tuning.measure_steps)",
        "return self.burn_in",
    ),
    Meaning(
        "the coldest rung is not mended by a copy",
        "count_step",
        "mended = info.restarted.at[0].set(False)",
        "mended = info.restarted",
    ),
    Meaning(
        "a mini-batch stands for all rows",
        "bayesian.energy",
        "return -(num_rows / values.shape[0]) * jnp.sum(values)",
        "return -jnp.sum(values)",
    ),
    Meaning(
        "an energy is minus the log posterior",
        "bayesian.whole",
        "return -sum_in_pieces(sum_over, data, _PIECE_ROWS)",
        "return sum_in_pieces(sum_over, data, _PIECE_ROWS)",
    ),
    Meaning(
        "all rows have no noise",
        "ArrayBatches.fresh",
        "return FreshBatches(lambda key: data, 0.0, data)",
        "return FreshBatches(lambda key: data, 1.0, data)",
    ),
    # Averages of networks.
    Meaning(
        "the second moment is central",
        "collect.add_square",
        "total + (1 - gain).astype(total.dtype) * jnp.square(new - mean)",
        "total + jnp.square(new - mean)",
    ),
    Meaning(
        "half of the covariance is low-rank",
        "draw",
        "scale / (2 * jnp.maximum(num_deviations - 1, 1))",
        "scale / jnp.maximum(num_deviations - 1, 1)",
    ),
    Meaning(
        "fewer deviations than the rank at first",
        "draw",
        "num_deviations = jnp.minimum(moments.count, rank)",
        "num_deviations = rank",
    ),
    Meaning(
        "draws of an epoch are its own",
        "build_cycles.evaluate_cycle",
        "jax.random.fold_in(jax.random.key(seed), epoch)",
        "jax.random.key(seed)",
    ),
    Meaning(
        "data uncertainty is weighted",
        "uncertainty",
        "np.tensordot(weights, np.stack([entropy(one) for one in members]), 1)",
        "np.mean([entropy(one) for one in members], axis=0)",
    ),
    Meaning(
        "the spread of means is around the weighted mean",
        "_of_numbers",
        "np.tensordot(shares, mean, 1)",
        "mean.mean(axis=0)",
    ),
    # What is learned, and jumps.
    Meaning(
        "the mixture is frozen before the first draw",
        "learning_ends",
        "_round_ends(max(plan.burn_in, 1))",
        "_round_ends(plan.num_steps)",
    ),
    Meaning(
        "jumps carry the weight of the state",
        "_decide.one",
        "jnp.where(accepts, proposed, weight)",
        "weight",
    ),
    Meaning(
        "every chain and step has proposals of its own",
        "build_jumps.jump_cold.seen",
        "draw_jumps(key, jumping.num_proposals, flat.size, flat.dtype)",
        "draw_jumps(make_key(0), jumping.num_proposals, flat.size, flat.dtype)",
    ),
    Meaning(
        "the constant of a heavy-tailed component, such as the wide one",
        "make_mixture",
        "d / 2 * np.log(2 * np.pi * half)",
        "d / 2 * np.log(2 * np.pi)",
    ),
    Meaning(
        "proposals out of order stand for nothing",
        "orbit_density",
        "were | is_state",
        "were | ~were",
    ),
    Meaning(
        "a proposal in order stands for all orders",
        "orbit_density",
        "math.lgamma(len(ordering.places) + 1)",
        "0.0",
    ),
    Meaning(
        "labels are permuted after jumps",
        "_relabelled",
        "shuffled(places, seen.path, key)",
        "seen.path",
    ),
    Meaning(
        "minima are compared up to permutations of labels",
        "are_apart",
        "one if places is None else aligned(places, one, other, cov)",
        "one",
    ),
)
