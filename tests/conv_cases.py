"""Options of convolutions that the tests of `replicax.nn` try."""

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
