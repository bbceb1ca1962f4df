"""Replicas and chains over several devices: the same numbers, and only energies cross."""

import re
import shutil
from pathlib import Path
from typing import NamedTuple

import jax
import layout_cases
import layouts
import numpy as np
import pytest
from common import slow
from crossings import crossings, crossings_of

import replicax as rx
from replicax.run.devices import choose_mesh, chosen_sizes, first_devices, largest_mesh
from replicax.run.storage import checkpoint
from replicax.run.storage.folder import read_commit, steps_of


def assert_same(one: dict, other: dict) -> None:
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def paper(folder):
    """What the paper's recipe gives on one device and on four."""
    return layouts.run_layouts(folder, "paper", "1", "4")


def test_four_devices_give_the_numbers_of_one(paper):
    one, four = paper
    assert np.ptp(one["rung_of.0"][..., 0]) > 0  # replicas moved along the ladder
    assert_same(one, four)


@pytest.fixture(scope="module")
def launched(folder):
    """What the paper's recipe gives in two processes, with a folder."""
    return layouts.launch(folder, "in_folder")


def test_two_processes_give_the_numbers_of_one(paper, launched):
    for process in launched:
        assert_same(paper[0], process)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_first_process_writes_the_replicas_of_all(paper, launched, folder, tmp_path):
    """And any other number of processes reads them."""
    run = Path(shutil.copytree(folder / layout_cases.IN_FOLDER, tmp_path / "run"))
    commit = read_commit(run, 400)
    kept = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert kept == sorted(map(str, steps_of(run))) and len(kept) == 2, "nothing else is left"
    parts = [path.name for path in (run / "checkpoints/400").glob("ocdbt.process_*")]
    assert parts == ["ocdbt.process_0"]
    checkpoint.check(run, 400, commit.checkpoint)
    longer = rx.resume(run, rx.targets.modes25(), num_steps=402, progress=False)
    np.testing.assert_array_equal(paper[0]["draws.0"], longer.draws[:, :350])
    written = (run / "checkpoints/400" / parts[0] / "d").iterdir()
    damaged = max(written, key=lambda path: path.stat().st_size)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is damaged"):
        checkpoint.check(run, 400, commit.checkpoint)


@pytest.mark.slow
def test_a_network_goes_on_in_another_number_of_processes(folder):
    (whole,) = layouts.run_layouts(folder, "network", "1")
    layouts.launch(folder, "network_in_folder")
    for resumed in layouts.run_layouts(folder, "network_resumed", "1", "4"):
        assert_same(whole, resumed)
    shutil.rmtree(folder / layout_cases.IN_FOLDER)
    layouts.run_layouts(folder, "network_in_folder", "2")
    for resumed in layouts.launch(folder, "network_resumed"):
        assert_same(whole, resumed)


@pytest.mark.parametrize(
    ("case", "others"),
    [
        ("broken", ["2x2"]),
        slow("paper", ["2"]),
        slow("hmc", ["2", "2x2", "4"]),
        slow("network", ["2", "4"]),
        slow("sequential", ["4"]),
        slow("rows", ["2", "4"]),
        slow("broken", ["4"]),
    ],
)
def test_every_layout_gives_the_same_numbers(folder, case, others):
    one, *rest = layouts.run_layouts(folder, case, "1", *others)
    assert np.ptp(one["rung_of.0"], axis=1).max() > 0
    if case == "broken":
        assert one["final.restarts"].sum() > 0
    for other in rest:
        assert_same(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("case", ["hmc", "network"])
def test_processes_give_the_same_numbers(folder, case):
    (one,) = layouts.run_layouts(folder, case, "1")
    for process in layouts.launch(folder, case):
        assert_same(one, process)


@pytest.mark.slow
def test_a_run_goes_on_with_the_same_numbers_on_other_devices(paper, folder):
    for resumed in layouts.run_layouts(folder, "resumed", "1", "2"):
        assert_same(paper[0], resumed)


@pytest.mark.parametrize("case", ["paper", slow("network"), slow("hmc")])
def test_only_energies_cross_in_a_step(case):
    found = crossings_of(case)
    at_every_step = [one for one in found if one.in_loop and not one.in_branch]
    energies = layout_cases.NUM_REPLICAS * (layout_cases.NUM_CHAINS if case == "hmc" else 1)
    assert at_every_step, "energies must cross"
    assert all(one.size <= energies for one in at_every_step), at_every_step
    # Parameters cross where a replica restarts, or while step sizes are tuned; else not.
    assert any(one.in_branch for one in found)
    assert any(one.size > energies for one in found if not one.in_loop), "draws are joined once"


def test_crossings_are_found_in_loops_and_branches():
    program = """
%branch (x: f32[4]) -> f32[16] {
  ROOT %all-gather.1 = f32[16]{0} all-gather(%x), channel_id=1, dimensions={0}
}

%body (x: f32[4]) -> f32[4] {
  %all-reduce-start.3 = f32[2,3]{1,0} all-reduce-start(%y), to_apply=%add
  ROOT %c = f32[16] conditional(%p, %x, %x), branch_computations={%branch, %branch}
}

%add (x: f32[4]) -> f32[4] {
  ROOT %z = f32[4] add(%x, %x)
}

ENTRY %main (x: f32[4]) -> f32[4] {
  ROOT %w = f32[4] while(%x), condition=%add, body=%body
}
"""
    assert crossings(program) == [("all-reduce", 6, True, False), ("all-gather", 16, True, True)]


@pytest.mark.parametrize(
    ("chains", "replicas", "devices", "sizes"),
    [
        (1, 8, 4, (1, 4)),
        (1, 4, 4, (1, 4)),
        (4, 1, 4, (4, 1)),
        (2, 2, 4, (2, 2)),
        (6, 4, 8, (2, 4)),
        (1, 6, 4, (1, 3)),
        (1, 7, 4, (1, 1)),
        (3, 10, 8, (3, 2)),
        (3, 2, 4, (3, 1)),
        (2, 2, 2, (1, 2)),
    ],
)
def test_the_largest_even_mesh_is_chosen(chains, replicas, devices, sizes):
    assert largest_mesh(chains, replicas, devices) == sizes


class Device(NamedTuple):
    process_index: int = 0
    platform: str = "cpu"


@pytest.fixture
def eight(monkeypatch):
    """Eight devices, of two processes."""
    some = [Device(i // 4) for i in range(8)]
    monkeypatch.setattr(jax, "devices", lambda: some)
    return some


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (9, 'devices is 9; write "all", a number up to 8'),
        (0, "devices is 0; write"),
        (True, "devices is True; write"),
        (2.0, "devices is 2.0; write"),
        ("some", "devices is 'some'; write"),
        (5, "devices is 5, but only 4 of 5 devices can share 4 replicas"),
        (1, "2 processes cannot share 1 devices evenly"),
    ],
)
def test_devices_that_cannot_be_used_are_refused(eight, monkeypatch, devices, message):
    if "processes" in message:
        monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(ValueError, match=re.escape(message)):
        choose_mesh(1, 4, devices)


def test_devices_that_stay_idle_are_reported(eight):
    with pytest.warns(UserWarning, match="Only 4 of 8 devices can share 4 replicas"):
        devices = first_devices(eight, np.prod(chosen_sizes(1, 4, "all")))
    assert devices == eight[:2] + eight[4:6]


def test_one_cpu_is_the_default(eight):
    assert choose_mesh(1, 4) is None


def test_meshes_are_checked():
    mesh = jax.make_mesh((1,), ("batch",))
    with pytest.raises(ValueError, match="they must be among"):
        choose_mesh(1, 4, mesh)
    mesh = choose_mesh(1, 4, jax.make_mesh((1,), ("replica",)))
    assert mesh is not None and dict(mesh.shape) == {"chain": 1, "replica": 1}
