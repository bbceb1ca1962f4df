"""`replicax reproduce`: the paper's studies from one command each."""

from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import shared as parts
from replicax.cli.shared import FINISHED, Json

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
    model: Annotated[
        str | None, typer.Option(help="table2: the network.", show_default="resnet20")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="table2: a data set or FILE.PY:NAME.", show_default="cifar100"),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="table2: of a network.", show_default="500"),
    ] = None,
    start_epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="table2: of a start network.", show_default="300"),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="table2: run folders.", show_default="OUT/records/table2"),
    ] = None,
    assemble: Annotated[
        bool, typer.Option("--assemble", help="table2: run nothing, use what is there.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Run studies of the paper and put their numbers beside the paper's.

    Each study leaves a page with its verdict (STUDY.md), its numbers (STUDY.json) and its figures
    in a folder. Finished cells are kept: after an interruption the same command goes on, and
    where all is done it only draws again. Without a name, the studies are listed.

    Not part of all are networks, which needs scikit-learn, and table2 (networks on CIFAR-100),
    which needs the data and a GPU. The latter's runs are folders, OUT/records/table2/MODEL/METHOD,
    that may be copied to another machine and gone on with there.

    \b
    Example
      replicax reproduce round-trips --quick
      replicax reproduce all --out docs/results
      replicax reproduce table2 --model resnet20
    """
    from replicax import experiments
    from replicax.errors import choose

    if not names:
        return _list_studies(as_json)
    chosen = tuple(dict.fromkeys(names))
    if "all" in chosen:
        alone = [name for name in experiments.ALONE if name not in chosen]
        chosen = tuple(name for name in experiments.NAMES if name not in alone)
    for name in chosen:
        choose("The study", name, experiments.NAMES)
    special = {
        "model": model, "data": data, "epochs": epochs, "start_epochs": start_epochs,
        "runs": runs, "assemble": assemble or None,
    }  # fmt: skip
    special = {name: value for name, value in special.items() if value is not None}
    if experiments.TABLE2 in chosen:
        _refuse(experiments.TABLE2, {"--quick": quick, "--seeds": seeds, "--fresh": fresh}, chosen)
    elif special:
        wrong = ", ".join("--" + name.replace("_", "-") for name in special)
        raise ValueError(f"Only table2 takes {wrong}: write replicax reproduce table2 {wrong} ...")
    from replicax.experiments.shared import page
    from replicax.experiments.shared.runner import reproduce as run
    from replicax.experiments.shared.study import Scale
    from replicax.run.program import Programs

    held, programs = [], Programs()
    for name in chosen:
        with parts.quietly(as_json):
            if name == experiments.TABLE2:
                held.append(_table2(special, out))
            else:
                study = experiments.load_study(name)
                command = _command(study.name, quick, seeds, out)
                held.append(
                    run(study, out, Scale(quick, seeds), fresh=fresh, command=command,
                        programs=programs)
                )  # fmt: skip
        if not as_json:
            parts.print_tables(_render(held[-1]))
            typer.echo(f"The page: {out / held[-1]['study']}.md\n")
        page.write_index(out, experiments.NAMES)
    if as_json:
        parts.print_json(held)
    return FINISHED


def _refuse(name: str, options: dict[str, Any], chosen: tuple[str, ...]) -> None:
    """Options that a study alone in the command does not take."""
    wrong = [option for option, value in options.items() if value]
    if wrong and chosen == (name,):
        raise ValueError(f"{name} does not take {', '.join(wrong)}; leave it out.")


def _table2(special: dict[str, Any], out: Path) -> dict[str, Any]:
    from replicax.experiments.table2 import study as table2

    given = dict(special)
    runs, assemble = given.pop("runs", None), given.pop("assemble", False)
    return table2.reproduce(
        table2.Settings(**given), out, runs, assemble=assemble,
        command=_table2_command(special, out),
        say=lambda sentence: typer.echo(sentence, err=True),
    )  # fmt: skip


def _table2_command(special: dict[str, Any], out: Path) -> str:
    """As a reader would type it: no folder of this machine alone."""
    options = []
    for name, value in special.items():
        place = str(value).rpartition(":")[0] or str(value)
        if name == "assemble":
            options.append("--assemble")
        elif not Path(place).is_absolute():
            options.append(f"--{name.replace('_', '-')} {value}")
    options += [f"--out {out}"] * (out != _OUT and not out.is_absolute())
    return " ".join(["replicax reproduce table2", *options])


def _command(name: str, quick: bool, seeds: int | None, out: Path) -> str:
    """As a reader would type it; the folder only where it is not the default."""
    options = ["--quick"] * quick + [f"--seeds {seeds}"] * (seeds is not None)
    options += [f"--out {out}"] * (out != _OUT and not out.is_absolute())
    return " ".join(["replicax reproduce", name, *options])


def _list_studies(as_json: bool) -> int:
    from replicax import experiments

    titles = {name: experiments.title_of(name) for name in experiments.NAMES}
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

    from replicax.experiments.shared.study import Measured, number

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
