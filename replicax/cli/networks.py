"""Arguments shared by the commands about networks, and the runs that they start."""

import os
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import flags, folders, output
from replicax.cli.arguments import DATA, FOLDER, read_devices, read_numbers
from replicax.errors import choose
from replicax.networks.named import AUGMENTED, DEFAULTS, MODELS, NamedProblem, absolute
from replicax.run.methods import METHODS, Method
from replicax.run.options import Training

Data = Annotated[
    str,
    typer.Option(
        help="Data: cifar10, cifar100, digits, FILE.npz (arrays: inputs, labels or targets, "
        "test_inputs, ...) or FILE.PY:NAME.",
        rich_help_panel=DATA,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help=f"Network: {MODELS}.",
        show_default="resnet20; digits: small; FILE.npz: mlp",
        rich_help_panel=DATA,
    ),
]
WeightDecay = Annotated[
    float,
    typer.Option(
        help="Weight decay (Gaussian prior), relative to the mean loss.", rich_help_panel=DATA
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Rows per mini-batch.",
        show_default="256; digits, FILE.npz: 64",
        rich_help_panel=DATA,
    ),
]
Bf16 = Annotated[
    bool,
    typer.Option("--bf16", help="Compute convolutions in bfloat16.", rich_help_panel=DATA),
]
Augment = Annotated[
    bool | None,
    typer.Option(
        help="Crop, flip and erase training images.",
        show_default="on for CIFAR",
        rich_help_panel=DATA,
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        metavar="SD",
        help="Noise of regression targets: a number, one number per target, learned or network.",
        show_default="learned",
        rich_help_panel=DATA,
    ),
]
Likelihood = Annotated[
    str | None,
    typer.Option(
        help="Likelihood of regression targets: gaussian or student.",
        show_default="gaussian",
        rich_help_panel=DATA,
    ),
]
Validation = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Hold out N training rows and use them instead of the test set.",
        rich_help_panel=DATA,
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder with the CIFAR archives.",
        show_default="$REPLICAX_DATA",
        rich_help_panel=DATA,
    ),
]
Download = Annotated[
    bool,
    typer.Option("--download", help="Download CIFAR if it is missing.", rich_help_panel=DATA),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The run folder.",
        show_default="runs/METHOD-1, -2, ...",
        rich_help_panel=FOLDER,
    ),
]


def start(name: str, arguments: dict[str, Any]) -> int:
    """Train networks by the method of this name, with the arguments of a command; return the exit
    code."""
    from replicax.networks import train

    choose("--method", name, METHODS)
    folder = folders.new_run_folder(arguments["out"], name)
    init_from = arguments.get("init_from")
    if init_from is not None:
        folders.read_metadata(init_from)
    named, method = _named(arguments), _method(name, arguments)
    with output.quietly(arguments["as_json"]):
        problem, init = named.problem()
        trained = train.train(
            problem,
            init if init_from is None else init_from,
            method=method,
            run_dir=folder,
            progress=arguments["progress"],
            note=named.to_note(),
            devices=read_devices(arguments["devices"]),
            data_parallel=arguments["data_parallel"],
            **_run(arguments),
        )
    return output.finish(trained, arguments["as_json"])


def read_named(
    run_dir: Path,
    instead: str = "continue it there with rx.resume(run_dir, problem)",
    runs: tuple[str, ...] = ("model", "data"),
) -> NamedProblem:
    """Return network and data of a run folder and print which user files it `runs`; if it names
    none, raise an error that says what to do `instead`."""
    named = NamedProblem.from_note(folders.read_metadata(run_dir).note)
    if named is None:
        raise ValueError(
            f"The network of {run_dir} is unknown (was the run started in Python?); {instead}."
        )
    for name in runs:
        folders.say_what_runs(getattr(named, name), run_dir)
    return named


def absolute_folder(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.expanduser().absolute())


def _named(arguments: dict[str, Any]) -> NamedProblem:
    """Return network and data, with the defaults of the data set."""
    data, usual = arguments["data"], _usual(arguments["data"])
    augment = data in AUGMENTED or ":" in data
    known = {entry.name for entry in fields(NamedProblem)}
    named = NamedProblem(**{name: x for name, x in arguments.items() if name in known})
    return replace(
        named,
        model=absolute(named.model or usual["model"]),
        data=absolute(data),
        data_dir=absolute_folder(arguments["data_dir"]),
        batch_size=named.batch_size or usual["batch_size"],
        augment=augment if named.augment is None else named.augment,
        noise=_noise(named.noise),
        directory=os.getcwd(),
    )


def _noise(text: str | None) -> Any:
    """Return one number, one number per target, or the name of a kind of noise."""
    try:
        return read_numbers("--noise", text)
    except ValueError:
        return text


def _method(name: str, arguments: dict[str, Any]) -> Method:
    """Return a method with the flags that were given, else the defaults of the data set."""
    usual = _usual(arguments["data"])
    names = ["target_swap_rate"]
    if name in ("deo-star", "deo"):  # a pair of rates means nothing without a ladder
        names.append("learning_rate")
    values = {known: usual[known] for known in names if known in usual}
    return METHODS[name](**{**values, **flags.given(Method, arguments)})


def _run(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the run that were given, else the defaults of the data set."""
    known = {entry.name for entry in fields(Training)}
    values = {name: x for name, x in _usual(arguments["data"]).items() if name in known}
    values |= flags.given(Training, arguments)
    if "burn_in" not in arguments:  # `pretrain` averages no networks
        values.pop("burn_in", None)
    elif arguments["burn_in"] is None and "burn_in" in values:
        values["burn_in"] = min(values["burn_in"], values["epochs"] // 3)
    return values


def _usual(data: str) -> dict[str, Any]:
    return DEFAULTS[".npz"] if data.endswith(".npz") else DEFAULTS.get(data, DEFAULTS["cifar100"])
