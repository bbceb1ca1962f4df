"""Logs of runs: what they hold, and that a resumed run leaves every row once."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stopped_runs import resume, run
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx
from replicax import callbacks

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def table_of(path: Path) -> dict[str, list[float]]:
    head, *rows = [line.split(",") for line in path.read_text().splitlines()]
    return {name: [float(row[i]) for row in rows] for i, name in enumerate(head)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("logged")


@pytest.fixture(scope="module")
def stopped(folder) -> tuple[rx.Posterior, list[rx.callbacks.Progress]]:
    """A run of 60 steps that logged what it did and stopped at 40; what a callback saw."""
    seen: list[rx.callbacks.Progress] = []

    def stop(progress: rx.callbacks.Progress) -> str | None:
        seen.append(progress)
        return "stop: enough" if progress.step == 40 else None

    logged = [rx.callbacks.csv(folder / "new" / "log.csv"), stop]
    return run(run_dir=folder / "run", chunk_steps=20, callback=logged), seen


def test_every_chunk_leaves_a_row_of_what_the_callbacks_saw(folder, stopped):
    posterior, seen = stopped
    assert posterior.result == ("stopped", "Stopped at step 40: enough.")
    assert [progress.step for progress in seen] == [20, 40]
    assert [progress.start for progress in seen] == [0, 20]
    columns = table_of(folder / "new" / "log.csv")
    assert columns["step"] == [20, 40]

    def last(name: str, count: int) -> list[float]:
        return [columns[f"{name}[{index}]"][-1] for index in range(count)]

    np.testing.assert_allclose(last("cold_energy", 2), seen[-1].cold_energy)
    rates = seen[-1].verdict_rate.mean(axis=0)
    np.testing.assert_allclose(last("verdict_rate", len(rates)), rates)
    learning_rates = posterior.learning_rates.mean(axis=0)
    np.testing.assert_allclose(last("learning_rate", len(learning_rates)), learning_rates)
    np.testing.assert_allclose(last("buffer", 2), posterior.buffer)
    rung_of = np.concatenate([progress.rows["steps"]["rung_of"] for progress in seen])
    np.testing.assert_array_equal(np.moveaxis(rung_of, 0, 1), posterior.rung_of)


@pytest.fixture(scope="module")
def resumed(folder, stopped) -> rx.Posterior:
    """The run to its end, with logs that a kill at step 60 left: rows too many, half a line."""
    table = folder / "new" / "log.csv"
    last = table.read_text().splitlines()[-1]
    table.write_text(table.read_text() + last.replace("40", "60", 1) + "\n" + last[:9])
    return resume(folder / "run", chunk_steps=20, callback=(rx.callbacks.csv(table),))


def test_rows_of_steps_that_are_done_again_are_dropped(folder, resumed):
    columns = table_of(folder / "new" / "log.csv")
    assert columns["step"] == [20, 40, 60]
    np.testing.assert_allclose([columns[f"buffer[{i}]"][-1] for i in (0, 1)], resumed.buffer)


def test_a_new_run_begins_the_log_anew_also_with_the_same_callback(tmp_path, stopped):
    log = rx.callbacks.csv(tmp_path / "log.csv")
    seen = [copied(progress) for progress in stopped[1]]
    for progress in (*seen, *seen):
        log(progress)
    assert table_of(tmp_path / "log.csv")["step"] == [20, 40]


def copied(progress: rx.callbacks.Progress) -> rx.callbacks.Progress:
    """With the ladder of an array that the loop has not taken back."""
    ladder = rx.algorithm.Ladder(np.ones((2, 3)), np.ones((2, 3)))
    state = progress.carry.state._replace(ladder=ladder, buffer=np.zeros(2))
    return progress._replace(carry=progress.carry._replace(state=state))


def test_columns_of_another_run_are_not_mixed_in(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,time,steps_per_second,more\n20,1.5,2.0,1.0\n")
    with pytest.raises(ValueError, match="other columns"):
        callbacks._Csv(path).write({"step": 40, "other": 3.0})
    log = callbacks._Csv(path)
    log.go_back(0)  # a new run
    log.write({"step": 40, "other": 3.0})
    assert table_of(path) == {"step": [40.0], "other": [3.0]}


@pytest.mark.parametrize(
    "content",
    [
        "my thesis\n",
        "Step 3",
        "[1, 2]\n",
        "step,loss\n1,0.5\n",
        '{"step": 1, "loss": 0.5}\n',
        "7,8\n",
    ],
)
def test_a_file_that_is_no_log_is_not_overwritten(tmp_path, content):
    path = tmp_path / "file.txt"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"path is .*file.txt, a file that .* did not write"):
        rx.callbacks.csv(path)
    assert path.read_text() == content


@pytest.mark.parametrize("path", [3, None, "", ".", ["a"]])
def test_a_path_that_is_none(path):
    with pytest.raises(ValueError, match="path is .* give the path of a file"):
        rx.callbacks.csv(path)


def test_a_path_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="which is a file"):
        rx.callbacks.csv(tmp_path / "file" / "new" / "log.csv")


def test_networks_leave_a_row_after_every_test(tmp_path, stopped):
    log, progress = callbacks._Csv(tmp_path / "log.csv"), copied(stopped[1][0])
    progress = progress._replace(metadata=replace(progress.metadata, kind="train"))
    log(progress)
    assert log.path.read_text() == ""
    log(progress._replace(evaluation={"nll": np.array([0.5, 0.75]), "weight": np.float32(2)}))
    columns = table_of(log.path)
    assert (columns["nll[0]"], columns["nll[1]"]) == ([0.5], [0.75]) and columns["weight"] == [2]


@pytest.mark.slow
def test_the_log_of_a_training_has_its_epochs(tmp_path):
    path = tmp_path / "log.csv"
    log = rx.callbacks.csv(path)
    trained = rx.train(tiny_problem(), NETWORK.init, **EXCHANGING, callback=[log])
    columns = table_of(path)
    assert columns["step"] == [4, 8, 12, 16]
    np.testing.assert_allclose(columns["accuracy[0]"], trained.epochs["accuracy"][:, 0])
    average = "average_nll_probabilities"
    np.testing.assert_allclose(columns[average], trained.epochs[average], rtol=1e-6)


@pytest.mark.parametrize("callback", [3, [None], [print, 3], "stop", [lambda: None]])
def test_a_callback_that_cannot_be_called_is_refused(callback):
    with pytest.raises(ValueError, match="callback"):
        run(callback=callback)


KILLED = """
import sys, time
sys.path.insert(0, {tests!r})
import replicax as rx
from stopped_runs import run
run(400, run_dir={folder!r}, chunk_steps=10, checkpoint_every=30, callback=[
    rx.callbacks.csv({log!r}), lambda progress: time.sleep(0.05)])
"""


@pytest.mark.slow
def test_a_killed_run_leaves_every_row_once(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log.csv"
    tests = str(Path(__file__).parent)
    program = KILLED.format(tests=tests, folder=str(folder), log=str(log))
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.DEVNULL) as process:
        while not log.exists() or len(log.read_text().splitlines()) < 12:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    assert len(list((folder / "commits").glob("*.json"))) > 0
    resume(folder, chunk_steps=10, callback=rx.callbacks.csv(log))
    steps = table_of(log)["step"]
    assert steps == list(range(10, 401, 10))
