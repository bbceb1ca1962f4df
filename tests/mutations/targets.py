"""Mutations of targets, states and random numbers."""

from mutations import killed_by

MUTATIONS = [
    *killed_by(
        "algorithm/test_generator.py::test_keys_draw_what_the_default_generator_draws",
        "algorithm/randomness.py",
        ("high = high + words[(group + 1) % 3]", "high = high + words[(group + 2) % 3]"),
        ("np.uint32(group + 1)", "np.uint32(group)"),
        ("(17, 29, 16, 24)", "(17, 29, 16, 25)"),
        ("key[0] ^ key[1] ^ _PARITY", "key[0] ^ key[1]"),
        ("return (high ^ low).astype", "return low.astype"),
        (
            "(high.astype(jnp.uint64) << np.uint64(32)) | low",
            "(low.astype(jnp.uint64) << np.uint64(32)) | high",
        ),
    ),
    *killed_by(
        "algorithm/test_generator.py::test_derived_keys_are_computed_once",
        "algorithm/randomness.py",
        ("return optimization_barrier(jnp.stack(words))", "return jnp.stack(words)"),
        (
            "optimization_barrier(jnp.stack(threefry(key, *_counters(shape)), axis=-1))",
            "jnp.stack(threefry(key, *_counters(shape)), axis=-1)",
        ),
    ),
    *killed_by(
        "algorithm/test_generator.py::test_a_draw_that_one_key_cannot_serve_is_refused",
        "algorithm/randomness.py",
        ("if size >= 2**32:", "if size >= 2**62:"),
    ),
    *killed_by(
        "algorithm/test_generator.py::test_the_quick_generator_is_used_where_it_is_quick",
        "algorithm/randomness.py",
        ('!= "cpu"', '== "cpu"'),
    ),
    *killed_by(
        "algorithm/test_randomness.py::test_no_number_is_drawn_twice[windowed_deo]",
        "algorithm/step.py",
        ("jax.vmap(target.draw)(keys[:, 1])", "jax.vmap(target.draw)(keys[:, 0])"),
        (
            "batch=draw_batch(batch_key) if draw_batch else None",
            "batch=draw_batch(judge_key) if draw_batch else None",
        ),
    ),
    *killed_by(
        "algorithm/test_randomness.py::test_no_key_is_used_twice",
        "algorithm/step.py",
        (
            "schedule=schedule.draw(schedule_key, num_replicas)",
            "schedule=schedule.draw(pair_key, num_replicas)",
        ),
        (
            "log_uniform=log_uniform(uniform_key, count)",
            "log_uniform=log_uniform(order_key, count)",
        ),
        ("jax.random.split(energy_key, (count, 2))", "jax.random.split(uniform_key, (count, 2))"),
    ),
    *killed_by(
        "algorithm/test_generator.py::test_a_block_of_draws_is_that_of_its_steps_one_by_one",
        "algorithm/randomness.py",
        ("jnp.moveaxis(leaf, -1, 0), block", "jnp.moveaxis(leaf, -1, 0)[::-1], block"),
    ),
    *killed_by(
        "algorithm/test_exchange.py::"
        "test_swaps_are_attempted_every_so_many_steps_by_a_clock_of_attempts",
        "algorithm/state.py",
        ("step % self.swap_every == 0", "(step + 1) % self.swap_every == 0"),
        ("else step // self.swap_every", "else step"),
    ),
    *killed_by(
        "algorithm/test_exchange.py::test_where_every_swap_happens_paths_are_straight[2-1-wanted]",
        "algorithm/state.py",
        ("buffer=jnp.array(buffer, dtype)", "buffer=jnp.array(0 * buffer, dtype)"),
    ),
    *killed_by(
        "algorithm/test_exchange.py::test_a_non_finite_energy_never_swaps[ape-metropolis]",
        "algorithm/state.py",
        ("start_verdicts(num_replicas - 1, dtype)", "start_verdicts(num_replicas, dtype)"),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::"
        "test_adjusted_kernels_begin_with_the_energies_of_their_starts",
        "algorithm/state.py",
        (
            "particles = jax.vmap(lambda replica: prepare(replica, evaluate))(particles)",
            "particles = particles",
        ),
    ),
    *killed_by(
        "algorithm/test_moves_by_hand.py::test_a_langevin_move_is_that_of_its_equations[0.05-True]",
        "algorithm/langevin.py",
        ("lambda g: (g[0] - g[1]) / 2, gradients", "lambda g: g[0] - g[1], gradients"),
        ("jnp.mean(energies),", "energies[0],"),
        (
            "return rows[: 2 * half].reshape(2, half, *rows.shape[1:])",
            "return rows[: 2 * half].reshape(half, 2, *rows.shape[1:]).swapaxes(0, 1)",
        ),
    ),
    *killed_by(
        "algorithm/test_target.py::"
        "test_the_energy_at_a_point_with_a_state_is_the_first_that_the_loss_returns",
        "algorithm/target.py",
        (
            "energy, _ = self.energy(*point, batch, noise)",
            "_, energy = self.energy(*point, batch, noise)",
        ),
    ),
    *killed_by(
        "networks/test_tempered.py::test_weight_decay_by_name_is_checked_on_the_parameters_alone",
        "algorithm/target.py",
        ("params = point[0] if target.has_state else point", "params = point"),
    ),
    *killed_by(
        "algorithm/test_kernel_rungs.py::test_a_swap_gives_momentum_the_law_of_the_new_rung[False]",
        "algorithm/target.py",
        ("if self.gradient is None:", "if True:"),
    ),
    *killed_by(
        "algorithm/test_target.py::test_a_gradient_of_ones_own_is_used_and_may_take_one_argument",
        "algorithm/target.py",
        (
            "return target._replace(energy=_three_arguments(target.energy), gradient=gradient)",
            "return target._replace(energy=_three_arguments(target.energy))",
        ),
    ),
    *killed_by(
        "algorithm/test_target.py::test_an_energy_may_take_one_two_or_three_arguments",
        "algorithm/target.py",
        ("required = sum(p.default is p.empty for p in positional)", "required = len(positional)"),
    ),
    *killed_by(
        "algorithm/test_target.py::test_an_energy_may_take_one_two_or_three_arguments[key]",
        "algorithm/target.py",
        (
            "return function if count == 3 else _Padded(function, count)",
            "return _Padded(function, count)",
        ),
    ),
    *killed_by(
        "run/test_bad_input.py::test_a_bad_target_gets_a_sentence_with_the_remedy[vector]",
        "algorithm/target.py",
        ("if value.shape != ():", "if False:"),
    ),
    *killed_by(
        "bad_inputs/test_table.py::test_bad_input_gets_a_sentence",
        "algorithm/target.py",
        ("if not same or any(one.shape != other.shape for one, other in pairs):", "if not same:"),
        ("if shapes[0] != shapes[1]:", "if False:"),
    ),
    *killed_by(
        "algorithm/test_target.py::test_energy_and_prior_apart_are_those_of_the_target",
        "algorithm/target.py",
        ("jax.tree.map(jnp.zeros_like, params)", "jax.tree.map(jnp.ones_like, params)"),
    ),
]
