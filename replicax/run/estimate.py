"""Energies of all rows, estimated from some of them: `rx.sweeps(exact=False)`.

Around the minima of all rows the energy is known to second order, from the sweeps that led there.
What the Taylor series leaves is of third order; it is summed over some of the rows, the same in the
whole run, and scaled to all. At draws of N rows it is small, and so is the error of its estimate:
the parts of which the rows consist tell how large, at every point; and before draws are kept all
rows are summed at some of them, which also sees rare rows that are in no part.

Control variates of second order, as moves on mini-batches have them (Baker et al., 2019), without
the moves: proposals of the mixture are taken or refused by the estimated energy, so that no step
size and no noise of a gradient biases the draws, but this error alone.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.run.rows import ArrayRows, Seen

FIRST_ROWS = 2**14  # that a run begins with
MOST_NOISE = 0.05  # of the energy at its draws, above which it takes more
GROWTH = 4
CHECKED = 16  # draws at which all rows are summed after all, once
_PARTS = 8  # of these rows, evenly spaced each, which tell the error


class Centres(NamedTuple):
    """Where the energy E of all rows is known, with its derivatives."""

    at: np.ndarray  # (centre, d)
    energy: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


class _Table(NamedTuple):
    """Log likelihoods of one part of the rows at the centres, and their derivatives."""

    value: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


class Estimate:
    """E at any points, from the centres and some of the rows."""

    def __init__(self, sampler: Any, centres: Centres, count: int) -> None:
        self.sampler, self.centres, self.count = sampler, centres, count
        some = sampler.rows.some(count)
        size = len(jax.tree.leaves(some)[0])
        self.scale = sampler.rows.num_rows / size
        taken = (slice(i, None, _PARTS) for i in range(_PARTS))
        self.parts = [ArrayRows(jax.tree.map(lambda x, at=at: x[at], some)) for at in taken]
        quiet: Seen = lambda count: None  # noqa: E731
        at = centres.at
        tables = [sampler.sums(True, at[0], at, quiet, part) for part in self.parts]
        self.tables = [_Table(t.apart, t.gradient, t.hessian) for t in tables]
        self.prior = [np.asarray(x, float) for x in sampler.slopes(jnp.asarray(at, sampler.dtype))]
        curved = (hessian + 1e-9 * np.trace(hessian) * np.eye(at.shape[1]) for hessian in
                  centres.hessian)  # fmt: skip
        self.whiten = np.array([_whitening(hessian) for hessian in curved])

    def __call__(self, points: np.ndarray, seen: Seen) -> tuple[np.ndarray, np.ndarray]:
        """Return E at points (m, d), and the standard deviations of its error."""
        centres = self.centres
        apart = points[None] - centres.at[:, None]
        square = np.sum(np.einsum("kij,kmj->kmi", self.whiten, apart) ** 2, axis=2)
        k = np.argmin(square, axis=0)
        step = points - centres.at[k]
        known = centres.energy[k] + _series(centres.gradient, centres.hessian, k, step)
        value, slope, curve = self.prior
        prior = self.sampler.prior_at(points) - value[k] - _series(slope, curve, k, step)
        left = []
        for part, table in zip(self.parts, self.tables):
            sums = self.sampler.sums(False, centres.at[0], points, seen, part)
            series = _series(table.gradient, table.hessian, k, step)
            left.append(-(sums.apart - table.value[k] - series))
        rest = self.scale * np.sum(left, axis=0)
        error = self.scale * np.sqrt(len(left)) * np.std(left, axis=0, ddof=1)
        return known + prior + rest, error


def _series(gradient: np.ndarray, hessian: np.ndarray, k: np.ndarray, step: np.ndarray) -> Any:
    """Return the terms of first and second order at steps (m, d) from the centres k (m,)."""
    first = np.sum(gradient[k] * step, axis=1)
    return first + np.einsum("mi,mij,mj->m", step, hessian[k], step, optimize=True) / 2


def _whitening(hessian: np.ndarray) -> np.ndarray:
    """Return a matrix whose square is the Hessian, directions that curve downwards turned up."""
    value, vector = np.linalg.eigh(hessian)
    return np.sqrt(np.abs(value))[:, None] * vector.T


def more_rows(count: int, num_rows: int) -> int:
    """Return how many rows come after `count`, 0 for all of them."""
    following = GROWTH * count
    return 0 if 2 * following >= num_rows else following


def weighted_noise(weight: np.ndarray, error: np.ndarray) -> float:
    """Return the root mean square of errors at points of these log weights."""
    known = np.isfinite(weight) & np.isfinite(error)
    if not known.any():
        return float("inf")
    share = np.exp(weight[known] - weight[known].max())
    return float(np.sqrt(np.sum(share * error[known] ** 2) / share.sum()))
