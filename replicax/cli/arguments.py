"""Arguments that several commands share, and their parsers."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

NUMERIC = ("--learning-rate", "--temperature", "--temperatures", "--noise-std", "--noise")
DATA, METHOD, RUN, FOLDER = "Model and data", "Method", "Run", "Folder and devices"  # of the help
_GROUPS = ("Arguments", DATA, METHOD, RUN, FOLDER, "Options")
Json = Annotated[bool, typer.Option("--json", help="Print only JSON on stdout.")]
Seed = Annotated[int, typer.Option(metavar="N", help="Seed of all random numbers.")]
Progress = Annotated[
    bool | None,
    typer.Option(help="Show progress on stderr.", show_default="if stderr is a terminal"),
]
Devices = Annotated[
    str | None,
    typer.Option(
        metavar="all|N",
        help="Number of devices to use.",
        show_default="all accelerators, or one CPU",
        rich_help_panel=FOLDER,
    ),
]
DataParallel = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Devices per replica, which share its mini-batches.",
        rich_help_panel=FOLDER,
    ),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="A run folder.")]
Params = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the initial parameters.",
        show_default="params or start",
        rich_help_panel=DATA,
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of the data: arrays, or batches(step).",
        show_default="batches",
        rich_help_panel=DATA,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Rows per mini-batch, if the data are arrays.", rich_help_panel=DATA
    ),
]


class InterruptedByUser(Exception):
    """Ctrl-C outside the sampling loop, which would save the run first."""


class Command(TyperCommand):
    """A command whose numeric options accept `0.003 0.6` as well as `0.003,0.6`, and whose help
    shows options in groups."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, join_numbers(args))

    def format_options(self, ctx: Any, formatter: Any) -> None:
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


def read_devices(text: str | None) -> str | int | None:
    """Return the value of --devices."""
    return int(text) if text is not None and text.isdigit() else text


def read_interval(text: str | None) -> int | str | None:
    """Return the value of --checkpoint-every: steps, or a time such as 30s."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text
