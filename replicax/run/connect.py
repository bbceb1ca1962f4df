"""`connect`: how the processes that share a run find each other."""

import os
from typing import Any

import jax

COORDINATOR, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
_HEARTBEAT_SECONDS = 30  # after which a process that does not answer is taken for dead


def connect(
    coordinator: str | None = None, num_processes: int | None = None, process_id: int | None = None
) -> bool:
    """Join the other processes of this run, before JAX is used; return whether there are others.

    Without arguments, what `replicax launch` says is taken, or what JAX finds out about SLURM, Open
    MPI or Kubernetes; a process that is alone stays alone.

    Args:
        coordinator: "host:port" of process 0.
        num_processes: of all of them.
        process_id: the number of this one, from 0 on.
    """
    if jax.distributed.is_initialized():
        return jax.process_count() > 1
    given = _given(coordinator, num_processes, process_id)
    if given is None and not _is_in_cluster(os.environ):
        return False
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    try:
        address, count, number = given or (None, None, None)  # None: JAX finds out
        jax.distributed.initialize(
            address, count, number, heartbeat_timeout_seconds=_HEARTBEAT_SECONDS
        )
    except RuntimeError as error:
        if "before" not in str(error):
            raise
        raise ValueError(
            "JAX was used before the processes joined; write rx.connect() at the top of the script."
        ) from None
    return jax.process_count() > 1


def _given(*values: Any) -> tuple[str, int, int] | None:
    """Return coordinator, number and id from the arguments or, without any, the environment."""
    if all(value is None for value in values):
        values = tuple(os.environ.get(name) for name in (COORDINATOR, COUNT, NUMBER))
        if values[1] is None or values[2] is None:
            return None
    coordinator, count, number = values
    if coordinator is None or count is None or number is None:
        raise ValueError(
            "To join several processes give all three: the coordinator (host:port of process 0), "
            "the number of processes and the id of this one."
        )
    host, _, port = str(coordinator).rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(
            f'The coordinator is {coordinator!r}; write "host:port", as in "node1:6789".'
        )
    count, number = int(count), int(number)
    if not 0 <= number < count:
        raise ValueError(
            f"The process id is {number}; with {count} processes it must be from 0 to {count - 1}."
        )
    return str(coordinator), count, number


def _is_in_cluster(environment: Any) -> bool:
    """Return whether this is one of several tasks of SLURM, Open MPI or Kubernetes."""
    tasks = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
    several = any(environment.get(name, "1") not in ("", "1") for name in tasks)
    in_kubernetes = {"KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX"} <= set(environment)
    return several or in_kubernetes
