"""The cold part of a ladder: who has settled there, whose turn it is, and the average of a run."""

from typing import Any

import numpy as np
import pytest
from tiny_networks import EXCHANGING, tiny_problem

from replicax.networks.cold_part import ColdPart
from replicax.networks.options import TrainOptions

STEPS = 4  # of an epoch
PROBLEM = tiny_problem()
OPTIONS = EXCHANGING | {"epochs": 6, "average_rungs": 2, "settle_epochs": 1.5, "burn_in": 1}
OPTIONS |= {"seed": 1}  # in which networks come and go


def stay_by_hand(rung_of: np.ndarray, num_rungs: int) -> np.ndarray:
    """Step by step, rung_of (step, replica)."""
    stay = np.zeros(rung_of.shape[1], int)
    for row in rung_of:
        stay = np.where(row < num_rungs, stay + 1, 0)
    return stay


@pytest.mark.parametrize("sizes", [(40,), (1,) * 40, (7, 0, 30, 3)])
def test_a_stay_begins_with_the_last_arrival_from_a_hotter_rung(sizes: tuple[int, ...]) -> None:
    """However the steps are cut into chunks."""
    rng = np.random.default_rng(0)
    rung_of = np.stack([rng.permutation(5) for _ in range(40)]).astype(np.int8)
    rung_of[-6:] = [2, 0, 4, 1, 3]
    part = ColdPart(2, settle_steps=3)
    stay = part.start(5)
    for rows in np.split(rung_of, np.cumsum(sizes)[:-1]):
        stay = part.follow(stay, rows)
    wanted = stay_by_hand(rung_of, 2)
    assert stay.tolist() == wanted.tolist() and stay[1] >= 6 and stay[0] == 0


def test_the_rungs_take_turns_and_leave_them_where_nobody_has_settled() -> None:
    part = ColdPart(3, settle_steps=2)
    settled = np.array([2, 5, 9, 9])
    assert [part.weights(turn, settled).argmax() for turn in range(6)] == [0, 1, 2, 0, 1, 2]
    new_in_1 = np.array([2, 1, 9, 9])
    assert [part.weights(turn, new_in_1).tolist() for turn in range(3)] == [
        [1, 0, 0, 0],
        [0, 0, 1, 0],
        [0, 0, 1, 0],
    ]
    assert not part.weights(0, np.array([1, 0, 0, 9])).any(), "nobody has settled on the part"


def test_what_cannot_be_averaged_is_refused() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"average_rungs": 0}, "average_rungs is 0"),
        ({"average_rungs": 11}, "there are 10 rungs"),
        ({"average_rungs": 10, "settle_epochs": 1}, "no network ever arrives"),
        ({"average_rungs": 2, "method": "ensemble"}, "has no ladder"),
        ({"settle_epochs": 1, "method": "ensemble"}, "has no ladder"),
        ({"settle_epochs": -1}, "settle_epochs is -1"),
        ({"settle_epochs": 3.5}, "settle_epochs is 3.5, and a network takes 3 epochs"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message):
            TrainOptions(epochs=3, **options)
    TrainOptions(epochs=3, settle_epochs=3)  # a network that stays from the start is averaged


def test_before_the_first_step_nobody_has_stayed() -> None:
    assert ColdPart(2, 5).start(4).tolist() == [0, 0, 0, 0]
