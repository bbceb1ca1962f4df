"""The commands `replicax train` and `replicax pretrain`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import arguments, flags, networks, output
from replicax.run.methods import Method
from replicax.run.options import Training

_OF_PRETRAIN = ("num_replicas", "epochs", "seed", "checkpoint_every", "learning_rate", "clip_norm")


@flags.of(Training, Method)
def train(
    model: networks.Model = None,
    data: networks.Data = "digits",
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Method: deo-star, deo, sghmc-pt, ensemble, sgld, cyc-sghmc or cyc-swag.",
            rich_help_panel=arguments.METHOD,
        ),
    ] = "deo-star",
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Start from the last networks of a run.",
            rich_help_panel=arguments.DATA,
        ),
    ] = None,
    batch_size: networks.BatchSize = None,
    weight_decay: networks.WeightDecay = 5e-4,
    bf16: networks.Bf16 = False,
    augment: networks.Augment = None,
    noise: networks.Noise = None,
    likelihood: networks.Likelihood = None,
    validation: networks.Validation = 0,
    data_dir: networks.DataDir = None,
    download: networks.Download = False,
    out: networks.Out = None,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
    **given: Any,
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
    own = locals()
    output.join_processes()
    return networks.start(method, {**own, **given})


@flags.of(Training, Method, names=_OF_PRETRAIN, epochs=300, learning_rate="0.1")
def pretrain(
    model: networks.Model = None,
    data: networks.Data = "digits",
    batch_size: networks.BatchSize = None,
    weight_decay: networks.WeightDecay = 5e-4,
    bf16: networks.Bf16 = False,
    augment: networks.Augment = None,
    noise: networks.Noise = None,
    likelihood: networks.Likelihood = None,
    validation: networks.Validation = 0,
    data_dir: networks.DataDir = None,
    download: networks.Download = False,
    out: networks.Out = None,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
    **given: Any,
) -> int:
    """Train start networks for `replicax train --init-from`.

    Independent networks from scratch, by momentum SGD with the paper's settings: the learning
    rate is divided by 5 after 70 % of the epochs, and again after 90 %.

    \b
    Example
      replicax pretrain --data cifar100 --bf16 --out runs/starts
    """
    own = locals()
    output.join_processes()
    return networks.start("pretrain", {**own, **given})
