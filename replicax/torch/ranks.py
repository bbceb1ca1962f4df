"""Replicas distributed over the ranks of `torch.distributed`: one gather per step, one decision.

The same gather tells all ranks about an error of one rank, so that none waits for it.
"""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

_HEAD = 3  # numbers of a rank before its losses: whether it failed, its step, its course


class Gathered(NamedTuple):
    """The losses of all ranks at one step, and the courses of their learning rates."""

    losses: list[float]  # by replica
    courses: list[float]  # factors by which schedulers have multiplied learning rates, by rank


class Ranks:
    """The ranks that share the replicas; each may have a different number of them."""

    def __init__(self, torch: ModuleType, process_group: Any) -> None:
        dist = torch.distributed
        self._torch, self._dist, self._group = torch, dist, process_group
        alone = process_group is False or not (dist.is_available() and dist.is_initialized())
        if not alone and process_group is None:
            self._group = dist.group.WORLD
        self.size = 1 if alone else dist.get_world_size(self._group)
        self.rank = 0 if alone else dist.get_rank(self._group)
        self.counts = np.ones(self.size, int)  # replicas of each rank
        self.first = 0  # number of the first replica of this rank

    def agree(self, rates: list[float], options: str, error: Exception | None) -> list[float]:
        """Exchange the first learning rates of all replicas with the other ranks, and return them;
        raise on all ranks if one failed or if they disagree."""
        answers: list[Any] = [(rates, options, None if error is None else str(error))]
        if self.size > 1:
            mine, answers = answers[0], [None] * self.size
            self._dist.all_gather_object(answers, mine, group=self._group)
        if error is not None:
            raise error
        for rank, (*_, message) in enumerate(answers):
            if message is not None:
                raise ValueError(f"Rank {rank} failed: {message}")
        self.counts = np.array([len(rates) for rates, *_ in answers])
        self.first = int(self.counts[: self.rank].sum())
        other = next((rank for rank in range(self.size) if answers[rank][1] != answers[0][1]), None)
        if other is not None:
            raise ValueError(
                f"Ranks 0 and {other} disagree on the exchange: {answers[0][1]} and "
                f"{answers[other][1]}. Give the same arguments on all ranks, except for the "
                "optimizers."
            )
        return [rate for rates, *_ in answers for rate in rates]

    def gather(
        self, losses: list[float] | None, step: int, course: float, error: Exception | None
    ) -> Gathered:
        """Return the losses of all replicas; raise on all ranks if one failed."""
        if self.size == 1:
            if error is not None:
                raise error
            assert losses is not None
            return Gathered(losses, [course])
        mine = np.zeros(_HEAD + self.counts.max())
        mine[:_HEAD] = error is not None, step, course
        if losses is not None:
            mine[_HEAD : _HEAD + len(losses)] = losses
        try:
            gathered = self._all_gather(mine)
        except RuntimeError as lost:
            raise RuntimeError(
                f"The losses of step {step} could not be gathered ({lost}): a rank or its "
                "connection has ended. Nothing has swapped; restart all ranks and load the last "
                "state_dict."
            ) from error or lost
        if error is not None:
            raise error
        if gathered[:, 0].any():
            rank = int(gathered[:, 0].argmax())
            raise ValueError(f"Rank {rank} failed in this step, see its message; no rank swaps.")
        if np.any(gathered[:, 1] != step):
            rank = int(np.argmax(gathered[:, 1] != step))
            raise ValueError(
                f"This rank is at step {step} and rank {rank} at step {int(gathered[rank, 1])}: "
                "load the same state_dict on all ranks, and call step() equally often."
            )
        ends = zip(gathered, self.counts)
        together = np.concatenate([row[_HEAD : _HEAD + count] for row, count in ends])
        return Gathered(together.tolist(), gathered[:, 2].tolist())

    def _all_gather(self, mine: np.ndarray) -> np.ndarray:
        torch, backend = self._torch, self._dist.get_backend(self._group)
        device = "cuda" if "nccl" in backend and "gloo" not in backend else "cpu"
        here = torch.from_numpy(mine).to(device)
        gathered = [torch.empty_like(here) for _ in range(self.size)]
        self._dist.all_gather(gathered, here, group=self._group)
        return torch.stack(gathered).cpu().numpy()
