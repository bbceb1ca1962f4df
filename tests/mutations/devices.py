"""Mutations of replicas that are spread over devices."""

from mutations import mutations_of

_FOUR = "run/test_devices.py::test_four_devices_give_the_numbers_of_one"
_LARGEST = "run/test_devices.py::test_the_largest_even_mesh_is_chosen"
_REFUSED = "run/test_devices.py::test_devices_that_cannot_be_used_are_refused"
_CROSSING = "run/test_devices.py::test_only_energies_cross_in_a_step[network]"

SPREAD = mutations_of(
    "algorithm/spread.py",
    ("return jnp.where(is_here, values, jnp.zeros_like(values))", "return values", _FOUR),
    ("is_first = jax.lax.axis_index(REPLICA) == 0", "is_first = True", _FOUR),
    ("jax.lax.axis_index(axis) * length, length)", "0 * length, length)", _FOUR),
)

DEVICES = mutations_of(
    "run/devices.py",
    ("and num_chains % chain_parts == 0", "", _LARGEST),
    ("(sizes[0] * sizes[1], sizes[0]))", "(sizes[0] * sizes[1], sizes[1]))", _LARGEST),
    ("if count % len(processes):", "if False:", _REFUSED),
    ("if devices > len(available):", "if False:", _REFUSED),
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
    *SPREAD,
    *DEVICES,
    *SPREAD_LOOP,
]
