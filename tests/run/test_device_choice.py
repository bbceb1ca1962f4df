"""Which devices share a run: numbers alone, on devices that are made up."""

import warnings
from typing import NamedTuple

import jax
import numpy as np
import pytest

from replicax.run import devices
from replicax.run.devices import chosen_sizes, first_devices


class Device(NamedTuple):
    number: int
    process_index: int = 0
    platform: str = "gpu"


def machine(patch: pytest.MonkeyPatch, count: int, processes: int = 1, platform: str = "gpu"):
    made = [Device(i, i * processes // count, platform) for i in range(count)]
    patch.setattr(jax, "devices", lambda: made)
    patch.setattr(jax, "process_count", lambda: processes)
    return made


@pytest.mark.parametrize(
    ("platform", "processes", "count"), [("cpu", 1, 1), ("cpu", 2, 8), ("gpu", 1, 8), ("gpu", 2, 8)]
)
def test_accelerators_and_several_processes_share_a_run_without_being_asked(
    platform: str, processes: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, 8, processes, platform)
    assert chosen_sizes(1, 8, None) == (1, count)
    assert chosen_sizes(1, 8, "all") == chosen_sizes(1, 8, 8) == (1, 8)
    assert chosen_sizes(1, 8, np.int64(4)) == (1, 4) and chosen_sizes(1, 8, 1) == (1, 1)
    for wrong in (0, 9, True, 2.0, "most"):
        with pytest.raises(ValueError, match="devices is"):
            chosen_sizes(1, 8, wrong)


def test_devices_that_stay_idle_are_told_where_there_was_something_to_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen_sizes(1, 1, None) == (1, 1)
        assert chosen_sizes(2, 4, None) == (2, 4)
    with pytest.warns(
        UserWarning, match=r"Only 2 of 8 devices can share 2 replicas of 1 chains evenly"
    ):
        assert chosen_sizes(1, 2, None) == (1, 2)
    with pytest.warns(UserWarning, match="Only 2 of 8 devices can share 1 replicas of 2 chains"):
        assert chosen_sizes(2, 1, None) == (2, 1)
    with pytest.warns(UserWarning, match="Only 6 of 8 devices .* a multiple of the devices"):
        assert chosen_sizes(1, 6, "all") == (1, 6)
    with pytest.raises(ValueError, match="devices is 8, but only 1 of 8"):
        chosen_sizes(1, 1, 8)
    with pytest.raises(ValueError, match="devices is 8, but only 6 of 8"):
        chosen_sizes(1, 6, 8)


def test_every_process_gives_its_first_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    some = machine(monkeypatch, 8, processes=2)
    assert first_devices(some, 4) == [*some[:2], *some[4:6]]
    assert first_devices(some, 8) == some
    assert first_devices(some[:4], 3) == some[:3]
    with pytest.raises(ValueError, match="2 processes cannot share 3 devices evenly"):
        first_devices(some, 3)
    with pytest.raises(ValueError, match="Not every process has 2 devices"):
        first_devices(some[:5], 4)


def test_a_single_device_needs_no_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.choose_mesh(1, 4, 1) is None
