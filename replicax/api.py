"""The calls most people make: `sample`, `resume` and `load`."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replicax.errors import check_flag, check_path
from replicax.results import done
from replicax.results.posterior import Posterior
from replicax.run import sweeps
from replicax.run.methods import Method, refuse_unknown
from replicax.run.options import Limits, Sampling, Session, given
from replicax.run.progress import Callback
from replicax.run.resolve import resolve
from replicax.run.start import begin, proceed
from replicax.run.storage.folder import open_records, resumed_records
from replicax.run.storage.metadata import SWEEPS
from replicax.run.task import Task, as_task

if TYPE_CHECKING:
    from jax.sharding import Mesh

    from replicax.algorithm.target import Target


def sample(
    target: "Target | Task | Callable",
    start: Any = None,
    *,
    num_steps: int | None = None,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    method: str | Method = "posterior",
    num_replicas: int | None = None,
    num_chains: int | None = None,
    batches: Any = None,
    batch_size: int | None = None,
    burn_in: int | None = None,
    thin: int | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    draw_rungs: tuple[int, ...] | str = (0,),
    keep_draws: bool = True,
    history_every: int | None = None,
    on_nonfinite: str | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int = 2,
    note: dict[str, Any] | None = None,
    devices: "int | str | Mesh | None" = None,
    data_parallel: int = 1,
    **unknown: object,
) -> Posterior:
    """Sample exp(-energy), or an `rx.bayesian` posterior, by replica exchange.

    By default draws have the law of the target: moves are adjusted (`kernels.hmc`), swaps are
    Metropolis's on all the data, and the coldest replica also jumps after every step, to proposals
    of a learned mixture. Step sizes, temperatures and mixture are learned in the burn-in, a third
    of the run, and are then frozen. Posteriors of rows that are read in blocks, or of so many that
    all of them are dear for a ladder, are sampled in sweeps over the rows (`rx.sweeps`), which the
    summary says. The paper's ladder of SGD rungs is
    `method=rx.deo_star(learning_rate=(cold, hot))`.

    Args:
        target: an `rx.bayesian` posterior; `energy(params, batch, key)`, a (stochastic)
            minus-log-posterior, the last two arguments optional; an `rx.Target`; or an
            `rx.supervised` problem.
        start: one point (any pytree), `rx.per_replica(tree)`, or a function `start(key)`; for
            `rx.supervised` problems a point is a pair (params, model_state). A posterior of
            `rx.interop.from_numpyro` starts at draws from its prior unless this is given.
        num_steps: steps of every replica; of runs of sweeps, sweeps whose draws are kept, and more
            than 64 only with `method="sweeps"`.
            Without it a run of exact energies goes on until it is done: until chains have made ten
            round trips on average, R-hat is below 1.01, 400 draws are effective in bulk and tails,
            and nothing is left to warn of.
        max_steps, max_seconds: where such a run ends at the latest; 20,000 steps, or 64 sweeps,
            unless given.
        method: which algorithm runs: "posterior", or with its own options `rx.posterior(...)`,
            `rx.deo_star(learning_rate=..., window=...)`, `rx.deo(...)`, `rx.Method(...)`.
        num_replicas: rungs of the ladder.
        num_chains: independent runs side by side, so that R-hat and effective size mean something;
            4 without num_steps, else 1.
        batches: arrays (with `batch_size`), or a function of the step.
        batch_size: rows of a mini-batch; that of a posterior is given to `rx.bayesian`.
        burn_in, thin: draws are kept from step `burn_in` on, every `thin`-th.
        seed: seed of all random numbers.
        run_dir: a folder for draws, records and checkpoints; without it all stays in memory.
        progress: show a progress bar; by default where a terminal is attached.
        callback: called between chunks with a `Progress`; returns "stop" to end the run. Or a list
            of such functions; `rx.callbacks` has ready ones.
        draw_rungs: rungs whose draws are kept, or "all"; the first is 0, the target.
        keep_draws: False keeps the energies of draws and not their parameters.
        history_every: steps between two points of the histories.
        on_nonfinite: "stop" at an energy that is not finite; "ignore" it (it never swaps); or
            "restart" its replica from the nearest colder one (the coldest has none: stop), which is
            the default where replicas exchange, but not for "hmc" and "mala".
        checkpoint_every: from one checkpoint to the next, in steps or as a time: "30s", "10m",
            "2h"; 30 seconds unless given.
        keep_checkpoints: as many of the last checkpoints stay in the folder.
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
    ... )
    >>> posterior.draws.shape
    (1, 42672, 1)
    >>> bool(0.3 < (posterior.draws > 0).mean() < 0.7)
    True
    """
    refuse_unknown(sample, unknown, method)
    task = as_task(target, batches, batch_size)
    run, session = given(Sampling, locals()), given(Session, locals())
    limits, watch = given(Limits, locals()), None
    of_ladder = ("num_steps", "num_replicas", "burn_in", "thin", "history_every", "on_nonfinite")
    given_to_ladder = {name: getattr(run, name) for name in of_ladder}
    given_to_ladder["draw_rungs"] = None if run.draw_rungs == (0,) else draw_rungs
    choice = sweeps.choose(task, method, start, given_to_ladder)
    if num_steps is None:
        done.check_possible(method)
        session, watch = done.watched(session, limits, choice.sweeps)
        chains = done.NUM_CHAINS if num_chains is None else num_chains
        run = replace(run, num_steps=watch.first_steps(burn_in), num_chains=chains)
    else:
        limits.check_unused()
    if choice.sweeps:
        records, like = sweeps.begin(task, run, method, start, session, choice.words)
    else:
        about = {"resolved": lambda like: {"decided": choice.words}}
        records, like = begin("sample", resolve(task, run, method), start, session, about=about)
    posterior = Posterior(records, like, target)
    return (posterior if watch is None else done.until_done(posterior, session, watch)).warned()


def resume(
    run_dir: str | Path,
    target: "Target | Task | Callable",
    *,
    num_steps: int | None = None,
    until_done: bool = False,
    max_steps: int | None = None,
    max_seconds: float | None = None,
    epochs: int | None = None,
    method: str | Method | None = None,
    evaluate: Callable | None = None,
    params: Any = None,
    batches: Any = None,
    batch_size: int | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int | None = None,
    force: bool = False,
    note: dict[str, Any] | None = None,
    devices: "int | str | Mesh | None" = None,
    data_parallel: int = 1,
    **unknown: object,
) -> Posterior:
    """Continue the run in a folder, bit for bit as if it had never stopped.

    `num_steps`, of a training `epochs`, extends the run to so many in all. What it was started with
    stays: its burn-in, also where that was a third of the steps then, and the ladder and step sizes
    that this came to. The result is that of a run of so many steps with this `burn_in`, not that of
    a new one with the default; a run whose burn-in was too short needs a new one
    (`posterior.extend(retune=True)`). `until_done=True` goes on as a call without `num_steps` does,
    up to `max_steps` or `max_seconds`. A training is not
    extended if a longer run would begin differently: if its learning rate or cycle depends on the
    length, or if it averages networks at its end.

    A folder holds no functions: give the same target, and the same batches. Where the method has a
    kernel, schedule, rule, gain or rate schedule of your own, give the method again, and `evaluate`
    where the training had one. `params` is needed only where its containers are not dicts, lists
    and tuples. A target or data that do not fit the run are refused; `force=True` goes on with
    them. `devices` and `data_parallel` may be others than before.
    """
    for name in unknown:
        raise ValueError(
            f"rx.resume takes no {name}: a run continues with the options that its folder stores. "
            "Objects of your own, which no folder holds, are given again inside the method, as in "
            "method=rx.deo_star(kernel=...)."
        )
    check_flag("force", force)
    check_flag("until_done", until_done)
    session, limits, watch = given(Session, locals()), given(Limits, locals()), None
    if until_done:
        session, watch = done.watched(session, limits)
    else:
        limits.check_unused()
    changes: Any = {"checkpoint_every": checkpoint_every, "keep_checkpoints": keep_checkpoints}
    again: Any = {"params": params, "force": force}
    with resumed_records(check_path("run_dir", run_dir)) as records:
        if records.metadata.kind == "train":
            from replicax.networks.train import resume_training

            steps = {"num_steps": num_steps, "batches": batches, "batch_size": batch_size}
            _refuse(records.folder, **steps, params=params, until_done=until_done or None)
            changes |= {"epochs": epochs, "evaluate": evaluate}
            return resume_training(records, target, changes, session, method, force)
        _refuse(records.folder, epochs=epochs, evaluate=evaluate)
        task = as_task(target, batches, batch_size)
        if records.metadata.resolved.kernel == SWEEPS:
            if watch is not None:
                watch.max_steps = max_steps or sweeps.MOST_SWEEPS
            kept, like = sweeps.proceed(records, task, num_steps, session, changes=changes, **again)
        else:
            changes = {**changes, "num_steps": num_steps}
            kept, like = proceed(records, task, changes, session, method=method, **again)
    posterior = Posterior(kept, like, target)
    return (posterior if watch is None else done.until_done(posterior, session, watch)).warned()


def load(folder: str | Path, target: Any = None) -> Posterior:
    """Open a run folder, or what `Posterior.save` wrote.

    A folder holds no functions: give the `target` of `rx.interop.from_numpyro`, and draws are
    constrained; that of `rx.bayesian`, for `log_likelihood`; the network of a training, or its
    problem, for `trained.predict`.
    """
    records = open_records(check_path("folder", folder))
    if not records.final or int(records.final.get("step", 0)) == 0:
        raise ValueError(f"{folder} holds a run that ended before its first step was saved.")
    if records.metadata.kind == "train":
        from replicax.networks.trained import Trained

        return Trained(records, target=target)
    return Posterior(records, target=target)


def _refuse(folder: Path, **arguments: Any) -> None:
    """Raise if an argument is given that this kind of run has not."""
    for name, value in arguments.items():
        if value is not None:
            made = "rx.sample" if name in ("epochs", "evaluate") else "rx.train"
            length = "epochs=..." if made == "rx.train" else "num_steps=..."
            raise ValueError(
                f"{folder} was made by {made}, which has no {name}: leave it out; {length} makes "
                "the run longer."
            )
