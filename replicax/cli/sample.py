"""The commands that run a sampler: `replicax sample` and `replicax resume`."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import shared as parts
from replicax.cli import train as cli_train
from replicax.cli.shared import Json, RunDir, finish, read_numbers
from replicax.user_code import Naming

Progress = Annotated[
    bool | None,
    typer.Option(help="A progress bar on stderr; by default where a terminal is attached."),
]
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
    kernel: Annotated[str, typer.Option(help="sgld, momentum, sghmc or preconditioned.")] = "sgld",
    burn_in: Annotated[int, typer.Option(metavar="N", help="Steps before the first draw.")] = 0,
    thin: Annotated[int, typer.Option(metavar="N", help="Steps from draw to draw.")] = 1,
    seed: Annotated[int, typer.Option(metavar="N", help="Decides all randomness.")] = 0,
    adapt: Annotated[
        bool | None,
        typer.Option(
            help="Tune ladder and buffer.", show_default="unless the rule compares temperatures"
        ),
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

    \b
    An exact energy like this one can be compared by temperature:
      replicax sample model.py:energy --chains 4 --replicas 4 \\
          --learning-rate 0.01 --temperature 1 10 --rule metropolis

    \b
    One that is seen through noise, such as mini-batches, needs no temperatures:
      replicax sample replicax.demo:target --chains 4 --learning-rate 0.003 0.6

    Exit codes: 0 finished; 2 wrong input; 3 an energy became non-finite (what was drawn before
    is kept); 130 stopped with Ctrl-C (all is saved, and `replicax resume RUN_DIR` goes on).
    """
    import replicax as rx

    if adapt_steps is not None and adapt is False:
        raise ValueError("--no-adapt and --adapt-steps contradict each other; give one of them.")
    rates = read_numbers("--learning-rate", learning_rate)
    temperatures = read_numbers("--temperature", temperature)
    if replicas is None and not any(_is_ladder(values) for values in (rates, temperatures)):
        replicas = 16
    if out is not None:
        parts.check_holds_no_run(out)
    with parts.quietly(as_json):
        naming = Naming.from_here(target, params, batches, batch_size)
        found = naming.find()
        folder = parts.fresh_folder(naming.name) if out is None else out
        posterior = rx.sample(
            found.target,
            found.params,
            batches=found.batches,
            batch_size=found.batch_size,
            num_steps=steps,
            learning_rate=rates,
            num_replicas=replicas,
            num_chains=chains,
            temperature=temperatures,
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
            callback=_note(naming, folder),
        )
    return finish(posterior, as_json)


def resume(
    run_dir: RunDir,
    steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Steps in all.", show_default="those of the run"),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="MODEL.PY:NAME", help="The target.", show_default="as before"),
    ] = None,
    params: Params = None,
    batches: Batches = None,
    batch_size: BatchSize = None,
    epochs: Annotated[
        int | None,
        typer.Option(metavar="N", help="Epochs in all, for networks.", show_default="as before"),
    ] = None,
    progress: Progress = None,
    as_json: Json = False,
) -> int:
    """Go on with a run, bit for bit as if it had never stopped.

    For a run that was interrupted or killed, or, with more --steps, for one that should be longer.
    The folder knows where its target was found; --target names it anew, for a file that has moved
    or a run that was started in Python. Exit codes are those of `replicax sample`.

    \b
    Example
      replicax resume runs/energy-1 --steps 100000
    """
    import replicax as rx

    run = parts.read_run_file(run_dir)
    if "training" in run:
        if steps is not None:
            raise ValueError("This run counts epochs: write --epochs N instead of --steps.")
        return cli_train.resume(run_dir, epochs, progress, as_json)
    naming = Naming.read(run_dir)
    if target is not None:
        naming = Naming.from_here(target, params, batches, batch_size)
    elif naming is None:
        raise ValueError(
            f"{run_dir} does not say what its target was (was it started in Python?); name "
            f"it: replicax resume {run_dir} --target model.py:energy."
        )
    else:
        naming = naming.changed(params, batches, batch_size)
    with parts.quietly(as_json):
        own_kind = run["params"]["structure"] is None
        found = naming.find(needs_params=own_kind)
        posterior = rx.resume(
            run_dir,
            found.target,
            num_steps=steps,
            params=parts.structure_of(found.params) if own_kind else None,
            batches=found.batches,
            batch_size=found.batch_size,
            progress=progress,
            callback=_note(naming, run_dir),
        )
    if steps is None and run.get("result", {}).get("code") == "finished":
        typer.echo("All steps of this run were done before; --steps N makes it longer.", err=True)
    return finish(posterior, as_json)


def _is_ladder(values: float | tuple[float, ...] | None) -> bool:
    """Whether there is one value per rung, which says how many rungs there are."""
    return isinstance(values, tuple) and len(values) > 2


def _note(naming: Naming, folder: Path) -> Callable[[Any], None]:
    """A callback that writes the target's name down once the run is on its way."""
    write = functools.cache(lambda: naming.write(folder))
    return lambda progress: write()
