"""The rows of a chunk: what goes where, and what is read back."""

from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np

from replicax.run import rows as layout
from replicax.run.rows import Rows


def empty(num_draws: int = 3) -> Rows:
    """Of two chains, three replicas and one rung that is drawn."""
    return Rows(
        count=jnp.array(0),
        rung_of=jnp.zeros((4, 2, 3), jnp.int8),
        draws={"x": jnp.zeros((num_draws, 2, 1, 2))},
        energies=jnp.zeros((num_draws, 2, 1)),
        rung_energies=jnp.zeros((num_draws, 2, 3)),
        history={},
    )


RUNG_OF = jnp.array([[2, 0, 1], [0, 1, 2]])
POINT = {"x": jnp.array([[[1.0, 2.0]], [[3.0, 4.0]]])}
ENERGY, BY_RUNG = jnp.array([[5.0], [6.0]]), jnp.array([[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]])


def test_a_step_is_written_to_its_place_and_its_draw_to_its_slot() -> None:
    found = layout.put_step(empty(), RUNG_OF, (POINT, ENERGY, BY_RUNG), jnp.array(2), jnp.array(1))
    np.testing.assert_array_equal(found.rung_of[2], RUNG_OF)
    np.testing.assert_array_equal(found.draws["x"][1], POINT["x"])
    np.testing.assert_array_equal(found.energies[1], ENERGY)
    np.testing.assert_array_equal(found.rung_energies[1], BY_RUNG)
    for part, row in ((found.rung_of, 2), (found.draws["x"], 1), (found.rung_energies, 1)):
        assert not np.delete(part, row, axis=0).any(), "nothing else is written"
    without = empty()._replace(rung_energies=None)
    found = layout.put_step(without, RUNG_OF, (POINT, ENERGY, BY_RUNG), jnp.array(0), jnp.array(0))
    assert found.rung_energies is None


def test_records_are_the_rows_of_the_steps_that_were_done() -> None:
    """Steps 6 to 8 of which 7 leaves a draw, and a point of history after every fourth step."""
    is_drawn = lambda steps: steps % 7 == 0  # noqa: E731
    program: Any = SimpleNamespace(is_drawn=is_drawn, history_every=4, thin=1)
    made = empty()._replace(history={"buffer": jnp.array([0.5, 0.0])})
    made = layout.put_step(made, RUNG_OF, (POINT, ENERGY, BY_RUNG), jnp.array(1), jnp.array(0))
    found = layout.to_records(program, made, step=6, done=3)
    assert found["steps"]["rung_of"].shape == (3, 2, 3)
    np.testing.assert_array_equal(found["steps"]["rung_of"][1], RUNG_OF)
    np.testing.assert_array_equal(found["draws"]["energy"], ENERGY[None])
    np.testing.assert_array_equal(found["draws"]["rung_energy"], BY_RUNG[None])
    np.testing.assert_array_equal(found["draws"]["params.x"], POINT["x"][None])
    np.testing.assert_array_equal(found["history"]["buffer"], [0.5])


def test_steps_without_a_draw_share_the_row_that_is_never_read() -> None:
    program: Any = SimpleNamespace(is_drawn=lambda steps: steps % 2 == 1, thin=2)
    assert layout.draw_slots(program, step=3, count=4, capacity=6).tolist() == [0, 4, 1, 4, 4, 4]
