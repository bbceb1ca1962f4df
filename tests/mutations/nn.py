"""Mutations of `replicax/nn/`: which convolutions become matrix products, and their dtypes."""

from mutations import killed_by, mutations_of

_FILE = "nn/test_pointwise.py"
_WHICH = f"{_FILE}::test_which_convolutions_are_products"
_VALUES = f"{_FILE}::test_values_and_gradients_are_those_of_lax"
_WIDER = f"{_FILE}::test_low_precision_may_have_a_wider_output"
_DTYPES = f"{_FILE}::test_derivatives_have_the_dtypes_of_what_they_belong_to"
_CONV = "nn/test_conv.py::test_values_and_gradients_are_those_of_lax"
_CANONICAL = "nn/test_canonical.py::test_all_three_derivatives_are_those_of_lax"

POINTWISE = mutations_of(
    "nn/pointwise.py",
    ("plain = spec.groups == 1 and", "plain = True and", _WHICH),
    ("and set(spec.lhs_dilation) <= {1}", "and True", _WHICH),
    ("and not any(map(any, spec.padding))", "and True", _WHICH),
    ("not any(map(any, spec.padding))", "not any(low for low, _ in spec.padding)", _WHICH),
    ("plain and set(spec.filter_size) <= {1}", "plain", _WHICH),
    ('"preferred_element_type": spec.out_dtype}', '"preferred_element_type": None}', _WIDER),
    (".astype(spec.dtypes[0])", "", _DTYPES),
    (".astype(spec.dtypes[1])", "", _DTYPES),
    (
        "size - (stride * (count - 1) + 1), stride - 1)",
        "size - stride * count, stride - 1)",
        f"{_VALUES}[strided]",
    ),
    (
        "slice(None, None, s) for s in spec.strides",
        "slice(s - 1, None, s) for s in spec.strides",
        f"{_VALUES}[strided]",
    ),
)

CONV = mutations_of(
    "nn/conv.py",
    (
        "_MAX_DENSE = 1024",
        "_MAX_DENSE = 2048",
        f"{_FILE}::test_layouts_of_other_convolutions_on_gpus",
    ),
    (
        'return "dense" if lacks_kernel and num_channels <= _MAX_DENSE else "grouped"',
        'return "dense" if num_channels <= _MAX_DENSE else "grouped"',
        f"{_FILE}::test_layouts_of_other_convolutions_on_gpus",
    ),
    (
        'if "lhs" in shared and spec.groups == 1:',
        'if "lhs" in shared:',
        f"{_CONV}[groups-grouped-filters]",
    ),
    (
        'if name == "dense" and spec.groups == 1:',
        'if name == "dense":',
        f"{_CONV}[groups-dense-both]",
    ),
    ("return blocks[index, index]", "return blocks[index, 0]", f"{_CONV}[same-dense-both]"),
    (
        "return jnp.moveaxis(value, 0, axis).reshape(shape)",
        "return jnp.moveaxis(value, 0, axis + 1).reshape(shape)",
        f"{_CONV}[same-grouped-both]",
    ),
)

CONV_SPEC = mutations_of(
    "nn/conv_spec.py",
    (
        "filters = [1 + factor * (rhs.shape[axis] - 1) for axis, factor in sizes]",
        "filters = [rhs.shape[axis] for axis, factor in sizes]",
        f"{_CONV}[dilated-grouped-both]",
    ),
    (
        'groups = self.groups * (num_replicas if way == "grouped" else 1)',
        'groups = num_replicas if way == "grouped" else 1',
        f"{_CONV}[groups-grouped-both]",
    ),
)

CANONICAL = mutations_of(
    "nn/canonical.py",
    (
        'if wrt == "lhs" else (low, reach - excess)',
        'if wrt == "lhs" else (low, reach)',
        f"{_CANONICAL}[strided, mixed, float32]",
    ),
    (
        "rhs = lax.rev(rhs, range(len(spec.strides)))",
        "rhs = lax.rev(rhs, ())",
        f"{_CANONICAL}[same, 1-D, float32]",
    ),
)

_FRN = "nn/test_networks.py::test_a_resnet_with_frn_is_that_of_the_literature[silu]"
_HALF = "nn/test_networks.py::test_on_a_cpu_half_precision_is_single_precision[mlp]"
_WIDE = "nn/test_networks.py::test_a_wide_resnet_is_that_of_the_literature"

NETWORKS = [
    *mutations_of(
        "nn/network.py",
        ('x = jnp.maximum(x, params["threshold"].astype(x.dtype))', "pass", _FRN),
        ("x.astype(jnp.float32 if half_on_cpu else dtype)", "x.astype(dtype)", _HALF),
        ('padding = "SAME" if has_bias else', "padding =", _FRN),
        ('return x + params["bias"].astype(x.dtype) if has_bias else x', "return x", _FRN),
    ),
    *mutations_of(
        "nn/resnet.py",
        ("return normalise.activation(shortcut + x),", "return jax.nn.relu(shortcut + x),", _FRN),
        ("x, norm_state = norm(x) if norm_last else", "x, norm_state =", _WIDE),
        ("x, norm_state = (x, None) if norm_last else norm(x)", "norm_state = norm(x)[1]", _FRN),
        ("yield width, 2 if block == 0 and width", "yield width, 2 if block == 1 and width", _WIDE),
    ),
    *mutations_of(
        "nn/wide_resnet.py",
        (
            'apply_conv(params["shortcut"], y, stride)',
            'apply_conv(params["shortcut"], x, stride)',
            _WIDE,
        ),
        ("num_classes, dtype, norm_last=True)", "num_classes, dtype)", _WIDE),
    ),
]

BY_HAND = [
    *killed_by(
        "nn/test_resnet.py::test_batch_norm_normalises_and_updates_its_statistics",
        "nn/network.py",
        ("wide - first) ** 2", "wide) ** 2"),
        ("mean = first + mean", "mean = mean"),
        ("count / max(count - 1, 1)", "1.0"),
        ("jax.lax.rsqrt(var + eps)", "jax.lax.rsqrt(var) + eps"),
        ("momentum: float = 0.1, eps: float = 1e-5", "momentum: float = 0.01, eps: float = 1e-5"),
    ),
    *killed_by(
        "nn/test_networks.py::test_weights_begin_with_the_variance_of_their_fan",
        "nn/network.py",
        ("jnp.sqrt(2.0 / fan)", "jnp.sqrt(1.0 / fan)"),
        ("fan=size * size * num_out", "fan=size * size * num_in"),
        ("bound = num_in**-0.5", "bound = num_in**-1.0"),
    ),
]

MUTATIONS = [*BY_HAND, *POINTWISE, *CONV, *CONV_SPEC, *CANONICAL, *NETWORKS]
