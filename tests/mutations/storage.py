"""Mutations of `replicax/run/storage/` and of what uses it: saver, signals, fingerprint."""

from mutations import mutations_of

_BEYOND = "run/test_host_loop.py::test_records_beyond_the_checkpoint_are_dropped"
_GROW = "run/test_host_loop.py::test_records_grow_and_are_cut_at_any_row"
_CHUNKS = "run/test_host_loop.py::test_chunks_on_disk_are_never_empty"
_BEST_SAVED = "run/test_saver.py::test_the_best_point_survives_saving"
_KEPT = "run/test_saver.py::test_the_newest_checkpoints_are_kept"
_BACK = "run/test_damage.py::test_a_damaged_newest_state_goes_back_to_the_last_good_one"
_SAID = "run/test_damage.py::test_damaged_records_are_said"
_IN_USE = "run/test_interruptions.py::test_a_folder_in_use_names_the_process"
_OTHER = "run/test_interruptions.py::test_another_target_or_other_data_are_refused"
_FULL = "run/test_interruptions.py::test_a_full_disk_keeps_the_last_state"
_SIGNAL = "run/test_interruptions.py::test_a_signal_saves_and_ends_the_process[SIGTERM]"
_ANEW = (
    "run/test_interruptions.py"
    "::test_a_run_that_was_killed_before_its_first_step_starts_anew_or_resumes"
)

RECORDS = mutations_of(
    "run/records.py",
    (
        "self._pending[group] = [_join(parts)]",
        "self._pending[group] = [parts[-1]]",
        "algorithm/test_step.py::test_a_sampled_chain_equals_the_oracle",
    ),
    (
        "return sum(x.nbytes for arrays in rows for x in arrays.values())",
        "return sum(x.size for arrays in rows for x in arrays.values())",
        "run/test_saver.py::test_pending_rows_are_counted_in_bytes",
    ),
    (
        "self._pending = {group: [] for group in GROUPS}",
        "self._pending = dict(self._pending)",
        "run/test_host_loop.py::test_memory_does_not_grow_with_steps_when_a_folder_is_given",
    ),
)

_DELETED = "run/test_damage_fuzz.py::test_a_damaged_folder_is_loaded_as_it_was_or_refused"

FOLDER = mutations_of(
    "run/storage/folder.py",
    (
        "self._keep(commits.steps(self.folder)[:keep])",
        "self._keep(commits.steps(self.folder)[: keep + 1])",
        _KEPT,
    ),
    (
        "self._keep(commits.steps(self.folder)[:keep])",
        "self._keep(commits.steps(self.folder)[-keep:])",
        _KEPT,
    ),
    (
        "length = self.length(group) + len(next(iter(arrays.values())))",
        "length = len(next(iter(arrays.values())))",
        _GROW,
    ),
    ("zarr_arrays.cut(self._store, self.commit.groups)", "self._store.exists()", _GROW),
    ("if step <= self.commit.step])", "if step])", _GROW),
    ("if max(steps, default=-1) < ended else []", "if False else []", _DELETED),
    ("Column(str(x.dtype), x.shape[1:], 0)", "Column(str(x.dtype), x.shape[1:])", _DELETED),
    ("            if with_checkpoint:", "            if False:", f"{_BACK}[no checkpoint]"),
    (
        "values = commits.read_values(folder, commit)",
        "values = commits.read_values(folder, commit) if with_checkpoint else {}",
        _BEST_SAVED,
    ),
    (
        "return any(step > 0 for step in commits.steps(folder))",
        "return any(step >= 0 for step in commits.steps(folder))",
        _ANEW,
    ),
    (
        "return any(step > 0 for step in commits.steps(folder))",
        "return False",
        _ANEW,
    ),
    (
        "with locked(Path(folder)) if machine.is_first() else contextlib.nullcontext():",
        "with contextlib.nullcontext():",
        _IN_USE,
    ),
    ("    with locked(folder):", "    with contextlib.nullcontext():", _IN_USE),
)

_BY_CHUNKS = "run/test_damage.py::test_rows_without_a_checksum_are_checked_by_chunks_and_number"
ZARR_ARRAYS = mutations_of(
    "run/storage/zarr_arrays.py",
    (
        'array = array.with_config({"write_empty_chunks": True})',
        "array = array.with_config({})",
        _GROW,
    ),
    (
        "array.resize((group.length, *array.shape[1:]))",
        "array.resize((group.length + 1, *array.shape[1:]))",
        _GROW,
    ),
    ("            _check_chunk(path, content)", "            pass", f"{_SAID}[a chunk is missing]"),
    (
        "if found != column or array.shape[0] < length:",
        "if found != column:",
        _BY_CHUNKS,
    ),
    (
        'compressors=[BloscCodec(cname="zstd", clevel=3), Crc32cCodec()],',
        'compressors=[BloscCodec(cname="zstd", clevel=3)],',
        _BY_CHUNKS,
    ),
    (
        'if int.from_bytes(header[4:8], "little") != num_bytes',
        "if False",
        "run/test_damage.py::test_a_chunk_that_would_fill_the_memory_is_refused",
    ),
    ("return (max(1, _CHUNK_BYTES // (", "return (_CHUNK_BYTES // max(1, (", _CHUNKS),
    ("row = [max(1, size) for size in shape[1:]]", "row = list(shape[1:])", _CHUNKS),
    ("_LARGEST_CHUNK = 2**30", "_LARGEST_CHUNK = 2**40", _CHUNKS),
)

FILES = mutations_of(
    "run/storage/files.py",
    (
        'if content.pop("digest", None) != _digest_json(content):',
        'if content.pop("digest", None) is None:',
        "run/test_damage.py::test_metadata_with_a_flipped_number_are_refused",
    ),
    (
        "if digest(content) != expected:",
        "if not expected:",
        f"{_BACK}[values of another step]",
    ),
    (
        "if shutil.disk_usage(folder).free < num_bytes:",
        "if shutil.disk_usage(folder).free < 0:",
        "run/test_interruptions.py::test_a_disk_without_room_is_seen_before_anything_is_written",
    ),
    (
        "if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):",
        "if not archive.infolist():",
        "run/test_damage.py::test_values_that_are_compressed_or_pickled_are_refused",
    ),
    (
        "if path.stat().st_size > _JSON_BYTES:",
        "if path.stat().st_size > 16 * _JSON_BYTES:",
        "run/test_damage.py::test_a_file_of_a_million_entries_is_refused",
    ),
)

COMMITS = mutations_of(
    "run/storage/commits.py",
    (
        'if not re.fullmatch(r"[\\w-][\\w.-]*", name) or not is_numeric',
        "if not is_numeric",
        "run/test_damage.py::test_names_that_lead_out_of_the_folder_are_refused",
    ),
    (
        'for name in names if re.fullmatch(r"\\d{1,18}", name)), reverse=True)',
        'for name in names if re.fullmatch(r"\\d{1,18}", name)))',
        _KEPT,
    ),
)

CHECKPOINT = mutations_of(
    "run/storage/checkpoint.py",
    (
        "if files.digest_folder(path) != digest:",
        "if not digest:",
        f"{_BACK}[a file of the checkpoint with a flipped byte]",
    ),
    (
        "digests |= files.check_digest(listing, files.read_json(listing))",
        "digests = files.check_digest(listing, files.read_json(listing))",
        "run/test_devices.py::test_every_process_writes_its_own_replicas",
    ),
    (
        "if found != expected:",
        "if found.keys() != expected.keys():",
        "run/test_saver.py::test_a_checkpoint_of_other_shapes_is_refused",
    ),
    (
        "return {_name(path): _copy(leaf) for path, leaf in leaves if leaf.size}",
        "return {_name(path[-1:]): _copy(leaf) for path, leaf in leaves if leaf.size}",
        "run/test_folder.py::test_names_that_look_alike_are_kept_apart",
    ),
    ("if path.name in kept:", "if path.name:", _KEPT),
)

LOCK = mutations_of(
    "run/storage/lock.py",
    ("fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", "file.seek(0)", _IN_USE),
)

KEEPER = mutations_of(
    "run/records.py",
    (
        "if step == self.step:  # a step has one state only",
        "if False:",
        "run/test_saver.py::test_a_state_is_written_once",
    ),
)

SAVER = mutations_of(
    "run/saver.py",
    (
        'errno.ENOSPC or "No space left" in str(error)',
        "errno.ENOSPC",
        f"{_FULL}[orbax]",
    ),
    (
        "before = records.commit.step",
        "before = step",
        f"{_FULL}[disk]",
    ),
)

SIGNALS = mutations_of(
    "run/host_loop.py",
    ("return bool(numbers) and numbers[0] != signal.SIGINT", "return False", _SIGNAL),
    (
        "if signal.getsignal(number) is signal.SIG_DFL]",
        "if signal.getsignal(number)]",
        "run/test_interruptions.py::test_a_handler_of_the_users_own_stays",
    ),
)

FINGERPRINT = mutations_of(
    "run/fingerprint.py",
    ("_TOLERANCE = 1e-5  # of energies, relative", "_TOLERANCE = 1e5", _OTHER),
    (
        "if target.has_state else [point, jax.tree.map(shifted, point)]",
        "",
        _OTHER,
    ),
)

OPTIONS = mutations_of(
    "run/options.py",
    (
        "_CHECKPOINT_SECONDS = 30.0",
        "_CHECKPOINT_SECONDS = 300.0",
        "run/test_saver.py::test_a_checkpoint_is_due_every_thirty_seconds",
    ),
    (
        '{"s": 1.0, "m": 60.0, "h": 3600.0}',
        '{"s": 1.0, "m": 60.0, "h": 360.0}',
        "run/test_saver.py::test_a_checkpoint_may_be_due_by_another_time",
    ),
)

MUTATIONS = [
    *RECORDS,
    *FOLDER,
    *ZARR_ARRAYS,
    *FILES,
    *COMMITS,
    *CHECKPOINT,
    *LOCK,
    *KEEPER,
    *SAVER,
    *SIGNALS,
    *FINGERPRINT,
    *OPTIONS,
]
