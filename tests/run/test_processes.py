"""Processes that share a run: how they find each other, and what one that is alone does."""

import pytest

from replicax.run import processes
from replicax.run.processes import _given, _is_in_cluster


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in (processes.COORDINATOR, processes.COUNT, processes.NUMBER):
        monkeypatch.delenv(name, raising=False)


def test_a_process_that_is_alone_stays_alone():
    assert processes.connect() is False
    assert processes.is_first()
    assert processes.agree(False, 3) == [0, 3]
    assert processes.follow(2**40) == 2**40
    processes.wait()


def test_arguments_go_before_the_environment(monkeypatch):
    assert _given(None, None, None) is None
    monkeypatch.setenv(processes.COORDINATOR, "here:1")
    assert _given(None, None, None) is None  # JAX finds out the rest
    monkeypatch.setenv(processes.COUNT, "2")
    monkeypatch.setenv(processes.NUMBER, "1")
    assert _given(None, None, None) == ("here:1", 2, 1)
    assert _given("there:2", 3, 0) == ("there:2", 3, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("node:1", 2, None), "give all three"),
        ((None, 2, 0), "give all three"),
        (("node", 2, 0), 'write "host:port"'),
        (("node:port", 2, 0), 'write "host:port"'),
        (("node:1", 2, 2), "it must be from 0 to 1"),
        (("node:1", 2, -1), "it must be from 0 to 1"),
    ],
)
def test_what_cannot_work_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        processes.connect(*values)


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
