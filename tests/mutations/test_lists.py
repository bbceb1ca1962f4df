"""The mutants by hand fit the sources, and every equivalent one has its reason."""

from pathlib import Path

from mutations.equivalent import EQUIVALENT
from mutations.meanings import MEANINGS, by_hand

ROOT = Path(__file__).resolve().parents[2]


def test_every_mutant_by_hand_applies():
    made = by_hand(ROOT)  # LookupError says which one does not
    assert len(made) == len(MEANINGS) <= 120
    assert len({mutant.name for mutant in made}) == len(made)
    for mutant in made:
        source = (ROOT / mutant.path).read_text()
        compile(mutant.apply(source), mutant.name, "exec")


def test_every_equivalent_mutant_has_a_reason():
    """One whose code has changed since is tried again; `make mutants` says which."""
    assert all(reason.strip() for reason in EQUIVALENT.values())
    assert len(EQUIVALENT) <= 150
