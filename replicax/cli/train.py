"""The commands `replicax train` and `replicax pretrain`."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import arguments, networks, output


def train(
    model: networks.Model = None,
    data: networks.Data = "digits",
    method: Annotated[
        str,
        typer.Option(
            help="Method: deo-star, deo, sghmc-pt, ensemble, sgld, cyc-sghmc or cyc-swag."
        ),
    ] = "deo-star",
    replicas: networks.Replicas = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Epochs of each network.",
            show_default="500; digits, FILE.npz: 120",
        ),
    ] = None,
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="COLD HOT",
            help="Coldest and hottest learning rate; one number for methods without a ladder.",
        ),
    ] = None,
    target_swap_rate: Annotated[
        float | None,
        typer.Option(
            metavar="S", help="Target swap rate per step.", show_default="0.005; digits: 0.1"
        ),
    ] = None,
    window: arguments.Window = None,
    init_from: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Start from the last networks of a run."),
    ] = None,
    momentum: networks.Momentum = 0.9,
    weight_decay: networks.WeightDecay = 5e-4,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Kernel: momentum, sghmc, sgld or preconditioned.", show_default="the method's"
        ),
    ] = None,
    rate_schedule: Annotated[
        str | None,
        typer.Option(
            help="Learning rate over time: constant, cosine, cyclical or stepwise.",
            show_default="the method's",
        ),
    ] = None,
    warmup_epochs: Annotated[
        float, typer.Option(metavar="N", help="Epochs of warm-up before a cosine schedule.")
    ] = 0.0,
    clip_norm: Annotated[
        float | None, typer.Option(metavar="L", help="Clip gradients to this norm.")
    ] = None,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="COLD HOT",
            help="Temperature of the coldest network, or of both ends of the ladder; 0: no noise.",
            show_default="the method's",
        ),
    ] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Swap schedule, as in `replicax sample`.", show_default="the method's"),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Swap rule: deterministic, bias_corrected or metropolis.",
            show_default="the method's",
        ),
    ] = None,
    swap_every: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Steps between swap attempts.", show_default="1; sghmc-pt: 10"
        ),
    ] = None,
    swap_energy: Annotated[
        str, typer.Option(help="sghmc-pt: decide swaps on a batch, or full: on all training rows.")
    ] = "batch",
    adapt: Annotated[
        bool | None, typer.Option(help="Adapt ladder and buffer.", show_default="on")
    ] = None,
    batch_size: networks.BatchSize = None,
    bf16: networks.Bf16 = False,
    augment: networks.Augment = None,
    noise: networks.Noise = None,
    likelihood: networks.Likelihood = None,
    unit: Annotated[str, typer.Option(help="Unit of energies: mean (per row) or total.")] = "mean",
    burn_in: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Epochs before the average begins.",
            show_default="0; digits: 40, at most a third",
        ),
    ] = None,
    cycle_epochs: Annotated[
        int, typer.Option(min=1, metavar="N", help="Epochs per cycle of cyclical methods.")
    ] = 100,
    on_swap: Annotated[
        str, typer.Option(help="Momentum of a network that swaps: keep or reset.")
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
    keep_averaged: Annotated[
        int,
        typer.Option(
            min=0, metavar="N", help="Largest number of averaged networks to keep for predictions."
        ),
    ] = 100,
    validation: networks.Validation = 0,
    data_dir: networks.DataDir = None,
    download: networks.Download = False,
    seed: arguments.Seed = 0,
    out: networks.Out = None,
    checkpoint_every: arguments.CheckpointEvery = None,
    keep_checkpoints: arguments.KeepCheckpoints = 2,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    coordinator: arguments.Coordinator = None,
    num_processes: arguments.NumProcesses = None,
    process_id: arguments.ProcessId = None,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
) -> int:
    """Sample networks and average their predictions.

    Networks on hot rungs explore with large learning rates and exchange rungs with their
    neighbours; the predictions of the coldest one are averaged over epochs. Without options,
    four small networks train on scikit-learn's digits, in a minute or two on two cores. CIFAR is
    not part of replicax; it is read from its official archives.

    \b
    Example
      replicax train
      replicax pretrain --data cifar100 --bf16 --out runs/starts
      replicax train --data cifar100 --bf16 --init-from runs/starts
      replicax train --data houses.npz --model mlp-50-50 --noise learned
      replicax evaluate runs/deo-star-1

    For --model, FILE.PY:NAME is an rx.nn.Network or a function of the data set that returns one;
    for --data, an rx.data.Dataset, a dict of arrays like those of FILE.npz, or a function that
    returns one. With targets instead of labels, networks predict real numbers. Exit codes are
    those of `replicax sample`. Continue a run with `replicax resume RUN_DIR`.
    """
    given = locals()
    output.join_processes(coordinator, num_processes, process_id)
    return networks.start(given)


def pretrain(
    model: networks.Model = None,
    data: networks.Data = "digits",
    replicas: networks.Replicas = None,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Of each network.")] = 300,
    learning_rate: Annotated[float, typer.Option(help="Initial learning rate.")] = 0.1,
    momentum: networks.Momentum = 0.9,
    weight_decay: networks.WeightDecay = 5e-4,
    batch_size: networks.BatchSize = None,
    bf16: networks.Bf16 = False,
    augment: networks.Augment = None,
    noise: networks.Noise = None,
    likelihood: networks.Likelihood = None,
    validation: networks.Validation = 0,
    data_dir: networks.DataDir = None,
    download: networks.Download = False,
    seed: arguments.Seed = 0,
    out: networks.Out = None,
    checkpoint_every: arguments.CheckpointEvery = None,
    keep_checkpoints: arguments.KeepCheckpoints = 2,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
) -> int:
    """Train start networks for `replicax train --init-from`.

    Independent networks from scratch, by momentum SGD with the paper's settings: the learning
    rate is divided by 5 after 70 % of the epochs, and again after 90 %.

    \b
    Example
      replicax pretrain --data cifar100 --bf16 --out runs/starts
    """
    return networks.start({**locals(), "method": "pretrain"})
