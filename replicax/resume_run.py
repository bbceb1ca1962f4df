"""`resume`: continue the run in a folder."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from replicax.algorithm.target import Target, check_energy
from replicax.errors import check_folder, check_watchers
from replicax.networks.problem import Supervised
from replicax.networks.train import resume_records
from replicax.results.posterior import Posterior
from replicax.run import fingerprint
from replicax.run.host_loop import run
from replicax.run.initial import seed_keys
from replicax.run.options import Options, target_and_batches
from replicax.run.program import Program, build_program, spread_over
from replicax.run.progress import Callback
from replicax.run.restore import point_like, records_to_continue, restore, rewind, whole_records
from replicax.run.row_energies import with_row_energies
from replicax.run.storage.folder import FolderRecords, resumed_records

# Objects that a run folder cannot hold may be given again.
_GIVEN_AGAIN = ("kernel", "gain", "buffer_gain", "schedule", "rule")
_MAY_CHANGE = ("num_steps", "checkpoint_every", "keep_checkpoints")
_GIVEN_TO_TRAININGS = {
    *_GIVEN_AGAIN,
    "method",
    "rate_schedule",
    "evaluate",
    "checkpoint_every",
    "keep_checkpoints",
}


def resume(
    run_dir: str | Path,
    target: Target | Supervised | Callable,
    *,
    num_steps: int | None = None,
    params: Any = None,
    batches: Any = None,
    batch_size: int | None = None,
    progress: bool | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    checkpoint_every: int | str | None = None,
    keep_checkpoints: int | None = None,
    force: bool = False,
    note: dict[str, Any] | None = None,
    devices: Any = None,
    data_parallel: int = 1,
    **given: Any,
) -> Posterior:
    """Continue the run in a folder, bit for bit as if it had never stopped.

    `num_steps` extends the run to that many steps in all. Batches are not stored: give the same
    again. `params` is needed only where its containers are not dicts, lists and tuples; a kernel,
    gain, schedule or rule of your own must be given again, too. A target or data that do not fit
    the run are refused; `force=True` goes on with them. `devices` and `data_parallel` may be others
    than before.
    """
    check_watchers(progress, callback)
    given |= {
        "num_steps": num_steps,
        "checkpoint_every": checkpoint_every,
        "keep_checkpoints": keep_checkpoints,
    }
    with resumed_records(check_folder("run_dir", run_dir)) as records:
        if records.metadata.kind == "train":
            given |= {"params": params, "batches": batches, "batch_size": batch_size, "note": note}
            given = {name: value for name, value in given.items() if value is not None}
            return resume_records(
                records,
                _as_problem(records, target, given),
                progress=progress,
                callback=callback,
                force=force,
                devices=devices,
                data_parallel=data_parallel,
                **given,
            )
        _check_given(given)
        options = Options.from_json(records.metadata.options, given)
        program = _program_again(records, options, target, batches, batch_size)
        program = spread_over(program, devices, data_parallel)
        like = point_like(records, params)
        keys, _ = seed_keys(program.seed, program.num_chains)
        check_energy(program.target, like, program.batches.first(keys[0]), keys[0])
        if not force:
            fingerprint.check(records.folder, program, like, records.metadata.fingerprint)
        step, carry, _, position = restore(records, program, like)
        if step > options.num_steps:
            raise ValueError(f"num_steps is {num_steps}, but the run stands at step {step}.")
        kept = records_to_continue(records)
        rewind(kept, program, step, position)
        noted = records.metadata.note if note is None else note
        kept.write_metadata(
            replace(records.metadata, options=options.to_json(), note=noted, result=None)
        )
        run(program, carry, kept, options, progress=progress, callback=callback)
    return Posterior(whole_records(kept, run_dir), like, target).warned()


def _as_problem(records: FolderRecords, target: Any, given: dict[str, Any]) -> Supervised:
    """Return the target of a training, if it can be continued with what was given."""
    if not isinstance(target, Supervised) or set(given) - _GIVEN_TO_TRAININGS:
        folder = str(records.folder)
        raise ValueError(
            f"{folder} was made by rx.train; continue it by rx.resume({folder!r}, problem), the "
            "problem being the one it was started with (and kernel, gain and others "
            "where they were your own), or make it longer by rx.resume_training(..., epochs=...)."
        )
    return target


def _check_given(given: dict[str, Any]) -> None:
    for name in given:
        if name not in (*_GIVEN_AGAIN, *_MAY_CHANGE):
            raise ValueError(
                f"resume takes no {name}: it continues with the options of the run. Only what a "
                f"folder cannot hold may be given again: {', '.join(_GIVEN_AGAIN)}."
            )


def _program_again(
    records: FolderRecords, options: Options, target: Any, batches: Any, batch_size: int | None
) -> Program:
    """Return the program of a run that resumes, if the batches fit it."""
    metadata = records.metadata
    resolved, source = target_and_batches(target, batches, batch_size, options.swap_energy)
    if source.describe() != metadata.batches:
        raise ValueError(
            f"The run was started with batches: {metadata.batches}; resume was given: "
            f"{source.describe()}. Give the same batches again."
        )
    if metadata.resolved["row_energies"] and resolved.row_energies is None:
        resolved = with_row_energies(resolved)
    return build_program(options, resolved, source)
