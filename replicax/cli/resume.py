"""The command `replicax resume`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import arguments, flags, folders, networks, output
from replicax.cli.output import finish
from replicax.run.options import Sampling, Training
from replicax.user_code import TargetSpec

_LENGTHS = {"num_steps": "--steps", "epochs": "--epochs"}


@flags.of(Sampling, Training, names=flags.may_change(Sampling, Training), shows="as before")
def resume(
    run_dir: arguments.RunDir,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL.PY:NAME",
            help="The target.",
            show_default="as before",
            rich_help_panel=arguments.DATA,
        ),
    ] = None,
    params: arguments.Params = None,
    batches: arguments.Batches = None,
    batch_size: arguments.BatchSize = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Continue although target or data differ from those of the run."
        ),
    ] = False,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
    **given: Any,
) -> int:
    """Continue an interrupted run, or extend a finished one.

    The result is the same, bit for bit, as that of a run that never stopped. The folder stores the
    name of the target. Use --target if its file has moved, or if the run was started in Python.
    Exit codes are those of `replicax sample`.

    \b
    Example
      replicax resume runs/energy-1 --steps 100000
      replicax resume runs/deo-star-1 --epochs 200
    """
    import replicax as rx

    output.join_processes()
    metadata = folders.read_metadata(run_dir)
    length = "epochs" if metadata.kind == "train" else "num_steps"
    _refuse_other_length(length, given)
    changes = flags.given(Sampling, given) | flags.given(Training, given)
    with output.quietly(as_json):
        if metadata.kind == "train":
            known, more = networks.read_named(run_dir).problem()[0], {}
        else:
            known, more = _target_again(run_dir, metadata, target, params, batches, batch_size)
        posterior = rx.resume(
            run_dir,
            known,
            **more,
            **changes,
            progress=progress,
            force=force,
            devices=arguments.read_devices(devices),
            data_parallel=data_parallel,
        )
    if length not in changes and metadata.is_finished and output.writes():
        flag = _LENGTHS[length]
        typer.echo(f"This run was already finished; make it longer with {flag} N.", err=True)
    return finish(posterior, as_json)


def _refuse_other_length(length: str, given: dict[str, Any]) -> None:
    """Raise if the length is given in the unit of the other kind of run."""
    for name, flag in _LENGTHS.items():
        if name != length and given[name] is not None:
            raise ValueError(
                f"This run is measured in {_LENGTHS[length][2:]}: use {_LENGTHS[length]} N "
                f"instead of {flag}."
            )


def _target_again(
    run_dir: Path,
    metadata: Any,
    target: str | None,
    params: str | None,
    batches: str | None,
    batch_size: int | None,
) -> tuple[Any, dict[str, Any]]:
    """Return the target of a run and further arguments of `rx.resume`: as they are named now, or
    as the folder names them."""
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
    needs_params = metadata.params.structure is None  # a tree of the user's own types
    loaded = spec.load(needs_params)
    return loaded.target, {
        "params": folders.structure_of(loaded.params) if needs_params else None,
        "batches": loaded.batches,
        "batch_size": loaded.batch_size,
        "note": spec.to_note(),
    }
