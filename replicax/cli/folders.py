"""Run folders of the commands: new names, metadata, user files that a folder refers to."""

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from replicax.cli.output import writes
from replicax.errors import suggest

if TYPE_CHECKING:
    from replicax.run.storage.metadata import Metadata


def new_run_folder(out: Path | None, name: str) -> Path:
    """Return `out`, which must not contain a run, or the first free of runs/name-1, name-2, ..."""
    if not writes():
        return out or Path("runs")  # not used by this process
    if out is None:
        folders = (Path("runs") / f"{name}-{number}" for number in itertools.count(1))
        return next(folder for folder in folders if not folder.exists())
    from replicax.run.storage.folder import has_begun

    if (out / "run.json").exists() and has_begun(out):
        raise ValueError(
            f"{out} already contains a run; continue it with `replicax resume {out}`, or choose "
            "another folder with --out."
        )
    return out


def say_what_runs(name: str, run_dir: Path) -> None:
    """Print on stderr which user file runs because the run folder refers to it; refuse a file that
    is in the folder."""
    place = name.rpartition(":")[0]
    if not place:
        return
    if run_dir.resolve() in Path(place).resolve().parents:
        raise ValueError(
            f"{run_dir} refers to {place}, which is in the folder itself; if you trust it, "
            "name it with --target."
        )
    typer.echo(f"Running {name}, to which {run_dir} refers.", err=True)


def read_metadata(folder: Path) -> "Metadata":
    """Return the metadata of a run folder; suggest others if there is no run in it."""
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


def structure_of(params: Any) -> Any:
    """Return a tree with the structure of one replica's parameters.

    `params` is such a tree, a `PerReplica`, or a function of a key that draws one.
    """
    import jax

    from replicax.run.per_replica import PerReplica

    if isinstance(params, PerReplica):
        return params.tree
    if callable(params) and jax.tree_util.treedef_is_leaf(jax.tree.structure(params)):
        return jax.eval_shape(params, jax.random.key(0))
    return params
