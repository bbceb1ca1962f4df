"""Targets of regressions: real numbers, checked and standardised."""

from typing import Any

import numpy as np

from replicax.errors import show
from replicax.networks.arrays import check_pair


def as_columns(name: str, targets: np.ndarray) -> np.ndarray:
    if targets.ndim not in (1, 2) or not targets.size or targets.dtype.kind not in "biuf":
        raise ValueError(
            f"The targets of {name} are {targets.dtype} of shape {targets.shape}; give real "
            "numbers, (row,) or (row, target)."
        )
    return (targets[:, None] if targets.ndim == 1 else targets).astype(np.float64)


def standard(targets: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    return ((targets - centre) / spread).astype(np.float32)


def moments(standardise: Any, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation to standardise every target: those of the targets (sd 1 if
    all are equal), those given, or 0 and 1."""
    if standardise is True:
        # By rounding, the deviation of equal numbers may not be 0.
        differ = np.ptp(targets, axis=0) > 0
        return targets.mean(axis=0), np.where(differ, targets.std(axis=0), 1.0)
    if standardise is False:
        return np.zeros(targets.shape[1]), np.ones(targets.shape[1])
    centre, spread = _given_moments(standardise)
    if len(centre) != targets.shape[1]:
        raise ValueError(
            f"standardise has {len(centre)} means, and there are {targets.shape[1]} targets: give "
            "one each."
        )
    return centre, spread


def moments_of_source(standardise: Any, test: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation for a source, whose targets are not known yet."""
    if standardise is True:
        raise ValueError(
            "standardise is True, but the targets of a source are not known before they are read: "
            "write standardise=(mean, sd) of the targets, or False."
        )
    if standardise is not False:
        return _given_moments(standardise)
    columns = 1 if test is None else as_test(test)[1].shape[1]
    return np.zeros(columns), np.ones(columns)


def _given_moments(standardise: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the pair (mean, sd), each one number or one per target, as arrays."""
    try:
        centre, spread = (np.atleast_1d(np.asarray(part, np.float64)) for part in standardise)
        valid = np.isfinite([centre, spread]).all() and (spread > 0).all() and centre.ndim == 1
    except (TypeError, ValueError):
        valid, centre, spread = False, np.zeros(0), np.zeros(0)
    if not valid or not len(centre):
        raise ValueError(
            f"standardise is {show(standardise)}; write True, False, or (mean, sd) of the targets, "
            "numbers or one for each target."
        )
    return centre, spread


def check_batch(centre: np.ndarray, spread: np.ndarray, name: str, batch: Any) -> tuple[Any, Any]:
    """Return a batch of a source with standardised targets; raise if it has none."""
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise ValueError(
            f"{name} is of type {type(batch).__name__}; let the source give pairs of arrays "
            "(inputs, targets)."
        )
    inputs, targets = batch[0], as_columns(name, np.asarray(batch[1]))
    if targets.shape[1] != len(centre) or not np.isfinite(targets).all():
        raise ValueError(
            f"{name} has targets of shape {np.shape(batch[1])}; give {len(centre)} finite ones for "
            "each row, as many as standardise or the test has."
        )
    return inputs, standard(targets, centre, spread)


def as_test(test: Any, num_targets: int | None = None) -> tuple[Any, np.ndarray]:
    """Return inputs and targets (row, target) of the test."""
    inputs, targets = check_pair("test", test, "targets")
    targets = as_columns("test", targets)
    if num_targets not in (None, targets.shape[1]):
        raise ValueError(
            f"The targets of test have {targets.shape[1]} columns, those of data {num_targets}: "
            "give the same."
        )
    return inputs, targets
