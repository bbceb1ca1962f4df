"""The posterior of a network with a tempered likelihood and an exact prior.

On a rung of temperature T

    exp(-N L(theta) / T - N weight_decay |theta|^2 / 2),

so that the coldest, T = 1, samples the posterior, and the prior confines the hot ones. Energies are
those of all rows and contain only the likelihood: in a swap the prior cancels.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from replicax.algorithm.spread import share_rows
from replicax.networks.task import Supervised
from replicax.run.batches import EpochBatches, sum_in_pieces
from replicax.run.methods import Method


def posed(problem: Supervised, method: Method) -> Supervised:
    """Return the problem that the method samples: with the rows of its steps, and a tempered
    likelihood if it uses one."""
    batches = problem.batches
    if method.rows_per_step and isinstance(batches, EpochBatches):
        count = max(min(method.rows_per_step, batches.num_rows), batches.batch_size)
        problem = replace(problem, batches=replace(batches, rows_per_step=count))
    return tempered(problem) if method.tempers_likelihood else problem


def tempered(problem: Supervised) -> Supervised:
    """Return the problem with a tempered likelihood; raise unless it has a separate prior."""
    target, ratio = problem.target, float(problem.num_rows)
    if target.tempers_likelihood:
        return problem
    prior, energy = target.prior, target.energy
    if prior is None:
        raise ValueError(
            "Only the likelihood is tempered, but the problem has no separate prior: pass "
            "weight_decay=... to rx.supervised or rx.classification, and no prior_in_energy."
        )

    def total(params: Any, model_state: Any, batch: Any, key: Any) -> tuple[Array, Any]:
        value, model_state = energy(params, model_state, batch, key)
        return ratio * value, model_state

    tempered_target = target._replace(
        energy=total,
        prior=lambda params: ratio * prior(params),
        tempers_likelihood=True,
        num_rows=problem.num_rows,
    )
    batches = problem.batches
    if isinstance(batches, EpochBatches):
        whole_energy = _whole_energy(tempered_target.energy_at, batches)
        tempered_target = tempered_target._replace(whole_energy=whole_energy)
    return replace(problem, target=tempered_target)


def check_posterior(problem: Supervised, like: Any, name: str) -> None:
    """Raise unless energies depend only on parameters and rows; `like` has the shapes of one
    network, `name` is the name of the method."""
    floating = [x for x in jax.tree.leaves(like[1]) if jnp.issubdtype(x.dtype, jnp.floating)]
    if floating:
        raise ValueError(
            f'The method "{name}" samples the posterior of the parameters, and this network has a '
            "model state, such as batch statistics, on which its loss depends: use a network "
            'without, such as rx.nn.resnet(20, norm="frn").'
        )
    if problem.is_random(like):
        raise ValueError(
            f'The method "{name}" samples the posterior of the parameters, and this loss draws '
            "random numbers, as dropout does: use a network without, or a dropout rate of 0."
        )
    batches = problem.batches
    if not isinstance(batches, EpochBatches) or batches.prepare is None:
        return
    rows = jax.tree.map(lambda leaf: leaf[: batches.batch_size], batches.data)
    one, other = (batches.prepare(jax.random.key(seed), rows) for seed in (0, 1))
    leaves = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    if any(not np.array_equal(a, b) for a, b in leaves):
        raise ValueError(
            f'The method "{name}" samples the posterior given the data, but random augmentation '
            "changes the likelihood: write augment=False, or a prepare that does not depend on its "
            "key."
        )


def _whole_energy(
    energy_at: Callable[..., Array], batches: EpochBatches
) -> Callable[[Any, Any], Array]:
    """Return the energy over all rows, evaluated in batches and a remainder."""
    key = jax.random.key(0)  # on which neither batch nor energy depends

    def energy(point: Any, data: Any) -> Array:
        def sum_over(rows: Any) -> Array:
            count = len(jax.tree.leaves(rows)[0])
            prepared = rows if batches.prepare is None else batches.prepare(key, rows)
            return count * energy_at(point, share_rows(prepared), key)

        return sum_in_pieces(sum_over, data, batches.rows_seen) / batches.num_rows

    return energy


