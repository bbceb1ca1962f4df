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
from replicax.run.search import Found

MINIMA, LEARNING, CONFIRMING = range(3)
WITNESSES = 32  # draws of the finder that every sweep evaluates


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


def first_state(
    found: Found,
    draws: np.ndarray,
    num_chains: int,
    prior: float,
    direction: np.ndarray,
    spent: np.ndarray,
) -> State:
    """Return the state before the first sweep, with minima and draws of some rows, and V at the
    deepest of them; `spent` is what the finder did."""
    minima, covariances = found.minima, found.covariances
    roots = np.linalg.cholesky(covariances)
    near = [
        np.sum(np.linalg.solve(root, (draws - m).T) ** 2, axis=0) for m, root in zip(minima, roots)
    ]
    k, d = minima.shape
    none, zeros = np.zeros(num_chains), np.zeros(3)
    apart, flat = np.full(k, np.inf), np.tile(np.eye(d), (k, 1, 1))
    return State(
        step=np.array(0),
        phase=np.array(MINIMA),
        burn_in=np.array(0),
        centre=minima[0],
        centres=Centres(minima, apart, np.zeros((k, d)), flat),
        estimated_from=np.array(0),
        at_centre=np.array([0.0, prior]),
        direction=direction,
        newton=Newton(minima, minima, apart, np.zeros((k, d)), flat, np.zeros(k)),
        finder=Finder(draws, np.argmin(near, axis=0), minima, roots),
        unsettled=np.array(k),
        laplace=covariances[0],
        mixture=no_proposals(d).mixture,
        pool=no_proposals(d),
        chains=Chains(np.zeros((num_chains, d)), np.zeros((num_chains, 2)), *[none] * 7),
        acceptance=np.zeros(0),
        excess=np.zeros(0),
        noise=np.zeros(0),
        error=np.array(0.0),
        spent=Spent(zeros, zeros, zeros, spent),
    )


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
