"""The commands that examine a run: `replicax summary`, `plot` and `evaluate`."""

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import folders, output
from replicax.cli.arguments import Json, RunDir
from replicax.cli.networks import DataDir, absolute_folder, read_named
from replicax.networks.named import absolute


def summary(run_dir: RunDir, as_json: Json = False) -> None:
    """Print the diagnostics of a run.

    These are round trips (without any, modes may be missing), how often the rule accepts and each
    pair swaps, the ladder and the buffer, and mean, standard deviation, R-hat and effective
    sample size of every parameter.

    \b
    Example
      replicax summary runs/energy-1
      replicax summary runs/energy-1 --json | jq .round_trips
    """
    with output.quietly(as_json):
        numbers = _load(run_dir).summary()
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


def evaluate(
    run_dir: RunDir,
    outside: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="A data set that the networks were not trained for."),
    ] = None,
    data_dir: DataDir = None,
    figures: Annotated[bool, typer.Option(help="Draw figures into RUN_DIR/figures.")] = True,
    as_json: Json = False,
) -> None:
    """Evaluate the networks of a run on test images.

    Prints accuracy, negative log-likelihood, Brier score and calibration error after the last
    epoch, for single networks and for averages of probabilities and of logits. With --outside,
    also how well the uncertainty of the average, its entropy or the disagreement of its networks,
    separates other images (of the same size) from the test images.

    \b
    Example
      replicax evaluate runs/deo-star-1
      replicax evaluate runs/deo-star-1 --outside cifar10 --json
    """
    from replicax.networks.summary import render, summarise
    from replicax.networks.trained import Trained

    trained = _load(run_dir)
    if not isinstance(trained, Trained):
        raise ValueError(f"{run_dir} contains no networks; use `replicax summary {run_dir}`.")
    with output.quietly(as_json):
        numbers = summarise(trained)
        if outside is not None:
            numbers["outside"] = _evaluate_outside(trained, outside, data_dir)
        if figures:
            trained.plot(run_dir / "figures")
    output.show(numbers, as_json, render)
    if figures and not as_json:
        typer.echo(f"Figures are in {run_dir / 'figures'}{os.sep}")


def _load(run_dir: Path) -> Any:
    import replicax as rx

    folders.read_metadata(run_dir)
    return rx.load(run_dir)


def _evaluate_outside(trained: Any, outside: str, data_dir: Path | None) -> dict[str, Any]:
    from replicax.networks.summary import score_outside

    if "logits" not in getattr(trained.likelihood, "ways", ()):
        raise ValueError(f"--outside is {outside!r}, and the run has no classes: leave it out.")
    named = read_named(trained.run_dir)
    problem, _ = named.problem()
    folder = absolute_folder(data_dir) or named.data_dir
    other = replace(named, data=absolute(outside), data_dir=folder, validation=0).dataset()
    images = other.test_images if hasattr(other, "test_images") else (other.test or other.train)[0]
    return {"data": outside, **score_outside(trained, problem, images)}
