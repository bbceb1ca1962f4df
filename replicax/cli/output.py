"""Output of commands: JSON for programs, tables for people, and exit codes."""

import contextlib
import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import typer

from replicax.cli.messages import one_line, print_error
from replicax.errors import RunProblem

FINISHED, FAULTY_INPUT, NONFINITE, INTERRUPTED = 0, 2, 3, 130  # exit codes


def join_processes() -> None:
    """Join the other processes of this run, of which the environment tells; only the first
    prints."""
    from replicax.run import machine
    from replicax.run.connect import connect

    if not connect():
        return
    sys.stdout.flush()
    own = os.dup(1) if machine.is_first() else os.open(os.devnull, os.O_WRONLY)
    os.dup2(2, 1)  # libraries print there how processes connect
    sys.stdout = os.fdopen(own, "w")


def writes() -> bool:
    """Return whether this process prints and writes: whether it is the first of a shared run."""
    if "jax" not in sys.modules:  # JAX takes long to import, and without it this process is alone
        return True
    from replicax.run import machine

    return machine.is_first()


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
    if not issubclass(category, RunProblem):  # run problems are shown in the summary
        typer.secho(one_line(f"Warning: {message}"), fg="yellow", err=True)


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
    """Print `value` as JSON, or as the table `render(value)`, followed by the tables `more`."""
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
