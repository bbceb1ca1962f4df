"""The commands about the paper: `replicax demo` and `plan`."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import flags, output
from replicax.cli.flags import Json, read_numbers
from replicax.run.options import Sampling

_DEFAULT_OUT = Path("replicax-demo")


@flags.of(Sampling, names=("seed",), seed=0)
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for all results.")
    ] = _DEFAULT_OUT,
    plots: Annotated[bool, typer.Option(help="Draw figures.")] = True,
    as_json: Json = False,
    **given: int,
) -> int:
    """Sample a posterior with 25 modes by the default call, beside the paper's DEO*-SGD.

    The modes are far apart and the true masses are known. The default call sees exact energies and
    goes on until it is done; the paper's method, with the settings of its section 5.1, sees noisy
    ones. Draws and records of the default call, summary.json and figures are written to one folder.
    An earlier demo in that folder is replaced.

    \b
    Example
      replicax demo
      replicax summary replicax-demo
    """
    from replicax import demo

    with output.quietly(as_json):
        runs = demo.run_demo(out, given["seed"])
        compared = {name: demo.compare_with_truth(run) for name, run in runs.items()}
        figures = demo.plot_demo(runs, out / "figures") if plots else []
    extra = {"demo": compared, "figures": [str(path) for path in figures]}
    return output.finish(runs[demo.DEFAULT], as_json, extra, demo.render(compared))


def plan(
    num_replicas: Annotated[
        int, typer.Option("--replicas", metavar="P", help="Number of replicas.")
    ],
    target_swap_rate: Annotated[
        float, typer.Option("--swap-rate", metavar="S", help="Target swap rate.")
    ],
    energy_noise_std: Annotated[
        str | None,
        typer.Option(
            "--noise-std",
            metavar="X",
            help="Standard deviation of the energy noise, or one per pair.",
        ),
    ] = None,
    temperatures: Annotated[
        str | None,
        typer.Option(metavar="COLD HOT", help="Coldest and hottest temperature, or one per rung."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict window and round trips of a ladder from theory.

    Prints the best window (by Theorem 1, and exactly) and the time of a round trip, from the
    coldest rung to the hottest and back, under ADJ, SEO, DEO and DEO*. With the energy noise and
    the temperatures, also the optimal number of replicas.

    \b
    Example
      replicax plan --replicas 16 --swap-rate 0.4
      replicax plan --replicas 10 --swap-rate 0.2 --noise-std 3 --temperatures 1 10
    """
    from replicax.theory import planner

    prediction = planner.plan(
        num_replicas,
        target_swap_rate,
        energy_noise_std=read_numbers("--noise-std", energy_noise_std),
        temperatures=read_numbers("--temperatures", temperatures),
    )
    output.show(prediction, as_json, planner.render)
