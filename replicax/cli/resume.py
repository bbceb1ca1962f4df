"""The command `replicax resume`."""

from typing import Annotated

import typer

from replicax.cli import arguments, folders, networks, output
from replicax.cli.output import finish
from replicax.user_code import TargetSpec


def resume(
    run_dir: arguments.RunDir,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Total number of steps.", show_default="as before"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="MODEL.PY:NAME", help="The target.", show_default="as before"),
    ] = None,
    params: arguments.Params = None,
    batches: arguments.Batches = None,
    batch_size: arguments.BatchSize = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Total epochs, for networks.", show_default="as before"),
    ] = None,
    checkpoint_every: arguments.CheckpointEvery = None,
    keep_checkpoints: Annotated[
        int | None,
        typer.Option(metavar="K", help="Number of checkpoints to keep.", show_default="as before"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Continue although target or data differ from those of the run."
        ),
    ] = False,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    coordinator: arguments.Coordinator = None,
    num_processes: arguments.NumProcesses = None,
    process_id: arguments.ProcessId = None,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
) -> int:
    """Continue an interrupted run, or extend a finished one.

    The result is the same, bit for bit, as that of a run that never stopped. The folder stores the
    name of the target. Use --target if its file has moved, or if the run was started in Python.
    Exit codes are those of `replicax sample`.

    \b
    Example
      replicax resume runs/energy-1 --steps 100000
    """
    import replicax as rx

    output.join_processes(coordinator, num_processes, process_id)
    metadata = folders.read_metadata(run_dir)
    if metadata.kind == "train":
        if steps is not None:
            raise ValueError("This run is measured in epochs: use --epochs N instead of --steps.")
        saving = {
            "checkpoint_every": arguments.read_interval(checkpoint_every),
            "keep_checkpoints": keep_checkpoints,
            "force": force,
            "devices": arguments.read_devices(devices),
            "data_parallel": data_parallel,
        }
        return networks.resume(run_dir, metadata, epochs, progress, as_json, saving)
    spec = TargetSpec.from_note(metadata.note)
    if target is not None:
        spec = TargetSpec.from_command_line(target, params, batches, batch_size)
    elif spec is None:
        raise ValueError(
            f"The target of {run_dir} is unknown (was the run started in Python?); name it: "
            f"replicax resume {run_dir} --target model.py:energy."
        )
    else:
        spec = spec.updated(params, batches, batch_size)
        folders.say_what_runs(spec.target, run_dir)
    with output.quietly(as_json):
        needs_params = metadata.params.structure is None  # a tree of the user's own types
        loaded = spec.load(needs_params)
        posterior = rx.resume(
            run_dir,
            loaded.target,
            num_steps=steps,
            params=folders.structure_of(loaded.params) if needs_params else None,
            batches=loaded.batches,
            batch_size=loaded.batch_size,
            progress=progress,
            checkpoint_every=arguments.read_interval(checkpoint_every),
            keep_checkpoints=keep_checkpoints,
            force=force,
            note=spec.to_note(),
            devices=arguments.read_devices(devices),
            data_parallel=data_parallel,
        )
    if steps is None and metadata.is_finished and output.writes():
        typer.echo("This run was already finished; make it longer with --steps N.", err=True)
    return finish(posterior, as_json)
