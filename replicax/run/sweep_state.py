"""The state of a run of sweeps: what it found, what it learned, and where its chains stand."""

import typing
from typing import Any, NamedTuple

import jax
import numpy as np

from replicax.algorithm import fitting
from replicax.algorithm.mixture import Mixture, in_use, make_mixture
from replicax.run import trees
from replicax.run.estimate import Centres
from replicax.run.records import Arrays

MINIMA, LEARNING, CONFIRMING = range(3)


class Newton(NamedTuple):
    """Points on their way to the minima of all rows, (minimum, ...)."""

    tried: np.ndarray  # where the next sweep looks      shape (minimum, d)
    at: np.ndarray  # the best ones so far               shape (minimum, d)
    energy: np.ndarray  # there, minus that of the centre
    gradient: np.ndarray
    hessian: np.ndarray
    damping: np.ndarray


class Finder(NamedTuple):
    """What was found on some of the rows."""

    draws: np.ndarray  #                                shape (draw, d)
    minimum: np.ndarray  # the nearest one of each      shape (draw,)
    minima: np.ndarray  #                               shape (minimum, d)
    roots: np.ndarray  # of their covariances           shape (minimum, d, d)


class Pool(NamedTuple):
    """Proposals of the sweeps that learn, and the mixture that all of them are drawn from."""

    points: np.ndarray
    energies: np.ndarray
    mixture: Mixture
    sweeps: np.ndarray


class Chains(NamedTuple):
    """Where the chains stand, and how they came there."""

    points: np.ndarray  # (chain, d)
    energy: np.ndarray  # U and E there, minus those of the centre    shape (chain, 2)
    weight: np.ndarray  # -E - log q
    proposals: np.ndarray
    accepted: np.ndarray
    held: np.ndarray  # refused in a row
    longest: np.ndarray
    log_sum: np.ndarray  # of the weights of all proposals
    log_sum_square: np.ndarray


class Spent(NamedTuple):
    """What was spent, by phase (minima, learning, confirming)."""

    sweeps: np.ndarray
    evaluations: np.ndarray  # of all rows
    seconds: np.ndarray
    finder: np.ndarray  # rows, evaluations of them, seconds


class State(NamedTuple):
    """All that the next sweep depends on. Only host arrays; shapes may change."""

    step: np.ndarray  # sweeps done
    phase: np.ndarray
    burn_in: np.ndarray  # sweeps before the first kept one; those so far
    centre: np.ndarray  # (d,)
    centres: Centres  # of the energies, where they are estimated
    estimated_from: np.ndarray  # so many rows, 0 for all
    at_centre: np.ndarray  # U and V there
    direction: np.ndarray  # of the order of labels
    newton: Newton
    finder: Finder
    unsettled: np.ndarray  # minima that Newton steps have not reached
    laplace: np.ndarray  # covariance at the deepest minimum
    mixture: Mixture
    pool: Pool
    chains: Chains
    acceptance: np.ndarray  # harmonic, of each sweep that learned
    # Of each sweep: by how much the heaviest draw of the finder is above all proposals together.
    excess: np.ndarray
    noise: np.ndarray  # of each: the error of energies that are estimated, by its own parts
    error: np.ndarray  # of these energies, by all rows
    spent: Spent


def no_proposals(d: int) -> Pool:
    empty = make_mixture(np.zeros(1), np.zeros((1, d)), np.eye(d)[None])
    return Pool(np.zeros((0, d)), np.zeros(0), empty, np.array(0))


def pooled(pool: Pool, points: np.ndarray, energies: np.ndarray, mixture: Mixture) -> Pool:
    """Return the pool with the proposals of one more sweep. All sweeps have as many."""
    sweeps = int(pool.sweeps) + 1
    both = mixture if sweeps == 1 else fitting.merged(pool.mixture, mixture, 1 / sweeps)
    return Pool(
        np.concatenate([pool.points, points]),
        np.concatenate([pool.energies, energies]),
        in_use(both),
        np.array(sweeps),
    )


def template() -> State:
    """Return a state with a number in the place of each of its arrays."""

    def filled(kind: Any) -> Any:
        parts = typing.get_type_hints(kind).values()
        return kind(*(filled(part) if hasattr(part, "_fields") else 0 for part in parts))

    return filled(State)


NAMES = trees.leaf_names(template())


def restored(final: Arrays) -> State:
    """Return the state that a folder holds."""
    if any(f"sweeps.{name}" not in final for name in NAMES):
        raise ValueError(
            "The run was started by an earlier version, whose sweeps this one cannot continue: its "
            "draws can be read (rx.load); start the run again for more."
        )
    leaves = [final[f"sweeps.{name}"] for name in NAMES]
    return jax.tree.structure(template()).unflatten(leaves)
