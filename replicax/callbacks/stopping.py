"""Early stopping: enough round trips, a large enough effective size, R-hat near 1."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from replicax.errors import at_least, check_number
from replicax.results import diagnostics
from replicax.results.diagnostics import ENOUGH_DRAWS, checked_components, exchanges
from replicax.results.posterior import Posterior
from replicax.run import processes
from replicax.run.progress import Progress
from replicax.run.records import Records
from replicax.run.storage.folder import open_records
from replicax.run.storage.metadata import Metadata

_GROWTH = 1.1  # growth of the number of draws between two evaluations


class _SoFar(Posterior):
    """The draws of a run so far, with the attributes of a posterior that diagnostics need."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__(Records())
        self._records.write_metadata(metadata)
        self._parts: list[dict[str, np.ndarray]] = []

    def add(self, part: Posterior, num_steps: int, num_draws: int) -> None:
        """Add the first steps and draws of another posterior."""
        rung_of, energies = part.rung_of[:, :num_steps], part.energies[:, :num_draws]
        self._records.append("steps", {"rung_of": np.moveaxis(rung_of, 1, 0)})
        self._records.append("draws", {"energy": np.moveaxis(energies, 1, 0)[:, :, None]})
        components = {name: x[:, :num_draws] for name, x in part.components().items()}
        if energies.shape[1]:
            self._parts.append(components)

    def stand_at(self, step: int, temperatures: ArrayLike) -> None:
        temperatures = np.asarray(temperatures)
        self._records.keep({"step": np.asarray(step), "temperatures": temperatures})

    def components(self) -> dict[str, np.ndarray]:
        if len(self._parts) > 1:
            joined = {name: [part[name] for part in self._parts] for name in self._parts[0]}
            self._parts = [{name: np.concatenate(x, axis=1) for name, x in joined.items()}]
        return self._parts[0] if self._parts else {}

    @property
    def energies(self) -> np.ndarray:
        return np.moveaxis(self._records.read("draws", "energy")[:, :, 0], 0, 1)


class _StopAfter:
    def __init__(
        self, round_trips: int | None, effective_size: float | None, r_hat: float | None
    ) -> None:
        if round_trips is effective_size is r_hat is None:
            raise ValueError(
                "stop_after has no condition; give round_trips, effective_size or r_hat."
            )
        if round_trips is not None:
            at_least("round_trips", round_trips, 1)
        if effective_size is not None:
            positive = "it must be a number above 0"
            check_number("effective_size", effective_size, lambda x: x > 0, positive)
        if r_hat is not None:
            check_number("r_hat", r_hat, lambda x: x > 1, "it must be a number above 1, as 1.01")
        self.round_trips, self.effective_size, self.r_hat = round_trips, effective_size, r_hat
        self.so_far: _SoFar | None = None
        self.step, self.looked_at = None, 0

    def __call__(self, progress: Progress) -> str | None:
        if not processes.is_first():
            return None
        reasons = []
        if self.round_trips is not None:
            counted = progress.step >= progress.metadata.resolved.counted_from
            fewest = int(progress.round_trips.min()) if counted else 0
            reasons.append((fewest >= self.round_trips, f"{fewest} round trips in every chain"))
        if self._needs_draws():
            self._add(progress)
            if not all(holds for holds, _ in reasons):
                return None
            reasons += self._conditions_on_draws()
        holds = all(holds for holds, _ in reasons)
        return f"stop: {', '.join(words for _, words in reasons)}" if holds else None

    def _needs_draws(self) -> bool:
        return self.effective_size is not None or self.r_hat is not None

    def _add(self, progress: Progress) -> None:
        """Keep the draws of this chunk, and those before it if the run was resumed."""
        if self.so_far is None or progress.start != self.step:
            self.so_far, self.looked_at = _start(progress), 0
        self.step = progress.step
        chunk = Records()
        chunk.write_metadata(progress.metadata)
        for group in ("steps", "draws"):
            chunk.append(group, progress.rows[group])
        num_draws = len(progress.rows["draws"]["energy"])
        self.so_far.add(Posterior(chunk), progress.step - progress.start, num_draws)
        self.so_far.stand_at(progress.step, progress.carry.state.ladder.temperature)

    def _conditions_on_draws(self) -> list[tuple[bool, str]]:
        """Return in words which conditions on the draws hold; recomputed only when there are enough
        new draws."""
        so_far = self.so_far
        assert so_far is not None
        if so_far.num_draws < max(_GROWTH * self.looked_at, 4):
            return [(False, "")]
        self.looked_at = so_far.num_draws
        components = checked_components(so_far)
        smallest = min(diagnostics.bulk_size(values) for values in components.values())
        reasons = []
        if self.effective_size is not None:
            reasons.append((smallest >= self.effective_size, f"effective size {smallest:.0f}"))
        if self.r_hat is not None:
            trusted = smallest >= ENOUGH_DRAWS * so_far.num_chains
            largest = _largest_rhat(so_far, components) if trusted else float("nan")
            reasons.append((largest <= self.r_hat, f"R-hat {largest:.3f}"))
        return reasons


def _start(progress: Progress) -> _SoFar:
    """Return the draws before the chunk, from the folder of a resumed run."""
    metadata = progress.metadata
    optimises = not float(np.max(progress.carry.state.ladder.temperature[:, 0])) > 0
    if metadata.kind == "train" or optimises:
        raise ValueError(
            "stop_after(effective_size=..., r_hat=...) needs draws of a posterior, but this run "
            "trains or optimises; use round_trips or your own function."
        )
    so_far = _SoFar(metadata)
    if progress.start > 0:
        assert progress.run_dir is not None, "runs without a folder begin at step 0"
        num_draws = len(range(metadata.resolved.burn_in, progress.start, metadata.resolved.thin))
        so_far.add(Posterior(open_records(progress.run_dir)), progress.start, num_draws)
    return so_far


def _largest_rhat(so_far: _SoFar, components: dict[str, np.ndarray]) -> float:
    """Return the largest R-hat over chains, and over replicas if they exchange; NaN if it is not
    known yet."""
    rhats = [diagnostics.rhat(values) for values in components.values()]
    if exchanges(so_far):
        rhats += diagnostics.replica_rhat(so_far, components).values()
    return float(np.max(rhats))


def stop_after(
    *,
    round_trips: int | None = None,
    effective_size: float | None = None,
    r_hat: float | None = None,
) -> Callable[[Progress], str | None]:
    """Return a callback that ends the run once all of its conditions are met.

    Args:
        round_trips: the number in every chain, after burn-in.
        effective_size: the smallest bulk effective size of any component and the energy, over all
            chains, as in the summary.
        r_hat: the largest R-hat of any component, over chains and, if replicas exchange, over
            replicas. It counts from an effective size of 100 per chain on.

    The diagnostics are those of `posterior.summary()`, recomputed when there are a tenth more
    draws.
    """
    return _StopAfter(round_trips, effective_size, r_hat)
