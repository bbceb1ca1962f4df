"""Mutations of replicas that are spread over devices."""

from mutations import mutations_of

_FOUR = "run/test_devices.py::test_four_devices_give_the_numbers_of_one"
_LARGEST = "run/test_devices.py::test_the_largest_even_mesh_is_chosen"
_REFUSED = "run/test_devices.py::test_devices_that_cannot_be_used_are_refused"
_ROWS = "run/test_data_parallel.py::test_shared_rows_give_the_numbers_of_one_device_to_rounding"
_SHARED_OUT = "run/test_data_parallel.py::test_devices_are_shared_out"
_NOT_SHARED = "run/test_data_parallel.py::test_batches_that_cannot_be_shared_are_refused"
_WRONG_NUMBER = "run/test_data_parallel.py::test_a_number_that_cannot_be_is_refused"
_CROSSING = "run/test_devices.py::test_only_energies_cross_in_a_step[network]"

DEVICE_PARTS = mutations_of(
    "algorithm/device_parts.py",
    ("is_first = jax.lax.axis_index(REPLICA) == 0", "is_first = True", _FOUR),
    ("return jnp.where(is_here, values, jnp.zeros_like(values))", "return values", _FOUR),
    ("jax.lax.axis_index(axis) * length, length)", "0 * length, length)", _FOUR),
)

SPREAD = mutations_of(
    "algorithm/spread.py",
    ("part = PartitionSpec(DATA)", "part = PartitionSpec()", f"{_ROWS}[normalised-rows]"),
)

MESH = mutations_of(
    "run/mesh.py",
    ("and num_chains % chain_parts == 0", "", _LARGEST),
    ("(sizes[0] * sizes[1], sizes[0]))", "(sizes[0] * sizes[1], sizes[1]))", _LARGEST),
    ("if count % len(processes):", "if False:", _REFUSED),
    ("if devices > len(available):", "if False:", _REFUSED),
    ("num_replicas, wanted // data_parallel)", "num_replicas, wanted)", _SHARED_OUT),
    ("if wanted % data_parallel:", "if False:", _WRONG_NUMBER),
    ("if size % parts and not batches.is_whole:", "if False:", _NOT_SHARED),
    ("if all(size % parts for size in sizes):", "if False:", _NOT_SHARED),
)

SPREAD_LOOP = mutations_of(
    "run/compiled_loop.py",
    (
        "point = spread.rows(kept, drawn)",
        "point = spread.join(spread.rows(kept, drawn))",
        _CROSSING,
    ),
)

MUTATIONS = [
    *DEVICE_PARTS,
    *SPREAD,
    *MESH,
    *SPREAD_LOOP,
]
