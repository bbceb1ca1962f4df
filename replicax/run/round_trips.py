"""Round trips of replicas along the ladder, counted from the index process."""

from typing import NamedTuple

import numpy as np

_NOWHERE, _UP, _DOWN = 0, 1, 2  # a replica's way: not yet been coldest; to the hottest; back


class Trips(NamedTuple):
    """Round trips so far, and where every replica is on its way."""

    count: np.ndarray  # shape (chain,)
    way: np.ndarray  # shape (chain, replica)

    @classmethod
    def none(cls, num_chains: int, num_replicas: int) -> "Trips":
        way = np.full((num_chains, num_replicas), _NOWHERE, np.int8)
        way[:, 0] = _UP  # replica 0 starts on the coldest rung
        return cls(np.zeros(num_chains, np.int64), way)


def follow_trips(trips: Trips, rung_of: np.ndarray) -> Trips:
    """Add the steps of `rung_of` (chain, step, replica).

    A round trip: a replica that was on the coldest rung reaches the hottest and is back.
    """
    num_chains, num_steps, num_replicas = rung_of.shape
    if num_steps == 0 or num_replicas < 2:
        return trips
    paths = np.asarray(rung_of).transpose(0, 2, 1).reshape(-1, num_steps)
    ends = np.zeros(paths.shape, np.int8)
    ends[paths == 0] = _UP
    ends[paths == num_replicas - 1] = _DOWN
    way = trips.way.reshape(-1)
    ends = np.concatenate([way[:, None], ends], axis=1)
    path, time = np.nonzero(ends)
    turn = ends[path, time]
    if turn.size == 0:
        return trips
    same_path = path[1:] == path[:-1]
    ended = (turn[1:] == _UP) & (turn[:-1] == _DOWN) & same_path
    count = np.bincount(path[1:][ended], minlength=way.size)
    # The first way down does not count for a replica that was never on the coldest rung before.
    first = np.searchsorted(path, np.arange(way.size))
    has_any = np.isin(np.arange(way.size), path)
    began_hot = np.zeros(way.size, bool)
    began_hot[has_any] = turn[first[has_any]] == _DOWN
    began_hot &= way == _NOWHERE
    been_cold = np.any(ends == _UP, axis=1)
    count -= began_hot & been_cold
    last = np.searchsorted(path, np.arange(way.size), side="right") - 1
    new_way = np.where(has_any, turn[last], _NOWHERE)
    new_way = np.where(began_hot & ~been_cold, _NOWHERE, new_way).astype(np.int8)
    per_chain = count.reshape(num_chains, num_replicas).sum(axis=1)
    return Trips(trips.count + per_chain, new_way.reshape(num_chains, num_replicas))


def round_trips(rung_of: np.ndarray) -> np.ndarray:
    """Round trips of all replicas, from index paths (chain, step, replica)  -> (chain,).

    >>> straight = np.array([[[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]])
    >>> round_trips(straight).tolist()
    [3]
    """
    first = np.asarray(rung_of[:, 0])
    way = np.where(first == 0, _UP, _NOWHERE).astype(np.int8)
    start = Trips(np.zeros(len(first), np.int64), way)
    return follow_trips(start, rung_of[:, 1:]).count


def trip_ends(rung_of: np.ndarray) -> list[np.ndarray]:
    """For each replica, the steps done when it ended a round trip  (step, replica).

    Replica i begins on rung i. A way down counts only after a visit to the coldest rung.
    """
    found = []
    for replica, after in enumerate(rung_of.T):
        path = np.append(replica, after)
        turns = np.flatnonzero((path == 0) | (path == rung_of.shape[1] - 1))
        hot = path[turns] != 0
        back = turns[1:][hot[:-1] & ~hot[1:]]
        found.append(back[1:] if hot[:1].any() else back)
    return found
