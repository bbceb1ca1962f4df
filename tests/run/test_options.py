"""Options: their defaults stand once, and they survive the way through a run folder."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import optax
import pytest
from replicax.networks.options import TrainOptions

import replicax as rx
from replicax.algorithm import schedule, swap
from replicax.algorithm.tuning import ConstantGain
from replicax.run.options import Options


@pytest.mark.parametrize(("call", "options"), [(rx.sample, Options), (rx.train, TrainOptions)])
def test_the_signature_people_see_has_the_defaults_of_the_options(
    call: Callable, options: Any
) -> None:
    parameters = inspect.signature(call).parameters
    for field in fields(options):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        assert parameters[field.name].default == default, field.name
        assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY


@dataclass(frozen=True)
class OfOnesOwn(schedule.Schedule):
    def active_pairs(self, step: Any, drawn: Any, num_pairs: int) -> Any:
        return np.arange(num_pairs) == 0


WRITTEN = {
    "schedule": [
        schedule.windowed_deo(4, "exactly_one"),
        schedule.windowed_deo(2, alternate=False),
        schedule.seo(),
        schedule.adj(),
        schedule.ape(),
        schedule.none(),
        "deo_star",
    ],
    "rule": [
        swap.deterministic(),
        swap.metropolis(),
        swap.bias_corrected(),
        swap.bias_corrected((0.5, 1.5), estimate_every=7),
        swap.window_corrected(0.3, 2.0),
        swap.window_corrected("auto", reference_steps=10, tuning_steps=20),
        "metropolis",
    ],
    "gain": [rx.Gain(3.0, 4.0), ConstantGain(0.25), 0.5],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRITTEN.items() for value in values]
)
def test_options_come_back_from_a_folder(name: str, value: Any) -> None:
    options = Options(num_steps=10, learning_rate=0.1, **{name: value})
    again = Options.from_json(json.loads(json.dumps(options.to_json())), {})
    assert str(getattr(again, name)) in (str(value), str(value).replace("(0.5, 1.5)", "[0.5, 1.5]"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", OfOnesOwn()),
        ("gain", lambda step: 0.1 / (step + 1)),
        ("kernel", optax.sgd(1.0)),
        ("kernel", optax.chain(optax.clip(1.0), optax.adam(1.0))),
    ],
)
def test_objects_of_ones_own_must_be_given_again(name: str, value: Any) -> None:
    options = Options(num_steps=10, learning_rate=0.1, **{name: value})
    data = json.loads(json.dumps(options.to_json()))
    with pytest.raises(ValueError, match=f"a {name} of your own.*{name}=..."):
        Options.from_json(data, {})
    assert getattr(Options.from_json(data, {name: value}), name) is value


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ["none", "None", "NONE"])
def test_without_exchange_nothing_adapts_however_it_is_written(name: str) -> None:
    posterior = rx.sample(
        lambda x: x**2, 0.0, num_steps=150, num_replicas=3, method=rx.Method("own", learning_rate=(0.01, 0.1), schedule=name),
        progress=False,
    )  # fmt: skip
    assert posterior.options["adapts"] is None
    np.testing.assert_allclose(posterior.learning_rates[0], np.geomspace(0.01, 0.1, 3), rtol=1e-6)
    assert posterior.rung_of.tolist() == [[[0, 1, 2]] * 150]
