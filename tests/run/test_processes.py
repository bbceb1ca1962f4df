"""Processes that share a run: how they find each other, and what one that is alone does."""

import pytest

from replicax.run import processes
from replicax.run.processes import COORDINATOR, COUNT, NUMBER, _given, _is_in_cluster


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (COORDINATOR, COUNT, NUMBER):
        monkeypatch.delenv(name, raising=False)


def test_a_process_that_is_alone_stays_alone():
    assert processes.connect() is False
    assert processes.is_first()
    assert processes.agree(False, 3) == [0, 3]
    assert processes.follow(2**40) == 2**40
    processes.wait()


def tell(monkeypatch, address, count, number):
    for name, value in zip((COORDINATOR, COUNT, NUMBER), (address, count, number), strict=True):
        if value is not None:
            monkeypatch.setenv(name, value)


def test_the_environment_says_which_process_this_is(monkeypatch):
    assert _given() is None
    tell(monkeypatch, "here:1", None, None)
    assert _given() is None  # JAX finds out the rest
    tell(monkeypatch, None, "2", "1")
    assert _given() == ("here:1", 2, 1)


@pytest.mark.parametrize(
    "values",
    [
        (None, "2", "0"),
        ("node", "2", "0"),
        ("node:port", "2", "0"),
        (":1", "2", "0"),
        ("node:1", "2", "2"),
        ("node:1", "2", "-1"),
        ("node:1", "two", "1"),
    ],
)
def test_what_cannot_work_is_refused(monkeypatch, values):
    tell(monkeypatch, *values)
    with pytest.raises(ValueError, match='give the first process as "host:port"'):
        processes.connect()


@pytest.mark.parametrize(
    ("environment", "several"),
    [
        ({}, False),
        ({"SLURM_JOB_ID": "7"}, False),  # a shell within a job
        ({"SLURM_STEP_NUM_TASKS": "1"}, False),
        ({"SLURM_STEP_NUM_TASKS": "8"}, True),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, True),
        ({"KUBERNETES_SERVICE_HOST": "a"}, False),
        ({"KUBERNETES_SERVICE_HOST": "a", "JOB_COMPLETION_INDEX": "0"}, True),
    ],
)
def test_tasks_of_schedulers_are_detected(environment, several):
    assert _is_in_cluster(environment) is several
