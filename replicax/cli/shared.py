"""What the commands of `replicax` share: how they read numbers and folders, and what they print."""

import contextlib
import json
import math
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from replicax.errors import suggest

FINISHED, FAULTY_INPUT, NONFINITE, INTERRUPTED = 0, 2, 3, 130  # exit codes
UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of typer's own click, or of click
_WITH_NUMBERS = ("--learning-rate", "--temperature", "--temperatures", "--noise-std")

Json = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.")]


class InterruptedByUser(Exception):
    """Ctrl-C where no loop catches it to save first."""


class Command(TyperCommand):
    """A command whose options take `0.003 0.6` as well as `0.003,0.6`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_numbers(args))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise InterruptedByUser from None


def join_numbers(args: list[str]) -> list[str]:
    """Numbers that follow an option for several of them become its one value.

    >>> join_numbers(["--learning-rate", "0.003", "0.6", "--steps", "10"])
    ['--learning-rate=0.003,0.6', '--steps', '10']
    """
    joined: list[str] = []
    for arg in args:
        option, equals, values = joined[-1].partition("=") if joined else ("", "", "")
        if option in _WITH_NUMBERS and _as_numbers(arg):
            joined[-1] = f"{option}={values},{arg}" if equals else f"{option}={arg}"
        else:
            joined.append(arg)
    return joined


def read_numbers(option: str, text: str | None) -> float | tuple[float, ...] | None:
    """One number, or several as a tuple."""
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


def fresh_folder(name: str) -> Path:
    """The first of runs/name-1, runs/name-2, ... that does not exist."""
    number = 1
    while (folder := Path("runs") / f"{name}-{number}").exists():
        number += 1
    return folder


def check_holds_no_run(folder: Path) -> None:
    if (folder / "run.json").exists():
        raise ValueError(
            f"{folder} already holds a run; `replicax resume {folder}` goes on with it, or name "
            "another folder with --out."
        )


def read_run_file(folder: Path) -> dict[str, Any]:
    """run.json of a run folder, or a sentence that says why there is none."""
    path = folder / "run.json"
    if path.is_file():
        try:
            held = json.loads(path.read_text())
        except ValueError:
            raise ValueError(f"{path} is damaged: it does not hold JSON.") from None
        if not isinstance(held, dict) or not {"options", "resolved", "params"} <= set(held):
            raise ValueError(f"{path} was not written by replicax; give another folder.")
        return held
    remedy = "give a folder that `replicax sample` or `replicax demo` wrote."
    if not folder.exists():
        others = [str(path.parent) for path in folder.parent.glob("*/run.json")]
        raise ValueError(f"There is no folder {folder}; {remedy}{suggest(str(folder), others)}")
    within = sorted(str(path.parent) for path in folder.glob("*/run.json"))
    hint = f" There are runs within: {', '.join(within[:5])}." if within else ""
    raise ValueError(f"{folder} is not a run folder: there is no run.json in it; {remedy}{hint}")


def structure_of(params: Any) -> Any:
    """A tree of the kind that `params` stands for: itself, or what it draws or holds."""
    import jax

    from replicax.run.initial import PerReplica

    if isinstance(params, PerReplica):
        return params.tree
    if callable(params) and jax.tree_util.treedef_is_leaf(jax.tree.structure(params)):
        return jax.eval_shape(params, jax.random.key(0))
    return params


@contextlib.contextmanager
def quietly(as_json: bool) -> Iterator[None]:
    """Keep logs of JAX away, warnings to one line, and standard output clean for JSON."""
    import logging

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("absl", "jax", "orbax"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        if as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        warnings.showwarning = _show_warning
        yield


def _show_warning(message: Any, category: Any, filename: str, *others: Any) -> None:
    if Path(filename).parent == Path(__file__).parent and category is UserWarning:
        return  # a problem of the run, which its summary tells
    typer.secho(one_line(f"Warning: {message}"), fg="yellow", err=True)


def print_json(value: Any) -> None:
    typer.echo(to_json(value))


def to_json(value: Any) -> str:
    """JSON without NaN and infinity, which JSON does not know: they become null."""
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


def show(summary: dict[str, Any], as_json: bool, *more: Any) -> None:
    if as_json:
        print_json(summary)
    elif "averages" in summary:
        from replicax.networks.summary import render

        print_tables(render(summary), *more)
    else:
        from replicax.results.summary import render_summary

        print_tables(render_summary(summary), *more)


def finish(posterior: Any, as_json: bool, extra: dict[str, Any] | None = None, *more: Any) -> int:
    """Write and print the summary, name the folder, and turn the result into an exit code."""
    folder = posterior.run_dir
    summary = {"run_dir": str(folder), **posterior.summary(), **(extra or {})}
    (folder / "summary.json").write_text(to_json(summary) + "\n")
    show(summary, as_json, *more)
    code, sentence = posterior.result
    if code == "nonfinite":
        complain(sentence)
    elif code == "interrupted":
        complain(f"{sentence} Go on with: replicax resume {folder}")
    if not as_json:
        typer.echo(f"All of it is in {folder}{os.sep}")
    return {"nonfinite": NONFINITE, "interrupted": INTERRUPTED}.get(code, FINISHED)


def complain(sentence: str) -> None:
    """One red line on standard error."""
    typer.secho(one_line(sentence), fg="red", err=True)


def one_line(text: str) -> str:
    return " ".join(text.split())


def describe_error(error: Exception) -> str:
    """An error as a sentence; a wrong option or command also names its help page."""
    if isinstance(error, UsageError):
        wrong: Any = error  # of a class that type checkers cannot see
        page = "replicax" if wrong.ctx is None else wrong.ctx.command_path
        return f"{_ended(wrong.format_message())} See `{page} --help`."
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"There is no file {error.filename}."
    sentence = str(error) or type(error).__name__
    if isinstance(error, ValueError) and not _is_ours(error):
        return f"{_ended(sentence)} (`replicax --traceback ...` shows where.)"
    return sentence


def _is_ours(error: Exception) -> bool:
    """Whether an error was raised here, as a sentence, and not by a target's own code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and Path(__file__).parent in Path(frames[-1].filename).parents


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
