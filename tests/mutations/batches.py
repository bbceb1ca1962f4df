"""Mutations of the sources of mini-batches."""

from mutations import mutations_of

_SUBSETS = "run/test_epochs.py::test_every_subset_of_rows_is_an_equally_likely_further_batch"
_JUDGED = "run/test_sources.py::test_swaps_are_judged_on_the_batch_after_that_of_the_move"
_PLACES = "run/test_sources.py::test_a_run_that_stops_within_a_chunk_is_saved_at_a_place_before"
_RESUMED = "run/test_sources.py::test_a_posterior_of_a_source_resumes_bit_for_bit"

BATCHES = mutations_of(
    "run/batches.py",
    (
        "jax.random.randint(key, (self.batch_size,), 0, self.num_rows)",
        "jax.random.randint(key, (self.batch_size,), 0, self.num_rows - 1)",
        "run/test_batch_properties.py::test_every_row_is_drawn_equally_often",
    ),
    (
        "places = (first + jnp.arange(self.batch_size)) % self.num_rows",
        "places = jnp.minimum(first + jnp.arange(self.batch_size), self.num_rows - 1)",
        "run/test_epochs.py::test_a_last_batch_is_filled_from_the_beginning_of_its_epoch",
    ),
    (
        "return -(-self.num_rows // self.batch_size)",
        "return self.num_rows // self.batch_size",
        "run/test_epochs.py::test_a_last_batch_is_filled_from_the_beginning_of_its_epoch",
    ),
    (
        "jax.random.fold_in(jax.random.fold_in(key, _ORDERS), epoch)",
        "jax.random.fold_in(key, _ORDERS)",
        "run/test_epochs.py::test_an_epoch_shows_every_row_once",
    ),
    (
        "return randomness.ordinary(key)",
        "return randomness.ordinary(randomness.make_key(0))",
        "run/test_epochs.py::test_a_batch_is_prepared_with_luck_of_its_own",
    ),
    (
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows)",
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows - 1)",
        _SUBSETS,
    ),
    (
        "rows = _different_rows(rows_key, self.batch_size, self.num_rows)",
        "rows = jax.random.randint(rows_key, (self.batch_size,), 0, self.num_rows)",
        _SUBSETS,
    ),
    (
        "return self._prepared(data, rows, key)",
        "return self._prepared(data, rows, jax.random.key(0))",
        "run/test_epochs.py::test_a_further_batch_is_prepared_with_a_key_of_its_own",
    ),
    (
        "return FreshBatches(draw, 1 - self.batch_size / self.num_rows, data)",
        "return FreshBatches(draw, 1.0, data)",
        "laws/test_judgement.py::test_the_noise_of_two_states_is_that_of_their_difference[500-epochs]",
    ),
    (
        "num_epochs = -(-num_steps // self.steps_per_epoch) + 1",
        "num_epochs = num_steps // self.steps_per_epoch",
        "run/test_epochs.py::test_how_a_run_is_cut_changes_nothing",
    ),
)

HOST_BATCHES = mutations_of(
    "run/host_batches.py",
    (
        "del self.pending[: step - self.position]",
        "del self.pending[: step - self.position - 1]",
        "run/test_batches.py::test_a_function_and_an_iterable_of_the_same_batches_agree",
    ),
)

SOURCES = [
    *mutations_of(
        "run/source_batches.py",
        ("further = self.batches_before(step) - self.batches_before(step - place) + 1",
         "further = self.batches_before(step) - self.batches_before(step - place)", _JUDGED),
        ("step - (-step // self.judged_every)", "step + step // self.judged_every", _JUDGED),
    ),
    *mutations_of(
        "run/source_reader.py",
        ("first = self.place(self.number)", "first = self.place(number)", _PLACES),
        ("self._batch, self.number = place.batch, place.number",
         "self._batch, self.number = place.batch, number", _PLACES),
        ("self.source.set_epoch(epoch)", "self.source.set_epoch(0)", _JUDGED),
        ("np.array(leaf) for leaf in leaves]", "np.asarray(leaf) for leaf in leaves]",
         "run/test_sources.py::test_a_source_may_write_over_its_batches"),
    ),
    *mutations_of(
        "run/restore.py",
        ("None if source is None else source.tobytes()", "None", f"{_RESUMED}[Stateful]"),
    ),
]  # fmt: skip

MUTATIONS = [
    *BATCHES,
    *HOST_BATCHES,
    *SOURCES,
]
