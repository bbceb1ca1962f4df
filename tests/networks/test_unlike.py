"""Predictions for inputs unlike those of the training, and of networks with one output."""

import warnings
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx
from replicax.networks.outcomes import Classes
from replicax.networks.pairs import columns_of, seen_in
from replicax.networks.predictor import _difference

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (200, 8, 8, 1)).astype(np.uint8)
TABLE = RNG.normal([0, 100, 5], [1, 20, 0], (200, 3)).astype(np.float32)

CASES: dict[str, Any] = {
    "images": (IMAGES, IMAGES[:50], False),
    "one image": (IMAGES, IMAGES[:1], False),
    "images of 0 to 16": (IMAGES, IMAGES // 16, True),
    "few images of 0 to 16": (IMAGES, IMAGES[:8] // 16, True),
    "images of 0 to 1": (IMAGES.astype(np.float32), IMAGES.astype(np.float32) / 255, True),
    "images of 0 to 255": (IMAGES.astype(np.float32) / 255, IMAGES.astype(np.float32), True),
    "rows": (TABLE, TABLE[:50], False),
    "one row": (TABLE, TABLE[:1], False),
    "equal rows": (TABLE, np.repeat(TABLE[:1], 4, 0), False),
    "one column in another unit": (TABLE, TABLE * [1, 1000, 1], True),
    "one row in another unit": (TABLE, TABLE[:1] * [1, 1000, 1], True),
    "standardised rows": (100 + 10 * TABLE, TABLE, True),
    "rows that all lie apart": (TABLE[:, :1], 0.2 * TABLE[:, :1] + 3.5, True),
    "a constant column that is another": (TABLE, TABLE + np.eye(3)[2], False),
    "heavy tails": (RNG.standard_t(2, (500, 2)), RNG.standard_t(2, (20, 2)), False),
}  # fmt: skip


@pytest.mark.parametrize(("seen", "given", "differ"), CASES.values(), ids=CASES)
def test_what_is_unlike_the_training_is_told(seen: Any, given: Any, differ: bool) -> None:
    (moments,) = seen_in(seen)
    assert (_difference(columns_of(np.asarray(given)), moments) is not None) is differ


def told(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        call()
    return [str(w.message) for w in said if "unlike those of the training" in str(w.message)]


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_predictions_tell_it_also_from_a_folder(kind: str, tmp_path: Path) -> None:
    inputs, network = TABLE[:, :2], rx.nn.mlp(2, 1 if kind == "regression" else 2, hidden=(3,))
    targets = inputs[:, 0] if kind == "regression" else (inputs[:, 0] > 0).astype(int)
    problem = getattr(rx, kind)(network, (inputs, targets), batch_size=50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trained = rx.train(problem, network.init, epochs=3, num_replicas=2, burn_in=1,
                           run_dir=tmp_path / "run", progress=False)  # fmt: skip
    for run in (trained, rx.load(tmp_path / "run", network)):
        assert told(lambda run=run: run.predict(inputs[:20])) == []
        (said,) = told(lambda run=run: run.predict(1000 * inputs[:20]))
        assert "in column" in said and "great confidence" in said


def test_one_output_is_no_class() -> None:
    with pytest.raises(ValueError, match="one output, and one class has probability 1"):
        Classes().check((5, 1), 5)


def test_a_problem_with_one_output_refuses_to_predict() -> None:
    rows = TABLE[:, :1], (TABLE[:, 0] > 0).astype(np.float32)

    def logits(params: Any, state: Any, inputs: Any) -> Any:
        return inputs @ params["w"]

    def loss(params: Any, state: Any, batch: Any, key: Any) -> Any:
        return jnp.mean((logits(params, state, batch[0])[:, 0] - batch[1]) ** 2), state

    problem = rx.supervised(loss, rows, batch_size=50, logits=logits)
    with pytest.raises(ValueError, match="two outputs for two classes"):
        trained = rx.train(problem, ({"w": jnp.zeros((1, 1))}, {}), epochs=3, num_replicas=1,
                           burn_in=1, method=rx.sgld(0.01), progress=False)  # fmt: skip
        trained.predict(rows[0])
