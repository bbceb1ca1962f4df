"""Each operator on a small piece of source: what is changed, and what is left alone."""

import ast
from pathlib import Path

import pytest

from mutations.choice import PACKAGE
from mutations.operators import mutant_at, mutants_of

ROOT = Path(__file__).resolve().parents[2]


def changes(source: str, operator: str = "") -> list[str]:
    """Return what each mutant changes, in the order in which they are made."""
    made = [mutant for mutant in mutants_of(source, "a.py") if operator in ("", mutant.operator)]
    return [f"{mutant.before} -> {mutant.after}" for mutant in made]


@pytest.mark.parametrize(
    ("operator", "source", "expected"),
    [
        ("comparison", "a < b", ["a < b -> a <= b", "a < b -> a > b"]),
        ("comparison", "a >= b", ["a >= b -> a > b", "a >= b -> a <= b"]),
        ("comparison", "a == b", ["a == b -> a != b"]),
        ("comparison", "a is None", ["a is None -> a is not None"]),
        (
            "comparison",
            "a < b <= c",
            [
                "a < b <= c -> a <= b <= c",
                "a < b <= c -> a > b <= c",
                "a < b <= c -> a < b < c",
                "a < b <= c -> a < b >= c",
            ],
        ),
        ("arithmetic", "a + b", ["a + b -> a - b"]),
        ("arithmetic", "a / b", ["a / b -> a * b"]),
        ("arithmetic", "x += a", ["x += a -> x -= a"]),
        ("arithmetic", "def f():\n    return a & b", ["a & b -> a | b"]),
        ("term", "a + b", ["a + b -> a", "a + b -> b"]),
        ("term", "a - b", ["a - b -> a"]),
        (
            "term",
            "a and b and c",
            [f"a and b and c -> {x}" for x in ("b and c", "a and c", "a and b")],
        ),
        ("sign", "-a", ["-a -> a"]),
        ("sign", "~a", ["~a -> a"]),
        ("sign", "not a", ["not a -> a"]),
        ("constant", "x = 3", ["x = 3 -> x = 4", "x = 3 -> x = 2"]),
        ("constant", "x = -3", ["x = -3 -> x = -2", "x = -3 -> x = -4"]),
        ("constant", "x = 100", ["x = 100 -> x = 200"]),
        ("constant", "x = 2**26", ["x = 2 ** 26 -> x = 2 * 2 ** 26"]),
        ("arithmetic", "x = a**2", ["a ** 2 -> a * 2"]),
        ("constant", "x = 0.5", ["x = 0.5 -> x = 1.0"]),
        ("constant", "x = 0.0", ["x = 0.0 -> x = 1.0"]),
        ("constant", "f(a, sort=True)", ["f(a, sort=True) -> f(a, sort=False)"]),
        ("statement", "check(a)", ["check(a) -> pass"]),
        ("statement", "x += a", ["x += a -> pass"]),
        ("statement", "x = f(x)", ["x = f(x) -> pass"]),
        ("statement", "self.x = a", ["self.x = a -> pass"]),
        ("statement", "x = a", []),
        ("arguments", "f(a, b, c)", ["f(a, b, c) -> f(b, a, c)", "f(a, b, c) -> f(a, c, b)"]),
        ("arguments", "f(a, a)", []),
        ("arguments", "max(a, b)", []),
        ("arguments", "f(*a, b)", []),
        ("index", "x[0]", ["x[0] -> x[1]"]),
        ("index", "x[:, -1]", ["x[:, -1] -> x[:, -2]"]),
        ("index", "x[1:]", ["x[1:] -> x[2:]"]),
        ("index", "x[:n]", ["x[:n] -> x[:n + 1]"]),
        ("index", "f(x, axis=0)", ["f(x, axis=0) -> f(x, axis=1)"]),
        ("index", "f(x, axis=-1)", ["f(x, axis=-1) -> f(x, axis=0)"]),
        ("extreme", "x.min()", ["x.min() -> x.max()"]),
        ("extreme", "jnp.argmax(x)", ["jnp.argmax(x) -> jnp.argmin(x)"]),
        ("extreme", "any(x)", ["any(x) -> all(x)"]),
        ("condition", "if a:\n    b = 1", ["a -> not a"]),
        ("condition", "if a:\n    raise b", ["a -> False"]),
        ("condition", "while a:\n    b()", ["a -> False"]),
        ("condition", "b if a else c", ["a -> not a"]),
        ("condition", "[a for a in b if a]", ["a -> not a"]),
        ("condition", "if a == b:\n    c = 1", []),  # a comparison negates it
    ],
)
def test_an_operator_changes_one_node(operator, source, expected):
    assert changes(source, operator) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of 3 lines."""',
        "__all__ = ['a', *names(1, 2)]",
        "x: list[int]",
        "if TYPE_CHECKING:\n    x = 1",
        "if typing.TYPE_CHECKING:\n    x = 1",
        "def f(x: Shape[2, 3]) -> Shape[1]:\n    return x",
        "@decorated(1, 2)\ndef f(x):\n    return x",
        "raise ValueError(f'more than {n - 1}')",
        "x = f'{a + 1}'",
        "x = 'a' + b",
        "Either = int | str",
        "x = 1e-30",
        "x = write(indent=1)",
        "from a import b",
    ],
)
def test_what_people_read_is_left_alone(source):
    assert changes(source) == []


def test_the_message_of_a_warning_is_left_alone_but_not_the_warning():
    assert changes("warnings.warn('a' * 3, stacklevel=2)") == [
        "warnings.warn('a' * 3, stacklevel=2) -> pass"
    ]


def test_a_mutant_is_put_into_the_source_and_nothing_else_changes():
    source = "def f(x):\n    γ = (x  # why\n         + 1) * 2\n    return γ\n"
    made = {mutant.operator: mutant.apply(source) for mutant in mutants_of(source, "a.py")}
    assert made["arithmetic"] == "def f(x):\n    γ = ((x - 1)) * 2\n    return γ\n"
    assert made["constant"] == source.replace("* 2", "* 1")


def test_a_name_is_that_of_the_line_and_survives_edits_of_others():
    source = "class A:\n    def f(self, x):\n        return x[0] + x[0]\n"
    names = [mutant.name for mutant in mutants_of(source, "a.py")]
    assert "a.py:A.f: x[0] -> x[1]" in names and "a.py:A.f: x[0] -> x[1] [1]" in names
    edited = source.replace("        return", "        y = 2 * x\n        return")
    assert set(names) < {mutant.name for mutant in mutants_of("import b\n" + edited, "a.py")}


def test_places_say_what_is_executed_on_import():
    source = "x = 1\nclass A:\n    y = 2\n    def f(self, z=3):\n        return 4\n"
    found = {mutant.before: mutant for mutant in mutants_of(source, "a.py")}
    places = {before: (mutant.function, mutant.called) for before, mutant in found.items()}
    assert places == {
        "x = 1": ("", False),
        "y = 2": ("A", False),
        "3": ("A.f", False),
        "return 4": ("A.f", True),
    }
    assert found["return 4"].lines == (5, 5)


def test_a_guard_shows_where_it_raises():
    source = "def f(x):\n    if x:\n        raise ValueError\n    return x\n"
    (guard,) = [mutant for mutant in mutants_of(source, "a.py") if mutant.after == "False"]
    assert guard.lines == (3, 3) and guard.statement == (2, 2)


def test_every_mutant_of_the_package_is_python_and_has_a_name_of_its_own():
    names = set()
    for path in sorted((ROOT / PACKAGE).rglob("*.py"))[::7]:
        source = path.read_text()
        made = mutants_of(source, str(path))
        for mutant in made[::10]:
            ast.parse(mutant.apply(source), mutant.name)
        assert names.isdisjoint(mutant.name for mutant in made)
        names |= {mutant.name for mutant in made}
        assert made == mutants_of(source, str(path))
    assert len(names) > 500


def test_a_mutant_by_hand_is_found_by_function_and_expression():
    source = "class A:\n    def f(x):\n        return g(x,\n                 1)\n"
    source += "    def h(x):\n        x = 2\n"
    made = mutant_at(source, "a.py", "f", "g(x, 1)", "g(x, 2) + 1")
    assert made.function == "A.f"
    assert made.apply(source) == source.replace("g(x,\n                 1)", "(g(x, 2) + 1)")
    statement = mutant_at(source, "a.py", "A.h", "x = 2", "x = 3")
    assert statement.apply(source) == source.replace("x = 2", "x = 3")
    for function, before in [("f", "g(x)"), ("h", "g(x, 1)"), ("", "x")]:
        with pytest.raises(LookupError, match="times"):
            mutant_at(source, "a.py", function, before, "3")
