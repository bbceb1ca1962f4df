"""When a run is saved, and what is saved: checkpoints by clock and by size, the best point."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import jax.numpy as jnp
import numpy as np
import pytest
from common import quietly

import replicax as rx
from replicax.run import saver
from replicax.run.records import Between, Records
from replicax.run.saver import Saver
from replicax.run.start import records_from
from replicax.run.storage import checkpoint
from replicax.run.storage.folder import FolderRecords, read_commit, steps_of


class Clock:
    """A clock that the test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(saver, "time", made)
    return made


def folder_records(pending_bytes: int = 0) -> SimpleNamespace:
    return SimpleNamespace(folder="somewhere", pending_bytes=pending_bytes, final={})


def made_saver(records: Any, every: int | str | None = None) -> Saver:
    options = SimpleNamespace(checkpoint_every=every, keep_checkpoints=2)
    return Saver(records, cast(Any, SimpleNamespace(run=options)), Between())


def test_a_checkpoint_is_due_every_thirty_seconds(clock: Clock) -> None:
    made = made_saver(folder_records())
    clock.now += 29.9
    assert not made.is_due(10_000)
    clock.now += 0.2
    assert made.is_due(51)


@pytest.mark.parametrize(("every", "seconds"), [("5s", 5), ("0.5m", 30), ("2h", 7200)])
def test_a_checkpoint_may_be_due_by_another_time(clock: Clock, every: str, seconds: int) -> None:
    made = made_saver(folder_records(), every)
    clock.now += seconds - 0.1
    assert not made.is_due(10_000)
    clock.now += 0.2
    assert made.is_due(1)


def test_a_checkpoint_may_be_due_by_steps_instead(clock: Clock) -> None:
    made = made_saver(folder_records(), every=100)
    made.step = 50
    clock.now += 1e6
    assert not made.is_due(149) and made.is_due(150) and made.is_due(151)


@pytest.mark.parametrize("every", [None, 100])
def test_a_quarter_of_a_gigabyte_is_not_kept_waiting(clock: Clock, every: int | None) -> None:
    for pending, due in ((2**28, False), (2**28 + 1, True)):
        made = made_saver(folder_records(pending), every=every)
        made.step = 0
        assert made.is_due(1) is due


def test_records_in_memory_are_never_due(clock: Clock) -> None:
    made = made_saver(Records(), every=1)
    clock.now += 1e6
    assert not made.is_due(10)


def test_pending_rows_are_counted_in_bytes() -> None:
    records = Records()
    records.append("steps", {"rung_of": np.zeros((5, 2, 3), np.int8)})
    records.append("draws", {"energy": np.zeros((2, 4), np.float32), "x": np.zeros((2, 1))})
    records.append("draws", {"energy": np.zeros((0, 4), np.float32)})
    assert records.pending_bytes == 30 + 32 + 16


class Writes(FolderRecords):
    """Records that note what would be written."""

    def __init__(self) -> None:
        super().__init__(Path("somewhere"))
        self.steps: list[int] = []

    def write(self, step: int, *rest: Any) -> None:
        self.steps.append(step)


def test_a_state_is_written_once(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """At the end of a run the last state may have been written already."""
    monkeypatch.setattr(saver, "final_values", lambda program, carry: {})
    monkeypatch.setattr(checkpoint, "by_path", lambda tree: {})
    records = Writes()
    with made_saver(records) as made:
        for step in (0, 5, 5, 7):
            clock.now += 31
            assert made.is_due(step)
            state = SimpleNamespace(step=np.array(step))
            made.save(cast(Any, SimpleNamespace(state=state)))
        assert not made.is_due(8), "the clock starts anew"
    assert records.steps == [0, 5, 7]


def rugged(x):
    return jnp.sum((x**2 - 1.0) ** 2) + 0.3 * jnp.sum(x)


@pytest.fixture(scope="module")
def tracked() -> rx.Posterior:
    return quietly(
        rugged, jnp.array([1.0, 1.0]), num_steps=120, num_replicas=3, num_chains=2, seed=4,
        schedule="exactly_one", learning_rate=(0.01, 0.1), temperature=(0.1, 1.0),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_best_point_survives_saving(tracked: rx.Posterior, tmp_path) -> None:
    again = rx.load(tracked.save(tmp_path / "saved"))
    for one, other in zip(tracked.best_by_chain, again.best_by_chain):
        np.testing.assert_array_equal(one, other)
    points, energies = again.best_by_chain
    assert points.shape == (2, 2)
    for point, energy in zip(points, energies):
        assert energy == pytest.approx(float(rugged(point)), rel=1e-5)
    assert energies.max() < tracked.energies.min(axis=1).max() + 1e-6
    point, energy = again.best
    np.testing.assert_array_equal(point, points[np.argmin(energies)])
    assert energy == energies.min()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("keep", [1, 3])
def test_the_newest_checkpoints_are_kept(tmp_path, keep: int) -> None:
    quietly(
        rugged, jnp.zeros(2), num_steps=50, num_replicas=2, learning_rate=(0.01, 0.1),
        run_dir=tmp_path, chunk_steps=10, checkpoint_every=10, keep_checkpoints=keep,
    )  # fmt: skip
    newest = [10, 20, 30, 40, 50][-keep:]
    assert sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == newest
    assert sorted(steps_of(tmp_path)) == newest
    for step in newest:
        checkpoint.check(tmp_path, step, read_commit(tmp_path, step).checkpoint)


@pytest.mark.parametrize("like", [np.empty(3), np.empty(2, np.float32)])
def test_a_checkpoint_of_other_shapes_is_refused(tmp_path, like) -> None:
    checkpoint.save(tmp_path, 0, checkpoint.by_path({"a": np.ones(2)}))
    with pytest.raises(ValueError, match="does not fit"):
        checkpoint.restore(tmp_path, 0, {"a": like})


def test_batches_go_forward_when_a_run_is_rewound() -> None:
    skipped: list[Any] = []
    batches = SimpleNamespace(skip_to=lambda *place: skipped.append(place))
    program: Any = SimpleNamespace(batches=batches)
    records: Any = SimpleNamespace(
        rewind=lambda: skipped.append("rows"),
        commit=SimpleNamespace(step=40),
        final={"source": np.frombuffer(b"state", np.uint8)},
    )
    assert records_from(records, program) is records
    assert skipped == [(40, b"state"), "rows"]
