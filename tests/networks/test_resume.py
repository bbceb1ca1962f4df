"""Trainings that are made longer, killed or resumed with something else."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from common import OF_NETWORKS, assert_same_run
from tiny_networks import EXCHANGING, LADDER, NETWORK, networks_that_start_from, tiny_problem

import replicax as rx
from replicax.networks.train import train
from replicax.run.methods import METHODS, Method
from replicax.run.options import Training
from replicax.run.parts import check_extends

PROBLEM = tiny_problem()
STEPS_PER_EPOCH = 4

# A short and a long run of each method: what happens in the long run happens after the short one.
ALONE: dict[str, Any] = {"num_replicas": 2, "progress": False}
OF_DEO = LADDER | {"window": None}
IN_CYCLES: dict[str, Any] = ALONE | {"num_replicas": 5}
LENGTHS: dict[str, tuple[int, int, Method, dict[str, Any]]] = {
    "deo-star": (1, 2, rx.deo_star(**LADDER), EXCHANGING),
    "deo": (1, 2, rx.deo(**OF_DEO), EXCHANGING),
    "ensemble": (11, 20, rx.ensemble(pretrain=0.0), ALONE),
    "sgld": (11, 20, rx.sgld(pretrain=0.0), ALONE | {"burn_in": 2}),
    # 25 and 30 epochs of one network
    "cyc-sghmc": (5, 6, rx.cyc_sghmc(cycle_epochs=13, pretrain=0.0), IN_CYCLES),
    # the short one ends while it collects its second cycle
    "cyc-swag": (5, 6, rx.cyc_swag(cycle_epochs=13, pretrain=0.0), IN_CYCLES),
}


def options_of(name: str, epochs: int) -> dict[str, Any]:
    *_, method, options = LENGTHS[name]
    return options | {"method": method, "epochs": epochs}


@pytest.mark.slow
@pytest.mark.parametrize("method", LENGTHS)
def test_a_run_that_is_made_longer_is_a_long_run(method: str, tmp_path: Path) -> None:
    short, long, *_ = LENGTHS[method]
    straight = train(PROBLEM, NETWORK.init, **options_of(method, long), keep_networks=True)
    folder = tmp_path / "run"
    options = options_of(method, short)
    begun = train(PROBLEM, NETWORK.init, **options, keep_networks=True, run_dir=folder)
    longer = rx.resume(folder, PROBLEM, epochs=long, progress=False)
    assert_same_run(longer, straight)
    assert longer.result.code == "finished"
    assert 0 < float(begun.average.weight) < float(longer.average.weight)
    with pytest.raises(ValueError, match=f"epochs is {short}, but the run was made for {long}"):
        rx.resume(folder, PROBLEM, epochs=short)


def test_every_method_is_made_longer_or_refused() -> None:
    others = {"pretrain", "sghmc-pt"}  # which test_choices.py has
    others |= {"deep-ensemble", "ensemble-then-sample"}  # whose rate depends on the length
    assert set(OF_NETWORKS) - set(LENGTHS) == others


@pytest.mark.parametrize(
    ("method", "options", "epochs", "sentence"),
    [
        ("pretrain", {}, (20, 30), "learning rate.*stepwise.*depends on the length"),
        ("deep-ensemble", {}, (20, 30), "learning rate.*cosine.*depends on the length"),
        ("ensemble", {"pretrain": 0.4}, (20, 30), "are trained before they are sampled depends"),
        ("ensemble", {}, (2, 20), "of 20 epochs would .* this one of 2: .*every 10 epochs"),
        (
            "cyc-sghmc",
            {},
            (9, 11),
            r"only cycle, shortened to 18 epochs .method=rx.cyc_sghmc\(cycle_epochs=18\)",
        ),
        ("cyc-swag", {"cycle_epochs": 30}, (14, 16), "only cycle, shortened to 28 epochs"),
    ],
)
def test_a_run_whose_beginning_follows_its_length_is_not_made_longer(
    method: str, options: dict[str, int], epochs: tuple[int, int], sentence: str
) -> None:
    short, long = (Training(epochs=number, num_replicas=2) for number in epochs)
    with pytest.raises(ValueError, match=sentence):
        check_extends(short, METHODS[method](**options), epochs[1])
    check_extends(long, METHODS[method](**options), epochs[1])
    check_extends(short, METHODS[method](**options), None)


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
    run = Training(epochs=epochs[0], num_replicas=2)
    check_extends(run, METHODS[method](**options), epochs[1])


# Every pair agrees in every step, so that replicas go up and down the ladder steadily.
SWAPPING = EXCHANGING | {"method": rx.deo(**OF_DEO | {"buffer": -50.0, "buffer_gain": 0.0})}


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
    resumed = rx.resume(folder, PROBLEM, progress=False)
    assert isinstance(resumed, rx.Trained)
    assert_same_run(resumed, straight)
    assert resumed.num_epochs == len(resumed.epochs["nll"]) == 4
    assert_same_run(rx.load(folder), straight)


@pytest.mark.slow
def test_a_killed_extension_is_not_finished(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(PROBLEM, NETWORK.init, **options_of("deo", 1), run_dir=folder)
    assert rx.load(folder).result.code == "finished"

    def break_down(progress: rx.callbacks.Progress) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        rx.resume(folder, PROBLEM, epochs=2, callback=break_down, progress=False)
    assert rx.load(folder).result.code == "running"
    assert rx.resume(folder, PROBLEM, progress=False).result.code == "finished"


def test_a_training_is_resumed_with_its_batch_size_and_kernel(
    killed: tuple[rx.Trained, Path],
) -> None:
    (_, folder), other = killed, tiny_problem(batch_size=16)
    with pytest.raises(ValueError, match="32 rows, 8 a batch; .*32 rows, 16 a batch"):
        rx.resume(folder, other)
    for name, value in (("batch_size", 8), ("batches", [1]), ("num_steps", 99), ("params", {})):
        with pytest.raises(ValueError, match=f"made by rx.train, which has no {name}"):
            rx.resume(folder, PROBLEM, **{name: value})
    with pytest.raises(ValueError, match="rx.resume takes no chunk_steps"):
        rx.resume(folder, PROBLEM, chunk_steps=4)
    for name, given in (
        ("kernel", {"method": rx.deo(kernel="sgld")}),
        ("method", {"method": "deo-star"}),
        ("evaluate", {"evaluate": lambda epoch: {}}),
    ):
        with pytest.raises(ValueError, match=f"{name}.* is given, but the run .*leave out {name}"):
            rx.resume(folder, PROBLEM, **given)
    params, _ = networks_that_start_from(folder, other)  # another run may
    assert np.shape(params["first"]["bias"])[0] == 3
