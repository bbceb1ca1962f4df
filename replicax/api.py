"""The calls most people make: `sample` and `load`; `resume` is in `resume_run.py`."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from replicax.algorithm.target import Target
from replicax.algorithm.tuning import Gain
from replicax.errors import check_folder, check_watchers
from replicax.results.posterior import Posterior
from replicax.run import fingerprint, plain
from replicax.run.host_loop import run
from replicax.run.initial import check_memory, have_one_start, initial_carry
from replicax.run.machine import describe_machine
from replicax.run.options import Options, fill_in, in_unit_of, target_and_batches
from replicax.run.program import build_program, spread_over
from replicax.run.progress import Callback
from replicax.run.records import records_of_run
from replicax.run.row_energies import use_rows
from replicax.run.settings import num_replicas as resolve_num_replicas
from replicax.run.storage.folder import open_records
from replicax.run.storage.metadata import Metadata

if TYPE_CHECKING:
    from replicax.networks.problem import Supervised


def sample(
    target_or_energy: "Target | Supervised | Callable",
    params: Any = None,
    *,
    num_steps: int,
    learning_rate: Any = "auto",
    num_replicas: int | None = None,
    num_chains: int = 1,
    batches: Any = None,
    batch_size: int | None = None,
    temperature: Any = None,
    target_swap_rate: float = 0.4,
    window: int | None = None,
    schedule: Any = None,
    rule: Any = None,
    kernel: Any = None,
    gain: Any = Gain(),  # noqa: B008
    buffer: float | str = "auto",
    buffer_gain: Any = "auto",
    adapt: bool | int | None = None,
    energy_at: str = "moved",
    on_swap: str = "keep",
    burn_in: int | None = None,
    thin: int | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    draw_rungs: tuple[int, ...] | str = (0,),
    keep_draws: bool = True,
    history_every: int | None = None,
    track_best: bool | None = None,
    on_nonfinite: str | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    swap_every: int | None = None,
    swap_energy: Any = None,
    note: dict[str, Any] | None = None,
    devices: Any = None,
    data_parallel: int = 1,
) -> Posterior:
    """Sample exp(-energy), or an `rx.bayesian` posterior, by replica exchange.

    Without a learning rate, or for an `rx.bayesian` posterior, the defaults are those under which
    draws have the law of the target: moves are adjusted (`kernels.hmc`; on mini-batches
    `kernels.langevin`), swaps are Metropolis's on all the data, step sizes and temperatures tune
    themselves in the burn-in, a third of the run, and are then frozen. With a learning rate of a
    bare energy they are the paper's: SGD above the cold rung, the deterministic rule, DEO*.

    Args:
        target_or_energy: an `rx.bayesian` posterior; `energy(params, batch, key)`, a (stochastic)
            minus-log-posterior, the last two arguments optional; an `rx.Target`; or an
            `rx.supervised` problem.
        params: one start (any pytree), `rx.per_replica(tree)`, or a function `params(key)`; for
            `rx.supervised` problems a start is a pair (params, model_state). A posterior of
            `rx.interop.from_numpyro` starts at draws from its prior unless this is given.
        num_steps: steps of every replica.
        learning_rate: "auto": tuned by rung in the burn-in, to the kernel's own error; (cold, hot),
            geometric and adapted; one value per rung; or one for all. In the unit of the energy, of
            `rx.supervised` problems per mean loss.
        num_replicas: rungs of the ladder.
        num_chains: independent runs side by side, so that R-hat and effective size mean something.
        batches: arrays (with `batch_size`), a function of the step, or an iterable.
        temperature: "auto": from 1 to where neighbours swap half of their attempts, for rungs of
            equal rejection; the cold rung's (SGD above); (cold, hot), up to `inf`, the prior, for
            `rx.bayesian` posteriors of all rows; or one per rung. In the unit of the energy, of
            `rx.supervised` problems that of the posterior, 1 the exact one.
        target_swap_rate: how often the swap rule should say yes, S.
        window: steps of a window; the optimal one of Theorem 1 unless given.
        schedule: "deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none", or one
            made with `rx.schedule`.
        rule: "deterministic", "metropolis", "bias_corrected", or one made with `rx.swap`.
        kernel: "hmc", "mala", "langevin", "sgld", "momentum", "sghmc", "preconditioned", an optax
            transform of learning rate 1, or one made with `rx.kernels`.
        gain, buffer_gain: step sizes of the self-tuning of ladder and buffer.
        buffer: where the buffer starts, in the unit of the energy, or "auto".
        adapt: False, or the number of steps after which ladder and buffer freeze. With rules that
            use temperatures, True adapts those, to equal rejection, until `burn_in`.
        energy_at: "moved": the energy that decides a swap is that of the moved state; "before":
            the value that the gradient computed anyway.
        on_swap: "keep": momentum travels with its replica, and is scaled to the law of the new rung
            under rules that use temperatures; "reset": a swap sets it to zero.
        burn_in, thin: draws are kept from step `burn_in` on, every `thin`-th.
        run_dir: a folder for draws, records and checkpoints; without it all stays in memory.
        progress: show a progress bar; by default where a terminal is attached.
        callback: called between chunks with a `Progress`; returns "stop" to end the run. Or a list
            of such functions; `rx.callbacks` has ready ones.
        draw_rungs: rungs whose draws are kept, or "all"; the first is 0, the target.
        keep_draws: False keeps the energies of draws and not their parameters.
        history_every: steps between two points of the histories.
        track_best: keep the lowest-energy point seen; on by default for "exactly_one".
        on_nonfinite: "stop" at an energy that is not finite; "ignore" it (it never swaps); or
            "restart" its replica from the nearest colder one (the coldest has none: stop), which is
            the default where replicas exchange, but not for "hmc" and "mala".
        checkpoint_every: from one checkpoint to the next, in steps or as a time: "30s", "10m",
            "2h"; 30 seconds unless given.
        keep_checkpoints: as many of the last checkpoints stay in the folder.
        swap_every: steps from one attempt to swap to the next.
        swap_energy: on mini-batches of an `rx.bayesian` posterior, "full": swaps are judged on all
            rows; a number of rows, or "batch": on a fresh mini-batch, by the bias-corrected rule.
            By default all rows, as rarely as keeps the cost below half of that of the moves.
        note: plain data to keep in the run folder.
        devices: "all", a number of them, or a `jax.sharding.Mesh` with some of the axes "chain",
            "replica" and "data": chains and replicas are spread over the former, and devices along
            the last share the rows of mini-batches. By default all accelerators, or one CPU.
        data_parallel: how many devices share each replica, and the rows of its mini-batches.

    >>> import jax.numpy as jnp, replicax as rx
    >>> posterior = rx.sample(
    ...     lambda x: jnp.sum((x**2 - 4) ** 2) / 2,
    ...     jnp.zeros(1),
    ...     num_steps=4_000,
    ...     num_replicas=4,
    ...     learning_rate=0.01,
    ...     temperature=(1.0, 10.0),
    ...     rule="metropolis",
    ...     window=1,
    ... )
    >>> posterior.draws.shape
    (1, 4000, 1)
    >>> bool(0.3 < (posterior.draws > 0).mean() < 0.7)
    True
    """
    choices: dict[str, Any] = dict(
        num_steps=num_steps,
        learning_rate=learning_rate,
        num_replicas=num_replicas,
        num_chains=num_chains,
        temperature=temperature,
        target_swap_rate=target_swap_rate,
        window=window,
        schedule=schedule,
        rule=rule,
        kernel=kernel,
        gain=gain,
        buffer=buffer,
        buffer_gain=buffer_gain,
        adapt=adapt,
        energy_at=energy_at,
        on_swap=on_swap,
        burn_in=burn_in,
        thin=thin,
        seed=seed,
        draw_rungs=draw_rungs,
        keep_draws=keep_draws,
        history_every=history_every,
        track_best=track_best,
        on_nonfinite=on_nonfinite,
        checkpoint_every=checkpoint_every,
        keep_checkpoints=keep_checkpoints,
        swap_every=swap_every,
        swap_energy=swap_energy,
    )
    check_watchers(progress, callback)
    if run_dir is not None:
        check_folder("run_dir", run_dir)
    target, source = target_and_batches(target_or_energy, batches, batch_size, swap_energy)
    choices = fill_in(choices, target, source)
    options = in_unit_of(target_or_energy, Options(**choices).complete())
    params = getattr(target_or_energy, "start", None) if params is None else params
    check_memory(params, num_chains, resolve_num_replicas(options))
    program = spread_over(build_program(options, target, source), devices, data_parallel)
    carry = initial_carry(program, params)
    if program.settings.rule.estimates_noise:
        program = use_rows(program, carry)
    points = carry.state.points
    like = jax.eval_shape(plain.first, points)
    with records_of_run(run_dir) as records:
        folder = records.folder
        records.write_metadata(
            Metadata(
                kind="sample",
                options=options.to_json(),
                resolved={**program.describe(), "one_start": have_one_start(carry)},
                params=plain.describe(like),
                batches=source.describe(),
                note=note or {},
                machine=describe_machine(),
                fingerprint=fingerprint.write(folder, program, points) if folder else None,
            )
        )
        run(program, carry, records, options, progress=progress, callback=callback)
    return Posterior(records, like, target_or_energy).warned()


def load(folder: str | Path, target: Any = None) -> Posterior:
    """Open a run folder, or what `Posterior.save` wrote.

    A folder holds no functions: give the `target` of `rx.interop.from_numpyro`, and draws are
    constrained; that of `rx.bayesian`, for `log_likelihood`; the network of a training, or its
    problem, for `trained.predict`.
    """
    records = open_records(check_folder("folder", folder))
    if not records.final or int(records.final["step"]) == 0:
        raise ValueError(f"{folder} holds a run that ended before its first step was saved.")
    if records.metadata.kind == "train":
        from replicax.networks.trained import Trained

        return Trained(records, target=target)
    return Posterior(records, target=target)
