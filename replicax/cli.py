"""The program `replicax`. Nothing heavy is imported before a command needs it: help is quick."""

import contextlib
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli_parts import (
    Command,
    Interrupted,
    check_run_dir,
    find_like,
    fresh_folder,
    is_usage_error,
    numbers,
    one_line,
    plain_numbers,
    quietly,
    without_tracks,
)
from replicax.cli_target import Naming
from replicax.version import __version__

FINISHED, FAULTY_INPUT, NONFINITE, INTERRUPTED = 0, 2, 3, 130  # exit codes

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,  # rich's own help page takes longer to import than all else here
    pretty_exceptions_enable=False,
)
command = functools.partial(app.command, cls=Command)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Progress = Annotated[
    bool | None,
    typer.Option(help="A progress bar on stderr; by default where a terminal is attached."),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.")]
Params = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Where sampling starts, if not called params or start."),
]
Batches = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="The data, if not called batches: arrays, or batches(step)."),
]
BatchSize = Annotated[
    int | None, typer.Option(metavar="N", help="Rows of a mini-batch, for batches that are arrays.")
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"replicax {__version__}")
        raise typer.Exit


@app.callback()
def replicax(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Say which.")
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
    Then
      replicax summary, plot, resume RUN_DIR           look at a run, or go on with it

    Wrong input ends with one line that says what to write instead, and exit code 2.
    """


@command()
def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where all of it goes.")] = Path(
        "replicax-demo"
    ),
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Steps of every replica.")] = 20000,
    chains: Annotated[int, typer.Option(min=1, metavar="N", help="Independent runs.")] = 4,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides all randomness.")] = 0,
    plots: Annotated[bool, typer.Option(help="Draw figures.")] = True,
    as_json: Json = False,
) -> int:
    """Sample a posterior of 25 modes with DEO*-SGD and 16 replicas.

    The toy of the paper's section 5.1, with its settings: energies and gradients are noisy, the
    modes are far apart, and the truth is known. Draws, records, summary.json and figures are left
    in a folder, which an earlier demo in it makes room for.

    \b
    Example
      replicax demo --out demo-run
      replicax resume demo-run --steps 40000
    """
    from replicax import demo as room

    with quietly(as_json):
        posterior = room.run_demo(out, steps, chains, seed)
        judged = room.judge(posterior)
        figures = room.plot_demo(posterior, out / "figures") if plots else []
    extra = {"demo": judged, "figures": [str(path) for path in figures]}
    return _finish(posterior, as_json, extra, room.render(judged))


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
    from replicax import plan as room

    answer = room.plan(
        replicas,
        swap_rate,
        energy_noise_std=numbers("--noise-std", noise_std),
        temperatures=numbers("--temperatures", temperatures),
        num_params=params,
    )
    _print(answer, as_json, lambda: [room.render(answer)])
    return FINISHED


@command()
def sample(
    target: Annotated[str, typer.Argument(metavar="MODEL.PY:NAME", help="Or package.module:NAME.")],
    learning_rate: Annotated[
        str, typer.Option(metavar="COLD HOT", help="The ends, one per rung, or one for all.")
    ],
    params: Params = None,
    batches: Batches = None,
    batch_size: BatchSize = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of every replica.")] = 20000,
    replicas: Annotated[
        int | None,
        typer.Option(metavar="P", help="Rungs of the ladder.", show_default="16, or one per rate"),
    ] = None,
    chains: Annotated[int, typer.Option(metavar="N", help="Independent runs; 4 for R-hat.")] = 1,
    temperature: Annotated[
        str, typer.Option(metavar="T", help="The coldest rung's (SGD above); the ends; or all.")
    ] = "1",
    swap_rate: Annotated[
        float, typer.Option(metavar="S", help="How often the rule should say yes.")
    ] = 0.4,
    window: Annotated[
        int | None, typer.Option(metavar="W", help="Steps of a window.", show_default="Theorem 1")
    ] = None,
    schedule: Annotated[
        str,
        typer.Option(help="deo_star, deo, seo, adj, ape, exactly_one, no_gate or none."),
    ] = "deo_star",
    rule: Annotated[
        str, typer.Option(help="deterministic, metropolis or bias_corrected.")
    ] = "deterministic",
    kernel: Annotated[
        str, typer.Option(help="sgld, momentum, sghmc or preconditioned.")
    ] = "sgld",
    burn_in: Annotated[int, typer.Option(metavar="N", help="Steps before the first draw.")] = 0,
    thin: Annotated[int, typer.Option(metavar="N", help="Steps from draw to draw.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides all randomness.")] = 0,
    adapt: Annotated[
        bool | None,
        typer.Option(help="Tune ladder and buffer.", show_default="unless a rule has temperatures"),
    ] = None,
    adapt_steps: Annotated[
        int | None, typer.Option(metavar="N", help="Tune for so many steps, then freeze.")
    ] = None,
    energy_at: Annotated[
        str, typer.Option(help="Swaps see the energy of the moved state, or the one before.")
    ] = "moved",
    on_nonfinite: Annotated[
        str, typer.Option(help="At a non-finite energy: stop, or ignore it.")
    ] = "stop",
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder.", show_default="runs/NAME-1, -2, ..."),
    ] = None,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Sample exp(-energy) for an energy, or a Target, of your own.

    NAME is a function energy(params, batch, key), the last two arguments optional, or a
    replicax.Target. Beside it, the same file holds params, where sampling starts (arrays,
    rx.per_replica(...) or a function of a key), and, where the energy needs data, batches.

    \b
    Example: model.py
      import jax.numpy as jnp
      params = jnp.zeros(2)
      def energy(x):
          return jnp.sum((x**2 - 4) ** 2) / 8
    and then
      replicax sample model.py:energy --learning-rate 0.003 0.3 --replicas 8 --chains 4

    Exit codes: 0 finished; 2 wrong input; 3 an energy became non-finite (what was drawn before
    is kept); 130 stopped with Ctrl-C (all is saved, and `replicax resume RUN_DIR` goes on).
    """
    import replicax as rx

    with quietly(as_json):
        naming = Naming.from_here(target, params, batches, batch_size)
        found = naming.find()
        rates = numbers("--learning-rate", learning_rate)
        folder = fresh_folder(naming.name) if out is None else without_tracks(out)
        if adapt_steps is not None and adapt is False:
            raise ValueError("--no-adapt and --adapt-steps contradict each other; give one.")
        posterior = rx.sample(
            found.target,
            found.params,
            batches=found.batches,
            batch_size=found.batch_size,
            num_steps=steps,
            learning_rate=rates,
            num_replicas=replicas or (None if plain_numbers(rates) > 2 else 16),
            num_chains=chains,
            temperature=numbers("--temperature", temperature),
            target_swap_rate=swap_rate,
            window=window,
            schedule=schedule,
            rule=rule,
            kernel=kernel,
            adapt=adapt if adapt_steps is None else adapt_steps,
            energy_at=energy_at,
            burn_in=burn_in,
            thin=thin,
            seed=seed,
            on_nonfinite=on_nonfinite,
            run_dir=folder,
            progress=progress,
            callback=_noting(naming, folder),
        )
    return _finish(posterior, as_json)
