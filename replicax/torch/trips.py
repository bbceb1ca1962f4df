"""What is told of a loop without round trips: why, and what to write for some in as many steps."""

import math
from typing import NamedTuple

from replicax.theory.round_trips import expected_round_trips, fitting_swap_rate, optimal_window

_SURE = 5  # round trips to be expected, of which one is missing for a reason
_RARELY = 1 / 3  # of the target swap rate
_JUDGED = 200, 5  # steps and swaps to be expected, below which a rarity is chance or the start
_SLOWER = 1.5  # times as many round trips with the window of Theorem 1


class Plan(NamedTuple):
    """What decides how many round trips are to be expected."""

    num_replicas: int
    swap_rate: float
    window: int
    adapts: bool

    @property
    def patience(self) -> int:
        """Steps after which it is no chance that no replica has made a round trip."""
        return math.ceil(_SURE / self.expected(1))

    def expected(self, num_steps: int) -> float:
        """Return how many round trips Lemma 1 expects in so many steps."""
        return expected_round_trips(num_steps, self.swap_rate, self.num_replicas, self.window)


def without_round_trip(plan: Plan, num_steps: int, accepted: float) -> str:
    """Return what is told after so many steps, with what would make round trips.

    `accepted` is how often the rule said yes, per step, of the pair with the fewest.

    >>> without_round_trip(Plan(4, 0.005, 342, True), 1000, 0.004)[-52:]
    'pected: write target_swap_rate=0.05, and some 9 are.'
    """
    count, rate = plan.num_replicas, plan.swap_rate
    wanted = max(fitting_swap_rate(num_steps, count), rate)
    then = expected_round_trips(num_steps, wanted, count)
    why = f"With target_swap_rate {rate:g}, {plan.expected(num_steps):.2g} are to be expected"
    write = [f"target_swap_rate={wanted:g}"] if wanted > rate else []
    better = expected_round_trips(num_steps, rate, count) > _SLOWER * plan.expected(num_steps)
    if plan.window != optimal_window(count, rate) and (write or better):
        write.append("window=None")
    is_judged = num_steps >= _JUDGED[0] and num_steps * rate >= _JUDGED[1]
    if is_judged and accepted < _RARELY * rate:
        why = f"A pair swaps in {100 * accepted:.2g} % of the steps, and {100 * rate:g} % are asked"
        write += ['buffer="auto"', 'buffer_gain="auto"'] + ["adapt=True"] * (not plan.adapts)
    remedy = f"write {', '.join(write)}, and some {then:.2g} are" if write else ""
    if then < 1 or not write:
        times = max(2, math.ceil(_SURE / then))
        longer = f"train {times} times as long, or fewer models"
        remedy = f"write {', '.join(write)} and {longer}" if write else longer
    return (
        f"No round trip in {num_steps:,} steps of {count} models, and without them exchange does "
        f"nothing. {why}: {remedy}."
    )
