"""The rows of a chunk: what goes where, what is read back, and how many steps have room."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from common import quietly

import replicax as rx
from replicax.run import chunk as layout
from replicax.run.chunk import Chunks, Pace, Rows, chunk_capacity
from replicax.run.program import Program


def empty(num_draws: int = 3) -> Rows:
    """Of two chains, three replicas and one rung that is drawn."""
    return Rows(
        count=jnp.array(0),
        rung_of=jnp.zeros((4, 2, 3), jnp.int8),
        draws={"x": jnp.zeros((num_draws, 2, 1, 2))},
        energies=jnp.zeros((num_draws, 2, 1)),
        rung_energies=jnp.zeros((num_draws, 2, 3)),
        weights=jnp.zeros((num_draws, 2, 2)),
        before=jnp.zeros((num_draws, 2, 2)),
        history={},
    )


RUNG_OF = jnp.array([[2, 0, 1], [0, 1, 2]])
POINT = {"x": jnp.array([[[1.0, 2.0]], [[3.0, 4.0]]])}
ENERGY, BY_RUNG = jnp.array([[5.0], [6.0]]), jnp.array([[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]])
WEIGHTS = jnp.array([[-1.0, -2.0], [-3.0, -jnp.inf]])
BEFORE = jnp.array([[5.0, 6.0], [7.0, 8.0]])
DRAW = POINT, ENERGY, BY_RUNG, WEIGHTS, BEFORE


def test_a_step_is_written_to_its_place_and_its_draw_to_its_slot() -> None:
    found = layout.put_step(empty(), RUNG_OF, DRAW, jnp.array(2), jnp.array(1))
    np.testing.assert_array_equal(found.rung_of[2], RUNG_OF)
    np.testing.assert_array_equal(found.draws["x"][1], POINT["x"])
    np.testing.assert_array_equal(found.energies[1], ENERGY)
    np.testing.assert_array_equal(found.rung_energies[1], BY_RUNG)
    np.testing.assert_array_equal(found.weights[1], WEIGHTS)
    parts = found.draws["x"], found.rung_energies, found.weights
    for part, row in ((found.rung_of, 2), *((part, 1) for part in parts)):
        assert not np.delete(part, row, axis=0).any(), "nothing else is written"
    without = empty()._replace(rung_energies=None, weights=None, before=None)
    found = layout.put_step(without, RUNG_OF, (*DRAW[:3], None, None), jnp.array(0), jnp.array(0))
    assert found.rung_energies is None and found.weights is None


def test_records_are_the_rows_of_the_steps_that_were_done() -> None:
    """Steps 6 to 8 of which 7 leaves a draw, and a point of history after every fourth step."""
    is_drawn = lambda steps: steps % 7 == 0  # noqa: E731
    program: Any = SimpleNamespace(is_drawn=is_drawn, history_every=4, thin=1, draws_per_step=1)
    made = empty()._replace(history={"buffer": jnp.array([0.5, 0.0])})
    made = layout.put_step(made, RUNG_OF, DRAW, jnp.array(1), jnp.array(0))
    found = layout.to_records(program, made, step=6, done=3)
    assert found["steps"]["rung_of"].shape == (3, 2, 3)
    np.testing.assert_array_equal(found["steps"]["rung_of"][1], RUNG_OF)
    np.testing.assert_array_equal(found["draws"]["energy"], ENERGY[None])
    np.testing.assert_array_equal(found["draws"]["rung_energy"], BY_RUNG[None])
    np.testing.assert_array_equal(found["draws"]["jump_weight"], WEIGHTS[None])
    np.testing.assert_array_equal(found["draws"]["params.x"], POINT["x"][None])
    np.testing.assert_array_equal(found["history"]["buffer"], [0.5])


def test_steps_without_a_draw_share_the_row_that_is_never_read() -> None:
    program: Any = SimpleNamespace(is_drawn=lambda steps: steps % 2 == 1, thin=2, draws_per_step=1)
    assert layout.draw_slots(program, step=3, count=4, capacity=6).tolist() == [0, 4, 1, 4, 4, 4]


BYTES, FEW_BYTES, MOST = 2**26, 2**22, 2**16


def capacity(**changes: Any) -> int:
    """Of two chains of four replicas with 1,000 parameters each, or with changes."""
    known = {"keep_draws": True, "draw_rungs": (0,), "thin": 1, "mesh": None, "draws_per_step": 1}
    batch_bytes, size = changes.pop("batch_bytes", 0), changes.pop("size", 1000)
    program: Any = SimpleNamespace(**known | changes)
    program.batches = SimpleNamespace(bytes_per_step=lambda step: batch_bytes)
    state = SimpleNamespace(
        rung_of=jnp.zeros((2, 4), int), points=jnp.zeros((2, 4, size)), step=jnp.array(0)
    )
    carry: Any = SimpleNamespace(state=state)
    return chunk_capacity(program, carry)


@pytest.mark.parametrize(
    ("changes", "bytes_per_step"),
    [
        ({}, 8 + 2 * 4000),
        ({"draw_rungs": (0, 1, 3)}, 8 + 3 * 2 * 4000),
        ({"draws_per_step": 4}, 8 + 4 * 2 * 4000),
        ({"thin": 7}, 8 + 1143),  # 8,000 bytes every seventh step, rounded up
        ({"batch_bytes": 5000}, 8 + 2 * 4000 + 5000),
    ],
)
def test_a_chunk_has_room_for_its_draws_paths_and_batches(changes, bytes_per_step) -> None:
    most = FEW_BYTES if "draws_per_step" in changes else BYTES
    assert capacity(**changes) == most // bytes_per_step


def test_a_chunk_has_at_least_one_step_and_a_greatest_number() -> None:
    assert capacity(keep_draws=False) == MOST
    assert capacity(batch_bytes=2**30) == 1
    assert capacity(mesh="two devices") == 2**22 // 8008


def carry_of(buffer: float) -> Any:
    """The state and counters of two chains after a step, as far as rows hold them."""
    state = SimpleNamespace(
        rung_of=RUNG_OF,
        points={"x": jnp.zeros((2, 3, 5))},
        ladder=SimpleNamespace(learning_rate=jnp.ones((2, 3)), temperature=jnp.full((2, 3), 2.0)),
        buffer=jnp.full(2, buffer),
        mixture=(),
    )
    counters = SimpleNamespace(pairs=jnp.full((2, 3, 2), 7), energy=jnp.full((2, 3), 3.0))
    return Both(state, counters)


class Both(NamedTuple):
    state: Any
    counters: Any


@pytest.mark.parametrize("start", [0, 2, 4, 9])
def test_history_has_a_point_after_every_so_many_steps_wherever_a_chunk_begins(start: int) -> None:
    program: Any = SimpleNamespace(
        history_every=4,
        thin=1,
        draw_rungs=(0,),
        keep_draws=True,
        keeps_rung_energies=True,
        draws_per_step=1,
    )
    rows = layout.empty(program, carry_of(0.0), capacity=10)
    for step in range(start + 1, start + 11):
        rows = layout.put_history(
            program, rows, carry_of(float(step)), jnp.array(start), jnp.array(step), 10
        )
    due = [step for step in range(start + 1, start + 11) if step % 4 == 0]
    np.testing.assert_array_equal(rows.history["buffer"][: len(due), 0], due)
    assert rows.history["learning_rate"].shape == (10 // 4 + 2, 2, 3)
    assert not np.asarray(rows.history["buffer"])[len(due) : -1].any(), "but the last, never read"
    np.testing.assert_array_equal(rows.history["temperature"][0], np.full((2, 3), 2.0))
    np.testing.assert_array_equal(rows.history["energy"][0], np.full((2, 3), 3.0))
    np.testing.assert_array_equal(rows.history["pairs"][0], np.full((2, 3, 2), 7))


def test_rows_have_room_for_all_and_one_that_is_never_read() -> None:
    program: Any = SimpleNamespace(
        history_every=3,
        thin=2,
        draw_rungs=(0, 2),
        keep_draws=True,
        keeps_rung_energies=True,
        draws_per_step=1,
    )
    made = layout.empty(program, carry_of(0.0), capacity=7)
    assert int(made.count) == 0 and made.rung_of.dtype == jnp.int8
    assert made.rung_of.shape == (7, 2, 3)
    assert made.draws["x"].shape == (7 // 2 + 2, 2, 2, 5)
    assert made.energies.shape == (7 // 2 + 2, 2, 2) and made.rung_energies.shape == (5, 2, 3)
    assert made.history["buffer"].shape == (7 // 3 + 2, 2)
    program.keep_draws = program.keeps_rung_energies = False
    without = layout.empty(program, carry_of(0.0), capacity=7)
    assert without.draws is None and without.rung_energies is None and without.weights is None
    for count, small in ((128, jnp.int8), (129, jnp.int16)):
        many = carry_of(0.0)
        many.state.rung_of = jnp.zeros((2, count), int)
        assert layout.empty(program, many, capacity=1).rung_of.dtype == small
    one = carry_of(0.0)
    one.state.rung_of, one.state.points = RUNG_OF[0], {"x": jnp.zeros((3, 5))}
    assert layout.empty(program, one, capacity=7).energies.shape == (5, 2), "without chains"


class Told:
    """Batches that note what they are asked for."""

    def __init__(self) -> None:
        self.fed: list[tuple[int, int, int]] = []
        self.ahead: list[tuple[int, int]] = []

    def feed(self, start: int, count: int, capacity: int) -> tuple[int, Any]:
        self.fed.append((start, count, capacity))
        return count, "data"

    def read_ahead(self, start: int, count: int) -> None:
        self.ahead.append((start, count))


def chunks(evaluate_every: int | None, done: int = 4, step: int = 0) -> Any:
    """Chunks of four steps of a run of ten, compiled to nothing: each does `done` steps."""
    made = Chunks.__new__(Chunks)
    made.program = SimpleNamespace(  # type: ignore[assignment]
        num_steps=10, batches=Told(), evaluate_every=evaluate_every, thin=1, history_every=100,
        is_drawn=lambda steps: steps % 5 == 4, round_ends=(), draws_per_step=1,
        next_stop=lambda step: Program.next_stop(made.program, step),
    )  # fmt: skip
    made.step, made.capacity, made._pace = step, 4, Pace(4, 4)
    made.compute = lambda carry, data, count, slots: (  # type: ignore[assignment]
        (carry, data, slots.tolist()), empty(6)._replace(count=min(done, count))
    )  # fmt: skip
    return made


@pytest.mark.parametrize(
    ("every", "counts"), [(None, [4, 4, 2]), (3, [3, 3, 3, 1]), (5, [4, 1, 4, 1]), (10, [4, 4, 2])]
)
def test_chunks_end_at_evaluations_and_with_the_run(every: int | None, counts: list[int]) -> None:
    made, seen = chunks(every), []
    while made.step < 10:
        count, data = made.feed()
        made.advance("carry", count, data)
        seen.append(count)
    told = made.program.batches
    starts = [sum(counts[:i]) for i in range(len(counts))]
    assert seen == counts and told.fed == [(start, n, 4) for start, n in zip(starts, counts)]
    ahead = [(start + n, min(n, 10 - start - n)) for start, n in zip(starts, counts)]
    assert told.ahead == ahead, "no more than there are steps"


def test_a_chunk_tells_the_steps_that_it_did_and_their_rate(monkeypatch: Any) -> None:
    clock = iter([1.0, 3.0])
    monkeypatch.setattr(layout, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    made = chunks(None, done=3, step=2)
    (carry, data, slots), added, rate = made.advance("carry", 4, "data")
    assert (carry, data, made.step, rate) == ("carry", "data", 5, 1.5)
    assert slots == [5, 5, 0, 5] and made._pace.before == (0, 0.0)
    assert added["steps"]["rung_of"].shape[0] == 3 and added["draws"]["energy"].shape[0] == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_randomness_is_the_same_drawn_ahead_or_in_the_loop(monkeypatch: Any) -> None:
    """Ahead where it is small, many steps at once; a large model draws in each step."""
    options = {"num_steps": 9, "num_replicas": 2, "learning_rate": (0.01, 0.1), "seed": 3}
    ahead = quietly(rx.targets.gaussian(), jnp.zeros(2), **options)
    monkeypatch.setattr(layout, "_AHEAD_BYTES", 0)
    inside = quietly(rx.targets.gaussian(), jnp.zeros(2), **options)
    np.testing.assert_allclose(ahead.draws, inside.draws, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ahead.rung_of, inside.rung_of)
    assert np.std(ahead.draws) > 0


@pytest.mark.parametrize(("step", "stop"), [(0, 3), (3, 8), (8, 10), (10, 12), (19, 20)])
def test_the_host_sees_a_run_where_rounds_end(step, stop) -> None:
    program: Any = SimpleNamespace(num_steps=20, evaluate_every=None, round_ends=(3, 8, 10, 12))
    assert Program.next_stop(program, step) == stop
