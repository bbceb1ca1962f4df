"""The command `python -m studies`: run the paper's studies, from the root of the repository."""

import argparse
import contextlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import studies
from replicax.errors import RunProblem, choose

_OUT = Path("results")
_FINISHED, _FAULTY_INPUT, _INTERRUPTED = 0, 2, 130  # exit codes
_ABOUT = """
Run studies of the paper. Without a name, they are listed.

Each study compares its numbers with the paper's and writes a page with its findings (STUDY.md), its
numbers (STUDY.json) and its figures. Finished parts are kept: after an interruption the same
command continues, and a finished study is only drawn again.

"all" does not include networks, which needs scikit-learn, and recipes and table2 (networks on
CIFAR-100), which need the data and a GPU. The runs of table2 are folders,
OUT/records/table2/MODEL/METHOD. They can be copied to another machine and continued there.

Example
  python -m studies round-trips --quick
  python -m studies all --out docs/results
  python -m studies table2 --model resnet20
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's arguments."""
    reads = argparse.ArgumentParser(
        prog="python -m studies",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = reads.add_argument
    add("names", nargs="*", metavar="STUDY", help='names of studies, or "all"')
    add("--quick", action="store_true", help="fewer seeds, steps and settings")
    add("--seeds", type=int, metavar="N",
        help="independent runs per setting; table2: only its section over N seeds")  # fmt: skip
    add("--out", type=Path, default=_OUT, metavar="DIR", help="folder for results (results)")
    add("--fresh", action="store_true", help="run everything again")
    add("--share", type=_share, metavar="K/N",
        help="run every N-th part from the K-th on, for one of N processes")  # fmt: skip
    add("--json", action="store_true", help="print only JSON on stdout")
    add("--traceback", action="store_true", help="print the Python traceback of an error")
    table2 = reads.add_argument_group("table2").add_argument
    table2("--model", metavar="NAME", help="the network (resnet20)")
    table2("--data", metavar="NAME", help="a data set or FILE.PY:NAME (cifar100)")
    table2("--epochs", type=int, metavar="N", help="epochs per network (500)")
    table2("--start-epochs", type=int, metavar="N", help="epochs per start network (300)")
    table2("--runs", type=Path, metavar="DIR", help="folder of the runs (OUT/records/table2)")
    table2("--assemble", action="store_true", default=None,
           help="only write the page, from existing runs")  # fmt: skip
    table2("--small", action="store_true", default=None,
           help="in small: six networks, 16 x 16 images, 30 + 50 epochs, two seeds; --model: only "
           "this one")  # fmt: skip
    table2("--methods", nargs="+", metavar="NAME",
           help="of --small: only these, without a page")  # fmt: skip
    return reads


def _share(text: str) -> tuple[int, int]:
    """Read K/N."""
    try:
        k, n = (int(part) for part in text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not K/N, such as 1/4") from None
    if not 1 <= k <= n:
        raise argparse.ArgumentTypeError(f"{text}: K counts from 1 to N")
    return k, n


_OF_TABLE2 = ("model", "data", "epochs", "start_epochs", "runs", "assemble", "small", "methods")


def main(args: list[str] | None = None) -> int:
    """Run the command; print an error as one line and return the exit code."""
    given = parser().parse_args(args)
    try:
        _run(given)
    except KeyboardInterrupt:
        return _fail("Interrupted. Everything saved so far is kept.", _INTERRUPTED)
    except (ValueError, OSError, ImportError) as error:
        if given.traceback:
            raise
        return _fail(str(error) or type(error).__name__, _FAULTY_INPUT)
    return _FINISHED


def _fail(sentence: str, code: int) -> int:
    print(" ".join(sentence.split()), file=sys.stderr)
    return code


def _run(given: argparse.Namespace) -> None:
    if not given.names:
        return _list_studies(given.json)
    _check(given)
    chosen = _choose_studies(given.names)
    table2 = {name: value for name in _OF_TABLE2 if (value := getattr(given, name)) is not None}
    if chosen == (studies.TABLE2,):
        _refuse(studies.TABLE2, {"--quick": given.quick, "--fresh": given.fresh,
                                 "--share": given.share})  # fmt: skip
    elif studies.TABLE2 not in chosen and table2:
        wrong = ", ".join(map(_flag, table2))
        raise ValueError(f"Only table2 takes {wrong}: write python -m studies table2 {wrong} ...")
    summaries = []
    for name in chosen:
        with _quietly(given.json):
            summary = _reproduce(name, given, table2)
        if summary is None:  # a share
            continue
        summaries.append(summary)
        if not given.json:
            _print(_render(summary))
            print(f"Page: {given.out / summary['study']}.md\n")
    if given.json:
        print(json.dumps(summaries, indent=1))


def _check(given: argparse.Namespace) -> None:
    for name, least in (("seeds", 2), ("epochs", 1), ("start_epochs", 1)):
        value = getattr(given, name)
        if value is not None and value < least:
            raise ValueError(f"{_flag(name)} is {value}; it must be at least {least}.")


def _choose_studies(names: list[str]) -> tuple[str, ...]:
    """Return the studies to run, each once; "all" leaves out those that must be named."""
    if "all" in names:
        left_out = [name for name in studies.NOT_IN_ALL if name not in names]
        return tuple(name for name in studies.NAMES if name not in left_out)
    return tuple(choose("The study", name, studies.NAMES) for name in dict.fromkeys(names))


def _refuse(study: str, options: dict[str, Any]) -> None:
    wrong = [option for option, value in options.items() if value]
    if wrong:
        raise ValueError(f"{study} does not take {', '.join(wrong)}; leave it out.")


def _reproduce(
    name: str, given: argparse.Namespace, table2: dict[str, Any]
) -> dict[str, Any] | None:
    """Run one study, and write its page and the index of the folder; of a share, neither."""
    from studies.shared import page

    if name == studies.TABLE2:
        summary = _reproduce_table2(table2, given.seeds, given.out)
    else:
        from studies.shared import runner
        from studies.shared.study import Scale

        study, scale = studies.load_study(name), Scale(given.quick, given.seeds)
        words = ["--quick"] * given.quick + [f"--seeds {given.seeds}"] * (given.seeds is not None)
        command = _command(study.name, words, given.out)
        summary = runner.reproduce(
            study, given.out, scale, fresh=given.fresh, command=command, share=given.share
        )
    if summary is None:
        return None
    page.write_index(given.out, studies.NAMES)
    return summary


def _reproduce_table2(
    options: dict[str, Any], seeds: int | None, out: Path
) -> dict[str, Any] | None:
    from studies.table2 import trainings

    if options.get("small"):
        return _reproduce_small(options, seeds, out)
    if "methods" in options:
        raise ValueError("--methods belongs to --small: write table2 --small --methods ...")
    settings = {name: x for name, x in options.items() if name not in ("runs", "assemble")}
    return trainings.reproduce(
        trainings.Settings(**settings), out, options.get("runs"),
        assemble=options.get("assemble", False), num_seeds=seeds,
        command=_table2_command({**options, **({"seeds": seeds} if seeds else {})}, out),
        report=lambda sentence: print(sentence, file=sys.stderr),
    )  # fmt: skip


def _reproduce_small(
    options: dict[str, Any], seeds: int | None, out: Path
) -> dict[str, Any] | None:
    """Run Table 2 in small, or a part of it."""
    from studies.table2 import small, trainings

    known = ("epochs", "start_epochs", "data")
    changed = {name: options[name] for name in known if name in options}
    models = (options["model"],) if "model" in options else trainings.PAPER_MODELS
    methods = [choose("--methods", name, trainings.MADE) for name in options.get("methods", ())]
    return small.reproduce(
        replace(small.SETTINGS, **changed), out, options.get("runs"), models,
        methods=methods or None, num_seeds=seeds or small.NUM_SEEDS,
        assemble=options.get("assemble", False),
        command=_table2_command({"small": True, **options}, out),
        report=lambda sentence: print(sentence, file=sys.stderr),
    )  # fmt: skip


def _table2_command(options: dict[str, Any], out: Path) -> str:
    """Return the command as a reader would type it, without folders of this machine."""
    words = []
    for name, value in options.items():
        place = str(value).rpartition(":")[0] or str(value)
        if name in ("assemble", "small"):
            words.append(_flag(name))
        elif not Path(place).is_absolute():
            words.append(f"{_flag(name)} {value}")
    return _command(studies.TABLE2, words, out)


def _command(name: str, words: list[str], out: Path) -> str:
    """Return the command as a reader would type it."""
    where = [] if out == _OUT or out.is_absolute() else [f"--out {out}"]
    return " ".join(["python -m studies", name, *words, *where])


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


@contextlib.contextmanager
def _quietly(as_json: bool) -> Iterator[None]:
    """Silence the logs of JAX and the warnings about runs, which studies judge themselves; keep
    stdout free for JSON."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    for name in ("absl", "jax", "orbax"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with contextlib.ExitStack() as stack:
        if as_json:
            stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RunProblem)
        yield


def _list_studies(as_json: bool) -> None:
    titles = {name: studies.title_of(name) for name in studies.NAMES}
    if as_json:
        print(json.dumps(titles, indent=1))
    else:
        _print(_render_titles(titles))


def _render_titles(titles: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table("study", "subject", title_justify="left")
    for row in titles.items():
        table.add_row(*row)
    return table


def _render(summary: dict[str, Any]) -> Any:
    from rich.table import Table

    from studies.shared.study import Measured, number

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


def _print(table: Any) -> None:
    from rich.console import Console

    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
