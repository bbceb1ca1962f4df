"""The mutations of a source file, generated from its syntax tree.

Each changes one node. What people read is left alone: docstrings, annotations, messages,
decorators, f-strings and `__all__`.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

COMPARED = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
_PAIRS = (
    ("min", "max"),
    ("any", "all"),
    ("argmin", "argmax"),
    ("minimum", "maximum"),
    ("nanmin", "nanmax"),
    ("floor", "ceil"),
    ("logical_and", "logical_or"),
)
OPPOSITE = dict(_PAIRS) | {right: left for left, right in _PAIRS}
# The order of their arguments does not matter, or the other order cannot run at all.
ORDERLESS = {
    *("isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "print"),
    *("min", "max", "minimum", "maximum", "logaddexp", "hypot", "gcd", "zip"),
    *("array_equal", "logical_and", "logical_or", "add", "multiply", "warn"),
}
# What follows these changes no result.
COSMETIC = {"indent", "stacklevel", "maxsize"}
TINY = 1e-6  # smaller numbers keep something from being zero; twice as much does it as well
LARGE = 100  # whole numbers from here on are sizes, and one more has no other meaning
WARNINGS = {"warn", "warning", "fail", "refuse"}


class Mutant(NamedTuple):
    """One change of one node."""

    path: str  # of the file, below the repository
    function: str  # its qualified name; "" outside functions and classes
    operator: str
    before: str  # the smallest expression or statement that shows the change, on one line
    after: str
    occurrence: int  # 0, 1, ... among equal changes in the function
    start: int  # where the replaced bytes are in the file
    end: int
    text: str  # what replaces them
    lines: tuple[int, int]  # first and last line of the replaced node; of the guarded lines
    statement: tuple[int, int]  # and of the statement, or of its header, around it
    called: bool  # False: executed when the file is imported

    @property
    def name(self) -> str:
        """What identifies the mutant as long as its function has this line."""
        again = f" [{self.occurrence}]" if self.occurrence else ""
        return f"{self.path}:{self.function}: {self.before} -> {self.after}{again}"

    def apply(self, source: str) -> str:
        """Return the source with the change."""
        data = source.encode()
        return (data[: self.start] + self.text.encode() + data[self.end :]).decode()


class _Change(NamedTuple):
    """A node that takes the place of another."""

    operator: str
    old: ast.AST
    new: ast.AST
    shown: ast.AST | None = None  # the node around both that people need to see
    lines: tuple[int, int] | None = None


def mutants_of(source: str, path: str) -> list[Mutant]:
    """Return all mutants of a file."""
    tree = ast.parse(source)
    starts = _line_starts(source)
    seen: Counter[tuple[str, str, str]] = Counter()
    made = []
    for change, place in _changes(tree):
        before, after = _shown(change)
        if before == after:
            continue
        key = (place.function, before, after)
        start, end = _span(change.old, starts)
        made.append(
            Mutant(
                path,
                place.function,
                change.operator,
                before,
                after,
                seen[key],
                start,
                end,
                _text_of(change.new),
                change.lines or (change.old.lineno, change.old.end_lineno),  # type: ignore[attr-defined]
                place.statement,
                place.called,
            )
        )
        seen[key] += 1
    return made


def mutant_at(source: str, path: str, function: str, before: str, after: str) -> Mutant:
    """Return the mutant that replaces an expression or statement, given as text, in a function.

    `function` is a qualified name or its last part, "" for a whole file. Both texts are compared
    and written as Python prints them, so that line breaks and quotes do not matter. Raise
    `LookupError` unless the text is found exactly once.
    """
    wanted, new = _parsed(before), _parsed(after)
    text = ast.unparse(wanted)
    found = [
        (node, place)
        for node, place in _placed(ast.parse(source))
        if place.function == function or place.function.endswith(f".{function}") or not function
        if type(node) is type(wanted) and ast.unparse(node) == text
    ]
    if len(found) != 1:
        raise LookupError(f"{path}: {function or 'the file'} has {len(found)} times: {before}")
    node, place = found[0]
    start, end = _span(node, _line_starts(source))
    lines = (node.lineno, node.end_lineno)
    shown = (text, ast.unparse(new))
    put = _text_of(new).replace("\n", "\n" + " " * node.col_offset)
    return Mutant(
        path, place.function, "by hand", *shown, 0, start, end, put, lines,
        place.statement, place.called,
    )  # fmt: skip


def functions_of(source: str) -> dict[str, tuple[int, int]]:
    """Return first and last line of every function and class, by qualified name."""
    found: dict[str, tuple[int, int]] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}.{child.name}" if prefix else child.name
                found.setdefault(name, (child.lineno, child.end_lineno or child.lineno))
            visit(child, name)

    visit(ast.parse(source), "")
    return found


class _Place(NamedTuple):
    function: str
    statement: tuple[int, int]
    called: bool


def _placed(tree: ast.AST) -> Iterator[tuple[Any, _Place]]:
    """Yield every expression and statement that may change, outer ones first."""
    yield from _visit(tree, _Place("", (1, 1), False))


def _visit(node: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    if isinstance(node, ast.stmt):
        place = place._replace(statement=_header(node))
        if _is_for_people(node):
            return
        yield node, place
    elif isinstance(node, ast.expr):
        if isinstance(node, ast.JoinedStr):
            return
        yield node, place
    for child, inside in _children(node, place):
        yield from _visit(child, inside)


def _children(node: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
    """Yield what is below a node and is neither annotation, decorator nor message."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        inner = f"{place.function}.{node.name}" if place.function else node.name
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            yield default, place._replace(function=inner)
        for statement in node.body:
            yield statement, _Place(inner, place.statement, True)
    elif isinstance(node, ast.ClassDef):
        inner = f"{place.function}.{node.name}" if place.function else node.name
        for statement in node.body:
            yield statement, place._replace(function=inner)
    elif isinstance(node, ast.AnnAssign):
        if node.value is not None:
            yield node.value, place
    elif isinstance(node, ast.Call) and name_of(node.func) in {*WARNINGS, "cast", "TypeVar"}:
        return
    elif isinstance(node, ast.Call) and name_of(node.func) in ("isinstance", "issubclass"):
        yield node.args[0], place
    elif not (isinstance(node, ast.keyword) and node.arg in COSMETIC):
        for child in ast.iter_child_nodes(node):
            yield child, place


def _is_for_people(node: ast.stmt) -> bool:
    """Whether nothing below a statement may change."""
    if isinstance(node, ast.Raise | ast.Assert | ast.Import | ast.ImportFrom | ast.Delete):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return True
    if isinstance(node, ast.Assign):
        return any(isinstance(x, ast.Name) and x.id == "__all__" for x in node.targets)
    return False


def _header(node: ast.stmt) -> tuple[int, int]:
    """Return the lines of a statement without those of its body."""
    body = getattr(node, "body", None)
    last = body[0].lineno - 1 if body and not isinstance(node, ast.Expr) else node.end_lineno
    return node.lineno, max(node.lineno, last or node.lineno)


def _changes(tree: ast.AST) -> Iterator[tuple[_Change, _Place]]:
    parts: set[int] = set()  # nodes that an outer change speaks for
    around = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node, place in _placed(tree):
        if id(node) in parts:
            continue
        for change in _changes_of(node, place.called):
            if change.operator == "constant":
                change = change._replace(shown=_surroundings(node, around))
            yield change, place
        parts |= _spoken_for(node)


def _surroundings(node: ast.AST, around: dict[int, ast.AST]) -> ast.AST:
    """Return the expression or simple statement that says what a constant is for."""
    outer = around[id(node)]
    while isinstance(outer, ast.keyword | ast.Slice | ast.Starred | ast.Tuple):
        outer = around[id(outer)]
    simple = (ast.expr, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return)
    return outer if isinstance(outer, simple) else node


def _spoken_for(node: Any) -> set[int]:
    """Return the nodes below this one that have no mutants of their own."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and _is_number(node.operand):
        return {id(node.operand)}
    if isinstance(node, ast.BinOp) and _is_text(node):
        return {id(x) for x in ast.walk(node) if isinstance(x, ast.BinOp)}
    if _is_power(node):
        return {id(node.left), id(node.right)}
    if isinstance(node, ast.Subscript):
        return {id(x) for x in _indices(node)}
    if isinstance(node, ast.Call):
        return {id(keyword.value) for keyword in node.keywords if _is_axis(keyword)}
    return set()


def _changes_of(node: Any, called: bool) -> Iterator[_Change]:
    """Yield the changes of one node."""
    kinds = {
        ast.Compare: _comparisons,
        ast.BinOp: _terms,
        ast.BoolOp: _conditions_dropped,
        ast.UnaryOp: _signs,
        ast.Constant: _constants,
        ast.Subscript: _subscripts,
        ast.Call: _calls,
        ast.If: _branches,
        ast.While: _branches,
        ast.IfExp: _branches,
        ast.Expr: _dropped,
        ast.Assign: _dropped,
        ast.AugAssign: _dropped,
    }
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
        yield from _filters(node)
    elif type(node) in kinds and not (isinstance(node, ast.BinOp) and not called and _bits(node)):
        yield from kinds[type(node)](node)


def _comparisons(node: ast.Compare) -> Iterator[_Change]:
    for index, op in enumerate(node.ops):
        for other in COMPARED[type(op)]:
            ops = [*node.ops[:index], other(), *node.ops[index + 1 :]]
            yield _Change("comparison", node, ast.Compare(node.left, ops, node.comparators))


def _terms(node: ast.BinOp) -> Iterator[_Change]:
    if _is_text(node):
        return
    if _is_power(node):
        yield _Change("constant", node, ast.BinOp(_number(2), ast.Mult(), node))
        return
    if type(node.op) in SWAPPED:
        other = SWAPPED[type(node.op)]()
        yield _Change("arithmetic", node, ast.BinOp(node.left, other, node.right))
    yield _Change("term", node, node.left)
    if isinstance(node.op, COMMUTATIVE):
        yield _Change("term", node, node.right)


def _conditions_dropped(node: ast.BoolOp) -> Iterator[_Change]:
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        new = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
        yield _Change("term", node, new)


def _signs(node: ast.UnaryOp) -> Iterator[_Change]:
    if isinstance(node.op, ast.UAdd):
        return
    yield _Change("sign", node, node.operand)
    if isinstance(node.op, ast.USub) and _is_number(node.operand):
        for value in _other_numbers(-node.operand.value):  # type: ignore[attr-defined]
            yield _Change("constant", node, _number(value))


def _constants(node: ast.Constant) -> Iterator[_Change]:
    if isinstance(node.value, bool):
        yield _Change("constant", node, ast.Constant(not node.value))
    elif _is_number(node):
        for value in _other_numbers(node.value):  # type: ignore[arg-type]
            yield _Change("constant", node, _number(value))


def _subscripts(node: ast.Subscript) -> Iterator[_Change]:
    """Indices one further, and the bounds of slices moved by one."""
    for index in _indices(node):
        value = _value(index)
        new = _number(value - 1 if value < 0 else value + 1)
        yield _Change("index", index, new, shown=node)
    for part in _parts(node.slice):
        if isinstance(part, ast.Slice):
            for bound in (part.lower, part.upper):
                if bound is not None and id(bound) not in {id(x) for x in _indices(node)}:
                    new = ast.BinOp(bound, ast.Add(), ast.Constant(1))
                    yield _Change("index", bound, new, shown=node)


def _calls(node: ast.Call) -> Iterator[_Change]:
    name = name_of(node.func)
    if name in OPPOSITE:
        func = copy.copy(node.func)
        if isinstance(func, ast.Attribute):
            func.attr = OPPOSITE[name]
        else:
            func.id = OPPOSITE[name]  # type: ignore[attr-defined]
        yield _Change("extreme", node, ast.Call(func, node.args, node.keywords))
    for keyword in filter(_is_axis, node.keywords):
        value = _value(keyword.value)
        yield _Change("index", keyword.value, _number(1 if value == 0 else 0), shown=node)
    if name in ORDERLESS:
        return
    for index in range(len(node.args) - 1):
        one, two = node.args[index : index + 2]
        if isinstance(one, ast.Starred) or isinstance(two, ast.Starred):
            break
        args = [*node.args[:index], two, one, *node.args[index + 2 :]]
        yield _Change("arguments", node, ast.Call(node.func, args, node.keywords))


def _branches(node: ast.If | ast.While | ast.IfExp) -> Iterator[_Change]:
    """Conditions negated; those of guards and loops made false."""
    shown, lines = node.test, None
    guards = isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], ast.Raise)
    if guards or isinstance(node, ast.While):
        lines = node.body[0].lineno, node.body[-1].end_lineno or 0  # type: ignore[index]
        yield _Change("condition", node.test, ast.Constant(False), shown, lines)
    elif not _negated_elsewhere(node.test):
        yield _Change("condition", node.test, ast.UnaryOp(ast.Not(), node.test), shown)


def _filters(node: Any) -> Iterator[_Change]:
    for loop in node.generators:
        for test in loop.ifs:
            if not _negated_elsewhere(test):
                yield _Change("condition", test, ast.UnaryOp(ast.Not(), test))


def _negated_elsewhere(test: ast.expr) -> bool:
    """Whether a mutant of the condition itself negates it."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return True
    opposite = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
    return (
        isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], opposite)
    )


def _dropped(node: ast.Expr | ast.Assign | ast.AugAssign) -> Iterator[_Change]:
    """Calls and updates left out, and the opposite update."""
    if isinstance(node, ast.Expr):
        drops = isinstance(node.value, ast.Call)
    elif isinstance(node, ast.Assign):
        drops = _updates(node)
    else:
        drops = True
        if type(node.op) in SWAPPED and not _is_text(node.value):
            other = SWAPPED[type(node.op)]()
            yield _Change("arithmetic", node, ast.AugAssign(node.target, other, node.value))
    if drops:
        yield _Change("statement", node, ast.Pass())


def _updates(node: ast.Assign) -> bool:
    """Whether what is assigned existed before: an attribute, an item, or a name in the value."""
    names = {x.id for x in ast.walk(node.value) if isinstance(x, ast.Name)}
    return all(
        isinstance(target, ast.Attribute | ast.Subscript)
        or (isinstance(target, ast.Name) and target.id in names)
        for target in node.targets
    )


def name_of(func: ast.expr) -> str:
    """Return the last part of the name of what is called."""
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def _is_number(node: Any) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, int | float)
        and not isinstance(node.value, bool)
    )


def _is_power(node: Any) -> bool:
    """Whether an expression is a number that is written as a power, such as 2**26."""
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Pow)
        and _is_number(node.left)
        and _is_number(node.right)
    )


def _is_index(node: Any) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return _is_number(node) and isinstance(node.value, int)


def _value(node: Any) -> int:
    return -node.operand.value if isinstance(node, ast.UnaryOp) else node.value


def _is_axis(keyword: ast.keyword) -> bool:
    return keyword.arg in ("axis", "in_axes", "out_axes") and _is_index(keyword.value)


def _parts(index: ast.expr) -> list[ast.expr]:
    return list(index.elts) if isinstance(index, ast.Tuple) else [index]


def _indices(node: ast.Subscript) -> list[ast.expr]:
    """Return the whole numbers in a subscript, as indices or as bounds of slices."""
    found: list[ast.expr] = []
    for part in _parts(node.slice):
        bounds = [part.lower, part.upper] if isinstance(part, ast.Slice) else [part]
        found += [bound for bound in bounds if bound is not None and _is_index(bound)]
    return found


def _is_text(node: ast.AST) -> bool:
    """Whether an expression joins strings, lists or tuples."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mod | ast.Mult):
        return _is_text(node.left) or _is_text(node.right)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)


def _bits(node: ast.BinOp) -> bool:
    """Whether an expression may be a union of types."""
    return isinstance(node.op, ast.BitOr | ast.BitAnd)


def _other_numbers(value: float) -> list[float]:
    """Return what a number becomes: small whole ones change by one, others double, but not tiny
    ones."""
    if isinstance(value, int):
        return [value + 1, value - 1] if abs(value) < LARGE else [2 * value]
    if 0 < abs(value) < TINY:
        return []
    return [2 * value] if value else [1.0]


def _number(value: float) -> ast.expr:
    if value < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _shown(change: _Change) -> tuple[str, str]:
    """Return what people read: the text before and after, with what is around a mere constant."""
    around = change.shown or change.old
    before = ast.unparse(around)
    if around is change.old:
        return before, ast.unparse(change.new)
    return before, ast.unparse(_Replace(change.old, change.new).visit(copy.deepcopy(around)))


class _Replace(ast.NodeTransformer):
    """Put a node in the place of the one that stands at the same place in the source."""

    def __init__(self, old: Any, new: ast.AST) -> None:
        self.place = (type(old), old.lineno, old.col_offset, old.end_col_offset)
        self.new = new

    def visit(self, node: Any) -> Any:
        keys = ("lineno", "col_offset", "end_col_offset")
        if (type(node), *(getattr(node, key, None) for key in keys)) == self.place:
            return self.new
        return self.generic_visit(node)


def _parsed(text: str) -> Any:
    """Return the expression or statement that a text is."""
    (statement,) = ast.parse(text).body
    is_call = isinstance(statement, ast.Expr) and not text.endswith(";")
    return statement.value if is_call and isinstance(statement, ast.Expr) else statement


def _line_starts(source: str) -> list[int]:
    """Return the first byte of every line; the first line is number 1."""
    starts = [0, 0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return starts


def _span(node: Any, starts: list[int]) -> tuple[int, int]:
    start = starts[node.lineno] + node.col_offset
    return start, starts[node.end_lineno] + node.end_col_offset


def _text_of(node: ast.AST) -> str:
    text = ast.unparse(node)
    plain = isinstance(node, ast.stmt | ast.Name | ast.Constant | ast.Call | ast.Attribute)
    return text if plain else f"({text})"
