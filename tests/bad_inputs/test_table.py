"""Every bad input gets a short sentence that names the argument, in bounded time; or it is meant.

Nothing may be compiled first: the loop of a run is replaced by one that says that it was reached.
"""

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bad_inputs import (
    Meant,
    Refused,
    command_line,
    data,
    parts,
    regression,
    results,
    sample_options,
    sample_targets,
    training,
)
from replicax.run import chunk

ROOMS = (
    sample_options,
    sample_targets,
    training,
    regression,
    parts,
    results,
    data,
    command_line,
)
ROWS = {row.name: row for room in ROOMS for row in room.ROWS}
SECONDS = 20  # of this process: a busy machine does not make it longer
PATIENCE = 10  # times as long, by the clock
JARGON = re.compile(
    r"Traced<|Tracer|tracer|Concretization|jaxpr|jit\(|vmap|pmap|XlaRuntime|XLA|pytree|PyTree|aval|"
    r"ShapedArray|ShapeDtypeStruct|dtype\[|treedef|NoneType|unhashable|unsupported operand|"
    r"truth value|has no attribute|object is not|positional argument|not subscriptable|"
    r"must be real number|could not (be )?convert|inhomogeneous|<class|Traceback|__array"
)


class LoopReached(AssertionError):
    """The input was taken as good."""


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No row may take long, none may run the loop of a run, and none may write here."""

    def no_chunk(*args: Any) -> None:
        raise LoopReached("the loop of the run was about to start")

    def ring(*args: Any) -> None:
        raise LoopReached(f"no answer within {PATIENCE * SECONDS} s")

    monkeypatch.setattr(chunk, "build_chunk", lambda *args: no_chunk)
    monkeypatch.chdir(tmp_path)
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE * SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_there_are_at_least_400_rows_and_no_two_have_one_name() -> None:
    names = [row.name for room in ROOMS for row in room.ROWS]
    assert not [name for name in ROWS if names.count(name) > 1] and len(ROWS) >= 400


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if isinstance(row, Refused)])
def test_bad_input_gets_a_sentence(name: str) -> None:
    row, began = ROWS[name], time.process_time()
    assert isinstance(row, Refused)
    with pytest.raises((ValueError, TypeError)) as caught:
        row.call()
    message = str(caught.value)
    assert time.process_time() - began < SECONDS
    for word in row.words:
        assert word.lower() in message.lower(), f"{word!r} is not in: {message}"
    assert not JARGON.search(message), message
    assert 20 < len(message) < 400 and "\n" not in message, message
    ends = message.endswith((".", "?", "`", ".)")) or "unexpected keyword" in message
    assert ends, message


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if isinstance(row, Meant)])
def test_odd_input_has_a_meaning(name: str) -> None:
    row = ROWS[name]
    assert isinstance(row, Meant)
    value = row.call()
    assert row.holds(value), f"{row.meaning}: not so, {value!r}"
