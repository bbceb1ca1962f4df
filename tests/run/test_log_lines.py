"""The lines of a log: when one is due, and what it says; the memory that a machine has."""

import os
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import replicax as rx
from replicax.run import devices, progress
from replicax.run.initial import check_memory
from replicax.run.progress import Display, epoch_line, format_bytes, format_seconds, status

HALF_YEAR = 4380 * 3600


def now(step: int, **known: Any) -> Any:
    about = {
        "step": step,
        "num_steps": 1000,
        "seconds_left": 61.0,
        "evaluation": {},
        "steps_per_second": 1234.4,
        "cold_energy": np.array([1.0, 2.0]),
        "round_trips": np.array([3, 4]),
        "verdict_rate": np.array([[0.25, 0.5], [0.125, 0.3]]),
    }
    return SimpleNamespace(**about | known)


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 1000.0
        monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: self.seconds))


EPOCH = {"accuracy": np.array([0.5, 0.2]), "nll": np.array([1.25, 2.0]), "weight": 0}


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_run_tells_where_it_begins_and_ends(capsys: Any) -> None:
    rates = rx.deo_star((0.01, 0.1))
    rx.sample(lambda x: x**2, 0.0, num_steps=9, num_replicas=2, method=rates, progress=True)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "step 0 of 9: compiling" and told[-1].startswith("step 9 of 9 | 0:00:")


@pytest.mark.parametrize(
    ("began", "pause", "told"),
    [
        (0, 4.9, False),
        (0, 5.0, True),
        (490.0, 5.0, True),  # five seconds are a hundredth of 500
        (1995.0, 19.0, False),
        (1980.0, 20.1, True),
        (HALF_YEAR, 5000.0, False),
    ],
)
def test_a_line_is_due_after_five_seconds_and_a_hundredth_of_the_run(
    began: float, pause: float, told: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock(monkeypatch)
    lines = Display()
    clock.seconds += began
    lines.last = clock.seconds
    clock.seconds += pause
    lines.run(now(50))
    assert bool(capsys.readouterr().err) == told
    lines.run(now(51))
    assert not (told and capsys.readouterr().err), "the next one is due later"


def test_the_last_step_and_an_evaluation_have_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    clock = Clock(monkeypatch)
    lines = Display()
    clock.seconds += 2
    lines.run(now(999))
    assert not capsys.readouterr().err
    monkeypatch.setattr(progress, "memory_in_use", lambda: 3 * 2**20)
    lines.run(now(1000))
    assert capsys.readouterr().err == (
        "step 1,000 of 1,000 | 0:00:02, 0:01:01 left | 3 MiB | 1,234 steps/s | cold energy 1.5 | "
        "round trips 7 | pair rates 0.12-0.50\n"
    )
    lines.run(now(5, evaluation=EPOCH))
    assert "| coldest 50.00 % 1.2500 | 1,234 steps/s" in capsys.readouterr().err


def test_an_epoch_tells_of_its_average_once_there_is_one() -> None:
    average = {"average_accuracy_probabilities": 0.625, "average_nll_probabilities": 0.75}
    told = epoch_line(now(5, evaluation=EPOCH | {"weight": 3.0} | average))
    assert told == "coldest 50.00 % 1.2500 | average of 3: 62.50 % 0.7500"
    regression = {"nll": np.array([0.5, 1.0]), "rmse": np.array([0.3125, 2.0]), "weight": 2.0}
    average = {"average_nll_probabilities": 0.25, "average_rmse_probabilities": 0.125}
    told = epoch_line(now(5, evaluation=regression | average))
    assert told == "coldest RMSE 0.3125 0.5000 | average of 2: RMSE 0.125 0.2500"
    assert epoch_line(now(5, evaluation={"weight": 0.0})) == "no test"
    assert epoch_line(now(5, evaluation={"weight": 3.0, "f1": 0.5})) == "no test | average of 3"
    alone = now(5, verdict_rate=np.zeros((2, 0)))
    assert status(alone).endswith("round trips 7")


def test_times_and_sizes_in_words() -> None:
    seconds = (0, 59.9, 60, 3599, 3600, 3725.4, 360_000)
    told = ["0:00:00", "0:00:59", "0:01:00", "0:59:59", "1:00:00", "1:02:05", "100:00:00"]
    assert [format_seconds(x) for x in seconds] == told
    assert format_seconds(float("inf")) == format_seconds(1e9) == format_seconds(1.5e9)
    sizes = (0, 1023, 1024, 2**20 - 2**10, 2**20, 1023 * 2**20, 2**30, 3.25 * 2**40)
    told = ["0 B", "1023 B", "1 KiB", "1023 KiB", "1 MiB", "1023 MiB", "1.0 GiB", "3328.0 GiB"]
    assert [format_bytes(x) for x in sizes] == told


def test_callbacks_stop_a_run_by_their_word() -> None:
    assert progress.reason_to_stop([None, "go", 3, ["stop"]]) is None
    assert progress.reason_to_stop([None, "stop"]) == "."
    assert progress.reason_to_stop(["stop: enough trips", "stop"]) == ": enough trips."
    assert progress.reason_to_stop(["stopped"]) is None


# Memory


def test_the_memory_of_a_machine_is_its_pages_unless_the_device_knows_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    known: dict[str, int] = {}
    device = SimpleNamespace(memory_stats=lambda: known)
    monkeypatch.setattr(jax, "local_devices", lambda: [device, device])
    assert devices.memory_bytes() == float(pages * size)
    device.memory_stats = lambda: None
    assert devices.memory_bytes() == float(pages * size)
    assert 2**20 < devices.memory_in_use() <= devices.memory_bytes()
    assert 2**20 < devices.peak_memory() <= devices.memory_bytes()
    assert devices.memory_in_use() <= 1.01 * devices.peak_memory()
    known |= {"bytes_limit": 70, "bytes_in_use": 3, "peak_bytes_in_use": 5}
    device.memory_stats = lambda: known
    assert (devices.memory_bytes(), devices.memory_in_use(), devices.peak_memory()) == (70.0, 6, 10)


def test_what_is_in_memory_already_needs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the 64 bytes of a rung; so do starts that are not known yet."""

    def unknown(key: Any) -> Any:
        raise KeyError

    starts = (rx.per_replica(np.zeros((5, 1000))), unknown, None, {})
    for present, fits in ((15 * 64, True), (15 * 64 - 1, False)):
        monkeypatch.setattr(devices, "memory_bytes", lambda present=present: float(present))
        for start in starts:
            if fits:
                check_memory(start, 3, 5)
                continue
            with pytest.raises(ValueError, match="num_replicas is 5 and num_chains 3"):
                check_memory(start, 3, 5)
    monkeypatch.setattr(devices, "memory_bytes", lambda: float(64 + 3 * 4 * 3))
    check_memory({"a": 1.0, "b": np.zeros(2)}, 1, 1)
    with pytest.raises(ValueError, match="Write fewer"):
        check_memory({"a": 1.0, "b": np.zeros(3)}, 1, 1)
