"""Parts that several commands share: options, numbers, run folders, output and errors."""

import contextlib
import itertools
import json
import math
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from replicax.errors import RunProblem, suggest

if TYPE_CHECKING:
    from replicax.run.storage.metadata import Metadata

FINISHED, FAULTY_INPUT, NONFINITE, INTERRUPTED = 0, 2, 3, 130  # exit codes
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy in typer
_PACKAGE = Path(__file__).parents[1]
_SHORT = {  # options of Python that have another name on the command line
    "num_steps": "steps",
    "num_replicas": "replicas",
    "num_chains": "chains",
    "target_swap_rate": "swap_rate",
    "energy_noise_std": "noise_std",
    "num_params": "params",
    "run_dir": "out",
}
_NUMERIC_OPTIONS = ("--learning-rate", "--temperature", "--temperatures", "--noise-std")

Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")]
Window = Annotated[
    int | None, typer.Option(metavar="W", help="Steps per window.", show_default="Theorem 1")
]
Progress = Annotated[
    bool | None,
    typer.Option(help="Show progress on stderr.", show_default="if stderr is a terminal"),
]
CheckpointEvery = Annotated[
    str | None,
    typer.Option(
        metavar="N|TIME", help="Steps, or a time: 30s, 10m, 2h.", show_default="30s; or as before"
    ),
]
KeepCheckpoints = Annotated[int, typer.Option(min=1, metavar="K", help="Checkpoints to keep.")]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="all|N",
        help="Devices that share the replicas.",
        show_default="all accelerators, or one CPU",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address of process 0.", show_default="found out on clusters"
    ),
]
NumProcesses = Annotated[
    int | None, typer.Option(metavar="N", help="Processes that share the run.")
]
ProcessId = Annotated[int | None, typer.Option(metavar="I", help="Number of this one, from 0.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]


class InterruptedByUser(Exception):
    """Ctrl-C outside the sampling loop, which would save the run first."""


class Command(TyperCommand):
    """A command whose numeric options accept `0.003 0.6` as well as `0.003,0.6`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_numbers(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedByUser from None


def join_numbers(args: list[str]) -> list[str]:
    """Join the numbers that follow a numeric option into one value of that option.

    >>> join_numbers(["--learning-rate", "0.003", "0.6", "--steps", "10"])
    ['--learning-rate=0.003,0.6', '--steps', '10']
    """
    joined: list[str] = []
    for arg in args:
        option, equals, values = joined[-1].partition("=") if joined else ("", "", "")
        if option in _NUMERIC_OPTIONS and _as_numbers(arg):
            joined[-1] = f"{option}={values},{arg}" if equals else f"{option}={arg}"
        else:
            joined.append(arg)
    return joined


def read_numbers(option: str, text: str | None) -> float | tuple[float, ...] | None:
    """Return the value of a numeric option: one number, or a tuple of several."""
    if text is None:
        return None
    values = _as_numbers(text)
    if not values:
        raise ValueError(
            f"{option} is {text!r}; write numbers, such as {option} 1 or {option} 0.5 1.5."
        )
    return values[0] if len(values) == 1 else values


def _as_numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        return ()


def join_processes(
    coordinator: str | None, num_processes: int | None, process_id: int | None
) -> None:
    """Join the other processes of this run; only the first prints."""
    from replicax.run import processes

    if not processes.connect(coordinator, num_processes, process_id):
        return
    sys.stdout.flush()
    own = os.dup(1) if processes.is_first() else os.open(os.devnull, os.O_WRONLY)
    os.dup2(2, 1)  # libraries print there how processes connect
    sys.stdout = os.fdopen(own, "w")


def read_devices(text: str | None) -> str | int | None:
    """Return the value of --devices."""
    return int(text) if text is not None and text.isdigit() else text


def writes() -> bool:
    """Return whether this process prints and writes, the first of those that share a run."""
    if "jax" not in sys.modules:  # which takes long to import, and this process is alone
        return True
    from replicax.run import processes

    return processes.is_first()


def new_run_folder(out: Path | None, name: str) -> Path:
    """Return `out`, which must not contain a run, or the first free of runs/name-1, name-2, ..."""
    if not writes():
        return out or Path("runs")  # of no use
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
    """Say on stderr which file of the user's runs, as the folder asks for; refuse one that came
    with the folder."""
    place = name.rpartition(":")[0]
    if not place:
        return
    if run_dir.resolve() in Path(place).resolve().parents:
        raise ValueError(
            f"{run_dir} asks to run {place}, which lies in the folder itself; if you trust it, "
            "name it with --target."
        )
    typer.echo(f"Running {name}, as {run_dir} asks for.", err=True)


def read_interval(text: str | None) -> int | str | None:
    """Return the value of --checkpoint-every: steps, or a time such as 30s."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def read_metadata(folder: Path) -> "Metadata":
    """Return the metadata of a run folder; suggest others if there is no run in it."""
    if (folder / "run.json").is_file():
        from replicax.run.storage import metadata

        return metadata.read_metadata(folder)
    remedy = "give a folder that `replicax sample` or `replicax demo` has written."
    if not folder.exists():
        others = [str(path.parent) for path in folder.parent.glob("*/run.json")]
        raise ValueError(f"There is no folder {folder}; {remedy}{suggest(str(folder), others)}")
    within = sorted(str(path.parent) for path in folder.glob("*/run.json"))
    hint = f" It contains runs: {', '.join(within[:5])}." if within else ""
    raise ValueError(f"{folder} is not a run folder: there is no run.json in it; {remedy}{hint}")


def is_finished(metadata: "Metadata") -> bool:
    return metadata.result is not None and metadata.result["code"] == "finished"


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


@contextlib.contextmanager
def quietly(as_json: bool) -> Iterator[None]:
    """Silence the logs of JAX, print warnings as one line, and keep stdout free for JSON."""
    import logging

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("absl", "jax", "orbax"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        if as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = _show_warning if writes() else lambda *warning, **more: None
        yield


def _show_warning(message: Any, category: type[Warning], *others: Any) -> None:
    if not issubclass(category, RunProblem):  # which the summary shows
        typer.secho(_one_line(f"Warning: {message}"), fg="yellow", err=True)


def print_json(value: Any) -> None:
    typer.echo(to_json(value))


def to_json(value: Any) -> str:
    """Return `value` as JSON; NaN and infinity, which JSON does not have, become null."""
    return json.dumps(_finite(value), indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if hasattr(value, "tolist"):  # NumPy and JAX
        return _finite(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def print_tables(*tables: Any) -> None:
    from rich.console import Console

    Console().print(*tables, sep="\n")


def show(value: Any, as_json: bool, render: Callable[[Any], Any], *more: Any) -> None:
    """Print `value` as JSON, or as the table that `render` makes of it, with `more` tables."""
    if as_json:
        print_json(value)
    else:
        print_tables(render(value), *more)


def show_summary(summary: dict[str, Any], as_json: bool, *more: Any) -> None:
    if "averages" in summary:
        from replicax.networks.summary import render
    else:
        from replicax.results.summary import render_summary as render
    show(summary, as_json, render, *more)


def finish(posterior: Any, as_json: bool, extra: dict[str, Any] | None = None, *more: Any) -> int:
    """Write and print the summary of a run, and return the exit code of its result."""
    codes = {"nonfinite": NONFINITE, "interrupted": INTERRUPTED}
    if not writes():
        return codes.get(posterior.result[0], FINISHED)
    folder = posterior.run_dir
    summary = {"run_dir": str(folder), **posterior.summary(), **(extra or {})}
    (folder / "summary.json").write_text(to_json(summary) + "\n")
    show_summary(summary, as_json, *more)
    code, sentence = posterior.result
    if code == "nonfinite":
        print_error(sentence)
    if not as_json:
        typer.echo(f"Results are in {folder}{os.sep}")
    return codes.get(code, FINISHED)


def print_error(sentence: str) -> None:
    """Print one red line on stderr."""
    typer.secho(_one_line(sentence), fg="red", err=True)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def describe_error(error: Exception) -> str:
    """Return an error as a sentence; for a wrong option or command, with its help page."""
    if isinstance(error, UsageError):
        usage_error: Any = error  # of a class that type checkers cannot see
        page = "replicax" if usage_error.ctx is None else usage_error.ctx.command_path
        return f"{_end(usage_error.format_message())} See `{page} --help`."
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"There is no file {error.filename}."
    sentence = str(error) or type(error).__name__
    if isinstance(error, ValueError) and not _is_ours(error):
        return f"{_end(sentence)} (`replicax --traceback ...` shows where.)"
    return sentence


def as_written(sentence: str, options: dict[str, str]) -> str:
    """Return a sentence with the names of Python as the command line has them.

    Names that are also words are replaced only where a value follows, or where they begin.

    >>> as_written('window is 9; write schedule="deo".', {"window": "--window", "schedule": "-s"})
    '--window is 9; write -s deo.'
    """
    flags = {name: flag for name, flag in options.items() if flag.startswith("-")}
    flags |= {name: flags[short] for name, short in _SHORT.items() if short in flags}
    for name, flag in flags.items():
        alone = rf"(?<![\w.-]){name}"
        sentence = re.sub(
            rf"{alone}=\(?\"?([\w.+-]+(?:, [\w.+-]+)*)\"?\)?", rf"{flag} \1", sentence
        )
        follows = r"(?=[\d('\"\[-]|nan\b|inf\b|None\b|a number\b)"
        sentence = re.sub(rf"{alone} is {follows}", f"{flag} is ", sentence)
        sentence = re.sub(
            rf"^{alone} (?=(?:must|holds|has|gives|are|differ)\b)", f"{flag} ", sentence
        )
        if "_" in name:
            sentence = re.sub(rf"{alone}(?![\w(])", flag, sentence)
    return sentence


def _is_ours(error: Exception) -> bool:
    """Return whether replicax raised the error, and not the code of a user's target."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _PACKAGE in Path(frames[-1].filename).parents


def _end(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
