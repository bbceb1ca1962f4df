"""Flags of commands, from the declarations of options."""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

import typer
from typer.core import TyperCommand

from replicax.networks.by_name import NamedProblem
from replicax.run.methods import Method
from replicax.run.options import Option, Session, options_of
from replicax.user_code import TargetSpec

NUMERIC = (
    *("--learning-rate", "--temperature", "--temperatures"),
    *("--noise-std", "--noise", "--class-weight"),
)
DATA, METHOD, RUN, FOLDER = "Model and data", "Method", "Run", "Folder and devices"  # of the help
_PANELS = {Method: METHOD, NamedProblem: DATA, TargetSpec: DATA, Session: FOLDER}  # others: RUN
_GROUPS = ("Arguments", DATA, METHOD, RUN, FOLDER, "Options")
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
_AGAIN: Any = {"metavar": "FILE.PY:NAME", "show_default": "as before", "rich_help_panel": DATA}
_WHERE = "where the folder names code that is not known here."
ModelAgain = Annotated[str | None, typer.Option("--model", help=f"The network, {_WHERE}", **_AGAIN)]
DataAgain = Annotated[str | None, typer.Option("--data", help=f"The data, {_WHERE}", **_AGAIN)]
LikelihoodAgain = Annotated[
    str | None, typer.Option("--likelihood", help=f"The likelihood, {_WHERE}", **_AGAIN)
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]


class InterruptedByUser(Exception):
    """Ctrl-C outside the sampling loop, which would save the run first."""


class Command(TyperCommand):
    """A command whose numeric options accept `0.003 0.6` as well as `0.003,0.6`, and whose help
    shows options in groups."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_numbers(args))

    def format_options(self, ctx: typer.Context, formatter: Any) -> None:
        groups: dict[str, list[Any]] = {place: [] for place in _GROUPS}
        for param in self.get_params(ctx):
            place = getattr(param, "rich_help_panel", None) or "Options"
            place = "Arguments" if param.param_type_name == "argument" else place
            record = param.get_help_record(ctx)
            groups[place] += [] if record is None else [record]
        for place, records in groups.items():
            if records:
                with formatter.section(place):
                    formatter.write_dl(records)

    def invoke(self, ctx: typer.Context) -> Any:
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
        if option in NUMERIC and _as_numbers(arg):
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


Decorated = TypeVar("Decorated", bound=Callable)


class Flag(NamedTuple):
    """The flag of an option."""

    name: str  # of the option
    option: Option
    hint: Any  # its type
    default: Any  # as declared; None where there is none
    panel: str  # of the help

    @property
    def text(self) -> str:
        return self.option.flag or f"--{self.name.replace('_', '-')}"


def of(
    *kinds: type, names: Collection[str] | None = None, shows: str | None = None, **defaults: Any
) -> Callable[[Decorated], Decorated]:
    """Add flags to a command, a function of its own arguments and of `**given`, which takes them.

    They are those that options of these kinds declare for the command, or with `names` those of
    these options. `defaults` are the command's. All others are None unless they are given: the
    help shows the declared default, or what `shows` says.
    """

    def decorated(command: Decorated) -> Decorated:
        signature = inspect.signature(command)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        added = {}
        for flag in _flags_of(kinds):
            belongs = flag.option.command in (None, command.__name__)
            if belongs if names is None else flag.name in names:
                added[flag.name] = _parameter(flag, defaults.get(flag.name), shows)
        parameters = [*own, *added.values()]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorated


def given(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Return the options of this kind among the values of flags that were given."""
    known = {flag.name: flag for flag in _flags_of([kind])}
    return {
        name: _read(known[name], value)
        for name, value in values.items()
        if name in known and value is not None
    }


def may_change(*kinds: type) -> set[str]:
    """Return the options that a run that resumes may change."""
    flags = _flags_of(kinds)
    return {flag.name for flag in flags if flag.option.on_resume in ("may change", "may grow")}


def _flags_of(kinds: Collection[type]) -> Iterator[Flag]:
    for kind in kinds:
        options, panel = options_of(kind), _PANELS.get(kind, RUN)
        # Those that every run needs come first in the help.
        for entry in sorted(fields(kind), key=lambda entry: entry.default is not MISSING):
            option = options.get(entry.name)
            if option is not None and option.help:
                default = None if entry.default is MISSING else entry.default
                yield Flag(entry.name, option, entry.type, default, panel)


def _parameter(flag: Flag, default: Any, shows: str | None) -> inspect.Parameter:
    """Return a flag as an argument of a command."""
    kind, text, help = _kind_of(flag.hint), flag.text, flag.option.help
    words, declared = shows or flag.option.show_default, flag.default
    if kind is bool and declared is not False:
        text = f"{text}/--no-{text[2:]}"
    if default is None and words:
        help = f"{help}  [default: ({words})]"
    elif default is None and not (declared is None or declared is False):
        help = f"{help}  [default: {declared}]"
    about = typer.Option(
        text,
        metavar=flag.option.metavar or {str: "NAME", int: "N"}.get(kind),
        help=help,
        show_default=default is not None,
        rich_help_panel=flag.panel,
    )
    hint = Annotated[kind | None, about]
    return inspect.Parameter(
        flag.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint
    )


def _kind_of(hint: Any) -> type:
    """Return the type that a prompt reads: text, where the option may be an object."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((kind for kind in (str, bool, int, float) if kind in parts), str)


def _read(flag: Flag, value: Any) -> Any:
    if flag.text in NUMERIC:
        words = flag.name in (
            "noise",
            "class_weight",
        )  # of which there may be one in place of numbers
        return value if words and not _as_numbers(value) else read_numbers(flag.text, value)
    is_count = isinstance(value, str) and flag.name in ("checkpoint_every", "devices")
    return int(value) if is_count and value.isascii() and value.isdigit() else value
