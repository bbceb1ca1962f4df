"""Flags of commands, from the declarations of the options of a run and of its method."""

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator
from dataclasses import MISSING, fields
from typing import Annotated, Any, NamedTuple, TypeVar

import typer

from replicax.cli.arguments import METHOD, NUMERIC, RUN, read_interval, read_numbers
from replicax.run.methods import Method
from replicax.run.options import Option, options_of

Command = TypeVar("Command", bound=Callable)


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
) -> Callable[[Command], Command]:
    """Add flags to a command, a function of its own arguments and of `**given`, which takes them.

    They are those that options of these kinds declare for the command, or with `names` those of
    these options. `defaults` are the command's. All others are None unless they are given: the
    help shows the declared default, or what `shows` says.
    """

    def decorated(command: Command) -> Command:
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
        options, panel = options_of(kind), METHOD if kind is Method else RUN
        # Those that every run needs come first in the help.
        for entry in sorted(fields(kind), key=lambda entry: entry.default is not MISSING):
            option = options.get(entry.name)
            if option is not None and option.flag is not None:
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
        metavar=flag.option.metavar or ("NAME" if kind is str else None),
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
        return read_numbers(flag.text, value)
    return read_interval(value) if flag.name == "checkpoint_every" else value
