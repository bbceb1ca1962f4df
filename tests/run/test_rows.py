"""Sums over rows wherever they are."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from many_rows import D, Uneven, data_of, of_rows, points_near

from replicax.run.rows import ArrayRows, Job, Plan, SourceRows, plan_of


def exact(data, centre: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The differences in double precision, by NumPy."""
    x, y = (np.asarray(part, float) for part in data)

    def total(point: np.ndarray) -> float:
        z = x @ point.astype(float)
        return float(np.sum(y * z - np.logaddexp(0, z)))

    return np.array([total(point) - total(centre) for point in points])


def sums(rows, job: Job, plan: Plan, centre, points, seen=lambda count: None):
    return rows.sums(job, plan, centre, points, seen, None)


def plan_for(data, num_points: int, job: Job | None = None) -> Plan:
    return plan_of(job or Job(of_rows), len(data[1]), data, D, num_points)


def test_a_sum_over_a_million_rows_is_that_of_double_precision() -> None:
    data = data_of(1_000_003)
    centre = np.ones(D, np.float32)
    points = points_near(centre, 8, 3e-3)  # about three standard deviations
    job = Job(of_rows)
    found = sums(ArrayRows(data), job, plan_for(data, 8), centre, points)
    expected = exact(data, centre, points)
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found.apart, expected, atol=2e-3)
    x, y = (np.asarray(part, float) for part in data)
    z = x @ centre.astype(float)
    np.testing.assert_allclose(found.centre, np.sum(y * z - np.logaddexp(0, z)), rtol=1e-7)


@pytest.mark.parametrize("num_rows", [1, 37, 128, 129])
def test_the_last_block_counts_the_rows_that_it_has(num_rows) -> None:
    data = data_of(num_rows)
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), 5, 1.0)
    for plan in (Plan(64, 16), Plan(32, 32), plan_for(data, 5)):
        found = sums(ArrayRows(data), Job(of_rows), plan, centre, points)
        np.testing.assert_allclose(found.apart, exact(data, centre, points), rtol=1e-4, atol=1e-4)


def test_derivatives_are_those_of_all_rows() -> None:
    data = data_of(201)
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), 2, 0.5)
    total = lambda point: jnp.sum(of_rows(point, data))  # noqa: E731
    for way in ("forward", "reverse"):
        job = Job(of_rows, way)
        found = sums(ArrayRows(data), job, Plan(64, 16), centre, points)
        for k, point in enumerate(points):
            np.testing.assert_allclose(found.gradient[k], jax.grad(total)(point), rtol=1e-3)
            np.testing.assert_allclose(found.hessian[k], jax.hessian(total)(point), rtol=1e-3)


def test_sums_and_samples_are_the_same_wherever_the_rows_are(tmp_path) -> None:
    data = data_of(300)
    np.save(tmp_path / "x.npy", data[0])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r"), data[1]
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), 7, 0.5)
    places = [
        ArrayRows(data),
        ArrayRows(mapped),
        SourceRows(Uneven(data)),
        SourceRows(Uneven(data), 300),
    ]
    found = [sums(rows, Job(of_rows), Plan(64, 16), centre, points).apart for rows in places]
    some = [rows.some(40) for rows in places]
    for one, few in zip(found, some, strict=True):
        np.testing.assert_array_equal(one, found[0])
        np.testing.assert_array_equal(few[0], data[0][np.arange(40) * 300 // 40])
        np.testing.assert_array_equal(few[1], data[1][np.arange(40) * 300 // 40])


def test_some_rows_of_a_sorted_file_are_of_all_of_it() -> None:
    rows = np.arange(1000.0)
    for count in (10, 33, 150, 999, 1000, 5000):
        some = ArrayRows(rows).some(count)
        assert len(some) == min(count, 1000)
        assert np.ptp(np.diff(some)) <= 1
        assert some[0] == 0 and some[-1] >= 1000 - 1000 / count - 1


def test_a_sweep_tells_of_all_rows_and_ends_where_it_is_told_to() -> None:
    data, told = data_of(300), []
    centre, points = np.zeros(D, np.float32), points_near(np.zeros(D), 7, 0.5)
    sums(ArrayRows(data), Job(of_rows), Plan(64, 16), centre, points, told.append)
    assert told == [64, 64, 64, 64, 44]

    def ends(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sums(ArrayRows(data), Job(of_rows), Plan(64, 16), centre, points, ends)


@pytest.mark.parametrize(
    ("blocks", "words"),
    [
        ([], "gives no block"),
        ([(np.zeros((3, 2)), np.zeros(2))], "all need the same rows"),
        ([np.array(["a"])], "text"),
    ],
)
def test_blocks_of_other_kinds_are_refused(blocks, words) -> None:
    with pytest.raises(ValueError, match=words):
        _ = SourceRows(blocks).num_rows


ON_DEVICES = """
import jax
import numpy as np
from replicax.run.rows import ArrayRows, Job, Plan

rng = np.random.default_rng(0)
data = rng.normal(size=(10_000, 3)).astype("f"), rng.normal(size=10_000).astype("f")
points = rng.normal(size=(5, 3)).astype("f")
job, seen = Job(lambda p, rows: -0.5 * (rows[1] - rows[0] @ p) ** 2), []
given = job, Plan(1024, 256), points[0], points
one = ArrayRows(data).sums(*given, seen.append, None)
four = ArrayRows(data).sums(*given, seen.append, jax.devices())
assert len(jax.devices()) == 4 and sum(seen) == 20_000
np.testing.assert_array_equal(one.apart, four.apart)
"""


def test_four_devices_share_blocks_and_give_the_same_sums() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", ON_DEVICES]
    done = subprocess.run(
        command, env=os.environ | flags, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


class Counted:
    """A source that counts how often it is read."""

    def __init__(self) -> None:
        self.read = 0

    def __iter__(self):
        self.read += 1
        yield from np.arange(30.0, dtype=np.float32).reshape(3, 10)


def test_a_number_of_rows_that_is_given_spares_a_reading_and_is_checked() -> None:
    source = Counted()
    assert SourceRows(source).num_rows == 30 and source.read == 1
    given = SourceRows(source, 30)
    assert given.num_rows == 30 and source.read == 1
    np.testing.assert_array_equal(given.some(3), [0, 10, 20])
    with pytest.raises(ValueError, match="num_rows is 29, and the source has 30"):
        SourceRows(source, 29).some(3)
