"""The command `replicax plan`: theory about a ladder before it runs."""

from typing import Annotated

import typer

from replicax.cli import output
from replicax.cli.arguments import Json, read_numbers


def plan(
    replicas: Annotated[int, typer.Option(metavar="P", help="Number of replicas.")],
    swap_rate: Annotated[float, typer.Option(metavar="S", help="Target swap rate.")],
    noise_std: Annotated[
        str | None,
        typer.Option(metavar="X", help="Standard deviation of the energy noise, or one per pair."),
    ] = None,
    temperatures: Annotated[
        str | None,
        typer.Option(metavar="COLD HOT", help="Coldest and hottest temperature, or one per rung."),
    ] = None,
    params: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of model parameters, to estimate the memory."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict window and round trips of a ladder from theory.

    Prints the best window (by Theorem 1, and exactly) and the time of a round trip, from the
    coldest rung to the hottest and back, under ADJ, SEO, DEO and DEO*. With the energy noise and
    the temperatures, also the optimal number of replicas.

    \b
    Example
      replicax plan --replicas 16 --swap-rate 0.4 --params 270000
      replicax plan --replicas 10 --swap-rate 0.2 --noise-std 3 --temperatures 1 10
    """
    from replicax.theory import planner

    prediction = planner.plan(
        replicas,
        swap_rate,
        energy_noise_std=read_numbers("--noise-std", noise_std),
        temperatures=read_numbers("--temperatures", temperatures),
        num_params=params,
    )
    output.show(prediction, as_json, planner.render)
