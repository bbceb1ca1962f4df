"""Which devices share a run, and which mini-batches they can share: numbers alone, on devices that
are made up."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from replicax.run import devices
from replicax.run.batches import NoBatches, as_batches, as_epochs, as_rows
from replicax.run.devices import check_rows, chosen_sizes, first_devices


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
    assert chosen_sizes(1, 8, None) == (1, count, 1)
    assert chosen_sizes(1, 8, "all") == chosen_sizes(1, 8, 8) == (1, 8, 1)
    assert chosen_sizes(1, 8, np.int64(4)) == (1, 4, 1) and chosen_sizes(1, 8, 1) == (1, 1, 1)
    for wrong in (0, 9, True, 2.0, "most"):
        with pytest.raises(ValueError, match="devices is"):
            chosen_sizes(1, 8, wrong)


@pytest.mark.parametrize(
    ("chains", "replicas", "data_parallel", "sizes"),
    [(1, 4, 2, (1, 4, 2)), (2, 2, 2, (2, 2, 2)), (1, 1, 8, (1, 1, 8)), (4, 1, 2, (4, 1, 2))],
)
def test_devices_that_share_a_replica_are_divided_first(
    chains: int, replicas: int, data_parallel: int, sizes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for platform in ("cpu", "gpu"):
        machine(monkeypatch, 8, platform=platform)
        assert chosen_sizes(chains, replicas, None, data_parallel) == sizes
    with pytest.raises(ValueError, match="data_parallel is 3, which does not divide the 8 devices"):
        chosen_sizes(chains, replicas, None, 3)


def test_devices_that_stay_idle_are_told_where_there_was_something_to_share(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(monkeypatch, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen_sizes(1, 1, None) == (1, 1, 1)
        assert chosen_sizes(2, 4, None) == (2, 4, 1)
    with pytest.warns(
        UserWarning, match=r"Only 2 of 8 devices can share 2 replicas of 1 chains evenly"
    ):
        assert chosen_sizes(1, 2, None) == (1, 2, 1)
    with pytest.warns(UserWarning, match="Only 2 of 8 devices can share 1 replicas of 2 chains"):
        assert chosen_sizes(2, 1, None) == (2, 1, 1)
    with pytest.warns(UserWarning, match="Only 6 of 8 devices .* a multiple of the devices"):
        assert chosen_sizes(1, 3, "all", 2) == (1, 3, 2)
    with pytest.raises(ValueError, match="devices is 8, but only 1 of 8"):
        chosen_sizes(1, 1, 8)
    with pytest.raises(ValueError, match="devices is 8, but only 6 of 8"):
        chosen_sizes(1, 3, 8, 2)


def test_every_process_gives_its_first_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    some = machine(monkeypatch, 8, processes=2)
    assert first_devices(some, 4) == [*some[:2], *some[4:6]]
    assert first_devices(some, 8) == some
    assert first_devices(some[:4], 3) == some[:3]
    with pytest.raises(ValueError, match="2 processes cannot share 3 devices evenly"):
        first_devices(some, 3)
    with pytest.raises(ValueError, match="Not every process has 2 devices"):
        first_devices(some[:5], 4)


def test_rows_are_shared_evenly() -> None:
    rows = np.zeros((12, 2))
    for taken in (as_rows(rows, 6, "data"), as_epochs(rows, 9), as_rows(np.zeros(7), None, "data")):
        check_rows(taken, 3)  # of all rows any number is shared
    for wrong in (as_rows(rows, 5, "data"), as_epochs(rows, 4)):
        with pytest.raises(ValueError, match=r"3 devices .* batches have \[\d\] rows"):
            check_rows(wrong, 3)
    with pytest.raises(ValueError, match="no batches whose rows they could share"):
        check_rows(NoBatches(), 2)


def test_batches_of_the_host_have_an_array_that_can_be_shared() -> None:
    """The first batch tells; numbers beside its arrays have no rows."""
    made = {"a": np.zeros((4, 2)), "b": np.zeros(3), "c": 5.0}
    for parts, taken in ((2, True), (3, True), (5, False)):
        source = as_batches(lambda step: {0: made}[step], None)
        if taken:
            check_rows(source, parts)
            continue
        with pytest.raises(ValueError, match=r"have \[3, 4\] rows, of which no number is"):
            check_rows(source, parts)


def test_a_single_device_needs_no_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    assert devices.choose_mesh(1, 4, 1) is None
    mesh = jax.make_mesh((1, 1), ("replica", "chain"))
    found = devices.choose_mesh(1, 4, mesh)
    assert found is not None and found.axis_names == ("chain", "replica")
    with pytest.raises(ValueError, match="leave data_parallel out"):
        devices.choose_mesh(1, 4, mesh, 2)
    with pytest.raises(ValueError, match="data_parallel"):
        devices.choose_mesh(1, 4, None, 0)
    shared = devices.choose_mesh(1, 4, jax.make_mesh((1,), ("data",)))
    assert shared is not None and dict(shared.shape) == {"chain": 1, "replica": 1}
