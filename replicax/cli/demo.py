"""The command `replicax demo`: sample and plot the paper's posterior with 25 modes."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import output
from replicax.cli.arguments import Json, Seed
from replicax.errors import at_least

_DEFAULT_OUT = Path("replicax-demo")


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder for all results.")
    ] = _DEFAULT_OUT,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of every replica.")] = 20000,
    chains: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of independent chains.")
    ] = 4,
    seed: Seed = 0,
    plots: Annotated[bool, typer.Option(help="Draw figures.")] = True,
    as_json: Json = False,
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

    at_least("--steps", steps, demo.SETTINGS["burn_in"] + 1)
    with output.quietly(as_json):
        posterior = demo.run_demo(out, steps, chains, seed)
        accuracy = demo.compare_with_truth(posterior)
        figures = demo.plot_demo(posterior, out / "figures") if plots else []
    extra = {"demo": accuracy, "figures": [str(path) for path in figures]}
    return output.finish(posterior, as_json, extra, demo.render(accuracy))
