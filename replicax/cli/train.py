"""The commands for networks: `replicax train`, `replicax pretrain` and `replicax evaluate`."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import shared as parts
from replicax.cli.shared import FINISHED, Json, RunDir, finish, read_numbers
from replicax.networks.tasks import AUGMENTED, DEFAULTS, MODELS, Task, absolute

Data = Annotated[str, typer.Option(help="cifar10, cifar100, digits, or FILE.PY:NAME.")]
Model = Annotated[
    str | None, typer.Option(help=f"{MODELS}.", show_default="resnet20, or small for digits")
]
Replicas = Annotated[
    int | None, typer.Option(min=1, metavar="P", help="Networks.", show_default="10; digits 4")
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Of each network.", show_default="500; digits 120"),
]
Rate = Annotated[
    str | None, typer.Option(metavar="COLD HOT", help="Per mean loss; one number without a ladder.")
]
Momentum = Annotated[float, typer.Option(help="Of SGD.")]
WeightDecay = Annotated[float, typer.Option(help="Of the Gaussian prior, per mean loss.")]
BatchSize = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Images.", show_default="256; digits 64")
]
Bf16 = Annotated[bool, typer.Option("--bf16", help="Convolutions in bfloat16.")]
Augment = Annotated[
    bool | None,
    typer.Option(help="Crop, flip and erase training images.", show_default="on for CIFAR"),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where CIFAR is.", show_default="$REPLICAX_DATA"),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch CIFAR if it is not there.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Decides all randomness.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The run folder.", show_default="runs/METHOD-1, -2, ..."),
]
Progress = Annotated[
    bool | None,
    typer.Option(help="Show every epoch on stderr; by default where a terminal is attached."),
]


def train(
    model: Model = None,
    data: Data = "digits",
    method: Annotated[
        str, typer.Option(help="deo-star, deo, ensemble, sgld, cyc-sghmc or cyc-swag.")
    ] = "deo-star",
    replicas: Replicas = None,
    epochs: Epochs = None,
    learning_rate: Rate = None,
    target_swap_rate: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="How often pairs should agree.", show_default="0.005; digits 0.1"
        ),
    ] = None,
    window: Annotated[
        int | None, typer.Option(metavar="W", help="Steps of a window.", show_default="Theorem 1")
    ] = None,
    init_from: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Start from the last networks of a run."),
    ] = None,
    momentum: Momentum = 0.9,
    weight_decay: WeightDecay = 5e-4,
    temperature: Annotated[
        float | None,
        typer.Option(help="Of the posterior; 0: no noise.", show_default="the method's"),
    ] = None,
    batch_size: BatchSize = None,
    bf16: Bf16 = False,
    augment: Augment = None,
    unit: Annotated[str, typer.Option(help="Of energies: mean or total.")] = "mean",
    burn_in: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Epochs before the average.", show_default="0; digits 40, or a third"
        ),
    ] = None,
    cycle_epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Of the methods in cycles.")
    ] = 100,
    on_swap: Annotated[str, typer.Option(help="keep the momentum, or reset it.")] = "keep",
    on_nonfinite: Annotated[
        str | None,
        typer.Option(
            help="restart a broken network from a colder one, or stop.",
            show_default="restart; stop without a ladder",
        ),
    ] = None,
    keep_networks: Annotated[
        bool, typer.Option("--keep-networks", help="Store the coldest network of every epoch.")
    ] = False,
    data_dir: DataDir = None,
    download: Download = False,
    seed: Seed = 0,
    out: Out = None,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Sample networks by replica exchange, or by a baseline, and average what they say.

    Networks on hot rungs explore with large learning rates, the coldest one is averaged epoch by
    epoch. Without options: scikit-learn's digits, a small network, four replicas; a minute or two
    on two cores. The data sets are not part of replicax: CIFAR is read from its official archives.

    \b
    Example
      replicax train
      replicax pretrain --data cifar100 --bf16 --out runs/starts
      replicax train --data cifar100 --bf16 --init-from runs/starts
      replicax evaluate runs/deo-star-1

    FILE.PY:NAME may be an rx.nn.Network, or a function of the data set that returns one, and for
    data an rx.data.Dataset, or a function that returns one. Exit codes are those of `sample`;
    `replicax resume RUN_DIR` goes on.
    """
    usual = DEFAULTS.get(data, DEFAULTS["cifar100"])
    rate = read_numbers("--learning-rate", learning_rate)
    if rate is None and method in ("deo-star", "deo"):
        rate = usual.get("learning_rate")
    if burn_in is None:
        burn_in = min(usual.get("burn_in", 0), (epochs or usual["epochs"]) // 3)
    given = {
        "method": method,
        "num_replicas": replicas,
        "epochs": epochs,
        "learning_rate": rate,
        "target_swap_rate": target_swap_rate,
        "burn_in": burn_in,
        "window": window,
        "momentum": momentum,
        "temperature": temperature,
        "cycle_epochs": cycle_epochs,
        "on_swap": on_swap,
        "on_nonfinite": on_nonfinite,
        "keep_networks": keep_networks,
        "average_starts": init_from is not None,
        "seed": seed,
    }
    task = _task(model, data, batch_size, augment, bf16, weight_decay, unit, data_dir, download)
    return _train(task, usual, given, init_from, out, progress, as_json)


def pretrain(
    model: Model = None,
    data: Data = "digits",
    replicas: Replicas = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Of each network.")] = 300,
    learning_rate: Annotated[float, typer.Option(help="At first.")] = 0.1,
    momentum: Momentum = 0.9,
    weight_decay: WeightDecay = 5e-4,
    batch_size: BatchSize = None,
    bf16: Bf16 = False,
    augment: Augment = None,
    data_dir: DataDir = None,
    download: Download = False,
    seed: Seed = 0,
    out: Out = None,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Train distinct networks from nothing, for `replicax train --init-from`.

    Momentum SGD whose learning rate falls to a fifth after 70 % of the epochs, and to a fifth of
    that after 90 %: the paper's settings.

    \b
    Example
      replicax pretrain --data cifar100 --bf16 --out runs/starts
    """
    usual = DEFAULTS.get(data, DEFAULTS["cifar100"])
    given = {
        "method": "pretrain",
        "num_replicas": replicas,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "seed": seed,
    }
    task = _task(model, data, batch_size, augment, bf16, weight_decay, "mean", data_dir, download)
    return _train(task, usual, given, None, out, progress, as_json)


def evaluate(
    run_dir: RunDir,
    outside: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Other images, which networks should be unsure about."),
    ] = None,
    data_dir: DataDir = None,
    figures: Annotated[bool, typer.Option(help="Draw figures into RUN_DIR/figures.")] = True,
    as_json: Json = False,
) -> int:
    """How good the networks of a run are, alone and averaged.

    Accuracy, negative log-likelihood, Brier score and calibration on the test images, at the end
    of the run, by mean probabilities and by mean logits; with --outside, how well the entropy of
    predictions tells other images (of the same size) from those of the test.

    \b
    Example
      replicax evaluate runs/deo-star-1
      replicax evaluate runs/deo-star-1 --outside cifar10 --json
    """
    from replicax.networks import summary as training_report

    trained = _load(run_dir)
    with parts.quietly(as_json):
        held = training_report.summarise(trained)
        if outside is not None:
            held["outside"] = _judge_outside(trained, outside, data_dir)
        if figures:
            trained.plot(run_dir / "figures")
    if as_json:
        parts.print_json(held)
    else:
        parts.print_tables(training_report.render(held))
        if figures:
            typer.echo(f"Figures are in {run_dir / 'figures'}{os.sep}")
    return FINISHED


def resume(run_dir: Path, epochs: int | None, progress: bool | None, as_json: bool) -> int:
    """`replicax resume` for a folder of `replicax train`."""
    from replicax.networks.train import resume_training

    task, finished = read_task(run_dir), parts.read_run_file(run_dir).get("result", {})
    with parts.quietly(as_json):
        problem, _ = task.problem()
        trained = resume_training(run_dir, problem, epochs=epochs, progress=progress)
    if epochs is None and finished.get("code") == "finished":
        typer.echo("All epochs were done before; --epochs N makes the run longer.", err=True)
    return finish(trained, as_json)


def read_task(run_dir: Path) -> Task:
    """The network and the data of a run folder."""
    task = parts.read_run_file(run_dir).get("note", {}).get("task")
    if task is None:
        raise ValueError(
            f"{run_dir} does not say what it trained (was it started in Python?); go on there with "
            "rx.resume_training(run_dir, problem)."
        )
    return Task(**task)


def _task(model, data, batch_size, augment, bf16, weight_decay, unit, data_dir, download) -> Task:
    usual = DEFAULTS.get(data, DEFAULTS["cifar100"])
    return Task(
        model=absolute(model or usual["model"]),
        data=absolute(data),
        data_dir=None if data_dir is None else str(data_dir.expanduser().absolute()),
        download=download,
        batch_size=batch_size or usual["batch_size"],
        augment=(data in AUGMENTED or ":" in data) if augment is None else augment,
        bf16=bf16,
        weight_decay=weight_decay,
        unit=unit,
        directory=os.getcwd(),
    )


def _train(
    task: Task,
    usual: dict[str, Any],
    given: dict[str, Any],
    init_from: Path | None,
    out: Path | None,
    progress: bool | None,
    as_json: bool,
) -> int:
    """Run with what was given, and where nothing was, with what is usual for the data."""
    from replicax.errors import choose
    from replicax.networks import train as training
    from replicax.networks.methods import METHODS

    choose("--method", given["method"], METHODS)
    if out is not None:
        parts.check_holds_no_run(out)
    if init_from is not None:
        parts.read_run_file(init_from)
    filled = {
        name: usual.get(name) if value is None and name != "learning_rate" else value
        for name, value in given.items()
    }
    with parts.quietly(as_json):
        problem, init = task.problem()
        trained = training.train(
            problem,
            init if init_from is None else init_from,
            run_dir=parts.fresh_folder(given["method"]) if out is None else out,
            progress=progress,
            note={"task": task.to_json()},
            **{name: value for name, value in filled.items() if value is not None},
        )
    return finish(trained, as_json)


def _load(run_dir: Path) -> Any:
    import replicax as rx
    from replicax.networks.trained import Trained

    parts.read_run_file(run_dir)
    trained = rx.load(run_dir)
    if not isinstance(trained, Trained):
        raise ValueError(f"{run_dir} holds no networks; `replicax summary {run_dir}` looks at it.")
    return trained


def _judge_outside(trained: Any, outside: str, data_dir: Path | None) -> dict[str, Any]:
    from replicax.networks import summary as training_report

    task = read_task(trained.run_dir)
    problem, _ = task.problem()
    other = Task(**{**task.to_json(), "data": absolute(outside)})
    if data_dir is not None:
        other = Task(**{**other.to_json(), "data_dir": str(data_dir.expanduser().absolute())})
    return {"data": outside, **training_report.judge_outside(trained, problem, other.dataset())}
