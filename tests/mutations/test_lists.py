"""The lists of mutants by hand and of equivalent ones fit the sources, so that they cannot rot."""

from pathlib import Path

from mutations import choice
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


def test_every_equivalent_mutant_exists_and_has_a_reason():
    paths = {name.partition(":")[0] for name in EQUIVALENT}
    texts = {path: text for path, text in choice.sources(ROOT).items() if path in paths}
    names = {mutant.name for mutant in choice.generated(texts)}
    assert not EQUIVALENT.keys() - names, "these mutants no longer exist"
    assert all(reason.strip() for reason in EQUIVALENT.values())
    assert len(EQUIVALENT) <= 150
