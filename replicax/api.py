"""`sample()`: the one call most people make. `resume()`: go on with a run folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from replicax.algorithm.target import Target, as_target
from replicax.algorithm.tuning import Gain
from replicax.networks.problem import Supervised
from replicax.results.posterior import Posterior
from replicax.run import checkpoint, options
from replicax.run import pytrees as trees
from replicax.run.assembly import Assembly
from replicax.run.batches import HostBatches, as_batches
from replicax.run.compiled_loop import Carry
from replicax.run.host_loop import Progress, Saver, Watch, run
from replicax.run.options import Options
from replicax.run.program import Programs
from replicax.run.progress import display_progress
from replicax.run.records import Records, create_records, open_records
from replicax.run.round_trips import Trips
from replicax.version import __version__


def sample(
    target_or_energy: Target | Supervised | Callable,
    params: Any,
    *,
    num_steps: int,
    learning_rate: Any,
    num_replicas: int | None = None,
    num_chains: int = 1,
    batches: Any = None,
    batch_size: int | None = None,
    temperature: Any = 1.0,
    target_swap_rate: float = 0.4,
    window: int | None = None,
    schedule: Any = "deo_star",
    rule: Any = "deterministic",
    kernel: Any = "sgld",
    gain: Any = Gain(),  # noqa: B008
    buffer: float | str = "auto",
    buffer_gain: Any = "auto",
    adapt: bool | int | None = None,
    energy_at: str = "moved",
    on_swap: str = "keep",
    burn_in: int = 0,
    thin: int = 1,
    seed: int = 0,
    run_dir: str | Path | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    draw_rungs: tuple[int, ...] | str = (0,),
    keep_draws: bool = True,
    history_every: int | None = None,
    track_best: bool | None = None,
    on_nonfinite: str = "stop",
    chunk_steps: int | None = None,
    checkpoint_every: int | None = None,
    programs: Programs | None = None,
) -> Posterior:
    """Sample exp(-energy) by replica exchange; the defaults are the paper's DEO*-SGD.

    Args:
        target_or_energy: `energy(params, batch, key)`, a (stochastic) minus-log-posterior, the
            last two arguments optional; an `rx.Target`; or an `rx.supervised` problem.
        params: one start (any pytree), `rx.per_replica(tree)`, or a function `params(key)`; for
            `rx.supervised` problems a start is a pair (params, model_state).
        num_steps: steps of every replica.
        learning_rate: (cold, hot), geometric and adapted; one value per rung; or one for all.
        num_replicas: rungs of the ladder.
        num_chains: independent runs side by side, so that R-hat and effective size mean something.
        batches: arrays (with `batch_size`), a function of the step, or an iterable.
        temperature: the cold rung's (SGD above); (cold, hot); or one per rung.
        target_swap_rate: how often the swap rule should say yes, S.
        window: steps of a window; the optimal one of Theorem 1 unless given.
        schedule: "deo_star", "deo", "seo", "adj", "ape", "exactly_one", "no_gate", "none", or one
            made with `rx.schedule`.
        rule: "deterministic", "metropolis", "bias_corrected", or one made with `rx.swap`.
        kernel: "sgld", "momentum", "sghmc", "preconditioned", an optax transform of learning rate
            1, or one made with `rx.kernels`.
        gain, buffer_gain: step sizes of the self-tuning of ladder and buffer.
        buffer: where the buffer starts, in the unit of the energy, or "auto".
        adapt: False, or the number of steps after which ladder and buffer freeze. With rules that
            use temperatures, True adapts those.
        energy_at: "moved": the energy that decides a swap is that of the moved state; "before":
            the value that the gradient computed anyway.
        on_swap: "keep": momentum travels with its replica; "reset": a swap costs it.
        burn_in, thin: draws are kept from step `burn_in` on, every `thin`-th.
        run_dir: a folder for draws, records and checkpoints; without it all stays in memory.
        progress: show a progress bar; by default where a terminal is attached.
        callback: called between chunks with a `Progress`; returns "stop" to end the run.
        draw_rungs: rungs whose draws are kept, or "all"; the first is 0, the target.
        keep_draws: False keeps the energies of draws and not their parameters.
        history_every: steps between two points of the histories.
        track_best: keep the lowest-energy point seen; on by default for "exactly_one".
        on_nonfinite: "stop" at an energy that is not finite; "ignore" it (it never swaps); or
            "restart" its replica from the nearest colder one (the coldest has none: stop).
        chunk_steps, checkpoint_every: steps of a compiled chunk and between two checkpoints; they
            change no result.
        programs: an `rx.Programs()` that several calls share, so that they compile once.

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
    given = dict(locals())
    given["draw_rungs"] = options.as_rungs(draw_rungs)
    chosen = Options(**{name: given[name] for name in Options.__dataclass_fields__})
    chosen = chosen.with_history().with_stages()
    if callback is not None and not callable(callback):
        raise ValueError(f"callback is {callback!r}; give a function that takes an rx.Progress.")
    target, source = _parts_of(target_or_energy, batches, batch_size)
    made = Assembly(chosen, target, source, programs)
    carry, described = made.starting_carry(params)
    records = create_records(None if run_dir is None else Path(run_dir))
    meta = {
        "version": __version__,
        "options": chosen.to_json(),
        "params": described,
        "batches": made.batches.describe(),
        "resolved": made.describe(),
    }
    records.write_meta(meta)
    like = jax.eval_shape(trees.first, carry.state.points)
    go_on(made, carry, made.no_trips(), records, chosen.num_steps, progress, callback)
    return _warned(Posterior(records, like))


def _resume_training(folder, problem, num_steps, progress, callback) -> Posterior:
    from replicax.networks.train import resume_training

    if not isinstance(problem, Supervised) or num_steps is not None:
        raise ValueError(
            f"{folder} was made by rx.train; go on with it by rx.resume({str(folder)!r}, problem), "
            "the problem being the one it was started with, or make it longer by "
            "rx.resume_training(..., epochs=...)."
        )
    return resume_training(folder, problem, progress=progress, callback=callback)


def _parts_of(given: Any, batches: Any, batch_size: int | None) -> tuple[Target, Any]:
    """A target and its mini-batches; an `rx.supervised` problem brings its own."""
    if isinstance(given, Supervised):
        if batches is not None:
            raise ValueError("An rx.supervised problem has its own data: give no batches.")
        return given.target, given.batches
    return as_target(given), as_batches(batches, batch_size)


def _warned(posterior: Posterior) -> Posterior:
    posterior.warn()
    return posterior


def resume(
    run_dir: str | Path,
    target: Target | Supervised | Callable,
    *,
    num_steps: int | None = None,
    params: Any = None,
    batches: Any = None,
    batch_size: int | None = None,
    progress: bool | None = None,
    callback: Callable[[Progress], Any] | None = None,
    chunk_steps: int | None = None,
    checkpoint_every: int | None = None,
    **given: Any,
) -> Posterior:
    """Go on with a run folder, bit for bit as if it had never stopped.

    `num_steps` extends the run to that many steps in all. Batches are not stored: give the same
    again. `params` is needed only where its containers are not dicts, lists and tuples; a kernel
    or gain of your own must be given again, too.
    """
    folder = Path(run_dir)
    records = open_records(folder)
    if "training" in records.meta:
        return _resume_training(folder, target, num_steps, progress, callback)
    known = ("kernel", "gain", "buffer_gain", "schedule", "rule")
    for name in given:
        if name not in known:
            raise ValueError(
                f"resume takes no {name}: it goes on with the options of the run. Only what a "
                f"folder cannot hold may be given again: {', '.join(known)}."
            )
    given |= {
        "num_steps": num_steps,
        "chunk_steps": chunk_steps,
        "checkpoint_every": checkpoint_every,
    }
    chosen = Options.from_json(records.meta["options"], given)
    made_of, source = _parts_of(target, batches, batch_size)
    if source.describe() != records.meta["batches"]:
        raise ValueError(
            f"The run was started with batches: {records.meta['batches']}; resume was given: "
            f"{source.describe()}. Give the same batches again."
        )
    made = Assembly(chosen, made_of, source)
    described = records.meta["params"]
    if described["structure"] is None and params is None:
        raise ValueError(
            "The params of this run have containers of their own kind; give a tree of the same "
            "kind again: rx.resume(run_dir, target, params=...)."
        )
    zeros = [
        jnp.zeros(shape, dtype)
        for shape, dtype in zip(described["shapes"], described["dtypes"], strict=True)
    ]
    like = trees.rebuild(described, zeros, params)
    template = jax.eval_shape(made.first_carry, like), made.no_trips(), None
    step = checkpoint.latest_step(folder)
    carry, trips, _ = checkpoint.restore(folder, step, template)
    if step > chosen.num_steps or (num_steps is not None and num_steps < step):
        raise ValueError(f"num_steps is {num_steps}, but the run stands at step {step} already.")
    if isinstance(source, HostBatches):
        source.skip_to(step)
    records.truncate(made.program.lengths(step))
    records.write_meta({**records.meta, "options": chosen.to_json()})
    carry = jax.tree.map(jnp.asarray, carry)
    go_on(made, carry, trips, records, chosen.num_steps, progress, callback)
    return _warned(Posterior(records, like))


def go_on(
    made: Assembly,
    carry: Carry,
    trips: Trips,
    records: Records,
    num_steps: int,
    progress: bool | None,
    callback: Callable[[Progress], Any] | None,
    watch: Watch | None = None,
) -> None:
    """Run until step `num_steps`, and write down how that ended."""
    folder = getattr(records, "folder", None)
    saver = Saver(records, folder, made.options.checkpoint_every, watch=watch)
    with display_progress(progress, num_steps, int(carry.state.step)) as display:
        _, _, result = run(
            made.program,
            carry,
            trips,
            made.keys,
            num_steps,
            saver,
            callback,
            display,
            made.programs,
        )
    records.write_meta({**records.meta, "result": result._asdict()})


def load(folder: str | Path) -> Posterior:
    """Open a run folder, or what `Posterior.save` wrote."""
    records = open_records(folder)
    if not records.final:
        raise ValueError(f"{folder} holds a run that ended before it saved anything.")
    if "training" in records.meta:
        from replicax.networks.trained import Trained

        return Trained(records)
    return Posterior(records)
