"""The commands that examine a run: `summary`, `plot` and `report`."""

import contextlib
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replicax.cli import flags, folders, output
from replicax.cli.flags import Json, RunDir
from replicax.networks.by_name import NamedProblem, absolute

if TYPE_CHECKING:
    from replicax.results.posterior import Posterior


@flags.of(NamedProblem, names=("data_dir",))
def summary(
    run_dir: RunDir,
    outside: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="A data set that the networks were not trained for."),
    ] = None,
    model: flags.ModelAgain = None,
    data: flags.DataAgain = None,
    likelihood: flags.LikelihoodAgain = None,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Print the diagnostics of a run.

    These are round trips (without any, modes may be missing), how often the rule accepts and each
    pair swaps, the ladder and the buffer, and mean, standard deviation, R-hat and effective
    sample size of every parameter.

    For networks: the scores on the test data after the last epoch, of single networks and of
    averages; with --outside, also how well the uncertainty of the average, its entropy or the
    disagreement of its networks, separates other images of the same size from the test images.

    \b
    Example
      replicax summary runs/energy-1
      replicax summary runs/energy-1 --json | jq .round_trips
      replicax summary runs/deep-ensemble-1 --outside cifar10
    """
    with output.quietly(as_json):
        posterior = _load(run_dir)
        numbers: dict[str, Any] = posterior.summary()
        if outside is not None:
            instead = "leave out --outside"
            named = folders.read_named(
                run_dir, "summary", model, data, instead, likelihood=likelihood
            )
            numbers["outside"] = _evaluate_outside(named, posterior, outside, given["data_dir"])
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


def _evaluate_outside(
    named: NamedProblem, trained: Any, outside: str, data_dir: str | None
) -> dict[str, Any]:
    """Return how well the networks of a run tell another data set from that of the run."""
    from replicax.networks.report import score_outside

    if "logits" not in getattr(trained.likelihood, "ways", ()):
        raise ValueError(f"--outside is {outside!r}, and the run has no classes: leave it out.")
    problem, _ = named.problem()
    folder = folders.absolute_folder(data_dir) or named.data_dir
    other = replace(named, data=absolute(outside), data_dir=folder, validation=0).dataset()
    images = other.test_images if hasattr(other, "test_images") else (other.test or other.train)[0]
    return {"data": outside, **score_outside(trained, problem, images)}
