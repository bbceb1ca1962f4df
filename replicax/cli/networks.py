"""Arguments shared by the commands about networks, and the runs that they start."""

import os
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import folders, output
from replicax.cli.arguments import read_devices, read_interval, read_numbers
from replicax.errors import choose
from replicax.networks.named import AUGMENTED, DEFAULTS, MODELS, absolute

Data = Annotated[
    str,
    typer.Option(
        help="Data: cifar10, cifar100, digits, FILE.npz (arrays: inputs, labels or targets, "
        "test_inputs, ...) or FILE.PY:NAME."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(help=f"Network: {MODELS}.", show_default="resnet20; digits: small; FILE.npz: mlp"),
]
Replicas = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="P", help="Number of networks.", show_default="10; digits, FILE.npz: 4"
    ),
]
Momentum = Annotated[float, typer.Option(help="Momentum of SGD.")]
WeightDecay = Annotated[
    float, typer.Option(help="Weight decay (Gaussian prior), relative to the mean loss.")
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Rows per mini-batch.", show_default="256; digits, FILE.npz: 64"
    ),
]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Compute convolutions in bfloat16.")]
Augment = Annotated[
    bool | None,
    typer.Option(help="Crop, flip and erase training images.", show_default="on for CIFAR"),
]
Noise = Annotated[
    str | None,
    typer.Option(
        metavar="SD",
        help="Noise of regression targets: a number, one number per target, learned or network.",
        show_default="learned",
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        help="Likelihood of regression targets: gaussian or student.", show_default="gaussian"
    ),
]
Validation = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Hold out N training rows and use them instead of the test set."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder with the CIFAR archives.", show_default="$REPLICAX_DATA"
    ),
]
Download = Annotated[bool, typer.Option("--download", help="Download CIFAR if it is missing.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The run folder.", show_default="runs/METHOD-1, -2, ..."),
]
_OF_THE_COMMAND = ("out", "init_from", "coordinator", "num_processes", "process_id", "as_json")


def start(given: dict[str, Any]) -> int:
    """Train networks with the arguments of a command, by name; return the exit code."""
    from replicax.networks import train
    from replicax.networks.methods import METHODS

    choose("--method", given["method"], METHODS)
    folder = folders.new_run_folder(given["out"], given["method"])
    init_from = given.get("init_from")
    if init_from is not None:
        folders.read_metadata(init_from)
    task = _task(given)
    with output.quietly(given["as_json"]):
        problem, init = task.problem()
        trained = train.train(
            problem,
            init if init_from is None else init_from,
            run_dir=folder,
            note={"task": task.to_json()},
            **_options(given),
        )
    return output.finish(trained, given["as_json"])


def resume(
    run_dir: Path,
    metadata: Any,
    epochs: int | None,
    progress: bool | None,
    as_json: bool,
    saving: dict[str, Any],
) -> int:
    """Continue a run of `replicax train`, for `replicax resume`."""
    import replicax as rx

    with output.quietly(as_json):
        problem, _ = read_task(run_dir).problem()
        trained: Any = rx.resume(run_dir, problem, epochs=epochs, progress=progress, **saving)
    if epochs is None and folders.is_finished(metadata) and output.writes():
        typer.echo("This run was already finished; make it longer with --epochs N.", err=True)
    return output.finish(trained, as_json)


def read_task(
    run_dir: Path,
    instead: str = "continue it there with rx.resume(run_dir, problem)",
    runs: tuple[str, ...] = ("model", "data"),
) -> Any:
    """Return the `Task` of a run folder and print which user files it `runs`; without a task, raise
    an error that says what to do `instead`."""
    from replicax.networks.tasks import Task

    task = folders.read_metadata(run_dir).note.get("task")
    if task is None:
        raise ValueError(
            f"The network of {run_dir} is unknown (was the run started in Python?); {instead}."
        )
    for name in runs:
        folders.say_what_runs(str(task.get(name, "")), run_dir)
    return Task.stored(task)


def absolute_folder(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.expanduser().absolute())


def _task(given: dict[str, Any]) -> Any:
    from replicax.networks.tasks import Task

    data, defaults = given["data"], _defaults(given["data"])
    augment = data in AUGMENTED or ":" in data
    values = {entry.name: given[entry.name] for entry in fields(Task) if entry.name in given}
    return Task(
        **values
        | {
            "model": absolute(given["model"] or defaults["model"]),
            "data": absolute(data),
            "data_dir": absolute_folder(given["data_dir"]),
            "batch_size": given["batch_size"] or defaults["batch_size"],
            "augment": augment if given["augment"] is None else given["augment"],
            "noise": _noise(given.get("noise")),
            "directory": os.getcwd(),
        }
    )


def _noise(text: str | None) -> Any:
    """Return one number, one number per target, or the name of a kind of noise."""
    try:
        return read_numbers("--noise", text)
    except ValueError:
        return text


def _options(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of `rx.train`: all arguments except those of the command and of its task.

    Missing options get the default of the data set, or that of `rx.train`.
    """
    from replicax.networks.tasks import Task

    others = {*_OF_THE_COMMAND, *(entry.name for entry in fields(Task))}
    options = {name: value for name, value in given.items() if name not in others}
    options["num_replicas"] = options.pop("replicas")
    options["checkpoint_every"] = read_interval(given["checkpoint_every"])
    if "devices" in given:
        options["devices"] = read_devices(given["devices"])
    for name in ("learning_rate", "temperature"):
        if isinstance(given.get(name), str):
            options[name] = read_numbers(f"--{name.replace('_', '-')}", given[name])
    defaults = dict(_defaults(given["data"]))
    if given["method"] not in ("deo-star", "deo"):  # a pair means nothing without a ladder
        defaults.pop("learning_rate", None)
    if "burn_in" in options:
        epochs = given["epochs"] or defaults["epochs"]
        defaults["burn_in"] = min(defaults.get("burn_in", 0), epochs // 3)
    filled = {name: defaults.get(name) if x is None else x for name, x in options.items()}
    return {name: value for name, value in filled.items() if value is not None}


def _defaults(data: str) -> dict[str, Any]:
    return DEFAULTS[".npz"] if data.endswith(".npz") else DEFAULTS.get(data, DEFAULTS["cifar100"])
