"""Weight decay by groups of parameters."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.networks.task import check_weight_decay, decayed_square
from replicax.networks.tempered import tempered

PARAMS = {"layers": [{"weight": jnp.array([[1.0, 2.0]]), "bias": jnp.array([3.0])}]}


@pytest.mark.parametrize(
    ("decay", "wanted"),
    [
        (0.5, 0.5 * 14),
        ({"*bias": 0.0, "*": 0.5}, 0.5 * 5),
        ({"layers.0.weight": 2.0, "*": 1.0}, 2 * 5 + 9),
    ],
)
def test_each_group_has_its_own(decay: Any, wanted: float) -> None:
    assert check_weight_decay(decay)
    assert float(decayed_square(decay, PARAMS)) == pytest.approx(wanted)
    loss_fn = lambda params, state, batch, key: (jnp.mean(batch), state)  # noqa: E731
    problem = rx.supervised(loss_fn, np.ones(8, np.float32), batch_size=4, weight_decay=decay)
    for posed, scale in ((problem, 1), (tempered(problem), 8)):
        prior = posed.target.prior
        assert prior is not None
        assert float(jax.jit(prior)(PARAMS)) == pytest.approx(0.5 * scale * wanted)


def test_what_fits_nothing_is_refused() -> None:
    assert not check_weight_decay(0.0) and not check_weight_decay({"*": 0.0})
    assert check_weight_decay({"*bias": 0.0}), "which says nothing about the others"
    for decay, message in (
        (-1.0, "weight_decay is -1.0"),
        ({"*": -1.0}, r"weight_decay\['\*'\] is -1.0"),
        ({3: 1.0}, "entry 3"),
        ("much", "weight_decay is 'much'"),
    ):
        with pytest.raises(ValueError, match=message):
            check_weight_decay(decay)
    for decay, message in (
        ({"*bias": 0.0}, "no pattern that fits the parameter layers.0.weight"),
        ({"*scale": 0.0, "*": 1.0}, "'\\*scale', which fits no parameter"),
    ):
        with pytest.raises(ValueError, match=message):
            decayed_square(decay, PARAMS)
