"""The commands `replicax report` and `replicax watch`: a run as an HTML page."""

import contextlib
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import folders, output
from replicax.cli.arguments import Json, RunDir

Truth = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.PY:NAME",
        help="Exact draws, or a dict of true values, to compare with.",
        show_default="for the demo, its own",
    ),
]


def report(
    run_dir: RunDir,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file.", show_default="RUN_DIR/report.html"),
    ] = None,
    truth: Truth = None,
    as_json: Json = False,
) -> None:
    """Write an HTML page about a run.

    It shows warnings with remedies, draws compared with the truth if it is known, index paths, the
    ladder and pair rates over time, round trips compared with Lemma 1, traces and ranks; for
    networks, the epochs, the calibration and the most uncertain images. The page works offline.
    Writing it needs Plotly: pip install "replicax[report]".

    \b
    Example
      replicax report runs/energy-1
      replicax report runs/energy-1 --out report.html --truth model.py:true_draws
    """
    _stay_on_cpu()
    import replicax as rx

    folders.read_metadata(run_dir)
    with output.quietly(as_json):
        path = rx.report(run_dir, out, truth=_find(truth))
    if as_json:
        output.print_json({"report": str(path), "bytes": path.stat().st_size})
    else:
        typer.echo(str(path))


def watch(
    run_dir: RunDir,
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port; 0 chooses a free one.")
    ] = 8642,
    truth: Truth = None,
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
    from replicax.page.render import plotly_script
    from replicax.page.server import address, open_server
    from replicax.report_run import LivePages

    if not run_dir.is_dir():
        folders.read_metadata(run_dir)  # says what is wrong
    plotly_script()  # or says what to install
    with output.quietly(as_json):
        pages = LivePages(run_dir, _find(truth))
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


def _find(name: str | None) -> Any:
    """Return the truth of a built-in target by name, or the object FILE.PY:NAME."""
    if name is None or ":" not in name:
        return name
    from replicax.user_code import find_object

    return find_object(name, os.getcwd())
