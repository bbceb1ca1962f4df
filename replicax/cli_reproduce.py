"""`replicax reproduce`: the paper's studies from one command each."""

from pathlib import Path
from typing import Annotated, Any

import typer

from replicax import cli_parts as parts
from replicax.cli_parts import FINISHED, Json

_OUT = Path("results")


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY...", help='Names of studies, or "all".', show_default=False),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds, steps and cells.")] = False,
    seeds: Annotated[
        int | None, typer.Option(min=2, metavar="N", help="Independent runs of every cell.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where all of it goes.")] = _OUT,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run finished cells again.")] = False,
    as_json: Json = False,
) -> int:
    """Run studies of the paper and put their numbers beside the paper's.

    Each study leaves a page with its verdict (STUDY.md), its numbers (STUDY.json) and its figures
    in a folder. Finished cells are kept: after an interruption the same command goes on, and
    where all is done it only draws again. Without a name, the studies are listed.

    \b
    Example
      replicax reproduce round-trips --quick
      replicax reproduce all --out docs/results
    """
    from replicax import experiments
    from replicax.experiments.study import Scale

    if not names:
        return _list_studies(as_json)
    chosen = experiments.NAMES if "all" in names else tuple(dict.fromkeys(names))
    studies = [experiments.load_study(name) for name in chosen]
    from replicax.experiments import page
    from replicax.experiments.runner import reproduce as run
    from replicax.program import Programs

    held, programs = [], Programs()
    for study in studies:
        command = _command(study.name, quick, seeds, out)
        with parts.quietly(as_json):
            held.append(
                run(study, out, Scale(quick, seeds), fresh=fresh, command=command,
                    programs=programs)
            )  # fmt: skip
        if not as_json:
            parts.print_tables(_render(held[-1]))
            typer.echo(f"The page: {out / study.name}.md\n")
        page.write_index(out, experiments.NAMES)
    if as_json:
        parts.print_json(held)
    return FINISHED


def _command(name: str, quick: bool, seeds: int | None, out: Path) -> str:
    """As a reader would type it; the folder only where it is not the default."""
    options = ["--quick"] * quick + [f"--seeds {seeds}"] * (seeds is not None)
    options += [f"--out {out}"] * (out != _OUT and not out.is_absolute())
    return " ".join(["replicax reproduce", name, *options])


def _list_studies(as_json: bool) -> int:
    from replicax import experiments

    titles = {name: experiments.load_study(name).title for name in experiments.NAMES}
    if as_json:
        parts.print_json(titles)
    else:
        from rich.table import Table

        table = Table("study", "what it shows", title_justify="left")
        for name, title in titles.items():
            table.add_row(name, title)
        parts.print_tables(table)
    return FINISHED


def _render(held: dict[str, Any]) -> Any:
    from rich.table import Table

    from replicax.experiments.study import Measured, number

    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return str(Measured(**value))
        return number(value) if isinstance(value, int | float) else str(value)

    table = Table("", "paper or exact", "ours", "asked", "", title=held["title"],
                  title_justify="left")  # fmt: skip
    words = {True: "[green]met", False: "[red]not met", None: ""}
    for finding in held["findings"]:
        cells = (finding["what"], finding["paper"], shown(finding["ours"]), finding["asked"])
        table.add_row(*cells, words[finding["met"]])
    return table
