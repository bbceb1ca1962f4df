"""Options are declared once: calls, help texts and run folders follow the declaration."""

import inspect
import json
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import numpy as np
import optax
import pytest

import replicax as rx
from replicax.algorithm import schedule, swap
from replicax.algorithm.tuning import ConstantGain
from replicax.run.methods import METHODS, written
from replicax.run.options import Sampling, Session, Training, options_of
from replicax.run.storage.metadata import from_plain, given_again, to_plain

KINDS = (Sampling, Training, rx.Method)


# Signatures


@pytest.mark.parametrize(("call", "options"), [(rx.sample, Sampling), (rx.train, Training)])
def test_the_signature_people_see_has_the_defaults_of_the_declaration(
    call: Callable, options: Any
) -> None:
    parameters = inspect.signature(call).parameters
    for field in (*fields(options), *fields(Session)):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        assert parameters[field.name].default == default, field.name
        assert parameters[field.name].kind is inspect.Parameter.KEYWORD_ONLY


def test_resume_takes_what_may_change_and_nothing_else() -> None:
    parameters = inspect.signature(rx.resume).parameters
    for field in fields(Session)[1:]:  # the first is the folder
        assert parameters[field.name].default == field.default, field.name
    for options in KINDS[:2]:
        for name, about in options_of(options).items():
            assert (name in parameters) == (about.on_resume != "fixed"), name
            assert name not in parameters or parameters[name].default is None
    assert parameters["method"].default is None  # with the objects that are given again


@pytest.mark.parametrize("name", METHODS)
def test_the_functions_of_methods_have_the_defaults_of_their_methods(name: str) -> None:
    declared = {entry.name: entry.default for entry in fields(rx.Method)}
    function = METHODS[name]
    made, parameters = function(), inspect.signature(function).parameters
    assert made.name == name and getattr(rx, function.__name__) is function
    for part, parameter in parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        usual = declared[part] if part != "learning_rate" else None
        assert parameter.default in (usual, getattr(made, part)), part
        assert getattr(made, part) in (parameter.default, "auto"), part
        other = {"sample_from": 0.7, "exact": False}.get(part, 7)
        assert getattr(function(**{part: other}), part) == other


@pytest.mark.parametrize("name", [*METHODS, "seo"])
def test_a_method_is_written_as_it_is_made(name: str) -> None:
    made = eval(written(name, "learning_rate=0.25"), {"rx": rx})
    assert (made.name, made.learning_rate) == (name, 0.25)


@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_help_text_is_a_flag_and_every_option_says_what_resuming_does(kind: Any) -> None:
    declared = options_of(kind)
    assert set(declared) == {entry.name for entry in fields(kind)}
    for name, about in declared.items():
        assert not about.help or (about.help[0].isupper() and about.help.endswith(".")), name
        assert about.help or (about.flag, about.metavar, about.show_default) == (None,) * 3, name
        assert len(about.help) < 100, name
        assert about.on_resume in ("fixed", "may change", "may grow", "give again"), name
        assert about.check is not None or about.on_resume == "give again" or name in OPEN, name


OPEN = {"buffer"}  # checked where the tuning is built


# Run folders


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
        "metropolis",
    ],
    "gain": [rx.Gain(3.0, 4.0), ConstantGain(0.25), 0.5],
}


def through_json(options: Any) -> Any:
    return json.loads(json.dumps(to_plain(options)))


def call(name: str) -> str:
    return f"rx.resume(run_dir, target, method=rx.deo_star({name}=...))"


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in WRITTEN.items() for value in values]
)
def test_methods_come_back_from_a_folder(name: str, value: Any) -> None:
    method = rx.Method("own", learning_rate=0.1, **{name: value})
    again = from_plain(rx.Method, through_json(method))
    assert str(getattr(again, name)) in (str(value), str(value).replace("(0.5, 1.5)", "[0.5, 1.5]"))
    assert to_plain(again) == to_plain(method)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_comes_back_equal(name: str) -> None:
    method = METHODS[name]()
    assert given_again(from_plain(rx.Method, through_json(method)), {}, call) == method


@pytest.mark.parametrize("options", [Sampling(num_steps=9, thin=3), Training(epochs=4, burn_in=1)])
def test_options_come_back_equal(options: Any) -> None:
    again = from_plain(type(options), through_json(options))
    assert to_plain(again) == to_plain(options)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schedule", OfOnesOwn()),
        ("gain", lambda step: 0.1 / (step + 1)),
        ("rate_schedule", lambda step: 0.1),
        ("kernel", optax.sgd(1.0)),
        ("kernel", optax.chain(optax.clip(1.0), optax.adam(1.0))),
    ],
)
def test_objects_of_ones_own_must_be_given_again(name: str, value: Any) -> None:
    stored = from_plain(rx.Method, through_json(rx.deo_star(0.1, **{name: value})))
    with pytest.raises(ValueError, match=f"a {name} of your own.*deo_star.{name}=..."):
        given_again(stored, {}, call)
    again = given_again(stored, {name: value}, call)
    assert getattr(again, name) is value and again.learning_rate == 0.1


def test_what_a_folder_holds_is_not_given_again() -> None:
    stored = from_plain(rx.Method, through_json(rx.deo_star((0.1, 0.2), window=3)))
    assert given_again(stored, vars(rx.deo_star((0.1, 0.2))), call).window == 3
    with pytest.raises(ValueError, match="window is given.*leave out window"):
        given_again(stored, vars(rx.deo_star(window=4)), call)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_without_exchange_nothing_adapts() -> None:
    posterior = rx.sample(
        lambda x: x**2, 0.0, num_steps=150, num_replicas=3, progress=False,
        method=rx.Method("own", learning_rate=(0.01, 0.1), schedule="none"),
    )  # fmt: skip
    assert posterior.options["adapts"] is None
    np.testing.assert_allclose(posterior.learning_rates[0], np.geomspace(0.01, 0.1, 3), rtol=1e-6)
    assert posterior.rung_of.tolist() == [[[0, 1, 2]] * 150]
