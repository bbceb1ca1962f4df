"""Rows spread over the workers of Dask."""

import os
import signal
import threading

import numpy as np
import pytest
from many_rows import D, Uneven, data_of, of_rows, points_near

import replicax as rx
from replicax.run.rows import ArrayRows, Job, Plan, SourceRows, as_dask_rows, is_dask

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

PLAN = Plan(64, 16)


def spread(data, size: int = 64):
    return tuple(da.from_array(part, chunks=(size, *part.shape[1:])) for part in data)


def sums(rows, count: int = 7) -> np.ndarray:
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), count, 0.5)
    return rows.sums(Job(of_rows), PLAN, centre, points, lambda count: None, None)


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_partitions_give_the_sums_and_samples_of_arrays(scheduler) -> None:
    data = data_of(300)
    assert is_dask(spread(data)) and not is_dask(data)
    with dask.config.set(scheduler=scheduler):
        rows = as_dask_rows(spread(data))
        assert rows.num_rows == 300
        for one, few in zip(rows.some(40), ArrayRows(data).some(40), strict=True):
            np.testing.assert_array_equal(one, few)
        expected = sums(ArrayRows(data))
        np.testing.assert_allclose(sums(rows).apart, expected.apart, rtol=1e-12, atol=1e-9)
        # Partitions of any sizes: tiles are others, and so are their roundings.
        other = sums(as_dask_rows(spread(data, 47)))
        np.testing.assert_allclose(other.apart, expected.apart, atol=1e-4)


def test_empty_partitions_and_arrays_with_other_chunks_count() -> None:
    data = data_of(300)
    x = da.from_array(data[0], chunks=((0, 100, 0, 200), 2))
    y = da.from_array(data[1], chunks=64)
    with dask.config.set(scheduler="synchronous"):
        rows = as_dask_rows((x, y))
        assert rows.num_rows == 300
        np.testing.assert_allclose(sums(rows).apart, sums(ArrayRows(data)).apart, atol=1e-4)


def test_a_data_frame_is_a_dict_of_its_columns() -> None:
    frames = pytest.importorskip("dask.dataframe")
    import pandas as pd

    y = np.random.default_rng(0).normal(size=200).astype(np.float32)
    frame = frames.from_pandas(pd.DataFrame({"y": y, "z": y}), npartitions=3)
    with dask.config.set(scheduler="synchronous"):
        task = rx.bayesian(lambda m, rows: -((rows["y"] - m) ** 2), lambda m: -(m**2), frame)
        assert task.num_rows == 200 and task.streams
        some = task.rows.some(50)
        assert set(some) == {"y", "z"}
        np.testing.assert_array_equal(some["y"], y[:200:4])


def test_mini_batches_of_dask_are_refused() -> None:
    with pytest.raises(ValueError, match="leave out batch_size"):
        rx.bayesian(of_rows, lambda p: -(p**2).sum(), spread(data_of(300)), batch_size=10)


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_a_retry(tmp_path) -> None:
    distributed = pytest.importorskip("distributed")
    data = data_of(3_000)
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), 7, 0.5)
    alone = sums(ArrayRows(data)).apart
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        rows = as_dask_rows(spread(data, 128))
        for _ in range(2):  # the same in any order of the workers
            np.testing.assert_allclose(sums(rows).apart, alone, rtol=1e-12, atol=1e-9)
        before = sums(rows).apart
        victim = next(iter(cluster.workers.values()))
        pid = victim.pid
        killer = threading.Timer(0.02, os.kill, (pid, signal.SIGKILL))
        killer.start()
        found = [
            rows.sums(Job(of_rows), PLAN, centre, points, lambda count: None, None).apart
            for _ in range(5)
        ]
        killer.join()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    for one in found:
        np.testing.assert_array_equal(one, before)


def test_a_job_is_compiled_once_for_all_partitions() -> None:
    from replicax.run import rows

    rows._unpickled.cache_clear()
    with dask.config.set(scheduler="synchronous"):
        sums(as_dask_rows(spread(data_of(300))))
    assert rows._unpickled.cache_info().misses == 1
    assert SourceRows(Uneven(data_of(300))).num_rows == 300
