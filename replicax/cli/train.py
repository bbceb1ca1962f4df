"""The commands `replicax train` and `replicax pretrain`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import arguments, folders, output
from replicax.cli.arguments import (
    CheckpointEvery,
    Coordinator,
    DataParallel,
    Devices,
    Json,
    KeepCheckpoints,
    NumProcesses,
    ProcessId,
    Progress,
    Seed,
    Window,
    read_interval,
    read_numbers,
)
from replicax.cli.output import finish
from replicax.networks.tasks import AUGMENTED, DEFAULTS, MODELS, Task, absolute

Data = Annotated[str, typer.Option(help="cifar10, cifar100, digits, or FILE.PY:NAME.")]
Model = Annotated[
    str | None, typer.Option(help=f"{MODELS}.", show_default="resnet20, or small for digits")
]
Replicas = Annotated[
    int | None, typer.Option(min=1, metavar="P", help="Networks.", show_default="10; digits: 4")
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Of each network.", show_default="500; digits: 120"),
]
Rate = Annotated[
    str | None,
    typer.Option(metavar="COLD HOT", help="Per mean loss; one number for methods without ladder."),
]
Momentum = Annotated[float, typer.Option(help="Of SGD.")]
WeightDecay = Annotated[float, typer.Option(help="Of the Gaussian prior, per mean loss.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Images.", show_default="256; digits: 64")
]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Convolutions in bfloat16.")]
Augment = Annotated[
    bool | None,
    typer.Option(help="Crop, flip and erase training images.", show_default="on for CIFAR"),
]
Validation = Annotated[
    int,
    typer.Option(
        min=0,
        metavar="N",
        help="Hold out N training images, and test on them instead of the test images.",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of CIFAR.", show_default="$REPLICAX_DATA"),
]
Download = Annotated[bool, typer.Option("--download", help="Download CIFAR if it is missing.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The run folder.", show_default="runs/METHOD-1, -2, ..."),
]


def train(
    model: Model = None,
    data: Data = "digits",
    method: Annotated[
        str, typer.Option(help="deo-star, deo, sghmc-pt, ensemble, sgld, cyc-sghmc or cyc-swag.")
    ] = "deo-star",
    replicas: Replicas = None,
    epochs: Epochs = None,
    learning_rate: Rate = None,
    target_swap_rate: Annotated[
        float | None,
        typer.Option(metavar="S", help="Target swap rate.", show_default="0.005; digits: 0.1"),
    ] = None,
    window: Window = None,
    init_from: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Start from the last networks of a run."),
    ] = None,
    momentum: Momentum = 0.9,
    weight_decay: WeightDecay = 5e-4,
    kernel: Annotated[
        str | None,
        typer.Option(help="momentum, sghmc, sgld or preconditioned.", show_default="the method's"),
    ] = None,
    rate_schedule: Annotated[
        str | None,
        typer.Option(
            help="Of learning rates in time: constant, cosine, cyclical or stepwise.",
            show_default="the method's",
        ),
    ] = None,
    warmup_epochs: Annotated[
        float, typer.Option(metavar="N", help="Epochs in which a cosine rises first.")
    ] = 0.0,
    clip_norm: Annotated[
        float | None, typer.Option(metavar="L", help="Cut gradients to this length.")
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="COLD HOT",
            help="Of the posterior: of the coldest network, or of both ends; 0: no noise.",
            show_default="the method's",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Of exchange, as of `replicax sample`.", show_default="the method's"),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="deterministic, bias_corrected or metropolis.", show_default="the method's"
        ),
    ] = None,
    swap_every: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Steps between attempts.", show_default="1; sghmc-pt: 10"
        ),
    ] = None,
    swap_energy: Annotated[
        str, typer.Option(help="Of sghmc-pt: batch, or full for all training images.")
    ] = "batch",
    adapt: Annotated[
        bool | None, typer.Option(help="Adapt ladder and buffer.", show_default="on")
    ] = None,
    batch_size: BatchSize = None,
    bf16: Bf16 = False,
    augment: Augment = None,
    unit: Annotated[str, typer.Option(help="Of energies: mean or total.")] = "mean",
    burn_in: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Epochs to discard.", show_default="0; digits: 40, or a third"
        ),
    ] = None,
    average_rungs: Annotated[
        int,
        typer.Option(min=1, metavar="K", help="Average the K coldest rungs, one an epoch in turn."),
    ] = 1,
    settle_epochs: Annotated[
        float,
        typer.Option(metavar="N", help="Epochs on these rungs before a network is averaged."),
    ] = 0.0,
    cycle_epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Epochs per cycle of cyclical methods.")
    ] = 100,
    on_swap: Annotated[
        str, typer.Option(help="Momentum of swapped replicas: keep or reset.")
    ] = "keep",
    on_nonfinite: Annotated[
        str | None,
        typer.Option(
            help="If a loss is not finite: restart (from a colder network) or stop.",
            show_default="restart; without a ladder: stop",
        ),
    ] = None,
    keep_networks: Annotated[
        bool, typer.Option("--keep-networks", help="Save the coldest network of every epoch.")
    ] = False,
    validation: Validation = 0,
    data_dir: DataDir = None,
    download: Download = False,
    seed: Seed = 0,
    out: Out = None,
    checkpoint_every: CheckpointEvery = None,
    keep_checkpoints: KeepCheckpoints = 2,
    devices: Devices = None,
    data_parallel: DataParallel = 1,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Sample networks and average their predictions.

    By replica exchange, networks on hot rungs explore with large learning rates, and the
    predictions of the coldest one are averaged over epochs. Without options: four small
    networks on scikit-learn's digits, a minute or two on two cores. CIFAR is not part of
    replicax; it is read from its official archives.

    \b
    Example
      replicax train
      replicax pretrain --data cifar100 --bf16 --out runs/starts
      replicax train --data cifar100 --bf16 --init-from runs/starts
      replicax evaluate runs/deo-star-1

    For --model, FILE.PY:NAME is an rx.nn.Network or a function of the data set that returns one;
    for --data, an rx.data.Dataset or a function that returns one. Exit codes are those of
    `replicax sample`. Continue a run with `replicax resume RUN_DIR`.
    """
    output.join_processes(coordinator, num_processes, process_id)
    defaults = _defaults(data)
    rate = read_numbers("--learning-rate", learning_rate)
    if rate is None and method in ("deo-star", "deo"):
        rate = defaults.get("learning_rate")
    if burn_in is None:
        burn_in = min(defaults.get("burn_in", 0), (epochs or defaults["epochs"]) // 3)
    options = {
        "method": method,
        "num_replicas": replicas,
        "epochs": epochs,
        "learning_rate": rate,
        "target_swap_rate": target_swap_rate,
        "burn_in": burn_in,
        "window": window,
        "momentum": momentum,
        "kernel": kernel,
        "rate_schedule": rate_schedule,
        "warmup_epochs": warmup_epochs,
        "clip_norm": clip_norm,
        "temperature": read_numbers("--temperature", temperature),
        "schedule": schedule,
        "rule": rule,
        "swap_every": swap_every,
        "swap_energy": swap_energy,
        "adapt": adapt,
        "average_rungs": average_rungs,
        "settle_epochs": settle_epochs,
        "cycle_epochs": cycle_epochs,
        "on_swap": on_swap,
        "on_nonfinite": on_nonfinite,
        "keep_networks": keep_networks,
        "average_starts": init_from is not None,
        "seed": seed,
        "checkpoint_every": read_interval(checkpoint_every),
        "keep_checkpoints": keep_checkpoints,
        "devices": arguments.read_devices(devices),
        "data_parallel": data_parallel,
    }
    task = _task(
        model, data, batch_size, augment, bf16, weight_decay, unit, validation, data_dir, download
    )
    return _train(task, _fill(options, defaults), init_from, out, progress, as_json)


def pretrain(
    model: Model = None,
    data: Data = "digits",
    replicas: Replicas = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Of each network.")] = 300,
    learning_rate: Annotated[float, typer.Option(help="Initial learning rate.")] = 0.1,
    momentum: Momentum = 0.9,
    weight_decay: WeightDecay = 5e-4,
    batch_size: BatchSize = None,
    bf16: Bf16 = False,
    augment: Augment = None,
    validation: Validation = 0,
    data_dir: DataDir = None,
    download: Download = False,
    seed: Seed = 0,
    out: Out = None,
    checkpoint_every: CheckpointEvery = None,
    keep_checkpoints: KeepCheckpoints = 2,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Train start networks for `replicax train --init-from`.

    Independent networks from scratch, by momentum SGD with the paper's settings: the learning
    rate is divided by 5 after 70 % of the epochs, and again after 90 %.

    \b
    Example
      replicax pretrain --data cifar100 --bf16 --out runs/starts
    """
    options = {
        "method": "pretrain",
        "num_replicas": replicas,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "seed": seed,
        "checkpoint_every": read_interval(checkpoint_every),
        "keep_checkpoints": keep_checkpoints,
    }
    task = _task(
        model, data, batch_size, augment, bf16, weight_decay, "mean", validation, data_dir, download
    )
    return _train(task, _fill(options, _defaults(data)), None, out, progress, as_json)


def resume(
    run_dir: Path,
    metadata: Any,
    epochs: int | None,
    progress: bool | None,
    as_json: bool,
    saving: dict[str, Any],
) -> int:
    """Continue a run of `replicax train`, for `replicax resume`."""
    from replicax.networks.train import resume_training

    with output.quietly(as_json):
        problem, _ = read_task(run_dir).problem()
        trained = resume_training(run_dir, problem, epochs=epochs, progress=progress, **saving)
    if epochs is None and folders.is_finished(metadata) and output.writes():
        typer.echo("This run was already finished; make it longer with --epochs N.", err=True)
    return finish(trained, as_json)


def read_task(
    run_dir: Path, instead: str = "continue it there with rx.resume_training(run_dir, problem)"
) -> Task:
    """Return the network and the data of a run folder, by name; say what to do `instead`."""
    task = folders.read_metadata(run_dir).note.get("task")
    if task is None:
        raise ValueError(
            f"The network of {run_dir} is unknown (was the run started in Python?); {instead}."
        )
    for name in ("model", "data"):
        folders.say_what_runs(str(task.get(name, "")), run_dir)
    return Task(**task)


def _task(
    model, data, batch_size, augment, bf16, weight_decay, unit, validation, data_dir, download
) -> Task:
    defaults = _defaults(data)
    return Task(
        model=absolute(model or defaults["model"]),
        data=absolute(data),
        data_dir=absolute_folder(data_dir),
        download=download,
        batch_size=batch_size or defaults["batch_size"],
        augment=(data in AUGMENTED or ":" in data) if augment is None else augment,
        bf16=bf16,
        weight_decay=weight_decay,
        unit=unit,
        validation=validation,
        directory=os.getcwd(),
    )


def _defaults(data: str) -> dict[str, Any]:
    return DEFAULTS.get(data, DEFAULTS["cifar100"])


def _fill(options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the options with missing ones from `defaults`, if the data set has them there."""
    usual = {name: value for name, value in defaults.items() if name != "learning_rate"}
    filled = {name: usual.get(name) if x is None else x for name, x in options.items()}
    return {name: value for name, value in filled.items() if value is not None}


def _train(
    task: Task,
    options: dict[str, Any],
    init_from: Path | None,
    out: Path | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    from replicax.errors import choose
    from replicax.networks import train
    from replicax.networks.methods import METHODS

    choose("--method", options["method"], METHODS)
    folder = folders.new_run_folder(out, options["method"])
    if init_from is not None:
        folders.read_metadata(init_from)
    with output.quietly(as_json):
        problem, init = task.problem()
        trained = train.train(
            problem,
            init if init_from is None else init_from,
            run_dir=folder,
            progress=progress,
            note={"task": task.to_json()},
            **options,
        )
    return finish(trained, as_json)


def absolute_folder(folder: Path | None) -> str | None:
    return None if folder is None else str(folder.expanduser().absolute())
