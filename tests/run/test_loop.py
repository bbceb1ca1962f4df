"""Runs that last: checkpoints, resume, interruption, callbacks, records on disk."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from common import assert_same_run, chunks_of, in_method, quietly, slow
from made_up_metadata import metadata_of

import replicax as rx
from replicax.run.chunk import Pace
from replicax.run.storage import folder as run_folder
from replicax.run.storage.arrays import chunk_shape
from replicax.run.storage.folder import FolderRecords, open_records, read_commit

SETTINGS = dict(
    num_replicas=6,
    num_chains=2,
    learning_rate=(0.003, 0.6),
    temperature=1.0,
    kernel="momentum",
    window=7,
    burn_in=5,
    thin=3,
    seed=3,
    buffer=1.0,
    progress=False,
)


def run_modes25(num_steps: int, chunk_steps: int | None = None, **options) -> rx.Posterior:
    chosen = in_method(SETTINGS | options)
    with chunks_of(chunk_steps):
        return rx.sample(
            rx.targets.modes25(), rx.targets.modes25_start, num_steps=num_steps, **chosen
        )


@pytest.fixture(scope="module")
def whole() -> rx.Posterior:
    posterior = run_modes25(406, history_every=50)
    assert posterior.rung_of[:, -1].tolist() != [list(range(6))] * 2, "something must have swapped"
    return posterior


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_resumed_run_equals_an_uninterrupted_one_in_a_new_process(tmp_path, whole):
    """Step 203 is exactly the end of a window, 200 lies inside one; both are tried."""
    folder = tmp_path / "run"
    run_modes25(200, history_every=50, run_dir=folder)
    program = f"""
        import replicax as rx
        rx.resume({str(folder)!r}, rx.targets.modes25(), num_steps=406, progress=False)
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(rx.__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        check=True,
        env=environment,
    )
    assert_same_run(rx.load(folder), whole)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("stop", [slow(8), 203, slow(350)])
def test_where_a_run_is_cut_changes_nothing(tmp_path, whole, stop):
    run_modes25(stop, history_every=50, run_dir=tmp_path / "run", checkpoint_every=60)
    with chunks_of(33):
        resumed = rx.resume(tmp_path / "run", rx.targets.modes25(), num_steps=406)
    assert_same_run(resumed, whole)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_records_beyond_the_checkpoint_are_dropped(tmp_path, whole, monkeypatch):
    """A run killed after its records were written but before the checkpoint was committed."""
    folder = tmp_path / "run"
    write = run_folder.write_commit

    def dies_at_the_third(folder, commit):
        if commit.step > 100:
            raise OSError("the disk went away")
        write(folder, commit)

    monkeypatch.setattr(run_folder, "write_commit", dies_at_the_third)
    with pytest.raises(OSError, match="step 200 could not be saved.*went away.*step 100 is intact"):
        run_modes25(406, history_every=50, run_dir=folder, chunk_steps=100, checkpoint_every=100)
    monkeypatch.undo()
    assert (
        xarray.open_zarr(folder / "records.zarr", group="steps", consolidated=False).sizes["step"]
        == 200
    )
    assert rx.load(folder).result.code == "running" and rx.load(folder).num_steps == 100
    assert_same_run(rx.resume(folder, rx.targets.modes25()), whole)


def test_records_grow_and_are_cut_at_any_row(tmp_path):
    rng = np.random.default_rng(0)
    kept = FolderRecords(tmp_path)
    kept.write_metadata(metadata_of())
    rows = [
        {
            "rung_of": rng.integers(0, 9, (n, 2, 3)).astype(np.int8),
            "empty": np.zeros((n, 2, 0)),
            "zero": np.zeros((n, 1)),
        }
        for n in (4, 1, 7, 3)
    ]
    for step, part in enumerate(rows):
        kept.write(step, {"steps": part}, {"step": np.array(step)}, None, keep=9)
    everything = np.concatenate([part["rung_of"] for part in rows])
    np.testing.assert_array_equal(kept.read("steps", "rung_of"), everything)
    assert kept.read("steps", "empty").shape == (15, 2, 0)
    for step, length in ((2, 12), (1, 5), (0, 4)):
        kept.commit = read_commit(tmp_path, step)
        kept.rewind()
        again = open_records(tmp_path)
        assert again.length("steps") == length and again.final["step"] == step
        np.testing.assert_array_equal(again.read("steps", "rung_of"), everything[:length])
    kept.write(1, {"steps": rows[3]}, {}, None, keep=9)
    expected = np.concatenate([everything[:4], rows[3]["rung_of"]])
    np.testing.assert_array_equal(open_records(tmp_path).read("steps", "rung_of"), expected)


def test_chunks_on_disk_are_never_empty():
    assert chunk_shape((4, 1, 0), 8) == (2**17, 1, 1)  # newer versions of zarr insist
    assert chunk_shape((4, 2, 8), 8) == (2**13, 2, 8)
    assert chunk_shape((2, 2**18), 8) == (1, 2**18), "a row may be large"
    assert chunk_shape((2, 2**20, 2**10), 4) == (1, 2**18, 2**10), "but not too large to compress"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_save_and_load_keep_everything(tmp_path, whole):
    folder = whole.save(tmp_path / "saved")
    assert_same_run(rx.load(folder), whole)
    with pytest.raises(ValueError, match="already holds a run"):
        whole.save(folder)
    with pytest.raises(ValueError, match="without a checkpoint, which cannot be resumed: give the"):
        rx.resume(folder, rx.targets.modes25())


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_memory_does_not_grow_with_steps_when_a_folder_is_given(tmp_path):
    posterior = run_modes25(300, run_dir=tmp_path / "run", checkpoint_every=50, chunk_steps=50)
    assert posterior._records.pending_bytes == 0


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_index_process_is_stored_in_the_smallest_integer(whole):
    assert whole.rung_of.dtype == np.int8
    wide = rx.sample(
        rx.targets.gaussian(), jnp.zeros(1), num_steps=3, num_replicas=130,
        method=rx.deo_star(learning_rate=(0.01, 0.1)), progress=False,
    )  # fmt: skip
    assert wide.rung_of.dtype == np.int16
    np.testing.assert_array_equal(np.sort(wide.rung_of[0, -1]), np.arange(130))


def test_a_callback_sees_progress_and_can_stop_the_run():
    seen = []

    def stop_after_three(progress):
        seen.append(progress)
        return "stop" if len(seen) == 3 else None

    posterior = run_modes25(400, chunk_steps=40, callback=stop_after_three)
    assert [p.step for p in seen] == [40, 80, 120]
    assert posterior.result.code == "stopped" and posterior.num_steps == 120
    assert seen[-1].verdict_rate.shape == (2, 5) and np.all(np.isfinite(seen[-1].cold_energy))
    assert posterior.draws.shape == (2, len(range(5, 120, 3)), 2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_ctrl_c_saves_everything_and_the_run_goes_on_from_there(tmp_path, whole):
    folder = tmp_path / "run"
    program = f"""
        import time
        import replicax as rx, test_loop
        rx_progress = lambda p: (print(p.step, flush=True), time.sleep(0.05)) and None
        posterior = test_loop.run_modes25(
            406, history_every=50, run_dir={str(folder)!r}, chunk_steps=10, callback=rx_progress
        )
        print(posterior.result.code, flush=True)
    """
    paths = [Path(rx.__file__).parents[1], Path(__file__).parent, Path(__file__).parents[1]]
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 30:
            child.send_signal(signal.SIGINT)
            break
    rest = child.stdout.read().split()
    assert child.wait() == 0 and rest[-1] == "interrupted"
    stopped = rx.load(folder)
    assert stopped.result.code == "interrupted" and 30 <= stopped.num_steps < 406
    assert_same_run(rx.resume(folder, rx.targets.modes25()), whole)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_callback_that_fails_loses_nothing(tmp_path, whole):
    def fails(progress):
        if progress.step >= 200:
            raise RuntimeError("my own fault")

    with pytest.raises(RuntimeError, match="my own fault"):
        run_modes25(
            406, history_every=50, run_dir=tmp_path / "run", chunk_steps=100, callback=fails
        )
    assert rx.load(tmp_path / "run").num_steps == 200
    assert_same_run(rx.resume(tmp_path / "run", rx.targets.modes25()), whole)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("bad", [np.nan, slow(np.inf), slow(-np.inf)])
def test_a_non_finite_energy_ends_the_run_with_its_place_and_keeps_the_draws(tmp_path, bad):
    def energy(x):
        return jnp.sum(x**2) / 2 + jnp.where(jnp.abs(x[0]) > 2.5, bad, 0.0)

    method = rx.deo_star((0.01, 0.5), temperature=(1.0, 9.0), buffer=0.1)
    options = dict(num_steps=3000, num_replicas=4, method=method, seed=1, progress=False)
    posterior = rx.sample(
        energy, jnp.zeros(1), run_dir=tmp_path / "r", on_nonfinite="stop", **options
    )
    code, sentence = posterior.result
    assert code == "nonfinite" and 0 < posterior.num_steps < 3000
    assert f"step {posterior.num_steps - 1}" in sentence and "rung" in sentence
    assert posterior.draws.shape[1] == posterior.num_steps == rx.load(tmp_path / "r").num_draws
    ignored = rx.sample(energy, jnp.zeros(1), on_nonfinite="ignore", **options)
    assert ignored.result.code == "finished" and ignored.num_steps == 3000
    restarted = rx.sample(energy, jnp.zeros(1), **options)
    assert restarted.result.code in ("finished", "nonfinite"), "the coldest rung has no neighbour"
    assert restarted.num_steps > posterior.num_steps and restarted.restart_rate[0].max() > 0


def test_an_energy_that_is_not_finite_at_the_start_stops_before_compilation():
    began = time.monotonic()
    with pytest.raises(ValueError, match="energy at the start is nan for replica 0"):
        rx.sample(lambda x: jnp.log(-1 - x**2).sum(), jnp.zeros(2), num_steps=10, num_replicas=3,
                  method=rx.deo_star((0.1, 0.2)))  # fmt: skip
    assert time.monotonic() - began < 30


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_of_other_rungs_come_on_request(tmp_path):
    posterior = run_modes25(60, draw_rungs=(0, 3), run_dir=tmp_path / "r")
    assert posterior.draws_at(3).shape == posterior.draws.shape
    everything = run_modes25(60, draw_rungs="all")
    np.testing.assert_array_equal(everything.draws, posterior.draws)
    np.testing.assert_array_equal(everything.draws_at(3), posterior.draws_at(3))
    np.testing.assert_array_equal(everything.energies_at(3), posterior.energies_at(3))
    with pytest.raises(ValueError, match="not kept"):
        posterior.draws_at(2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_best_point_seen_is_kept_for_optimisation():
    rugged = rx.targets.modes25(noise_std=0.0)
    posterior = rx.sample(
        rugged, jnp.array([2.0, 2.0]), num_steps=2000, num_replicas=8, progress=False,
        method=rx.deo_star((0.003, 0.6), schedule="exactly_one", temperature=(0.1, 10.0)),
    )  # fmt: skip
    point, energy = posterior.best
    assert energy == pytest.approx(float(rugged.energy(point, None, jnp.zeros(2))), abs=1e-5)
    assert energy <= posterior.energies.min()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_summary_is_json_and_arviz_gets_the_draws(whole):
    summary = json.loads(json.dumps(whole.summary()))
    assert summary["window"] == 7 and len(summary["verdict_rate"][0]) == 5
    assert set(summary["parameters"]) == {"params[0]", "params[1]"}
    data = whole.to_arviz()
    np.testing.assert_array_equal(np.asarray(data["posterior"]["params"]), whole.draws)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_window_that_burn_in_cuts_is_not_counted():
    posterior = run_modes25(31, window=20, burn_in=5, thin=1, buffer=-1e9, adapt=False)
    assert posterior.window_swap_rate.max() <= 1
    np.testing.assert_allclose(posterior.verdict_rate, 1.0)  # such a buffer always says yes


def test_a_scalar_start_is_traced_once():
    traced = []

    def energy(x):
        traced.append(None)
        return x**2 / 2

    options = dict(num_steps=40, num_replicas=2, learning_rate=0.1, temperature=(1.0, 2.0),
                   rule="metropolis", window=1)  # fmt: skip
    quietly(energy, 0.0, chunk_steps=40, **options)
    once = len(traced)
    quietly(energy, 0.0, chunk_steps=10, **options)
    assert len(traced) == 2 * once


@pytest.mark.parametrize(
    ("per_step", "fixed", "least", "most"),
    [
        (1e-3, 0.0, 400, 600),  # half a second
        (1e-5, 0.6, 60_000, 65_536),  # what a chunk costs anyway must not be paid for few steps
        (1e-3, 0.2, 600, 1000),
        (2.0, 0.0, 1, 1),  # slow steps are looked at one by one
        (2.0, 1.0, 1, 4),
    ],
)
def test_chunks_take_half_a_second_and_outweigh_their_fixed_cost(
    per_step, fixed, least, most
) -> None:
    noise = np.random.default_rng(0)
    pace, lengths = Pace(64, 65_536).after(64, 5.0), []
    for _ in range(30):
        lengths.append(pace.length)
        seconds = (fixed + per_step * pace.length) * noise.uniform(0.95, 1.05)
        pace = pace.after(pace.length, seconds)
    assert least <= np.median(lengths[12:]) <= most
    assert lengths[0] == 64
