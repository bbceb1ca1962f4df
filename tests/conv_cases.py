"""Options of convolutions for the tests of `replicax.nn`, and the comparison of their results."""

from typing import Any

import jax
import numpy as np

CASES = {
    "same": {"window_strides": (1, 1), "padding": "SAME"},
    "strided": {"window_strides": (2, 2), "padding": ((1, 1), (1, 1))},
    "valid": {"window_strides": (1, 2), "padding": "VALID"},
    "dilated": {"window_strides": (1, 1), "padding": "SAME", "rhs_dilation": (2, 1)},
    "transposed": {
        "window_strides": (1, 1),
        "padding": ((1, 0), (2, 1)),
        "lhs_dilation": (2, 2),
    },
    "pointwise": {"window_strides": (1, 1), "padding": "SAME"},
    "pointwise, strided": {"window_strides": (2, 3), "padding": "VALID"},
    "groups": {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2},
}
POINTWISE = [case for case in CASES if "pointwise" in case]
WIDE = [case for case in CASES if case not in POINTWISE]


def assert_close(results: Any, expected: Any, tolerance: float) -> None:
    """Compare two trees of arrays, each leaf relative to its largest value."""
    for one, other in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())
