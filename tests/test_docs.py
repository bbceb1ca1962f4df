"""Every block of code in the README and the documentation runs as it stands.

The Python blocks of a page run in their order, in one namespace and an empty folder; what a page
says that they print is compared. Commands are parsed by the program they name. A block that
cannot run has the line `<!-- not run: reason -->` above it, and `NOT_RUN` counts those.
"""

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from replicax.cli.main import app
from replicax.cli.output import UsageError
from studies.__main__ import parser as studies_parser

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "benchmarks/README.md", ROOT / "CONTRIBUTING.md"]
PAGES += sorted((ROOT / "docs").rglob("*.md"))
SLOW = {
    f"{name}.md"
    for name in (
        "callbacks", "developing", "gallery", "models", "networks", "numpyro", "pymc", "report",
        "sampling",
        "scaling", "start",
    )
}  # fmt: skip
NOT_RUN = 1  # blocks that are marked so
CLAIMS = {  # what sentences and comments of a page say about its results
    "index.md": "0.3 < (posterior.draws > 0).mean() < 0.7",
    "gallery.md": "rx.targets.mode_distance(ours.draws) < 0.04 and 30 < delays.mean() < 70",
    "start.md": "0.3 < (posterior.draws['slope'] > 0).mean() < 0.7",
    "sampling.md": "0.3 < (posterior.draws['x'] < 0).mean() < 0.5",
    "numpyro.md": "0.2 < (posterior.draws < 0).mean() < 0.6",
    "pymc.md": "0.3 < (draws['mean'][..., 0] < 0).mean() < 0.7",
    "callbacks.md": "posterior.result.code == 'stopped'",
    "report.md": "path.exists() and path.with_name('run').joinpath('report.html').exists()",
    "pytorch.md": "averaged.metrics().accuracy > 0.8 and exchange.num_steps == 240",
}
MAY_BE_MISSING = {"pymc", "torch"}  # other packages that pages import are in the extra `test`

FENCE = re.compile(
    r"^(?P<marked><!-- not run: .+ -->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![\w.])-?\d*\.\d*(?![\w.])")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    code: str
    line: int  # where it begins in its page
    marked: bool  # as one that does not run


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(
            found["language"],
            found["code"],
            text.count("\n", 0, found.start("code")),
            bool(found["marked"]),
        )
        for found in FENCE.finditer(text)
    ]


def python_of(page: Path) -> list[Block]:
    return [b for b in blocks_of(page) if b.language in ("python", "pycon") and not b.marked]


def parameters() -> list[Any]:
    return [
        pytest.param(page, id=name, marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page in PAGES
        if python_of(page)
        for name in [str(page.relative_to(ROOT))]
    ]


def run_doctest(block: Block, scope: dict, name: str) -> None:
    examples = doctest.DocTestParser().get_doctest(block.code, scope, name, name, block.line)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(examples, out=said.append, clear_globs=False)
    scope.update(examples.globs)
    assert not said, "".join(said)


def compare(printed: str, stated: str) -> None:
    """Words and whole numbers must agree; decimals may differ as machines and versions do."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", stated).split(), printed
    for got, said in zip(NUMBER.findall(printed), NUMBER.findall(stated)):
        assert float(got) == pytest.approx(float(said), rel=0.4, abs=0.3), printed


def run_page(page: Path) -> None:
    name, scope = page.name, {"__name__": "page"}
    blocks = blocks_of(page)
    for block, after in zip(blocks, [*blocks[1:], None]):
        if block.language not in ("python", "pycon") or block.marked:
            continue
        for package in MAY_BE_MISSING:
            needed = re.search(rf"^(import|from) {package}\b", block.code, re.MULTILINE)
            if needed and importlib.util.find_spec(package) is None:
                pytest.skip(f"{name} needs {package} from line {block.line} on")
        if block.code.startswith(">>>"):
            run_doctest(block, scope, name)
            continue
        code = compile("\n" * block.line + block.code, name, "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, scope)
        if after and after.language == "text" and "print(" in block.code:
            compare(printed.getvalue(), after.code)
    assert eval(CLAIMS.get(name, "True"), scope)


@pytest.mark.parametrize("page", parameters())
@pytest.mark.filterwarnings("ignore")
def test_python_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize(
    "text, fails",
    [
        ("```python\nx = 1\n```\n\n```python\nprint(x, 0.52)\n```\n\n```text\n1 0.5\n```\n", None),
        ("```python\nprint(1, 0.52)\n```\n\n```text\n2 0.5\n```\n", AssertionError),
        ("```python\nprint(1, 0.52)\n```\n\n```text\n1 1.5\n```\n", AssertionError),
        ("```pycon\n>>> 1 + 1\n3\n```\n", AssertionError),
        ("```python\nmissing\n```\n", NameError),
        ("<!-- not run: nothing is there -->\n```python\nmissing\n```\n", None),
    ],
)
def test_a_wrong_page_is_noticed(text, fails, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(fails) if fails else contextlib.nullcontext():
        run_page(page)


def parse(command: str) -> None:
    """Parse a command line of `replicax`, without running it."""
    group: Any = typer.main.get_command(app)
    words = shlex.split(command, comments=True)[1:]
    context = group.make_context("replicax", list(words))
    if words and not words[0].startswith("-"):
        name, found, rest = group.resolve_command(context, words)
        found.make_context(name, rest, parent=context)


def check_command(command: str) -> None:
    words = shlex.split(command, comments=True)
    while "=" in words[0]:  # a variable of the environment
        words.pop(0)
    if words[0] == "replicax":
        parse(command)
    elif words[:2] == ["pip", "install"]:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for extras in re.findall(r"\[(.*?)\]", command):
            assert set(extras.split(",")) <= set(project["optional-dependencies"]), command
    elif words[0] == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in words[1:] if "=" not in word} <= set(targets), command
    else:
        assert words[:2] == ["python", words[1]] and (ROOT / words[1]).is_file(), command


def commands_of(page: Path) -> list[str]:
    """The lines of shell blocks, and of what a terminal shows after `$`."""
    lines = []
    for block in blocks_of(page):
        if block.marked:
            continue
        code = block.code.replace("\\\n", " ")
        if block.language in ("sh", "bash"):
            lines += [line for line in code.splitlines() if line.split("#")[0].strip()]
        if block.language == "text":
            lines += re.findall(r"^\$ (.*)$", code, re.MULTILINE)
    return lines


def test_commands_of_blocks_are_understood():
    commands = [command for page in PAGES for command in commands_of(page)]
    assert len(commands) > 15
    for command in commands:
        check_command(command)
    with pytest.raises(UsageError):
        check_command("replicax sample model.py:energy --stesp 10")


def test_commands_in_sentences_have_the_options_they_name():
    group: Any = typer.main.get_command(app)
    seen = 0
    for page in PAGES:
        for command in re.findall(r"`replicax (\w+[^`]*)`", FENCE.sub("", page.read_text())):
            name, *words = command.split(" -- ")[0].split()
            options = {o for p in group.commands[name].params for o in [*p.opts, *p.secondary_opts]}
            named = {word.rstrip(",") for word in words if word.startswith("--")}
            assert named <= options | {"--help"}, f"{page.name}: replicax {command}"
            seen += 1
        for words in re.findall(r"`python -m studies ([^`]*)`", page.read_text()):
            studies_parser().parse_args(words.split())
            seen += 1
    assert seen > 30


def test_blocks_have_a_language_and_few_do_not_run():
    blocks = {page: blocks_of(page) for page in PAGES}
    for page, found in blocks.items():
        assert page.read_text().count("```") == 2 * len(found), f"{page}: a fence is not read"
        assert all(b.language in ("python", "pycon", "sh", "bash", "text") for b in found), page
    assert sum(block.marked for found in blocks.values() for block in found) == NOT_RUN
