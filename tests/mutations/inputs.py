"""Mutations of the guards against bad input."""

from mutations import mutations_of

_TABLE = "bad_inputs/test_table.py::test_bad_input_gets_a_sentence"

MUTATIONS = [
    *mutations_of(
        "run/options.py",
        (
            "if options.burn_in >= num_steps:",
            "if options.burn_in > num_steps:",
            f"{_TABLE}[sample: burn_in of the whole run]",
        ),
        (
            "_SEEDS = -(2**31), 2**32 - 1",
            "_SEEDS = -(2**63), 2**63 - 1",
            f"{_TABLE}[sample: seed that another seed equals]",
        ),
    ),
    *mutations_of(
        "run/settings.py",
        (
            "if window > options.num_steps:",
            "if window > 2 * options.num_steps:",
            f"{_TABLE}[sample: a window longer than the run]",
        ),
    ),
    *mutations_of(
        "algorithm/ladder.py",
        (
            "if np.any(np.diff(warm) < 0) and",
            "if np.any(np.diff(warm) > 0) and",
            f"{_TABLE}[sample: temperatures decrease]",
        ),
    ),
    *mutations_of(
        "algorithm/kernels.py",
        (
            "if abs(rate - 1) > 1e-6:",
            "if abs(rate - 1) > 1e6:",
            f"{_TABLE}[from_optax: a rate of its own]",
        ),
    ),
    *mutations_of(
        "algorithm/target.py",
        (
            "if batch is None and takes_batch(target):",
            "if batch is None and False:",
            f"{_TABLE}[batches: none for an energy that needs them]",
        ),
    ),
    *mutations_of(
        "networks/classification.py",
        (
            "dataset = dataset.check()",
            "dataset = dataset",
            f"{_TABLE}[classification: labels float]",
        ),
    ),
    *mutations_of(
        "data/archive.py",
        (
            "if kind is not _Array or shape != (0,):",
            "if kind is not _Array:",
            "bad_inputs/test_fuzz.py::test_a_pickle_cannot_ask_for_a_huge_array",
        ),
    ),
]
