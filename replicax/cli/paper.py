"""The commands about the paper: `replicax demo`, `plan` and `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import flags, output
from replicax.cli.flags import Json, read_numbers
from replicax.errors import at_least
from replicax.run.options import Sampling

_DEFAULT_OUT = Path("replicax-demo")


@flags.of(
    Sampling, names=("num_steps", "num_chains", "seed"), num_steps=20000, num_chains=4, seed=0
)
def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for all results.")
    ] = _DEFAULT_OUT,
    plots: Annotated[bool, typer.Option(help="Draw figures.")] = True,
    as_json: Json = False,
    **given: int,
) -> int:
    """Sample a posterior with 25 modes by DEO*-SGD with 16 replicas.

    This is the toy of the paper's section 5.1 with its settings: energies and gradients are noisy,
    the modes are far apart, and the true masses are known. Draws, records, summary.json and
    figures are written to one folder. An earlier demo in that folder is replaced.

    \b
    Example
      replicax demo --out demo-run
      replicax resume demo-run --steps 40000
    """
    from replicax import demo

    at_least("--chains", given["num_chains"], 1)  # before an earlier demo is removed
    at_least("--steps", given["num_steps"], demo.SETTINGS["burn_in"] + 1)
    with output.quietly(as_json):
        posterior = demo.run_demo(out, given["num_steps"], given["num_chains"], given["seed"])
        accuracy = demo.compare_with_truth(posterior)
        figures = demo.plot_demo(posterior, out / "figures") if plots else []
    extra = {"demo": accuracy, "figures": [str(path) for path in figures]}
    return output.finish(posterior, as_json, extra, demo.render(accuracy))


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
    num_params: Annotated[
        int | None,
        typer.Option(
            "--params", metavar="N", help="Number of model parameters, to estimate the memory."
        ),
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
        num_replicas,
        target_swap_rate,
        energy_noise_std=read_numbers("--noise-std", energy_noise_std),
        temperatures=read_numbers("--temperatures", temperatures),
        num_params=num_params,
    )
    output.show(prediction, as_json, planner.render)


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="STUDY...", show_default=False)
    ] = None,
) -> None:
    """Tell where the paper's studies are: in the repository, not in the installed package."""
    command = " ".join(["python -m studies", *(names or ())])
    raise ValueError(
        "The paper's studies are in the folder studies of replicax's repository, which the "
        f"installed package does not contain: in a checkout or the source archive, run `{command}`."
    )
