"""Whether gradients explain energies.

Moves on mini-batches follow gradients and are neither accepted nor rejected. Where the log
likelihood jumps, as at a change point written with `where`, gradients do not see it, and the draws
have another law than the posterior, on which all chains agree.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.run import pytrees

_LENGTH = 0.5  # of the steps that are checked, in standard deviations of a draw from the next
_UNEXPLAINED = 0.1  # of the energy, root mean square, in the unit of the temperature
_ROUNDING = 64  # spacings of the energy's floating-point numbers
_NODES, _GAUSS = np.polynomial.legendre.leggauss(5)
_PLACES = np.concatenate([[0.0], (_NODES + 1) / 2, [1.0]]).astype(np.float32)  # along a step
_WEIGHTS = np.concatenate([[0.0], _GAUSS / 2, [0.0]])
_FEWEST, _MOST = 4, 32  # steps
_WORK = 2_000_000  # rows that the check evaluates
_FEW_DRAWS = 20


def unexplained_energy(posterior: Any) -> str | None:
    """Return a sentence where energies change otherwise than their gradients say.

    Between a draw and a point near it, the difference of the energies over all rows is compared
    with the integral of the gradient, which for smooth densities are the same.
    """
    target = getattr(posterior._target, "target", None)
    batches = getattr(posterior._target, "batches", None)
    whole_energy = getattr(target, "whole_energy", None)
    resolved, enough = posterior.metadata.resolved, posterior.num_draws >= _FEW_DRAWS
    if resolved["adjusted"] or whole_energy is None or batches is None or not enough:
        return None
    if not posterior.options["keep_draws"] or float(posterior.temperatures[:, 0].min()) <= 0:
        return None
    draws, steps = _steps(posterior, int(np.clip(_WORK // batches.num_rows, _FEWEST, _MOST)))
    temperature = float(posterior.temperatures[:, 0].max())

    def energy(params: Any) -> Array:
        prior = 0.0 if target.prior is None else target.prior(params)
        return whole_energy(params, batches.data) / temperature + prior

    size, rest = _unexplained(energy, draws, steps)
    rounding = _ROUNDING * float(np.spacing(np.float32(size)))
    if not rest > max(_UNEXPLAINED, rounding):
        return None
    return (
        f"The energy changes by {rest:.2g} where its gradient says otherwise: the log likelihood "
        "has jumps (where, floor, an index) or a gradient that is not its own, and moves on "
        "mini-batches follow the gradient alone. Leave out batch_size, and moves are accepted or "
        "rejected by the energy, or write the model without jumps (sum over the place of a change "
        "point)."
    )


def _steps(posterior: Any, count: int) -> tuple[Any, Any]:
    """Return draws and steps away from them, trees with a leading axis."""
    rng = np.random.default_rng(0)
    chain = rng.integers(posterior.num_chains, size=count)
    draw = rng.integers(posterior.num_draws, size=count)
    draws, steps = [], []
    for leaf in posterior._leaves(0):
        moved = np.median(np.abs(np.diff(leaf, axis=1)), axis=(0, 1)) / (0.6745 * np.sqrt(2))
        drawn = leaf[chain, draw]
        draws.append(drawn)
        steps.append(_LENGTH * moved * rng.standard_normal(drawn.shape))
    rebuild = lambda leaves: pytrees.rebuild(posterior.metadata.params, leaves, posterior._like)  # noqa: E731
    dtypes = [leaf.dtype for leaf in draws]
    return rebuild(draws), rebuild([step.astype(kind) for step, kind in zip(steps, dtypes)])


def _unexplained(energy: Any, draws: Any, steps: Any) -> tuple[float, float]:
    """Return the size of the energies, and the root mean square of what gradients leave open."""

    def one(pair: tuple[Any, Any]) -> tuple[Array, Array]:
        draw, step = pair

        def along(share: Array) -> Array:
            return energy(jax.tree.map(lambda x, v: x + share.astype(x.dtype) * v, draw, step))

        energies, slopes = jax.lax.map(jax.value_and_grad(along), jnp.asarray(_PLACES))
        integral = jnp.sum(jnp.asarray(_WEIGHTS, slopes.dtype) * slopes)
        return jnp.abs(energies[0]), energies[-1] - energies[0] - integral

    size, rest = jax.jit(lambda *pair: jax.lax.map(one, pair))(draws, steps)
    size, rest = np.asarray(size, float), np.asarray(rest, float)
    finite = np.isfinite(rest)
    if not finite.any():
        return 0.0, 0.0
    return float(size[finite].max()), float(np.sqrt(np.mean(np.square(rest[finite]))))
