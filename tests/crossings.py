"""What crosses between devices in the compiled loop of a run, for tests:
`python crossings.py CASE` writes a JSON list of the collective operations."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from layout_cases import CASES
from layouts import DEVICES, environment

_COLLECTIVE = re.compile(
    r"= (\(.*?\)|\S+) (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter"
    r"|collective-broadcast|ragged-all-to-all)(?:-start)?\("
)
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|branch_computations|[a-z]+_computation)=")
_NAME = re.compile(r"%([\w.\-]+)")


class Crossing(NamedTuple):
    """A collective operation of a compiled program."""

    operation: str
    size: int  # numbers that each device has afterwards
    in_loop: bool  # executed at every step
    in_branch: bool  # executed only where a condition holds


def crossings(program: str) -> list[Crossing]:
    """Return the collective operations of a program in the text form of XLA."""
    computations = _computations(program)
    entry = re.search(r"^ENTRY %([\w.\-]+)", program, re.MULTILINE)
    assert entry is not None
    found, seen = [], set()

    def visit(name: str, in_loop: bool, in_branch: bool) -> None:
        if (name, in_loop, in_branch) in seen:
            return
        seen.add((name, in_loop, in_branch))
        for line in computations[name]:
            match = _COLLECTIVE.search(line)
            if match:
                found.append(Crossing(match[2], _size(match[1]), in_loop, in_branch))
            loops, branches = " while(" in line, " conditional(" in line
            for called in _called(line, computations):
                visit(called, in_loop or loops, in_branch or branches)

    visit(entry[1], False, False)
    return found


def _computations(program: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in program.splitlines():
        header = re.match(r"(?:ENTRY )?%([\w.\-]+) \(.*\{$", line)
        if header:
            lines = found.setdefault(header[1], [])
        elif line.startswith("  "):
            lines.append(line)
    return found


def _called(line: str, computations: dict) -> list[str]:
    attributes = "".join(line[match.start() :] for match in [_CALLED.search(line)] if match)
    return [name for name in _NAME.findall(attributes) if name in computations]


def _size(shapes: str) -> int:
    """Return the number of elements of a shape such as "f32[4,2]{1,0}", or of the largest part."""
    sizes = []
    for dimensions in re.findall(r"\[([\d,]*)\]", shapes):
        size = 1
        for length in filter(None, dimensions.split(",")):
            size *= int(length)
        sizes.append(size)
    return max(sizes)


def crossings_of(case: str, layout: str = "4") -> list[Crossing]:
    """Compile a case in a process of its own with four devices."""
    flags = environment(DEVICES.format(4))
    command = [sys.executable, __file__, case, layout]
    done = subprocess.run(command, env=flags, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return [Crossing(*entry) for entry in json.loads(done.stdout.splitlines()[-1])]


@contextlib.contextmanager
def recorded(path: Path) -> Iterator[None]:
    """Run meanwhile, and write the collective operations of the loops to a file."""
    from replicax.run.devices import SpreadChunk

    programs: dict[SpreadChunk, Any] = {}

    def run(chunk: SpreadChunk, *arguments: Any) -> Any:
        placed = chunk.arguments(*arguments)
        if chunk not in programs:
            programs[chunk] = chunk.compiled.lower(*placed).compile()
        return programs[chunk](*placed)

    SpreadChunk.__call__, before = run, SpreadChunk.__call__  # type: ignore[method-assign]
    yield
    SpreadChunk.__call__ = before  # type: ignore[method-assign]
    found = [one for program in programs.values() for one in crossings(program.as_text())]
    path.write_text(json.dumps(found))


def read(path: Path) -> list[Crossing]:
    """Return what `recorded` wrote."""
    return [Crossing(*entry) for entry in json.loads(path.read_text())]


def main() -> None:
    from layouts import devices_of

    from replicax.run.devices import SpreadChunk

    class Compiled(Exception):
        pass

    def compile_only(chunk: SpreadChunk, *arguments: object) -> None:
        program = chunk.compiled.lower(*chunk.arguments(*arguments)).compile()  # type: ignore
        raise Compiled(program.as_text())

    SpreadChunk.__call__ = compile_only  # type: ignore[method-assign, assignment]
    case, layout = sys.argv[1:]
    try:
        CASES[case](devices_of(layout))
    except Compiled as program:
        print(json.dumps(crossings(str(program))))


if __name__ == "__main__":
    main()
