"""Run folders of the commands: new names, metadata, user files that a folder refers to."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from replicax import user_code
from replicax.cli.output import writes
from replicax.errors import check_path, suggest
from replicax.networks.by_name import NamedProblem, absolute

if TYPE_CHECKING:
    from replicax.run.storage.metadata import Metadata


def new_run_folder(out: str | None, name: str) -> Path:
    """Return `out`, or the first free of runs/name-1, name-2, ..."""
    if not writes():
        return Path("runs")  # not used by this process
    if out is None:
        folders = (Path("runs") / f"{name}-{number}" for number in itertools.count(1))
        return next(folder for folder in folders if not folder.exists())
    return check_path("--out", out)


def confirm(run_dir: Path, note: dict[str, Any], names: list[str], again: str) -> None:
    """Print which code of the user's runs because the note of a run folder names it; raise unless a
    start of this user recorded that. `again` is how to name it."""
    names = [name for name in names if ":" in name]
    if not names:
        return
    named = " and ".join(names)
    if not user_code.is_known(note, names):
        raise ValueError(
            f"{run_dir} names {named}, code that would run here and that no start of yours has "
            f"recorded as it is now. If you trust it, name it: replicax {again}."
        )
    typer.echo(f"Running {named}, to which {run_dir} refers.", err=True)


def read_metadata(folder: Path) -> "Metadata":
    """Return the metadata of a run folder; suggest others if there is no run in it."""
    user_code.keep_runs_out()
    if (folder / "run.json").is_file():
        from replicax.run.storage import metadata

        return metadata.read_metadata(folder)
    remedy = "give a folder that `replicax sample` or `replicax train` has written."
    if not folder.exists():
        others = [str(path.parent) for path in folder.parent.glob("*/run.json")]
        raise ValueError(f"There is no folder {folder}; {remedy}{suggest(str(folder), others)}")
    within = sorted(str(path.parent) for path in folder.glob("*/run.json"))
    hint = f" It contains runs: {', '.join(within[:5])}." if within else ""
    raise ValueError(f"{folder} is not a run folder: there is no run.json in it; {remedy}{hint}")


def read_named(
    run_dir: Path,
    command: str,
    model: str | None = None,
    data: str | None = None,
    instead: str = "continue it there with rx.resume(run_dir, problem)",
    runs: tuple[str, ...] = ("model", "data", "likelihood"),
    likelihood: str | None = None,
) -> NamedProblem:
    """Return network, data and likelihood of a run folder, with those that are named again; code
    that only the folder names must be known, if this command `runs` it. If the folder names none,
    raise an error that says what to do `instead`."""
    named = NamedProblem.from_note(read_metadata(run_dir).note)
    if named is None:
        raise ValueError(
            f"The network of {run_dir} is unknown (was the run started in Python?); {instead}."
        )
    given = {"model": model, "data": data, "likelihood": likelihood}
    again = {name: absolute(text) for name, text in given.items() if text is not None}
    asked = [name for name in runs if name not in again and getattr(named, name)]
    words = [f"--{name} {getattr(named, name)}" for name in asked if ":" in getattr(named, name)]
    confirm(
        run_dir,
        named.to_note(),
        [getattr(named, name) for name in asked],
        " ".join([command, str(run_dir), *words]),
    )
    if again:
        named = replace(named, **again)
        remember(named)
    return named


def remember(named: NamedProblem) -> None:
    """Record the code that the user starts a run of, so that its folder need not be confirmed."""
    names = [x for x in (named.model, named.data, named.likelihood) if x and ":" in x]
    if names:
        user_code.remember(replace(named, download=False).to_note(), names)


def absolute_folder(folder: str | None) -> str | None:
    """Return a folder with its absolute path."""
    return None if folder is None else str(check_path("--data-dir", folder).absolute())


def structure_of(params: Any) -> Any:
    """Return a tree with the structure of one replica's parameters.

    `params` is such a tree, a `PerReplica`, or a function of a key that draws one.
    """
    import jax

    from replicax.run.initial import PerReplica

    if isinstance(params, PerReplica):
        return params.tree
    if callable(params) and jax.tree_util.treedef_is_leaf(jax.tree.structure(params)):
        return jax.eval_shape(params, jax.random.key(0))
    return params
