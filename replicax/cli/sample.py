"""The command `replicax sample`."""

from pathlib import Path
from typing import Annotated

import typer

from replicax.cli import arguments, folders, output
from replicax.cli.output import finish
from replicax.errors import at_least
from replicax.user_code import TargetSpec


def sample(
    target: Annotated[
        str,
        typer.Argument(
            metavar="MODEL.PY:NAME", help="Target: an object in a file, or package.module:NAME."
        ),
    ],
    learning_rate: Annotated[
        str | None,
        typer.Option(
            metavar="COLD HOT",
            help="Coldest and hottest rate, one per rung, or one for all.",
            show_default="tuned, for the exact posterior",
        ),
    ] = None,
    params: arguments.Params = None,
    batches: arguments.Batches = None,
    batch_size: arguments.BatchSize = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of every replica.")] = 20000,
    replicas: Annotated[
        int | None,
        typer.Option(
            metavar="P",
            help="Number of replicas.",
            show_default="16, or one per learning rate; 8 without learning rates",
        ),
    ] = None,
    chains: Annotated[
        int, typer.Option(metavar="N", help="Number of independent chains; use 4 for R-hat.")
    ] = 1,
    temperature: Annotated[
        str | None,
        typer.Option(
            metavar="T",
            help="Temperature of the coldest rung (SGD above it), coldest and hottest, or "
            "one per rung.",
            show_default="1; tuned without learning rates",
        ),
    ] = None,
    swap_rate: Annotated[float, typer.Option(metavar="S", help="Target swap rate per step.")] = 0.4,
    window: arguments.Window = None,
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Swap schedule: deo_star, deo, seo, adj, ape, exactly_one, no_gate or none.",
            show_default="deo_star; deo without learning rates",
        ),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="Swap rule: deterministic, metropolis or bias_corrected.",
            show_default="deterministic; metropolis without learning rates",
        ),
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(
            help="Kernel: sgld, momentum, sghmc, preconditioned, langevin, mala or hmc.",
            show_default="sgld; hmc or langevin without learning rates",
        ),
    ] = None,
    burn_in: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Steps before the first draw.",
            show_default="0; a third without learning rates",
        ),
    ] = None,
    thin: Annotated[
        int | None, typer.Option(metavar="N", help="Steps between draws.", show_default="1")
    ] = None,
    seed: arguments.Seed = 0,
    adapt: Annotated[
        bool | None,
        typer.Option(
            help="Adapt ladder and buffer.", show_default="unless the rule uses temperatures"
        ),
    ] = None,
    adapt_steps: Annotated[
        int | None, typer.Option(metavar="N", help="Adapt during the first N steps only.")
    ] = None,
    energy_at: Annotated[
        str, typer.Option(help="Energy that decides swaps: moved (after the move), or before it.")
    ] = "moved",
    on_nonfinite: Annotated[
        str | None,
        typer.Option(
            help="If an energy is not finite: restart (hot rungs), stop or ignore.",
            show_default="restart; hmc, mala: stop",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The run folder.", show_default="runs/NAME-1, -2, ..."),
    ] = None,
    checkpoint_every: arguments.CheckpointEvery = None,
    keep_checkpoints: arguments.KeepCheckpoints = 2,
    devices: arguments.Devices = None,
    data_parallel: arguments.DataParallel = 1,
    coordinator: arguments.Coordinator = None,
    num_processes: arguments.NumProcesses = None,
    process_id: arguments.ProcessId = None,
    progress: arguments.Progress = None,
    as_json: arguments.Json = False,
) -> int:
    """Sample exp(-energy) for an energy that you write.

    NAME is a function energy(params, batch, key), of which the last two arguments are optional, an
    rx.bayesian posterior or an rx.Target. The same file defines params, the initial parameters
    (arrays, rx.per_replica(...) or a function of a key), and batches, if the energy needs data.

    \b
    Example: model.py
      import jax.numpy as jnp
      params = jnp.zeros(2)
      def energy(x):
          return jnp.sum((x**2 - 4) ** 2) / 8

    \b
    This energy is exact, so there is nothing else to choose:
      replicax sample model.py:energy --chains 4

    \b
    With your own temperatures and learning rates:
      replicax sample model.py:energy --chains 4 --replicas 4 \\
          --learning-rate 0.01 --temperature 1 10 --rule metropolis --window 1

    \b
    A noisy energy, as with mini-batches, needs learning rates but no temperatures:
      replicax sample replicax.demo:target --chains 4 --learning-rate 0.003 0.6

    Exit codes: 0 finished; 2 wrong input; 3 an energy became non-finite (earlier draws are
    kept); 130 stopped with Ctrl-C, 143 with SIGTERM, 138 with SIGUSR1 (everything is saved;
    continue with `replicax resume RUN_DIR`).
    """
    import replicax as rx

    if adapt_steps is not None and adapt is False:
        raise ValueError("--no-adapt and --adapt-steps contradict each other; use one of them.")
    if adapt_steps is not None:
        at_least("--adapt-steps", adapt_steps, 0)
    rates = arguments.read_numbers("--learning-rate", learning_rate)
    temperatures = arguments.read_numbers("--temperature", temperature)
    is_given = rates is not None and replicas is None
    if is_given and not any(_is_ladder(values) for values in (rates, temperatures)):
        replicas = 16
    output.join_processes(coordinator, num_processes, process_id)
    with output.quietly(as_json):
        spec = TargetSpec.from_command_line(target, params, batches, batch_size)
        folder = folders.new_run_folder(out, spec.name)
        loaded = spec.load()
        posterior = rx.sample(
            loaded.target,
            loaded.params,
            batches=loaded.batches,
            batch_size=loaded.batch_size,
            num_steps=steps,
            learning_rate="auto" if rates is None else rates,
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
            checkpoint_every=arguments.read_interval(checkpoint_every),
            keep_checkpoints=keep_checkpoints,
            note=spec.to_note(),
            devices=arguments.read_devices(devices),
            data_parallel=data_parallel,
        )
    return finish(posterior, as_json)


def _is_ladder(values: float | tuple[float, ...] | None) -> bool:
    """Return whether there is one value per rung, so that the number of rungs is known."""
    return isinstance(values, tuple) and len(values) > 2
