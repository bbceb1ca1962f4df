"""Every bad input gets a sentence with the remedy, before anything is compiled."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from common import ROWS, in_method, quietly

import replicax as rx
from replicax.algorithm import kernels, schedule, swap
from replicax.run import chunk as run
from replicax.run.initial import initial_points


def bowl(x: jax.Array) -> jax.Array:
    return jnp.sum(x**2)


TEMPERED: dict[str, Any] = {"rule": "metropolis", "temperature": (1.0, 2.0)}
WITH_BATCHES = lambda x, rows: jnp.sum((x - jnp.mean(rows)) ** 2)  # noqa: E731
BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "one replica": ({"num_replicas": 1}, 'at least 2.*schedule="none"'),
    "no replica": ({"num_replicas": 0}, "at least 1"),
    "half a replica": ({"num_replicas": 2.5}, "whole number"),
    "replicas not a number": ({"num_replicas": float("nan")}, "whole number"),
    "no replica, no exchange": ({"num_replicas": 0, "schedule": "none"}, "num_replicas is 0"),
    "rates in words": ({"learning_rate": "fast"}, "a pair .cold, hot."),
    "temperature in words": ({"temperature": "hot"}, "a pair .cold, hot."),
    "swap rate in words": ({"target_swap_rate": "0.4"}, "such as 0.4"),
    "steps not given": ({"num_steps": None}, 'only the method "posterior" knows when it is done'),
    "one rung drawn": ({"draw_rungs": 0}, "give a list such as"),
    "seed in words": ({"seed": "a"}, "seed is 'a'; it must be a whole number"),
    "gain not a number": ({"gain": float("nan")}, "give a number, a function"),
    "no steps between points": ({"history_every": 0}, "at least 1"),
    "callback no function": ({"callback": 3}, "give a function"),
    "replicas not given": ({"num_replicas": None}, "write num_replicas="),
    "rates decrease": ({"learning_rate": (0.1, 0.01)}, "must not decrease.*coldest"),
    "rates up and down": ({"learning_rate": (0.1, 0.3, 0.2)}, "must not decrease"),
    "rate zero": ({"learning_rate": 0.0}, "must be positive"),
    "rate negative": ({"learning_rate": (-0.1, 0.1)}, "must be positive"),
    "rate not finite": ({"learning_rate": (0.1, np.nan)}, "must be positive"),
    "rates equal": ({"learning_rate": (0.1, 0.1)}, "strictly increasing.*adapt=False"),
    "rates too many": ({"learning_rate": (0.1, 0.2, 0.3, 0.4)}, r"3 replicas give one number"),
    "temperatures too many": ({"temperature": (1, 2, 3, 4)}, r"3 replicas give one number"),
    "temperature negative": ({"temperature": -1.0}, "at least 0"),
    "rule without temperatures": ({"rule": "metropolis"}, r"strictly increasing.*\(cold, hot\)"),
    "rule with falling temperatures": (
        {"rule": "bias_corrected", "temperature": (2.0, 1.0)},
        "strictly increasing",
    ),
    "rule with equal temperatures": (
        {"rule": "metropolis", "temperature": (1.0, 2.0, 2.0)},
        "strictly increasing",
    ),
    "window_corrected by name": ({"rule": "window_corrected"}, "rx.swap.window_corrected"),
    "noise by the wrong pairs": (
        {**TEMPERED, "rule": swap.bias_corrected((0.1, 0.2, 0.3))},
        "2 adjacent pairs.*give one number",
    ),
    "swap rate 0": ({"target_swap_rate": 0}, r"in \(0, 1\), such as 0.4"),
    "swap rate 1": ({"target_swap_rate": 1.0}, r"in \(0, 1\), such as 0.4"),
    "swap rate nan": ({"target_swap_rate": np.nan}, r"in \(0, 1\), such as 0.4"),
    "window 0": ({"window": 0}, "whole number of at least 1"),
    "window 2.5": ({"window": 2.5}, "whole number of at least 1"),
    "window of deo": ({"schedule": "deo", "window": 2}, 'schedule="deo_star"'),
    "window said twice": ({"schedule": schedule.windowed_deo(3), "window": 2}, "say it once"),
    "alternate": (
        {"schedule": schedule.windowed_deo(3, alternate=False)},
        "leave alternate=True",
    ),
    "schedule misspelt": ({"schedule": "deo_stra"}, "Did you mean 'deo_star'"),
    "rule misspelt": ({"rule": "metropolos"}, "Did you mean 'metropolis'"),
    "kernel misspelt": ({"kernel": "momentun"}, "Did you mean 'momentum'"),
    "energy_at misspelt": ({"energy_at": "befor"}, "Did you mean 'before'"),
    "on_nonfinite misspelt": ({"on_nonfinite": "stopp"}, "Did you mean 'stop'"),
    "buffer misspelt": ({"buffer": "aut"}, "Did you mean 'auto'"),
    "buffer_gain misspelt": ({"buffer_gain": "aut"}, "Did you mean 'auto'"),
    "buffer nan": ({"buffer": np.nan}, 'finite number or "auto"'),
    "gain negative": ({"gain": -1.0}, r"rx.Gain\(...\)"),
    "adapt negative": ({"adapt": -1}, "at least 0"),
    "before with metropolis": ({**TEMPERED, "energy_at": "before"}, 'energy_at="moved"'),
    "weight decay with metropolis": (
        {**TEMPERED, "kernel": kernels.sgld(weight_decay=0.1)},
        "into the energy",
    ),
    "no steps": ({"num_steps": 0}, "whole number of at least 1"),
    "no chains": ({"num_chains": 0}, "at least 1"),
    "thin 0": ({"thin": 0}, "at least 1"),
    "burn_in negative": ({"burn_in": -1}, "at least 0"),
    "checkpoint_every 0": ({"checkpoint_every": 0}, "number of steps, or a time"),
    "checkpoint_every 3 days": ({"checkpoint_every": "3d"}, "number of steps, or a time"),
    "draws without the target": ({"draw_rungs": (1,)}, "start with 0"),
    "draws of no rung": ({"draw_rungs": (0, 3)}, "rungs 0 to 2"),
    "batch_size alone": ({"batch_size": 3}, "give the arrays as batches"),
    "batches of no kind": ({"batches": 3}, "or a function of the step"),
    "start of the wrong length": ({"start": rx.per_replica(jnp.zeros((4, 2)))}, r"\(3, ...\)"),
    "starts of the wrong chains": (
        {"start": rx.per_replica(jnp.zeros((2, 4, 2))), "num_chains": 2},
        r"\(3, ...\) or \(2, 3, ...\)",
    ),
    "starts of either axes": (
        {"start": rx.per_replica(jnp.zeros((3, 3, 2))), "num_chains": 3},
        r"begin with \(3, 3\).*by_chain=True\) if the first axis is the chain.*by_chain=False if",
    ),
    "starts by chain without chains": (
        {"start": rx.per_replica(jnp.zeros((3, 2)), by_chain=True), "num_chains": 2},
        r"must begin with \(2, 3, ...\)\.",
    ),
    "starts by replica with chains": (
        {"start": rx.per_replica(jnp.zeros((2, 3, 2)), by_chain=False), "num_chains": 2},
        r"must begin with \(3, ...\)\.",
    ),
    "start of integers": ({"start": jnp.zeros(2, int)}, "write 0.0 instead of 0"),
    "no start": ({"start": {}}, "give the point where sampling starts"),
    "keys of two kinds": ({"start": {0: 0.0, "a": 1.0}}, "keys that cannot be sorted"),
    "start not finite": ({"start": jnp.array([0.0, np.nan])}, "start where the posterior has"),
}
BAD_TARGETS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "vector": (lambda x: x**2, {}, r"shape \(2,\).*sum \(or average\)"),
    "shape (1,)": (lambda x: jnp.sum(x)[None], {}, "must return a scalar"),
    "complex": (lambda x: jnp.sum(x) * 1j, {}, "real floating-point"),
    "integer": (lambda x: jnp.array(3), {}, "real floating-point"),
    "tuple": (lambda x: (jnp.sum(x), 1.0), {}, "one scalar"),
    "nothing": (lambda x: None, {}, "one scalar"),
    "no function": (3, {}, r"energy\(params, batch, key\)"),
    "four arguments": (lambda a, b, c, d: jnp.sum(a), {}, r"\(params, batch, key\)"),
    "inf": (lambda x: jnp.sum(x) + jnp.inf, {}, "start where the posterior has mass"),
    "-inf": (lambda x: jnp.sum(x) - jnp.inf, {}, "start where the posterior has mass"),
    "a gradient apart, before": (
        rx.Target(bowl, lambda x: 2 * x),
        {"energy_at": "before"},
        'energy_at="moved"',
    ),
    "arrays without a size": (WITH_BATCHES, {"batches": ROWS}, "batch_size=..."),
    "a batch too large": (
        WITH_BATCHES,
        {"batches": ROWS, "batch_size": 41},
        "whole number from 1 to 40",
    ),
    "rows that differ": (
        lambda x, rows: bowl(x),
        {"batches": (ROWS, ROWS[:9]), "batch_size": 3},
        r"differ in their number of rows",
    ),
    "noise of a function": (
        WITH_BATCHES,
        {
            "batches": lambda step: ROWS[:3],
            "rule": "bias_corrected",
            "temperature": (1.0, 2.0),
        },
        "judges swaps on other mini-batches.*pass arrays with batch_size",
    ),
    "metropolis on mini-batches": (
        WITH_BATCHES,
        {"batches": ROWS, "batch_size": 3, **TEMPERED},
        'write rule="bias_corrected", or batch_size=all rows',
    ),
    "an iterator": (WITH_BATCHES, {"batches": iter([])}, "belongs to rx.bayesian or rx.superv"),
}


@pytest.fixture
def no_loop(monkeypatch) -> None:
    """Bad input must be found before the loop is compiled."""

    def compiled(*args: Any) -> None:
        raise AssertionError("the loop was about to be compiled")

    monkeypatch.setattr(run, "build_chunk", compiled)


def three_replicas(target: Any, **options: Any) -> None:
    options = {"start": jnp.zeros(2), "learning_rate": (0.01, 0.1), **options}
    options = {"num_steps": 10, "num_replicas": 3, "progress": False, **options}
    rx.sample(target, options.pop("start"), **in_method(options))


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_gets_a_sentence_with_the_remedy(name: str, no_loop: None) -> None:
    options, remedy = BAD_OPTIONS[name]
    with pytest.raises(ValueError, match=remedy):
        three_replicas(bowl, **options)


@pytest.mark.parametrize("name", BAD_TARGETS)
def test_a_bad_target_gets_a_sentence_with_the_remedy(name: str, no_loop: None) -> None:
    target, options, remedy = BAD_TARGETS[name]
    with pytest.raises(ValueError, match=remedy):
        three_replicas(target, **options)


def test_the_table_of_bad_input_starts_from_good_input(no_loop: None) -> None:
    with pytest.raises(AssertionError, match="about to be compiled"):
        three_replicas(bowl)


def test_a_run_folder_that_is_none_gets_a_sentence(tmp_path, no_loop: None, monkeypatch) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="below a file; run_dir must be a folder"):
        three_replicas(bowl, run_dir=file)

    def mkdir(*_, **__) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", mkdir)
        with pytest.raises(ValueError, match="new cannot be made .Read-only file system.: choose"):
            three_replicas(bowl, run_dir=tmp_path / "new")
    for path in (tmp_path, file, tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="is not a run folder: there is no run.json"):
            rx.load(path)
        with pytest.raises(ValueError, match="is not a run folder: there is no run.json"):
            rx.resume(path, bowl)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ValueError, match="already holds a run; write rx.resume"):
        three_replicas(bowl, run_dir=tmp_path)


STARTS = np.arange(18.0, dtype=np.float32)


@pytest.mark.parametrize(
    ("shape", "num_chains", "by_chain", "has_chains"),
    [
        ((3, 2), 3, None, False),
        ((3, 3), 3, True, True),
        ((3, 3), 3, False, False),
        ((3, 3, 2), 3, True, True),
        ((3, 3, 2), 3, False, False),
        ((2, 3, 3), 2, None, True),
        ((1, 3, 2), 1, None, True),
        ((3, 3), 1, None, False),
    ],
)
def test_starts_differ_by_replica_or_by_chain_and_replica(
    shape: tuple[int, ...], num_chains: int, by_chain: bool | None, has_chains: bool
) -> None:
    tree = STARTS[: np.prod(shape)].reshape(shape)
    starts = rx.per_replica({"x": tree}, by_chain=by_chain)
    points = initial_points(starts, jax.random.key(0), num_chains, num_replicas=3)["x"]
    expected = tree if has_chains else np.broadcast_to(tree, (num_chains, *shape))
    np.testing.assert_array_equal(points, expected)


def cliff(x: jax.Array, steps: jax.Array) -> jax.Array:
    """Flat, and not a number from step 20 on."""
    return jnp.where(steps >= 20, jnp.nan, 0.0) + 0.0 * jnp.sum(x)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("on_nonfinite", ["stop", "ignore"])
def test_a_non_finite_energy_later_stops_the_run_or_is_ignored(on_nonfinite: str) -> None:
    options: dict[str, Any] = {
        **TEMPERED,
        "window": 2,
        "batches": lambda step: np.float32(step),
        "on_nonfinite": on_nonfinite,
    }
    posterior = quietly(cliff, 0.0, **options)
    assert (np.diff(posterior.rung_of[0, :20].astype(int), axis=0) != 0).any()
    assert np.isfinite(posterior.energies[0, :20]).all()
    if on_nonfinite == "stop":
        assert posterior.result.code == "nonfinite"
        for word in ("replica", "rung 0", "chain 0", "nan", "step 20"):
            assert word in posterior.result.sentence
        assert posterior.num_steps == 21 and posterior.draws.shape == (1, 21)
    else:
        assert posterior.result.code == "finished" and posterior.num_steps == 60
        frozen = posterior.rung_of[0, 19:]
        np.testing.assert_array_equal(frozen, np.broadcast_to(frozen[0], frozen.shape))
        assert np.isfinite(posterior.draws).all()
