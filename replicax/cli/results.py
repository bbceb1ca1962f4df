"""The commands that examine a run: `summary`, `plot` and `report`."""

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicax.cli import folders, output
from replicax.cli.flags import Json, RunDir

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


def summary(run_dir: RunDir, as_json: Json = False) -> None:
    """Print the diagnostics of a run.

    These are round trips (without any, modes may be missing), how often the rule accepts and each
    pair swaps, the ladder and the buffer, and mean, standard deviation, R-hat and effective
    sample size of every parameter.

    For networks: the scores on the test data after the last epoch, of single networks and of
    averages.

    \b
    Example
      replicax summary runs/energy-1
      replicax summary runs/energy-1 --json | jq .round_trips
    """
    with output.quietly(as_json):
        posterior = _load(run_dir)
        numbers = posterior.summary()
    output.show_summary(numbers, as_json)


def plot(
    run_dir: RunDir,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for figures.", show_default="RUN_DIR/figures"),
    ] = None,
    var_names: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Parameters to draw: mu, or 'mu,theta[3]'."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Draw the figures of a run.

    They show the ladder and its swap rates, the buffer, the paths of the replicas along the
    ladder, their round trips, and the draws.

    \b
    Example
      replicax plot runs/energy-1 --out figures
    """
    folder = run_dir / "figures" if out is None else out
    chosen = {} if var_names is None else {"var_names": re.split(r",\s*(?![^\[]*\])", var_names)}
    with output.quietly(as_json):
        posterior = _load(run_dir)
        if chosen and "networks" in type(posterior).__module__:
            raise ValueError("--var-names chooses draws, of which a training has no figure.")
        figures = posterior.plot(folder, **chosen)
    paths = [str(folder / f"{name}.png") for name in figures]
    if as_json:
        output.print_json({"figures": paths})
    else:
        typer.echo("\n".join(paths))


def report(
    run_dir: RunDir,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file.", show_default="RUN_DIR/report.html"),
    ] = None,
    every: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", help="Write it again until the run ends, and reload it."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML page about a run.

    It shows warnings with remedies, the numbers by which a run is done over time, the draws, the
    ladder, its rates and the paths of replicas, round trips compared with Lemma 1; for networks,
    the epochs and the calibration. The page works offline. With --every it follows a run that goes
    on, as of its latest checkpoint (see --checkpoint-every); the run is not disturbed.

    \b
    Example
      replicax report runs/energy-1
      replicax report runs/energy-1 --every 30
    """
    # The accelerator is left to the run: JAX would take most of its memory.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    with output.quietly(as_json):
        posterior = _load(run_dir)
        path = posterior.report(out, every)
    if as_json:
        output.print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))
    while every is not None and posterior.result.code == "running":
        time.sleep(every)
        # The run may be writing; a little later all is well.
        with output.quietly(as_json), contextlib.suppress(ValueError, OSError):
            posterior = _load(run_dir)
            posterior.report(out, every)


def _load(run_dir: Path) -> "Posterior":
    import replicax as rx

    folders.read_metadata(run_dir)
    return rx.load(run_dir)
