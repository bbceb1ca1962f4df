"""The command `replicax resume`."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replicax import user_code
from replicax.cli import flags, folders, output
from replicax.cli.output import finish
from replicax.run.options import Limits, Sampling, Session, Training
from replicax.user_code import TargetSpec

if TYPE_CHECKING:
    from replicax.run.storage.metadata import Metadata

_AGAIN = ("params", "batches", "batch_size", "progress", "devices", "data_parallel")


@flags.of(TargetSpec, Session, names=_AGAIN)
@flags.of(Limits, names=("max_steps", "max_seconds"))
@flags.of(Sampling, Training, names=flags.may_change(Sampling, Training), shows="as before")
def resume(
    run_dir: flags.RunDir,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[MODEL.PY:NAME]", help="The target, as in sample.", show_default="as before"
        ),
    ] = None,
    model: flags.ModelAgain = None,
    data: flags.DataAgain = None,
    likelihood: flags.LikelihoodAgain = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Continue although target or data differ from those of the run."
        ),
    ] = False,
    until_done: Annotated[
        bool,
        typer.Option(
            "--until-done", help="Go on until nothing is short: round trips, R-hat, draws."
        ),
    ] = False,
    as_json: flags.Json = False,
    **given: Any,
) -> int:
    """Continue an interrupted run, or extend a finished one.

    The result is the same, bit for bit, as that of a run that never stopped. A run that is extended
    keeps the burn-in it was started with, and the ladder and step sizes that this came to: it is a
    longer run with that --burn-in, not one with the default of its length. The folder stores the
    name of the target. Its code runs if you started the run on this machine and the file has not
    changed since; otherwise name it, as where it has moved, where the run was started in Python, or
    where the folder is somebody else's. Exit codes are those of `replicax sample`.

    \b
    Example
      replicax resume runs/energy-1 --steps 100000
      replicax resume runs/energy-1 --until-done --max-seconds 600
      replicax resume runs/energy-1 model.py:energy
      replicax resume runs/deo-star-1 --epochs 200
    """
    import replicax as rx

    output.join_processes()
    metadata = folders.read_metadata(run_dir)
    length = "epochs" if metadata.kind == "train" else "num_steps"
    changes = flags.given(Sampling, given) | flags.given(Training, given)
    with output.quietly(as_json):
        if metadata.kind == "train":
            _refuse_target(run_dir, target)
            named = folders.read_named(run_dir, "resume", model, data, likelihood=likelihood)
            known, more = named.problem()[0], {}
        else:
            names = flags.given(TargetSpec, given)
            known, more = _target_again(run_dir, metadata, target, names)
        posterior = rx.resume(
            run_dir,
            known,
            force=force,
            until_done=until_done,
            **flags.given(Limits, given),
            **more,
            **changes,
            **flags.given(Session, given),
        )
    if length not in changes and metadata.is_finished and not until_done and output.writes():
        flag = {"num_steps": "--steps", "epochs": "--epochs"}[length]
        typer.echo(f"This run was already finished; make it longer with {flag} N.", err=True)
    return finish(posterior, as_json)


def _refuse_target(run_dir: Path, target: str | None) -> None:
    """Raise if a target is named for a training, which has none."""
    if target is not None:
        raise ValueError(
            f"{run_dir} is a training, and {target} is given as its target: name the network and "
            f"the data, replicax resume {run_dir} --model net.py:network --data data.py:rows."
        )


def _target_again(
    run_dir: Path, metadata: "Metadata", target: str | None, names: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the target of a run and further arguments of `rx.resume`: as they are named now, or
    as the folder names them."""
    spec = TargetSpec.from_note(metadata.note)
    if target is not None:
        spec = TargetSpec.from_command_line(target, **names)
    elif spec is None:
        raise ValueError(
            f"The target of {run_dir} is unknown (was the run started in Python?); name it: "
            f"replicax resume {run_dir} model.py:energy."
        )
    elif spec.is_demo:
        spec = replace(spec, **names)
    else:
        again = f"resume {run_dir} {spec.command}"
        folders.confirm(run_dir, spec.to_note(), [spec.target], again)
        spec = replace(spec, **names)
    needs_params = metadata.params.structure is None  # a tree of the user's own types
    loaded = spec.load(needs_params)
    user_code.remember(spec.to_note(), [spec.target])
    return loaded.target, {
        "params": folders.structure_of(loaded.params) if needs_params else None,
        "batches": loaded.batches,
        "batch_size": loaded.batch_size,
        "note": spec.to_note(),
    }
