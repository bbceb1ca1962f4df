"""Mutations of `replicax/data/`: augmentation, and labels and images of other kinds."""

from mutations import mutations_of

_FILE = "data/test_augment.py"
_IN_ORDER = f"{_FILE}::test_augmentation_is_its_parts_in_order[{{}}]"
_CROPS = f"{_FILE}::test_crops_are_those_of_a_loop"
_FLIPS = f"{_FILE}::test_flips_are_those_of_a_loop"
_RECTANGLES = f"{_FILE}::test_rectangles_are_those_of_a_loop"
_ERASING = f"{_FILE}::test_erasing_is_that_of_a_loop"
_UNIFORM = f"{_FILE}::test_corners_are_uniform"
_BOUNDS = f"{_FILE}::test_rectangles_lie_within_the_image_and_the_bounds"

AUGMENT = mutations_of(
    "data/augment.py",
    (
        "_to_integers(_draw_uniforms(key, (num_images, 2)), 2 * pad + 1)",
        "_to_integers(_draw_uniforms(key, (num_images, 2)), 2 * pad)",
        _UNIFORM,
    ),
    (
        "_to_integers(uniforms[:, :2], 2 * pad + 1)",
        "_to_integers(uniforms[:, :2], pad + 1)",
        _IN_ORDER,
    ),
    ("(corner[0], corner[1], 0)", "(corner[1], corner[0], 0)", _CROPS),
    ("images[:, :, ::-1], images)", "images[:, ::-1], images)", _FLIPS),
    (
        "flip_where(images, uniforms[:, 2] < 0.5)",
        "flip_where(images, uniforms[:, 1] < 0.5)",
        _IN_ORDER,
    ),
    (
        "to_rectangles(uniforms[:, 3:], (height, width), erase)",
        "to_rectangles(uniforms[:, 3:], (width, height), erase)",
        _IN_ORDER,
    ),
    ("erased = uniforms[:, 0] < probability", "erased = uniforms[:, 0] > probability", _RECTANGLES),
    ("uniforms[:, 1], size[0] - height + 1)", "uniforms[:, 1], size[0] - height)", _RECTANGLES),
    ("uniforms[:, 2], size[1] - width + 1)", "uniforms[:, 1], size[1] - width + 1)", _RECTANGLES),
    ("fits = (heights < size[0])", "fits = (heights <= size[0])", _RECTANGLES),
    (
        "for attempt in reversed(range(heights.shape[1])):",
        "for attempt in range(heights.shape[1]):",
        _RECTANGLES,
    ),
    (
        "width=jnp.where(erased, width, 0),",
        "width=width,",
        f"{_FILE}::test_rectangles_without_erasure_are_empty",
    ),
    ("(indices < (start + length)[:, None])", "(indices <= (start + length)[:, None])", _ERASING),
    (
        "(1 / (255 * std_)) - mean_ / std_)",
        "(1 / (255 * std_)) - mean_)",
        f"{_FILE}::test_normalising",
    ),
    (
        "AREA: Range = (0.02, 0.4)",
        "AREA: Range = (0.02, 0.33)",
        f"{_FILE}::test_the_defaults_are_the_authors",
    ),
    (
        "ASPECT: Range = (0.3, 1 / 0.3)",
        "ASPECT: Range = (0.5, 1 / 0.3)",
        f"{_FILE}::test_the_defaults_are_the_authors",
    ),
    (
        "stretch = jnp.exp(0.5 * (low + aspects * (high - low)))",
        "stretch = jnp.exp(low + aspects * (high - low))",
        _RECTANGLES,
    ),
    ("    pad: int = 4,", "    pad: int = 2,", _IN_ORDER),
    ("    erase: float = 0.5,", "    erase: float = 0.0,", _IN_ORDER),
)

_CONVERTED = "data/test_dataset.py::test_labels_and_images_of_other_kinds_are_converted"
_REFUSED = "data/test_dataset.py::test_invalid_data_sets_are_refused"

CONVERSIONS = mutations_of(
    "data/conversions.py",
    ("array.max() <= 1 else 1", "array.max() <= 0 else 1", _CONVERTED),
    ("array = np.asarray(array).argmax(axis=-1)", "pass", _CONVERTED),
    ("np.abs(factor * array - rounded).max() <= _ROUNDING", "array.size", _REFUSED),
    ("and np.all(array.sum(axis=1) == 1)", "", _REFUSED),
    ("if low < 0 or high >= num_classes:", "if low < 0 or high > num_classes:", _REFUSED),
    ("if low > 0 and", "if low > 1 and", "data/test_table.py::test_what_is_no_table_is_refused"),
)

_TABLE = "data/test_table.py::{}"

TABLES = mutations_of(
    "data/table.py",
    (
        "train=(inputs[~is_held_out], outcomes[~is_held_out])",
        "train=self.train",
        _TABLE.format("test_rows_are_held_out"),
    ),
    (
        "shades.std(axis=0)",
        "shades.mean(axis=0)",
        _TABLE.format("test_images_of_bytes_become_a_data_set"),
    ),
    (
        'if "inputs" not in arrays or len(kinds) != 1:',
        'if "inputs" not in arrays:',
        _TABLE.format("test_what_is_no_table_is_refused"),
    ),
    (
        "int(outcomes.max()) + 1 if",
        "int(outcomes.max()) if",
        _TABLE.format("test_names_say_what_is_learnt"),
    ),
)

MUTATIONS = [*AUGMENT, *CONVERSIONS, *TABLES]
