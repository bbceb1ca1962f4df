"""The command `replicax train`."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import flags, folders, output
from replicax.errors import choose
from replicax.networks.by_name import AUGMENTED, DEFAULTS, NamedProblem, absolute
from replicax.run.methods import METHODS, Method
from replicax.run.options import Session, Training

_START_EPOCHS = 300  # of start networks, as in the paper


@flags.of(NamedProblem, Training, Method, Session, data="digits")
def train(
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Method: deep-ensemble, deo-star, deo, sghmc-pt, ensemble, sgld, cyc-sghmc, "
            "cyc-swag; or pretrain, which makes start networks for --init-from.",
            rich_help_panel=flags.METHOD,
        ),
    ] = "deep-ensemble",
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Start from the last networks of a run.",
            rich_help_panel=flags.DATA,
        ),
    ] = None,
    as_json: flags.Json = False,
    **given: Any,
) -> int:
    """Train networks and average their predictions.

    By default they are a deep ensemble: independent networks, trained to the end by a learning rate
    that a short test finds. `--method deo-star` is the paper's exchange of networks. Without
    options, four small networks train on scikit-learn's digits, in a minute or two on two cores.
    CIFAR is not part of replicax; it is read from its official archives.

    \b
    Example
      replicax train
      replicax train --data houses.npz --model mlp-50-50 --noise learned
      replicax summary runs/deep-ensemble-1
      replicax train --method pretrain --data cifar100 --bf16 --out runs/starts
      replicax train --method deo-star --data cifar100 --bf16 --init-from runs/starts

    For --model, FILE.PY:NAME is an rx.nn.Network or a function of the data set that returns one;
    for --data, an rx.data.Dataset, a dict of arrays like those of FILE.npz, or a function that
    returns one. With targets instead of labels, networks predict real numbers. Exit codes are
    those of `replicax sample`. Continue a run with `replicax resume RUN_DIR`.
    """
    output.join_processes()
    from replicax.networks.train import train

    choose("--method", method, METHODS)
    session = flags.given(Session, given)
    session["run_dir"] = folders.new_run_folder(session.get("run_dir"), method)
    if init_from is not None:
        folders.read_metadata(init_from)
    named, chosen = _named(given), _method(method, given)
    with output.quietly(as_json):
        problem, init = named.problem()
        folders.remember(named)
        start = init if init_from is None else init_from
        trained = train(
            problem, start, method=chosen, note=named.to_note(), **session, **_run(method, given)
        )
    return output.finish(trained, as_json)


def _named(given: dict[str, Any]) -> NamedProblem:
    """Return network and data, with the defaults of the data set."""
    usual, chosen = _usual(given["data"]), flags.given(NamedProblem, given)
    augment = {"augment": given["data"] in AUGMENTED or ":" in given["data"]}
    named = NamedProblem(
        **{"model": usual["model"], "batch_size": usual["batch_size"], **augment, **chosen}
    )
    return replace(
        named,
        model=absolute(named.model),
        data=absolute(named.data),
        likelihood=absolute(named.likelihood) if named.likelihood else None,
        data_dir=folders.absolute_folder(named.data_dir),
    )


def _method(name: str, given: dict[str, Any]) -> Method:
    """Return a method with the flags that were given, else the defaults of the data set."""
    usual = _usual(given["data"])
    names = []
    if name in ("deo-star", "deo"):  # a pair of rates means nothing without a ladder
        names = ["target_swap_rate", "learning_rate"]
    values = {known: usual[known] for known in names if known in usual}
    return METHODS[name](**{**values, **flags.given(Method, given)})


def _run(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the run that were given, else the defaults of the data set, or those of
    start networks, which are not averaged."""
    known = {entry.name for entry in fields(Training)}
    values = {name: x for name, x in _usual(given["data"]).items() if name in known}
    if name == "pretrain":
        values["epochs"] = _START_EPOCHS
        values.pop("burn_in", None)
    values |= flags.given(Training, given)
    if given["burn_in"] is None and "burn_in" in values:
        values["burn_in"] = min(values["burn_in"], values["epochs"] // 3)
    return values


def _usual(data: str) -> dict[str, Any]:
    return DEFAULTS[".npz"] if data.endswith(".npz") else DEFAULTS.get(data, DEFAULTS["cifar100"])
