"""The program `replicax`: its commands and the entry point.

A command imports heavy modules only when it runs, so that `--help` stays fast.
"""

import sys
from typing import Annotated, Any

import typer

from replicax.cli import flags, launch, output, paper, predict, results, resume, sample, train
from replicax.cli.output import FAULTY_INPUT, FINISHED, INTERRUPTED
from replicax.errors import EndedBySignal
from replicax.version import __version__

app = typer.Typer(
    add_completion=False,
    context_settings={"max_content_width": 100},
    rich_markup_mode=None,  # importing rich for the help page takes longer than everything else
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"replicax {__version__}")
        raise typer.Exit


@app.callback()
def replicax(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print the Python traceback of an error.")
    ] = False,
) -> None:
    """Replica exchange (parallel tempering) with mini-batches, for deep networks and big data.

    Several replicas sample the same energy, each on one rung of a ladder. Cold rungs sample
    precisely, hot rungs explore, and neighbouring rungs swap their replicas. The states on the
    coldest rung are draws from the posterior.

    \b
    Start with
      replicax demo                                    sample and plot a posterior with 25 modes
      replicax plan --replicas 16 --swap-rate 0.4      predict the round trips of a ladder
      replicax sample model.py:energy --chains 4       sample exp(-energy), with nothing to tune
    Networks
      replicax train                                   four small networks on digits, two minutes
      replicax train --data cifar100                   ResNets on CIFAR: the paper and baselines
      replicax predict RUN_DIR images.npy              predict new images, with uncertainty
    After a run
      replicax summary, plot, resume RUN_DIR           examine a run, or continue it
      replicax report RUN_DIR                          HTML page of a run, also while it goes on
    On several devices
      replicax launch --processes 2 -- COMMAND         processes that share one run

    If the input is wrong, the command prints one line with the remedy and exits with code 2.
    """


for function in (
    paper.demo, paper.plan, sample.sample, resume.resume, train.train, launch.launch,
    results.summary, results.plot, results.report, predict.predict,
):  # fmt: skip
    app.command(cls=flags.Command)(function)


def main(args: list[str] | None = None) -> int:
    """Run the command that `args` name; print an error as one line and return the exit code."""
    args = sys.argv[1:] if args is None else args
    with_traceback = "--traceback" in args
    args = [arg for arg in args if arg != "--traceback"]
    try:
        return app(args or ["--help"], prog_name="replicax", standalone_mode=False) or FINISHED
    except flags.InterruptedByUser:
        output.print_error("Interrupted. Everything saved so far is kept.")
        return INTERRUPTED
    except EndedBySignal:
        raise
    except SystemExit as error:  # not ours: its code could be taken for one of ours
        output.print_error(f"The user's code calls sys.exit({error.code!r}): leave that out.")
        return FAULTY_INPUT
    except (ValueError, OSError, ImportError, output.UsageError) as error:
        if with_traceback:
            raise
        sentence = output.describe_error(error)
        output.print_error(output.as_written(sentence, _options_of(args)))
        return FAULTY_INPUT


def _options_of(args: list[str]) -> dict[str, str]:
    """Return the options of the command that was called, by their names in Python."""
    known: Any = typer.main.get_command(app)
    command = known.commands.get(next((arg for arg in args if arg in known.commands), ""))
    return {} if command is None else {p.name: p.opts[0] for p in command.params}


if __name__ == "__main__":
    sys.exit(main())
