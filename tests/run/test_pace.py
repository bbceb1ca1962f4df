"""How long the next chunk is, by hand; how processes join, and what signals do to them."""

import contextlib
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from replicax.run import loop, processes
from replicax.run.batches import NoBatches
from replicax.run.chunk import Pace
from replicax.run.records import Records

MOST = 10**6
# Half a second, after the first chunk: its seconds are those of compilation.
COMPILED = Pace(64, MOST).after(64, 30.0)


def seconds_of(steps: int, per_step: float, fixed: float) -> float:
    return fixed + per_step * steps


def test_the_first_chunk_says_nothing_and_none_changes_nothing() -> None:
    assert COMPILED.length == 64 and COMPILED.before == (0, 0.0)
    assert COMPILED.after(0, 9.0) == COMPILED
    assert Pace(64, MOST).after(0, 9.0) == Pace(64, MOST)


@pytest.mark.parametrize(
    ("per_step", "fixed", "length"),
    [
        (0.001, 0.0, 500),  # half a second
        (0.001, 0.125, 500),  # four times what is fixed is half a second as well
        (0.001, 0.25, 1000),  # four times what is fixed
        (0.01, 0.0, 100),  # a quarter of what was before, at least
        (0.0001, 0.0, 1600),  # four times, at most
    ],
)
def test_a_chunk_takes_half_a_second_or_four_times_what_is_fixed(
    per_step: float, fixed: float, length: int
) -> None:
    """Two chunks of different lengths tell what is fixed."""
    pace = COMPILED.after(200, seconds_of(200, per_step, fixed))
    assert pace.before == (200, seconds_of(200, per_step, fixed))
    pace = pace.after(400, seconds_of(400, per_step, fixed))
    assert pace.length == pytest.approx(length, abs=1)


def test_a_first_measurement_takes_nothing_as_fixed() -> None:
    assert COMPILED.after(400, 0.4).length == 500
    assert COMPILED.after(400, 0.001).length == 1600
    assert COMPILED.after(400, 400.0).length == 100
    assert COMPILED.after(1, 30.0).length == 1
    again = COMPILED.after(400, 0.4).after(400, 0.2)
    assert again.length == 1000, "of equal chunks the last one tells"


def test_a_longer_chunk_that_was_quicker_costs_a_hundredth_a_step() -> None:
    """Its slope would be negative; what remains is fixed."""
    pace = COMPILED.after(200, 1.0).after(400, 0.4)
    assert pace.length == 1600, "four times 0.396 s at 10 us a step, cut to four times as long"
    assert COMPILED.after(400, 0.4).after(200, 0.5).length == 800


def test_a_chunk_has_at_most_its_capacity() -> None:
    small = Pace(64, 300).after(64, 1.0)
    assert small.after(200, 0.001).length == 300


# Processes


@pytest.fixture
def joined(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What JAX is told; two processes are there afterwards."""
    told: list[Any] = []

    def initialize(*where: Any, **how: Any) -> None:
        told.append((where, how))

    for name in (processes.COORDINATOR, processes.COUNT, processes.NUMBER):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(jax.distributed, "initialize", initialize)
    monkeypatch.setattr(jax.config, "update", lambda *option: told.append(option))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    return told


def tell_where(monkeypatch: pytest.MonkeyPatch) -> None:
    names = (processes.COORDINATOR, processes.COUNT, processes.NUMBER)
    for name, value in zip(names, ("here:1", "2", "1"), strict=True):
        monkeypatch.setenv(name, value)


def test_processes_join_where_they_are_told(
    joined: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_where(monkeypatch)
    assert processes.connect() is True
    assert joined == [
        ("jax_cpu_collectives_implementation", "gloo"),
        ("jax_enable_preemption_service", False),
        (("here:1", 2, 1), {"heartbeat_timeout_seconds": processes._HEARTBEAT_SECONDS}),
    ]
    joined.clear()
    monkeypatch.delenv(processes.COUNT)
    assert processes.connect() is False and not joined
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    assert processes.connect() is True and joined[-1][0] == (None, None, None)


def test_processes_join_once(joined: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax.distributed, "is_initialized", lambda: True)
    assert processes.connect() is True and not joined
    monkeypatch.setattr(jax, "process_count", lambda: 1)
    assert processes.connect() is False and not joined
    for number, first in ((0, True), (1, False)):
        monkeypatch.setattr(jax, "process_index", lambda number=number: number)
        assert processes.is_first() == first


@pytest.mark.parametrize(
    ("said", "kind"), [("must be called before any", ValueError), ("no answer", RuntimeError)]
)
def test_a_process_that_comes_too_late_is_told(
    said: str, kind: type, joined: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*where: Any, **how: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(jax.distributed, "initialize", late)
    tell_where(monkeypatch)
    with pytest.raises(kind, match="rx.connect" if kind is ValueError else said):
        processes.connect()


# Signals


def test_the_first_signal_is_noted_and_the_second_one_ends() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with processes.interruptible() as numbers:
        assert not processes.ends_process(numbers)
        signal.raise_signal(signal.SIGTERM)
        assert numbers == [signal.SIGTERM] and processes.ends_process(numbers)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not processes.ends_process([signal.SIGINT])
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_handler_of_the_user_stays_and_threads_have_none() -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    try:
        with processes.interruptible() as numbers:
            signal.raise_signal(signal.SIGUSR1)
            signal.raise_signal(signal.SIGUSR1)
        assert numbers == [] and heard == [signal.SIGUSR1] * 2
    finally:
        signal.signal(signal.SIGUSR1, before)
    found: list[Any] = []

    def elsewhere() -> None:
        with processes.interruptible() as numbers:
            found.append((numbers, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [([], signal.getsignal(signal.SIGINT))]


def test_a_signal_is_told_with_what_is_on_the_disk() -> None:
    saved = processes.sentence_of(signal.SIGTERM, 70, Path("a/run"))
    assert saved.startswith("The run was interrupted by SIGTERM at step 70; all is saved.")
    assert "replicax resume a/run" in saved and "rx.resume('a/run', target)" in saved
    lost = processes.sentence_of(signal.SIGINT, 70, None)
    assert lost.startswith("The run was interrupted at step 70; it has no run_dir")


@pytest.mark.parametrize(("first", "told"), [(True, True), (False, False)])
def test_the_first_process_tells_what_a_signal_did(
    first: bool, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """And every one of them ends, if the signal ends the process."""
    monkeypatch.setattr(loop, "is_first", lambda: first)
    for number in (None, signal.SIGINT, signal.SIGTERM):
        sent: list[int] = [] if number is None else [int(number)]
        monkeypatch.setattr(loop, "interruptible", lambda sent=sent: contextlib.nullcontext(sent))
        monkeypatch.setattr(loop, "Saver", lambda *rest: contextlib.nullcontext(Finished()))
        monkeypatch.setattr(loop, "_watching", lambda *rest: contextlib.nullcontext([]))
        monkeypatch.setattr(loop, "_loop", lambda *rest: SimpleNamespace(sentence="It stopped."))
        program: Any = SimpleNamespace(batches=NoBatches())
        ends = number == signal.SIGTERM
        with pytest.raises(SystemExit) if ends else contextlib.nullcontext() as ended:
            loop.run(program, None, Records(), None, None)  # type: ignore[arg-type]
        assert not ends or ended.value.code == 128 + signal.SIGTERM
        assert ("It stopped." in capsys.readouterr().err) == (told and number is not None)


class Finished:
    def finish(self, result: Any) -> None:
        assert result.sentence == "It stopped."
