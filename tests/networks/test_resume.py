"""Trainings that are made longer, killed or resumed with something else."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from common import assert_same_run
from tiny_networks import EXCHANGING, NETWORK, tiny_problem

import replicax as rx
from replicax.networks.methods import METHODS
from replicax.networks.options import TrainOptions
from replicax.networks.train import networks_of, resume_training, train

PROBLEM = tiny_problem()
STEPS_PER_EPOCH = 4

# A short and a long run of each method: what happens in the long run happens after the short one.
ALONE: dict[str, Any] = {"num_replicas": 2, "progress": False}
IN_CYCLES: dict[str, Any] = {"num_replicas": 5, "cycle_epochs": 13, "progress": False}
LENGTHS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "deo-star": (1, 2, EXCHANGING),
    "deo": (1, 2, EXCHANGING | {"window": None}),
    "ensemble": (11, 20, ALONE),
    "sgld": (11, 20, ALONE),
    "cyc-sghmc": (5, 6, IN_CYCLES),  # 25 and 30 epochs of one network
    "cyc-swag": (5, 6, IN_CYCLES),  # the short one ends while it collects its second cycle
}


def options_of(method: str, epochs: int) -> dict[str, Any]:
    return LENGTHS[method][2] | {"method": method, "epochs": epochs, "average_starts": True}


@pytest.mark.slow
@pytest.mark.parametrize("method", LENGTHS)
def test_a_run_that_is_made_longer_is_a_long_run(method: str, tmp_path: Path) -> None:
    short, long, _ = LENGTHS[method]
    straight = train(PROBLEM, NETWORK.init, **options_of(method, long), keep_networks=True)
    folder = tmp_path / "run"
    options = options_of(method, short)
    begun = train(PROBLEM, NETWORK.init, **options, keep_networks=True, run_dir=folder)
    longer = resume_training(folder, PROBLEM, epochs=long, progress=False)
    assert_same_run(longer, straight)
    assert longer.result.code == "finished"
    assert 0 < float(begun.average.weight) < float(longer.average.weight)
    with pytest.raises(ValueError, match=f"epochs is {short}, but the run was made for {long}"):
        resume_training(folder, PROBLEM, epochs=short)


def test_every_method_is_made_longer_or_refused() -> None:
    assert set(METHODS) - set(LENGTHS) == {"pretrain", "sghmc-pt"}  # which test_choices.py has


@pytest.mark.parametrize(
    ("method", "options", "epochs", "sentence"),
    [
        ("pretrain", {}, (20, 30), "learning rate.*stepwise.*depends on its length"),
        ("ensemble", {}, (2, 20), "every 10 epochs.*such as this one of 2.*at least 10 epochs"),
        ("sgld", {}, (9, 10), "every 10 epochs"),
        ("cyc-sghmc", {}, (9, 11), "18 epochs.*a cycle of 100.*train with cycle_epochs=18"),
        ("cyc-swag", {"cycle_epochs": 30}, (14, 16), "28 epochs.*a cycle of 30"),
    ],
)
def test_a_run_whose_beginning_follows_its_length_is_not_made_longer(
    method: str, options: dict[str, int], epochs: tuple[int, int], sentence: str
) -> None:
    longer = TrainOptions(epochs=epochs[1], method=method, num_replicas=2, **options)
    with pytest.raises(ValueError, match=sentence):
        longer.check_extends(epochs[0])
    longer.check_extends(epochs[1])


@pytest.mark.parametrize(
    ("method", "options", "epochs"),
    [
        ("deo-star", {}, (1, 200)),
        ("ensemble", {}, (10, 200)),
        ("cyc-swag", {"cycle_epochs": 20}, (10, 11)),
    ],
)
def test_other_runs_are_made_longer(
    method: str, options: dict[str, int], epochs: tuple[int, int]
) -> None:
    TrainOptions(epochs=epochs[1], method=method, num_replicas=2, **options).check_extends(
        epochs[0]
    )


# Every pair agrees in every step, so that replicas go up and down the ladder steadily.
SWAPPING = EXCHANGING | {"method": "deo", "window": None, "buffer": -50.0, "buffer_gain": 0.0}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[rx.Trained, Path]:
    """A run, and its folder as a kill leaves it: rows of the last epoch without a checkpoint."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    options = SWAPPING | {"keep_networks": True, "checkpoint_every": STEPS_PER_EPOCH}
    straight = train(PROBLEM, NETWORK.init, **options, run_dir=folder)
    checkpoints = sorted((folder / "checkpoints").iterdir(), key=lambda path: int(path.name))
    assert [int(path.name) for path in checkpoints] == [12, 16]
    copy = folder.parent / "killed"
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "checkpoints" / "16")
    rung_of: Any = zarr.open_array(copy / "records.zarr", path="steps/rung_of", mode="r+")
    rung_of[12:] = 0  # what was written after the checkpoint must not be read again
    return straight, copy


def test_rows_after_the_checkpoint_are_dropped(killed: tuple[rx.Trained, Path]) -> None:
    straight, folder = killed
    assert straight.round_trips.sum() > 4
    with pytest.raises(ValueError, match="rows are not those that were written"):
        _ = rx.load(folder).rung_of
    resumed = resume_training(folder, PROBLEM, progress=False)
    assert_same_run(resumed, straight)
    assert resumed.num_epochs == len(resumed.epochs["nll"]) == 4
    assert_same_run(rx.load(folder), straight)


@pytest.mark.slow
def test_a_killed_extension_is_not_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(PROBLEM, NETWORK.init, **options_of("deo", 1), run_dir=folder)
    assert rx.load(folder).result.code == "finished"

    def break_down(progress: rx.Progress) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        resume_training(folder, PROBLEM, epochs=2, callback=break_down, progress=False)
    assert rx.load(folder).result.code == "running"
    assert rx.resume(folder, PROBLEM, progress=False).result.code == "finished"


def test_a_training_is_resumed_with_its_batch_size_and_kernel(
    killed: tuple[rx.Trained, Path],
) -> None:
    (_, folder), other = killed, tiny_problem(batch_size=16)
    with pytest.raises(ValueError, match="32 rows, 8 a batch; .*32 rows, 16 a batch"):
        resume_training(folder, other)
    for given in ({"batch_size": 8}, {"num_steps": 4}, {"note": {}}):
        with pytest.raises(ValueError, match="was made by rx.train.*where they were your own"):
            rx.resume(folder, PROBLEM, **given)
    with pytest.raises(ValueError, match="kernel is given, but the run .* leave out kernel"):
        rx.resume(folder, PROBLEM, kernel="momentum")
    params, _ = networks_of(folder, other)  # another run may start from its networks
    assert np.shape(params["first"]["bias"])[0] == 3
