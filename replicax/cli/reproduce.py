"""The command `replicax reproduce`: run the paper's studies."""

from pathlib import Path
from typing import Annotated, Any

import typer

from replicax.cli import output
from replicax.cli.arguments import Json

_OUT = Path("results")


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="STUDY...", help='Names of studies, or "all".', show_default=False),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer seeds, steps and settings.")
    ] = False,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="N",
            help="Independent runs per setting; table2: only its section over N seeds.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for results.")] = _OUT,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run everything again.")] = False,
    model: Annotated[
        str | None, typer.Option(help="table2: the network.", show_default="resnet20")
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="table2: a data set or FILE.PY:NAME.", show_default="cifar100"),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="table2: epochs per network.", show_default="500"),
    ] = None,
    start_epochs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="table2: epochs per start network.", show_default="300"
        ),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="table2: folder of the runs.", show_default="OUT/records/table2"
        ),
    ] = None,
    assemble: Annotated[
        bool, typer.Option("--assemble", help="table2: only write the page, from existing runs.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run studies of the paper.

    Each study compares its numbers with the paper's and writes a page with its findings
    (STUDY.md), its numbers (STUDY.json) and its figures. Finished parts are kept: after an
    interruption the same command continues, and a finished study is only drawn again. Without a
    name, the studies are listed.

    "all" does not include networks, which needs scikit-learn, and table2 (networks on CIFAR-100),
    which needs the data and a GPU. The runs of table2 are folders, OUT/records/table2/MODEL/METHOD.
    They can be copied to another machine and continued there.

    \b
    Example
      replicax reproduce round-trips --quick
      replicax reproduce all --out docs/results
      replicax reproduce table2 --model resnet20
    """
    from replicax import experiments

    if not names:
        return _list_studies(as_json)
    chosen = _choose_studies(names)
    options = {
        "model": model, "data": data, "epochs": epochs, "start_epochs": start_epochs,
        "runs": runs, "assemble": assemble or None,
    }  # fmt: skip
    table2_options = {name: value for name, value in options.items() if value is not None}
    if chosen == (experiments.TABLE2,):
        _refuse(experiments.TABLE2, {"--quick": quick, "--fresh": fresh})
    elif experiments.TABLE2 not in chosen and table2_options:
        wrong = ", ".join("--" + name.replace("_", "-") for name in table2_options)
        raise ValueError(f"Only table2 takes {wrong}: write replicax reproduce table2 {wrong} ...")
    from replicax.experiments.shared import page, runner
    from replicax.experiments.shared.study import Scale

    summaries = []
    for name in chosen:
        with output.quietly(as_json):
            if name == experiments.TABLE2:
                summary = _reproduce_table2(table2_options, seeds, out)
            else:
                study = experiments.load_study(name)
                summary = runner.reproduce(
                    study, out, Scale(quick, seeds), fresh=fresh,
                    command=_command(study.name, quick, seeds, out),
                )  # fmt: skip
        summaries.append(summary)
        if not as_json:
            output.print_tables(_render(summary))
            typer.echo(f"Page: {out / summary['study']}.md\n")
        page.write_index(out, experiments.NAMES)
    if as_json:
        output.print_json(summaries)


def _choose_studies(names: list[str]) -> tuple[str, ...]:
    """Return the studies to run, each once; "all" leaves out those that must be named."""
    from replicax import experiments
    from replicax.errors import choose

    if "all" in names:
        left_out = [name for name in experiments.NOT_IN_ALL if name not in names]
        return tuple(name for name in experiments.NAMES if name not in left_out)
    return tuple(choose("The study", name, experiments.NAMES) for name in dict.fromkeys(names))


def _refuse(study: str, options: dict[str, Any]) -> None:
    wrong = [option for option, value in options.items() if value]
    if wrong:
        raise ValueError(f"{study} does not take {', '.join(wrong)}; leave it out.")


def _reproduce_table2(options: dict[str, Any], seeds: int | None, out: Path) -> dict[str, Any]:
    from replicax.experiments.table2 import study as table2

    settings = {name: x for name, x in options.items() if name not in ("runs", "assemble")}
    return table2.reproduce(
        table2.Settings(**settings), out, options.get("runs"),
        assemble=options.get("assemble", False), num_seeds=seeds,
        command=_table2_command({**options, **({"seeds": seeds} if seeds else {})}, out),
        report=lambda sentence: typer.echo(sentence, err=True),
    )  # fmt: skip


def _table2_command(options: dict[str, Any], out: Path) -> str:
    """Return the command as a reader would type it, without folders of this machine."""
    words = []
    for name, value in options.items():
        place = str(value).rpartition(":")[0] or str(value)
        if name == "assemble":
            words.append("--assemble")
        elif not Path(place).is_absolute():
            words.append(f"--{name.replace('_', '-')} {value}")
    return " ".join(["replicax reproduce table2", *words, *_out_option(out)])


def _command(name: str, quick: bool, seeds: int | None, out: Path) -> str:
    """Return the command as a reader would type it."""
    options = ["--quick"] * quick + [f"--seeds {seeds}"] * (seeds is not None)
    return " ".join(["replicax reproduce", name, *options, *_out_option(out)])


def _out_option(out: Path) -> list[str]:
    return [] if out == _OUT or out.is_absolute() else [f"--out {out}"]


def _list_studies(as_json: bool) -> None:
    from replicax import experiments

    titles = {name: experiments.title_of(name) for name in experiments.NAMES}
    output.show(titles, as_json, _render_titles)


def _render_titles(titles: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table("study", "subject", title_justify="left")
    for row in titles.items():
        table.add_row(*row)
    return table


def _render(summary: dict[str, Any]) -> Any:
    from rich.table import Table

    from replicax.experiments.shared.measured import Measured, number

    def as_text(value: Any) -> str:
        if isinstance(value, dict):
            return str(Measured(**value))
        return number(value) if isinstance(value, int | float) else str(value)

    table = Table("", "paper or exact", "ours", "asked", "", title=summary["title"],
                  title_justify="left")  # fmt: skip
    words = {True: "[green]met", False: "[red]not met", None: ""}
    for finding in summary["findings"]:
        cells = (finding["what"], finding["paper"], as_text(finding["ours"]), finding["asked"])
        table.add_row(*cells, words[finding["met"]])
    return table
