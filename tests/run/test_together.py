"""Runs side by side: each is the run that it would be alone."""

import functools
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import replicax as rx

pytestmark = pytest.mark.filterwarnings("ignore::replicax.errors.RunProblem")

TARGET = rx.targets.modes25()
OPTIONS = {"num_steps": 120, "num_replicas": 3, "learning_rate": (0.003, 0.6), "window": 2,
           "history_every": 40, "progress": False}  # fmt: skip


def call(seed: int = 0, **options: Any) -> Callable[[], Any]:
    start = rx.targets.modes25_start
    return functools.partial(rx.sample, TARGET, start, **{**OPTIONS, "seed": seed, **options})


def assert_same(one: Any, other: Any) -> None:
    np.testing.assert_array_equal(one.rung_of, other.rung_of)
    np.testing.assert_array_equal(one.round_trips, other.round_trips)
    np.testing.assert_allclose(one.draws, other.draws, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(one.energies, other.energies, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(one.learning_rates, other.learning_rates, rtol=1e-5)


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    once = {"programs": rx.Programs()}
    hotter = call(2, learning_rate=(0.004, 0.8), **once)
    return {"first": call(0, **once)(), "second": call(1, **once)(), "hotter": hotter()}


def test_runs_side_by_side_are_those_that_run_alone(alone: dict[str, Any]) -> None:
    calls = [call(1), call(2, learning_rate=(0.004, 0.8)), call(0)]
    second, hotter, first = rx.together(calls)
    assert_same(first, alone["first"])
    assert_same(second, alone["second"])
    assert_same(hotter, alone["hotter"])
    assert not np.allclose(first.draws, second.draws)


@pytest.mark.slow
def test_runs_of_other_lengths_and_chains_stay_themselves(alone: dict[str, Any]) -> None:
    short, whole = rx.together([call(0, num_steps=50), call(1)])
    assert short.num_steps == 50 and short.result.code == "finished"
    np.testing.assert_array_equal(short.rung_of, alone["first"].rung_of[:, :50])
    assert_same(whole, alone["second"])
    pair = rx.together([call(0, num_chains=2), call(1, num_chains=2)])
    assert_same(pair[1], call(1, num_chains=2)())


def test_folders_that_stopped_at_different_steps_go_on_together(
    tmp_path: Path, alone: dict[str, Any]
) -> None:
    def stop_at(step: int) -> Callable[[Any], str | None]:
        return lambda progress: "stop" if progress.step >= step else None

    for seed, step in ((0, 30), (1, 70)):
        call(seed, run_dir=tmp_path / f"{seed}", callback=stop_at(step), chunk_steps=10)()
    resumed = rx.together(
        [functools.partial(rx.resume, tmp_path / f"{seed}", TARGET, progress=False)
         for seed in (0, 1)]
    )  # fmt: skip
    assert [run.num_steps for run in resumed] == [120, 120]
    assert_same(resumed[0], alone["first"])
    assert_same(resumed[1], alone["second"])
    assert_same(rx.load(tmp_path / "1"), alone["second"])


@pytest.mark.slow
def test_one_run_stops_or_breaks_and_the_others_go_on(alone: dict[str, Any]) -> None:
    def stop(progress: Any) -> str | None:
        return "stop" if progress.step >= 40 else None

    stopped, whole = rx.together([call(0, callback=stop, chunk_steps=20), call(1, chunk_steps=20)])
    assert (stopped.result.code, stopped.num_steps) == ("stopped", 40)
    assert_same(whole, alone["second"])

    def energy(point: Any) -> Any:
        return jnp.sum(jnp.where(jnp.abs(point) > 1e3, jnp.nan, point**2))

    run = functools.partial(rx.sample, energy, jnp.ones(2), num_replicas=2, num_steps=60,
                            on_nonfinite="stop", progress=False)  # fmt: skip
    with pytest.warns(match="became"):
        broken, healthy = rx.together(
            [functools.partial(run, learning_rate=(1e-3, 5.0)),
             functools.partial(run, learning_rate=(1e-3, 1e-2))]
        )  # fmt: skip
    assert (broken.result.code, healthy.result.code) == ("nonfinite", "finished")


def test_a_signal_interrupts_all_runs(tmp_path: Path) -> None:
    def interrupt(progress: Any) -> None:
        if progress.step == 40:
            signal.raise_signal(signal.SIGINT)
            time.sleep(1.0)  # until the main thread has looked

    runs = rx.together(
        [call(0, run_dir=tmp_path / "0", callback=interrupt, chunk_steps=20),
         call(1, run_dir=tmp_path / "1", chunk_steps=20)]
    )  # fmt: skip
    assert [run.result.code for run in runs] == ["interrupted"] * 2
    assert all(40 <= run.num_steps <= 60 for run in runs)


def test_an_error_before_the_first_step_ends_all() -> None:
    began: list[int] = []
    with pytest.raises(ValueError, match="num_replicas is -1"):
        rx.together([call(0, callback=lambda p: began.append(p.step)), call(1, num_replicas=-1)])
    assert began == []


def test_an_error_later_lets_the_others_finish(tmp_path: Path, alone: dict[str, Any]) -> None:
    def fail(progress: Any) -> None:
        raise RuntimeError("mine")

    calls = [
        call(0, callback=fail, chunk_steps=20),
        call(1, run_dir=tmp_path / "1", chunk_steps=20),
    ]
    with pytest.raises(RuntimeError, match="mine"):
        rx.together(calls)
    assert_same(rx.load(tmp_path / "1"), alone["second"])


def test_runs_that_cannot_share_their_steps_are_refused() -> None:
    rows = np.arange(8.0)

    def row_energy(point: Any, batch: Any) -> Any:
        return jnp.sum((point - batch) ** 2)

    def with_batches(batches: Any, **options: Any) -> Callable[[], Any]:
        return functools.partial(rx.sample, row_energy, jnp.zeros(()), num_steps=4, num_replicas=2,
                                 learning_rate=(0.01, 0.02), batches=batches, progress=False,
                                 **options)  # fmt: skip

    for calls, told in (
        ([call(0), call(1, window=5)], "differ in more, such as"),
        ([call(0), call(1, num_replicas=4)], "differ in more, such as"),
        ([call(0), call(1, num_chains=2)], "differ in more, such as"),
        ([call(0), functools.partial(call(1).func, rx.targets.modes25(), *call(1).args[1:],
                                     **call(1).keywords)], "share their target and data"),
        ([with_batches(rows, batch_size=2), with_batches(rows + 1, batch_size=2)],
         "share their target and data"),
        ([with_batches(lambda step: rows[step % 8])] * 2, "need their data in memory"),
        ([call(0), 3], "calls has 3; give functions without arguments"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            rx.together(calls)
    assert rx.together([]) == []
