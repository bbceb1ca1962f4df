"""Generated mutants that change nothing that a test should see, each with the reason.

A mutant is named by file, function and the text before and after, as `make mutants` prints it.
One whose code has changed since is tried like any other; `make mutants` names those.
"""

_BY_REASON: dict[str, tuple[str, ...]] = {
    "Any number is apart from the keys of an estimate, which are split off and not folded in.": (
        "algorithm/energy_noise.py:: 2 ** 32 - 1 -> 2 ** 32 - 2",
        "run/batches.py:: 2 ** 32 - 1 -> 2 ** 32 - 2",
    ),
    "An exact energy ignores its key.": (
        "algorithm/state.py:init: randomness.make_key(0) -> randomness.make_key(1)",
        "algorithm/state.py:init: randomness.make_key(0) -> randomness.make_key(-1)",
    ),
    "Both sides are the same where they are equal.": (
        "algorithm/tuning.py:_free_end: end < best -> end <= best",
    ),
    "One rounding error more or less is as near to 0.": (
        "algorithm/tuning.py:equalised: 16 * jnp.finfo(place.dtype).eps -> "
        "17 * jnp.finfo(place.dtype).eps",
        "algorithm/tuning.py:equalised: 16 * jnp.finfo(place.dtype).eps -> "
        "15 * jnp.finfo(place.dtype).eps",
    ),
    "How long a fit goes on at most; what it finds is judged by its proposals in any case.": (
        "algorithm/fitting.py:fit: 30 -> 31",
        "algorithm/fitting.py:fit: 30 -> 29",
    ),
    "No type of numbers has seven bytes.": (
        "algorithm/target.py:check_held: x.dtype.itemsize < 8 -> x.dtype.itemsize < 7",
    ),
    "Only speed: both ways sort, and both ways gather.": (
        "algorithm/tuning.py:sort_positive: values.shape[0] > 32 -> values.shape[0] < 32",
        "algorithm/tuning.py:sort_positive: values.shape[0] > 32 -> values.shape[0] >= 32",
        "algorithm/tuning.py:sort_positive: values.shape[0] > 32 -> not values.shape[0] > 32",
        "algorithm/tuning.py:sort_positive: values.shape[0] > 32 -> values.shape[0] > 33",
        "algorithm/tuning.py:sort_positive: values.shape[0] > 32 -> values.shape[0] > 31",
        "algorithm/spread.py:: _FEW = 2 ** 14 -> _FEW = 2 * 2 ** 14",
        "algorithm/spread.py:Spread._gather: leaf.size * self.parts > _FEW -> "
        "leaf.size * self.parts >= _FEW",
        "algorithm/spread.py:Spread._gather: leaf.size * self.parts > _FEW -> "
        "leaf.size * self.parts < _FEW",
        "algorithm/spread.py:Spread._gather: leaf.size * self.parts > _FEW -> "
        "not leaf.size * self.parts > _FEW",
        "algorithm/move.py:: _SMALL = 4096 -> _SMALL = 8192",
        "algorithm/move.py:find_broken: row.shape[1] > _SMALL -> row.shape[1] >= _SMALL",
    ),
    "What removes a tree leaves a file alone, and ignores that it is one.": (
        "run/storage/checkpoint.py:delete_others: path.is_dir() and _OWN.fullmatch(path.name) and "
        "_is_own(path) -> _OWN.fullmatch(path.name) and _is_own(path)",
    ),
    "Four bytes are as wide as what is summed.": (
        "algorithm/spread.py:_sum_bits: leaf.dtype.itemsize < 4 -> leaf.dtype.itemsize <= 4",
        "algorithm/spread.py:_sum_bits: leaf.dtype.itemsize < 4 -> leaf.dtype.itemsize < 5",
    ),
    "Only speed: what is taken for nothing changes nothing.": (
        "algorithm/spread.py:Spread.of_any_chain: "
        "jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) > 0 -> "
        "jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) >= 0",
        "algorithm/spread.py:Spread.of_any_chain: "
        "jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) > 0 -> "
        "jax.lax.pmax(happened.astype(jnp.int32), _CHAINS_HERE) > -1",
        "algorithm/spread.py:gather_observed: step < tuning.until -> step <= tuning.until",
    ),
    "Only speed: how many steps or rows are computed at once.": (
        "run/chunk.py:: _AHEAD_BYTES = 2 ** 16 -> _AHEAD_BYTES = 2 * 2 ** 16",
        "run/chunk.py:: _BLOCK_STEPS = 1024 -> _BLOCK_STEPS = 2048",
        "run/chunk.py:: _SMALL_CHUNK_BYTES = 2 ** 22 -> _SMALL_CHUNK_BYTES = 2 * 2 ** 22",
        "run/chunk.py:: FIRST_STEPS = 64 -> FIRST_STEPS = 65",
        "run/chunk.py:: FIRST_STEPS = 64 -> FIRST_STEPS = 63",
        "run/chunk.py:_build_segments.chunk: size <= _AHEAD_BYTES -> size < _AHEAD_BYTES",
        "run/chunk.py:_build_segments.chunk: size *= spread.parts * spread.chain_parts -> pass",
        "run/bayesian.py:: _PIECE_ROWS = 4096 -> _PIECE_ROWS = 8192",
        "networks/evaluate.py:: _BATCH = 500 -> _BATCH = 1000",
        "networks/predictor.py:: _PIECE = 512 -> _PIECE = 1024",
        "networks/predictor.py:: _TOGETHER = 10 -> _TOGETHER = 11",
        "networks/predictor.py:: _TOGETHER = 10 -> _TOGETHER = 9",
        "run/storage/files.py:: _PIECE = 2 ** 20 -> _PIECE = 2 * 2 ** 20",
        "run/fingerprint.py:_digest_rows: _PIECE * len(rows) // max(rows.nbytes, 1) -> "
        "_PIECE * len(rows) * max(rows.nbytes, 1)",
        "run/storage/arrays.py:: _CHUNK_BYTES = 2 ** 20 -> _CHUNK_BYTES = 2 * 2 ** 20",
    ),
    "Where a program is so large that its text is not compared, it is compiled again.": (
        "run/compiled_once.py:: _MOST_NUMBERS = 2 ** 20 -> _MOST_NUMBERS = 2 * 2 ** 20",
        "run/compiled_once.py:: _LONGEST_TEXT = 2 ** 24 -> _LONGEST_TEXT = 2 * 2 ** 24",
    ),
    "The root lies within 1 + log n of the ratios, whatever the odds are: more reach is no harm.": (
        "results/evidence.py:_bennett: 1 + 2 * abs(shift) -> 1",
        "results/evidence.py:_bennett: 1 + 2 * abs(shift) -> 2 * abs(shift)",
        "results/evidence.py:_bennett: 1 + 2 * abs(shift) -> 2 + 2 * abs(shift)",
        "results/evidence.py:_bennett: 1 + 2 * abs(shift) -> 0 + 2 * abs(shift)",
        "results/evidence.py:_bennett: 2 * abs(shift) -> 2",
        "results/evidence.py:_bennett: 2 * abs(shift) -> abs(shift)",
        "results/evidence.py:_bennett: 2 * abs(shift) -> 3 * abs(shift)",
        "results/evidence.py:_bennett: 2 * abs(shift) -> 1 * abs(shift)",
        "results/evidence.py:_bennett: 1 + 2 * abs(shift) + np.log(len(cold) + len(hot)) -> "
        "np.log(len(cold) + len(hot))",
    ),
    "It ends long before, where its interval is small.": (
        "results/evidence.py:_bennett: brentq(balance, known.min() - reach, known.max() + reach, "
        "xtol=1e-09, maxiter=2000) -> brentq(balance, known.min() - reach, known.max() + reach, "
        "xtol=1e-09, maxiter=4000)",
        "results/evidence.py:_bennett: brentq(balance, known.min() - reach, known.max() + reach, "
        "xtol=1e-09, maxiter=2000) -> brentq(balance, known.max() + reach, known.min() - reach, "
        "xtol=1e-09, maxiter=2000)",
    ),
    "What the gradient leaves unexplained between two points is the same either way.": (
        "results/gradient_problems.py:_bisect.halve: gap(ends[0], middle) -> gap(middle, ends[0])",
        "results/gradient_problems.py:_bisect.halve: gap(middle, ends[1]) -> gap(ends[1], middle)",
        "results/gradient_problems.py:_bisect.follow: gap(one, other) -> gap(other, one)",
    ),
    "One task is waited for before the next one begins: a second thread has nothing to do.": (
        "run/saver.py:Saver.__init__: ThreadPoolExecutor(1, 'replicax') -> "
        "ThreadPoolExecutor(2, 'replicax')",
        "run/sources.py:SourceReader.read_ahead: ThreadPoolExecutor(1, 'replicax-source') -> "
        "ThreadPoolExecutor(2, 'replicax-source')",
    ),
    "In one process gathering gives the same array; tests of several processes are slow ones.": (
        "run/devices.py:_is_local: not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or "
        "leaf.is_fully_replicated -> not isinstance(leaf, jax.Array) or leaf.is_fully_replicated",
    ),
    "How long processes wait for each other before they give up.": (
        "run/processes.py:: _HEARTBEAT_SECONDS = 30 -> _HEARTBEAT_SECONDS = 31",
        "run/processes.py:: _HEARTBEAT_SECONDS = 30 -> _HEARTBEAT_SECONDS = 29",
        "run/storage/checkpoint.py:: _MEETING_SECONDS = 3600 -> _MEETING_SECONDS = 7200",
    ),
    "A replica is cold at the step of its draw, which is no hot step: there are fewer of them.": (
        "results/diagnostics.py:_visits: rung_of.shape[1] + 1 -> rung_of.shape[1] + 0",
        "results/diagnostics.py:_visits: rung_of.shape[1] + 1 -> rung_of.shape[1]",
    ),
}
EQUIVALENT = {f"replicax/{name}": reason for reason, names in _BY_REASON.items() for name in names}
