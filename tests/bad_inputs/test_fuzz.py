"""Arbitrary values as options, and arbitrary bytes as data: good, or refused with a sentence."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_networks import tiny_problem

import replicax as rx
from bad_inputs import bowl
from replicax.run.options import Sampling, Training
from replicax.run.resolve import resolve
from replicax.run.storage.metadata import from_plain, given_again, to_plain
from replicax.run.task import as_task

PROBLEM = tiny_problem()
few = settings(max_examples=100)
NUMBERS = st.one_of(
    st.integers(-5, 50), st.integers(), st.floats(), st.floats(1e-3, 1), st.booleans()
)
WORDS = st.sampled_from(
    ["auto", "full", "all", "none", "deo", "DEO*", "metropolis", "momentum", "hmc", "custom", ""]
)
PLAIN = st.recursive(
    st.one_of(st.none(), NUMBERS, WORDS, st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def some_of(kind: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Values for a few of the options of a dataclass."""
    return st.dictionaries(st.sampled_from([*kind.__dataclass_fields__]), PLAIN, max_size=3)


def accepted(call: Any) -> Any:
    """What the call returns, or None where it refuses with a sentence."""
    try:
        return call()
    except (ValueError, TypeError) as error:
        message = str(error)
        assert message[-1:] in ".?)" and " " in message and "\n" not in message, message
        assert len(message) < 500, message
        return None


def resolved(task: Any, good: Any, options: dict[str, Any], parts: dict[str, Any]) -> Any:
    """The program of a run with some arbitrary options and parts of a method, or None."""
    run = accepted(lambda: type(good)(**vars(good) | options))
    method = accepted(lambda: rx.deo_star(**{"learning_rate": (0.01, 0.1)} | parts))
    if run is None or method is None or (run.num_replicas or 1) > 100:
        return None
    return accepted(lambda: resolve(task, run, method))


GOOD_RUNS = {Sampling: Sampling(num_steps=40, num_replicas=3), Training: Training(epochs=4)}


@few
@given(some_of(Sampling), some_of(rx.Method))
@example({}, {"target_swap_rate": 1e-300})
@example({}, {"window": 10**400})
def test_options_are_good_or_refused(options: dict[str, Any], parts: dict[str, Any]) -> None:
    resolved(as_task(bowl), GOOD_RUNS[Sampling], options, parts)


@few
@given(some_of(Training), some_of(rx.Method))
def test_options_of_networks_are_good_or_refused(
    options: dict[str, Any], parts: dict[str, Any]
) -> None:
    resolved(PROBLEM, GOOD_RUNS[Training], options, parts)


def again(kind: Any, data: Any) -> Any:
    """The options that a folder holds, as resuming reads them."""
    return given_again(from_plain(kind, data), {}, lambda name: f"method=rx.deo_star({name}=...)")


@few
@pytest.mark.parametrize("kind", [Sampling, Training, rx.Method])
@given(data=st.data())
def test_options_of_a_damaged_folder_are_good_or_refused(kind: Any, data: st.DataObject) -> None:
    good = GOOD_RUNS.get(kind) or rx.deo_star((0.01, 0.1))
    stored = json.loads(json.dumps(to_plain(good)))
    damaged = {**stored, **data.draw(some_of(kind))}
    for name in data.draw(st.lists(st.sampled_from([*stored]), max_size=1)):
        del damaged[name]
    read = accepted(lambda: again(kind, damaged))
    if json.dumps(damaged) == json.dumps(stored):
        assert json.loads(json.dumps(to_plain(read))) == stored


@few
@given(PLAIN)
def test_anything_in_the_place_of_stored_options(data: Any) -> None:
    for kind in (Sampling, Training, rx.Method):
        assert accepted(lambda kind=kind: again(kind, data)) is None


def spec_of(depth: int) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": "sgld"}
    for _ in range(depth):
        spec = {"name": "stepwise", "falls": [3], "factor": 0.5, "kernel": spec}
    return spec


def test_a_kernel_in_ten_thousand_others_is_refused() -> None:
    stored = to_plain(rx.deo_star(0.1))
    assert accepted(lambda: again(rx.Method, {**stored, "kernel": {"kernel": spec_of(2)}}))
    deep = {**stored, "kernel": {"kernel": spec_of(10_000)}}
    assert accepted(lambda: again(rx.Method, deep)) is None
