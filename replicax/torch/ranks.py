"""Replicas distributed over the ranks of `torch.distributed`: one gather per step, one decision.

The same gather tells all ranks about an error of one rank, so that none waits for it.
"""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

_HEAD = 3  # numbers of a rank before its losses: whether it failed, its step, its factor


class Gathered(NamedTuple):
    """The losses and factors of all ranks at one step."""

    losses: list[float]  # by replica
    factors: list[float]  # by which learning rates were multiplied, by rank


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

    def agree(
        self, count: int, options: str, factor: float, error: Exception | None
    ) -> list[float]:
        """Exchange the numbers of replicas with the other ranks, and return the factors of all;
        raise on all ranks if one failed or if they disagree."""
        if self.size == 1:
            self.counts = np.array([count])
            if error is not None:
                raise error
            return [factor]
        answers: list[Any] = [None] * self.size
        mine = count, options, factor, None if error is None else str(error)
        self._dist.all_gather_object(answers, mine, group=self._group)
        if error is not None:
            raise error
        for rank, (*_, message) in enumerate(answers):
            if message is not None:
                raise ValueError(f"Rank {rank} failed: {message}")
        self.counts = np.array([count for count, *_ in answers])
        self.first = int(self.counts[: self.rank].sum())
        other = next((rank for rank in range(self.size) if answers[rank][1] != answers[0][1]), None)
        if other is not None:
            raise ValueError(
                f"Ranks 0 and {other} disagree on the exchange: {answers[0][1]} and "
                f"{answers[other][1]}. Give the same arguments on all ranks, except for the "
                "optimizers."
            )
        return [factor for _, _, factor, _ in answers]

    def gather(
        self, losses: list[float] | None, step: int, factor: float, error: Exception | None
    ) -> Gathered:
        """Return the losses of all replicas; raise on all ranks if one failed."""
        if self.size == 1:
            if error is not None:
                raise error
            assert losses is not None
            return Gathered(losses, [factor])
        mine = np.zeros(_HEAD + self.counts.max())
        mine[:_HEAD] = error is not None, step, factor
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
