"""Laplace's approximation of a posterior: its mode, the Gaussian there, and the evidence."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from replicax.run.blas import one_thread

_PIECE = 1024  # rows at once
_MOST_NEWTON = 100
_SETTLED = 0.03  # change of the log precision of the prior at which it is found
_WIDEST = 1e3  # largest standard deviation of a prior that is chosen, and one over the smallest


class Laplace(NamedTuple):
    """A mode, and the Gaussian there."""

    mode: np.ndarray  # (parameter,)
    spread: np.ndarray  # (parameter, parameter) A, whose A A' is the covariance
    precision: np.ndarray  # (parameter,) of the prior
    log_evidence: float

    @property
    def log_volume(self) -> float:
        """The log determinant of the spread."""
        return float(np.sum(np.log(np.abs(np.diag(self.spread)))))


@one_thread()
def laplace(
    energy: Callable, rows: Any, at: np.ndarray, is_scaled: np.ndarray, prior_sd: float | None
) -> Laplace:
    """Return the mode by Newton's method, and the prior of the largest evidence unless it is given
    (MacKay, 1992): its precision is gamma / |theta|^2, gamma the number of parameters that the data
    determine."""
    value, derivatives = (_summed(jax.jit(f), rows) for f in (
        lambda x, piece: (energy(x, piece),),
        lambda x, piece: (energy(x, piece), jax.grad(energy)(x, piece),
                          jax.hessian(energy)(x, piece)),
    ))  # fmt: skip
    precision = np.where(is_scaled, 1.0 if prior_sd is None else prior_sd**-2.0, 1.0)
    for _ in range(_MOST_NEWTON):
        nll, slope, curvature = derivatives(at)
        root, solved = _inverse(curvature + np.diag(precision))
        step = solved @ (slope + precision * at)
        decrement = float(step @ (slope + precision * at))
        change = 0.0
        if prior_sd is None:
            change = _renewed(precision, at, solved, is_scaled)
        if decrement < 1e-3 and abs(change) < _SETTLED:
            break
        at = _descended(value, precision, at, step, decrement)
        if prior_sd is None and decrement < 1.0:
            precision = np.where(is_scaled, precision * np.exp(change), precision)
    u = nll + precision @ at**2 / 2 - np.sum(np.log(precision / (2 * np.pi))) / 2
    fit = Laplace(at, root, precision, 0.0)
    return fit._replace(log_evidence=float(-u + len(at) / 2 * np.log(2 * np.pi) + fit.log_volume))


def _summed(function: Callable, rows: Any) -> Callable[[np.ndarray], list[Any]]:
    """Return the sums over all rows of what a function of a point and some rows returns."""
    count = len(jax.tree.leaves(rows)[0])

    def total(at: np.ndarray) -> list[Any]:
        sums: list[Any] = []
        for start in range(0, count, _PIECE):
            piece = jax.tree.map(lambda leaf: leaf[start : start + _PIECE], rows)  # noqa: B023
            found = [np.asarray(x, float) for x in function(jnp.asarray(at, jnp.float32), piece)]
            sums = found if not sums else [a + b for a, b in zip(sums, found)]
        return sums

    return total


def _inverse(hessian: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A, upper triangular, and the inverse A A' of a Hessian; of one that is not positive
    the inverse with all its curvatures positive."""
    try:
        lower = np.linalg.cholesky(hessian)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(hessian)
        values = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        lower = np.linalg.cholesky((vectors * values) @ vectors.T)
    root = np.linalg.inv(lower).T
    return root, root @ root.T


def _renewed(
    precision: np.ndarray, at: np.ndarray, inverse: np.ndarray, is_scaled: np.ndarray
) -> float:
    """Return the change of the log precision of the prior by the evidence."""
    now = precision[is_scaled][0]
    determined = is_scaled.sum() - now * np.trace(inverse[np.ix_(is_scaled, is_scaled)])
    best = max(determined, 1e-3) / max(np.sum(at[is_scaled] ** 2), 1e-12)
    return float(np.log(np.clip(best, _WIDEST**-2, _WIDEST**2) / now))


def _descended(
    value: Callable, precision: np.ndarray, at: np.ndarray, step: np.ndarray, decrement: float
) -> np.ndarray:
    """Return the point after a Newton step, made shorter until the energy falls."""

    def energy(x: np.ndarray) -> float:
        return value(x)[0] + precision @ x**2 / 2

    before, size = energy(at), 1.0
    while size > 1e-4 and not energy(at - size * step) <= before - 0.1 * size * decrement + 1e-3:
        size /= 2
    return at - size * step
