"""The program `replicax`. Nothing heavy is imported before a command needs it: help is quick."""

import functools
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import reproduce as cli_reproduce
from replicax.cli import sample as cli_run
from replicax.cli import shared as parts
from replicax.cli import train as cli_train
from replicax.cli.shared import FAULTY_INPUT, FINISHED, INTERRUPTED, Json, RunDir, read_numbers
from replicax.version import __version__

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # rich's own help page takes longer to import than all else here
    pretty_exceptions_enable=False,
)
command = functools.partial(app.command, cls=parts.Command)
_DEMO = Path("replicax-demo")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"replicax {__version__}")
        raise typer.Exit


@app.callback()
def replicax(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show where in the code an error comes from.")
    ] = False,
) -> None:
    """Replica exchange for posteriors that only mini-batches can see.

    Many replicas walk the same landscape, each on a rung of a ladder from cold (precise) to hot
    (bold), and neighbours swap rungs. What the coldest rung sees is the posterior.

    \b
    Start with
      replicax demo                                    25 modes, sampled and plotted
      replicax plan --replicas 16 --swap-rate 0.4      what to expect of a ladder
      replicax sample model.py:energy --learning-rate 0.003 0.6
    Networks
      replicax train                                   digits, four small networks, two minutes
      replicax pretrain, train, evaluate               ResNets on CIFAR, the paper's and baselines
    Then
      replicax summary, plot, resume RUN_DIR           look at a run, or go on with it
    The paper
      replicax reproduce                               its studies, numbers beside the paper's

    Wrong input ends with one line that says what to write instead, and exit code 2.
    """


@command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where all of it goes.")] = _DEMO,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of every replica.")] = 20000,
    chains: Annotated[int, typer.Option(min=1, metavar="N", help="Independent runs.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides all randomness.")] = 0,
    plots: Annotated[bool, typer.Option(help="Draw figures.")] = True,
    preset: Annotated[
        str, typer.Option(metavar="NAME", help="modes25 (the paper's) or modes25-tempered.")
    ] = "modes25",
    as_json: Json = False,
) -> int:
    """Sample a posterior of 25 modes with DEO*-SGD and 16 replicas.

    The toy of the paper's section 5.1, with its settings: energies and gradients are noisy, the
    modes are far apart, and the truth is known. Draws, records, summary.json and figures are left
    in a folder, which an earlier demo in it makes room for.

    \b
    Example
      replicax demo --out demo-run
      replicax demo --preset modes25-tempered
      replicax resume demo-run --steps 40000
    """
    from replicax import demo as room

    with parts.quietly(as_json):
        posterior = room.run_demo(out, steps, chains, seed, preset=preset)
        judged = room.judge(posterior)
        figures = room.plot_demo(posterior, out / "figures") if plots else []
    extra = {"demo": judged, "figures": [str(path) for path in figures]}
    return parts.finish(posterior, as_json, extra, room.render(judged))


@command()
def plan(
    replicas: Annotated[int, typer.Option(metavar="P", help="Rungs of the ladder.")],
    swap_rate: Annotated[float, typer.Option(metavar="S", help="How often pairs should swap.")],
    noise_std: Annotated[
        str | None,
        typer.Option(metavar="X", help="Noise of the energy: one number, or one per pair."),
    ] = None,
    temperatures: Annotated[
        str | None, typer.Option(metavar="COLD HOT", help="The ends, or one per rung.")
    ] = None,
    params: Annotated[
        int | None, typer.Option(metavar="N", help="Parameters of the model, for its memory.")
    ] = None,
    as_json: Json = False,
) -> int:
    """What theory says of a ladder before it runs.

    The best window (Theorem 1, and exactly), how long a replica takes from the coldest to the
    hottest rung and back under ADJ, SEO, DEO and DEO*, and, where the noise of the energy and the
    temperatures are known, how many replicas are worth having.

    \b
    Example
      replicax plan --replicas 16 --swap-rate 0.4 --params 270000
      replicax plan --replicas 10 --swap-rate 0.2 --noise-std 3 --temperatures 1 10
    """
    from replicax.theory import planner as room

    answer = room.plan(
        replicas,
        swap_rate,
        energy_noise_std=read_numbers("--noise-std", noise_std),
        temperatures=read_numbers("--temperatures", temperatures),
        num_params=params,
    )
    if as_json:
        parts.print_json(answer)
    else:
        parts.print_tables(room.render(answer))
    return FINISHED


command()(cli_run.sample)
command()(cli_run.resume)
command()(cli_train.train)
command()(cli_train.pretrain)
command()(cli_train.evaluate)
command()(cli_reproduce.reproduce)


@command()
def summary(run_dir: RunDir, as_json: Json = False) -> int:
    """Numbers that say whether to believe a run.

    Round trips (none: modes may be missing), how often each pair says yes and swaps, the ladder
    and the buffer, and mean, spread, R-hat and effective size of every parameter.

    \b
    Example
      replicax summary runs/energy-1
      replicax summary runs/energy-1 --json | jq .round_trips
    """
    with parts.quietly(as_json):
        posterior = _load(run_dir)
        found = posterior.summary()
    parts.show(found, as_json)
    return FINISHED


@command()
def plot(
    run_dir: RunDir,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where they go.", show_default="RUN_DIR/figures"),
    ] = None,
    as_json: Json = False,
) -> int:
    """Draw the figures of a run.

    The ladder and its swap rates, the buffer, the paths of the replicas along the ladder, their
    round trips, and the draws.

    \b
    Example
      replicax plot runs/energy-1 --out figures
    """
    folder = run_dir / "figures" if out is None else out
    with parts.quietly(as_json):
        figures = _load(run_dir).plot(folder)
    written = [str(folder / f"{name}.png") for name in figures]
    if as_json:
        parts.print_json({"figures": written})
    else:
        typer.echo("\n".join(written))
    return FINISHED


def _load(run_dir: Path) -> Any:
    import replicax as rx

    parts.read_run_file(run_dir)
    return rx.load(run_dir)


def main(args: list[str] | None = None) -> int:
    """The entry point: errors become one line and an exit code."""
    args = sys.argv[1:] if args is None else args
    shows_traceback = "--traceback" in args
    args = [arg for arg in args if arg != "--traceback"]
    try:
        return app(args or ["--help"], prog_name="replicax", standalone_mode=False) or FINISHED
    except parts.InterruptedByUser:
        parts.complain("Interrupted. What was saved before is kept.")
        return INTERRUPTED
    except (ValueError, OSError, ImportError, parts.UsageError) as error:
        if shows_traceback:
            raise
        parts.complain(parts.describe_error(error))
        return FAULTY_INPUT


if __name__ == "__main__":
    sys.exit(main())
