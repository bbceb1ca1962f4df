"""The command `replicax demo`."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import flags, output
from replicax.cli.flags import Json
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
