"""The commands that examine a run: `summary`, `plot`, `evaluate`, `report` and `watch`."""

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replicax.cli import flags, folders, output
from replicax.cli.flags import Json, RunDir
from replicax.networks.by_name import NamedProblem, absolute

if TYPE_CHECKING:
    from replicax.networks.trained import Trained
    from replicax.results.posterior import Posterior


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


@flags.of(NamedProblem, names=("data_dir",))
def evaluate(
    run_dir: RunDir,
    outside: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="A data set that the networks were not trained for."),
    ] = None,
    model: flags.ModelAgain = None,
    data: flags.DataAgain = None,
    figures: Annotated[bool, typer.Option(help="Draw figures into RUN_DIR/figures.")] = True,
    as_json: Json = False,
    **given: Any,
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
    from replicax.networks.report import render, summarise
    from replicax.networks.trained import Trained

    trained = _load(run_dir)
    if not isinstance(trained, Trained):
        raise ValueError(f"{run_dir} contains no networks; use `replicax summary {run_dir}`.")
    with output.quietly(as_json):
        numbers = summarise(trained)
        if outside is not None:
            named = folders.read_named(run_dir, "evaluate", model, data)
            numbers["outside"] = _evaluate_outside(named, trained, outside, given["data_dir"])
        if figures:
            trained.plot(run_dir / "figures")
    output.show(numbers, as_json, render)
    if figures and not as_json:
        typer.echo(f"Figures are in {run_dir / 'figures'}{os.sep}")


def report(
    run_dir: RunDir,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file.", show_default="RUN_DIR/report.html"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write an HTML page about a run.

    It shows warnings with remedies, index paths, the ladder and pair rates over time, round trips
    compared with Lemma 1, traces and ranks; for networks, the epochs and the calibration. The
    page works offline. Writing it needs Plotly: pip install "replicax[report]".

    \b
    Example
      replicax report runs/energy-1
      replicax report runs/energy-1 --out report.html
    """
    _stay_on_cpu()
    with output.quietly(as_json):
        path = _load(run_dir).report(out)
    if as_json:
        output.print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))


def watch(
    run_dir: RunDir,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 chooses a free one.")
    ] = 8642,
    as_json: Json = False,
) -> None:
    """Show a run live in the browser, until Ctrl-C.

    Serves the page of `replicax report` on this machine only, as of the latest checkpoint of the
    run (see its --checkpoint-every). The run itself is not disturbed.

    \b
    Example
      replicax watch runs/energy-1
    """
    _stay_on_cpu()
    from replicax.cli.live import LivePages
    from replicax.page.render import plotly_script
    from replicax.page.server import address, open_server

    if not run_dir.is_dir():
        folders.read_metadata(run_dir)  # says what is wrong
    plotly_script()  # or says what to install
    with output.quietly(as_json):
        pages = LivePages(run_dir)
        server = open_server(pages.page, pages.version, port)
    with server:
        place = address(server)
        if as_json:
            output.print_json({"address": place, "run_dir": str(run_dir)})
        else:
            typer.echo(f"{run_dir} is shown at {place} (Ctrl-C ends this).")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever(poll_interval=0.2)


def _stay_on_cpu() -> None:
    """Leave the accelerator to the run that is watched: JAX would take most of its memory."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")


def _load(run_dir: Path) -> "Posterior":
    import replicax as rx

    folders.read_metadata(run_dir)
    return rx.load(run_dir)


def _evaluate_outside(
    named: NamedProblem, trained: "Trained", outside: str, data_dir: str | None
) -> dict[str, Any]:
    from replicax.networks.report import score_outside

    if "logits" not in getattr(trained.likelihood, "ways", ()):
        raise ValueError(f"--outside is {outside!r}, and the run has no classes: leave it out.")
    problem, _ = named.problem()
    folder = folders.absolute_folder(data_dir) or named.data_dir
    other = replace(named, data=absolute(outside), data_dir=folder, validation=0).dataset()
    images = other.test_images if hasattr(other, "test_images") else (other.test or other.train)[0]
    return {"data": outside, **score_outside(trained, problem, images)}
