"""Output of commands: JSON for programs, tables for people, and exit codes."""

import contextlib
import json
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from replicax.errors import RunProblem, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from replicax.results.posterior import Posterior

UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # of click, or of the copy in typer
_PACKAGE = Path(__file__).parents[1]
_MADE = re.compile(r"method=rx\.(\w+)\(((?:[^()]|\([^()]*\))*)\)")


def print_error(sentence: str) -> None:
    """Print one red line on stderr."""
    typer.secho(one_line(sentence), fg="red", err=True)


def one_line(text: str) -> str:
    """Return a message as one line that steers no terminal, whatever a file put into it."""
    return printable(" ".join(text.split()))


def describe_error(error: Exception) -> str:
    """Return an error as a sentence; for a wrong option or command, with its help page."""
    if isinstance(error, UsageError):
        usage_error: Any = error  # of a class that type checkers cannot see
        page = "replicax" if usage_error.ctx is None else usage_error.ctx.command_path
        return f"{_end(usage_error.format_message())} See `{page} --help`."
    if isinstance(error, FileNotFoundError) and error.filename:
        return f"There is no file {error.filename}."
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename} cannot be used: {error.strerror.lower()}."
    sentence = str(error) or type(error).__name__
    if isinstance(error, ValueError) and not _is_ours(error):
        return f"{_end(sentence)} (`replicax --traceback ...` shows where.)"
    return sentence


def as_written(sentence: str, options: dict[str, str]) -> str:
    """Return a message in which Python names are replaced by those of the command line.

    Names that are also words are replaced only where a value follows, or where they begin.

    >>> as_written('window is 9; write schedule="deo".', {"window": "--window", "schedule": "-s"})
    '--window is 9; write -s deo.'
    >>> options = {"method": "--method", "learning_rate": "--learning-rate"}
    >>> as_written("write method=rx.deo_star(learning_rate=(cold, hot)) here", options)
    'write --method deo-star --learning-rate cold hot here'
    >>> as_written("write download=True", {"download": "--download"})
    'write --download'
    """
    sentence = _MADE.sub(_by_name, sentence)
    flags = {name: flag for name, flag in options.items() if flag.startswith("-")}
    for name, flag in flags.items():
        alone = rf"(?<![\w.-]){name}"
        sentence = re.sub(
            rf"{alone}=\(?\"?([\w.+-]+(?:, [\w.+-]+)*)\"?\)?",
            lambda found, flag=flag: (
                flag + f" {found[1].replace(', ', ' ')}" * (found[1] != "True")
            ),
            sentence,
        )
        follows = r"(?=[\d('\"\[-]|nan\b|inf\b|None\b|a number\b)"
        sentence = re.sub(rf"{alone} is {follows}", f"{flag} is ", sentence)
        sentence = re.sub(
            rf"^{alone} (?=(?:must|holds|has|gives|are|differ)\b)", f"{flag} ", sentence
        )
        if "_" in name:
            sentence = re.sub(rf"{alone}(?![\w(])", flag, sentence)
    return sentence


def _by_name(found: re.Match) -> str:
    """Return a method that a function makes as its name, followed by its options."""
    name, options = found[1].replace("_", "-"), re.sub(r", (?=\w+=)", " ", found[2])
    return f'method="{name}" {options}'.strip()


def _is_ours(error: Exception) -> bool:
    """Return whether replicax raised the error, rather than the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and _PACKAGE in Path(frames[-1].filename).parents


def _end(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


FINISHED, FAULTY_INPUT, NONFINITE, INTERRUPTED = 0, 2, 3, 130  # exit codes


def join_processes() -> None:
    """Join the other processes of this run, of which the environment tells; only the first
    prints."""
    from replicax.run import processes
    from replicax.run.processes import connect

    if not connect():
        return
    sys.stdout.flush()
    own = os.dup(1) if processes.is_first() else os.open(os.devnull, os.O_WRONLY)
    os.dup2(2, 1)  # libraries print there how processes connect
    sys.stdout = os.fdopen(own, "w")


def writes() -> bool:
    """Return whether this process prints and writes: whether it is the first of a shared run."""
    if "jax" not in sys.modules:  # JAX takes long to import, and without it this process is alone
        return True
    from replicax.run import processes

    return processes.is_first()


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


def _show_warning(message: Warning | str, category: type[Warning], *others: object) -> None:
    if not issubclass(category, RunProblem):  # run problems are shown in the summary
        typer.secho(one_line(f"Warning: {message}"), fg="yellow", err=True)


def print_json(value: object) -> None:
    typer.echo(to_json(value))


def to_json(value: object) -> str:
    """Return `value` as JSON; NaN and infinity, which JSON does not have, become null."""
    text = json.dumps(value, default=lambda x: x.tolist() if hasattr(x, "tolist") else str(x))
    return json.dumps(json.loads(text, parse_constant=lambda word: None), indent=1)


def show(value: Any, as_json: bool, render: Callable[[Any], Any], *more: "RenderableType") -> None:
    """Print `value` as JSON, or as the table `render(value)`, followed by the tables `more`."""
    if as_json:
        print_json(value)
    else:
        from rich.console import Console

        # What a folder calls something is no markup.
        Console(markup=False, emoji=False).print(render(value), *more, sep="\n")


def show_summary(summary: dict[str, Any], as_json: bool, *more: "RenderableType") -> None:
    if "averages" in summary:
        from replicax.networks.report import render
    else:
        from replicax.results.summary import render_summary as render
    if not as_json:
        told = [as_command(sentence, summary) for sentence in summary["problems"]]
        summary = {**summary, "problems": told}
    show(summary, as_json, render, *more)


def as_command(sentence: str, summary: dict[str, Any]) -> str:
    """Return a problem of a run with commands in place of what is written in Python.

    >>> run = {"run_dir": "runs/a-1", "num_steps": 600}
    >>> as_command("Draws are few. Write posterior.extend(1_900).", run)
    'Draws are few. Write `replicax resume runs/a-1 --steps 2500`.'
    >>> as_command("Write num_replicas=12 (this run has 8).", run)
    'Write --replicas 12 (this run has 8).'
    """
    folder, steps = summary.get("run_dir", "RUN"), summary.get("num_steps", 0)
    sentence = re.sub(
        r"posterior\.extend\(([\d_]+)\)",
        lambda found: f"`replicax resume {folder} --steps {steps + int(found[1])}`",
        sentence,
    )
    return re.sub(r"num_replicas=(\d+)", r"--replicas \1", sentence)


def finish(
    posterior: "Posterior",
    as_json: bool,
    extra: dict[str, Any] | None = None,
    *more: "RenderableType",
) -> int:
    """Write and print the summary of a run, and return the exit code of its result."""
    from replicax.run.storage.files import write_shown

    codes = {"nonfinite": NONFINITE, "interrupted": INTERRUPTED}
    if not writes():
        return codes.get(posterior.result[0], FINISHED)
    folder = posterior.run_dir
    assert folder is not None, "commands write into a folder"
    summary = {"run_dir": str(folder), **posterior.summary(), **(extra or {})}
    show_summary(summary, as_json, *more)
    write_shown(folder / "summary.json", f"{to_json(summary)}\n".encode())
    code, sentence = posterior.result
    if code == "nonfinite":
        print_error(sentence)
    if not as_json:
        typer.echo(f"Results are in {folder}{os.sep}")
    return codes.get(code, FINISHED)
